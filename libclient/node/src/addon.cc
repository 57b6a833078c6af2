// SPDX-License-Identifier: Apache-2.0
//
// idclient.node: libidclient for Node.js, over N-API. lib/ is the only user.
//
// Each native function of a client or a tag has its state as callback data, so that a claim makes
// two N-API calls only: one for the data and one for the result.
//
// Thread safety: an environment (the main thread, or a worker) has its own clients and tags, and
// only its thread uses their state. Exceptions: libuv's threads run Wait::Execute, which uses
// copies, and may call LogSink::Write, which has a lock. There are no globals.
//
// Lifetime: the functions of a tag share a TagState, and so does a Wait that is running. The
// TagState shares the ClientState. The last owner closes the native objects. close() of JavaScript
// closes them before that, but not while a Wait uses them: then the end of the Wait closes them.
#define NAPI_VERSION 8
#include <node_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idclient/idclient.hpp"
#include "log_sink.h"
#include "values.h"

namespace {

using namespace idclient_node;  // NOLINT(google-build-using-namespace): this program's own

constexpr std::uint64_t kMaxSafeInteger = (std::uint64_t{1} << 53) - 1;

// ---- Clients and tags ---------------------------------------------------------------------------

struct TagState;

struct ClientState : std::enable_shared_from_this<ClientState> {
  ClientState() = default;
  ClientState(const ClientState&) = delete;
  ClientState& operator=(const ClientState&) = delete;
  ~ClientState() { CloseNow(); }

  void Close();

  // Precondition: no tag is open.
  void CloseNow() {
    client.reset();
    if (log != nullptr) log->Close();
  }

  std::shared_ptr<LogSink> log;
  std::optional<idclient::Client> client;  // empty once it is closed
  std::vector<TagState*> tags;             // that are open
  bool is_closed = false;
};

struct TagState : std::enable_shared_from_this<TagState> {
  TagState(std::shared_ptr<ClientState> owner, idclient::Tag opened_tag)
      : claims(opened_tag), opened(opened_tag), client(std::move(owner)) {
    client->tags.push_back(this);
  }
  TagState(const TagState&) = delete;
  TagState& operator=(const TagState&) = delete;
  ~TagState() { CloseNow(); }

  void Close() {
    claims = idclient::Tag();
    if (waits == 0) CloseNow();
  }

  void EndWait() {
    --waits;
    if (is_closed()) Close();
  }

  [[nodiscard]] bool is_closed() const { return !claims; }

  // What the last failed call was about.
  [[nodiscard]] Failure LastFailure(idclient_status status) const {
    return is_closed() ? Closed() : Failure(status);
  }
  [[nodiscard]] static Failure Closed() { return {IDCLIENT_INVALID, "the tag was closed"}; }

  idclient::Tag claims;  // empty after close(): it refuses every claim
  std::size_t waits = 0;

 private:
  friend struct Wait;

  void CloseNow() {
    claims = idclient::Tag();
    if (!opened) return;
    opened.close();
    std::erase(client->tags, this);
    if (client->is_closed && client->tags.empty()) client->CloseNow();
  }

  idclient::Tag opened;  // until no Wait uses it
  const std::shared_ptr<ClientState> client;
};

void ClientState::Close() {
  is_closed = true;
  const std::vector<TagState*> open = tags;  // each removes itself
  for (TagState* const tag : open) tag->Close();
  if (tags.empty()) CloseNow();
}

// ---- Functions with state -----------------------------------------------------------------------

template <typename State>
State& StateOf(napi_env env, napi_callback_info info) {
  void* data = nullptr;
  napi_get_cb_info(env, info, nullptr, nullptr, nullptr, &data);
  return *static_cast<State*>(data);
}

// The state and the arguments, of which those that were not given are undefined.
template <typename State, std::size_t kCount>
State& StateOf(napi_env env, napi_callback_info info, napi_value (&arguments)[kCount]) {
  void* data = nullptr;
  std::size_t count = kCount;
  napi_get_cb_info(env, info, &count, arguments, nullptr, &data);
  return *static_cast<State*>(data);
}

struct Method {
  const char* name;
  napi_callback callback;
};

template <typename State>
void ReleaseState(napi_env /*env*/, void* data, void* /*hint*/) {
  delete static_cast<std::shared_ptr<State>*>(data);
}

// An object with a function for each method. Each function shares the state. Null: JavaScript has
// an exception.
template <typename State, std::size_t kCount>
napi_value Bind(napi_env env, const std::shared_ptr<State>& state,
                const Method (&methods)[kCount]) {
  napi_value object = nullptr;
  if (napi_create_object(env, &object) != napi_ok) return nullptr;
  for (const Method& method : methods) {
    napi_value function = nullptr;
    if (napi_create_function(env, method.name, NAPI_AUTO_LENGTH, method.callback, state.get(),
                             &function) != napi_ok) {
      return nullptr;
    }
    auto owner = std::make_unique<std::shared_ptr<State>>(state);
    if (napi_add_finalizer(env, function, owner.get(), ReleaseState<State>, nullptr, nullptr) !=
        napi_ok) {
      return nullptr;
    }
    static_cast<void>(owner.release());
    if (napi_set_named_property(env, object, method.name, function) != napi_ok) return nullptr;
  }
  return object;
}

// ---- Claims -------------------------------------------------------------------------------------

// The option timeoutMs of a claim. `is_valid` is false if it has a wrong value.
std::optional<std::uint32_t> ReadTimeout(napi_env env, napi_value options, bool& is_valid) {
  is_valid = true;
  if (TypeOf(env, options) != napi_object) {
    is_valid = TypeOf(env, options) == napi_undefined;
    return std::nullopt;
  }
  napi_value value = nullptr;
  is_valid = napi_get_named_property(env, options, "timeoutMs", &value) == napi_ok;
  if (!is_valid || TypeOf(env, value) == napi_undefined) return std::nullopt;
  const std::optional<std::uint32_t> timeout_ms = ReadMilliseconds(env, value);
  is_valid = timeout_ms.has_value();
  return timeout_ms;
}

// A claim with options. A pending exception of JavaScript, from a getter, stays.
[[gnu::noinline]] std::optional<std::uint64_t> ClaimWithOptions(napi_env env,
                                                                napi_callback_info info) {
  napi_value arguments[1] = {};
  const TagState& tag = StateOf<TagState>(env, info, arguments);
  bool is_valid = true;
  const std::optional<std::uint32_t> timeout_ms = ReadTimeout(env, arguments[0], is_valid);
  if (!is_valid) {
    Throw(env, Failure(IDCLIENT_INVALID,
                       "the options of claim must be an object whose timeoutMs is 0 to 3600000"));
    return std::nullopt;
  }
  const idclient::Expected<std::uint64_t> id =
      timeout_ms.has_value() ? tag.claims.try_claim(std::chrono::milliseconds(*timeout_ms))
                             : tag.claims.try_claim();
  if (id.has_value()) return *id;
  Throw(env, tag.LastFailure(id.error()));
  return std::nullopt;
}

// One id, made a value by `make`. Waits if the ring is dry.
template <typename Make>
[[gnu::always_inline]] inline napi_value ClaimAs(napi_env env, napi_callback_info info, Make make) {
  void* data = nullptr;
  std::size_t count = 0;
  napi_get_cb_info(env, info, &count, nullptr, nullptr, &data);
  if (count == 0) [[likely]] {
    const TagState& tag = *static_cast<TagState*>(data);
    const idclient::Expected<std::uint64_t> id = tag.claims.try_claim();
    if (id.has_value()) [[likely]]
      return make(*id);
    return Throw(env, tag.LastFailure(id.error()));
  }
  const std::optional<std::uint64_t> id = ClaimWithOptions(env, info);
  return id.has_value() ? make(*id) : nullptr;
}

napi_value Claim(napi_env env, napi_callback_info info) {
  return ClaimAs(env, info, [env](std::uint64_t id) { return FromId(env, id); });
}

napi_value ClaimNumber(napi_env env, napi_callback_info info) {
  return ClaimAs(env, info, [env](std::uint64_t id) {
    if (id > kMaxSafeInteger) [[unlikely]]
      return ThrowNotSafeInteger(env, id);
    return FromNumber(env, static_cast<double>(id));
  });
}

// One id, or undefined: it would have to wait.
napi_value TryClaim(napi_env env, napi_callback_info info) {
  const TagState& tag = StateOf<TagState>(env, info);
  const idclient::Expected<std::uint64_t> id =
      tag.claims.try_claim(std::chrono::milliseconds(IDCLIENT_NO_WAIT));
  if (id.has_value()) [[likely]]
    return FromId(env, *id);
  if (id.error() == IDCLIENT_TIMEOUT) return Undefined(env);
  return Throw(env, tag.LastFailure(id.error()));
}

// Fills a BigUint64Array and returns how many ids it got. A failure's detail is that number.
napi_value ClaimInto(napi_env env, napi_callback_info info) {
  napi_value arguments[1] = {};
  const TagState& tag = StateOf<TagState>(env, info, arguments);
  bool is_array = false;
  napi_is_typedarray(env, arguments[0], &is_array);
  napi_typedarray_type type = napi_int8_array;
  std::size_t length = 0;
  void* ids = nullptr;
  if (!is_array ||
      napi_get_typedarray_info(env, arguments[0], &type, &length, &ids, nullptr, nullptr) !=
          napi_ok ||
      type != napi_biguint64_array) {
    return Throw(env, Failure(IDCLIENT_INVALID, "claimInto needs a BigUint64Array"),
                 FromNumber(env, 0));
  }
  if (tag.is_closed()) return Throw(env, TagState::Closed(), FromNumber(env, 0));
  idclient_status status = IDCLIENT_OK;
  const std::size_t claimed =
      tag.claims.try_claim_many({static_cast<std::uint64_t*>(ids), length}, &status);
  const auto number = static_cast<double>(claimed);
  if (status != IDCLIENT_OK) return Throw(env, Failure(status), FromNumber(env, number));
  return FromNumber(env, number);
}

napi_value NewArray(napi_env env, const std::vector<napi_value>& values) {
  napi_value array = nullptr;
  if (napi_create_array_with_length(env, values.size(), &array) != napi_ok) return nullptr;
  for (std::size_t i = 0; i < values.size(); ++i) {
    napi_set_element(env, array, static_cast<std::uint32_t>(i), values[i]);
  }
  return array;
}

// [first, count]
napi_value ClaimRange(napi_env env, napi_callback_info info) {
  napi_value arguments[1] = {};
  const TagState& tag = StateOf<TagState>(env, info, arguments);
  const std::optional<std::uint64_t> count = ReadCount(env, arguments[0], kMaxSafeInteger);
  if (!count.has_value() || *count == 0) {
    return Throw(env, Failure(IDCLIENT_INVALID, "the count of claimRange must be at least 1"));
  }
  const idclient::Expected<idclient::Range> range = tag.claims.try_claim_range(*count);
  if (!range.has_value()) return Throw(env, tag.LastFailure(range.error()));
  return NewArray(env,
                  {FromId(env, range->first), FromNumber(env, static_cast<double>(range->count))});
}

// [mode, order, state, step, available, cover_ms], the last -1 if it is not known
napi_value Info(napi_env env, napi_callback_info info) {
  const TagState& tag = StateOf<TagState>(env, info);
  idclient_tag_info seen = IDCLIENT_TAG_INFO_INIT;
  const idclient_status status = idclient_tag_get_info(tag.claims.get(), &seen);
  if (status != IDCLIENT_OK) return Throw(env, tag.LastFailure(status));
  const double cover_ms =
      seen.cover_ms == IDCLIENT_UNKNOWN ? -1 : static_cast<double>(seen.cover_ms);
  std::vector<napi_value> values;
  for (const double number : {static_cast<double>(seen.mode), static_cast<double>(seen.order),
                              static_cast<double>(seen.state), static_cast<double>(seen.step),
                              static_cast<double>(seen.available), cover_ms}) {
    values.push_back(FromNumber(env, number));
  }
  return NewArray(env, values);
}

napi_value CloseTag(napi_env env, napi_callback_info info) {
  StateOf<TagState>(env, info).Close();
  return Undefined(env);
}

// ---- Claims on another thread -------------------------------------------------------------------

// A claim that waits on one of libuv's threads.
struct Wait {
  static napi_value Start(napi_env env, const std::shared_ptr<TagState>& tag,
                          std::uint32_t timeout_ms) {
    auto wait = std::make_unique<Wait>();
    wait->tag = tag;
    wait->handle = tag->opened.get();
    wait->timeout_ms = timeout_ms;
    napi_value promise = nullptr;
    if (napi_create_async_work(env, nullptr, FromString(env, "idclient.claim"), Execute, Complete,
                               wait.get(), &wait->work) != napi_ok) {
      return nullptr;
    }
    if (napi_create_promise(env, &wait->deferred, &promise) != napi_ok ||
        napi_queue_async_work(env, wait->work) != napi_ok) {
      napi_delete_async_work(env, wait->work);
      return nullptr;
    }
    ++tag->waits;
    static_cast<void>(wait.release());  // Complete deletes it
    return promise;
  }

  // On one of libuv's threads.
  static void Execute(napi_env /*env*/, void* data) noexcept {
    Wait& wait = *static_cast<Wait*>(data);
    wait.status = idclient_claim_timeout(wait.handle, wait.timeout_ms, &wait.id);
    if (wait.status != IDCLIENT_OK) wait.message = idclient_last_error();
  }

  // The promise gets the id or, as its value too, the error: most of them lead to another wait.
  // JavaScript may not be able to run any more; then there is nothing to report to.
  static void Complete(napi_env env, napi_status /*status*/, void* data) {
    const std::unique_ptr<Wait> wait(static_cast<Wait*>(data));
    napi_delete_async_work(env, wait->work);
    wait->tag->EndWait();
    const napi_value value =
        wait->status == IDCLIENT_OK
            ? FromId(env, wait->id)
            : MakeError(env, Failure(wait->status, wait->message), Undefined(env));
    if (value != nullptr) napi_resolve_deferred(env, wait->deferred, value);
  }

  std::shared_ptr<TagState> tag;
  idclient_tag* handle = nullptr;
  std::uint32_t timeout_ms = 0;
  idclient_status status = IDCLIENT_INVALID;
  std::uint64_t id = 0;
  std::string message = "the wait was cancelled";
  napi_async_work work = nullptr;
  napi_deferred deferred = nullptr;
};

// wait(timeoutMs): a promise, see Wait::Complete.
napi_value StartWait(napi_env env, napi_callback_info info) {
  napi_value arguments[1] = {};
  TagState& tag = StateOf<TagState>(env, info, arguments);
  return Contained(env, [&]() -> napi_value {
    if (tag.is_closed()) return Throw(env, TagState::Closed());
    const std::optional<std::uint32_t> timeout_ms = ReadMilliseconds(env, arguments[0]);
    if (!timeout_ms.has_value()) {
      return Throw(env, Failure(IDCLIENT_INVALID, "timeoutMs must be 0 to 3600000"));
    }
    return Wait::Start(env, tag.shared_from_this(), *timeout_ms);
  });
}

// ---- Opening ------------------------------------------------------------------------------------

constexpr Method kTagMethods[] = {
    {"claim", Claim},         {"tryClaim", TryClaim},     {"claimNumber", ClaimNumber},
    {"claimInto", ClaimInto}, {"claimRange", ClaimRange}, {"info", Info},
    {"wait", StartWait},      {"close", CloseTag},
};

// tag(name, blockSize)
napi_value OpenTag(napi_env env, napi_callback_info info) {
  napi_value arguments[2] = {};
  ClientState& client = StateOf<ClientState>(env, info, arguments);
  return Contained(env, [&]() -> napi_value {
    if (client.is_closed) return Throw(env, {IDCLIENT_INVALID, "the client was closed"});
    const std::optional<std::string> name = ReadString(env, arguments[0]);
    const auto block_size = ReadCount(env, arguments[1], std::numeric_limits<std::uint32_t>::max());
    if (!name.has_value() || !block_size.has_value()) {
      return Throw(env, Failure(IDCLIENT_INVALID, "a tag needs a name and a block size"));
    }
    const idclient::TagOptions options{static_cast<std::uint32_t>(*block_size)};
    const auto tag =
        std::make_shared<TagState>(client.shared_from_this(), client.client->tag(*name, options));
    return Bind(env, tag, kTagMethods);
  });
}

napi_value CloseClient(napi_env env, napi_callback_info info) {
  StateOf<ClientState>(env, info).Close();
  return Undefined(env);
}

constexpr Method kClientMethods[] = {{"tag", OpenTag}, {"close", CloseClient}};

// open(socketPath, timeoutMs, trustedUid, openOnce, log): what is undefined keeps its default.
napi_value Open(napi_env env, napi_callback_info info) {
  std::size_t count = 5;
  napi_value arguments[5] = {};
  napi_get_cb_info(env, info, &count, arguments, nullptr, nullptr);
  return Contained(env, [&]() -> napi_value {
    idclient::Options options;
    options.socket_path = ReadString(env, arguments[0]).value_or("");
    options.timeout = std::chrono::milliseconds(ReadMilliseconds(env, arguments[1]).value_or(0));
    if (const auto uid = ReadMilliseconds(env, arguments[2]); uid.has_value()) {
      options.trusted_uid = uid;
    }
    napi_get_value_bool(env, arguments[3], &options.open_once);
    const auto client = std::make_shared<ClientState>();
    if (TypeOf(env, arguments[4]) == napi_function) {
      client->log = LogSink::Create(env, arguments[4]);
      if (client->log == nullptr) return Throw(env, {IDCLIENT_SYSTEM, "no log function"});
      options.log = [sink = client->log](idclient_log_level level, std::string_view text) {
        sink->Write(level, text);
      };
    }
    client->client.emplace(options);
    return Bind(env, client, kClientMethods);
  });
}

// ---- Module -------------------------------------------------------------------------------------

// What bench.js compares claims with: functions that only return a value.
napi_value FloorBigInt(napi_env env, napi_callback_info /*info*/) {
  return FromId(env, 1'234'567'890'123);
}
napi_value FloorNumber(napi_env env, napi_callback_info /*info*/) {
  return FromNumber(env, 1'234'567'890'123.0);
}

napi_value Version(napi_env env, napi_callback_info /*info*/) {
  return FromString(env, idclient_version());
}

// setErrorFactory(function), before anything else
napi_value SetErrorFactory(napi_env env, napi_callback_info info) {
  std::size_t count = 1;
  napi_value function = nullptr;
  napi_get_cb_info(env, info, &count, &function, nullptr, nullptr);
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  if (data == nullptr || TypeOf(env, function) != napi_function) return Undefined(env);
  Instance& instance = *static_cast<Instance*>(data);
  if (instance.make_error != nullptr) napi_delete_reference(env, instance.make_error);
  napi_create_reference(env, function, 1, &instance.make_error);
  return Undefined(env);
}

constexpr Method kModuleFunctions[] = {
    {"open", Open},
    {"version", Version},
    {"setErrorFactory", SetErrorFactory},
    {"floorBigInt", FloorBigInt},
    {"floorNumber", FloorNumber},
};

}  // namespace

NAPI_MODULE_INIT() {
  auto instance = std::make_unique<Instance>(Instance{env});
  const auto release = [](napi_env, void* data, void*) { delete static_cast<Instance*>(data); };
  if (napi_set_instance_data(env, instance.get(), release, nullptr) != napi_ok) return nullptr;
  napi_add_env_cleanup_hook(env, Instance::EndReferences, instance.release());
  for (const Method& function : kModuleFunctions) {
    napi_value value = nullptr;
    napi_create_function(env, function.name, NAPI_AUTO_LENGTH, function.callback, nullptr, &value);
    napi_set_named_property(env, exports, function.name, value);
  }
  return exports;
}

// SPDX-License-Identifier: Apache-2.0
//
// The C API: checks arguments, catches exceptions and records error messages.
#include "idclient/idclient.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client.h"
#include "idd/base/status.h"
#include "idd/wire/channel.h"
#include "idd/wire/frames.h"
#include "log.h"
#include "tag.h"
#include "thread_state.h"

namespace {

using idd::Code;
using idd::Deadline;
using idd::Result;
using idd::Status;
using idd::client::Client;
using idd::client::ClientOptions;
using idd::client::Log;
using idd::client::Tag;
using idd::client::ThreadState;
using idd::shm::IdRange;

constexpr std::uint32_t kDefaultTimeoutMs = 500;
constexpr std::uint32_t kMaxBlockSize = 65'536;
constexpr std::size_t kMostStructBytes = 4096;
// The options of the first release: up to and including trusted_uid.
constexpr std::size_t kFirstOptionsBytes =
    offsetof(idclient_options, trusted_uid) + sizeof(std::uint32_t);

constexpr std::size_t kFirstInfoBytes = sizeof(idclient_tag_info);

static_assert(static_cast<int>(Code::kTimeout) == IDCLIENT_TIMEOUT);
static_assert(static_cast<int>(Code::kSystem) == IDCLIENT_SYSTEM);

// Reporting an error must not need memory.
idclient_status Fail(Code code, std::string_view message) noexcept {
  if (ThreadState* const state = ThreadState::Mine(); state != nullptr) state->SetError(message);
  return static_cast<idclient_status>(code);
}
idclient_status Fail(const Status& status) noexcept {
  return Fail(status.code(), status.message());
}

// Runs `body` and turns whatever it throws into a status: no exception crosses the C ABI.
template <typename Body>
idclient_status Contained(Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    return Fail(Code::kSystem, error.what());
  } catch (...) {
    return Fail(Code::kSystem, "an unknown exception");
  }
}

// The same, once at a time for each thread, and without cancellation points.
//
// A signal handler must not wait for what its own thread holds.
//
// Cancellation would unwind a waiting thread through noexcept functions, which aborts the process,
// and the thread may hold replies of others. So it ends at its next cancellation point after the
// call, which has a deadline.
template <typename Body>
idclient_status Guarded(Body body) {
  ThreadState* const state = ThreadState::Mine();
  if (state == nullptr) return IDCLIENT_SYSTEM;
  if (state->is_inside) {
    state->SetError(
        "this thread is in a call of libidclient already, which a signal handler or a log function "
        "interrupted");
    return IDCLIENT_UNAVAILABLE;
  }
  int before = PTHREAD_CANCEL_ENABLE;
  static_cast<void>(::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before));
  state->is_inside = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // I1 before the body
  const idclient_status status = Contained(body);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // I1 after it
  state->is_inside = false;
  static_cast<void>(::pthread_setcancelstate(before, nullptr));
  return status;
}

// The handles are opaque to users; these are the only places that know what they are.
idclient_client* ToHandle(Client* client) noexcept {
  return reinterpret_cast<idclient_client*>(client);
}
idclient_tag* ToHandle(Tag* tag) noexcept { return reinterpret_cast<idclient_tag*>(tag); }
Client* FromHandle(idclient_client* client) noexcept { return reinterpret_cast<Client*>(client); }
Tag* FromHandle(idclient_tag* tag) noexcept { return reinterpret_cast<Tag*>(tag); }

// Copies as much of `given` as its struct_size says. An older program's struct lacks the later
// fields; a newer one's may have more, as long as they are zero.
template <typename Struct>
Status ReadStruct(const Struct& given, std::size_t least, const char* name, Struct& read) {
  const std::size_t bytes = given.struct_size;
  if (bytes < least || bytes > kMostStructBytes) {
    return {Code::kInvalid, std::string(name) + ".struct_size is wrong; set it to sizeof"};
  }
  std::memcpy(&read, &given, std::min(bytes, sizeof(Struct)));
  const auto* const all = reinterpret_cast<const unsigned char*>(&given);
  if (std::any_of(all + std::min(bytes, sizeof(Struct)), all + bytes,
                  [](unsigned char byte) { return byte != 0; })) {
    return {Code::kInvalid, std::string(name) + " has a field that this library does not know"};
  }
  return Status::Ok();
}

Result<ClientOptions> ReadOptions(const idclient_options* given) {
  ClientOptions options;
  options.socket_path = idd::wire::DefaultSocketPath();
  if (given == nullptr) return options;
  idclient_options read = IDCLIENT_OPTIONS_INIT;
  if (Status status = ReadStruct(*given, kFirstOptionsBytes, "idclient_options", read);
      !status.ok()) {
    return status;
  }
  if (read.socket_path != nullptr) options.socket_path = read.socket_path;
  const std::uint32_t timeout_ms = read.timeout_ms == 0 ? kDefaultTimeoutMs : read.timeout_ms;
  if (timeout_ms > idd::wire::kMaxTimeoutMs) {
    return Status(Code::kInvalid, "idclient_options.timeout_ms is more than an hour");
  }
  options.timeout = std::chrono::milliseconds(timeout_ms);
  if ((read.flags & ~(IDCLIENT_TRUST_UID | IDCLIENT_OPEN_ONCE)) != 0) {
    return Status(Code::kInvalid, "idclient_options.flags has an unknown bit");
  }
  if (read.reserved != 0) {
    return Status(Code::kInvalid, "idclient_options.reserved is not zero");
  }
  if ((read.flags & IDCLIENT_TRUST_UID) != 0) options.trusted_uid = read.trusted_uid;
  options.opens_once = (read.flags & IDCLIENT_OPEN_ONCE) != 0;
  options.log = Log(read.log, read.log_context);
  return options;
}

Result<std::uint64_t> ReadBlockSize(const idclient_tag_options* given) {
  if (given == nullptr) return std::uint64_t{0};
  idclient_tag_options read = IDCLIENT_TAG_OPTIONS_INIT;
  if (Status status = ReadStruct(*given, sizeof(read), "idclient_tag_options", read);
      !status.ok()) {
    return status;
  }
  if (read.block_size > kMaxBlockSize || read.reserved != 0) {
    return Status(Code::kInvalid, "idclient_tag_options.block_size is more than " +
                                      std::to_string(kMaxBlockSize) + ", or reserved is not zero");
  }
  return std::uint64_t{read.block_size};
}

}  // namespace

idclient_status idclient_open(const idclient_options* options, idclient_client** out) {
  return Guarded([&] {
    if (out == nullptr) return Fail(Code::kInvalid, "idclient_open: out is NULL");
    Result<ClientOptions> read = ReadOptions(options);
    if (!read.ok()) return Fail(read.status());
    Result<std::unique_ptr<Client>> client = Client::Open(std::move(read).value());
    if (!client.ok()) return Fail(client.status());
    *out = ToHandle(std::move(client).value().release());
    return IDCLIENT_OK;
  });
}

void idclient_close(idclient_client* client) {
  static_cast<void>(Guarded([&] {
    const std::unique_ptr<Client> owned(FromHandle(client));
    return IDCLIENT_OK;
  }));
}

idclient_status idclient_tag_open(idclient_client* client, const char* tag, idclient_tag** out) {
  return idclient_tag_open_with(client, tag, nullptr, out);
}

idclient_status idclient_tag_open_with(idclient_client* client, const char* tag,
                                       const idclient_tag_options* options, idclient_tag** out) {
  return Guarded([&] {
    if (client == nullptr || tag == nullptr || out == nullptr) {
      return Fail(Code::kInvalid, "idclient_tag_open: an argument is NULL");
    }
    const Result<std::uint64_t> block_size = ReadBlockSize(options);
    if (!block_size.ok()) return Fail(block_size.status());
    const Result<Tag*> opened = FromHandle(client)->OpenTag(tag, block_size.value());
    if (!opened.ok()) return Fail(opened.status());
    *out = ToHandle(opened.value());
    return IDCLIENT_OK;
  });
}

void idclient_tag_close(idclient_tag* tag) {
  if (tag == nullptr) return;
  static_cast<void>(Guarded([&] {
    FromHandle(tag)->client().CloseTag(FromHandle(tag));
    return IDCLIENT_OK;
  }));
}

idclient_status idclient_tag_get_info(idclient_tag* tag, idclient_tag_info* info) {
  if (tag == nullptr || info == nullptr) {
    return Fail(Code::kInvalid, "idclient_tag_get_info: an argument is NULL");
  }
  const std::size_t bytes = info->struct_size;
  if (bytes < kFirstInfoBytes || bytes > kMostStructBytes) {
    return Fail(Code::kInvalid, "idclient_tag_info.struct_size is wrong; set it to sizeof");
  }
  const idd::client::TagInfo seen = FromHandle(tag)->Info();
  const idclient_tag_info read = {.struct_size = bytes,
                                  .mode = static_cast<std::uint32_t>(seen.mode),
                                  .order = static_cast<std::uint32_t>(seen.order),
                                  .state = static_cast<std::uint32_t>(seen.state),
                                  .reserved = 0,
                                  .step = seen.step,
                                  .available = seen.available,
                                  .cover_ms = seen.cover_ms};
  std::memset(info, 0, bytes);
  std::memcpy(info, &read, std::min(bytes, sizeof(read)));
  return IDCLIENT_OK;
}

namespace {

// How long a claim may wait; this instead of the client's timeout.
constexpr std::int64_t kClientsTimeout = -1;

std::optional<Deadline> DeadlineOf(std::int64_t timeout_ms) {
  if (timeout_ms == kClientsTimeout) return std::nullopt;
  return Deadline::After(std::chrono::milliseconds(timeout_ms));
}

[[gnu::noinline]] idclient_status ClaimSlow(Tag& tag, uint64_t* id, std::int64_t timeout_ms) {
  return Guarded([&] {
    std::optional<Deadline> deadline = DeadlineOf(timeout_ms);
    if (tag.block_size() != 0) {
      const Result<std::uint64_t> claimed =
          timeout_ms == IDCLIENT_NO_WAIT ? tag.ClaimFromBlockNow() : tag.ClaimFromBlock(deadline);
      if (!claimed.ok()) return Fail(claimed.status());
      *id = claimed.value();
      return IDCLIENT_OK;
    }
    const Result<IdRange> ids =
        timeout_ms == IDCLIENT_NO_WAIT ? tag.ClaimNow(1) : tag.Claim(1, deadline);
    if (!ids.ok()) return Fail(ids.status());
    *id = ids.value().first;
    return IDCLIENT_OK;
  });
}

// After a claim of one id that found nothing in its lane. The grant comes in registers: a caller
// that passes it in memory saves registers and guards its stack for every claim.
[[gnu::noinline]] idclient_status FinishInLane(Tag& tag, std::uint64_t first, std::uint64_t limit,
                                               std::uint64_t segment, uint64_t* id,
                                               std::int64_t timeout_ms) {
  idd::shm::LaneClaimer* const lanes = tag.lanes();
  const IdRange ids =
      lanes == nullptr ? IdRange{} : tag.FinishInRing(*lanes, {first, limit, segment});
  if (ids.empty()) [[unlikely]]
    return ClaimSlow(tag, id, timeout_ms);
  *id = ids.first;
  return IDCLIENT_OK;
}

// The claim has taken the refill mark.
[[gnu::noinline]] idclient_status WakeDaemon(Tag& tag, std::uint64_t claimed, uint64_t* id) {
  tag.WakeDaemon();
  *id = claimed;
  return IDCLIENT_OK;
}

[[gnu::noinline]] idclient_status FinishTimed(Tag& tag, idd::shm::SnowflakeClaimer& claimer,
                                              const idd::shm::SnowflakeClaim& claim, uint64_t* id,
                                              std::int64_t timeout_ms) {
  return Guarded([&] {
    if (timeout_ms == IDCLIENT_NO_WAIT) {
      const Result<IdRange> now = tag.ClaimNow(1);
      if (!now.ok()) return Fail(now.status());
      *id = now.value().first;
      return IDCLIENT_OK;
    }
    std::optional<Deadline> deadline = DeadlineOf(timeout_ms);
    const Result<IdRange> ids = tag.FinishTimed(claimer, claim, 1, deadline);
    if (!ids.ok()) return Fail(ids.status());
    *id = ids.value().first;
    return IDCLIENT_OK;
  });
}

[[gnu::noinline]] idclient_status ClaimTimed(Tag& tag, uint64_t* id, std::int64_t timeout_ms) {
  idd::shm::SnowflakeClaimer* const timed = tag.snowflake();
  if (timed == nullptr) return ClaimSlow(tag, id, timeout_ms);
  const idd::shm::SnowflakeClaim claim = timed->ClaimOne();
  if (claim.ids.empty() || claim.is_early) [[unlikely]]
    return FinishTimed(tag, *timed, claim, id, timeout_ms);
  *id = claim.ids.first;
  return IDCLIENT_OK;
}

// Rare ways are calls at the end, so that the others need no registers saved.
[[gnu::always_inline]] inline idclient_status ClaimOne(Tag& tag, uint64_t* id,
                                                       std::int64_t timeout_ms) {
  const Tag::Way way = tag.way();
  if (way == Tag::Way::kBlock) {
    std::uint64_t next = 0;  // *id may be memory that others see
    if (!TakeFromBlock(idclient_thread_blocks, tag.block_owner(), next)) [[unlikely]]
      return ClaimSlow(tag, id, timeout_ms);
    *id = next;
    return IDCLIENT_OK;
  }
  if (way == Tag::Way::kLane) {
    const idd::shm::LaneView& view = idd::shm::ViewAt(tag.lane_view());
    const idd::shm::LaneGrant grant = idd::shm::ClaimOneInLane(view);
    if (grant.empty() || !IsPublished(view, grant)) [[unlikely]]
      return FinishInLane(tag, grant.first, grant.limit, grant.segment, id, timeout_ms);
    *id = grant.first;
    return IDCLIENT_OK;
  }
  if (way == Tag::Way::kSnowflake) [[unlikely]]
    return ClaimTimed(tag, id, timeout_ms);
  const idd::shm::SlotClaim claim = idd::shm::ClaimAtPoint(tag.view(), 1);
  if (claim.ids.empty()) [[unlikely]]
    return ClaimSlow(tag, id, timeout_ms);
  if (claim.wakes_daemon) [[unlikely]]
    return WakeDaemon(tag, claim.ids.first, id);
  *id = claim.ids.first;
  return IDCLIENT_OK;
}

}  // namespace

idclient_status idclient_claim(idclient_tag* tag, uint64_t* id) {
  if (tag == nullptr || id == nullptr) [[unlikely]] {
    return Fail(Code::kInvalid, "idclient_claim: an argument is NULL");
  }
  return ClaimOne(*FromHandle(tag), id, kClientsTimeout);
}

idclient_status idclient_claim_timeout(idclient_tag* tag, uint32_t timeout_ms, uint64_t* id) {
  if (tag == nullptr || id == nullptr) [[unlikely]] {
    return Fail(Code::kInvalid, "idclient_claim_timeout: an argument is NULL");
  }
  if (timeout_ms > idd::wire::kMaxTimeoutMs) [[unlikely]] {
    return Fail(Code::kInvalid, "idclient_claim_timeout: timeout_ms is more than an hour");
  }
  return ClaimOne(*FromHandle(tag), id, timeout_ms);
}

idclient_status idclient_claim_many(idclient_tag* tag, uint64_t* ids, size_t count,
                                    size_t* claimed) {
  if (claimed != nullptr) *claimed = 0;
  return Guarded([&] {
    if (tag == nullptr || claimed == nullptr || (ids == nullptr && count != 0)) {
      return Fail(Code::kInvalid, "idclient_claim_many: an argument is NULL");
    }
    std::optional<Deadline> deadline;
    while (*claimed < count) {
      const Result<IdRange> range =
          FromHandle(tag)->Claim(count - *claimed, deadline, *claimed != 0);
      if (!range.ok()) return Fail(range.status());
      std::uint64_t* const to = ids + *claimed;
      const std::uint64_t first = range.value().first;
      const auto size = static_cast<std::size_t>(range.value().size());
      for (std::size_t i = 0; i < size; ++i) to[i] = first + i;
      *claimed += size;
    }
    return IDCLIENT_OK;
  });
}

idclient_status idclient_claim_range(idclient_tag* tag, size_t count, uint64_t* first,
                                     size_t* claimed) {
  if (claimed != nullptr) *claimed = 0;
  return Guarded([&] {
    if (tag == nullptr || first == nullptr || claimed == nullptr || count == 0) {
      return Fail(Code::kInvalid, "idclient_claim_range: an argument is NULL or count is 0");
    }
    std::optional<Deadline> deadline;
    const Result<IdRange> range = FromHandle(tag)->Claim(count, deadline);
    if (!range.ok()) return Fail(range.status());
    *first = range.value().first;
    *claimed = range.value().size();
    return IDCLIENT_OK;
  });
}

const char* idclient_status_name(idclient_status status) {
  return idd::CodeName(static_cast<Code>(status));
}

int idclient_status_retryable(idclient_status status) {
  return status == IDCLIENT_UNAVAILABLE || status == IDCLIENT_TIMEOUT ? 1 : 0;
}

const char* idclient_last_error(void) {
  const ThreadState* const state = ThreadState::MineIfAny();
  return state == nullptr ? "" : state->error();
}

const char* idclient_version(void) { return IDD_VERSION; }

const void* idclient_tag_view(idclient_tag* tag, uint32_t version) {
  if (tag == nullptr || version != idd::shm::kClaimViewVersion) return nullptr;
  const Tag& opened = *FromHandle(tag);
  if (opened.block_size() != 0 || opened.snowflake() != nullptr || opened.lanes() != nullptr)
    return nullptr;
  return &opened.view();
}

const void* idclient_tag_lanes(idclient_tag* tag, uint32_t version) {
  if (tag == nullptr || version != idd::shm::kLaneViewVersion) return nullptr;
  if (FromHandle(tag)->block_size() != 0 || FromHandle(tag)->lanes() == nullptr) return nullptr;
  return &FromHandle(tag)->lane_view();
}

int idclient_tag_blocks(idclient_tag* tag, uint32_t version, idd::client::BlockOwner* owner) {
  if (tag == nullptr || owner == nullptr || version != idd::client::kThreadBlockVersion) return 0;
  *owner = FromHandle(tag)->block_owner();
  return owner->serial != 0 ? 1 : 0;
}

void idclient_tag_wake(idclient_tag* tag) {
  if (tag != nullptr) FromHandle(tag)->WakeDaemon();
}

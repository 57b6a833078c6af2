// SPDX-License-Identifier: Apache-2.0
//
// The native methods of dev.idd.client.NativeCalls, over idclient.hpp.
//
// Ids and handles are positive. A failure is the negative number of a status, and the calling
// thread's lastError() explains it until its next call.
//
// Handles point to the structs below, which outlive the Java objects that have them: they are freed
// when those are unreachable. So a closed client or tag can be asked, and refuses. What the structs
// own in libidclient is closed when the program closes the client; a CallGuard keeps it until the
// calls that use it have ended.
#include <jni.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "call_guard.h"
#include "idclient/idclient.hpp"

namespace {

using idd::jni::CallGuard;
using idd::jni::Slots;

constexpr jlong kClosed = -100;    // NativeCalls.CLOSED
constexpr jlong kNoMemory = -101;  // NativeCalls.NO_MEMORY
constexpr jsize kStackIds = 512;

struct ClientRecord;

// A tag that was opened on a client, for all IdTag objects of its name and block size.
struct TagRecord {
  explicit TagRecord(ClientRecord& owner) : client(owner) {}

  // Written only while no thread can use them: opens and owed are zero.
  idclient::Tag tag;
  const idd::shm::ClaimView* view = nullptr;  // null: batches are claimed by calls of the library
  std::atomic<bool> closed{true};
  ClientRecord& client;
  // Under the client's mutex:
  std::uint64_t opens = 0;  // IdTag objects that are not closed
  std::uint64_t owed = 0;   // closings that wait until no thread claims from the tag
};

struct ClientRecord {
  explicit ClientRecord(const idclient::Options& options) : client(options) {}

  std::optional<idclient::Client> client;
  std::atomic<bool> closed{false};
  std::mutex mutex;
  std::map<std::pair<std::string, jint>, std::unique_ptr<TagRecord>> tags;

  [[nodiscard]] bool Owns(const void* object) const {
    return object == this || std::any_of(tags.begin(), tags.end(), [object](const auto& entry) {
             return entry.second.get() == object;
           });
  }
};

template <typename Record>
Record& FromHandle(jlong handle) noexcept {
  return *reinterpret_cast<Record*>(handle);
}
template <typename Record>
jlong ToHandle(Record* record) noexcept {
  return reinterpret_cast<jlong>(record);
}

jlong Failed(idclient_status status) noexcept { return -static_cast<jlong>(status); }

[[gnu::cold]] jlong Refused(const CallGuard& guard) noexcept {
  return guard.has_slot() ? kClosed : kNoMemory;
}

// Runs `body` and turns what it throws into a status.
template <typename Body>
jlong Contained(Body body) noexcept {
  try {
    return body();
  } catch (const idclient::Error& error) {
    return Failed(error.status());
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (...) {
    return Failed(IDCLIENT_SYSTEM);
  }
}

std::string ToString(JNIEnv* env, jbyteArray bytes) {
  const jsize size = env->GetArrayLength(bytes);
  std::string text(static_cast<std::size_t>(size), '\0');
  env->GetByteArrayRegion(bytes, 0, size, reinterpret_cast<jbyte*>(text.data()));
  return text;
}

jbyteArray ToBytes(JNIEnv* env, const char* text) {
  const auto size = static_cast<jsize>(std::strlen(text));
  jbyteArray bytes = env->NewByteArray(size);
  if (bytes != nullptr)
    env->SetByteArrayRegion(bytes, 0, size, reinterpret_cast<const jbyte*>(text));
  return bytes;
}

jlong IdOf(const idclient::Expected<std::uint64_t>& claimed) noexcept {
  if (claimed) [[likely]]
    return static_cast<jlong>(*claimed);
  return Failed(claimed.error());
}

// How many ids were claimed, and above them the status that says why there are no more.
jlong Batch(std::size_t claimed, jlong status) noexcept {
  return (status << 32) | static_cast<jlong>(claimed);
}

// As many of the ids as the ring's current segment has, without a call of the library: 0 where
// claims are not inlined.
std::size_t ClaimInSegment(const TagRecord& record, std::uint64_t* ids,
                           std::size_t count) noexcept {
  if (record.view == nullptr || count == 0) return 0;
  const idd::shm::SlotClaim claim = idd::shm::ClaimAtPoint(*record.view, count);
  if (claim.wakes_daemon) [[unlikely]]
    idclient_tag_wake(record.tag.get());
  const std::size_t claimed = claim.ids.size();
  for (std::size_t i = 0; i < claimed; ++i) ids[i] = claim.ids.first + i;
  return claimed;
}

// Precondition: the guard of `record` is open.
jlong ClaimInto(const TagRecord& record, std::uint64_t* ids, jsize count) noexcept {
  const auto wanted = static_cast<std::size_t>(count);
  std::size_t claimed = ClaimInSegment(record, ids, wanted);
  idclient_status why = IDCLIENT_OK;
  if (claimed < wanted) [[unlikely]]
    claimed += record.tag.try_claim_many({ids + claimed, wanted - claimed}, &why);
  return Batch(claimed, why);
}

// Claims into native memory first: a claim may wait, and must not hold up the garbage collector.
jlong ClaimIntoArray(JNIEnv* env, const TagRecord& record, jlongArray array, jint offset,
                     jint count) noexcept {
  std::array<std::uint64_t, kStackIds> few;  // NOLINT(*-member-init): not read before it is written
  std::unique_ptr<std::uint64_t[]> many;     // NOLINT(*-avoid-c-arrays): no vector without throwing
  if (count > kStackIds) {
    many.reset(new (std::nothrow) std::uint64_t[static_cast<std::size_t>(count)]);
    if (many == nullptr) return Batch(0, -kNoMemory);
  }
  std::uint64_t* const ids = many != nullptr ? many.get() : few.data();
  const jlong result = ClaimInto(record, ids, count);
  const auto claimed = static_cast<jsize>(result & std::numeric_limits<jint>::max());
  env->SetLongArrayRegion(array, offset, claimed, reinterpret_cast<const jlong*>(ids));
  return result;
}

// Finds or adds the record of a tag. Under the client's mutex.
TagRecord& RecordOf(ClientRecord& client, std::string name, jint block_size) {
  std::pair<std::string, jint> key(std::move(name), block_size);
  if (const auto found = client.tags.find(key); found != client.tags.end()) return *found->second;
  auto record = std::make_unique<TagRecord>(client);
  return *client.tags.emplace(std::move(key), std::move(record)).first->second;
}

// Counts one more opening of `tag`. Under the client's mutex.
void AddOpening(TagRecord& record, idclient::Tag tag) noexcept {
  if (record.opens == 0 && record.owed == 0) {
    record.tag = tag;
    record.view = static_cast<const idd::shm::ClaimView*>(
        idclient_tag_view(tag.get(), idd::shm::kClaimViewVersion));
  }
  ++record.opens;
  record.closed.store(false, std::memory_order_seq_cst);  // Z3, pairs with Z4
}

// Under the client's mutex.
void CloseTag(TagRecord& record) {
  if (--record.opens > 0) {
    idclient::Tag(record.tag).close();
    return;
  }
  record.closed.store(true, std::memory_order_seq_cst);  // Z3, pairs with Z4
  Slots::Barrier();
  ++record.owed;
  if (Slots::IsUsed([&record](const void* object) { return object == &record; })) return;
  for (; record.owed > 0; --record.owed) idclient::Tag(record.tag).close();
}

void CloseClient(ClientRecord& client) {
  {
    const std::lock_guard lock(client.mutex);
    if (client.closed.exchange(true, std::memory_order_seq_cst)) return;  // Z3, pairs with Z4
    for (auto& [name, tag] : client.tags)
      tag->closed.store(true, std::memory_order_seq_cst);  // Z3, pairs with Z4
  }
  Slots::Barrier();
  // No tag is added any more, so that no lock is needed. A call ends at its deadline.
  auto pause = std::chrono::microseconds(1);
  while (Slots::IsUsed([&client](const void* object) { return client.Owns(object); })) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(2000));
  }
  const std::lock_guard lock(client.mutex);
  client.client.reset();
}

}  // namespace

extern "C" {

JNIEXPORT jbyteArray JNICALL Java_dev_idd_client_NativeCalls_version(JNIEnv* env, jclass) {
  return ToBytes(env, idclient_version());
}

#define IDD_TEXT(value) #value
#define IDD_VERSION_TEXT(major, minor, patch) \
  IDD_TEXT(major) "." IDD_TEXT(minor) "." IDD_TEXT(patch)

JNIEXPORT jbyteArray JNICALL Java_dev_idd_client_NativeCalls_jniVersion(JNIEnv* env, jclass) {
  return ToBytes(env, IDD_VERSION_TEXT(IDCLIENT_VERSION_MAJOR, IDCLIENT_VERSION_MINOR,
                                       IDCLIENT_VERSION_PATCH));
}

JNIEXPORT jbyteArray JNICALL Java_dev_idd_client_NativeCalls_lastError(JNIEnv* env, jclass) {
  return ToBytes(env, idclient_last_error());
}

JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_open(JNIEnv* env, jclass,
                                                             jbyteArray socket_path,
                                                             jlong timeout_ms, jlong trusted_uid,
                                                             jboolean opens_once) {
  return Contained([&] {
    idclient::Options options;
    if (socket_path != nullptr) options.socket_path = ToString(env, socket_path);
    options.timeout = std::chrono::milliseconds(timeout_ms);
    if (trusted_uid >= 0) options.trusted_uid = static_cast<std::uint32_t>(trusted_uid);
    options.open_once = opens_once == JNI_TRUE;
    return ToHandle(new ClientRecord(options));
  });
}

JNIEXPORT void JNICALL Java_dev_idd_client_NativeCalls_close(JNIEnv*, jclass, jlong client) {
  CloseClient(FromHandle<ClientRecord>(client));
}

// Precondition: no Java object has the handle, or that of one of its tags, any more.
JNIEXPORT void JNICALL Java_dev_idd_client_NativeCalls_free(JNIEnv*, jclass, jlong client) {
  CloseClient(FromHandle<ClientRecord>(client));
  delete &FromHandle<ClientRecord>(client);
}

JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_openTag(JNIEnv* env, jclass, jlong handle,
                                                                jbyteArray name, jint block_size) {
  ClientRecord& client = FromHandle<ClientRecord>(handle);
  const CallGuard guard(&client, client.closed);
  if (!guard.is_open()) return Refused(guard);
  return Contained([&] {
    std::string text = ToString(env, name);
    // Not under the lock: this may wait for a daemon.
    const idclient::Tag tag =
        client.client->tag(text, {.block_size = static_cast<std::uint32_t>(block_size)});
    const std::lock_guard lock(client.mutex);
    if (client.closed.load(std::memory_order_seq_cst)) return kClosed;  // Z4, pairs with Z3
    TagRecord& record = RecordOf(client, std::move(text), block_size);
    AddOpening(record, tag);
    return ToHandle(&record);
  });
}

JNIEXPORT void JNICALL Java_dev_idd_client_NativeCalls_closeTag(JNIEnv*, jclass, jlong tag) {
  TagRecord& record = FromHandle<TagRecord>(tag);
  const std::lock_guard lock(record.client.mutex);
  // Z4, pairs with Z3
  if (!record.client.closed.load(std::memory_order_seq_cst)) CloseTag(record);
}

JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_claim(JNIEnv*, jclass, jlong tag) {
  const TagRecord& record = FromHandle<TagRecord>(tag);
  const CallGuard guard(&record, record.closed);
  if (!guard.is_open()) [[unlikely]]
    return Refused(guard);
  return IdOf(record.tag.try_claim());
}

JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_claimTimeout(JNIEnv*, jclass, jlong tag,
                                                                     jlong timeout_ms) {
  const TagRecord& record = FromHandle<TagRecord>(tag);
  const CallGuard guard(&record, record.closed);
  if (!guard.is_open()) [[unlikely]]
    return Refused(guard);
  return IdOf(record.tag.try_claim(std::chrono::milliseconds(timeout_ms)));
}

// Precondition: the bounds were checked.
JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_claimMany(JNIEnv* env, jclass, jlong tag,
                                                                  jlongArray ids, jint offset,
                                                                  jint count) {
  const TagRecord& record = FromHandle<TagRecord>(tag);
  const CallGuard guard(&record, record.closed);
  if (!guard.is_open()) [[unlikely]]
    return Batch(0, -Refused(guard));
  return ClaimIntoArray(env, record, ids, offset, count);
}

// Precondition: the buffer is direct, and its bounds and alignment were checked.
JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_claimBuffer(JNIEnv* env, jclass, jlong tag,
                                                                    jobject buffer,
                                                                    jint offset_bytes, jint count) {
  const TagRecord& record = FromHandle<TagRecord>(tag);
  auto* const memory = static_cast<char*>(env->GetDirectBufferAddress(buffer));
  if (memory == nullptr) return Batch(0, IDCLIENT_INVALID);
  const CallGuard guard(&record, record.closed);
  if (!guard.is_open()) [[unlikely]]
    return Batch(0, -Refused(guard));
  return ClaimInto(record, reinterpret_cast<std::uint64_t*>(memory + offset_bytes), count);
}

// Writes how many ids there are to result[0]; returns the first.
JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_claimRange(JNIEnv* env, jclass, jlong tag,
                                                                   jint count, jlongArray result) {
  const TagRecord& record = FromHandle<TagRecord>(tag);
  const CallGuard guard(&record, record.closed);
  if (!guard.is_open()) return Refused(guard);
  const idclient::Expected<idclient::Range> range =
      record.tag.try_claim_range(static_cast<std::size_t>(count));
  if (!range) return Failed(range.error());
  const auto claimed = static_cast<jlong>(range->count);
  env->SetLongArrayRegion(result, 0, 1, &claimed);
  return static_cast<jlong>(range->first);
}

// Writes mode, order, state, step, available and cover_ms. Returns 0.
JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_info(JNIEnv* env, jclass, jlong tag,
                                                             jlongArray fields) {
  const TagRecord& record = FromHandle<TagRecord>(tag);
  const CallGuard guard(&record, record.closed);
  if (!guard.is_open()) return Refused(guard);
  return Contained([&] {
    const idclient_tag_info info = record.tag.info();
    const std::array<jlong, 6> seen = {
        info.mode,
        info.order,
        info.state,
        static_cast<jlong>(info.step),
        static_cast<jlong>(info.available),
        static_cast<jlong>(info.cover_ms),  // IDCLIENT_UNKNOWN is -1
    };
    env->SetLongArrayRegion(fields, 0, static_cast<jsize>(seen.size()), seen.data());
    return jlong{0};
  });
}

// For the benchmark: what a call costs that does nothing.
JNIEXPORT jlong JNICALL Java_dev_idd_client_NativeCalls_nothing(JNIEnv*, jclass, jlong value) {
  return value;
}

}  // extern "C"

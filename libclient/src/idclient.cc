// SPDX-License-Identifier: Apache-2.0
//
// The C API: checks arguments, catches exceptions and records error messages.
#include "idclient/idclient.h"

#include <pthread.h>

#include <algorithm>
#include <array>
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
#include "tag.h"

namespace {

using idd::Code;
using idd::Deadline;
using idd::Result;
using idd::Status;
using idd::client::Client;
using idd::client::ClientOptions;
using idd::client::Tag;
using idd::shm::IdRange;

constexpr std::uint32_t kDefaultTimeoutMs = 500;
constexpr std::uint32_t kMaxBlockSize = 65'536;
// The options of the first release: up to and including trusted_uid.
constexpr std::size_t kFirstOptionsBytes =
    offsetof(idclient_options, trusted_uid) + sizeof(std::uint32_t);

static_assert(static_cast<int>(Code::kTimeout) == IDCLIENT_TIMEOUT);
static_assert(static_cast<int>(Code::kSystem) == IDCLIENT_SYSTEM);

// A fixed buffer: reporting an error must not need memory.
thread_local std::array<char, 1024> last_error{};

idclient_status Fail(Code code, std::string_view message) noexcept {
  const std::size_t bytes = std::min(message.size(), last_error.size() - 1);
  std::copy_n(message.begin(), bytes, last_error.begin());
  last_error[bytes] = '\0';
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

// The same without cancellation points. Cancellation would unwind a waiting thread through noexcept
// functions, which aborts the process, and the thread may hold replies of others. So it ends at its
// next cancellation point after the call, which has a deadline.
template <typename Body>
idclient_status Guarded(Body body) {
  int before = PTHREAD_CANCEL_ENABLE;
  static_cast<void>(::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before));
  const idclient_status status = Contained(body);
  static_cast<void>(::pthread_setcancelstate(before, nullptr));
  return status;
}

// The handles are opaque to users; these are the only places that know what they are.
idclient* ToHandle(Client* client) noexcept { return reinterpret_cast<idclient*>(client); }
idclient_tag* ToHandle(Tag* tag) noexcept { return reinterpret_cast<idclient_tag*>(tag); }
Client* FromHandle(idclient* client) noexcept { return reinterpret_cast<Client*>(client); }
Tag* FromHandle(idclient_tag* tag) noexcept { return reinterpret_cast<Tag*>(tag); }

Result<ClientOptions> ReadOptions(const idclient_options* given) {
  ClientOptions options;
  options.socket_path = idd::wire::DefaultSocketPath();
  if (given == nullptr) return options;
  if (given->struct_size < kFirstOptionsBytes) {
    return Status(Code::kInvalid, "idclient_options.struct_size is too small; set it to sizeof");
  }
  if (given->socket_path != nullptr) options.socket_path = given->socket_path;
  const std::uint32_t timeout_ms = given->timeout_ms == 0 ? kDefaultTimeoutMs : given->timeout_ms;
  if (timeout_ms > idd::wire::kMaxTimeoutMs) {
    return Status(Code::kInvalid, "idclient_options.timeout_ms is more than an hour");
  }
  options.timeout = std::chrono::milliseconds(timeout_ms);
  if ((given->flags & ~IDCLIENT_TRUST_UID) != 0) {
    return Status(Code::kInvalid, "idclient_options.flags has an unknown bit");
  }
  if ((given->flags & IDCLIENT_TRUST_UID) != 0) options.trusted_uid = given->trusted_uid;
  return options;
}

Result<std::uint64_t> ReadBlockSize(const idclient_tag_options* given) {
  if (given == nullptr) return std::uint64_t{0};
  if (given->struct_size < sizeof(idclient_tag_options)) {
    return Status(Code::kInvalid,
                  "idclient_tag_options.struct_size is too small; set it to sizeof");
  }
  if (given->block_size > kMaxBlockSize || given->reserved != 0) {
    return Status(Code::kInvalid, "idclient_tag_options.block_size is more than " +
                                      std::to_string(kMaxBlockSize) + ", or reserved is not zero");
  }
  return std::uint64_t{given->block_size};
}

}  // namespace

idclient_status idclient_open(const idclient_options* options, idclient** out) {
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

void idclient_close(idclient* client) {
  static_cast<void>(Guarded([&] {
    const std::unique_ptr<Client> owned(FromHandle(client));
    return IDCLIENT_OK;
  }));
}

idclient_status idclient_tag_open(idclient* client, const char* tag, idclient_tag** out) {
  return idclient_tag_open_with(client, tag, nullptr, out);
}

idclient_status idclient_tag_open_with(idclient* client, const char* tag,
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

namespace {

[[gnu::noinline]] idclient_status ClaimSlow(Tag& tag, uint64_t* id) {
  return Guarded([&] {
    if (tag.block_size() != 0) {
      const Result<std::uint64_t> claimed = tag.ClaimFromBlock();
      if (!claimed.ok()) return Fail(claimed.status());
      *id = claimed.value();
      return IDCLIENT_OK;
    }
    std::optional<Deadline> deadline;
    const Result<IdRange> ids = tag.Claim(1, deadline);
    if (!ids.ok()) return Fail(ids.status());
    *id = ids.value().first;
    return IDCLIENT_OK;
  });
}

// After a claim of one id that found nothing in its lane. The grant comes in registers: a caller
// that passes it in memory saves registers and guards its stack for every claim.
[[gnu::noinline]] idclient_status FinishInLane(Tag& tag, std::uint64_t first, std::uint64_t limit,
                                               std::uint64_t segment, uint64_t* id) {
  idd::shm::LaneClaimer* const lanes = tag.lanes();
  const IdRange ids =
      lanes == nullptr ? IdRange{} : tag.FinishInRing(*lanes, {first, limit, segment});
  if (ids.empty()) [[unlikely]]
    return ClaimSlow(tag, id);
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
                                              const idd::shm::SnowflakeClaim& claim, uint64_t* id) {
  return Guarded([&] {
    std::optional<Deadline> deadline;
    const Result<IdRange> ids = tag.FinishTimed(claimer, claim, 1, deadline);
    if (!ids.ok()) return Fail(ids.status());
    *id = ids.value().first;
    return IDCLIENT_OK;
  });
}

[[gnu::noinline]] idclient_status ClaimTimed(Tag& tag, uint64_t* id) {
  idd::shm::SnowflakeClaimer* const timed = tag.snowflake();
  if (timed == nullptr) return ClaimSlow(tag, id);
  const idd::shm::SnowflakeClaim claim = timed->ClaimOne();
  if (claim.ids.empty() || claim.is_early) [[unlikely]]
    return FinishTimed(tag, *timed, claim, id);
  *id = claim.ids.first;
  return IDCLIENT_OK;
}

}  // namespace

idclient_status idclient_claim(idclient_tag* handle, uint64_t* id) {
  if (handle == nullptr || id == nullptr) [[unlikely]] {
    return Fail(Code::kInvalid, "idclient_claim: an argument is NULL");
  }
  // Rare ways are calls at the end, so that the others need no registers saved.
  Tag& tag = *FromHandle(handle);
  const Tag::Way way = tag.way();
  if (way == Tag::Way::kBlock) {
    std::uint64_t next = 0;  // *id may be memory that others see
    if (!TakeFromBlock(idclient_thread_blocks, tag.block_owner(), next)) [[unlikely]]
      return ClaimSlow(tag, id);
    *id = next;
    return IDCLIENT_OK;
  }
  if (way == Tag::Way::kLane) {
    const idd::shm::LaneView& view = idd::shm::ViewAt(tag.lane_view());
    const idd::shm::LaneGrant grant = idd::shm::ClaimOneInLane(view);
    if (grant.empty() || !IsPublished(view, grant)) [[unlikely]]
      return FinishInLane(tag, grant.first, grant.limit, grant.segment, id);
    *id = grant.first;
    return IDCLIENT_OK;
  }
  if (way == Tag::Way::kSnowflake) [[unlikely]]
    return ClaimTimed(tag, id);
  const idd::shm::SlotClaim claim = idd::shm::ClaimAtPoint(tag.view(), 1);
  if (claim.ids.empty()) [[unlikely]]
    return ClaimSlow(tag, id);
  if (claim.wakes_daemon) [[unlikely]]
    return WakeDaemon(tag, claim.ids.first, id);
  *id = claim.ids.first;
  return IDCLIENT_OK;
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
      for (std::uint64_t id = range.value().first; id < range.value().limit; ++id) {
        ids[(*claimed)++] = id;
      }
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

const char* idclient_last_error(void) { return last_error.data(); }

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

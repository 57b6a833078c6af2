// SPDX-License-Identifier: Apache-2.0
#include "tag.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>
#include <utility>

#include "client.h"
#include "idd/shm/ring_observer.h"
#include "idd/wire/frames.h"
#include "reconnect.h"

namespace idd::client {

using idd::Code;
using idd::Deadline;
using idd::Result;
using idd::Status;
using idd::shm::IdRange;
using idd::wire::FrameType;
using idd::wire::Message;
using std::chrono::milliseconds;

namespace {

// How long a claim that waits for the clock sleeps before it looks again.
constexpr milliseconds kClockPause(1);
// Claims that do not wait tell the daemon no oftener that a tag is dry.
constexpr std::chrono::nanoseconds kLeastBetweenNotices = milliseconds(10);

// How long the daemon may wait: a little less than the caller, so that its reason arrives before
// the caller's own deadline.
std::uint32_t DaemonTimeoutMs(Deadline deadline) {
  const std::int64_t left = deadline.remaining().count();
  const std::int64_t margin = std::clamp<std::int64_t>(left / 5, 1, 50);
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(left - margin, 0, idd::wire::kMaxTimeoutMs));
}

// No caller is at fault for what idd sends.
Status Malformed(const Status& why) {
  return {Code::kIncompatible, "idd's reply is malformed: " + why.message()};
}

struct ReplyReader {
  // The fixed part of the reply, or the failure that its status and reason describe.
  template <typename T>
  static Result<T> Read(const Message& message, FrameType request, bool& is_final) {
    std::string reason;
    return Read<T>(message, request, is_final, reason);
  }
  template <typename T>
  static Result<T> Read(const Message& message, FrameType request, bool& is_final,
                        std::string& reason) {
    const auto frame = idd::wire::ParseFrame(message.bytes);
    if (!frame.ok()) return Malformed(frame.status());
    Result<T> reply = idd::wire::ParseReply<T>(frame.value(), request, &reason);
    if (!reply.ok()) return Malformed(reply.status());
    if (reply.value().status == 0) return reply;
    if constexpr (std::is_same_v<T, idd::wire::ClaimReply>) is_final = reply.value().is_final != 0;
    return Status(idd::CodeFromNumber(reply.value().status), reason);
  }
};

// Leaves the blocks, also when an exception is thrown in between.
struct LeaveBlocks {
  void operator()(ThreadBlocks* blocks) const noexcept { blocks->Leave(); }
};

// A reply with a ring must have its descriptors, a reply without a ring must have none.
Status CheckAttachReply(const idd::wire::AttachReply& reply, const Message& message) {
  const bool has_ring = reply.ring_id != 0;
  const bool has_sizes = reply.table_bytes != 0 || reply.cursors_bytes != 0;
  if (message.fds[0].valid() == has_ring && message.fds[1].valid() == has_ring &&
      (has_ring || !has_sizes)) {
    return Status::Ok();
  }
  return {Code::kIncompatible, has_ring ? "idd granted a ring without its two descriptors"
                                        : "idd granted no ring, and passed parts of one"};
}

Status CheckGrant(const idd::wire::ClaimReply& reply, std::uint64_t asked) {
  const bool sane = reply.count >= 1 && reply.count <= asked && reply.first < idd::shm::kMaxLimit &&
                    reply.count <= idd::shm::kMaxLimit - reply.first;
  if (sane) return Status::Ok();
  return {Code::kIncompatible, "idd granted a range that was not asked for"};
}

// The mode of a tag without a ring, as the reason of a successful ATTACH names it.
idclient_tag_mode ModeOf(const std::string& reason) {
  if (reason == "segment") return IDCLIENT_MODE_SEGMENT;
  if (reason == "snowflake") return IDCLIENT_MODE_SNOWFLAKE;
  return reason == "ticket" ? IDCLIENT_MODE_TICKET : IDCLIENT_MODE_UNKNOWN;
}

idclient_tag_state StateOf(const idd::shm::RingView& view) noexcept {
  using idd::shm::RingState;
  using idd::shm::TagCondition;
  switch (view.state) {
    case RingState::kActive:
      if (view.numbers.condition == TagCondition::kDrained) return IDCLIENT_STATE_DRAINED;
      return view.available == 0 ? IDCLIENT_STATE_DRY : IDCLIENT_STATE_OK;
    case RingState::kDrained:
      return IDCLIENT_STATE_DRAINED;
    case RingState::kQuarantined:
      return IDCLIENT_STATE_QUARANTINED;
    default:
      return IDCLIENT_STATE_NO_RING;
  }
}

}  // namespace

Tag::Tag(Client& client, std::string name, std::uint64_t block_size,
         std::optional<BlockOwner> blocks)
    : way_(blocks.has_value() ? Way::kBlock : Way::kRing),
      block_size_(blocks.has_value() ? block_size : 0),
      block_owner_(blocks.value_or(BlockOwner{})),
      client_(client),
      name_(std::move(name)) {}

Tag::~Tag() {
  if (block_size_ != 0) ThreadBlocks::FreePlace(block_owner_);
  Attachment* attachment = current_.load(std::memory_order_acquire);  // A1, pairs with A2
  while (attachment != nullptr) {
    std::unique_ptr<Attachment> owned(attachment);
    attachment = owned->older;
  }
}

Status Tag::Attach(Deadline deadline) {
  bool is_answered = false;
  return Attach(deadline, is_answered);
}

Status Tag::Attach(Deadline deadline, bool& is_answered) {
  is_answered = false;
  Attachment* const seen = current_.load(std::memory_order_acquire);  // A1, pairs with A2
  idd::wire::AttachRequest request;
  request.tag = idd::wire::PackTag(name_);
  request.timeout_ms = DaemonTimeoutMs(deadline);
  Result<Message> message = client_.connection().Call(
      [&request](std::uint64_t id) {
        return idd::wire::BuildRequest(FrameType::kAttach, id, request);
      },
      deadline);
  if (!message.ok()) return message.status();
  is_answered = true;
  bool is_final = false;
  std::string reason;
  const auto reply = ReplyReader::Read<idd::wire::AttachReply>(message.value(), FrameType::kAttach,
                                                               is_final, reason);
  if (!reply.ok()) return reply.status();
  Result<std::unique_ptr<Attachment>> made = MakeAttachment(reply.value(), reason, message.value());
  if (!made.ok()) return made.status();
  std::unique_ptr<Attachment> attachment = std::move(made).value();
  if (seen != nullptr && seen->ring_id() == attachment->ring_id()) return Status::Ok();
  attachment->older = seen;
  Attachment* expected = seen;
  // A2: if another thread has attached meanwhile, its ring is at least as new as ours, or the next
  // claim learns that it is not.
  if (current_.compare_exchange_strong(expected, attachment.get(), std::memory_order_acq_rel,  // A2
                                       std::memory_order_relaxed)) {  // A3: the value is not used
    static_cast<void>(attachment.release());
    FollowCurrent();
    // A thread that is still inside a claim of the ring before this one keeps its ids.
    if (seen != nullptr) {
      BlankFrom(seen->older);
      client_.log().Info("tag '" + name_ + "': attached to another ring");
    }
  }
  return Status::Ok();
}

Status Tag::AttachFirst(Deadline deadline) {
  return UntilAnswered(deadline, client_.opens_once(), [&](bool& is_answered) {
    // A1, pairs with A2: another thread may have attached.
    if (current_.load(std::memory_order_acquire) != nullptr) return Status::Ok();
    return Attach(deadline, is_answered);
  });
}

// A process can have a limited number of mappings, and each restart of the daemon brings two for
// each tag.
void Tag::BlankFrom(Attachment* attachment) noexcept {
  for (; attachment != nullptr; attachment = attachment->older) {
    // A4: only chooses the thread that does it.
    if (attachment->is_blank.test_and_set(std::memory_order_relaxed)) return;
    if (attachment->memory != nullptr) attachment->memory->Blank();
  }
}

Result<std::unique_ptr<Tag::Attachment>> Tag::MakeAttachment(const idd::wire::AttachReply& reply,
                                                             const std::string& reason,
                                                             const Message& message) {
  if (Status status = CheckAttachReply(reply, message); !status.ok()) return status;
  if (reply.ring_id == 0) return std::make_unique<Attachment>(ModeOf(reason));
  auto memory = idd::shm::RingMemory::Attach(message.fds[0], message.fds[1], name_);
  if (!memory.ok()) return memory.status();
  if (memory.value()->ring_id() != reply.ring_id) {
    return Status(Code::kIncompatible, "idd granted another ring than it named");
  }
  idd::wire::RefillNotice notice;
  notice.tag = idd::wire::PackTag(name_);
  notice.ring_id = memory.value()->ring_id();
  return std::make_unique<Attachment>(
      std::move(memory).value(), idd::wire::BuildRequest(FrameType::kRefill, 0, notice), view_);
}

bool Tag::NeedsAttach() const noexcept {
  const Attachment* attachment = current_.load(std::memory_order_acquire);  // A1, pairs with A2
  if (attachment == nullptr) return true;
  if (attachment->memory == nullptr) return false;
  const idd::shm::RingState state = attachment->state();
  return state != idd::shm::RingState::kActive && state != idd::shm::RingState::kDrained;
}

bool Tag::IsDrained() const noexcept {
  const Attachment* attachment = current_.load(std::memory_order_acquire);  // A1, pairs with A2
  return attachment != nullptr && attachment->memory != nullptr &&
         attachment->state() == idd::shm::RingState::kDrained;
}

Result<std::uint64_t> Tag::ClaimFromBlock(std::optional<Deadline>& deadline) {
  std::uint64_t id = 0;
  ThreadBlocks* const mine = ThreadBlocks::Mine();
  if (TakeFromBlock(mine, block_owner_, id)) return id;
  if (mine == nullptr || !mine->Enter()) {
    const Result<IdRange> one = Claim(1, deadline);
    if (!one.ok()) return one.status();
    return one.value().first;
  }
  const std::unique_ptr<ThreadBlocks, LeaveBlocks> inside(mine);
  const Result<IdRange> ids = Claim(block_size_, deadline);
  if (!ids.ok()) return ids.status();
  mine->Fill(block_owner_, {ids.value().first + 1, ids.value().limit});
  return ids.value().first;
}

Result<std::uint64_t> Tag::ClaimFromBlockNow() {
  std::uint64_t id = 0;
  ThreadBlocks* const mine = ThreadBlocks::Mine();
  if (TakeFromBlock(mine, block_owner_, id)) return id;
  const bool fills = mine != nullptr && mine->Enter();
  const std::unique_ptr<ThreadBlocks, LeaveBlocks> inside(fills ? mine : nullptr);
  const Result<IdRange> ids = ClaimNow(fills ? block_size_ : 1);
  if (!ids.ok()) return ids.status();
  if (fills) mine->Fill(block_owner_, {ids.value().first + 1, ids.value().limit});
  return ids.value().first;
}

Result<IdRange> Tag::ClaimNow(std::uint64_t count) {
  FollowCurrent();
  idd::shm::SnowflakeClaimer* const timed = snowflake();
  if (timed == nullptr) {
    const IdRange ids = ClaimFromRing(count);
    if (!ids.empty()) return ids;
  } else {
    // Ids that are early are a gap: only a wait for the clock would make them usable.
    const idd::shm::SnowflakeClaim claim = timed->Claim(Clamp(count));
    if (!claim.ids.empty() && !claim.is_early) return claim.ids;
  }
  AskForIds();
  return Status(Code::kTimeout, "tag '" + name_ + "': nothing to claim without a wait");
}

// A program that never waits would otherwise get no id of a tag that no other program uses.
void Tag::AskForIds() noexcept {
  const std::int64_t now = idd::MonotonicClock::now().time_since_epoch().count();
  std::int64_t asked = asked_at_.load(std::memory_order_relaxed);  // A5: only spaces notices
  if (asked != 0 && now - asked < kLeastBetweenNotices.count()) return;
  if (!asked_at_.compare_exchange_strong(asked, now, std::memory_order_relaxed)) return;  // A5
  WakeDaemon();
}

TagInfo Tag::Info() const noexcept {
  TagInfo info;
  const Attachment* const attachment = current_.load(std::memory_order_acquire);  // A1, with A2
  if (attachment == nullptr) return info;
  if (attachment->memory == nullptr) {
    info.mode = attachment->mode;
    return info;
  }
  idd::shm::RingMemory& memory = *attachment->memory;
  info.mode = memory.is_snowflake() ? IDCLIENT_MODE_SNOWFLAKE : IDCLIENT_MODE_SEGMENT;
  if (!memory.lanes().empty()) info.order = IDCLIENT_ORDER_CPU;
  idd::shm::RingView view;
  if (!idd::shm::ReadRing(memory.table(), memory.cursors(), view, memory.lanes())) return info;
  info.state = StateOf(view);
  if (memory.is_snowflake()) {
    const idd::shm::IdLayout layout = idd::shm::LayoutOf(memory.table().slots[1]);
    info.cover_ms = (view.available >> layout.sequence_bits) * memory.table().header.unit_ms;
    return info;
  }
  info.step = view.numbers.step;
  info.available = view.available;
  const std::uint64_t per_1000_s = view.numbers.reckoned_per_1000_s;
  if (per_1000_s != 0) {
    info.cover_ms = static_cast<std::uint64_t>(static_cast<double>(view.available) * 1e6 /
                                               static_cast<double>(per_1000_s));
  }
  return info;
}

IdRange Tag::ClaimFromNextSegment(std::uint64_t count) noexcept {
  Attachment* const attachment = current_.load(std::memory_order_acquire);  // A1, pairs with A2
  if (attachment == nullptr) return {};
  if (!attachment->claimer.has_value()) {
    if (attachment->memory == nullptr) RestView();
    return {};
  }
  return WakeFor(attachment->claimer->ClaimFromNext(count));
}

void Tag::FollowCurrent() noexcept {
  Attachment* const attachment = current_.load(std::memory_order_acquire);  // A1, pairs with A2
  const bool is_timed = attachment != nullptr && attachment->timed.has_value();
  // A6: threads that come here at once may leave an older claimer; its ring is closed, so the next
  // claim comes here again.
  snowflake_.store(is_timed ? &*attachment->timed : nullptr, std::memory_order_release);  // A6
  const bool has_lanes = attachment != nullptr && attachment->lanes.has_value();
  lanes_.store(has_lanes ? &*attachment->lanes : nullptr, std::memory_order_release);  // A6
  lane_view_.store(has_lanes ? &attachment->lanes->view() : idd::shm::NoLanes(),
                   std::memory_order_release);  // N2, pairs with N1
  if (block_size_ != 0) return;
  const Way way = is_timed ? Way::kSnowflake : has_lanes ? Way::kLane : Way::kRing;
  way_.store(way, std::memory_order_release);  // A6, after what the way needs
}

Result<IdRange> Tag::WaitForTime(idd::shm::SnowflakeClaimer& claimer,
                                 idd::shm::SnowflakeClaim claim, std::uint64_t count,
                                 Deadline deadline) {
  while (claim.is_early) {
    // The daemon moves the ring of a tag whose claimers read no clock.
    if (claim.ids.empty() && !claimer.reads_clock()) return IdRange{};
    while (!claimer.IsDue(claim.number)) {
      if (claim.ids.empty() && claimer.state() != idd::shm::RingState::kActive) return IdRange{};
      if (deadline.passed()) {
        return Status(Code::kTimeout,
                      "tag '" + name_ + "': its next id's time is " +
                          std::to_string(claimer.AheadMs(claim.number)) +
                          " ms ahead of this host's clock: the clock was set back, or the ceiling "
                          "of ids per time of the tag's layout is reached");
      }
      std::this_thread::sleep_for(std::min(kClockPause, deadline.remaining()));
    }
    if (!claim.ids.empty()) return claim.ids;
    claim = claimer.Claim(Clamp(count));
  }
  return claim.ids;
}

Result<IdRange> Tag::ClaimAttached(std::uint64_t count, Deadline deadline) {
  idd::shm::SnowflakeClaimer* const timed = snowflake();
  if (timed == nullptr) return ClaimFromRing(count);
  return WaitForTime(*timed, timed->Claim(Clamp(count)), count, deadline);
}

Result<IdRange> Tag::FinishTimed(idd::shm::SnowflakeClaimer& claimer,
                                 const idd::shm::SnowflakeClaim& claim, std::uint64_t count,
                                 std::optional<Deadline>& deadline) {
  if (!deadline.has_value()) deadline = Deadline::After(client_.timeout());
  Result<IdRange> ids = WaitForTime(claimer, claim, count, *deadline);
  if (!ids.ok() || !ids.value().empty()) return ids;
  return ClaimSlow(count, deadline);
}

Result<IdRange> Tag::ClaimSlow(std::uint64_t count, std::optional<Deadline>& deadline) {
  if (!deadline.has_value()) deadline = Deadline::After(client_.timeout());
  FollowCurrent();
  ReconnectPause pause;
  while (true) {
    bool is_final = false;
    Result<IdRange> ids = AskDaemon(count, *deadline, is_final);
    if (ids.ok() && !ids.value().empty()) return ids;
    if (!ids.ok() && ids.status().code() != Code::kUnavailable) return ids;
    // An operator has drained the tag, or its mode needs a store that is down: waiting would not
    // help, and the reason says what would.
    if (!ids.ok() && (is_final || IsDrained())) return ids;
    if (deadline->passed()) {
      return ids.ok() ? Status(Code::kTimeout, "tag '" + name_ + "': nothing to claim in time")
                      : ids.status();
    }
    Result<IdRange> from_ring = ClaimAttached(count, *deadline);
    if (!from_ring.ok() || !from_ring.value().empty()) return from_ring;
    if (ids.ok() && !NeedsAttach()) continue;
    // The daemon is being restarted, is gone, or hands out a ring that it has retired. The caller
    // looks again until its deadline, and the pause spares the daemon.
    pause.Sleep(*deadline);
  }
}

Result<IdRange> Tag::AskDaemon(std::uint64_t count, Deadline deadline, bool& is_final) {
  if (NeedsAttach()) {
    if (Status status = Attach(deadline); !status.ok()) return status;
    return ClaimAttached(count, deadline);
  }
  const Attachment* attachment = current_.load(std::memory_order_acquire);  // A1, pairs with A2
  idd::wire::ClaimRequest request;
  request.tag = idd::wire::PackTag(name_);
  request.ring_id = attachment->ring_id();
  request.count = count;
  request.timeout_ms = DaemonTimeoutMs(deadline);
  Result<Message> message = client_.connection().Call(
      [&request](std::uint64_t id) {
        return idd::wire::BuildRequest(FrameType::kClaim, id, request);
      },
      deadline);
  if (!message.ok()) return message.status();
  const auto reply =
      ReplyReader::Read<idd::wire::ClaimReply>(message.value(), FrameType::kClaim, is_final);
  if (!reply.ok()) return reply.status();
  if (Status status = CheckGrant(reply.value(), count); !status.ok()) return status;
  // The ids are ours whether or not the new ring can be had at once; the next dry claim tries
  // again.
  if (reply.value().attach_again != 0) static_cast<void>(Attach(deadline));
  return IdRange{reply.value().first, reply.value().first + reply.value().count};
}

// For a tag that has no ring now: moves the view off the last ring's closed cursor, where every
// claim would add in vain. If this fails, or takes the view from another thread's new ring, the
// next claim moves it again.
void Tag::RestView() noexcept {
  idd::shm::ClaimPoint* seen = view_.load(std::memory_order_acquire);  // N1, pairs with N2
  if (seen == idd::shm::DryPoint()) return;
  view_.compare_exchange_strong(seen, idd::shm::DryPoint(),
                                std::memory_order_acq_rel,   // N2, with N1
                                std::memory_order_acquire);  // N1
}

void Tag::WakeDaemon() noexcept {
  const Attachment* attachment = current_.load(std::memory_order_acquire);  // A1, pairs with A2
  Connection* const connection = client_.own_connection();
  if (attachment == nullptr || attachment->memory == nullptr || connection == nullptr) return;
  // A send is a cancellation point, and claims that the ring serves are noexcept.
  int before = PTHREAD_CANCEL_ENABLE;
  static_cast<void>(::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before));
  connection->TryNotify(attachment->refill_notice);
  static_cast<void>(::pthread_setcancelstate(before, nullptr));
}

}  // namespace idd::client

// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "idd/shm/abi.h"
#include "idd/shm/claim_point.h"
#include "idd/shm/ring_protocol.h"

namespace idd::simulation {
namespace {

// A ring's words as a claim sees them in a program that may be stopped before each access.
void MaybeStall() {
  Random& random = World::Get().random();
  if (!random.Percent(30)) return;
  static constexpr Nanos kStalls[] = {10 * kMicrosecond, kMillisecond, 50 * kMillisecond,
                                      2 * kSecond};
  const Nanos most = kStalls[random.Below(std::size(kStalls))];
  static_cast<void>(Thread::Current()->TryWait(World::Get().now() + random.Between(1, most)));
}

template <typename Word>
class StallingWord {
 public:
  explicit StallingWord(Word& word) : word_(word) {}
  [[nodiscard]] std::uint64_t load(std::memory_order order) const noexcept {
    MaybeStall();
    return word_.load(order);
  }
  std::uint64_t fetch_add(std::uint64_t n, std::memory_order order) noexcept {
    MaybeStall();
    return word_.fetch_add(n, order);
  }
  bool compare_exchange_weak(std::uint64_t& expected, std::uint64_t desired,
                             std::memory_order success, std::memory_order failure) noexcept {
    MaybeStall();
    return word_.compare_exchange_weak(expected, desired, success, failure);
  }

 private:
  Word& word_;
};

using ReadWord = StallingWord<const std::atomic<std::uint64_t>>;

struct StallingSlot {
  explicit StallingSlot(const shm::SlotDescriptor& slot)
      : segment(slot.segment),
        base(slot.base),
        limit(slot.limit),
        refill_mark(slot.refill_mark),
        ended_segment(slot.ended_segment),
        ended_at(slot.ended_at) {}

  ReadWord segment;
  ReadWord base;
  ReadWord limit;
  ReadWord refill_mark;
  ReadWord ended_segment;
  ReadWord ended_at;
};

struct StallingCursor {
  StallingWord<std::atomic<std::uint64_t>> next;
};

// The state of a request that a program and idd share. It outlives either of them.
struct Pending {
  Thread* waiter = nullptr;
  bool is_done = false;

  void Finish() {
    is_done = true;
    if (waiter != nullptr) waiter->Wake();
  }
};

struct ClaimReply : Pending {
  Result<daemon::ClaimGrant> grant{Status(Code::kSystem, "no answer")};
};

struct AttachReply : Pending {
  Status status;
  std::uint64_t ring_id = 0;
  ScopedFd table;
  ScopedFd cursors;
};

// A claim may end this long after its deadline: it looks once more.
constexpr Nanos kMostLate = 30 * kMillisecond;

// idd answers a little before the program gives up.
daemon::RequestContext ContextOf(std::uint64_t owner, Nanos deadline, Machine& machine) {
  return {.owner = owner,
          .deadline = Deadline(MonotonicTime(std::chrono::nanoseconds(
              deadline - 5 * kMillisecond + machine.clock().monotonic_offset())))};
}

Nanos SocketLatency() { return World::Get().random().Between(5, 100) * kMicrosecond; }

}  // namespace

}  // namespace idd::simulation

namespace idd::shm {

// Each look may take a long time here.
template <>
inline constexpr int kLooksForEnd<idd::simulation::StallingSlot> = 20;

}  // namespace idd::shm

namespace idd::simulation {

Program::Attachment::Attachment(std::unique_ptr<shm::RingMemory> mapped)
    : memory(std::move(mapped)), view(shm::DryPoint()) {
  if (memory != nullptr) {
    claimer = std::make_unique<shm::RingClaimer>(memory->table(), memory->cursors(), view);
    if (memory->is_snowflake()) {
      timed = std::make_unique<shm::SnowflakeClaimer>(memory->table(), memory->cursors());
    }
  }
}

Program::Program(std::string name, Machine& machine, Oracle& oracle, Habits habits,
                 Attachments attachments)
    : machine_(machine),
      oracle_(oracle),
      habits_(std::move(habits)),
      owner_(World::Get().NextId()),
      attachments_(std::move(attachments)),
      process_(std::move(name), machine.clock()) {
  process_.Start([this] { Main(); }, [] {});
}

Program::~Program() {
  process_.Kill();
  machine_.Post([owner = owner_](daemon::TagService& tags) { tags.DropOwner(owner); });
}

std::optional<Nanos> Program::LastClaim(const std::string& tag) const {
  const auto it = last_claims_.find(tag);
  return it == last_claims_.end() ? std::nullopt : std::optional(it->second);
}

Status Program::LastStatus(const std::string& tag) const {
  const auto it = last_statuses_.find(tag);
  return it == last_statuses_.end() ? Status::Ok() : it->second;
}

void Program::Main() {
  Random& random = World::Get().random();
  // Every other claim is of the next tag in turn: a claim that waits for its deadline takes so long
  // that chance alone may leave a tag out until the end.
  for (std::size_t turn = 0; true; ++turn) {
    Thread::Current()->Sleep(random.Between(0, 2 * habits_.pause));
    const std::size_t tags = habits_.tags.size();
    const std::string& tag = habits_.tags[turn % 2 == 0 ? random.Below(tags) : turn / 2 % tags];
    ClaimOnce(tag, 1 + random.Below(habits_.most));
    // Each ticket is a transaction: some dozens of events.
    if (oracle_.Rises(tag)) Thread::Current()->Sleep(std::min(20 * habits_.pause, kSecond));
  }
}

void Program::ClaimOnce(const std::string& tag, std::uint64_t count) {
  if (habits_.is_hostile && World::Get().random().Percent(20)) Forge(tag);
  const std::uint64_t suspensions = process_.suspensions();
  const Nanos deadline = World::Get().now() + habits_.timeout;
  ClaimUntil(deadline, tag, count);
  const bool may_be_late = habits_.stalls != 0 || process_.suspensions() != suspensions;
  const Nanos late = World::Get().now() - deadline;
  if (may_be_late || late <= kMostLate) return;
  oracle_.Fail("late: a claim of " + name() + " from " + tag + " ended " +
               std::to_string(late / kMillisecond) + " ms after its deadline");
}

// Writes into a cursor what no claim writes.
void Program::Forge(const std::string& tag) {
  const auto it = attachments_.find(tag);
  if (it == attachments_.end() || it->second->memory == nullptr) return;
  Random& random = World::Get().random();
  oracle_.OnForged(machine_.name(), tag);
  std::atomic<std::uint64_t>& next =
      it->second->memory->cursors().slots[random.Below(shm::kSlotCount)].next;
  const std::uint64_t now = next.load(std::memory_order_relaxed);
  const std::uint64_t values[] = {now - random.Below(200), now + random.Below(200),
                                  random.Below(10'000), random.Next(), 0};
  next.store(values[random.Below(std::size(values))], std::memory_order_release);
}

void Program::ClaimUntil(Nanos deadline, const std::string& tag, std::uint64_t count) {
  const World& world = World::Get();
  const bool is_snowflake = oracle_.LayoutOf(tag) != nullptr;
  Oracle::Claim claim = oracle_.Begin({.machine = machine_.name(),
                                       .host = machine_.host_id(),
                                       .tag = tag,
                                       .scope = Scope(tag),
                                       .is_of_old_ring = machine_.has_old_rings(),
                                       .clock = &machine_.clock(),
                                       .forgot_at = is_snowflake ? machine_.forgot_at(tag) : 0});
  Nanos pause = 2 * kMillisecond;
  Result<shm::IdRange> ids = ClaimFromRing(tag, count, deadline);
  while (ids.ok() && ids.value().empty()) {
    reads_clock_ = true;
    ids = AskDaemon(tag, count, deadline);
    if (ids.ok() && !ids.value().empty()) break;
    if (!ids.ok()) NoteRefusal(ids.status());
    const bool may_wait = ids.ok() || ids.status().code() == Code::kUnavailable;
    if (!may_wait || world.now() >= deadline) {
      last_statuses_[tag] = ids.ok() ? Status(Code::kTimeout, "nothing in time") : ids.status();
      return;
    }
    ids = ClaimFromRing(tag, count, deadline);
    if (!ids.ok() || !ids.value().empty()) break;
    Thread::Current()->Sleep(std::min(pause, std::max<Nanos>(deadline - world.now(), 1)));
    pause = std::min(2 * pause, 20 * kMillisecond);
  }
  if (!ids.ok()) {
    last_statuses_[tag] = ids.status();
    return;
  }
  if (is_snowflake) {
    if (claim.forgot_at < machine_.forgot_at(tag)) Oracle::Forget(claim, machine_.forgot_at(tag));
    claim.is_timely = reads_clock_;
    const std::string scope = Scope(tag);
    if (scope != claim.scope) oracle_.ChangeScope(claim, scope);
  }
  last_claims_[tag] = world.now();
  last_statuses_[tag] = Status::Ok();
  if (!habits_.is_hostile) oracle_.OnClaimed(claim, ids.value());
}

// Without a descriptor store, programs that still claim from an old ring get smaller ids than those
// that have attached to the new one. Snowflake windows of two rings are not in the order of leases.
std::string Program::Scope(const std::string& tag) const {
  if (machine_.keeps_rings()) return machine_.name();
  if (oracle_.LayoutOf(tag) == nullptr) return name();
  const auto it = attachments_.find(tag);
  const bool has_ring = it != attachments_.end() && it->second->memory != nullptr;
  return name() + "@" + std::to_string(has_ring ? it->second->memory->ring_id() : 0);
}

void Program::NoteRefusal(const Status& status) {
  World& world = World::Get();
  const auto says = [&status](const char* text) {
    return status.message().find(text) != std::string::npos;
  };
  if (says("worker ids are in use")) world.Met("all worker ids were in use");
  if (says("ms ahead of the store's")) world.Met("a clock was refused by the store's clock");
  if (says("ahead of this host's clock")) world.Met("idd waited for the clock");
}

Result<shm::IdRange> Program::ClaimFromRing(const std::string& tag, std::uint64_t count,
                                            Nanos deadline) {
  const auto it = attachments_.find(tag);
  if (it == attachments_.end() || it->second->claimer == nullptr) return shm::IdRange();
  Random& random = World::Get().random();
  // A forked child or this program's next call may attach again meanwhile.
  const std::shared_ptr<Attachment> attachment = it->second;
  if (attachment->timed != nullptr) return ClaimTimed(*attachment, count, deadline);
  bool wakes_daemon = false;
  shm::IdRange ids;
  if (random.Percent(habits_.stalls)) {
    ids = ClaimStalling(*attachment, count, wakes_daemon);
  } else {
    const shm::SlotClaim claim = attachment->claimer->Claim(count);
    ids = claim.ids;
    wakes_daemon = claim.wakes_daemon;
  }
  if (wakes_daemon && !random.Percent(habits_.loses_refills)) {
    World::Get().After(SocketLatency(), [&machine = machine_, tag] {
      machine.Post([tag](daemon::TagService& tags) { tags.Refill(tag); });
    });
  }
  return ids;
}

// As libidclient's WaitForTime() does it, with longer pauses.
Result<shm::IdRange> Program::ClaimTimed(Attachment& attachment, std::uint64_t count,
                                         Nanos deadline) {
  World& world = World::Get();
  shm::SnowflakeClaimer& claimer = *attachment.timed;
  reads_clock_ = claimer.reads_clock();
  shm::SnowflakeClaim claim = ClaimTimedOnce(attachment, count);
  while (claim.is_early) {
    if (claim.ids.empty() && !claimer.reads_clock()) return shm::IdRange();
    world.Met("a claim waited for the clock");
    const std::uint64_t ahead_ms = claimer.AheadMs(claim.number);
    if (ahead_ms > 2 * attachment.memory->table().header.max_ahead *
                           attachment.memory->table().header.unit_ms +
                       10) {
      world.Met("a claim found the clock set back beyond max_ahead");
    }
    while (!claimer.IsDue(claim.number)) {
      if (claim.ids.empty() && claimer.state() != shm::RingState::kActive) return shm::IdRange();
      if (world.now() >= deadline) {
        return Status(Code::kTimeout, "its next id's time is " +
                                          std::to_string(claimer.AheadMs(claim.number)) +
                                          " ms ahead of this host's clock");
      }
      const auto pause = static_cast<Nanos>(std::clamp<std::uint64_t>(ahead_ms / 4, 1, 50));
      Thread::Current()->Sleep(std::min(pause * kMillisecond, deadline - world.now()));
    }
    if (!claim.ids.empty()) return claim.ids;
    claim = ClaimTimedOnce(attachment, count);
  }
  if (!claim.ids.empty() && !claimer.reads_clock()) {
    world.Met("a claim of a ring that the daemon moved got ids");
  }
  return claim.ids;
}

shm::SnowflakeClaim Program::ClaimTimedOnce(Attachment& attachment, std::uint64_t count) {
  if (World::Get().random().Percent(habits_.stalls)) return ClaimTimedStalling(attachment, count);
  return count == 1 ? attachment.timed->ClaimOne() : attachment.timed->Claim(count);
}

// SnowflakeClaimer::Claim() on words that may wait before each step.
shm::SnowflakeClaim Program::ClaimTimedStalling(Attachment& attachment, std::uint64_t count) {
  const shm::Table& table = attachment.memory->table();
  if (table.live.tail_segment.load(std::memory_order_acquire) == 0) return {};
  const shm::IdLayout layout = shm::LayoutOf(table.slots[1]);
  const shm::TimeBounds bounds = shm::SnowflakeClock(table).Bounds(layout.sequence_bits);
  const shm::ClaimPoint& point = *attachment.view.load(std::memory_order_acquire);
  const std::uint64_t segment = point.segment.load(std::memory_order_acquire);
  StallingSlot slot(*point.slot);
  StallingCursor cursor{StallingWord<std::atomic<std::uint64_t>>(point.cursor->next)};
  const std::uint64_t next = shm::MoveWithTime(slot, cursor, bounds.now);
  const std::uint64_t limit = slot.limit.load(std::memory_order_acquire);
  shm::SlotClaim claim;
  if (next < limit && shm::HoldsSegment(slot, segment)) {
    if (next >= bounds.frontier) return {.is_early = true, .number = next};
    const std::uint64_t most = layout.OneTime({next, limit}).size();
    claim = shm::ClaimFromSlot(slot, cursor, segment, std::min(count, most));
  }
  Thread::Current()->ThrowIfKilled();
  if (claim.ids.empty()) claim = attachment.claimer->ClaimFromNext(1);
  if (claim.ids.empty() || claim.ids.first < bounds.now) return attachment.timed->Claim(count);
  const bool is_early = claim.ids.first >= bounds.frontier;
  if (is_early && !attachment.timed->reads_clock()) {
    return {.ids = {}, .is_early = true, .number = claim.ids.first};
  }
  World::Get().Met("a snowflake claim that stopped in the middle got ids");
  return {.ids = layout.IdsOf(layout.OneTime(claim.ids)),
          .is_early = is_early,
          .number = claim.ids.first};
}

// The protocol's claim on the words that the view shows, step by step.
shm::IdRange Program::ClaimStalling(Attachment& attachment, std::uint64_t count,
                                    bool& wakes_daemon) {
  const shm::ClaimPoint& point = *attachment.view.load(std::memory_order_acquire);
  const std::uint64_t segment = point.segment.load(std::memory_order_acquire);
  StallingSlot slot(*point.slot);
  StallingCursor cursor{StallingWord<std::atomic<std::uint64_t>>(point.cursor->next)};
  shm::SlotClaim claim;
  if (count == 1 || shm::HoldsSegment(slot, segment)) {
    claim = shm::ClaimFromSlot(slot, cursor, segment, count);
  }
  Thread::Current()->ThrowIfKilled();
  if (!claim.ids.empty()) World::Get().Met("a claim that stopped in the middle got ids");
  if (claim.ids.empty()) claim = attachment.claimer->ClaimFromNext(count);
  wakes_daemon = claim.wakes_daemon;
  return claim.ids;
}

bool Program::NeedsAttach(const std::string& tag) const {
  const auto it = attachments_.find(tag);
  if (it == attachments_.end()) return true;
  if (it->second->claimer == nullptr) return false;
  const shm::RingState state = it->second->claimer->state();
  return state != shm::RingState::kActive && state != shm::RingState::kDrained;
}

// False: no answer until the deadline, or the connection has ended.
template <typename Reply>
bool Program::AwaitReply(Reply& reply, std::uint64_t run, Nanos deadline) {
  struct Forget {
    Reply& reply;
    ~Forget() { reply.waiter = nullptr; }
  } const forget{reply};
  reply.waiter = Thread::Current();
  const World& world = World::Get();
  while (!reply.is_done && world.now() < deadline) {
    if (!machine_.listens() || machine_.run() != run) return false;
    Thread::Current()->Wait(std::min(deadline, world.now() + 20 * kMillisecond));
  }
  return reply.is_done;
}

Result<shm::IdRange> Program::AskDaemon(const std::string& tag, std::uint64_t count,
                                        Nanos deadline) {
  if (!machine_.listens()) return Status(Code::kUnavailable, "idd is not there");
  if (NeedsAttach(tag)) {
    if (Status status = Attach(tag, deadline); !status.ok()) return status;
    return ClaimFromRing(tag, count, deadline);
  }
  const auto attachment = attachments_.at(tag);
  const std::uint64_t ring_id = attachment->memory == nullptr ? 0 : attachment->memory->ring_id();
  const auto reply = std::make_shared<ClaimReply>();
  const std::uint64_t run = machine_.run();
  const daemon::RequestContext context = ContextOf(owner_, deadline, machine_);
  World::Get().After(SocketLatency(), [&machine = machine_, run, reply, tag, ring_id, count,
                                       context] {
    if (machine.run() != run) return;  // the connection has ended
    machine.Post([&machine, reply, tag, ring_id, count, context](daemon::TagService& tags) {
      tags.Claim(tag, ring_id, count, context, [&machine, reply](Result<daemon::ClaimGrant> grant) {
        machine.Step();
        World::Get().After(SocketLatency(), [reply, grant = std::move(grant)] {
          reply->grant = grant;
          reply->Finish();
        });
        machine.Step();
      });
    });
  });
  if (!AwaitReply(*reply, run, deadline)) return Status(Code::kUnavailable, "no answer");
  if (!reply->grant.ok()) return reply->grant.status();
  World::Get().Met("a dry claim was served by idd");
  const shm::IdRange ids = reply->grant.value().ids;
  if (reply->grant.value().attach_again) {
    // The ids are the program's whether or not the new ring can be had.
    attachments_.erase(tag);
  }
  return ids;
}

Status Program::Attach(const std::string& tag, Nanos deadline) {
  const auto reply = std::make_shared<AttachReply>();
  const std::uint64_t run = machine_.run();
  const daemon::RequestContext context = ContextOf(owner_, deadline, machine_);
  World::Get().After(SocketLatency(), [&machine = machine_, run, reply, tag, context] {
    if (machine.run() != run) return;  // the connection has ended
    machine.Post([=](daemon::TagService& tags) {
      tags.Attach(tag, context, [reply](Result<daemon::AttachGrant> grant) {
        reply->status = grant.status();
        if (grant.ok() && grant.value().ring_id != 0) {
          reply->ring_id = grant.value().ring_id;
          reply->table = ScopedFd(::fcntl(grant.value().table_fd, F_DUPFD_CLOEXEC, 0));
          reply->cursors = ScopedFd(::fcntl(grant.value().cursors_fd, F_DUPFD_CLOEXEC, 0));
        }
        World::Get().After(SocketLatency(), [reply] { reply->Finish(); });
      });
    });
  });
  if (!AwaitReply(*reply, run, deadline)) return {Code::kUnavailable, "no answer"};
  if (!reply->status.ok()) return reply->status;
  if (reply->ring_id == 0) {
    attachments_[tag] = std::make_shared<Attachment>(nullptr);
    return Status::Ok();
  }
  auto memory = shm::RingMemory::Attach(reply->table, reply->cursors, tag);
  if (!memory.ok()) return memory.status();
  attachments_[tag] = std::make_shared<Attachment>(std::move(memory).value());
  return Status::Ok();
}

}  // namespace idd::simulation

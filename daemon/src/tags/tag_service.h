// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_TAG_SERVICE_H_
#define IDD_DAEMON_TAGS_TAG_SERVICE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "leasing/lease_closer.h"
#include "leasing/lease_scheduler.h"
#include "leasing/lease_worker.h"
#include "metrics/metrics_sample.h"
#include "platform/event_loop.h"
#include "platform/service_manager.h"
#include "refill/refill_policy.h"
#include "restart/held_leases.h"
#include "restart/inheritance.h"
#include "store/store.h"
#include "tags/drain_ledger.h"
#include "tags/service_meter.h"
#include "tags/tag_ring.h"
#include "tags/wait_queue.h"

namespace idd::daemon {

// What `status` and `audit` show of a tag that this daemon has served.
struct TagSnapshot {
  std::string tag;
  std::string mode;
  std::uint64_t step = 0;
  RefillSettings refill;
  std::string state;  // "ok", "dry", "quarantined", "drained"
  std::uint64_t claimed = 0;
  std::vector<LeaseUse> leases;  // in the ring, oldest first
  double rate_per_s = 0;
  double reckoned_per_s = 0;                // what the refill policy reckons with
  double promised_ids = 0;                  // that are to be held by now: PromisedIds()
  std::optional<double> exhausted_in_days;  // at rate_per_s; nothing while nobody claims
  std::uint64_t fallbacks = 0;
  std::uint64_t leases_taken = 0;
  std::string last_error;
};

// What an observer of a ring needs to map it; nothing if ring_id is 0.
struct ObserveGrant {
  std::uint64_t ring_id = 0;
  int table_fd = -1;  // the service's, as in AttachGrant
  ScopedFd cursors_fd;
};

// What the next idd will find of this one; both outlive the service.
struct Handover {
  HeldLeases& leases;
  DescriptorStore& descriptors;
};

// All tags of this host: their rings, waiters and refills.
//
// A claim that finds the ring dry waits in its tag's queue; what the next lease brings goes to the
// queue first, in order, before the rest is published. A waiter leaves with ids, with a reason, or
// with its deadline.
//
// Thread safety: none; everything runs on the event loop. Store work goes through the LeaseWorker.
class TagService {
 public:
  // `leases_per_s`: of all tags together, at most.
  TagService(EventLoop& loop, LeaseWorker& worker, Handover handover, std::uint32_t leases_per_s);
  ~TagService();
  TagService(const TagService&) = delete;
  TagService& operator=(const TagService&) = delete;

  // Each `done` is called once: now, later on the loop, or never if DropOwner comes first.
  void Attach(const std::string& tag, RequestContext context, AttachDone done);
  void Claim(const std::string& tag, std::uint64_t ring_id, std::uint64_t count,
             RequestContext context, ClaimDone done);
  // A claimer passed the refill mark.
  void Refill(const std::string& tag);
  // The memory of the tag's ring for one who only looks: its table, and its cursors opened for
  // reading. No ring (ring_id 0) for a tag that has none now, or whose memory is given to nobody;
  // no ring is made, no store is asked. kSystem.
  [[nodiscard]] Result<ObserveGrant> Observe(std::string_view tag) const;
  // Grows whenever what Observe() would answer for some tag has changed, or which tags there are.
  [[nodiscard]] std::uint64_t tags_version() const noexcept { return tags_version_; }
  // The connection is gone: nobody waits there any more.
  void DropOwner(std::uint64_t owner);

  // Goes on where an earlier idd ended: closes those of its leases that are over, and takes its
  // tags over, one a millisecond or as soon as a request needs it: what is left of
  // its leases is published in a ring of our own. Until then claims go on in the old ring. Needs no
  // store; first of all, before anybody can ask. `done` on the loop when nothing is left.
  void Inherit(Inheritance& inheritance, std::function<void()> done = {});
  // The rest of it, at once.
  void TakeOverAll();
  // A client has written into the ring that an earlier idd left of this tag: what is published of
  // the leases that were in it is spoilt.
  void OnForged(const std::string& tag, const std::vector<std::string>& tokens);

  // Leases for tags that are expected to be asked for, so that nobody need wait for them then;
  // `done` when each has ids or cannot have them now.
  void Warm(const std::vector<std::string>& tags, std::function<void()> done);
  // Begins with no more of them.
  void StopWarming();

  void OnStoreHealth(const StoreHealth& health);
  [[nodiscard]] const StoreHealth& store_health() const noexcept { return health_; }

  // An administrator changed or deleted the tag in the store. After a deletion the ring is drained
  // and its leases are closed as abandoned.
  void OnTagChanged(const TagRecord& record);
  void OnTagDeleted(const std::string& tag);

  // The ring of that id, if it is still the tag's, is closed to those who have it, and what is left
  // of it goes on in a new one. False: there is no memory for that now.
  [[nodiscard]] bool Withdraw(const std::string& tag, std::uint64_t ring_id);
  // Leases a second, of all tags together, from now on.
  void SetLeaseLimit(std::uint32_t leases_per_s) { scheduler_.SetLimit(leases_per_s); }

  // What is drained from the start on, as HighWaterMarks::Drained() has it; before Inherit().
  void LoadDrained(const std::vector<std::string>& scopes);
  // Closes the rings of a tag, or of kWholeHost, refuses whoever asks for their ids from now on,
  // and hands back what was not claimed, each tag's newest first. It is noted durably already: a
  // daemon that dies here does it at its next start. Again: nothing happens.
  void Drain(const std::string& scope);
  // Its end, which is noted durably: tags that are drained in no other way have a new ring, and
  // lease again as soon as their tails are back.
  void Resume(const std::string& scope);
  [[nodiscard]] const DrainLedger& drains() const noexcept { return drains_; }
  // How far a drain has come.
  struct DrainProgress {
    std::uint64_t tags = 0;  // that were served and are drained
    DrainCount count;
    bool is_leasing = false;     // a lease was under way: what comes goes back first
    bool has_open_ends = false;  // of leases that left no tail, not journalled yet
    [[nodiscard]] bool done() const noexcept {
      return !is_leasing && !has_open_ends && count.leases_pending == 0;
    }
  };
  [[nodiscard]] DrainProgress ProgressOf(const std::string& scope) const;
  // The tag is known here, so that the store need not be asked whether there is one.
  [[nodiscard]] bool Knows(std::string_view tag) const;

  // Looks at every ring: what a claimer that died before its wake-up left undone, and the rates.
  void Poll();

  // Rings that are open, of two descriptors each.
  [[nodiscard]] std::size_t rings() const;

  // A tag was made in the store.
  void OnTagCreated() noexcept { ++tags_version_; }

  [[nodiscard]] std::vector<TagSnapshot> Snapshot() const;
  // Of the tags of which an observer that Observe() gives a ring of `may_observe` tags does not
  // know all: those without a ring for it, and those with an error to be read.
  using MayObserve = std::function<bool(const std::string& tag)>;
  [[nodiscard]] std::vector<TagSnapshot> Unobserved(const MayObserve& may_observe) const;
  // The leases that the journal may still have as active, by token: those in a ring (kActive) and
  // those on their way to being closed.
  [[nodiscard]] std::map<std::string, LeaseClosure, std::less<>> LiveLeases() const;
  [[nodiscard]] std::map<std::string, LeaseClosure, std::less<>> LiveLeases(
      const std::string& tag) const;

  // Adds up to `most` tags behind `after`, in the order of names; the last that was looked at, or
  // nothing when there are no more.
  [[nodiscard]] std::optional<std::string> SampleTags(const std::string& after, std::size_t most,
                                                      std::vector<TagSample>& samples);
  // What the metrics tell of the store, the leases and the claims of this host.
  void AddFamilies(FamilyBuilder& families) const;
  // Ids that nobody gets any more, by tag.
  [[nodiscard]] std::map<std::string, std::uint64_t, std::less<>> Waste() const {
    return worker_.meter().Waste();
  }

  // Refuses new requests, fails the waiters, drains every ring and hands the tails back; `done`
  // when the store has answered for all of them.
  void Shutdown(std::function<void()> done);

 private:
  struct Tag;
  using TagPtr = std::unique_ptr<Tag>;

  [[nodiscard]] Tag& GetTag(const std::string& name);
  void Serve(Tag& tag);
  void ServeAttaches(Tag& tag);
  // Answers the waiting claims from `take`, as far as that has ids.
  void ServeClaims(Tag& tag, const WaitQueue::Take& take,
                   const std::function<void()>& before_send = {});
  // Counts a claim that has to wait, and what becomes of it.
  [[nodiscard]] ClaimDone MeterDryClaim(ClaimDone done);
  [[nodiscard]] TagSample SampleOf(Tag& tag) const;
  void ExpireWaiters(Tag& tag);
  void ArmDeadline(Tag& tag);
  void ForgetIfUnused(const std::string& name);

  void LookUp(Tag& tag);
  void OnLookUp(Tag& tag, Result<TagRecord> record);
  void WarmNext();
  void Warmed(const std::string& name);
  void Configure(Tag& tag, TagRecord record);
  [[nodiscard]] std::uint64_t IdsToLease(const Tag& tag) const;
  void MaybeLease(Tag& tag);
  [[nodiscard]] std::optional<LeaseOrder> OrderOf(const std::string& name);
  void OnOutcome(const LeaseOrder& order, Result<LeaseOutcome> outcome);
  void OnLease(const std::string& name, Result<LeaseOutcome> outcome);
  void PublishLease(Tag& tag, const Lease& lease);
  void OnNotLeased(Tag& tag, const LeaseOutcome& outcome);
  void OnStoreFailure(Tag& tag, const Status& status);
  void Refuse(Tag& tag, const Status& status);
  void RetryLater(Tag& tag, MonotonicTime when);
  [[nodiscard]] Status EnsureRing(Tag& tag);
  void EnforceAccess(Tag& tag);
  void HandBackNewestFirst(std::vector<LeaseUse> uses);
  void TakeOverNext();
  void TakeOverIfLeft(const std::string& name);
  void TakeOverTag(LeftTag left);
  void PublishInherited(Tag& tag, const std::vector<LeaseUse>& leases);
  void EndInherited(const std::vector<LeaseUse>& closing, const std::vector<LeaseUse>& returning);
  void WatchOldRings();
  void PublishRest(Tag& tag, const LeaseUse& use);
  [[nodiscard]] bool ReplaceRing(Tag& tag, const char* reason);
  void CloseExhausted(Tag& tag);
  void PublishStats(Tag& tag);
  // Precondition: the record is known.
  [[nodiscard]] static double PromisedIdsOf(const Tag& tag);
  [[nodiscard]] TagSnapshot SnapshotOf(const Tag& tag) const;
  void Quarantine(Tag& tag, std::vector<LeaseUse> drained = {});
  void CheckExhaustion(Tag& tag, MonotonicTime now);
  [[nodiscard]] static bool IsFreshlyQuarantined(const Tag& tag);
  [[nodiscard]] const char* StateOf(const Tag& tag, std::uint64_t available) const;
  void CloseAll(Tag& tag, const std::vector<LeaseUse>& uses);
  void HandBackTails(Tag& tag);
  void DrainTag(Tag& tag);
  void ResumeTag(Tag& tag);
  void AfterHandBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome);
  [[nodiscard]] std::string WaitReason(const Tag& tag) const;
  static void AddLive(const Tag& tag, std::map<std::string, LeaseClosure, std::less<>>& live);
  static void KeepForNext(Tag& tag, HeldLeases& held);
  void FinishShutdownIfIdle();

  EventLoop& loop_;
  LeaseWorker& worker_;
  Handover handover_;
  StoreHealth health_;
  double health_since_ = 0;  // Unix time of health_.since, worked out once
  ServiceMeter meter_;
  std::map<std::string, TagPtr, std::less<>> tags_;
  std::uint64_t tags_version_ = 1;
  LeaseScheduler scheduler_;
  LeaseCloser closer_;
  DrainLedger drains_;
  std::map<std::string, LeftTag, std::less<>> left_;  // by an earlier idd, not taken over yet
  std::function<void()> taken_over_;                  // to be called when left_ is empty
  Timer takeover_timer_;
  std::vector<InheritedRing> old_rings_;  // of those that were
  std::size_t inherited_leases_ = 0;
  std::deque<std::string> to_warm_;
  std::set<std::string, std::less<>> warming_;
  std::function<void()> warmed_;
  bool stopping_ = false;
  std::function<void()> shutdown_done_;
  Timer overtaken_timer_;  // while stopping: overtaken claimers keep their ids
  bool overtaken_are_through_ = true;
};

// On the wall clock, as near as it is known now: another call gives another fraction.
[[nodiscard]] double UnixTimeOf(MonotonicTime time);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAG_SERVICE_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_TAG_SERVICE_H_
#define IDD_DAEMON_TAGS_TAG_SERVICE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "leasing/lease_closer.h"
#include "leasing/lease_scheduler.h"
#include "leasing/lease_worker.h"
#include "metrics/metrics_sample.h"
#include "platform/event_loop.h"
#include "platform/turns.h"
#include "restart/inheritance.h"
#include "store/store.h"
#include "tags/drain_ledger.h"
#include "tags/served_tag.h"
#include "tags/service_meter.h"
#include "tags/tag_context.h"
#include "tags/tag_views.h"
#include "tags/takeover.h"
#include "tags/wait_queue.h"
#include "tags/warm_up.h"

namespace idd::daemon {

// All tags of this host. Passes each request, store answer and operator's order to the tag that it
// is about, or to all tags. ServedTag implements one tag.
//
// It has more methods than a class should, because it is the interface of all tags for the other
// parts of the daemon, and each of them needs a few of its calls.
//
// Thread safety: none; everything runs on the event loop. Store work goes through the LeaseWorker.
class TagService : private TagOwner {
 public:
  // `leases_per_s`: the limit for all tags together.
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
  // The memory of the tag's ring for an observer: its table, and its cursors opened for reading.
  // ring_id is 0 for a tag that has no ring now, or that clients may claim from only over the
  // socket. Makes no ring and does not ask the store. kSystem.
  [[nodiscard]] Result<ObserveGrant> Observe(std::string_view tag) const;
  // Grows whenever the set of tags, or Observe()'s answer for some tag, has changed.
  [[nodiscard]] std::uint64_t tags_version() const noexcept { return context_.tags_version; }
  // Shutdown() was called.
  [[nodiscard]] bool is_stopping() const noexcept { return context_.is_stopping; }
  // The connection is gone: its requests are dropped without an answer.
  void DropOwner(std::uint64_t owner);

  // Continues where an earlier idd ended: closes its ended leases and takes its tags over, one a
  // millisecond, or at once if a request needs one. The rest of a tag's leases is published in a
  // new ring; until then claims continue in the old ring. Needs no store. To be called first of
  // all, before a client can ask. Calls `done` on the loop when nothing is left.
  void Inherit(Inheritance& inheritance, std::function<void()> done = {});
  // Takes over the remaining tags at once.
  void TakeOverAll() { takeover_.TakeAll(); }
  // A client has written into the ring that an earlier idd left of this tag: the published ids of
  // that ring's leases are spoilt.
  void OnForged(const std::string& tag, const std::vector<std::string>& tokens);

  // Leases for tags that are expected to be asked for, so that no request has to wait. Calls `done`
  // when each tag has ids or cannot get them now.
  void Warm(const std::vector<std::string>& tags, std::function<void()> done);
  // Starts no more of them.
  void StopWarming() { warm_up_.Stop(); }

  void OnStoreHealth(const StoreHealth& health);
  [[nodiscard]] const StoreHealth& store_health() const noexcept { return context_.health; }

  // An administrator changed or deleted the tag in the store. After a deletion the ring is drained
  // and its leases are closed as abandoned.
  void OnTagChanged(const TagRecord& record);
  void OnTagDeleted(const std::string& tag);

  // If the ring with that id is still the tag's, closes it to the clients that have it and
  // continues with its remaining ids in a new ring. False: there is no memory for that now.
  [[nodiscard]] bool Withdraw(const std::string& tag, std::uint64_t ring_id);
  // Calls `done` on the loop once the service manager has all rings that were made until now. For
  // callers that make many: the manager takes its time, and the loop would have to wait for it.
  void WhenRingsAreKept(std::function<void()> done) {
    context_.handover.descriptors.WhenHandled(std::move(done));
  }
  // Sets the leases a second, for all tags together, from now on.
  void SetLeaseLimit(std::uint32_t leases_per_s) { scheduler_.SetLimit(leases_per_s); }

  // Sets the scopes that are drained from the start, as HighWaterMarks::Drained() has them. To be
  // called before Inherit().
  void LoadDrained(const std::vector<std::string>& scopes);
  // Refuses requests for the ids of a tag, or of kWholeHost, from now on. Closes the rings and
  // hands back the unclaimed ids, each tag's newest first; those of the whole host in turns of the
  // loop, until DrainProgress::is_closing is false. Precondition: the drain is recorded durably, so
  // that a daemon that dies here completes it at its next start. Idempotent.
  void Drain(const std::string& scope);
  // Ends a drain. Precondition: the end is recorded durably. Tags that are not drained in another
  // way get a new ring, those of the whole host in turns, or at once if a request needs one. They
  // lease again as soon as their tails are back.
  //
  // A drain and a resume of the whole host may be under way at once: each tag follows the last one.
  void Resume(const std::string& scope);
  [[nodiscard]] const DrainLedger& drains() const noexcept { return drains_; }
  // How far a drain has come.
  struct DrainProgress {
    std::uint64_t tags = 0;  // tags that were served and are drained
    DrainCount count;
    bool is_closing = false;     // rings of tags may still be open, and ids claimed from them
    bool is_leasing = false;     // a lease is under way, and goes back first
    bool has_open_ends = false;  // ends of leases without a tail are not journalled yet
    [[nodiscard]] bool done() const noexcept {
      return !is_closing && !is_leasing && !has_open_ends && count.leases_pending == 0;
    }
  };
  [[nodiscard]] DrainProgress ProgressOf(const std::string& scope) const;
  // False if it is certain that a drain is not done yet; much cheaper with thousands of tags.
  [[nodiscard]] bool MayBeDone(const std::string& scope) const {
    return !IsClosing(scope) && !drains_.HasPending(scope) && !closer_.HasOpenEnds(scope);
  }
  // DrainProgress::is_closing.
  [[nodiscard]] bool IsClosing(const std::string& scope) const {
    return scope == kWholeHost && drain_turns_.is_under_way();
  }
  // Whether the tag is known here, so that the store need not be asked whether it exists.
  [[nodiscard]] bool Knows(std::string_view tag) const;
  // Its record as last seen; null if it is not known here.
  [[nodiscard]] const TagRecord* RecordOf(std::string_view tag) const;

  // Looks at every ring, to do what a claimer that died before its wake-up left undone and to
  // measure the rates. To be called once a second; does its work in turns of the loop.
  void Poll();

  // The number of open rings, each with two descriptors.
  [[nodiscard]] std::size_t rings() const;

  // Tags were created in the store. Those that are served here, such as one that another database
  // lacked, are refused no longer.
  void OnTagsCreated(const std::vector<std::string>& tags);

  [[nodiscard]] std::vector<TagSnapshot> Snapshot() const;
  // The snapshot of one tag; none if it is not known.
  [[nodiscard]] std::vector<TagSnapshot> SnapshotOf(std::string_view tag) const;
  // Looks at the tag after `at` in the order of names: sets `at` to it, and adds its snapshot if it
  // is known. False: there is none. For callers that take a snapshot of all tags in turns.
  [[nodiscard]] bool SnapshotNext(std::string& at, std::vector<TagSnapshot>& snapshots) const;
  // The same for the tags that an observer cannot fully see through rings, if it may observe those
  // that `may_observe` accepts: tags without a ring for it, and tags with an error to report.
  using MayObserve = std::function<bool(const std::string& tag)>;
  [[nodiscard]] bool UnobservedNext(std::string& at, const MayObserve& may_observe,
                                    std::vector<TagSnapshot>& snapshots) const;
  // The leases that the journal may still have as active, by token: leases in a ring (kActive) and
  // leases that are being closed.
  [[nodiscard]] std::map<std::string, LeaseClosure, std::less<>> LiveLeases() const;
  [[nodiscard]] std::map<std::string, LeaseClosure, std::less<>> LiveLeases(
      const std::string& tag) const;

  // Adds samples of up to `most` tags after `after`, in the order of names. Returns the last tag
  // that was looked at, or nothing if there are no more.
  [[nodiscard]] std::optional<std::string> SampleTags(const std::string& after, std::size_t most,
                                                      std::vector<TagSample>& samples);
  // Adds the metrics of the store, the leases and the claims of this host.
  void AddFamilies(FamilyBuilder& families) const;
  // Ids that were leased and will not be handed out, by tag.
  [[nodiscard]] std::map<std::string, std::uint64_t, std::less<>> Waste() const {
    return context_.worker.meter().Waste();
  }

  // Refuses new requests, fails the waiters, drains every ring and hands the tails back. Calls
  // `done` when the store has answered for all of them.
  void Shutdown(std::function<void()> done);
  // LeaseCloser::ended(): it rises while the store takes tails.
  [[nodiscard]] std::uint64_t ended() const noexcept { return closer_.ended(); }

 private:
  void LookSoon();
  using TagPtr = std::unique_ptr<ServedTag>;

  void OnLookedUp(const std::string& tag, std::uint64_t instance,
                  Result<TagRecord> record) override;
  void OnMayBeUnused(std::string tag) override { ForgetIfUnused(tag); }

  [[nodiscard]] ServedTag* Find(std::string_view tag) const;
  // Returns the tag; takes it over, or makes it, if it is not there.
  [[nodiscard]] ServedTag& GetTag(const std::string& name);
  void ForgetIfUnused(const std::string& name);
  [[nodiscard]] bool StartWarming(const std::string& tag);
  // The tag after that name, in the order of names; null: there is none.
  [[nodiscard]] ServedTag* TagAfter(const std::string& name) const;
  // Does what the ledger says with all rings, in turns.
  void FollowDrains();
  [[nodiscard]] Turns::Next FollowDrain();
  void FinishResume();
  [[nodiscard]] Turns::Next PollNext();
  void OnTaken(const InheritedTag& inherited, std::unique_ptr<TagRing> ring);
  void ServeWithRing(const std::string& tag);
  void OnOutcome(const LeaseOrder& order, Result<LeaseOutcome> outcome);
  void OnHandedBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome);
  void FinishShutdownIfIdle();
  // Plans another try of the ends that the store did not take; false: there are none, or it is not
  // worth it.
  [[nodiscard]] bool EndAgain();

  ServiceMeter meter_;
  LeaseScheduler scheduler_;
  LeaseCloser closer_;
  DrainLedger drains_;
  NewRings new_rings_;
  TagContext context_;
  std::map<std::string, TagPtr, std::less<>> tags_;
  Takeover takeover_;
  WarmUp warm_up_;
  double health_since_ = 0;  // Unix time of the store's last change, computed once
  Turns drain_turns_;
  std::string drained_to_;  // the last tag that followed the ledger
  Turns poll_turns_;
  std::string polled_to_;
  std::size_t watched_ = 0;  // old rings, in this poll
  std::function<void()> shutdown_done_;
  Timer overtaken_timer_;  // while stopping: time for overtaken claimers to keep ids
  bool overtaken_are_through_ = true;
  // While stopping: whether the ends that the store refused are tried again.
  enum class NextTry { kNone, kPossible, kPlanned };
  NextTry next_try_ = NextTry::kNone;
  MonotonicTime second_try_until_{};
  MonotonicTime try_began_{};
  std::uint64_t ended_before_ = 0;  // LeaseCloser::ended() when the last try began
  Timer next_try_timer_;
  Timer look_timer_;  // looks_soon_: it is set
  bool looks_soon_ = false;
};

// The time on the wall clock, approximately: another call may return another fraction.
[[nodiscard]] double UnixTimeOf(MonotonicTime time);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAG_SERVICE_H_

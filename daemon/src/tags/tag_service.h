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

// All tags of this host: finds the one that a request, an answer of the store or an order of an
// operator is about, or passes it on to all. What a tag does is in ServedTag.
//
// It has more methods than a class should: it is what the rooms above see of all tags, and each of
// them needs a few of its calls.
//
// Thread safety: none; everything runs on the event loop. Store work goes through the LeaseWorker.
class TagService : private TagOwner {
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
  // The memory of the tag's ring for an observer: its table, and its cursors opened for reading. No
  // ring (ring_id 0) for a tag that has none now, or whose memory is given to no client. Makes no
  // ring and asks no store. kSystem.
  [[nodiscard]] Result<ObserveGrant> Observe(std::string_view tag) const;
  // Grows whenever what Observe() would answer for some tag has changed, or which tags there are.
  [[nodiscard]] std::uint64_t tags_version() const noexcept { return context_.tags_version; }
  // The connection is gone: its requests are dropped without an answer.
  void DropOwner(std::uint64_t owner);

  // Goes on where an earlier idd ended: closes those of its leases that are over, and takes its
  // tags over, one a millisecond or as soon as a request needs it: what is left of
  // its leases is published in a ring of our own. Until then claims go on in the old ring. Needs no
  // store; first of all, before a client can ask. `done` on the loop when nothing is left.
  void Inherit(Inheritance& inheritance, std::function<void()> done = {});
  // The rest of it, at once.
  void TakeOverAll() { takeover_.TakeAll(); }
  // A client has written into the ring that an earlier idd left of this tag: what is published of
  // the leases that were in it is spoilt.
  void OnForged(const std::string& tag, const std::vector<std::string>& tokens);

  // Leases for tags that are expected to be asked for, so that no request waits for them then;
  // `done` when each has ids or cannot have them now.
  void Warm(const std::vector<std::string>& tags, std::function<void()> done);
  // Begins with no more of them.
  void StopWarming() { warm_up_.Stop(); }

  void OnStoreHealth(const StoreHealth& health);
  [[nodiscard]] const StoreHealth& store_health() const noexcept { return context_.health; }

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
  // Closes the rings of a tag, or of kWholeHost, refuses requests for their ids from now on,
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
  void OnTagCreated() noexcept { ++context_.tags_version; }

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
  // Ids that were leased and will not be handed out, by tag.
  [[nodiscard]] std::map<std::string, std::uint64_t, std::less<>> Waste() const {
    return context_.worker.meter().Waste();
  }

  // Refuses new requests, fails the waiters, drains every ring and hands the tails back; `done`
  // when the store has answered for all of them.
  void Shutdown(std::function<void()> done);

 private:
  using TagPtr = std::unique_ptr<ServedTag>;

  void OnLookedUp(const std::string& tag, std::uint64_t instance,
                  Result<TagRecord> record) override;
  void OnMayBeUnused(std::string tag) override { ForgetIfUnused(tag); }

  [[nodiscard]] ServedTag* Find(std::string_view tag) const;
  // Takes it over, or makes it, if it is not there.
  [[nodiscard]] ServedTag& GetTag(const std::string& name);
  void ForgetIfUnused(const std::string& name);
  [[nodiscard]] bool StartWarming(const std::string& tag);
  void OnTaken(const InheritedTag& inherited, std::unique_ptr<TagRing> ring);
  void OnOutcome(const LeaseOrder& order, Result<LeaseOutcome> outcome);
  void OnHandedBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome);
  void FinishShutdownIfIdle();

  ServiceMeter meter_;
  LeaseScheduler scheduler_;
  LeaseCloser closer_;
  DrainLedger drains_;
  TagContext context_;
  std::map<std::string, TagPtr, std::less<>> tags_;
  Takeover takeover_;
  WarmUp warm_up_;
  double health_since_ = 0;  // Unix time of the store's last change, worked out once
  std::function<void()> shutdown_done_;
  Timer overtaken_timer_;  // while stopping: overtaken claimers keep their ids
  bool overtaken_are_through_ = true;
};

// On the wall clock, as near as it is known now: another call gives another fraction.
[[nodiscard]] double UnixTimeOf(MonotonicTime time);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAG_SERVICE_H_

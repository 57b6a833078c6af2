// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_SERVED_TAG_H_
#define IDD_DAEMON_TAGS_SERVED_TAG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "leasing/take_leases.h"
#include "platform/event_loop.h"
#include "refill/claim_history.h"
#include "refill/mark_watch.h"
#include "refill/refill_policy.h"
#include "refill/usage_meter.h"
#include "store/lease.h"
#include "store/tag_record.h"
#include "tags/exhaustion_forecast.h"
#include "tags/leased_ids.h"
#include "tags/tag_context.h"
#include "tags/tag_time.h"
#include "tags/tag_views.h"
#include "tags/wait_queue.h"
#include "tags/wait_reason.h"

namespace idd::daemon {

// The descriptors with which an observer maps a ring; none if ring_id is 0.
struct ObserveGrant {
  std::uint64_t ring_id = 0;
  int table_fd = -1;  // owned by the service, as in AttachGrant
  ScopedFd cursors_fd;
  std::uint32_t cursors_bytes = 0;
};

// One tag as this host serves it: its requests, its refills, its ring (LeasedIds).
//
// A claim that finds the ring dry waits in the queue. The ids of the next lease go to the queue
// first, in order of arrival, before the rest is published.
//
// It has more methods than a class should: each is one event in the life of a tag (a request, an
// answer of the store, an order of an operator, the poll), and all work on the same few states.
//
// Thread safety: none; event loop.
class ServedTag {
 public:
  ServedTag(std::string name, TagContext& context);
  ServedTag(const ServedTag&) = delete;
  ServedTag& operator=(const ServedTag&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // Differs from the instance of a deleted tag of the same name.
  [[nodiscard]] std::uint64_t instance() const noexcept { return instance_; }
  // Whether the store has answered that the tag exists. Everything that needs its settings (leases,
  // views) depends on that.
  [[nodiscard]] bool is_known() const noexcept { return record_.has_value(); }
  // Null if it is not known.
  [[nodiscard]] const TagRecord* record() const noexcept { return record_ ? &*record_ : nullptr; }
  [[nodiscard]] const LeasedIds& ids() const noexcept { return ids_; }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiters_.size(); }
  // Whether a look-up or a lease is under way, or the tag awaits its turn to lease, or its ring,
  // with which it leases.
  [[nodiscard]] bool AwaitsStore() const {
    return store_.is_busy || context_.scheduler.Awaits(name_) || context_.new_rings.Awaits(name_);
  }
  [[nodiscard]] bool is_at_store() const noexcept { return store_.is_busy; }
  // True if the lease under way must go back, because the tag was drained meanwhile.
  [[nodiscard]] bool hands_back() const noexcept { return store_.hands_back; }
  // True if the tag is unknown and no request waits for it.
  [[nodiscard]] bool IsUnused() const { return !is_known() && waiters_.empty() && !store_.is_busy; }

  // Requests.
  void Attach(RequestContext request, AttachDone done);
  void Claim(RequestContext request, std::uint64_t ring_id, std::uint64_t count, ClaimDone done);
  void OnRefillMark();
  // The ring that the tag waits for may be made: see NewRings.
  void ServeWithRing() { Serve(); }
  void DropOwner(std::uint64_t owner) { waiters_.Drop(owner); }
  [[nodiscard]] Result<ObserveGrant> Observe() const;

  // The store.
  void OnStoreDown() { FailTicketsIfDown(); }
  void LookUp();
  void OnLookedUp(Result<TagRecord> record);
  void MaybeLease();
  // The tag's turn to lease has come. From here on the next idd would look for the lease by its
  // token.
  [[nodiscard]] std::optional<LeaseOrder> TakeTurn();
  // The outcome of that order. False: the store has no such tag any more.
  [[nodiscard]] bool OnOutcome(Result<LeaseOutcome> outcome);
  // Warms the tag up: asks the store for what the tag needs to have ids.
  void Warm();

  // Operators.
  void OnChanged(const TagRecord& record);
  // The store has the tag now, whatever it answered before.
  void OnCreated();
  void OnDeleted();
  // Closes the ring with that id to the clients that have it, and continues in a new one. False:
  // there is no memory for that now.
  [[nodiscard]] bool Withdraw(std::uint64_t ring_id);
  // Idempotent.
  void Drain();
  // False: the tag was not drained, or has no ring now. A request that comes first does the same.
  [[nodiscard]] bool Resume() { return ids_.Resume(); }

  // Takes over, in a new ring, what an earlier idd left of the tag's leases.
  void Inherit(const TagRecord& record, std::unique_ptr<TagRing> ring,
               const std::vector<LeaseUse>& leases);
  // The same without a ring, because the tag is drained or there is no memory.
  void Inherit(const TagRecord& record);
  // A client has written into the earlier idd's ring that had these leases.
  void OnForged(const std::vector<std::string>& tokens);
  // Refuses the waiters, closes the ring, and hands back or keeps the rest of its leases. Returns
  // whether clients had the ring.
  [[nodiscard]] bool Shutdown();
  void KeepTails() { ids_.KeepTails(); }

  // To be called once a second.
  void Poll(MonotonicTime now);

  // Views. Precondition of all: is_known().
  [[nodiscard]] TagSnapshot Snapshot() const;
  [[nodiscard]] TagSample Sample();
  // True if an observer of its ring cannot see everything: there is no ring to observe, or an error
  // to report.
  [[nodiscard]] bool IsUnobservable() const;

 private:
  // The tag's request to the store, and the store's last answer.
  struct StoreState {
    bool is_busy = false;           // a look-up or a lease is under way
    MonotonicTime asked_at{};       // since then
    bool hands_back = false;        // the lease under way must go back
    bool has_taken_worker = false;  // in the turn that goes on
    bool is_pausing = false;        // the next try waits for retry_timer_
    // Until then: the store's answer to the last try, if it refused. It was the answer to the
    // requests of that time: see AskAgain().
    Status refusal;
    std::string last_error;
    std::uint64_t data_set = 0;   // StoreSession::data_set of the newest lease
    std::uint64_t leased_to = 0;  // the limit of the newest lease
    // The newest request when the last look-up or lease was asked for.
    std::uint64_t last_waiter = 0;
  };
  struct Counts {
    std::uint64_t inherited = 0;  // ids claimed before this idd
    std::uint64_t by_socket = 0;  // ids given to requests
    std::uint64_t by_ring = 0;    // ids claimed otherwise, as the metrics last showed them
    std::uint64_t leases = 0;
    std::uint64_t fallbacks = 0;
  };

  // Serves the requests that can be served now, then leases for the rest.
  void Serve();
  void ServeAttaches();
  // Answers the waiting claims up to number `last` with ids from `take`, until it has none left.
  void ServeClaims(const WaitQueue::Take& take, std::uint64_t last,
                   const std::function<void()>& before_send = {});
  [[nodiscard]] shm::IdRange TakeFromRing(std::uint64_t count);
  void ExpireWaiters();
  void ArmDeadline();
  [[nodiscard]] WaitFacts WhyItWaits() const;

  void Configure(TagRecord record);
  // Replaces a ring that does not fit the settings: a tag whose ids are claimed over the socket
  // must not have a ring that clients can write.
  void EnforceSettings();
  [[nodiscard]] bool IsTicket() const { return is_known() && record_->mode == TagMode::kTicket; }
  [[nodiscard]] bool IsSnowflake() const noexcept { return time_.is_on(); }
  // Precondition: it is known.
  [[nodiscard]] bool IsClaimedBySocket() const {
    return IsTicket() || record_->access == TagAccess::kSocket;
  }
  // The ring id in the answer to an ATTACH. Precondition: there is a ring.
  [[nodiscard]] std::uint64_t AttachedRing() const {
    return IsClaimedBySocket() ? 0 : ids_.ring()->ring_id();
  }

  // The facts for the policy. Precondition: there is a ring.
  [[nodiscard]] RefillView View() const;
  // The same, with `served` more ids claimed from a lease that is not published yet; also recorded
  // in the history.
  [[nodiscard]] RefillView NoteView(std::uint64_t served = 0);
  void ObserveRing() { policy_->Observe(NoteView()); }
  [[nodiscard]] std::uint64_t IdsToLease() const;
  [[nodiscard]] LeasedIds::MarkOf MarkOf() const;
  void OnLeased(LeaseOutcome outcome);
  void PublishLease(const Lease& lease);
  [[nodiscard]] std::uint64_t GiveToWaiters(const Lease& lease, std::uint64_t last);
  void GiveTickets(const Lease& lease);
  // Fails the waiting claims if the store is down: no ticket is given without it.
  void FailTicketsIfDown();
  void OnNotLeased(const LeaseOutcome& outcome);
  // False: there is no such tag.
  [[nodiscard]] bool OnStoreFailure(const Status& status);
  void Refuse(const Status& status);
  void RetryAt(MonotonicTime when);
  // Ends the pause that RetryAt() began, and what the store refused before it.
  void EndPause();
  // Requests came after the store was asked for what it has refused.
  void AskAgain();
  void HandBackTails();

  [[nodiscard]] TagFacts Facts() const;
  // Looks whether a claim is about to take a refill mark, and refills before it does.
  void WatchMark();
  void ClearMarkThatIsDue();
  // Of order cpu: adapts the lanes' blocks to the rate.
  void SizeLanes();
  // Writes what observers read into the ring.
  void PublishStats();
  void ForecastExhaustion(MonotonicTime now);
  void PollTime(MonotonicTime now);
  void FollowTime(bool is_use = true);

  const std::string name_;
  const std::uint64_t instance_;
  TagContext& context_;
  std::optional<TagRecord> record_;
  std::unique_ptr<RefillPolicy> policy_;  // set once the record is known
  ClaimHistory history_;
  UsageMeter usage_;
  LeasedIds ids_;
  TagTime time_;             // of a snowflake tag
  std::string counter_;      // of its worker id on this host; empty: none yet
  std::string clock_error_;  // why every claim waits for the clock; empty: none has to
  WaitQueue waiters_;
  MarkWatch mark_watch_;
  Timer mark_timer_;
  Timer deadline_timer_;
  Timer retry_timer_;
  StoreState store_;
  Counts counts_;
  ExhaustionForecast exhaustion_;
  unsigned idle_polls_ = 0;  // consecutive polls that found nothing new
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_SERVED_TAG_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_LEASED_IDS_H_
#define IDD_DAEMON_TAGS_LEASED_IDS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "store/lease.h"
#include "tags/tag_context.h"
#include "tags/tag_ring.h"

namespace idd::daemon {

// How long `status` shows that a ring was quarantined; the log has it permanently.
inline constexpr std::chrono::seconds kQuarantineShown(60);

// The ids that one tag holds: the leases in its ring, and the tails of leases that go back to the
// store. Rings follow one another: a ring is retired, drained or quarantined, and another takes its
// place.
//
// Thread safety: none; event loop.
//
// Invariant: each lease is in the ring, in the tails, or with the LeaseCloser. What the next idd
// must know about a lease is recorded before the lease moves (HeldLeases).
class LeasedIds {
 public:
  struct Events {
    std::function<void()> changed;               // a ring or a lease has come or gone
    std::function<void(const Status&)> no_ring;  // no memory to replace a quarantined ring
  };
  // The id of a segment whose claimer wakes the daemon: RefillPolicy::MarkOf().
  using MarkOf = std::function<std::uint64_t(shm::IdRange ids)>;

  LeasedIds(std::string tag, TagContext& context, Events events);
  LeasedIds(const LeasedIds&) = delete;
  LeasedIds& operator=(const LeasedIds&) = delete;

  // Null before the first request, or without memory for a ring.
  [[nodiscard]] TagRing* ring() const noexcept { return ring_.get(); }
  [[nodiscard]] bool IsDry() const { return ring_ == nullptr || ring_->IsDry(); }
  // True if there is a ring and no operator has drained it.
  [[nodiscard]] bool HasOpenRing() const { return ring_ != nullptr && !ring_->IsDrained(); }
  [[nodiscard]] RingLevel Level() const { return ring_ == nullptr ? RingLevel{} : ring_->Level(); }
  // Nothing: no ring, or one of order host.
  [[nodiscard]] std::optional<LaneLevel> Lanes() const {
    return ring_ == nullptr ? std::nullopt : ring_->Lanes();
  }
  [[nodiscard]] std::vector<LeaseUse> InRing() const;
  // The end of what was claimed from the ring; 0: nothing was.
  [[nodiscard]] std::uint64_t ReachedTo() const;
  // The ids claimed from leases that have left the ring.
  [[nodiscard]] std::uint64_t closed_claimed() const noexcept { return closed_claimed_; }
  [[nodiscard]] std::uint64_t Claimed() const { return closed_claimed_ + Level().claimed; }
  [[nodiscard]] std::uint64_t quarantines() const noexcept { return quarantines_; }
  [[nodiscard]] MonotonicTime quarantined_at() const noexcept { return quarantined_at_; }
  [[nodiscard]] bool WasQuarantinedRecently() const;
  // True for a while after two rings in a row were forged soon after they were made. Each costs a
  // snowflake tag a worker id for the length of a window.
  [[nodiscard]] bool IsSpoiltOften() const;
  // Adds the leases that the journal may still have as active, by token.
  void AddLive(std::map<std::string, LeaseClosure, std::less<>>& live) const;

  // Rings that are made from now on have it.
  void SetShape(const RingShape& shape) { shape_ = shape; }
  // True if the ring's leases, if it had any, are of the same row of leaf_alloc as `lease`:
  // claimers keep the layout of the first. Precondition: there is a ring.
  [[nodiscard]] bool FitsRing(const Lease& lease) const;
  // Closes the ring and makes another one for leases of another worker id; what is left of its
  // leases is given up. kSystem: no memory. Precondition: there is a ring.
  [[nodiscard]] Status ChangeWorker();

  // Makes a ring if there is none. kSystem: no memory.
  [[nodiscard]] Status EnsureRing();
  // Takes a ring for leases of an earlier idd, the first of which begins at `floor`.
  void Inherit(std::unique_ptr<TagRing> ring, std::uint64_t floor);
  // Publishes a lease of which the first `taken` ids were claimed or given out. Precondition: there
  // is a ring with room, and the lease is not below its floor.
  void Publish(const Lease& lease, std::uint64_t taken, std::uint64_t mark);
  // Closes the ring that clients have and puts another in its place, with the same leases, claimed
  // as far as they were: no id is lost, and ids keep rising. A ring that proves forged is
  // quarantined instead. False: there is no memory for a new ring. Precondition: there is a ring.
  [[nodiscard]] bool ReplaceRing(const char* reason, const MarkOf& mark_of);
  // Ends a lease that was never published: its first `given` ids were given out, and the rest is
  // given up.
  void CloseUnpublished(const Lease& lease, std::uint64_t given);
  // Closes the leases whose last id was claimed. A ring that proves forged is quarantined.
  void CloseExhausted();
  // A client has written into the ring: gives up all segments published in it, and replaces it.
  // Precondition: there is a ring.
  void Quarantine() { Quarantine({}); }

  // For an operator: closes the ring and turns its unclaimed ids into tails. False: there is no
  // ring, or it is drained already.
  [[nodiscard]] bool Drain();
  // Replaces the drained ring with a new one. False: the ring is not drained, or there is no
  // memory.
  [[nodiscard]] bool Resume();
  // For a stop: closes the ring and turns its unclaimed ids into tails.
  void Retire();
  // The tag was deleted: nothing goes back.
  void Abandon();

  // Adds a lease that came too late to be published.
  void AddTail(const Lease& lease) { tails_.push_back({.lease = lease, .claimed = 0}); }
  // Hands the newest back first: each lowers max_id to the end of the previous one.
  void HandBackTails();
  // The store could not take the tails; the next idd gets their records.
  void KeepTails();

 private:
  [[nodiscard]] Result<std::unique_ptr<TagRing>> MakeRing(std::uint64_t floor) const;
  // Closes the ring, TagRing::Retire(). What lanes had left is lost.
  [[nodiscard]] std::vector<LeaseUse> CloseRing(shm::RingState state = shm::RingState::kRetired);
  void PublishAgain(const std::vector<LeaseUse>& uses, const MarkOf& mark_of);
  void CloseAll(const std::vector<LeaseUse>& uses);
  void Quarantine(std::vector<LeaseUse> drained);
  // Gives up `spoilt`, the leases drained from a forged ring: none of their ids is handed out or
  // leased again.
  void GiveUp(const std::vector<LeaseUse>& spoilt, const char* action);

  const std::string tag_;
  RingShape shape_;
  TagContext& context_;
  const Events events_;
  std::unique_ptr<TagRing> ring_;
  std::vector<LeaseUse> tails_;  // oldest first
  std::uint64_t floor_ = 0;      // where the next ring begins
  std::uint64_t closed_claimed_ = 0;
  std::uint64_t quarantines_ = 0;
  MonotonicTime quarantined_at_{};
  MonotonicTime quarantined_before_{};  // the time before that
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_LEASED_IDS_H_

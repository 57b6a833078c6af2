// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_TAG_RING_H_
#define IDD_DAEMON_TAGS_TAG_RING_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/shm/memfd.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_stats.h"
#include "idd/shm/ring_writer.h"
#include "platform/service_manager.h"
#include "store/lease.h"
#include "store/snowflake_layout.h"
#include "tags/ring_shape.h"

namespace idd::daemon {

// Sums over the leases of a ring.
struct RingLevel {
  std::uint64_t claimed = 0;
  std::uint64_t available = 0;
  std::uint64_t open_segments = 0;  // not exhausted
  std::uint64_t newest_size = 0;    // ids of the newest of them
};

// The lanes of a ring of order cpu.
struct LaneLevel {
  std::uint32_t count = 0;
  std::uint64_t block = 0;    // ids that a claim takes for a lane
  std::uint64_t left = 0;     // ids that lanes have; they count as claimed
  std::uint64_t dropped = 0;  // ids that claimers say they gave up
};

// Ids of a snowflake ring.
struct TimedClaim {
  shm::IdRange ids{};  // empty: the ring is dry, or its next number is too early
  // The number that is too early: the clock allows it later.
  std::optional<std::uint64_t> early{};
};

// One tag's ring together with the leases of its segments.
//
// Thread safety: none; owned by the event loop.
//
// Invariant: leases_ and the writer's open segments correspond one to one, in order.
class TagRing {
 public:
  // Makes an empty ring with a random ring id; nothing below `floor` will be published in it. Keeps
  // its descriptors in `descriptors`, which must outlive it, until it is destroyed after a
  // Retire(). All leases of a snowflake tag's ring are of one worker id. kSystem, which is logged:
  // no memory.
  [[nodiscard]] static Result<std::unique_ptr<TagRing>> Create(const std::string& tag,
                                                               std::uint64_t floor,
                                                               DescriptorStore& descriptors,
                                                               const RingShape& shape = {});
  // Claimers overtaken by the ring's end keep no ids from here on.
  ~TagRing();
  TagRing(const TagRing&) = delete;
  TagRing& operator=(const TagRing&) = delete;

  [[nodiscard]] std::uint64_t ring_id() const noexcept { return memory_->ring_id(); }
  [[nodiscard]] int table_fd() const noexcept { return memory_->table_fd(); }
  [[nodiscard]] int cursors_fd() const noexcept { return memory_->cursors_fd(); }
  // A descriptor of the cursors for observers, which cannot write through it. kSystem.
  [[nodiscard]] Result<ScopedFd> ReadOnlyCursors() const {
    return shm::OpenForReading(cursors_fd());
  }

  // Whether its descriptors were passed to a client, which may write the cursors from then on.
  [[nodiscard]] bool shared() const noexcept { return shared_; }
  void MarkShared() noexcept { shared_ = true; }

  [[nodiscard]] bool CanPublish() const noexcept { return writer_.CanPublish(); }
  // A lease below it would break the order of ids.
  [[nodiscard]] std::uint64_t floor() const noexcept { return writer_.floor(); }
  // Publishes a lease of which the first `taken` ids went to waiters; the claimer of `mark` wakes
  // the daemon. `witness`, preconditions: as in shm::RingWriter::Publish.
  void Publish(const Lease& lease, std::uint64_t taken, std::uint64_t mark,
               std::atomic<std::uint64_t>* witness = nullptr);

  // As shm::RingWriter.
  [[nodiscard]] std::optional<std::uint64_t> ToNextMark() const { return writer_.ToNextMark(); }
  void ClearNextMark() noexcept { writer_.ClearNextMark(); }

  // Up to `count` ids, in the ring's order; empty when it is dry or forged().
  [[nodiscard]] shm::IdRange Claim(std::uint64_t count) { return writer_.Claim(count).ids; }

  [[nodiscard]] const RingShape& shape() const noexcept { return shape_; }
  // Of the cursors' memory, which has the lanes of order cpu too.
  [[nodiscard]] std::uint32_t cursors_bytes() const noexcept { return memory_->cursors_bytes(); }
  // Of order cpu: how many ids a claim takes for a lane.
  void SetLaneBlock(std::uint64_t ids) noexcept { writer_.SetLaneBlock(ids); }
  // Nothing: the ring is of order host.
  [[nodiscard]] std::optional<LaneLevel> Lanes() const;
  // The row of leaf_alloc of all its leases, also of those that have left it; empty: it had none.
  [[nodiscard]] const std::string& row() const noexcept { return row_; }
  // Of a snowflake ring: moves the cursors forwards to bounds.now, and shows claimers that read no
  // clock where they must wait.
  void MoveWithTime(shm::TimeBounds bounds) noexcept;
  // Of a snowflake ring: claimers that read no clock ask idd from now on.
  void StopTime() noexcept { writer_.SetFrontier(0); }
  // Of a snowflake ring: the number that the next claim gets; nothing: the ring is dry.
  [[nodiscard]] std::optional<std::uint64_t> NextNumber() const;
  // Of a snowflake ring: up to `count` ids of one time.
  [[nodiscard]] TimedClaim ClaimAt(shm::TimeBounds bounds, std::uint64_t count);

  // Writes the numbers that the ring itself does not show, for observers, if they have changed.
  // `numbers.claimed_before`: ids claimed from leases that have left the ring.
  void PublishStats(const shm::TagNumbers& numbers) noexcept;

  // Once a second: shm::RingWriter::ClearOldEnds().
  void ClearOldEnds() noexcept { writer_.ClearOldEnds(); }

  // Leases whose last id was claimed since the last call.
  [[nodiscard]] std::vector<LeaseUse> TakeExhausted();
  // True if a client wrote a value into a cursor that no claim writes. It is then unknown which ids
  // were claimed.
  [[nodiscard]] bool forged() const noexcept { return writer_.forged(); }
  // No Retire() yet.
  [[nodiscard]] bool IsActive() const noexcept {
    return writer_.state() == shm::RingState::kActive;
  }
  // Drained for an operator: the ring has no lease and will get none.
  [[nodiscard]] bool IsDrained() const noexcept {
    return writer_.state() == shm::RingState::kDrained;
  }
  // Closes the ring to all claimers for good, and returns how far each open lease was used. The
  // rest is the caller's alone, unless forged() is true afterwards. `state`: not kActive.
  [[nodiscard]] std::vector<LeaseUse> Retire(shm::RingState state = shm::RingState::kRetired);

  [[nodiscard]] std::vector<LeaseUse> Snapshot() const;
  [[nodiscard]] RingLevel Level() const;
  // No published id is left.
  [[nodiscard]] bool IsDry() const { return Level().open_segments == 0; }

 private:
  TagRing(std::unique_ptr<shm::RingMemory> memory, std::uint64_t floor,
          DescriptorStore& descriptors, const RingShape& shape);
  // How the numbers of a lease become ids.
  [[nodiscard]] shm::IdLayout IdsOf(const Lease& lease) const;

  DescriptorStore& descriptors_;
  std::unique_ptr<shm::RingMemory> memory_;
  shm::RingWriter writer_;
  const RingShape shape_;
  std::deque<Lease> leases_;
  std::string row_;
  bool shared_ = false;
  shm::TagNumbers published_;  // last written, without the time
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAG_RING_H_

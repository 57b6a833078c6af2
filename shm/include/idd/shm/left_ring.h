// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_LEFT_RING_H_
#define IDD_SHM_LEFT_RING_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/shm/abi.h"
#include "idd/shm/lane_look.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_protocol.h"

namespace idd::shm {

// A ring that an earlier daemon left, as the next daemon sees it. Like any client, the next daemon
// can write the cursors but not the table.
//
// So it cannot withdraw a slot (D1). Honest claimers stop at a closed cursor. If a hostile client
// writes a cursor back, clients that have not attached again claim ids of this ring again;
// StaysClosed() detects that.
//
// Order cpu: the lanes' ids are claimed, so no other claim or host gets them. Closing stops the
// claims of lanes, so that claimers go to the next ring soon; what lanes had left is a gap.
//
// Thread safety: none. Claimers in any process run concurrently.
class LeftRing {
 public:
  // Checks the descriptors as a client does, with RingMemory::Attach().
  [[nodiscard]] static Result<std::unique_ptr<LeftRing>> Open(const ScopedFd& table_fd,
                                                              const ScopedFd& cursors_fd,
                                                              std::string_view tag);

  [[nodiscard]] std::uint64_t ring_id() const noexcept { return memory_->ring_id(); }

  // Closes every cursor that an earlier daemon has not closed already. No id of the ring is claimed
  // after the call.
  void Close() noexcept;
  // The first id of `segment` that was not claimed when its cursor was closed, at most the
  // segment's limit. The ids from there to the limit are the caller's. If the result lies below the
  // segment's first id, or below what the earlier daemon has seen, the cursor was forged. Nothing
  // if the ring does not have the segment: it was never completely published, or was used up long
  // ago. To be called after Close().
  [[nodiscard]] std::optional<std::uint64_t> NextOf(IdRange segment) const noexcept;

  // False once a closed cursor is open again, or a lane has ids that no claim took from a slot: a
  // client has forged it. Closes lanes that a claim has filled after Close() with ids that it had
  // taken before.
  [[nodiscard]] bool StaysClosed() noexcept;
  // Order cpu: the ids that Close() found in lanes.
  [[nodiscard]] std::uint64_t left_in_lanes() const noexcept { return left_in_lanes_; }

 private:
  explicit LeftRing(std::unique_ptr<RingMemory> memory) : memory_(std::move(memory)) {}
  [[nodiscard]] IdRange SegmentIn(std::uint32_t slot) const noexcept;
  // False: a lane has ids that no claim took from a slot.
  bool CloseLanes() noexcept;
  [[nodiscard]] bool IsTakenFromASlot(const LaneLook& look) const noexcept;

  std::unique_ptr<RingMemory> memory_;
  std::array<std::uint64_t, kSlotCount> next_{};    // the cursors, as they were when closed
  std::array<std::uint64_t, kSlotCount> closed_{};  // and as they were left
  std::uint64_t left_in_lanes_ = 0;
};

}  // namespace idd::shm

#endif  // IDD_SHM_LEFT_RING_H_

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
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_protocol.h"

namespace idd::shm {

// A ring that an earlier daemon has left, as the next one sees it: it can write the cursors like
// any client, and the table no more than a client can.
//
// So it cannot withdraw a slot (D1). Honest claimers stop at a closed cursor; a hostile client that
// writes it back makes clients that have not attached again claim ids of this ring again, and
// StaysClosed() shows that.
//
// Thread safety: none. Claimers in any process run beside it.
class LeftRing {
 public:
  // What the descriptors are is checked as a client does: RingMemory::Attach().
  [[nodiscard]] static Result<std::unique_ptr<LeftRing>> Open(const ScopedFd& table_fd,
                                                              const ScopedFd& cursors_fd,
                                                              std::string_view tag);

  [[nodiscard]] std::uint64_t ring_id() const noexcept { return memory_->ring_id(); }

  // Closes every cursor, unless an earlier daemon has done so before it ended: no id of the ring is
  // claimed after it.
  void Close() noexcept;
  // The first id of `segment` that was not claimed when its cursor was closed, at most its
  // limit; above, and up to the limit, they are the caller's. Below the segment's first id, or
  // below what the earlier daemon has seen, the cursor was forged. Nothing when the ring does not
  // have the segment: it was never published whole, or is long used up. After Close().
  [[nodiscard]] std::optional<std::uint64_t> NextOf(IdRange segment) const noexcept;

  // False once a cursor that was closed is not: a client forged it.
  [[nodiscard]] bool StaysClosed() const noexcept;

 private:
  explicit LeftRing(std::unique_ptr<RingMemory> memory) : memory_(std::move(memory)) {}
  [[nodiscard]] IdRange SegmentIn(std::uint32_t slot) const noexcept;

  std::unique_ptr<RingMemory> memory_;
  std::array<std::uint64_t, kSlotCount> next_{};    // the cursors, as they were when closed
  std::array<std::uint64_t, kSlotCount> closed_{};  // and as they were left
};

}  // namespace idd::shm

#endif  // IDD_SHM_LEFT_RING_H_

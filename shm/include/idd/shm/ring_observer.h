// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_SHM_RING_OBSERVER_H_
#define IDD_SHM_RING_OBSERVER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/shm/abi.h"
#include "idd/shm/lane_look.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_stats.h"

namespace idd::shm {

// The result of a look at a ring. All of it was input: the values are bounded, but not necessarily
// true.
struct RingView {
  RingState state = RingState::kActive;
  bool is_over = false;      // nothing more will be published here: observe the tag again
  bool has_numbers = false;  // false: the daemon's ABI is older than 1.2
  TagNumbers numbers;
  std::uint64_t claimed = 0;    // ids of the tag since the daemon began; without numbers those of
                                // the segments now published
  std::uint64_t available = 0;  // ids published and not claimed
  std::uint64_t open_segments = 0;  // published and not exhausted
  LaneSums lanes;                   // of a ring of order cpu; their ids count as claimed
};

// Reads `table`, `cursors` and `lanes` while others write them, whatever garbage they hold. Returns
// false and leaves `view` as it was if none of a bounded number of tries saw consistent values.
// Writes nothing, waits for nothing.
[[nodiscard]] bool ReadRing(const Table& table, const Cursors& cursors, RingView& view,
                            std::span<const Lane> lanes = {}) noexcept;

// One tag's ring, seen from outside. It works as long as the ring is mapped, whether or not the
// daemon is alive.
//
// Thread safety: none; one thread uses it. The daemon and claimers in any process run concurrently.
class RingObserver {
 public:
  // Maps the descriptors that OBSERVE gave, after a client's checks, and does not keep them.
  // kIncompatible, kSystem.
  [[nodiscard]] static Result<RingObserver> Attach(const ScopedFd& table_fd,
                                                   const ScopedFd& cursors_fd,
                                                   std::string_view tag);

  // The ring as it is now or, if no consistent values were seen, as it was at the last look.
  const RingView& Snapshot() noexcept;
  [[nodiscard]] std::uint64_t ring_id() const noexcept { return memory_->ring_id(); }

 private:
  explicit RingObserver(std::unique_ptr<RingMemory> memory) : memory_(std::move(memory)) {}

  std::unique_ptr<RingMemory> memory_;
  RingView view_;
};

}  // namespace idd::shm

#endif  // IDD_SHM_RING_OBSERVER_H_

// SPDX-License-Identifier: Apache-2.0
//
// A ring in ordinary memory, for tests of the protocol alone.
#ifndef IDD_TESTS_UNIT_SUPPORT_TEST_RING_H_
#define IDD_TESTS_UNIT_SUPPORT_TEST_RING_H_

#include <cstdint>
#include <limits>

#include "idd/shm/abi.h"
#include "idd/shm/ring_protocol.h"
#include "idd/shm/ring_writer.h"

namespace idd::shm {

inline constexpr std::uint64_t kMaxWord = std::numeric_limits<std::uint64_t>::max();

// As RingMemory::Create leaves it: no segment, head 1, active.
struct TestRing {
  TestRing() {
    table.live.head_segment = 1;
    table.live.state = static_cast<std::uint32_t>(RingState::kActive);
  }
  TestRing(const TestRing&) = delete;
  TestRing& operator=(const TestRing&) = delete;

  [[nodiscard]] SlotDescriptor& slot(std::uint64_t segment) {
    return table.slots[segment % kSlotCount];
  }
  [[nodiscard]] std::atomic<std::uint64_t>& cursor(std::uint64_t segment) {
    return cursors.slots[segment % kSlotCount].next;
  }
  std::uint64_t Publish(std::uint64_t first, std::uint64_t limit, std::uint64_t taken = 0) {
    return writer.Publish({first, limit}, taken, kNoMark);
  }

  Table table{};
  Cursors cursors{};
  RingWriter writer{table, cursors};
};

}  // namespace idd::shm

#endif  // IDD_TESTS_UNIT_SUPPORT_TEST_RING_H_

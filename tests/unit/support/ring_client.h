// SPDX-License-Identifier: Apache-2.0
//
// The tests' view of TagService: the answer to a request, and a ring that a client has mapped.
#ifndef IDD_TESTS_UNIT_SUPPORT_RING_CLIENT_H_
#define IDD_TESTS_UNIT_SUPPORT_RING_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "idd/base/status.h"
#include "idd/shm/ring_memory.h"
#include "own_view_claimer.h"
#include "tags/tag_service.h"

namespace idd::daemon {

// The deadline of a request that is expected to be answered.
inline constexpr std::chrono::milliseconds kLong(60'000);

// The outcome of a request.
struct Answer {
  int times = 0;  // the callback ran
  int order = 0;  // 1 for the first request of the test that was answered, ...
  Status status;
  ClaimGrant grant;
  AttachGrant attached;

  [[nodiscard]] bool done() const { return times > 0; }
};

// A client's mapping of a ring.
struct Client {
  explicit Client(std::unique_ptr<shm::RingMemory> mapped)
      : memory(std::move(mapped)), claimer(memory->table(), memory->cursors()) {}
  [[nodiscard]] shm::IdRange Claim(std::uint64_t count) { return claimer.Claim(count).ids; }
  [[nodiscard]] std::uint64_t ring_id() const { return memory->ring_id(); }
  [[nodiscard]] shm::RingState state() const {
    return static_cast<shm::RingState>(memory->table().live.state.load(std::memory_order_acquire));
  }

  std::unique_ptr<shm::RingMemory> memory;
  shm::OwnViewClaimer claimer;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_UNIT_SUPPORT_RING_CLIENT_H_

// SPDX-License-Identifier: Apache-2.0
//
// A client that may claim writes values into the cursors that no claim writes: idd replaces its
// ring, leases nothing of it again, and no other client notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idd/shm/abi.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_protocol.h"
#include "idd/wire/frames.h"
#include "support/host.h"
#include "support/managed_host.h"
#include "support/raw_connection.h"
#include "support/ring_request.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using shm::IdRange;
using std::chrono_literals::operator""s;

// The reply to CLAIM.
IdRange ClaimBySocket(RawConnection& connection, std::uint64_t id, std::uint64_t count) {
  Require(connection.Send(MakeClaim("orders", id, count, 30'000)), "CLAIM cannot be sent");
  const auto reply = connection.Receive(Patience(30s));
  Require(reply.has_value(), "no answer to CLAIM");
  const auto claim = reply->As<wire::ClaimReply>();
  Require(claim.status == 0, "CLAIM: " + reply->Reason<wire::ClaimReply>());
  return {claim.first, claim.first + claim.count};
}

class ForgedCursor : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.StartWithTag("orders", 1000);
    host_.idctl.CreateTag("users", 1000);
  }

  // Resets every cursor in use to the first id of its segment.
  static void SetBack(shm::RingMemory& ring) {
    for (std::size_t slot = 0; slot < shm::kSlotCount; ++slot) {
      const shm::SlotDescriptor& descriptor = ring.table().slots[slot];
      if (descriptor.segment.load(std::memory_order_acquire) == 0) continue;
      ring.cursors().slots[slot].next.store(descriptor.base.load(std::memory_order_relaxed),
                                            std::memory_order_relaxed);
    }
  }
  // The end of its newest segment.
  static std::uint64_t EndOf(const shm::RingMemory& ring) {
    std::uint64_t end = 0;
    for (const shm::SlotDescriptor& slot : ring.table().slots) {
      end = std::max(end, slot.limit.load(std::memory_order_acquire));
    }
    return end;
  }
  static shm::RingState StateOf(const shm::RingMemory& ring) {
    return static_cast<shm::RingState>(ring.table().live.state.load(std::memory_order_acquire));
  }
  [[nodiscard]] std::string StateOf(const std::string& tag) const {
    return host_.idctl.Json({"status", tag}).at("tags").at(0).at("state").get<std::string>();
  }

  const TempDir dir_;
  CleanHost host_{dir_};
};

TEST_F(ForgedCursor, QuarantinesTheRingAndGoesOnAboveIt) {
  for (const std::uint64_t forged : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    const std::uint64_t last = host_.idctl.Claim("orders", 300).back();
    const std::uint64_t other = host_.idctl.Claim("users", 10).back();
    const std::size_t mark = host_.daemon.LogMark();
    const auto ring = MapRing(host_.daemon.socket(), "orders");
    const std::uint64_t reached = EndOf(*ring);
    ForgeCursors(*ring, forged);
    ASSERT_TRUE(host_.daemon.WaitForLogLine("ring.quarantined.*orders", mark, Patience(5s)));
    EXPECT_EQ(StateOf("orders"), "quarantined");
    const std::uint64_t next = host_.idctl.Claim("orders").front();
    EXPECT_GT(next, last);
    EXPECT_GE(next, reached) << "an id of the spoilt segments";
    EXPECT_EQ(StateOf("users"), "ok");
    EXPECT_EQ(host_.idctl.Claim("users").front(), other + 1) << "another tag noticed";
    EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  }
}

TEST_F(ForgedCursor, RightBeforeTheStopHandsNothingBack) {
  static_cast<void>(host_.idctl.Claim("orders", 300));
  const std::unique_ptr<shm::RingMemory> ring = MapRing(host_.daemon.socket(), "orders");
  // A look has shown the cursor's position to the daemon.
  static_cast<void>(host_.idctl.Json({"status"}));
  const std::uint64_t reached = host_.Database().MaxId("orders");
  ForgeCursors(*ring, 3);
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), reached);
  host_.daemon.Start();
  EXPECT_GE(host_.idctl.Claim("orders").front(), reached);
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// Regression: the daemon looked, saw the cursor that the client had set back, and answered (1, 100)
// again.
TEST_F(ForgedCursor, ClaimOverTheSocketThatFindsItIsServedFromAFreshSegment) {
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  IdRange first = ClaimBySocket(connection, 1, 100);
  EXPECT_EQ(first, (IdRange{1, 101}));
  for (std::uint64_t round = 0; round < 9; ++round) {
    // The first claim was served from the new lease, this one is served from the ring.
    const IdRange second = ClaimBySocket(connection, 2, 100);
    const std::unique_ptr<shm::RingMemory> ring = MapRing(host_.daemon.socket(), "orders");
    const std::uint64_t end = EndOf(*ring);
    ForgeCursors(*ring, std::array{first.first, second.limit - 1, ~std::uint64_t{0}}.at(round % 3));
    first = ClaimBySocket(connection, 3, 100);
    EXPECT_GE(first.first, end) << "round " << round << ": ids of the forged ring";
    EXPECT_EQ(StateOf(*ring), shm::RingState::kQuarantined);
    EXPECT_EQ(StateOf("orders"), "quarantined");
  }
  EXPECT_EQ(host_.idctl.Claim("users").front(), 1U) << "another tag noticed";
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// Claims over the socket, beside a client that sets the cursors back all the time.
TEST_F(ForgedCursor, NoClaimOverTheSocketComesTwiceWhileCursorsAreSetBack) {
  std::atomic<bool> stop{false};
  std::thread client([&] {
    while (!stop) {
      const std::unique_ptr<shm::RingMemory> ring = MapRing(host_.daemon.socket(), "orders");
      for (int i = 0; i < 2000 && !stop; ++i) SetBack(*ring);
    }
  });
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  std::set<std::uint64_t> seen;
  bool is_unique = true;
  for (std::uint64_t request = 1; request <= 200 && is_unique; ++request) {
    const IdRange ids = ClaimBySocket(connection, request, 10);
    for (std::uint64_t id = ids.first; id < ids.limit; ++id) {
      is_unique = seen.insert(id).second && is_unique;
    }
    EXPECT_TRUE(is_unique) << "request " << request << ": from " << ids.first;
  }
  stop = true;
  client.join();
}

class ForgedCursorOverARestart : public ManagedHostTest {};

// Regression: of the socket claims, the next daemon knew only those that the poll of every second
// had recorded.
TEST_F(ForgedCursorOverARestart, ClaimOverTheSocketIsNotRepeatedByTheNextDaemon) {
  for (int round = 0; round < 3; ++round) {
    IdRange ids;
    {
      RawConnection connection(host_.daemon.socket());
      connection.Hello();
      ids = ClaimBySocket(connection, 1, 100);
      const auto ring = MapRing(host_.daemon.socket(), "orders");
      ids = ClaimBySocket(connection, 2, 100);
      host_.daemon.Signal(SIGSTOP);
      for (shm::Cursor& cursor : ring->cursors().slots) {
        if (cursor.next.load(std::memory_order_relaxed) == ids.limit) {
          cursor.next.store(ids.first, std::memory_order_relaxed);
        }
      }
      host_.daemon.Kill();
    }
    host_.daemon.Start();
    EXPECT_GE(host_.idctl.Claim("orders").front(), ids.limit) << "round " << round;
  }
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  host_.daemon.Stop();
}

}  // namespace
}  // namespace idd::harness

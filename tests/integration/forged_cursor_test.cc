// SPDX-License-Identifier: Apache-2.0
//
// A client that may claim and writes into the cursors what no claim writes: its ring is replaced,
// nothing of it is leased again, and nobody else notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "idd/shm/abi.h"
#include "idd/shm/ring_memory.h"
#include "support/host.h"
#include "support/ring_request.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

class ForgedCursor : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.daemon.Start();
    host_.idctl.CreateTag("orders", 1000);
    host_.idctl.CreateTag("users", 1000);
  }

  // The ring as any authorised client maps it: every cursor writable.
  [[nodiscard]] std::unique_ptr<shm::RingMemory> Attach(const std::string& tag) const {
    const Deadline deadline = Deadline::After(Patience(5s));
    auto channel = ConnectAndGreet(host_.daemon.socket(), deadline);
    EXPECT_TRUE(channel.ok()) << channel.status().message();
    auto reply = RequestRing(channel.value(), tag, deadline);
    EXPECT_TRUE(reply.ok()) << reply.status().message();
    auto ring = shm::RingMemory::Attach(reply.value().fds[0], reply.value().fds[1], tag);
    EXPECT_TRUE(ring.ok()) << ring.status().message();
    return std::move(ring).value();
  }

  // Writes `value` over every cursor that is in use.
  static void Forge(shm::RingMemory& ring, std::uint64_t value) {
    for (shm::Cursor& cursor : ring.cursors().slots) {
      if (cursor.next.load(std::memory_order_relaxed) != 0) {
        cursor.next.store(value, std::memory_order_relaxed);
      }
    }
  }

  [[nodiscard]] std::string StateOf(const std::string& tag) const {
    return host_.idctl.Json({"status", tag}).at("tags").at(0).at("state").get<std::string>();
  }

  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(ForgedCursor, QuarantinesTheRingAndGoesOnAboveIt) {
  for (const std::uint64_t forged : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    const std::uint64_t last = host_.idctl.Claim("orders", 300).back();
    const std::uint64_t other = host_.idctl.Claim("users", 10).back();
    const std::uint64_t reached = host_.Database().MaxId("orders");
    const std::size_t mark = host_.daemon.LogMark();
    Forge(*Attach("orders"), forged);
    ASSERT_TRUE(host_.daemon.WaitForLogLine("ring.quarantined.*orders", mark, Patience(5s)));
    EXPECT_EQ(StateOf("orders"), "quarantined");
    const std::uint64_t next = host_.idctl.Claim("orders").front();
    EXPECT_GT(next, last);
    EXPECT_GE(next, reached) << "an id of the spoilt segments";
    EXPECT_EQ(StateOf("users"), "ok");
    EXPECT_EQ(host_.idctl.Claim("users").front(), other + 1) << "another tag noticed";
    EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  }
  host_.daemon.Stop();
}

TEST_F(ForgedCursor, RightBeforeTheStopHandsNothingBack) {
  static_cast<void>(host_.idctl.Claim("orders", 300));
  const std::unique_ptr<shm::RingMemory> ring = Attach("orders");
  // A look has shown the daemon how far the cursor is.
  static_cast<void>(host_.idctl.Json({"status"}));
  const std::uint64_t reached = host_.Database().MaxId("orders");
  Forge(*ring, 3);
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), reached);
  host_.daemon.Start();
  EXPECT_GE(host_.idctl.Claim("orders").front(), reached);
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  host_.daemon.Stop();
}

}  // namespace
}  // namespace idd::harness

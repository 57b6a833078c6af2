// SPDX-License-Identifier: Apache-2.0
//
// One user does everything that its rules allow, over many connections; the other users still get
// their turn.
//
// The ids rise in the order in which idd serves requests, so these tests depend on no clock and no
// idle machine. attack_benchmark measures for docs/performance.md how long a victim's claims take
// meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/raw_connection.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

class Fairness : public HostWithUsers {
 protected:
  void SetUp() override {
    HostWithUsers::SetUp();
    if (IsSkipped()) return;
    Configure(Rule("'*'", kAlice.uid, "access = 'socket'") +
              Rule("'*'", kBob.uid, "access = 'socket'"));
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "orders", "--step", "1000000"});
    for (int i = 0; i < 2; ++i) static_cast<void>(host_.idctl.Claim("orders"));  // now in the ring
  }
  [[nodiscard]] std::vector<RawConnection> Connect(const Identity& who, int count) const {
    const ScopedIdentity identity(who);
    std::vector<RawConnection> connections;
    for (int i = 0; i < count; ++i) {
      connections.emplace_back(host_.daemon.socket());
      connections.back().Hello();
    }
    return connections;
  }
  // The ids of that many replies to claims of one id each.
  static std::vector<std::uint64_t> Ids(RawConnection& connection, int count) {
    std::vector<std::uint64_t> ids;
    for (int i = 0; i < count; ++i) {
      const std::optional<Reply> reply = connection.Receive(Patience(5s));
      EXPECT_TRUE(reply.has_value());
      if (!reply.has_value()) break;
      const auto claim = reply->As<wire::ClaimReply>();
      EXPECT_EQ(claim.status, 0U) << reply->Reason<wire::ClaimReply>();
      ids.push_back(claim.first);
    }
    return ids;
  }
};

// All requests are in the sockets before idd reads the first one: those of 200 connections of one
// user, and after them those of one connection of another user.
TEST_F(Fairness, TurnsGoRoundUsersNotConnections) {
  constexpr int kConnections = 200;
  constexpr int kClaims = 5;
  // The frames read between two checks for due work, plus those that one check finds. The kernel
  // reports at most 128 ready sockets at once, so the other user's may come with the second check.
  // Far below the number of connections.
  constexpr std::uint64_t kMaxBetween = 2 * 16 + 8;
  std::vector<RawConnection> many = Connect(kAlice, kConnections);
  std::vector<RawConnection> one = Connect(kBob, 1);
  host_.daemon.Signal(SIGSTOP);
  for (RawConnection& connection : many) {
    for (int i = 0; i < kClaims; ++i) {
      ASSERT_TRUE(connection.Send(MakeClaim("orders", 1, 1, 60'000)));
    }
  }
  for (int i = 0; i < kClaims; ++i) {
    ASSERT_TRUE(one.front().Send(MakeClaim("orders", 1, 1, 60'000)));
  }
  host_.daemon.Signal(SIGCONT);
  const std::vector<std::uint64_t> ids = Ids(one.front(), kClaims);
  std::uint64_t first = UINT64_MAX;
  std::uint64_t last = 0;
  for (RawConnection& connection : many) {
    const std::vector<std::uint64_t> theirs = Ids(connection, kClaims);
    ASSERT_EQ(theirs.size(), static_cast<std::size_t>(kClaims));
    first = std::min(first, theirs.front());
    last = std::max(last, theirs.back());
  }
  ASSERT_EQ(ids.size(), static_cast<std::size_t>(kClaims));
  std::string served;
  std::uint64_t before = first;
  std::uint64_t most = 0;
  for (const std::uint64_t id : ids) {
    most = std::max(most, id - before);
    served += " " + std::to_string(id - before);
    before = id;
  }
  std::printf("requests of %d connections served before each of the other's:%s\n", kConnections,
              served.c_str());
  EXPECT_LE(most, kMaxBetween);
  EXPECT_GE(last - first, static_cast<std::uint64_t>(kConnections * kClaims - 1)) << "all of them";
}

// While the store hangs, idd reports what it knows without the store, within the requested time.
TEST_F(Fairness, StatusIsAnsweredInTimeWhileTheStoreHangs) {
  static_cast<void>(host_.idctl.Json({"status"}));
  // The store gives up on the lock after two seconds. A busy machine may take as long for other
  // reasons, so the test repeats until the answer comes earlier.
  bool was_in_time = false;
  IdctlResult status;
  for (int attempt = 0; attempt < 20 && !was_in_time; ++attempt) {
    SqliteFile database = host_.Database();
    database.Execute("BEGIN EXCLUSIVE");
    std::atomic<bool> is_created{false};
    std::thread writer([&] {
      static_cast<void>(host_.idctl.Run({"tag", "create", "waits-" + std::to_string(attempt)}));
      is_created = true;
    });
    std::this_thread::sleep_for(200ms);  // usually the worker waits for the lock by now
    status = host_.idctl.Run({"--json", "--timeout", "1000", "status"});
    was_in_time = status.exit_status == 0 && !is_created &&
                  status.out.find("has not listed its tags within 500 ms") != std::string::npos;
    database.Execute("ROLLBACK");
    writer.join();
  }
  EXPECT_TRUE(was_in_time) << status.exit_status << " after " << status.duration.count()
                           << " ms: " << status.out << status.err;
  EXPECT_THAT(status.out, HasSubstr("\"orders\"")) << "a served tag is listed";
  EXPECT_TRUE(host_.idctl.Json({"status"}).at("database").at("last_error").is_null());
}

}  // namespace
}  // namespace idd::harness

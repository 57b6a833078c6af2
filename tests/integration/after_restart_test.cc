// SPDX-License-Identifier: Apache-2.0
//
// Harm that a restart must not do to what follows it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "idd/shm/abi.h"
#include "idd/shm/ring_memory.h"
#include "support/managed_host.h"
#include "support/ring_request.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

class AfterRestart : public ManagedHostTest {
 protected:
  [[nodiscard]] bool IsUp() {
    return WaitUntil(Patience(20s), [this] {
      return host_.idctl.Json({"status"}).at("database").at("state") == "up";
    });
  }
  static std::size_t Count(const std::string& text, const std::string& what) {
    std::size_t count = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
      ++count;
    }
    return count;
  }
};

// Another program locks the database during the stop and the next start.
TEST_F(AfterRestart, TailsThatCouldNotGoBackAreHandedBackLater) {
  ExpectGoesOn(10);
  {
    SqliteFile database = host_.Database();
    database.Execute("BEGIN EXCLUSIVE");
    host_.daemon.Stop();
    host_.daemon.Start();
  }
  ASSERT_TRUE(IsUp());
  std::string active;
  EXPECT_TRUE(WaitUntil(Patience(20s),
                        [&] {
                          active.clear();
                          for (const JournalLease& lease : host_.idctl.Leases("orders")) {
                            if (lease.state == "active") active += lease.token + " ";
                          }
                          return active.empty();
                        }))
      << "still active: " << active;
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  ExpectGoesOn(10);
  host_.daemon.Stop();
  host_.daemon.Start();
  ExpectGoesOn(10);
}

// idd is killed while a lease is in progress, and the next idd finds no database for some seconds.
// Which of its questions gets the first answer varies, so the test repeats.
TEST_F(AfterRestart, WaiterOfAnUnansweredLeaseIsServedWhenTheStoreIsBack) {
  const std::string& path = host_.daemon.options().database;
  const auto move = [](const std::string& from, const std::string& to) {
    for (const char* suffix : {"-shm", "-wal", ""}) {
      std::error_code ignored;  // the log may not be there
      std::filesystem::rename(from + suffix, to + suffix, ignored);
    }
  };
  for (int round = 0; round < 4; ++round) {
    {
      SqliteFile database = host_.Database();
      database.Execute("BEGIN EXCLUSIVE");
      // Takes all available ids and one more, so that a claim waits for a lease.
      for (int i = 0; i < 100; ++i) {
        const IdctlResult result =
            host_.idctl.Run({"claim", "orders", "-n", "100", "--timeout", "300"});
        if (result.exit_status != 0) break;
      }
      std::thread waiter([this] {
        (void)host_.idctl.Run({"claim", "orders", "--timeout", "1000"});
      });
      std::this_thread::sleep_for(700ms);
      host_.daemon.Kill();
      waiter.join();
    }
    move(path, dir_.File("away.db"));
    host_.daemon.Start();
    std::thread bring_back([&] {
      std::this_thread::sleep_for(3s);
      move(dir_.File("away.db"), path);
    });
    const auto begun = std::chrono::steady_clock::now();
    const IdctlResult result = host_.idctl.Run({"claim", "orders", "--timeout", "60000"});
    const auto took = std::chrono::steady_clock::now() - begun;
    bring_back.join();
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_LT(took, 40s) << "the store is back after three seconds";
  }
}

// A process that had the ring before the restart keeps its mapping indefinitely.
TEST_F(AfterRestart, EarlierRingSpoilsNothingThatWasNeverInIt) {
  ExpectGoesOn(10);
  const auto ring = MapRing(host_.daemon.socket(), "orders");
  host_.daemon.Kill();
  host_.daemon.Start();
  ExpectGoesOn(10);
  host_.idctl.Do({"tag", "set", "orders", "--access", "socket"});
  std::size_t mark = host_.daemon.LogMark();
  ring->cursors().slots[1].next = 5;
  ASSERT_TRUE(host_.daemon.WaitForLogLine("ring.quarantined .*orders", mark, Patience(5s)));
  (void)host_.idctl.Claim("orders");
  const std::uint64_t before = host_.Database().MaxId("orders");
  mark = host_.daemon.LogMark();
  for (int i = 0; i < 5; ++i) {
    ring->cursors().slots[1].next = 5;
    std::this_thread::sleep_for(1200ms);
  }
  EXPECT_EQ(Count(host_.daemon.LogSince(mark), "ring.quarantined"), 0U)
      << "what is published now was leased after the earlier ring was closed";
  EXPECT_LT(host_.Database().MaxId("orders") - before, 3000U);
}

// There is room for the rings of all tags, and for a few more.
TEST_F(AfterRestart, RestartNeedsNoRoomForAllRingsTwice) {
  constexpr std::size_t kTags = 20;
  manager_.Limit(2 * kTags + 5);
  std::vector<std::uint64_t> last(kTags);
  const auto tag = [](std::size_t i) { return "tag-" + std::to_string(i); };
  for (std::size_t i = 0; i < kTags; ++i) {
    host_.idctl.CreateTag(tag(i), 1000);
    last[i] = host_.idctl.Claim(tag(i)).front();
  }
  for (int round = 0; round < 2; ++round) {
    host_.daemon.Kill();
    host_.daemon.Start();
  }
  int gaps = 0;
  for (std::size_t i = 0; i < kTags; ++i)
    gaps += host_.idctl.Claim(tag(i)).front() == last[i] + 1 ? 0 : 1;
  EXPECT_EQ(gaps, 0) << "tags whose leases were abandoned";
}

// A version that does not know the list (a rollback), or an idd that did not get its descriptors,
// runs in between; the service manager still keeps them.
TEST_F(AfterRestart, ListThatAnotherRunHasOvertakenIsNotBelieved) {
  ExpectGoesOn(10);
  host_.daemon.Kill();
  host_.daemon.options().manager = nullptr;
  host_.daemon.Start();
  last_ = host_.idctl.Claim("orders", 10).back();
  EXPECT_GT(last_, 1000U);
  host_.daemon.Stop();
  host_.daemon.options().manager = &manager_;
  host_.daemon.Start();
  EXPECT_GT(host_.idctl.Claim("orders").front(), last_) << "the ids of a host must rise";
  const AuditRow audit = host_.idctl.Audit("orders");
  EXPECT_TRUE(audit.ok);
}

// The configuration makes this start fail.
TEST_F(AfterRestart, StartThatIsRefusedLeavesTheRingsOpen) {
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  options.socket_path = host_.daemon.socket().c_str();
  options.timeout_ms = static_cast<std::uint32_t>(Patience(30s).count());
  idclient_client* client = nullptr;
  idclient_tag* tag = nullptr;
  ASSERT_EQ(idclient_open(&options, &client), IDCLIENT_OK);
  ASSERT_EQ(idclient_tag_open(client, "orders", &tag), IDCLIENT_OK);
  std::uint64_t id = 0;
  // The reply to the second claim comes when the ring has the lease.
  for (int i = 0; i < 2; ++i) ASSERT_EQ(idclient_claim(tag, &id), IDCLIENT_OK);
  host_.daemon.Kill();
  ASSERT_EQ(idclient_claim(tag, &id), IDCLIENT_OK);
  manager_.Listen(dir_.File("elsewhere.sock"));
  ASSERT_EQ(host_.daemon.LaunchAndWait(Patience(5s)), 1);
  EXPECT_EQ(idclient_claim(tag, &id), IDCLIENT_OK) << idclient_last_error();
  idclient_close(client);
}

}  // namespace
}  // namespace idd::harness

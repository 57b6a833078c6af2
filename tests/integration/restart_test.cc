// SPDX-License-Identifier: Apache-2.0
//
// idd under a service manager that keeps its descriptors: the state that outlives idd, and the
// descriptors that the manager passes at a start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"
#include "idd/shm/abi.h"
#include "idd/shm/ring_memory.h"
#include "support/managed_host.h"
#include "support/ring_request.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class Restart : public ManagedHostTest {
 protected:
  std::vector<JournalLease> Leases(const std::string& state) {
    std::vector<JournalLease> leases = host_.idctl.Leases("orders");
    std::erase_if(leases, [&state](const JournalLease& lease) { return lease.state != state; });
    return leases;
  }
  void ExpectAccounted() {
    const AuditRow audit = host_.idctl.Audit("orders");
    EXPECT_TRUE(audit.ok);
    EXPECT_EQ(audit.abandoned, 0U);
    EXPECT_EQ(audit.claimed, last_);
  }

  // A client whose claims wait that long for ids.
  [[nodiscard]] idclient::Client OpenClient(std::chrono::milliseconds patience) {
    return idclient::Client({.socket_path = host_.daemon.socket(), .timeout = patience});
  }
};

TEST_F(Restart, KilledDaemonsRingGoesOnUnderTheSameLease) {
  ExpectGoesOn(137);
  const std::vector<JournalLease> before = Leases("active");
  const std::vector<std::string> kept = manager_.Names();
  EXPECT_THAT(kept, ElementsAre(StartsWith("c"), "held", StartsWith("t")));
  host_.daemon.Kill();
  host_.daemon.Start();
  ExpectGoesOn(100);
  const std::vector<JournalLease> after = Leases("active");
  ASSERT_GE(after.size(), before.size());
  EXPECT_EQ(after[0].token, before[0].token);
  EXPECT_THAT(Leases("abandoned"), SizeIs(0));
  EXPECT_THAT(manager_.Names(), SizeIs(3)) << "the old ring's descriptors were kept";
  EXPECT_NE(manager_.Names(), kept);
  ExpectAccounted();
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), last_ + 1);
  EXPECT_THAT(manager_.Names(), ElementsAre("held")) << "nothing is left to inherit";
}

TEST_F(Restart, EveryKindOfEndInTurnMakesNoGap) {
  for (int i = 0; i < 16; ++i) {
    ExpectGoesOn(77);
    if (i % 4 == 0) host_.daemon.Stop();
    if (i % 4 == 1) host_.daemon.Leave();
    if (i % 4 >= 2) host_.daemon.Kill();
    if (i % 4 == 2) {
      // Kills the next one, too, at any point of its start.
      host_.daemon.Launch();
      std::this_thread::sleep_for(std::chrono::milliseconds(i * 3));
      host_.daemon.Kill();
    }
    host_.daemon.Start();
  }
  ExpectGoesOn(1);
  ExpectAccounted();
}

// As `systemctl restart` does it: idd closes nothing and hands nothing back, and claims continue.
TEST_F(Restart, LeavesTheRingsOpenForTheNext) {
  idclient::Client client = OpenClient(Patience(10s));
  idclient::Tag tag = client.tag("orders");
  const auto claim = [&](int count) {
    for (int i = 0; i < count; ++i) ASSERT_EQ(tag.claim(), ++last_);
  };
  claim(10);
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t max_id = host_.Database().MaxId("orders");
    const std::vector<JournalLease> before = Leases("active");
    host_.daemon.Leave();
    EXPECT_THAT(host_.daemon.Log(), HasSubstr("idd.leaving"));
    EXPECT_EQ(host_.Database().MaxId("orders"), max_id) << "nothing is handed back";
    claim(10);  // while idd is down
    host_.daemon.Start();
    claim(10);
    const std::vector<JournalLease> after = Leases("active");
    ASSERT_FALSE(before.empty() || after.empty());
    EXPECT_EQ(after[0].token, before[0].token);
    ExpectAccounted();
  }
  EXPECT_THAT(Leases("abandoned"), SizeIs(0));
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), last_ + 1);
}

// Without a manager that keeps the rings, leaving would be a crash.
TEST_F(Restart, IsAStopWithoutAManagerThatKeepsRings) {
  host_.daemon.Stop();
  host_.daemon.options().manager = nullptr;
  host_.daemon.Start();
  ExpectGoesOn(10);
  host_.daemon.Leave();
  EXPECT_EQ(host_.Database().MaxId("orders"), last_ + 1);
  EXPECT_THAT(host_.daemon.Log(), ::testing::Not(HasSubstr("idd.leaving")));
}

// idd leaves, stops or is killed while it takes over rings: some are its own by then, others not
// yet. A claimer continues in each case.
TEST_F(Restart, EndedWhileItTakesTagsOverLosesNothing) {
  constexpr int kTags = 60;
  idclient::Client client = OpenClient(Patience(30s));
  std::vector<idclient::Tag> tags;
  std::vector<std::uint64_t> last(kTags, 0);
  for (int i = 0; i < kTags; ++i) {
    const std::string name = "tag" + std::to_string(i);
    host_.idctl.CreateTag(name, 1000);
    tags.push_back(client.tag(name));
  }
  const auto claim_of_each = [&] {
    for (std::size_t i = 0; i < tags.size(); ++i) {
      for (int j = 0; j < 3; ++j) ASSERT_EQ(tags[i].claim(), ++last[i]) << i;
    }
  };
  claim_of_each();
  for (int round = 0; round < 12; ++round) {
    host_.daemon.Leave();
    const std::size_t mark = host_.daemon.LogMark();
    host_.daemon.Launch();
    ASSERT_TRUE(host_.daemon.WaitForLogLine("lease.inherited", mark, Patience(20s)));
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    if (round % 3 == 0) host_.daemon.Leave();
    if (round % 3 == 1) host_.daemon.Kill();
    if (round % 3 == 2) host_.daemon.Stop();
    host_.daemon.Start();
    claim_of_each();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  for (int i = 0; i < kTags; ++i) {
    const AuditRow audit = host_.idctl.Audit("tag" + std::to_string(i));
    EXPECT_TRUE(audit.ok) << i;
    EXPECT_EQ(audit.abandoned, 0U) << i;
    EXPECT_EQ(audit.claimed, last[static_cast<std::size_t>(i)]) << i;
  }
}

// The manager is slow, so taking over the other tags takes long; a claim waits for its own ring
// only.
TEST_F(Restart, ClaimDoesNotWaitUntilEveryTagIsTakenOver) {
  constexpr int kTags = 150;
  idclient::Client client = OpenClient(Patience(60s));
  std::vector<idclient::Tag> tags;
  for (int i = 0; i < kTags; ++i) {
    const std::string name = "tag" + std::to_string(i);
    host_.idctl.CreateTag(name, 1000);
    tags.push_back(client.tag(name));
    ASSERT_EQ(tags.back().claim(), 1U);
  }
  manager_.Watch(200ms);
  // The machine may stall during one of them.
  std::chrono::nanoseconds longest{1};
  std::chrono::nanoseconds whole{0};
  for (int restart = 0; restart < 5 && longest >= whole / 2; ++restart) {
    host_.daemon.Leave();
    manager_.SlowDown(2ms);
    const unsigned extensions = manager_.extensions();
    const std::size_t mark = host_.daemon.LogMark();
    host_.daemon.Launch();
    ASSERT_TRUE(host_.daemon.WaitForLogLine("lease.inherited", mark, Patience(20s)));
    const auto begun = std::chrono::steady_clock::now();
    longest = std::chrono::nanoseconds(0);
    for (std::size_t i = 0; host_.daemon.LogSince(mark).find("idd.ready") == std::string::npos;
         ++i) {
      const auto before = std::chrono::steady_clock::now();
      (void)tags[i % kTags].claim();
      longest =
          std::max(longest, std::chrono::nanoseconds(std::chrono::steady_clock::now() - before));
    }
    whole = std::chrono::steady_clock::now() - begun;
    EXPECT_GT(manager_.extensions(), extensions) << "the manager would time out the start";
    manager_.SlowDown(0ms);
  }
  EXPECT_LT(longest, whole / 2);
}

TEST_F(Restart, RingIsServedWithoutTheStore) {
  ExpectGoesOn(10);
  for (const bool kill : {true, false}) {
    {
      SqliteFile database = host_.Database();
      database.Execute("BEGIN EXCLUSIVE");
      if (kill) {
        host_.daemon.Kill();
      } else {
        // Lets idd notice that the store is down.
        const std::size_t mark = host_.daemon.LogMark();
        (void)host_.idctl.Run({"tag", "set", "orders", "--description", "x"});
        ASSERT_TRUE(host_.daemon.WaitForLogLine("store.down", mark, Patience(20s)));
        host_.daemon.Stop();
      }
      host_.daemon.Start();
      ExpectGoesOn(100);
    }
    ASSERT_TRUE(WaitUntil(Patience(20s), [this] {
      return host_.idctl.Json({"status"}).at("database").at("state") == "up";
    }));
  }
  ExpectGoesOn(1000);
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("lease.kept"));
  ExpectAccounted();
}

TEST_F(Restart, DescriptorsThatAreLostOrForeignCostTheirLeasesOnly) {
  ExpectGoesOn(10);
  ExpectGoesOn(1);  // now the ring has the lease
  host_.daemon.Kill();
  const std::vector<std::string> names = manager_.Names();
  ASSERT_THAT(names, SizeIs(3));
  ScopedFd cursors = manager_.Take(names[0]);
  manager_.Put(names[0], manager_.Take(names[2]));
  manager_.Put(names[2], std::move(cursors));  // puts one in the place of the other
  manager_.Put("something", ScopedFd(::dup(STDERR_FILENO)));
  host_.daemon.Start();
  EXPECT_GT(host_.idctl.Claim("orders").front(), 1000U);
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("ring.not_inherited"));
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// At every moment of a lease: before its transaction, during it, and before idd sees the answer.
// The next idd finds committed leases by their tokens and hands them back whole.
TEST_F(Restart, KilledInTheMiddleOfALeaseMakesNoGap) {
  if (SlowdownFactor() != 1) GTEST_SKIP() << "a sanitizer's runtime must be loaded first";
  host_.daemon.Stop();
  host_.daemon.options().environment = {std::string("LD_PRELOAD=") + IDD_TEST_SLOW_SYNC,
                                        "IDD_TEST_SYNC_MS=20"};
  host_.daemon.Start();
  idclient::Client client = OpenClient(Patience(20s));
  idclient::Tag tag = client.tag("orders");
  const auto is_seen = [this] {
    return host_.daemon.Log().find("lease.handed_back") != std::string::npos;
  };
  // Tries at least twelve moments and, on a busy machine, more until a kill came between a lease's
  // commit and its answer.
  for (int round = 0; round < 12 || (round < 120 && !is_seen()); ++round) {
    const int ms = round * 10 % 120;
    std::vector<std::uint64_t> ids(1500);
    std::size_t claimed = 0;
    std::string error;
    std::thread claimer([&] {
      claimed = tag.try_claim_many(ids);
      error = idclient_last_error();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    host_.daemon.Kill();
    host_.daemon.Start();
    claimer.join();
    ASSERT_EQ(claimed, ids.size()) << error;
    for (const std::uint64_t id : ids) ASSERT_EQ(id, ++last_) << ms << " ms";
  }
  EXPECT_TRUE(is_seen()) << "no lease was committed unseen";
  ExpectGoesOn(1);
  ExpectAccounted();
}

// As after an idd with another layout of the list or of the rings: handed-back leases need neither.
TEST_F(Restart, ListThatIsNotUnderstoodCostsNothingAfterACleanStop) {
  ExpectGoesOn(10);
  host_.daemon.Stop();
  ASSERT_TRUE(manager_.Take("held").valid());
  manager_.Put("held", ScopedFd(::memfd_create("idd-held", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  host_.daemon.Start();
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("held.not_inherited"));
  ExpectGoesOn(10);
  EXPECT_THAT(manager_.Names(), SizeIs(3));
  // The new list is inherited.
  host_.daemon.Kill();
  host_.daemon.Start();
  ExpectGoesOn(10);
  ExpectAccounted();
}

// The client may keep the earlier ring's mapping indefinitely.
TEST_F(Restart, ClientThatReopensTheEarlierRingIsNoticed) {
  ExpectGoesOn(10);
  ExpectGoesOn(1);  // now the ring has the lease
  const auto ring = MapRing(host_.daemon.socket(), "orders");
  host_.daemon.Kill();
  host_.daemon.Start();
  ExpectGoesOn(10);
  const std::size_t mark = host_.daemon.LogMark();
  ring->cursors().slots[1].next = 5;
  EXPECT_TRUE(host_.daemon.WaitForLogLine("ring.reopened .*orders", mark, Patience(5s)));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("ring.quarantined .*orders", mark, Patience(5s)));
  EXPECT_GE(ring->cursors().slots[1].next, shm::kClosingStep);
  EXPECT_GT(host_.idctl.Claim("orders").front(), 1000U) << "ids of the reopened ring came again";
}

// systemd does the same, with SIGABRT, when WATCHDOG=1 is late.
TEST_F(Restart, DaemonThatHangsIsNoticedAndReplacedWithoutLoss) {
  host_.daemon.Stop();
  manager_.Watch(200ms);
  host_.daemon.Start();
  ExpectGoesOn(10);
  const unsigned before = manager_.watchdog_pings();
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] { return manager_.watchdog_pings() > before + 3; }));
  host_.daemon.Signal(SIGSTOP);
  const std::string status = "/proc/" + std::to_string(host_.daemon.pid()) + "/status";
  ASSERT_TRUE(WaitUntil(Patience(5s),
                        [&] { return ReadFile(status).find("State:\tT") != std::string::npos; }));
  (void)manager_.Names();  // reads all earlier messages
  const unsigned hung = manager_.watchdog_pings();
  std::this_thread::sleep_for(400ms);
  EXPECT_EQ(manager_.watchdog_pings(), hung);
  host_.daemon.Signal(SIGABRT);
  host_.daemon.Kill();
  host_.daemon.Start();
  ExpectGoesOn(100);
  ExpectAccounted();
}

TEST_F(Restart, ListeningSocketOfTheManagerIsUsedAndLeft) {
  host_.daemon.Stop();
  ::unlink(host_.daemon.socket().c_str());
  manager_.Listen(host_.daemon.socket());
  struct stat before {};
  ASSERT_EQ(::stat(host_.daemon.socket().c_str(), &before), 0);
  host_.daemon.Start();
  ExpectGoesOn(10);
  host_.daemon.Stop();
  struct stat after {};
  ASSERT_EQ(::stat(host_.daemon.socket().c_str(), &after), 0) << "idd removed the manager's socket";
  EXPECT_EQ(after.st_ino, before.st_ino);
  // A client that connects while idd is down waits and is served.
  std::uint64_t id = 0;
  std::thread claimer([this, &id] { id = host_.idctl.Claim("orders").front(); });
  std::this_thread::sleep_for(100ms);
  host_.daemon.Start();
  claimer.join();
  EXPECT_EQ(id, ++last_);
}

TEST_F(Restart, ListeningSocketElsewhereIsRefused) {
  host_.daemon.Stop();
  manager_.Listen(dir_.File("elsewhere.sock"));
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(5s)), 1);
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("ListenSequentialPacket="));
}

}  // namespace
}  // namespace idd::harness

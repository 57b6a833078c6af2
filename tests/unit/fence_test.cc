// SPDX-License-Identifier: Apache-2.0
//
// The fence over an in-memory data set that is replaced by older copies of itself: first single
// rules, then thousands of random histories of three hosts, in which no id may be granted twice.
#include "leasing/fence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/fenced_hosts.h"
#include "support/test_environment.h"

namespace idd::daemon::fenced {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FenceTest : public ::testing::Test {
 protected:
  FenceTest() {
    for (const char* name : {"a", "b", "c"}) {
      hosts_.push_back(std::make_unique<FenceHost>(world_, name));
    }
  }

  // All hosts look once a second, and host `leasing` leases in between.
  void Run(int seconds) {
    for (int i = 0; i < seconds * 4; ++i) {
      world_.now_ms += 250;
      for (const auto& host : hosts_) static_cast<void>(host->Prepare());
    }
  }
  [[nodiscard]] bool Leases(FenceHost& host) {
    const auto [first, limit] = host.Lease(10);
    if (limit == first) return false;
    EXPECT_TRUE(grants_.Add(first, limit)) << "[" << first << ", " << limit << ") came twice";
    return true;
  }
  // Whether the host leases within that many seconds.
  [[nodiscard]] bool LeasesWithin(FenceHost& host, int seconds) {
    for (int i = 0; i < seconds * 4; ++i) {
      if (Leases(host)) return true;
      world_.now_ms += 250;
      for (const auto& other : hosts_) static_cast<void>(other->Prepare());
    }
    return Leases(host);
  }
  FenceHost& host(std::size_t i) { return *hosts_[i]; }
  // Host a is cut off, and complete for some seconds more. The others try to lease from the copy;
  // then they are killed, their leases are lost with the data set, and a leases beyond theirs.
  void OthersLeaseThenOnlyAComes(const DataSet& copy) {
    world_.FailOver(copy, "server-b");
    for (int i = 0; i < 7; ++i) static_cast<void>(LeasesWithin(host(1), 1));
    host(1).Kill();
    host(2).Kill();
    world_.FailOver(copy, "server-a");
    host(0).store->is_reachable = true;
    ASSERT_TRUE(LeasesWithin(host(0), 30));
    for (int i = 0; i < 100; ++i) static_cast<void>(LeasesWithin(host(0), 1));
    host(1).Start();
    host(2).Start();
    for (const auto& each : hosts_) EXPECT_TRUE(LeasesWithin(*each, 30));
  }

  World world_;
  std::vector<std::unique_ptr<FenceHost>> hosts_;
  Grants grants_;
};

TEST_F(FenceTest, HostsOfANewDataSetLeaseAfterTheFirstLooks) {
  for (const auto& each : hosts_) EXPECT_TRUE(LeasesWithin(*each, 6));
}

TEST_F(FenceTest, HostDoesNotWaitForAnotherOneThatIsRaising) {
  ASSERT_TRUE(LeasesWithin(host(0), 6));
  world_.data->is_raising = true;
  int leases = 0;
  while (leases < 1000 && LeasesWithin(host(0), 5)) ++leases;
  EXPECT_GT(leases, 0) << "it leases below the ceiling that is active";
  EXPECT_LT(leases, 1000);
  EXPECT_THAT(host(0).fence.Reason(), Not(HasSubstr("locked"))) << "other hosts raise, too";
  EXPECT_FALSE(LeasesWithin(host(0), 20));
  EXPECT_THAT(host(0).fence.Reason(),
              HasSubstr("another session holds a row of idd_ceiling locked"));
  EXPECT_EQ(host(0).fence.Report().reason, host(0).fence.Reason());
  world_.data->is_raising = false;
  EXPECT_TRUE(LeasesWithin(host(0), 5)) << "the next look comes, and then the raise";
}

// Regression: the reason advised to forget hosts that had been silent for 0 s.
TEST_F(FenceTest, ReasonAdvisesToForgetOnlyAHostThatMayBeOff) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  while (Leases(host(0))) {
  }
  EXPECT_THAT(host(0).fence.Reason(), HasSubstr("not noted yet by b, c"));
  EXPECT_THAT(host(0).fence.Reason(), Not(HasSubstr("forget"))) << "both are alive";
  host(1).Kill();
  Run(8);
  EXPECT_THAT(host(0).fence.Reason(), HasSubstr("not noted yet by b (silent for "));
  EXPECT_THAT(host(0).fence.Reason(), HasSubstr("leasing goes on without silent hosts in "));
  EXPECT_THAT(host(0).fence.Reason(), Not(HasSubstr("forget"))) << "it may be on its way back";
  for (std::size_t i = 0; i < 3; ++i) host(i).Kill();
  host(0).Reboot();
  Run(10);
  ASSERT_FALSE(host(0).fence.may_lease());
  EXPECT_THAT(host(0).fence.Reason(), Not(HasSubstr("forget")));
  Run(30);
  EXPECT_THAT(host(0).fence.Reason(), HasSubstr("'idctl host forget HOST' ends the wait for one "
                                                "that is off and stays off"));
}

TEST_F(FenceTest, LeaseOfAnUnknownHostIsNotRepeatedByThoseThatRemain) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  const DataSet copy = *world_.data;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(LeasesWithin(host(1), 6));
  host(1).Kill();  // for good: its clients may have used its ids
  world_.FailOver(copy, "server-2");
  EXPECT_TRUE(LeasesWithin(host(0), 40));
  EXPECT_TRUE(LeasesWithin(host(2), 40));
}

TEST_F(FenceTest, LeasingPausesForSecondsWhenAllHostsCome) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  const DataSet copy = *world_.data;
  ASSERT_TRUE(LeasesWithin(host(1), 6));
  world_.FailOver(copy, "server-2");
  EXPECT_TRUE(LeasesWithin(host(0), 4));
}

// The copy was made within a second of this host's last look, and took over within another second.
TEST_F(FenceTest, RowThatIsAsItWasLeftShowsNothingOfAReplacedDataSet) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  const auto is_as_left = [this] {
    return host(0).marks.GetMembership().value().beat == world_.data->members.at("a").beat;
  };
  for (int i = 0; i < 400 && !is_as_left(); ++i) {
    world_.now_ms += 250;
    for (const auto& each : hosts_) static_cast<void>(each->Prepare());
  }
  ASSERT_TRUE(is_as_left());
  const DataSet copy = *world_.data;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Leases(host(1)));
  world_.data = std::make_shared<DataSet>(copy);  // the server may keep its name
  EXPECT_TRUE(LeasesWithin(host(0), 6));
}

TEST_F(FenceTest, HostThatStartsInTheMiddleWaitsForOneThatKnows) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  const DataSet copy = *world_.data;
  ASSERT_TRUE(LeasesWithin(host(1), 6));
  for (const auto& each : hosts_) each->store->is_reachable = false;
  world_.FailOver(copy, "server-2");
  FenceHost late(world_, "late");
  for (int i = 0; i < 16; ++i) {
    world_.now_ms += 250;
    EXPECT_FALSE(Leases(late));
  }
  host(2).store->is_reachable = true;
  EXPECT_TRUE(LeasesWithin(host(2), 40));
  EXPECT_TRUE(LeasesWithin(late, 40));
}

// If each lost connection restarted the watch, the host would look for others indefinitely.
TEST_F(FenceTest, WatchGoesOnOverLostConnections) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  for (const auto& each : hosts_) each->Kill();
  world_.FailOver(DataSet(*world_.data), "server-2");
  FenceHost late(world_, "late");
  for (int i = 0; i < 20 && late.fence.Report().state != "waiting"; ++i) {
    late.store->loses_look = i % 4 == 3;
    static_cast<void>(late.Prepare());
    world_.now_ms += 250;
  }
  EXPECT_EQ(late.fence.Report().state, "waiting") << late.fence.Report().reason;
}

TEST_F(FenceTest, HostsThatWereAllOffWaitForEachOther) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  const DataSet copy = *world_.data;
  ASSERT_TRUE(LeasesWithin(host(1), 6));
  for (const auto& each : hosts_) each->Kill();
  world_.now_ms += 60'000;
  world_.FailOver(copy, "server-1");
  host(0).Reboot();
  for (int i = 0; i < 20; ++i) {
    world_.now_ms += 250;
    EXPECT_FALSE(Leases(host(0)));
  }
  host(1).Reboot();
  host(2).Reboot();
  EXPECT_TRUE(LeasesWithin(host(0), 8));
}

// The server's machine is set back to a snapshot of its memory, and so to the connections that it
// had. Only a host that has sent nothing since the snapshot finds its connection intact.
TEST_F(FenceTest, HostThatWasSuspendedForLongArrivesAgain) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  const DataSet snapshot = *world_.data;
  const int silence_s = static_cast<int>(kSilence.count());
  for (int i = 0; i < 3 * silence_s; ++i) {  // host a is suspended
    world_.now_ms += 1000;
    static_cast<void>(Leases(host(1)));
    static_cast<void>(Leases(host(2)));
  }
  ASSERT_GT(grants_.size(), 50U);
  host(1).Kill();
  host(2).Kill();
  *world_.data = snapshot;
  EXPECT_FALSE(LeasesWithin(host(0), 10)) << "the others have not come yet";
  host(1).Start();
  host(2).Start();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(LeasesWithin(host(i), 10)) << "host " << i;
}

// The same before the host stops counting itself as complete: only the time since its last look
// shows that the server may have been set back.
TEST_F(FenceTest, IdleConnectionDoesNotProveThatTheServerWasNotSetBack) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  const DataSet snapshot = *world_.data;
  for (int i = 0; i < 6; ++i) {
    world_.now_ms += 1000;
    ASSERT_TRUE(Leases(host(1)));
  }
  host(1).Kill();
  host(2).Kill();
  *world_.data = snapshot;
  EXPECT_TRUE(LeasesWithin(host(0), 2 * static_cast<int>(kSilence.count())))
      << "above its ceilings, once the others are out";
}

// A statement may be on its way while the server is set back. It then moves the row of its sender,
// but the sender has not pushed there what others were granted in between.
TEST_F(FenceTest, OneLookOfAnotherHostProvesNothing) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  FenceHost late(world_, "late");
  static_cast<void>(late.Prepare());
  ASSERT_TRUE(host(0).store->ReadFence(0).ok());
  for (int i = 0; i < 4; ++i) {
    world_.now_ms += 250;
    EXPECT_FALSE(Leases(late)) << i;
  }
  EXPECT_TRUE(LeasesWithin(late, 3)) << "once another host looks again";
}

// A host that watches others begins again if the server may have been set back between two of its
// looks.
TEST_F(FenceTest, HostThatIsSuspendedWhileItWatchesForgetsWhatItSaw) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  FenceHost late(world_, "late");
  static_cast<void>(late.Prepare());
  ASSERT_TRUE(host(0).store->ReadFence(0).ok());
  world_.now_ms += 250;
  static_cast<void>(late.Prepare());
  world_.now_ms += 6000;
  ASSERT_TRUE(host(0).store->ReadFence(0).ok());
  EXPECT_FALSE(Leases(late));
  EXPECT_TRUE(LeasesWithin(late, 4));
}

TEST_F(FenceTest, HostThatStoppedIsNotWaitedFor) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  host(1).Stop();
  const DataSet copy = *world_.data;
  world_.FailOver(copy, "server-2");
  EXPECT_TRUE(LeasesWithin(host(0), 4));
}

// The copy has the host as one that waits, for which no raise waits. It joined after that, so it
// may be complete, and come to the next data set before all others.
TEST_F(FenceTest, HostThatWaitedInTheCopyIsAwaitedByOneThatKnewItLive) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  for (const auto& each : hosts_) each->Kill();
  world_.now_ms += 60'000;
  world_.FailOver(DataSet(*world_.data), "server-1");
  host(0).Reboot();
  Run(5);
  ASSERT_EQ(world_.data->members.at("a").state, MemberState::kWaiting);
  const DataSet copy = *world_.data;
  host(1).Reboot();
  host(2).Reboot();
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 10));
  Run(3);

  host(0).store->is_reachable = false;
  OthersLeaseThenOnlyAComes(copy);
}

// The copy has the host as stopped. The host came again, was live, and is complete.
TEST_F(FenceTest, HostThatHadStoppedInTheCopyIsAwaitedByOneThatKnewItLive) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  host(0).Stop();
  const DataSet copy = *world_.data;
  host(0).Start();
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);

  host(0).store->is_reachable = false;
  OthersLeaseThenOnlyAComes(copy);
}

// The first copy has the host live with a run that is older than the one that the others knew. The
// second one shows that it stopped, which it did before that one, too.
TEST_F(FenceTest, RunOfAnotherDataSetIsNotTakenForTheLastOne) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  const DataSet live = *world_.data;
  host(0).Stop();
  const DataSet stopped = *world_.data;
  ASSERT_TRUE(IsOlderRun(live.members.at("a").run, stopped.members.at("a").run));
  host(0).Start();
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);

  host(0).store->is_reachable = false;
  world_.FailOver(live, "server-2");
  static_cast<void>(LeasesWithin(host(1), 1));
  OthersLeaseThenOnlyAComes(stopped);
}

// A host that waits here finds its row taken over, and comes again.
TEST_F(FenceTest, HostThatWaitsJoinsAlthoughAnotherOneKnewItLive) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  const DataSet copy = *world_.data;
  for (const auto& each : hosts_) each->store->is_reachable = false;
  world_.FailOver(copy, "server-2");
  host(0).Reboot();
  Run(5);
  ASSERT_EQ(world_.data->members.at("a").state, MemberState::kWaiting);
  host(1).store->is_reachable = true;
  host(2).store->is_reachable = true;
  EXPECT_TRUE(LeasesWithin(host(1), 4));
  EXPECT_TRUE(LeasesWithin(host(0), 8));
}

TEST_F(FenceTest, RestartOnTheSameServerMakesNoGap) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  host(0).Stop();
  host(0).Start();
  const std::uint64_t before = world_.data->max_id;
  ASSERT_TRUE(LeasesWithin(host(0), 4));
  EXPECT_EQ(world_.data->max_id, before + 10);
}

// All hosts stopped, one after the other. The first one comes back alone: the others' rows are
// newer than what it noted.
TEST_F(FenceTest, HostsThatStoppedLaterAreNotWaitedFor) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  host(0).Stop();
  host(1).Kill();
  host(1).Start();
  ASSERT_TRUE(LeasesWithin(host(1), 6));
  Run(3);
  host(1).Stop();
  host(2).Stop();
  world_.now_ms += 3'600'000;
  host(0).Reboot();
  EXPECT_TRUE(LeasesWithin(host(0), 60)) << host(0).fence.Reason();
}

// Regression: after such a stop it said first that the database was replaced, which frightens.
TEST_F(FenceTest, HostThatComesBackAfterAStopOfAllSaysThatItWasStopped) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  for (const auto& each : hosts_) each->Stop();
  world_.now_ms += 3'600'000;
  host(0).Reboot();
  EXPECT_FALSE(Leases(host(0)));
  EXPECT_THAT(host(0).fence.Reason(), HasSubstr("this host is new, was stopped or cut off"));
  EXPECT_TRUE(LeasesWithin(host(0), 60));
}

// The same after the server was restarted under all hosts: which runs each of them notes depends on
// the order in which they came.
TEST_F(FenceTest, HostsThatStoppedAfterARestartOfTheServerAreNotWaitedFor) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  world_.FailOver(DataSet(*world_.data), "server-1");
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  host(2).Stop();
  Run(3);
  host(0).Stop();
  host(1).Stop();
  world_.now_ms += 3'600'000;
  host(2).Reboot();
  EXPECT_TRUE(LeasesWithin(host(2), 60)) << host(2).fence.Reason();
}

// A host that has come to the new data set, and stopped there, before this one comes.
TEST_F(FenceTest, HostThatStoppedInTheNewDataSetIsNotWaitedFor) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  host(0).store->is_reachable = false;
  world_.FailOver(DataSet(*world_.data), "server-2");
  Run(4);
  host(1).Stop();
  Run(1);
  host(0).store->is_reachable = true;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(LeasesWithin(host(0), 6)) << i;
}

TEST_F(FenceTest, HostWhoseDiskIsFullIsNotWaitedForLongerThanASilentOne) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  host(2).marks.is_full = true;
  Run(40);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(LeasesWithin(host(0), 3)) << i;
  host(2).marks.is_full = false;
  EXPECT_TRUE(LeasesWithin(host(2), 6));
  EXPECT_TRUE(LeasesWithin(host(0), 6));
}

// There is room for some writes.
TEST_F(FenceTest, HostThatCannotWriteDownThatItJoinedIsNotWaitedForLongerThanASilentOne) {
  for (const auto& each : hosts_) ASSERT_TRUE(LeasesWithin(*each, 6));
  Run(3);
  host(2).marks.script.Fail("SetMembership", {Code::kUnavailable, "the disk is full"}, 10'000);
  Run(40);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(LeasesWithin(host(0), 3)) << i;
}

// Kills, restarts, reboots, clean stops, partitions, full disks, and data sets replaced by copies
// from the last half minute.
class FenceHistories : public ::testing::TestWithParam<unsigned> {};

TEST_P(FenceHistories, NoIdIsGrantedTwice) {
  std::mt19937 random(GetParam());
  const auto one_in = [&random](unsigned n) { return random() % n == 0; };
  const std::uint64_t histories = harness::ScaledLoad(60);
  for (std::uint64_t history = 0; history < histories; ++history) {
    World world;
    Grants grants;
    std::vector<std::unique_ptr<FenceHost>> hosts;
    for (const char* name : {"a", "b", "c"}) {
      hosts.push_back(std::make_unique<FenceHost>(world, name));
    }
    std::vector<DataSet> copies;
    int replaced = 0;
    for (int step = 0; step < 4000; ++step) {
      world.now_ms += 50 + static_cast<std::int64_t>(random() % 200);
      FenceHost& host = *hosts[random() % hosts.size()];
      if (one_in(400)) host.is_running ? host.Kill() : host.Start();
      if (one_in(900)) host.Reboot();
      if (one_in(700) && host.is_running) host.Stop();
      if (!host.is_running && one_in(20)) host.Start();
      if (one_in(300)) host.store->is_reachable = !host.store->is_reachable;
      if (one_in(host.marks.is_full ? 300 : 1500)) host.marks.is_full = !host.marks.is_full;
      // Copies are made only while all hosts are members, which may wait. ADR 0016 does not cover a
      // host that the copy never knew, or has as stopped, and that no host knows which comes.
      const auto& members = world.data->members;
      const bool all_in = members.size() == hosts.size() &&
                          std::all_of(members.begin(), members.end(), [](const auto& member) {
                            return OtherHosts::IsMember(member.second);
                          });
      if (step % 20 == 0 && all_in) copies.push_back(*world.data);
      if (copies.size() > 8) copies.erase(copies.begin());
      if (one_in(500) && !copies.empty()) {
        const DataSet copy = copies[random() % copies.size()];
        if (one_in(3)) {
          world.SetBack(copy);
        } else {
          world.FailOver(copy, one_in(2) ? world.server : "server-" + std::to_string(++replaced));
        }
        copies.clear();
      }
      const auto [first, limit] = host.Lease(1 + random() % 30);
      if (limit == first) continue;
      ASSERT_TRUE(grants.Add(first, limit)) << "history " << history << ", step " << step << ": ["
                                            << first << ", " << limit << ") came twice";
    }
    EXPECT_GT(grants.size(), 50U) << history;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, FenceHistories, ::testing::Range(0U, 8U));

}  // namespace
}  // namespace idd::daemon::fenced

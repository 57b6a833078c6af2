// SPDX-License-Identifier: Apache-2.0
//
// Every way in which hosts move from one server to another that lacks data, several times in a row:
// IDD_TEST_SWITCHOVERS sets how often; the table in docs/mysql.md uses ten.
//
// Each case has three hosts whose programs claim at full speed, one whose program claims little,
// one that is stopped or killed before each change and starts during it, and one that is cut off
// before the first change, while its programs continue to claim, until after the last. The oracle
// looks for ids that came twice anywhere. Each case prints for how long a host at full speed got no
// id after a change, and how many claims of a host found none ready.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/db_server.h"
#include "support/mysql_proxy.h"
#include "support/test_environment.h"
#include "witness_hosts.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

int Switchovers() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  const char* const set = std::getenv("IDD_TEST_SWITCHOVERS");
  return set != nullptr ? std::max(1, std::atoi(set)) : static_cast<int>(ScaledLoad(4));
}

template <typename T>
T MedianOf(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? T{} : values[values.size() / 2];
}

class Switchover : public WitnessHosts {
 protected:
  static constexpr std::size_t kAtFullSpeed = 3;

  // All hosts of `url` lease. Then the one with its own connection to `server`, which is a witness,
  // is cut off.
  void StartAll(const std::string& url, const DbServer& server) {
    ASSERT_NO_FATAL_FAILURE(StartLoad(url));
    Load(*hosts_[3], Slowly());
    way_ = std::make_unique<MysqlProxy>(dir_.File("way"), server.socket());
    cut_off_ = &AddHost("cut-off", "mysql://root@localhost/idd?unix_socket=" + dir_.File("way"));
    comes_ = &AddHost("comes", url);
    for (Host* host : {cut_off_, comes_}) {
      host->daemon.Start();
      ASSERT_TRUE(Claims(*host)) << host->daemon.Log();
      Load(*host, Slowly());
    }
    SetWitnesses({"host-0", "host-1", "cut-off"});
    way_->Hang(true);
  }

  // One switchover: runs `change`; then every host except the one that is cut off leases again.
  void SwitchOver(const std::function<void()>& change) {
    if (comes_ != nullptr) windows_.size() % 2 == 0 ? comes_->daemon.Stop() : comes_->daemon.Kill();
    ExpectLeasing(kAtFullSpeed);  // leases that the next server lacks
    std::vector<std::uint64_t> dry;
    for (std::size_t i = 0; i < kAtFullSpeed; ++i) dry.push_back(Number(*hosts_[i], "fallbacks"));
    Window& window = windows_.emplace_back();
    window.begin_ns = MonotonicNs();
    change();
    if (comes_ != nullptr) comes_->daemon.Start();
    ExpectLeasing(kAtFullSpeed);
    EXPECT_TRUE(comes_ == nullptr || Claims(*comes_)) << comes_->daemon.Log();
    std::this_thread::sleep_for(1s);
    window.end_ns = MonotonicNs();
    for (std::size_t i = 0; i < kAtFullSpeed; ++i) {
      const std::uint64_t now = Number(*hosts_[i], "fallbacks");
      window.dry = std::max(window.dry, now - (now < dry[i] ? 0 : dry[i]));  // else: restarted
    }
  }

  // `server` is the last server: the cut-off host comes back and leases again.
  void Finish(const char* what, const DbServer& server) {
    ComeBack(server);
    Report(what);
  }
  void ComeBack(const DbServer& server) {
    way_->Repoint(server.socket());
    way_->Hang(false);
    WorkerPlan some = FullSpeed();
    some.ids = 5000;  // more than it may have had
    ClaimWorkerProcess& worker = Load(*cut_off_, some);
    EXPECT_TRUE(WaitUntil(Patience(120s), [&] { return worker.ids() >= some.ids; }))
        << cut_off_->daemon.Log();
  }
  void Report(const char* what) {
    const std::vector<Claimer> claimers = FinishUnique();
    std::vector<std::uint64_t> pauses;
    std::vector<std::uint64_t> dry;
    const AnswerTimes answers = AnswersOf(claimers);
    for (const Window& window : windows_) {
      std::uint64_t longest = 0;
      for (std::size_t i = 0; i < kAtFullSpeed; ++i) {
        const std::vector<std::uint64_t>& times = answers.at("host-" + std::to_string(i));
        longest = std::max(longest, LongestPause(times, window.begin_ns, window.end_ns));
      }
      EXPECT_LT(std::chrono::nanoseconds(longest), LongestWithoutIds());
      pauses.push_back(longest / 1'000'000);
      dry.push_back(window.dry);
    }
    std::printf(
        "%s: %zu switchovers, %llu ids; pause of a host, ms: median %llu, longest %llu;"
        " dry claims of a host: median %llu, most %llu\n",
        what, windows_.size(), static_cast<unsigned long long>(CountIds(claimers)),
        static_cast<unsigned long long>(MedianOf(pauses)),
        static_cast<unsigned long long>(*std::max_element(pauses.begin(), pauses.end())),
        static_cast<unsigned long long>(MedianOf(dry)),
        static_cast<unsigned long long>(*std::max_element(dry.begin(), dry.end())));
    PrintLogsIfFailed();
  }

  using Step = std::function<void(DbServer& from, DbServer& to)>;
  // Switches back and forth between the servers of the pair. Returns the last one in use.
  DbServer& GoBetween(ServerPair& pair, const Step& change, const Step& after = {}) {
    pair.StopReplication();
    DbServer* from = &pair.primary;
    DbServer* to = &pair.replica;
    for (int i = 0; i < Switchovers(); ++i) {
      SwitchOver([&] { change(*from, *to); });
      if (after) after(*from, *to);
      std::swap(from, to);
    }
    return *from;
  }

  // `leave` takes a server out of use, `revive` prepares it to be the next one, read-only.
  void RunBetween(const char* what, const std::function<void(DbServer&)>& leave,
                  const std::function<void(DbServer&)>& revive) {
    ServerPair pair(dir_);
    pair.replica.Session().Execute("SET GLOBAL read_only = 1");
    ASSERT_NO_FATAL_FAILURE(StartAll(pair.Url(), pair.primary));
    const DbServer& last = GoBetween(
        pair,
        [&leave](DbServer& from, DbServer& to) {
          leave(from);
          to.Session().Execute("SET GLOBAL read_only = 0");
        },
        [&revive](DbServer& from, DbServer&) { revive(from); });
    Finish(what, last);
  }

  struct Window {
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;
    std::uint64_t dry = 0;  // of the host with the most
  };
  std::unique_ptr<MysqlProxy> way_;
  Host* cut_off_ = nullptr;
  Host* comes_ = nullptr;
  std::vector<Window> windows_;
};

TEST_F(Switchover, PrimaryBecomesReadOnly) {
  RunBetween(
      "read-only", [](DbServer& server) { server.Session().Execute("SET GLOBAL read_only = 1"); },
      [](DbServer&) {});
}

TEST_F(Switchover, PrimaryHangs) {
  RunBetween(
      "hangs", [](DbServer& server) { server.Signal(SIGSTOP); },
      [](DbServer& server) {
        server.Signal(SIGCONT);
        server.Session().Execute("SET GLOBAL read_only = 1");
      });
}

TEST_F(Switchover, PrimaryIsKilled) {
  RunBetween(
      "killed", [](DbServer& server) { server.Kill(); },
      [](DbServer& server) { server.Start({"--read-only=ON"}); });
}

// The copy is consistent, at the position that the replica had reached.
TEST_F(Switchover, ReplicaThatIsBehindIsPromoted) {
  constexpr std::array kBehind = {1s, 2s, 5s, 10s, 3s, 20s, 30s, 15s, 45s, 60s};
  ServerPair pair(dir_);
  DbServer* from = &pair.primary;
  DbServer* to = &pair.replica;
  to->Session().Execute("SET GLOBAL read_only = 1");
  ASSERT_NO_FATAL_FAILURE(StartAll(pair.Url(), *from));
  pair.StopReplication();
  for (int i = 0; i < Switchovers(); ++i) {
    Restore(*to, Dump(*from, "copy"));
    std::this_thread::sleep_for(kBehind[static_cast<std::size_t>(i) % kBehind.size()]);
    SwitchOver([&] {
      from->Kill();
      to->Session().Execute("SET GLOBAL read_only = 0");
    });
    from->Start({"--read-only=ON"});
    std::swap(from, to);
  }
  Finish("replica behind", *from);
}

TEST_F(Switchover, BalancerWhoseOldConnectionsHang) {
  ServerPair pair(dir_);
  MysqlProxy balancer(dir_.File("balancer"), pair.primary.socket());
  ASSERT_NO_FATAL_FAILURE(
      StartAll("mysql://root@localhost/idd?unix_socket=" + dir_.File("balancer"), pair.primary));
  Finish("balancer",
         GoBetween(pair, [&balancer](DbServer&, DbServer& to) { balancer.Strand(to.socket()); }));
}

TEST_F(Switchover, ProxyLeadsSessionsToAnotherServer) {
  ServerPair pair(dir_);
  MysqlProxy proxy(dir_.File("proxy"), pair.primary.socket());
  ASSERT_NO_FATAL_FAILURE(
      StartAll("mysql://root@localhost/idd?unix_socket=" + dir_.File("proxy"), pair.primary));
  const DbServer& last =
      GoBetween(pair, [&proxy](DbServer&, DbServer& to) { proxy.Repoint(to.socket()); });
  // A host that needs no lease looks every two seconds.
  EXPECT_TRUE(WaitUntil(Patience(10s), [&proxy] { return proxy.repointed() >= 4; }));
  for (std::size_t i = 0; i < kAtFullSpeed; ++i) {
    EXPECT_THAT(hosts_[i]->daemon.Log(), HasSubstr("store.replaced"));
  }
  Finish("proxy", last);
}

TEST_F(Switchover, DumpIsRestoredUnderLoad) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartAll(Url(), server_));
  for (int i = 0; i < Switchovers(); ++i) {
    const std::string dump = Dump("dump");
    SwitchOver([&] { Restore(dump); });
  }
  Finish("dump, under load", server_);
}

// The hosts start one after the other, and none of them knows what the cut-off host was granted.
// The measurement starts when all run.
TEST_F(Switchover, DumpIsRestoredWhileHostsAreStopped) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartAll(Url(), server_));
  for (int i = 0; i < Switchovers(); ++i) {
    const std::string dump = Dump("dump");
    SwitchOver([&] {
      for (std::size_t n = 0; n <= kAtFullSpeed; ++n) {
        i % 2 == 0 ? hosts_[n]->daemon.Stop() : hosts_[n]->daemon.Kill();
      }
      Restore(dump);
      for (std::size_t n = 0; n <= kAtFullSpeed; ++n) {
        hosts_[n]->daemon.Start();
        std::this_thread::sleep_for(1s);
      }
      windows_.back().begin_ns = MonotonicNs();
    });
  }
  Finish("dump, hosts stopped", server_);
}

// --- every host comes back at once

// Beside the tag at full speed there is one with a steady load, whose leases last longer.
class QuickFailover : public Switchover {
 protected:
  void StartBoth(const std::string& url) {
    ASSERT_NO_FATAL_FAILURE(StartLoad(url));
    hosts_[0]->idctl.Do({"tag", "create", "steady"});
    WorkerPlan plan = FullSpeed();
    plan.tag = "steady";
    plan.batch = 1;
    plan.pace_us = 1000;
    for (std::size_t i = 0; i < kAtFullSpeed; ++i) {
      Load(*hosts_[i], plan);
      steady_.push_back(std::move(workers_.back()));
      workers_.pop_back();
    }
    // The available ids last as long as the load has lasted.
    std::this_thread::sleep_for(10s);
  }

  void FinishBoth(const char* what) {
    for (const auto& worker : steady_) worker->Stop();
    std::vector<Claimer> claimers;
    for (const auto& worker : steady_) {
      EXPECT_EQ(worker->Finish(Patience(60s)), 0) << worker->Failure();
      worker->AddClaimers(claimers);
    }
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    std::uint64_t longest = 0;
    for (const auto& [host, times] : AnswersOf(claimers)) {
      for (const Window& window : windows_) {
        longest = std::max(longest, LongestPause(times, window.begin_ns, window.end_ns));
      }
    }
    std::printf("%s: a program with a steady load waited %llu ms at most\n", what,
                static_cast<unsigned long long>(longest / 1'000'000));
    Report(what);
  }

 private:
  std::vector<std::unique_ptr<ClaimWorkerProcess>> steady_;
};

TEST_F(QuickFailover, PrimaryBecomesReadOnly) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartBoth(pair.Url()));
  GoBetween(pair, [](DbServer& from, DbServer& to) {
    from.Session().Execute("SET GLOBAL read_only = 1");
    to.Session().Execute("SET GLOBAL read_only = 0");
  });
  FinishBoth("all come, read-only");
}

TEST_F(QuickFailover, PrimaryIsKilled) {
  ServerPair pair(dir_);
  ASSERT_NO_FATAL_FAILURE(StartBoth(pair.Url()));
  GoBetween(
      pair,
      [](DbServer& from, DbServer& to) {
        from.Kill();
        to.Session().Execute("SET GLOBAL read_only = 0");
      },
      [](DbServer& from, DbServer&) { from.Start({"--read-only=ON"}); });
  FinishBoth("all come, killed");
}

TEST_F(QuickFailover, ServerIsRestarted) {
  server_.Start();
  ASSERT_NO_FATAL_FAILURE(StartBoth(Url()));
  for (int i = 0; i < Switchovers(); ++i) {
    SwitchOver([&] {
      server_.Stop();
      server_.Start();
    });
  }
  FinishBoth("all come, restart");
}

}  // namespace
}  // namespace idd::harness

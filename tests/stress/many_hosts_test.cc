// SPDX-License-Identifier: Apache-2.0
//
// Many hosts with 50 tags each that start at the same time after a power cut, and that lose their
// server together.
//
// Method: every host is a real idd with its own socket, state directory and name. New hosts start
// 20 at a time (docs/capacity.md). Then all are killed with the server, and all come back
// at once. Programs claim from all tags of all hosts at the same time, and have to get ids that no
// other claim got. The server's own counters show what the hosts request. The figures are printed;
// docs/capacity.md has those of a whole machine.
//
// 20 hosts, 50 at full load, or IDD_TEST_HOSTS.
#include "many_hosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "leasing/lease_scheduler.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using Readings = std::vector<ServerWatch::Reading>;

constexpr std::uint64_t kHostsAtFullLoad = 50;
constexpr std::uint64_t kHosts = 20;
constexpr std::uint64_t kHostsUnderASanitizer = 6;
constexpr std::size_t kNewAtOnce = 20;
constexpr int kTagsOfEach = 50;
constexpr std::uint64_t kSegment = 1000;

std::uint64_t HostsToRun() {
  if (const char* const asked = std::getenv("IDD_TEST_HOSTS")) {
    return std::max<std::uint64_t>(std::strtoull(asked, nullptr, 10), 1);
  }
  if (SlowdownFactor() != 1) return kHostsUnderASanitizer;
  return std::max(kHosts, ScaledLoad(kHostsAtFullLoad));
}

double Seconds(MonotonicClock::duration time) {
  return std::chrono::duration<double>(time).count();
}

class ManyHosts : public ::testing::Test {
 protected:
  // `limit`: leases a second of each host; 0: the default.
  void MakeHosts(int limit) {
    server_.Start();
    const std::uint64_t count = HostsToRun();
    for (std::uint64_t i = 0; i < count; ++i) {
      auto host = std::make_unique<Host>(dir_, "host-" + std::to_string(i));
      host->daemon.options().database = server_.Url();
      if (limit != 0) {
        host->daemon.options().more_arguments = {"--lease-limit", std::to_string(limit)};
      }
      hosts_.push_back(std::move(host));
    }
    Host& first = *hosts_.front();
    first.daemon.Start();
    for (int i = 0; i < kTagsOfEach; ++i) {
      tags_.push_back("tag-" + std::to_string(i));
      first.idctl.CreateTag(tags_.back(), kSegment);
    }
    first.daemon.Stop();
    MarkLogs();
  }

  // The first start of all hosts, in parts.
  void StartNewHosts() {
    for (std::size_t first = 0; first < hosts_.size(); first += kNewAtOnce) {
      const std::size_t end = std::min(first + kNewAtOnce, hosts_.size());
      ServerWatch watch(server_);
      const MonotonicTime began = MonotonicClock::now();
      for (std::size_t i = first; i < end; ++i) hosts_[i]->daemon.Launch();
      ClaimEverywhere claims(Everywhere({.first_host = first, .end_host = end}));
      ASSERT_TRUE(claims.Run(Patience(180s))) << hosts_[first]->daemon.Log();
      Print("new hosts", claims, began, watch.Stop());
      ExpectServed(claims, end - first);
    }
    // A lock that a busy server holds for a second.
    ExpectNoErrorsBut({"store.down"});
  }

  void LaunchAll() {
    for (const auto& host : hosts_) host->daemon.Launch();
  }
  // In parts too: each host hands back its tails one by one, and all hosts those of the same tags.
  void StopAll() {
    for (std::size_t first = 0; first < hosts_.size(); first += kNewAtOnce) {
      const std::size_t end = std::min(first + kNewAtOnce, hosts_.size());
      for (std::size_t i = first; i < end; ++i) hosts_[i]->daemon.Signal(SIGTERM);
      for (std::size_t i = first; i < end; ++i) {
        EXPECT_EQ(hosts_[i]->daemon.process().WaitFor(Patience(60s)).value_or(-1), 0);
      }
    }
  }
  // From here on, errors in the hosts' logs count.
  void MarkLogs() {
    marks_.clear();
    for (const auto& host : hosts_) marks_.push_back(host->daemon.LogMark());
  }

  struct Part {
    std::size_t first_host = 0;
    std::size_t end_host = std::numeric_limits<std::size_t>::max();
    std::uint64_t count = 1;
    int rounds = 1;
  };
  [[nodiscard]] ClaimEverywhere::Plan Everywhere(const Part& part) const {
    ClaimEverywhere::Plan plan{
        .sockets = {}, .tags = tags_, .count = part.count, .rounds = part.rounds};
    for (std::size_t i = part.first_host; i < std::min(part.end_host, hosts_.size()); ++i) {
      plan.sockets.push_back(hosts_[i]->daemon.socket());
    }
    return plan;
  }

  // Expects that all claims were answered with ids that no claim got before.
  void ExpectServed(ClaimEverywhere& claims, std::size_t hosts) {
    const ClaimEverywhere::Outcome& outcome = claims.outcome();
    for (const auto& [reason, count] : outcome.failures) {
      ADD_FAILURE() << count << " claims failed: " << reason;
    }
    EXPECT_EQ(outcome.served.size(), hosts);
    for (const auto& [tag, ids] : outcome.ids) ranges_[tag].insert(ids);
    for (const auto& [tag, ranges] : ranges_) {
      std::uint64_t limit = 0;
      for (const auto& [first, end] : ranges) {
        ASSERT_GE(first, limit) << "an id of " << tag << " came twice";
        limit = end;
      }
    }
    std::size_t known = 0;
    for (const auto& [tag, ranges] : ranges_) known += ranges.size();
    answers_ += outcome.ids.size();
    EXPECT_EQ(known, answers_) << "two claims got the same ids";
  }

  // Expects that the hosts have logged no error but those of `waits`.
  void ExpectNoErrorsBut(const std::set<std::string>& waits) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const std::string log = hosts_[i]->daemon.LogSince(marks_[i]);
      for (const auto& [event, count] : ErrorsIn(log)) {
        EXPECT_TRUE(waits.contains(event)) << event << " of host " << i << ":\n" << log;
      }
    }
  }

  void Print(const char* what, ClaimEverywhere& claims, MonotonicTime from,
             const Readings& samples) const {
    const ClaimEverywhere::Outcome& outcome = claims.outcome();
    std::vector<double> served;
    for (const auto& [host, when] : outcome.served) served.push_back(Seconds(when - from));
    std::sort(served.begin(), served.end());
    const std::vector<double>& waits = outcome.waits_s;
    if (served.empty() || waits.empty() || samples.empty()) return;
    const auto rate = [&samples](auto count) { return HighestRate(samples, count); };
    const ServerCounters& first = samples.front().counters;
    const ServerCounters& last = samples.back().counters;
    std::printf(
        "%s: %zu hosts x %d tags: hosts serve after %.1f s (first %.1f, median %.1f); claims wait "
        "%.2f s (median %.2f, p99 %.2f); most in a second: %.0f leases, %.0f commits, %.0f "
        "statements, %.0f rows read; in all: %llu leases, %llu commits, %llu statements\n",
        what, served.size(), kTagsOfEach, served.back(), served.front(), served[served.size() / 2],
        waits.back(), waits[waits.size() / 2], waits[waits.size() * 99 / 100],
        rate([](const ServerCounters& c) { return c.leases; }),
        rate([](const ServerCounters& c) { return c.commits; }),
        rate([](const ServerCounters& c) { return c.statements; }),
        rate([](const ServerCounters& c) { return c.rows_read; }),
        static_cast<unsigned long long>(last.leases - first.leases),
        static_cast<unsigned long long>(last.commits - first.commits),
        static_cast<unsigned long long>(last.statements - first.statements));
  }

  // All hosts and the server lose power.
  void CutPower() {
    for (const auto& host : hosts_) host->daemon.Kill();
    server_.Kill();
    MarkLogs();
  }

  const TempDir dir_;
  DbServer server_{
      dir_,
      "db",
      {.port = 0,
       .arguments = {"--max-connections=1000", "--innodb-buffer-pool-size=256M", RedoLog("96M")}}};
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::string> tags_;
  std::vector<std::size_t> marks_;  // of the hosts' logs
  std::map<std::string, std::set<std::pair<std::uint64_t, std::uint64_t>>> ranges_;
  std::size_t answers_ = 0;
};

TEST_F(ManyHosts, AllServeAfterAPowerCutAndAfterAnOutage) {
  MakeHosts(0);
  ASSERT_NO_FATAL_FAILURE(StartNewHosts());
  CutPower();
  {
    const MonotonicTime began = MonotonicClock::now();
    LaunchAll();  // before the server, which takes longer to start
    server_.Start();
    ServerWatch watch(server_);
    ClaimEverywhere claims(Everywhere({}));
    claims.CountFrom(MonotonicClock::now());
    ASSERT_TRUE(claims.Run(Patience(180s))) << hosts_.back()->daemon.Log();
    Print("power cut", claims, began, watch.Stop());
    ExpectServed(claims, hosts_.size());
    ExpectNoErrorsBut({"store.down", "store.replaced"});
  }
  MarkLogs();
  server_.Kill();
  // All ids that a host holds, and then one claim of each tag that has to wait for the server.
  ClaimEverywhere claims(Everywhere({.count = kSegment, .rounds = 5}));
  EXPECT_FALSE(claims.Run(5s)) << "the hosts held more ids than they can have leased";
  server_.Start();
  ServerWatch watch(server_);
  const MonotonicTime back = MonotonicClock::now();
  claims.CountFrom(back);
  ASSERT_TRUE(claims.Run(Patience(180s))) << hosts_.back()->daemon.Log();
  Print("outage", claims, back, watch.Stop());
  ExpectServed(claims, hosts_.size());
  ExpectNoErrorsBut({"store.down", "store.replaced"});
  StopAll();
}

// The budget bounds what the store sees of hosts that all need all of their tags at once.
TEST_F(ManyHosts, StoreSeesAtMostTheBudgetOfAllHostsAfterAPowerCut) {
  constexpr int kLimit = 5;
  MakeHosts(kLimit);
  ASSERT_NO_FATAL_FAILURE(StartNewHosts());
  CutPower();
  server_.Start();
  ServerWatch watch(server_);
  const MonotonicTime began = MonotonicClock::now();
  LaunchAll();
  ClaimEverywhere claims(Everywhere({}));
  ASSERT_TRUE(claims.Run(Patience(180s))) << hosts_.back()->daemon.Log();
  const Readings readings = watch.Stop();
  Print("power cut, limited", claims, began, readings);
  ExpectServed(claims, hosts_.size());
  const daemon::RateBucket::Rate rate = daemon::LeaseRate(kLimit);
  // No tag's lease comes before its turn.
  const double needed_s = static_cast<double>(kTagsOfEach - rate.burst) / kLimit;
  for (const auto& [host, when] : claims.outcome().served) {
    EXPECT_GE(Seconds(when - began), needed_s) << "host " << host;
  }
  for (std::size_t i = 1; i < readings.size(); ++i) {
    const double passed_s = Seconds(readings[i].answered - readings[i - 1].asked);
    const auto most = static_cast<double>(hosts_.size()) *
                      (static_cast<double>(rate.burst) + kLimit * passed_s + 1);
    EXPECT_LE(readings[i].counters.leases - readings[i - 1].counters.leases, most)
        << "in " << passed_s << " s";
  }
}

}  // namespace
}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// Snowflake tags: hosts with clocks of their own, clocks that are set while programs claim, and
// restarts.
//
// Method: the wall clock of each host's idd and programs is shifted by a library that a test
// steers. The oracle takes every id apart and compares it with the claim's time on that clock, and
// with the leases of its worker id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mysql_hosts.h"
#include "support/service_manager_stand_in.h"
#include "support/test_clock.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

constexpr std::int64_t kEpochMs = 1'704'067'200'000;  // the default
constexpr std::int64_t kMaxAheadMs = 1000;
constexpr std::int64_t kHourMs = 3'600'000;
constexpr std::int64_t kDayMs = 24 * kHourMs;

std::int64_t TimeOf(std::uint64_t id) { return kEpochMs + static_cast<std::int64_t>(id >> 22); }
std::uint32_t WorkerOf(std::uint64_t id) { return static_cast<std::uint32_t>(id >> 12 & 1023); }
std::uint64_t NumberOf(std::uint64_t id) { return id >> 22 << 12 | (id & 4095); }

// The ids of snowflake tags lie far apart, so ranges are compared, not single ids.
std::string CheckNoIdTwice(const std::vector<Claimer>& claimers) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) {
      if (record.count != 0) ranges.emplace_back(record.first, record.first + record.count);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return "id " + std::to_string(ranges[i].first) + " came twice";
    }
  }
  return "";
}

std::string CheckPositive(const std::vector<Claimer>& claimers) {
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) {
      if (record.count == 0) continue;
      const std::uint64_t last = record.first + record.count - 1;
      if (last > INT64_MAX) return "id " + std::to_string(last) + " is negative";
      if (TimeOf(record.first) != TimeOf(last)) {
        return "the range at " + std::to_string(record.first) + " has two times";
      }
    }
  }
  return "";
}

// Of the last claim that got ids.
const ClaimRecord& LastClaim(const std::vector<Claimer>& claimers) {
  const auto records = claimers.front().records;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (record->count != 0) return *record;
  }
  throw HarnessError("nothing was claimed");
}

// Worker ids, by number, with their leases.
using WindowsOf = std::map<std::uint32_t, std::vector<JournalLease>>;

WindowsOf AllWindows(const Idctl& idctl) {
  WindowsOf windows;
  const auto tag = idctl.Json({"tag", "show", "orders"}).at("tag");
  for (const auto& worker : tag.at("workers")) {
    const auto number = worker.at("worker").get<std::uint32_t>();
    const std::string counter = "orders#" + std::to_string(number);
    windows[number] = ParseLeases(idctl.Json({"lease", "list", "--tag", "orders"}), counter);
  }
  return windows;
}

// Every id lies in a window that its host leased.
std::string CheckWindows(const std::vector<Claimer>& claimers, const WindowsOf& windows,
                         const std::string& host) {
  for (const Claimer& claimer : claimers) {
    const JournalLease* last = nullptr;  // most ids are of the lease of the one before
    for (const ClaimRecord& record : claimer.records) {
      if (record.count == 0) continue;
      const std::uint64_t first = NumberOf(record.first);
      const std::uint64_t limit = first + record.count;
      const auto has = [&](const JournalLease& lease) {
        return lease.base <= first && limit <= lease.limit && lease.host == host &&
               lease.tag == "orders#" + std::to_string(WorkerOf(record.first));
      };
      if (last != nullptr && has(*last)) continue;
      const auto found = windows.find(WorkerOf(record.first));
      if (found == windows.end()) return "id " + std::to_string(record.first) + ": no such worker";
      const auto lease = std::find_if(found->second.begin(), found->second.end(), has);
      if (lease == found->second.end()) {
        return "id " + std::to_string(record.first) + " of " + claimer.name +
               " is in no window of worker " + std::to_string(WorkerOf(record.first)) + " of " +
               host;
      }
      last = &*lease;
    }
  }
  return "";
}

// The clock was not set meanwhile.
std::string CheckTimes(const std::vector<Claimer>& claimers, const TestClock& clock) {
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) {
      if (record.count == 0) continue;
      const std::int64_t time = TimeOf(record.first);
      // The two clocks are compared with a millisecond's precision.
      const std::int64_t before = clock.UnixMsAt(record.before_ns) - 2;
      const std::int64_t after = clock.UnixMsAt(record.after_ns) + 2;
      if (time >= before && time <= after + kMaxAheadMs) continue;
      return "id " + std::to_string(record.first) + " of " + claimer.name + " has the time " +
             std::to_string(time) + ", claimed between " + std::to_string(before) + " and " +
             std::to_string(after);
    }
  }
  return "";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCanPreload = false;  // its runtime must be the first library that is loaded
#else
constexpr bool kCanPreload = true;
#endif

class SnowflakeHosts : public MysqlHosts {
 protected:
  void SetUp() override {
    if (!kCanPreload) GTEST_SKIP() << "a sanitizer's runtime must be loaded first";
    server_.Start();
    for (int i = 0; i < kHosts; ++i) {
      const std::string name = "host-" + std::to_string(i);
      clocks_.push_back(std::make_unique<TestClock>(dir_, name));
      clocks_.back()->ShiftTo(kShifts[i]);
      auto host = std::make_unique<Host>(dir_, name);
      host->daemon.options().database = server_.Url();
      host->daemon.options().environment = clocks_.back()->environment();
      host->daemon.Start();
      hosts_.push_back(std::move(host));
    }
    ASSERT_TRUE(WaitUntil(Patience(30s), [&] {
      return hosts_[0]->idctl.Run({"tag", "create", "orders", "--mode", "snowflake"}).exit_status ==
             0;
    }));
    for (const auto& host : hosts_) {
      ASSERT_TRUE(WaitUntil(Patience(60s), [&] {
        return host->idctl.Run({"claim", "orders"}).exit_status == 0;
      })) << host->daemon.Log();
    }
  }
  void Claim(int for_each_host, WorkerPlan plan) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      plan.environment = clocks_[i]->environment();
      for (int k = 0; k < for_each_host; ++k) AddWorker(*hosts_[i], plan);
    }
    for (const auto& worker : workers_) worker->WaitReady(Patience(20s));
    for (const auto& worker : workers_) worker->Go();
  }
  [[nodiscard]] std::vector<Claimer> FinishOf(std::size_t host, std::size_t for_each_host,
                                              std::chrono::milliseconds timeout) {
    std::vector<Claimer> claimers;
    for (std::size_t k = host * for_each_host; k < (host + 1) * for_each_host; ++k) {
      EXPECT_EQ(workers_[k]->Finish(timeout), 0) << workers_[k]->Failure();
      workers_[k]->AddClaimers(claimers);
    }
    return claimers;
  }

  static constexpr int kHosts = 4;
  static constexpr std::int64_t kShifts[kHosts] = {0, -700, 400, 5};
  std::vector<std::unique_ptr<TestClock>> clocks_;
};

TEST_F(SnowflakeHosts, TwentyMillionIdsOfFourHostsWithClocksOfTheirOwn) {
  WorkerPlan plan;
  plan.ids = ScaledLoad(2'500'000);
  plan.batch = 16;
  Claim(2, plan);
  std::vector<Claimer> all;
  const Idctl& idctl = hosts_[0]->idctl;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const std::vector<Claimer> claimers = FinishOf(i, 2, Patience(200s));
    EXPECT_EQ(CountIds(claimers), 2 * plan.ids);
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckOrder(claimers)), "") << "in real time on one host";
    EXPECT_EQ(CheckTimes(claimers, *clocks_[i]), "");
    EXPECT_EQ(CheckWindows(claimers, AllWindows(idctl), "host-" + std::to_string(i)), "");
    all.insert(all.end(), claimers.begin(), claimers.end());
  }
  EXPECT_EQ(CheckNoIdTwice(all), "");
  EXPECT_EQ(CheckPositive(all), "");
  EXPECT_EQ(AllWindows(idctl).size(), hosts_.size()) << "each host has its worker id";
  const IdctlResult audit = idctl.Run({"audit", "orders", "--all-hosts"});
  EXPECT_EQ(audit.exit_status, 0) << audit.out << audit.err;
  std::printf("%llu ids\n", static_cast<unsigned long long>(CountIds(all)));
}

TEST_F(SnowflakeHosts, GoOnWhileHostsAndTheServerAreKilled) {
  WorkerPlan plan;
  plan.batch = 8;
  plan.retry = true;
  plan.pace_us = 300;
  plan.log_capacity = 1 << 18;
  Claim(1, plan);
  for (int i = 0; i < 6; ++i) {
    std::this_thread::sleep_for(400ms);
    if (i % 3 == 2) {
      server_.Kill();
      server_.Start();
    } else {
      DaemonProcess& daemon = hosts_[static_cast<std::size_t>(i) % hosts_.size()]->daemon;
      daemon.Kill();
      daemon.Start();
    }
  }
  std::vector<std::uint64_t> before;
  for (const auto& worker : workers_) before.push_back(worker->ids());
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    EXPECT_TRUE(WaitUntil(Patience(60s), [&] { return workers_[i]->ids() > before[i]; }))
        << hosts_[i]->daemon.Log();
  }
  for (const auto& worker : workers_) worker->Stop();
  ASSERT_TRUE(WaitUntil(Patience(20s), [&] {
    return hosts_[0]->idctl.Run({"tag", "show", "orders"}).exit_status == 0;
  }));
  std::vector<Claimer> all;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const std::vector<Claimer> claimers = FinishOf(i, 1, Patience(60s));
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(CheckWindows(claimers, AllWindows(hosts_[0]->idctl), "host-" + std::to_string(i)),
              "");
    all.insert(all.end(), claimers.begin(), claimers.end());
  }
  EXPECT_EQ(CheckNoIdTwice(all), "");
}

// A host whose machine was cloned, with its state directory and its name. On one machine the later
// idd has the name, as after a restart, and the store refuses the other.
TEST_F(SnowflakeHosts, OneOfTwoClonesIsRefusedByTheStore) {
  Host& first = *hosts_[0];
  const std::uint64_t before = first.idctl.Claim("orders").front();
  std::filesystem::copy(first.daemon.options().state_dir, dir_.File("clone-state"),
                        std::filesystem::copy_options::recursive);
  Host clone(dir_, "clone");
  clone.daemon.options().database = server_.Url();
  clone.daemon.options().state_dir = dir_.File("clone-state");
  clone.daemon.options().host_id = first.daemon.options().host_id;
  clone.daemon.Start();
  std::vector<std::uint64_t> ids = clone.idctl.Claim("orders", 10);
  EXPECT_NE(WorkerOf(ids.front()), WorkerOf(before)) << "the window of the other is not over";
  // Its first error is that its row is not as it left it.
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
    const nlohmann::json database = first.idctl.Json({"status"}).at("database");
    return database.at("state") == "down" &&
           database.at("last_error").get<std::string>().find("another host uses the name") !=
               std::string::npos;
  }));
  // The window that it holds is its own.
  const std::vector<std::uint64_t> more = first.idctl.Claim("orders", 10);
  EXPECT_EQ(WorkerOf(more.front()), WorkerOf(before));
  ids.insert(ids.end(), more.begin(), more.end());
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

// A window in the far future would make the worker id useless until then.
TEST_F(SnowflakeHosts, ClockThatIsADayAheadOfTheServersIsRefused) {
  const std::uint64_t before = hosts_[0]->idctl.Claim("orders").front();
  clocks_[0]->ShiftTo(kDayMs);
  WorkerPlan plan;
  plan.environment = clocks_[0]->environment();
  plan.timeout_ms = 500;
  plan.retry = true;
  plan.pace_us = 1000;
  plan.log_capacity = 1 << 16;
  ClaimWorkerProcess& worker = AddWorker(*hosts_[0], plan);
  worker.WaitReady(Patience(20s));
  worker.Go();
  ASSERT_TRUE(WaitUntil(Patience(20s), [&] { return worker.errors() != 0; }));
  const auto tags = hosts_[0]->idctl.Json({"status", "orders"}).at("tags");
  EXPECT_THAT(tags.at(0).at("last_error").get<std::string>(), HasSubstr("ahead of the store's"));
  EXPECT_EQ(worker.ids(), 0U);
  worker.Stop();
  EXPECT_EQ(worker.Finish(Patience(20s)), 0) << worker.Failure();
  // The clock that was ahead has passed over the window, so the next id's time is the window's end.
  clocks_[0]->ShiftTo(0);
  IdctlResult waits;
  EXPECT_TRUE(WaitUntil(Patience(20s),
                        [&] {
                          waits = hosts_[0]->idctl.Run({"--timeout", "500", "claim", "orders"});
                          return waits.exit_status != 0 &&
                                 waits.err.find("ahead of this host's clock") != std::string::npos;
                        }))
      << waits.out << waits.err << hosts_[0]->daemon.Log();
  // A stop frees the worker id up to there, and a start takes another one at the present time.
  hosts_[0]->daemon.Stop();
  hosts_[0]->daemon.Start();
  std::uint64_t after = 0;
  ASSERT_TRUE(WaitUntil(Patience(60s), [&] {
    const IdctlResult claim = hosts_[0]->idctl.Run({"claim", "orders"});
    if (claim.exit_status == 0) after = ParseIds(claim.out).front();
    return after != 0;
  })) << hosts_[0]->daemon.Log();
  EXPECT_NE(WorkerOf(after), WorkerOf(before));
  EXPECT_LT(TimeOf(after), TimeOf(before) + kHourMs);
}

// One host on a SQLite file.
class SnowflakeClock : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kCanPreload) GTEST_SKIP() << "a sanitizer's runtime must be loaded first";
    host_.daemon.options().environment = clock_.environment();
  }
  void Start(ServiceManagerStandIn* manager) {
    host_.daemon.options().manager = manager;
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "orders", "--mode", "snowflake"});
  }
  ClaimWorkerProcess& StartWorker(std::uint64_t timeout_ms = 300) {
    WorkerPlan plan{.socket = host_.daemon.socket(),
                    .tag = "orders",
                    .name = "worker-" + std::to_string(workers_.size())};
    plan.environment = clock_.environment();
    plan.retry = true;
    plan.timeout_ms = timeout_ms;
    plan.pace_us = 100;
    workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    workers_.back()->WaitReady(Patience(20s));
    workers_.back()->Go();
    return *workers_.back();
  }
  // Whether the worker gets more ids, and soon.
  [[nodiscard]] bool GoesOn(ClaimWorkerProcess& worker) {
    const std::uint64_t before = worker.ids();
    return WaitUntil(Patience(10s), [&] { return worker.ids() > before + 100; });
  }
  // Whether the worker gets none, although it asks.
  [[nodiscard]] bool Waits(ClaimWorkerProcess& worker) {
    std::uint64_t errors = worker.errors();
    if (!WaitUntil(Patience(10s), [&] { return worker.errors() > errors; })) return false;
    const std::uint64_t before = worker.ids();
    errors = worker.errors();
    return WaitUntil(Patience(10s), [&] { return worker.errors() > errors + 1; }) &&
           worker.ids() == before;
  }
  [[nodiscard]] std::vector<Claimer> Finish(ClaimWorkerProcess& worker) {
    worker.Stop();
    std::vector<Claimer> claimers;
    EXPECT_EQ(worker.Finish(Patience(20s)), 0) << worker.Failure();
    worker.AddClaimers(claimers);
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    return claimers;
  }
  // Checks everything that was claimed.
  void ExpectSound(const std::vector<Claimer>& claimers) {
    EXPECT_EQ(CheckNoIdTwice(claimers), "");
    EXPECT_EQ(CheckPositive(claimers), "");
    EXPECT_EQ(CheckWindows(claimers, AllWindows(host_.idctl), "host-a"), "");
    const IdctlResult audit = host_.idctl.Run({"audit"});
    EXPECT_EQ(audit.exit_status, 0) << audit.out << audit.err;
  }

  const TempDir dir_;
  TestClock clock_{dir_, "host-a"};
  Host host_{dir_};
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
};

TEST_F(SnowflakeClock, StepsWhileProgramsClaim) {
  Start(nullptr);
  ClaimWorkerProcess& worker = StartWorker();
  ASSERT_TRUE(GoesOn(worker));
  for (const std::int64_t back : {-1, -900}) {
    clock_.ShiftTo(back);
    EXPECT_TRUE(GoesOn(worker)) << "within max_ahead";
    clock_.ShiftTo(0);
    EXPECT_TRUE(GoesOn(worker));
  }
  clock_.ShiftTo(-kHourMs);
  EXPECT_TRUE(Waits(worker));
  clock_.ShiftTo(0);
  EXPECT_TRUE(GoesOn(worker));
  clock_.ShiftTo(kDayMs);
  EXPECT_TRUE(GoesOn(worker)) << "a SQLite file has no clock to compare with";
  clock_.ShiftTo(0);
  EXPECT_TRUE(Waits(worker)) << "ids of a host rise";
  // A stop hands the time back, and a start takes another worker id.
  std::vector<Claimer> claimers = Finish(worker);
  host_.daemon.Stop();
  host_.daemon.Start();
  ClaimWorkerProcess& later = StartWorker(5000);
  EXPECT_TRUE(GoesOn(later)) << host_.daemon.Log();
  const std::vector<Claimer> more = Finish(later);
  EXPECT_NE(WorkerOf(LastClaim(more).first), WorkerOf(LastClaim(claimers).first));
  EXPECT_LT(TimeOf(LastClaim(more).first), TimeOf(LastClaim(claimers).first));
  claimers.insert(claimers.end(), more.begin(), more.end());
  ExpectSound(claimers);
}

TEST_F(SnowflakeClock, StepsAcrossARestartGoOnInTheInheritedRing) {
  ServiceManagerStandIn manager(dir_);
  Start(&manager);
  ClaimWorkerProcess& worker = StartWorker();
  for (const std::int64_t shift : {std::int64_t{-1}, std::int64_t{-900}, -kHourMs, kDayMs}) {
    clock_.ShiftTo(0);
    ASSERT_TRUE(GoesOn(worker));
    if (shift > 0) {
      host_.daemon.Leave();
    } else {
      host_.daemon.Kill();
    }
    clock_.ShiftTo(shift);
    host_.daemon.Start();
    EXPECT_TRUE(shift == -kHourMs ? Waits(worker) : GoesOn(worker)) << shift;
  }
  const std::vector<Claimer> claimers = Finish(worker);
  ExpectSound(claimers);
  EXPECT_EQ(AllWindows(host_.idctl).size(), 1U) << "the worker id is kept";
}

TEST_F(SnowflakeClock, CloneOnTheSameFileTakesAnotherWorkerId) {
  Start(nullptr);
  std::vector<std::uint64_t> ids = host_.idctl.Claim("orders", 10);
  std::filesystem::copy(host_.daemon.options().state_dir, dir_.File("clone-state"),
                        std::filesystem::copy_options::recursive);
  Host clone(dir_, "clone");
  clone.daemon.options().state_dir = dir_.File("clone-state");
  clone.daemon.options().host_id = host_.daemon.options().host_id;
  clone.daemon.Start();
  const std::vector<std::uint64_t> more = clone.idctl.Claim("orders", 10);
  EXPECT_NE(WorkerOf(more.front()), WorkerOf(ids.front()));
  const std::vector<std::uint64_t> again = host_.idctl.Claim("orders", 10);
  EXPECT_EQ(WorkerOf(again.front()), WorkerOf(ids.front()));
}

// Nothing is left in memory.
TEST_F(SnowflakeClock, StepsAcrossARebootTakeAWorkerIdWhoseTimeHasPassed) {
  Start(nullptr);
  std::vector<Claimer> all;
  for (const std::int64_t shift :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{-900}, -kHourMs, kDayMs, std::int64_t{0}}) {
    clock_.ShiftTo(shift);
    if (!workers_.empty()) host_.daemon.Start();
    ClaimWorkerProcess& worker = StartWorker(5000);
    EXPECT_TRUE(GoesOn(worker)) << shift << host_.daemon.Log();
    const std::vector<Claimer> claimers = Finish(worker);
    const std::int64_t time = TimeOf(LastClaim(claimers).first);
    EXPECT_LE(std::abs(time - clock_.UnixMsAt(LastClaim(claimers).after_ns)), kMaxAheadMs + 2);
    all.insert(all.end(), claimers.begin(), claimers.end());
    host_.daemon.Kill();
  }
  host_.daemon.Start();
  ExpectSound(all);
}

}  // namespace
}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// Worker ids of snowflake tags: no worker id in two hands at once, none lost for good.
//
// Method: dozens of hosts, each with a store of its own and a clock of its own, lease windows, hand
// them back and crash; threads make their calls concurrent. The database server is killed now and
// then. An oracle knows all answers. At the end one more host takes every worker id of the tag.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "platform/logging.h"
#include "store/mysql/mysql_store.h"
#include "store/sqlite/sqlite_store.h"
#include "support/db_server.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"
#include "worker_id_hosts.h"
#include "worker_id_oracle.h"

namespace idd::daemon {
namespace {

using harness::Patience;
using harness::ScaledLoad;
using harness::TestSeed;
using harness::WaitUntil;
using std::chrono_literals::operator""s;

constexpr int kThreads = 6;
// Beyond all windows, lifts and clocks.
constexpr std::int64_t kLongMs = 7'200'000;

double SecondsSince(MonotonicTime time) {
  return std::chrono::duration<double>(MonotonicClock::now() - time).count();
}

class WorkerIds : public ::testing::Test {
 protected:
  struct Load {
    std::uint32_t worker_bits = 10;
    int hosts = 0;
    std::int64_t step_ms = 0;
    std::uint64_t leases = 0;
  };

  // Waits until the store is open: the server of a busy machine may be slow.
  [[nodiscard]] std::unique_ptr<Store> OpenStore(const std::string& host) {
    std::unique_ptr<Store> store = run_.make_store(host);
    Status status;
    EXPECT_TRUE(WaitUntil(Patience(120s), [&] {
      status = store->Open();
      return status.code() != Code::kUnavailable;
    }));
    EXPECT_TRUE(status.ok()) << status.message();
    return store;
  }

  void CreateTag(std::uint32_t worker_bits) {
    NewTag tag;
    tag.tag = "t";
    tag.mode = TagMode::kSnowflake;
    tag.step = 1;
    tag.refill.outage_tolerance = 60s;
    tag.snowflake = SnowflakeLayout{.worker_bits = worker_bits};
    Result<TagRecord> created = OpenStore("setup")->CreateTag(tag);
    ASSERT_TRUE(created.ok()) << created.status().message();
    run_.tag = std::move(created).value();
  }

  // This thread calls `during` again and again while the hosts run.
  void Run(const Load& load, const std::function<void()>& during = {}) {
    run_.step_ms = load.step_ms;
    ASSERT_NO_FATAL_FAILURE(CreateTag(load.worker_bits));
    const MonotonicTime began = MonotonicClock::now();
    std::mt19937_64 random(TestSeed());
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([this, &load, &running, t, seed = random()] {
        Drive(load, t, seed);
        --running;
      });
    }
    while (running != 0) {
      if (during) during();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (std::thread& thread : threads) thread.join();
    const double seconds = SecondsSince(began);
    run_.clock_ms += kLongMs;
    const std::uint64_t leases = run_.tally.leases;
    const std::size_t left = WorkerIdHost(run_, "last", 1).TakeEveryWorkerId();
    EXPECT_EQ(left, run_.tag.snowflake->workers()) << "worker ids are lost for good";
    Judge();
    Print(leases, seconds, SecondsSince(began) - seconds);
  }

  void Drive(const Load& load, int thread, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::unique_ptr<WorkerIdHost>> hosts;
    for (int i = thread; i < load.hosts; i += kThreads) {
      hosts.push_back(std::make_unique<WorkerIdHost>(run_, "host-" + std::to_string(i), random()));
    }
    while (run_.tally.leases < load.leases && !run_.oracle.has_failed()) {
      hosts[random() % hosts.size()]->Step();
    }
  }

  void Judge() {
    const std::unique_ptr<Store> store = OpenStore("judge");
    const auto owners = store->ListWorkers("t");
    const auto journal = store->ListLeases({});
    ASSERT_TRUE(owners.ok() && journal.ok());
    EXPECT_EQ(run_.oracle.Judge(owners.value(), journal.value()), "");
  }

  void Print(std::uint64_t leases, double seconds, double seconds_at_end) const {
    const WorkerIdTally& tally = run_.tally;
    const auto n = [](std::uint64_t count) { return static_cast<unsigned long long>(count); };
    std::printf(
        "%llu worker ids: %llu leases and %llu at the end, %llu returns, %llu crashes, "
        "%llu takes of a worker id (%llu from another host, %llu lost to one), "
        "%llu times all in use, %llu leases refused to a former owner, %llu lifts, "
        "%llu waits, %llu calls without an answer, %llu stores opened again, %d kills "
        "of the server; %llu steps in %.1f s, then %.1f s\n",
        n(run_.tag.snowflake->workers()), n(leases), n(tally.leases - leases), n(tally.returns),
        n(tally.crashes), n(tally.takes), n(tally.changes), n(tally.lost), n(tally.all_in_use),
        n(tally.not_owner), n(tally.lifts), n(tally.waits), n(tally.unknown), n(tally.reopened),
        kills_, n(tally.steps), seconds, seconds_at_end);
  }

  // A store tells each time that it is opened again.
  static void SetUpTestSuite() { log::SetLevel(log::Level::kError); }

  const harness::TempDir dir_;
  WorkerIdRun run_;
  int kills_ = 0;
};

class WorkerIdsOnSqlite : public WorkerIds {
 protected:
  void SetUp() override {
    run_.make_store = [path = dir_.File("idd.db")](const std::string& host) {
      return std::make_unique<SqliteStore>(SqliteStoreOptions{path, host, {}});
    };
  }
};

TEST_F(WorkerIdsOnSqlite, AreNeverInTwoHandsAndNoneIsLost) {
  Run({.worker_bits = 10, .hosts = 64, .step_ms = 250, .leases = ScaledLoad(10'000)});
}

TEST_F(WorkerIdsOnSqlite, AreNeverInTwoHandsIfThereAreTooFew) {
  Run({.worker_bits = 3, .hosts = 12, .step_ms = 3000, .leases = ScaledLoad(2000)});
  EXPECT_GT(run_.tally.all_in_use, 0U);
  EXPECT_GT(run_.tally.changes, 8U);
}

class WorkerIdsOnMariadb : public WorkerIds {
 protected:
  void SetUp() override {
    server_.Start();
    Result<MysqlUrl> url = ParseMysqlUrl(server_.Url());
    ASSERT_TRUE(url.ok());
    run_.make_store = [url = url.value()](const std::string& host) {
      return std::make_unique<MysqlStore>(
          MysqlStoreOptions{url, {host, "boot", "state-of-" + host}});
    };
  }

  // Kills the server every some hundred steps.
  void KillNowAndThen() {
    if (run_.tally.steps < next_kill_) return;
    if (next_kill_ != 0) {
      server_.Kill();
      server_.Start();
      ++kills_;
    }
    next_kill_ = run_.tally.steps + 300 + random_() % 900;
  }

  harness::DbServer server_{dir_};
  std::mt19937_64 random_{TestSeed()};
  std::uint64_t next_kill_ = 0;
};

TEST_F(WorkerIdsOnMariadb, AreNeverInTwoHandsAndNoneIsLostWhileTheServerIsKilled) {
  Run({.worker_bits = 10, .hosts = 48, .step_ms = 330, .leases = ScaledLoad(10'000)},
      [this] { KillNowAndThen(); });
  EXPECT_GT(kills_, 0);
}

TEST_F(WorkerIdsOnMariadb, AreNeverInTwoHandsIfThereAreTooFew) {
  Run({.worker_bits = 3, .hosts = 12, .step_ms = 3000, .leases = ScaledLoad(2000)},
      [this] { KillNowAndThen(); });
  EXPECT_GT(run_.tally.all_in_use, 0U);
  EXPECT_GT(run_.tally.changes, 8U);
}

// --- the oracle itself

class WorkerIdOracleTest : public ::testing::Test {
 protected:
  void Take(const std::string& host, std::optional<std::string> owner, std::uint64_t now) {
    WorkerTake take{.worker = 3, .host = host, .owner = std::move(owner), .now = now};
    take.begin = oracle_.Tick();
    take.end = oracle_.Tick();
    oracle_.Add(take);
    owner_ = host;
  }
  void Lease(const std::string& host, shm::IdRange ids) {
    WorkerGrant grant{.worker = 3, .host = host, .token = std::to_string(++leases_), .ids = ids};
    grant.begin = oracle_.Tick();
    grant.end = oracle_.Tick();
    oracle_.Add(grant);
    LeaseRecord& record = journal_.emplace_back();
    record.token = grant.token;
    record.tag = "t#3";
    record.host = host;
    record.ids = ids;
  }
  void Return(std::uint64_t lease, std::uint64_t limit) {
    oracle_.Trim(std::to_string(lease), limit);
    LeaseRecord& record = journal_[lease - 1];
    record.returned = record.ids.limit - limit;
  }
  [[nodiscard]] std::string Judge() {
    return oracle_.Judge({{.worker = 3, .host = owner_}}, journal_);
  }

  WorkerIdOracle oracle_;
  std::vector<LeaseRecord> journal_;
  std::string owner_;
  std::uint64_t leases_ = 0;
};

TEST_F(WorkerIdOracleTest, FindsNothingWrongWithWindowsInTurn) {
  Take("a", std::nullopt, 0);
  Lease("a", {0, 100});
  Return(1, 50);
  Take("b", "a", 50);
  Lease("b", {50, 150});
  Take("a", "b", 150);
  Take("a", "a", 120);
  Lease("a", {150, 160});
  EXPECT_EQ(Judge(), "");
}

TEST_F(WorkerIdOracleTest, FindsLeasesThatOverlap) {
  Take("a", std::nullopt, 0);
  Lease("a", {0, 100});
  Lease("a", {99, 110});
  EXPECT_NE(Judge().find("overlaps"), std::string::npos);
}

TEST_F(WorkerIdOracleTest, FindsALeaseOfAFormerOwner) {
  Take("a", std::nullopt, 0);
  Lease("a", {0, 100});
  Take("b", "a", 100);
  Lease("a", {100, 110});
  EXPECT_NE(Judge().find("[100, 110) of a: the host did not own"), std::string::npos);
}

TEST_F(WorkerIdOracleTest, FindsAWindowThatWasNotOver) {
  Take("a", std::nullopt, 0);
  Lease("a", {0, 100});
  Take("b", "a", 99);
  EXPECT_NE(Judge().find("was not over for b"), std::string::npos);
}

TEST_F(WorkerIdOracleTest, KnowsThatAWindowThatWentBackWholeWasNotUsed) {
  Take("a", std::nullopt, 0);
  Lease("a", {0, 100});
  Lease("a", {100, 200});
  Return(2, 100);
  Return(1, 40);
  Take("b", "a", 40);
  EXPECT_EQ(Judge(), "");
}

TEST_F(WorkerIdOracleTest, FindsTwoTakersOfOneWorkerId) {
  Take("a", std::nullopt, 0);
  Take("b", std::nullopt, 0);
  EXPECT_NE(Judge().find("lost it 2 times"), std::string::npos);
}

TEST_F(WorkerIdOracleTest, FindsALeaseThatTheJournalLacks) {
  Take("a", std::nullopt, 0);
  Lease("a", {0, 100});
  journal_.clear();
  EXPECT_NE(Judge().find("1 leases are not in the journal"), std::string::npos);
}

}  // namespace
}  // namespace idd::daemon

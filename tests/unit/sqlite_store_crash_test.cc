// SPDX-License-Identifier: Apache-2.0
//
// The SQLite allocator with processes that die at every step. Real files and real processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sqlite_test_support.h"
#include "store/sqlite/sqlite_store.h"
#include "support/child_exit.h"

namespace idd::daemon {
namespace {

using shm::IdRange;

class SqliteStoreCrashTest : public SqliteStoreTest {};

struct CrashPoint {
  const char* name;
  bool committed;
};

void PrintTo(const CrashPoint& point, std::ostream* out) { *out << point.name; }

class CrashPointTest : public SqliteStoreCrashTest,
                       public ::testing::WithParamInterface<CrashPoint> {
 protected:
  static constexpr int kDied = 42;

  // Host a's process runs `act` and dies at the point.
  void DieAt(const std::function<void(SqliteStore&)>& act) const {
    const int status = InChild([&] {
      const auto store = OpenStore("a", [](const char* point) {
        if (std::strcmp(point, GetParam().name) == 0) ::_exit(kDied);
      });
      act(*store);
      return 0;
    });
    ASSERT_EQ(status, kDied) << "the point was not passed";
  }
};

class LeaseCrashTest : public CrashPointTest {};

TEST_P(LeaseCrashTest, LeavesAJournalledLeaseOrNothing) {
  Take(*OpenWithOrders("a"), Request(1));
  DieAt([](SqliteStore& store) { Take(store, Request(2, 1001)); });
  const bool committed = GetParam().committed;
  EXPECT_EQ(MaxId(), committed ? "2001" : "1001");
  EXPECT_EQ(Journal(), committed ? "active 0/0/0,active 0/0/0" : "active 0/0/0");
  const auto store = OpenStore("a");
  EXPECT_EQ(store->AbandonActive({}).value().size(), committed ? 2U : 1U);
  EXPECT_EQ(Take(*store, Request(3, 1001)).first, committed ? 2001U : 1001U);
}

INSTANTIATE_TEST_SUITE_P(At, LeaseCrashTest,
                         ::testing::Values(CrashPoint{"lease.begun", false},
                                           CrashPoint{"lease.advanced", false},
                                           CrashPoint{"lease.journalled", false},
                                           CrashPoint{"change.committed", true},
                                           CrashPoint{"lease.committed", true}));

class TakeBackCrashTest : public CrashPointTest {};

TEST_P(TakeBackCrashTest, LeavesTheRangeListedOrLeased) {
  {
    const auto a = OpenWithLease("a");
    Take(*OpenStore("b"), Request(2));
    Return(*a, 1, 400, ReturnOutcome::kListed);
  }
  DieAt([](SqliteStore& store) { Take(store, Request(3, 401)); });
  const bool committed = GetParam().committed;
  EXPECT_EQ(MaxId(), "2001");
  EXPECT_EQ(Sql(path_, "SELECT base FROM idd_returned"), committed ? "" : "401");
  const auto next = OpenStore("a")->TakeLease(Request(4, 401));
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next.value().ids.first, committed ? 2001U : 401U);
  EXPECT_EQ(next.value().from_returned, !committed);
}

INSTANTIATE_TEST_SUITE_P(At, TakeBackCrashTest,
                         ::testing::Values(CrashPoint{"lease.begun", false},
                                           CrashPoint{"lease.taken_back", false},
                                           CrashPoint{"lease.journalled", false},
                                           CrashPoint{"lease.committed", true}));

class ReturnCrashTest : public CrashPointTest {};

TEST_P(ReturnCrashTest, LeavesTheTailWithTheLeaseOrWithTheAllocator) {
  const bool committed = GetParam().committed;
  Take(*OpenWithOrders("a"), Request(1));
  DieAt([](SqliteStore& store) { Return(store, 1, 400, ReturnOutcome::kLowered); });
  EXPECT_EQ(MaxId(), committed ? "401" : "1001");
  EXPECT_EQ(Journal(), committed ? "returned 400/600/0" : "active 0/0/0");
  // If the mark is lowered first, as high_water.h requires, neither case has a gap or an alarm.
  const auto lease = OpenStore("a")->TakeLease(Request(2, 401));
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease.value().ids.first, committed ? 401U : 1001U);
  EXPECT_FALSE(lease.value().lifted_from.has_value());
}

TEST_P(ReturnCrashTest, LeavesTheTailWithTheLeaseOrInTheList) {
  const bool committed = GetParam().committed;
  Take(*OpenWithOrders("a"), Request(1));
  Take(*OpenStore("b"), Request(2));
  DieAt([](SqliteStore& store) { Return(store, 1, 400, ReturnOutcome::kListed); });
  EXPECT_EQ(MaxId(), "2001");
  EXPECT_EQ(Sql(path_, "SELECT base FROM idd_returned"), committed ? "401" : "");
  EXPECT_EQ(Journal(), committed ? "returned 400/600/0,active 0/0/0" : "active 0/0/0,active 0/0/0");
}

INSTANTIATE_TEST_SUITE_P(At, ReturnCrashTest,
                         ::testing::Values(CrashPoint{"return.given_back", false},
                                           CrashPoint{"return.journalled", false},
                                           CrashPoint{"change.committed", true},
                                           CrashPoint{"return.committed", true}));

// It was announced to the witness, and rolled back; then the tables are edited to show a lease.
TEST_F(SqliteStoreCrashTest, HandBackThatWasOnlyAnnouncedLowersNothing) {
  constexpr int kDied = 42;
  Take(*OpenWithOrders("a"), Request(1));
  ASSERT_EQ(InChild([&] {
              const auto store = OpenStore("a", [](const char* point) {
                if (std::strcmp(point, "return.announced") == 0) ::_exit(kDied);
              });
              Return(*store, 1, 400, ReturnOutcome::kLowered);
              return 0;
            }),
            kDied);
  Sql(path_, "DELETE FROM idd_lease; UPDATE leaf_alloc SET max_id = 401");
  EXPECT_EQ(Take(*OpenStore("a"), Request(2)), (IdRange{1001, 2001}));
}

class CloseCrashTest : public CrashPointTest {};

TEST_P(CloseCrashTest, ClosesAllLeasesOrNone) {
  {
    const auto store = OpenWithLease("a");
    Take(*store, Request(2));
  }
  DieAt([](SqliteStore& store) {
    const std::string point = GetParam().name;
    if (point.starts_with("abandon")) static_cast<void>(store.AbandonActive({}));
    if (point.starts_with("delete")) static_cast<void>(store.DeleteTag("orders"));
    static_cast<void>(store.CloseLeases(
        {Closure(1, LeaseState::kAbandoned, 0), Closure(2, LeaseState::kAbandoned, 0)}));
  });
  const bool is_delete = std::string(GetParam().name).starts_with("delete");
  EXPECT_EQ(Journal(), GetParam().committed && !is_delete ? "abandoned 0/0/1000,abandoned 0/0/1000"
                                                          : "active 0/0/0,active 0/0/0");
  const bool deleted = is_delete && GetParam().committed;
  EXPECT_EQ(MaxId(), deleted ? "" : "2001");
  EXPECT_EQ(Sql(path_, "SELECT max_id FROM idd_deleted_tag"), deleted ? "2001" : "");
}

INSTANTIATE_TEST_SUITE_P(At, CloseCrashTest,
                         ::testing::Values(CrashPoint{"close.journalled", false},
                                           CrashPoint{"close.committed", true},
                                           CrashPoint{"abandon.journalled", false},
                                           CrashPoint{"abandon.committed", true},
                                           CrashPoint{"delete.entombed", false},
                                           CrashPoint{"delete.committed", true}));

class JournalCrashTest : public CrashPointTest {};

// Each of three rounds settles or folds a batch; the process dies in one of them.
TEST_P(JournalCrashTest, LeavesTheSumsAsTheyWere) {
  {
    const auto store = OpenWithOrders("a");
    for (std::uint64_t token = 1; token <= 6; ++token) Take(*store, Request(token));
    for (std::uint64_t token = 1; token <= 5; ++token) {
      ASSERT_TRUE(store->CloseLeases({Closure(token, LeaseState::kAbandoned, token * 10)}).ok());
    }
  }
  Execute(
      "UPDATE idd_lease SET leased_at = '2020-01-15 00:00:00', closed_at = '2020-01-15 00:00:00'"
      " WHERE state <> 'active'");
  const auto sums = [this] {
    const auto all = OpenStore("b")->SumLeases("orders");
    EXPECT_TRUE(all.ok()) << all.status().message();
    const LeaseSums& a = all.value().at(0);
    return std::to_string(a.active_ids) + " " + std::to_string(a.ended.leases) + " " +
           std::to_string(a.ended.claimed) + " " + std::to_string(a.ended.abandoned);
  };
  const auto keep = [](SqliteStore& store) {
    JournalOrder order{
        .settle_after = std::chrono::seconds(0), .retention = std::chrono::hours(24), .rows = 3};
    for (int i = 0; i < 4; ++i) {
      const auto kept = store.journal()->KeepJournal(order);
      if (!kept.ok()) return;
      order.settled_to = kept.value().settled_to;
      order.folded_to = kept.value().folded_to;
    }
  };
  EXPECT_EQ(sums(), "1000 5 150 4850");
  DieAt(keep);
  EXPECT_EQ(sums(), "1000 5 150 4850");
  const auto store = OpenStore("a");
  EXPECT_TRUE(store->CheckSums("orders").value().empty());
  keep(*store);
  EXPECT_EQ(sums(), "1000 5 150 4850");
  EXPECT_TRUE(store->CheckSums("orders").value().empty());
  EXPECT_EQ(Sql(path_, "SELECT COUNT(*) FROM idd_ended"), "1");
}

INSTANTIATE_TEST_SUITE_P(At, JournalCrashTest,
                         ::testing::Values(CrashPoint{"journal.settled", false},
                                           CrashPoint{"journal.folded", false},
                                           CrashPoint{"change.committed", true},
                                           CrashPoint{"journal.committed", true}));

class WorkerCrashTest : public CrashPointTest {};

TEST_P(WorkerCrashTest, LeavesTheWorkerIdWithItsCounterOrNothing) {
  const WorkerChoice choice{
      .tag = "ids", .worker = 3, .owner = {}, .at_most = 1000, .last_number = 1'000'000};
  DieAt([&choice](SqliteStore& store) { static_cast<void>(store.TakeWorker(choice)); });
  const bool committed = GetParam().committed;
  EXPECT_EQ(Sql(path_, "SELECT worker||' '||host FROM idd_worker"), committed ? "3 a" : "");
  EXPECT_EQ(Sql(path_, "SELECT biz_tag FROM leaf_alloc"), committed ? "ids#3" : "");
  EXPECT_EQ(OpenStore("b")->TakeWorker(choice).value(), !committed);
}

TEST_P(WorkerCrashTest, LeavesTheWorkerIdWithTheOldOwnerOrTheNewOne) {
  WorkerChoice choice{
      .tag = "ids", .worker = 3, .owner = {}, .at_most = 1000, .last_number = 1'000'000};
  ASSERT_TRUE(OpenStore("b")->TakeWorker(choice).value());
  choice.owner = "b";
  DieAt([&choice](SqliteStore& store) { static_cast<void>(store.TakeWorker(choice)); });
  LeaseRequest request = Request(1, 0, 100, "ids#3");
  request.is_of_worker = true;
  EXPECT_EQ(OpenStore("a")->TakeLease(request).ok(), GetParam().committed);
  EXPECT_EQ(OpenStore("b")->TakeLease(request).ok(), !GetParam().committed);
}

INSTANTIATE_TEST_SUITE_P(At, WorkerCrashTest,
                         ::testing::Values(CrashPoint{"worker.taken", false},
                                           CrashPoint{"change.committed", true},
                                           CrashPoint{"worker.committed", true}));

// The ids that a process was given or used, as it reports them on a pipe: whole records, whatever
// happens.
void Report(int fd, IdRange ids) {
  if (!ids.empty() && ::write(fd, &ids, sizeof ids) != sizeof ids) ::_exit(1);
}

std::vector<IdRange> ReadReports(int fd) {
  std::vector<IdRange> ranges;
  IdRange range;
  while (::read(fd, &range, sizeof range) == sizeof range) ranges.push_back(range);
  return ranges;
}

// Leases, uses some ids, hands back or closes, in turn; reports the used ids before it closes.
int LeaseAndReturn(SqliteStore& store, std::uint64_t worker, std::uint64_t leases, int fd) {
  std::uint64_t mark = 0;
  for (std::uint64_t i = 0; i < leases; ++i) {
    const Result<Lease> lease = WhenUnlocked(
        [&] { return store.TakeLease(Request(worker * 1000000 + i, mark, 10 + i % 5)); });
    if (!lease.ok()) return 1;
    const IdRange ids = lease.value().ids;
    const std::uint64_t claimed = i % 3 == 0 ? ids.size() : i % 3 == 1 ? 3 : 0;
    Report(fd, {ids.first, ids.first + claimed});
    if (claimed > 0) mark = std::max(mark, ids.first + claimed);
    LeaseClosure closure = {lease.value().token, "orders", LeaseState::kExhausted, claimed};
    if (claimed == ids.size()) {
      if (!WhenUnlocked([&] { return store.CloseLeases({closure}); }).ok()) return 2;
    } else {
      closure.state = LeaseState::kReturned;
      if (!WhenUnlocked([&] { return store.ReturnTail(closure); }).ok()) return 3;
    }
  }
  return 0;
}

// SQLite's handles do not survive fork(), so each child opens its own.
pid_t StartWorker(const std::function<int(int)>& work, int* read_end) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work(ends[1]));
  ::close(ends[1]);
  ::fcntl(ends[0], F_SETPIPE_SZ, 1 << 20);
  *read_end = ends[0];
  return child;
}

TEST_F(SqliteStoreCrashTest, ProcessesThatLeaseAndReturnNeverUseAnIdTwice) {
  constexpr std::uint64_t kWorkers = 4;
  CreateOrders(*OpenStore("setup"));
  std::vector<std::pair<pid_t, int>> workers;
  for (std::uint64_t w = 1; w <= kWorkers; ++w) {
    int fd = -1;
    const pid_t child = StartWorker(
        [&, w](int out) {
          const auto store = OpenStore("host" + std::to_string(w));
          return LeaseAndReturn(*store, w, 150, out);
        },
        &fd);
    workers.emplace_back(child, fd);
  }
  std::vector<IdRange> used;
  for (const auto& [child, fd] : workers) {
    const std::vector<IdRange> part = ReadReports(fd);
    used.insert(used.end(), part.begin(), part.end());
    ::close(fd);
    EXPECT_EQ(harness::ExitOf(child), 0);
  }
  EXPECT_EQ(used.size(), kWorkers * 100);
  ExpectDisjoint(used);
  // Every id below max_id is used, or listed as returned.
  EXPECT_EQ(Sql(path_,
                "SELECT (SELECT max_id - 1 FROM leaf_alloc) -"
                " (SELECT sum(claimed) FROM idd_lease) -"
                " (SELECT coalesce(sum(\"limit\" - base), 0) FROM idd_returned)"),
            "0");
}

TEST_F(SqliteStoreCrashTest, ProcessesKilledAtAnyMomentNeverMakeAnIdUsedTwice) {
  constexpr int kKills = 12;
  CreateOrders(*OpenStore("setup"));
  std::vector<IdRange> used;
  for (int round = 1; round <= kKills; ++round) {
    int fd = -1;
    const pid_t child = StartWorker(
        [&](int out) {
          const auto store = OpenStore("a");
          // A host that lost its state dir has mark 0: the allocator alone must prevent duplicates.
          return LeaseAndReturn(*store, static_cast<std::uint64_t>(round), 100000, out);
        },
        &fd);
    if (round == kKills && used.empty()) {  // a busy machine let none of them begin
      pollfd report{.fd = fd, .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&report, 1, 60'000), 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 7 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::vector<IdRange> part = ReadReports(fd);
    used.insert(used.end(), part.begin(), part.end());
    ::close(fd);
    const auto store = OpenStore("a");
    EXPECT_LE(store->AbandonActive({}).value().size(), 1U);
  }
  EXPECT_GT(used.size(), 0U);
  ExpectDisjoint(used);
  EXPECT_EQ(Sql(path_, "PRAGMA integrity_check"), "ok");
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// The SQLite allocator on broken, foreign and replaced files, full disks, failed syncs, foreign
// locks, and with processes that die at every step. Real files and real processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sqlite_test_support.h"
#include "store/sqlite/sqlite_store.h"

namespace {
std::atomic<bool> g_sync_fails{false};

int SyncOrFail(long number, int fd) {
  if (!g_sync_fails.load()) return static_cast<int>(::syscall(number, fd));
  errno = EIO;
  return -1;
}
}  // namespace

// libsqlite3 finds these before libc's: the disk that fails to sync.
extern "C" __attribute__((visibility("default"))) int fsync(int fd) {
  return SyncOrFail(SYS_fsync, fd);
}
extern "C" __attribute__((visibility("default"))) int fdatasync(int fd) {
  return SyncOrFail(SYS_fdatasync, fd);
}

namespace idd::daemon {
namespace {

using shm::IdRange;

class SqliteStoreFaultTest : public SqliteStoreTest {
 protected:
  // Open() answers kIncompatible with these words, and the file is byte for byte what it was.
  void ExpectRefusedUntouched(const std::string& words) const {
    const std::string before = ReadFile(path_);
    const Status status = NewStore("a")->Open();
    EXPECT_EQ(status.code(), Code::kIncompatible) << status.message();
    EXPECT_TRUE(Says(status, path_) && Says(status, words)) << status.message();
    EXPECT_EQ(ReadFile(path_), before) << "a refused file was changed";
  }
  static bool Says(const Status& status, const std::string& words) {
    return status.message().find(words) != std::string::npos;
  }
};

// --- opening

TEST_F(SqliteStoreFaultTest, NewFileIsDurableIdentifiedAndKeepsItsIncarnation) {
  auto store = OpenStore("a");
  const auto incarnation = store->Incarnation();
  ASSERT_TRUE(incarnation.ok());
  EXPECT_EQ(incarnation.value().size(), 32U);
  EXPECT_EQ(Sql(path_, "PRAGMA journal_mode; PRAGMA application_id; PRAGMA user_version"),
            "wal,1229210689,1");
  store.reset();
  store = OpenStore("b");
  EXPECT_EQ(store->Incarnation().value(), incarnation.value());
  ASSERT_TRUE(store->Open().ok());
  EXPECT_EQ(store->Incarnation().value(), incarnation.value());
}

TEST_F(SqliteStoreFaultTest, ZeroLengthFileIsNew) {
  WriteFile(path_, "");
  EXPECT_EQ(Take(*OpenWithOrders("a"), Request(1)), (IdRange{1, 1001}));
}

TEST_F(SqliteStoreFaultTest, HostsThatStartAtOnceMakeOneDataSet) {
  std::vector<std::thread> threads;
  std::vector<std::string> incarnations(4);
  for (std::size_t i = 0; i < incarnations.size(); ++i) {
    threads.emplace_back(
        [&, i] { incarnations[i] = OpenStore("host" + std::to_string(i))->Incarnation().value(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& incarnation : incarnations) EXPECT_EQ(incarnation, incarnations[0]);
}

TEST_F(SqliteStoreFaultTest, MissingDirectoryIsUnavailableAndNotMade) {
  SqliteStore store({dir_.File("no/such/idd.db"), "a", {}});
  const Status status = store.Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, "does not exist")) << status.message();
  EXPECT_FALSE(std::filesystem::exists(dir_.File("no")));
}

TEST_F(SqliteStoreFaultTest, DirectoryInPlaceOfTheFileIsUnavailable) {
  SqliteStore store({dir_.path(), "a", {}});
  EXPECT_EQ(store.Open().code(), Code::kUnavailable);
}

TEST_F(SqliteStoreFaultTest, StoreThatIsNotOpenIsUnavailable) {
  const auto store = NewStore("a");
  EXPECT_EQ(store->Incarnation().status().code(), Code::kUnavailable);
  EXPECT_EQ(store->TakeLease(Request(1)).status().code(), Code::kUnavailable);
  EXPECT_EQ(store->CloseLeases({}).code(), Code::kUnavailable);
  EXPECT_EQ(store->AbandonActive({}).status().code(), Code::kUnavailable);
  EXPECT_EQ(store->ListLeases({}).status().code(), Code::kUnavailable);
  EXPECT_EQ(store->DeleteTag("orders").code(), Code::kUnavailable);
}

TEST_F(SqliteStoreFaultTest, FileThatIsNoDatabaseIsRefused) {
  for (const std::string& bytes :
       {std::string("not a db"), std::string(8192, '\0'), std::string(5000, 'x')}) {
    WriteFile(path_, bytes);
    ExpectRefusedUntouched("does not overwrite it");
  }
}

TEST_F(SqliteStoreFaultTest, DatabaseWithASpoiledHeaderIsRefused) {
  Take(*OpenWithOrders("a"), Request(1));
  std::string bytes = ReadFile(path_);
  bytes.replace(0, 16, 16, '\xff');
  WriteFile(path_, bytes);
  ExpectRefusedUntouched("does not overwrite it");
}

TEST_F(SqliteStoreFaultTest, DatabaseWithSpoiledPagesLeasesNothing) {
  Take(*OpenWithOrders("a"), Request(1));
  std::string bytes = ReadFile(path_);
  bytes.replace(4096, bytes.size() - 4096, bytes.size() - 4096, '\xa5');
  WriteFile(path_, bytes);
  const auto store = NewStore("a");
  Status status = store->Open();
  if (status.ok()) status = store->TakeLease(Request(2)).status();
  EXPECT_EQ(status.code(), Code::kIncompatible) << status.message();
}

TEST_F(SqliteStoreFaultTest, NewerSchemaIsRefusedNamingBothVersions) {
  OpenStore("a").reset();
  Sql(path_, "PRAGMA user_version = 7");
  ExpectRefusedUntouched("schema version 7, this idd knows version 1");
}

TEST_F(SqliteStoreFaultTest, DatabaseOfAnotherProgramIsRefused) {
  Sql(path_, "PRAGMA application_id = 252006674; CREATE TABLE fossil(x)");
  ExpectRefusedUntouched("252006674");
  std::filesystem::remove(path_);
  Sql(path_, "PRAGMA user_version = 12; CREATE TABLE browser(x)");
  ExpectRefusedUntouched("user_version 12");
  std::filesystem::remove(path_);
  Sql(path_, "CREATE TABLE idd_lease(x)");
  ExpectRefusedUntouched("application_id 0");
}

TEST_F(SqliteStoreFaultTest, UnmarkedDatabaseWithoutALeafTableIsSomebodyElses) {
  Sql(path_, "CREATE TABLE customers(x)");
  ExpectRefusedUntouched("a database of something else");
  Sql(path_, "DROP TABLE customers");
  EXPECT_NE(OpenStore("a"), nullptr) << "an empty one is nobody's";
}

TEST_F(SqliteStoreFaultTest, OwnDatabaseWithoutATableIsRefused) {
  OpenStore("a").reset();
  Sql(path_, "DROP TABLE idd_deleted_tag");
  ExpectRefusedUntouched("lacks some of its tables");
}

TEST_F(SqliteStoreFaultTest, LeafTableWithoutItsColumnsOrItsKeyIsRefused) {
  Sql(path_, "CREATE TABLE leaf_alloc(biz_tag TEXT PRIMARY KEY, max_id INTEGER, step INTEGER)");
  ExpectRefusedUntouched("description");
  std::filesystem::remove(path_);
  Sql(path_,
      "CREATE TABLE leaf_alloc(biz_tag TEXT, max_id INTEGER, step INTEGER,"
      " description TEXT, update_time TEXT)");
  ExpectRefusedUntouched("unique");
}

// --- files that go away

TEST_F(SqliteStoreFaultTest, UnlinkedFileLeasesNothingUntilOpenedAgain) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  std::filesystem::remove(path_);
  const Status status = store->TakeLease(Request(2, 1001)).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, "replaced")) << status.message();
  EXPECT_EQ(store->CloseLeases({}).code(), Code::kUnavailable);
  EXPECT_EQ(store->CheckCurrent().code(), Code::kUnavailable);
}

// An empty one in its place would lease the same ids again.
TEST_F(SqliteStoreFaultTest, FileThatWentAwayIsNotMadeAnew) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  std::filesystem::rename(path_, dir_.File("moved.db"));
  Status status = store->Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, path_) && Says(status, "is missing; restore it")) << status.message();
  EXPECT_FALSE(std::filesystem::exists(path_));
  WriteFile(path_, "");
  status = store->Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, "is missing; restore it")) << status.message();
  EXPECT_EQ(ReadFile(path_), "");
  EXPECT_EQ(store->generation(), 1U);
  std::filesystem::rename(dir_.File("moved.db"), path_);
  status = store->Open();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(store->generation(), 2U) << "whatever it is that came back";
  EXPECT_EQ(Take(*store, Request(2, 1001)), (IdRange{1001, 2001}));
}

TEST_F(SqliteStoreFaultTest, NothingIsCreatedWhereADatabaseIsKnown) {
  const auto store = NewStore("a");
  store->RequireExisting();
  EXPECT_EQ(store->Open().code(), Code::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(path_));
  // Neither are idd's tables added to Leaf's: which ids were leased from them is not known.
  Sql(path_,
      "CREATE TABLE leaf_alloc(biz_tag TEXT PRIMARY KEY, max_id INTEGER, step INTEGER,"
      " description TEXT, update_time TEXT)");
  const std::string before = ReadFile(path_);
  EXPECT_EQ(store->Open().code(), Code::kUnavailable);
  EXPECT_EQ(ReadFile(path_), before);
}

TEST_F(SqliteStoreFaultTest, ReplacedFileLeasesNothingUntilOpenedAgain) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  {
    SqliteStore other({dir_.File("other.db"), "b", {}});
    ASSERT_TRUE(other.Open().ok());
    CreateOrders(other);
  }
  std::filesystem::rename(dir_.File("other.db"), path_);
  EXPECT_EQ(store->TakeLease(Request(2, 1001)).status().code(), Code::kUnavailable);
  EXPECT_EQ(store->CheckCurrent().code(), Code::kUnavailable);
  ASSERT_TRUE(store->Open().ok());
  EXPECT_TRUE(store->CheckCurrent().ok());
  EXPECT_EQ(store->generation(), 2U);
  ASSERT_TRUE(store->Open().ok());
  EXPECT_EQ(store->generation(), 2U) << "the same file";
  EXPECT_EQ(Take(*store, Request(2, 1001)), (IdRange{1001, 2001}));
}

TEST_F(SqliteStoreFaultTest, LinkThatPointsElsewhereCountsAsReplaced) {
  for (const char* name : {"one.db", "two.db"}) {
    SqliteStore store({dir_.File(name), "a", {}});
    ASSERT_TRUE(store.Open().ok());
    CreateOrders(store);
  }
  std::filesystem::create_symlink(dir_.File("one.db"), path_);
  const auto store = OpenStore("a");
  Take(*store, Request(1));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(dir_.File("two.db"), path_);
  EXPECT_EQ(store->TakeLease(Request(2)).status().code(), Code::kUnavailable);
}

TEST_F(SqliteStoreFaultTest, FileReplacedInsideTheTransactionLosesTheRange) {
  bool replace = false;
  const auto store = OpenStore("a", [&](const char* point) {
    if (replace && std::strcmp(point, "lease.journalled") == 0) std::filesystem::remove(path_);
  });
  CreateOrders(*store);
  replace = true;
  EXPECT_EQ(store->TakeLease(Request(1)).status().code(), Code::kUnavailable);
}

// --- disks and locks

// No file of this process is written beyond so many bytes: what a full disk or a quota does, and
// what can be arranged without a file system of its own, for root as well.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) std::abort();
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(SqliteStoreFaultTest, FullDiskIsUnavailableAndLeasingGoesOnWhenThereIsRoom) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  std::vector<Status> refusals;
  {
    const FileSizeLimit full(1024);
    for (std::uint64_t token = 2; token < 5; ++token) {
      refusals.push_back(store->TakeLease(Request(token, 1001)).status());
      refusals.push_back(store->Open());
    }
  }
  for (const Status& status : refusals) {
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
  }
  ASSERT_TRUE(store->Open().ok());
  EXPECT_EQ(Take(*store, Request(9, 1001)), (IdRange{1001, 2001}));
  EXPECT_EQ(Journal(), "active 0/0/0,active 0/0/0");
}

TEST_F(SqliteStoreFaultTest, DiskTooFullForANewDatabaseIsUnavailableAndRecovers) {
  const auto store = NewStore("a");
  Status status;
  {
    const FileSizeLimit full(4096);
    status = store->Open();
  }
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
  ASSERT_TRUE(store->Open().ok());
  CreateOrders(*store);
  EXPECT_EQ(Take(*store, Request(1)), (IdRange{1, 1001}));
}

TEST_F(SqliteStoreFaultTest, LeaseWhoseCommitDidNotSyncIsNeverServed) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  g_sync_fails = true;
  const Status status = store->TakeLease(Request(2, 1001)).status();
  g_sync_fails = false;
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, "unknown")) << status.message();
  // Not before it was opened again.
  EXPECT_EQ(store->TakeLease(Request(3, 1001)).status().code(), Code::kUnavailable);
  ASSERT_TRUE(store->Open().ok());
  Take(*store, Request(4, 1001));
}

// The database has the lease, and the witness beside it could not be told.
TEST_F(SqliteStoreFaultTest, LeaseThatTheWitnessDoesNotHaveIsNeverServed) {
  bool fail = false;
  const auto store = OpenStore("a", [&](const char* point) {
    if (fail && std::strcmp(point, "change.committed") == 0) g_sync_fails = true;
  });
  CreateOrders(*store);
  Take(*store, Request(1));
  fail = true;
  const Status status = store->TakeLease(Request(2, 1001)).status();
  fail = g_sync_fails = false;
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, "its range is lost")) << status.message();
  ASSERT_TRUE(store->Open().ok());
  EXPECT_EQ(Journal(), "active 0/0/0,abandoned 0/0/1000");
  EXPECT_EQ(Take(*store, Request(3, 1001)), (IdRange{2001, 3001}));
}

// The frames of the failed COMMIT are in the log, and the machine stops before anybody writes over
// them: recovery finds the lease committed.
TEST_F(SqliteStoreFaultTest, LeaseFoundCommittedAfterAllIsAbandonedNotServed) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  g_sync_fails = true;
  EXPECT_EQ(store->TakeLease(Request(2, 1001)).status().code(), Code::kUnavailable);
  g_sync_fails = false;
  // What the next start after a power cut would find, put in the file's place.
  for (const char* suffix : {"", "-wal"}) {
    ASSERT_EQ(InChild([&] {
                std::filesystem::copy_file(path_ + suffix, dir_.File("copy") + suffix);
                return 0;
              }),
              0);
    std::filesystem::rename(dir_.File("copy") + suffix, path_ + suffix);
  }
  std::filesystem::remove(path_ + "-shm");
  ASSERT_TRUE(store->Open().ok());
  EXPECT_EQ(MaxId(), "2001") << "recovery did not find the frames: the case is not the one meant";
  EXPECT_EQ(Journal(), "active 0/0/0,abandoned 0/0/1000");
  EXPECT_EQ(Take(*store, Request(3, 1001)), (IdRange{2001, 3001}));
}

// Holds the write lock of a database in another process until destroyed.
class LockHolder {
 public:
  explicit LockHolder(const std::string& path) {
    int ready[2] = {-1, -1};
    if (::pipe(ready) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) {
      sqlite3* db = nullptr;
      sqlite3_open(path.c_str(), &db);
      const char done =
          sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK ? 'y' : 'n';
      if (::write(ready[1], &done, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char done = 0;
    holds_ = ::read(ready[0], &done, 1) == 1 && done == 'y';
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~LockHolder() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;
  [[nodiscard]] bool holds() const { return holds_; }

 private:
  pid_t child_ = -1;
  bool holds_ = false;
};

TEST_F(SqliteStoreFaultTest, ForeignLockIsUnavailableAfterTwoSecondsAndNothingIsLost) {
  const auto store = OpenWithOrders("a");
  Take(*store, Request(1));
  {
    const LockHolder holder(path_);
    ASSERT_TRUE(holder.holds());
    const auto start = std::chrono::steady_clock::now();
    const Status status = store->TakeLease(Request(2, 1001)).status();
    const auto waited = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_TRUE(Says(status, "another process")) << status.message();
    EXPECT_GE(waited, kSqliteBusyTimeout);
    EXPECT_LT(waited, std::chrono::seconds(60));
    EXPECT_TRUE(store->FindTag("orders").ok()) << "a reader waits for nobody";
  }
  // Busy is certain: it needs no Open().
  EXPECT_EQ(Take(*store, Request(3, 1001)), (IdRange{1001, 2001}));
  EXPECT_EQ(Journal(), "active 0/0/0,active 0/0/0");
}

// --- processes that die

struct CrashPoint {
  const char* name;
  bool committed;
};

void PrintTo(const CrashPoint& point, std::ostream* out) { *out << point.name; }

class CrashPointTest : public SqliteStoreFaultTest,
                       public ::testing::WithParamInterface<CrashPoint> {
 protected:
  static constexpr int kDied = 42;

  // Host a's process does `act` and dies at the point.
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
    const auto a = OpenWithOrders("a");
    Take(*a, Request(1));
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
  // With the mark lowered first, as high_water.h asks, neither way is there a gap or an alarm.
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
                         ::testing::Values(CrashPoint{"return.begun", false},
                                           CrashPoint{"return.given_back", false},
                                           CrashPoint{"return.journalled", false},
                                           CrashPoint{"change.committed", true},
                                           CrashPoint{"return.committed", true}));

// It was announced to the witness, and rolled back; then the tables are edited to say otherwise.
TEST_F(SqliteStoreFaultTest, HandBackThatWasOnlyAnnouncedLowersNothing) {
  constexpr int kDied = 42;
  Take(*OpenWithOrders("a"), Request(1));
  ASSERT_EQ(InChild([&] {
              const auto store = OpenStore("a", [](const char* point) {
                if (std::strcmp(point, "return.journalled") == 0) ::_exit(kDied);
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
    const auto store = OpenWithOrders("a");
    Take(*store, Request(1));
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

// What a process was given, or kept of it, as it reports on a pipe: whole records, whatever
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

// Leases, uses a part, hands back or closes, in turn; reports what was used, before it is closed.
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

// SQLite's handles do not survive fork(): each child opens its own.
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

TEST_F(SqliteStoreFaultTest, ProcessesThatLeaseAndReturnNeverUseAnIdTwice) {
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
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
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

TEST_F(SqliteStoreFaultTest, ProcessesKilledAtAnyMomentNeverMakeAnIdUsedTwice) {
  constexpr int kKills = 12;
  CreateOrders(*OpenStore("setup"));
  std::vector<IdRange> used;
  for (int round = 1; round <= kKills; ++round) {
    int fd = -1;
    const pid_t child = StartWorker(
        [&](int out) {
          const auto store = OpenStore("a");
          // The mark of a host that lost its state dir is 0: the allocator alone must hold.
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

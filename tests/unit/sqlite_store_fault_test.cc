// SPDX-License-Identifier: Apache-2.0
//
// The SQLite allocator on broken, foreign and replaced files, full disks, failed syncs and foreign
// locks. sqlite_store_crash_test.cc covers processes that die. Real files and real processes.
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
#include <set>
#include <string>
#include <system_error>
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

// The linker finds these before libc's: a disk that fails to sync.
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
  // Open() returns kIncompatible with these words, and the file is unchanged, byte for byte.
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

// Regression: it said only that the file was missing, as if it had been deleted.
TEST_F(SqliteStoreFaultTest, MissingDirectoryOfAKnownFileIsNamed) {
  std::filesystem::create_directory(dir_.File("mount"));
  SqliteStore store({dir_.File("mount/idd.db"), "a", {}});
  ASSERT_TRUE(store.Open().ok());
  std::filesystem::rename(dir_.File("mount"), dir_.File("moved"));
  const Status status = store.Open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, "directory '" + dir_.File("mount") + "' does not exist"))
      << status.message();
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

TEST_F(SqliteStoreFaultTest, UnmarkedDatabaseWithoutALeafTableIsForeign) {
  Sql(path_, "CREATE TABLE customers(x)");
  ExpectRefusedUntouched("a database of something else");
  Sql(path_, "DROP TABLE customers");
  EXPECT_NE(OpenStore("a"), nullptr) << "an empty file belongs to no program";
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

// --- files that disappear

TEST_F(SqliteStoreFaultTest, UnlinkedFileLeasesNothingUntilOpenedAgain) {
  const auto store = OpenWithLease("a");
  std::filesystem::remove(path_);
  const Status status = store->TakeLease(Request(2, 1001)).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, "replaced")) << status.message();
  EXPECT_EQ(store->CloseLeases({}).code(), Code::kUnavailable);
  EXPECT_EQ(store->CheckCurrent().code(), Code::kUnavailable);
}

// An empty file in its place would lease the same ids again.
TEST_F(SqliteStoreFaultTest, FileThatWasDeletedIsNotCreatedAgain) {
  const auto store = OpenWithLease("a");
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
  EXPECT_EQ(store->generation(), 2U) << "whatever file came back";
  EXPECT_EQ(Take(*store, Request(2, 1001)), (IdRange{1001, 2001}));
}

TEST_F(SqliteStoreFaultTest, NothingIsCreatedWhereADatabaseIsKnown) {
  const auto store = NewStore("a");
  store->RequireExisting();
  EXPECT_EQ(store->Open().code(), Code::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(path_));
  // Nor does idd add its tables to Leaf's: it cannot know which ids were leased from them.
  Sql(path_,
      "CREATE TABLE leaf_alloc(biz_tag TEXT PRIMARY KEY, max_id INTEGER, step INTEGER,"
      " description TEXT, update_time TEXT)");
  const std::string before = ReadFile(path_);
  EXPECT_EQ(store->Open().code(), Code::kUnavailable);
  EXPECT_EQ(ReadFile(path_), before);
}

// An operator has lost the file and wants a new one. The witness knows what all hosts were granted.
TEST_F(SqliteStoreFaultTest, NewFileThatAnOperatorWantsIsLiftedToTheWitness) {
  const auto store = OpenWithLease("a");
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + suffix);
  EXPECT_EQ(store->Open().code(), Code::kUnavailable);
  store->AllowNew();
  ASSERT_TRUE(store->Open().ok());
  EXPECT_EQ(store->FindTag("orders").status().code(), Code::kNoSuchTag);
  CreateOrders(*store);
  EXPECT_EQ(Take(*store, Request(2)).first, 1001U);
  std::filesystem::remove(path_);
  EXPECT_EQ(store->Open().code(), Code::kUnavailable) << "it is allowed once";
}

TEST_F(SqliteStoreFaultTest, ReplacedFileLeasesNothingUntilOpenedAgain) {
  const auto store = OpenWithLease("a");
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

// Limits the size of files that this process writes, as a full disk or a quota does. It needs no
// separate file system and also works for root.
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
  const auto store = OpenWithLease("a");
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

// A full or missing directory for temporary files must not stop idd, and neither should leases wait
// for such a file to be written.
TEST_F(SqliteStoreFaultTest, LargeBatchOfTheJournalWritesNoTemporaryFile) {
  constexpr std::size_t kLeases = 1000;  // more than SQLite keeps in memory by itself
  const auto open_files = [] {
    std::multiset<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the descriptor of the iteration itself
      files.insert(std::filesystem::read_symlink(entry.path(), gone).string());
    }
    return files;
  };
  std::multiset<std::string> before;
  int looks = 0;
  const auto store = OpenStore("a", [&](const char* point) {
    if (std::strcmp(point, "journal.settled") != 0 && std::strcmp(point, "journal.folded") != 0) {
      return;
    }
    EXPECT_EQ(open_files(), before);
    ++looks;
  });
  CreateOrders(*store);
  Execute(
      "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq <= " +
      std::to_string(kLeases) +
      ") INSERT INTO idd_lease(seq, token, biz_tag, host, base, \"limit\", state, claimed,"
      " leased_at, closed_at) SELECT seq, lower(hex(randomblob(16))), 'orders', 'a', seq, seq + 1,"
      " 'exhausted', 1, '2020-01-15 00:00:00', '2020-01-15 00:00:01' FROM n");
  JournalOrder order{.settle_after = std::chrono::seconds(0), .rows = 2 * kLeases};
  before = open_files();
  auto kept = store->journal()->KeepJournal(order);
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_EQ(kept.value().settled, kLeases);
  order.settled_to = kept.value().settled_to;
  order.retention = std::chrono::hours(24);
  kept = store->journal()->KeepJournal(order);
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_EQ(kept.value().folded, kLeases - 1);
  EXPECT_EQ(looks, 2);
}

TEST_F(SqliteStoreFaultTest, LeaseWhoseCommitDidNotSyncIsNeverServed) {
  const auto store = OpenWithLease("a");
  g_sync_fails = true;
  const Status status = store->TakeLease(Request(2, 1001)).status();
  g_sync_fails = false;
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(Says(status, "unknown")) << status.message();
  // Nothing is leased before the store is opened again.
  EXPECT_EQ(store->TakeLease(Request(3, 1001)).status().code(), Code::kUnavailable);
  ASSERT_TRUE(store->Open().ok());
  Take(*store, Request(4, 1001));
}

// The database has the lease, but writing it to the witness failed.
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

// The frames of the failed COMMIT are in the log, and the machine stops before another process
// overwrites them: recovery finds the lease committed.
TEST_F(SqliteStoreFaultTest, LeaseFoundCommittedAfterAllIsAbandonedNotServed) {
  const auto store = OpenWithLease("a");
  g_sync_fails = true;
  EXPECT_EQ(store->TakeLease(Request(2, 1001)).status().code(), Code::kUnavailable);
  g_sync_fails = false;
  // Restores the file that the next start after a power cut would find.
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
  const auto store = OpenWithLease("a");
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
    EXPECT_TRUE(store->FindTag("orders").ok()) << "a reader must not wait";
  }
  // After kBusy it is certain that nothing was done, so Open() is not needed.
  EXPECT_EQ(Take(*store, Request(3, 1001)), (IdRange{1001, 2001}));
  EXPECT_EQ(Journal(), "active 0/0/0,active 0/0/0");
}

}  // namespace
}  // namespace idd::daemon

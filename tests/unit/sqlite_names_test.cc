// SPDX-License-Identifier: Apache-2.0
//
// One SQLite file under two names. Each name has a -wal, a -shm and a witness of its own, so two
// hosts on two names leased the same ids: 20,000 of 42,010. Real files; a host that uses another
// name is a process of its own, because SQLite knows a file by its inode within a process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "idd/base/scoped_fd.h"
#include "sqlite_test_support.h"
#include "store/sqlite/sqlite_store.h"

namespace idd::daemon {
namespace {

using shm::IdRange;

class SqliteNamesTest : public SqliteStoreTest {
 protected:
  void SetUp() override { std::filesystem::create_directory(dir_.File("other")); }

  // Another process opens the file by `path`; "" if it succeeds, else why not.
  [[nodiscard]] std::string WhyNot(const std::string& path) const {
    const std::string reason = dir_.File("reason");
    EXPECT_EQ(InChild([&] {
                SqliteStore store({path, "b", {}});
                const Status status = store.Open();
                WriteFile(reason, status.message());
                return status.ok() || status.code() == Code::kUnavailable ? 0 : 1;
              }),
              0)
        << ReadFile(reason);
    return ReadFile(reason);
  }
  static bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  void Move(const std::string& suffix) const {
    std::filesystem::rename(path_ + suffix, other_ + suffix);
  }
  // A host leases 1 to 1000, or more, and is killed: its leases are in the log alone.
  void LeaseAndDie(std::uint64_t token = 1) const {
    ASSERT_EQ(InChild([&] {
                SqliteStore store({path_, "a", {}});
                if (!store.Open().ok()) return 1;
                NewTag orders;
                orders.tag = "orders";
                static_cast<void>(store.CreateTag(orders));  // the second time, it is there
                ::_exit(store.TakeLease(Request(token)).ok() ? 0 : 2);  // closes nothing
              }),
              0);
    ASSERT_TRUE(std::filesystem::file_size(path_ + "-wal") > 0);
  }

  const std::string other_ = dir_.File("other") + "/other.db";
};

TEST_F(SqliteNamesTest, FileWithAHardLinkIsRefusedByEitherNameUntilOneIsRemoved) {
  const auto a = OpenWithOrders("a");
  EXPECT_EQ(Take(*a, Request(1)), (IdRange{1, 1001}));
  std::filesystem::create_hard_link(path_, other_);
  EXPECT_EQ(a->CheckCurrent().code(), Code::kUnavailable);
  const Status refused = a->TakeLease(Request(2, 1001)).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_TRUE(Has(refused.message(), "has 2 names (hard links)")) << refused.message();
  EXPECT_TRUE(Has(a->Open().message(), "has 2 names"));
  EXPECT_TRUE(Has(a->OpenToRead().message(), "has 2 names"));
  EXPECT_TRUE(Has(WhyNot(path_), "has 2 names"));
  EXPECT_TRUE(Has(WhyNot(other_), "has 2 names"));
  std::filesystem::remove(other_);
  ASSERT_TRUE(a->Open().ok());
  EXPECT_EQ(Take(*a, Request(3, 1001)), (IdRange{1001, 2001}));
}

TEST_F(SqliteNamesTest, LeaseIsNotAnsweredIfTheFileGotANameMeanwhile) {
  const auto first = OpenWithOrders("b");
  const auto a = OpenStore("a", [this](const char* point) {
    const bool is_advanced = std::string(point) == "lease.advanced";
    if (is_advanced) std::filesystem::create_hard_link(path_, other_);
  });
  const Status lost = a->TakeLease(Request(1)).status();
  EXPECT_EQ(lost.code(), Code::kUnavailable);
  EXPECT_TRUE(Has(lost.message(), "outcome of a lease")) << lost.message();
}

// It had a second name, and the first one was removed.
TEST_F(SqliteNamesTest, RenamedFileIsRefusedWhileItsFirstNameIsInUse) {
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const ScopedFd ready_read(ready[0]);
  const ScopedFd ready_write(ready[1]);
  const pid_t user = ::fork();
  if (user == 0) {
    const auto a = OpenWithOrders("a");
    if (!a->TakeLease(Request(1)).ok() || ::write(ready_write.get(), "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  EXPECT_EQ(::read(ready_read.get(), &byte, 1), 1);
  std::filesystem::create_hard_link(path_, other_);
  std::filesystem::remove(path_);
  const std::string reason = WhyNot(other_);
  EXPECT_TRUE(Has(reason, "was renamed: as '" + path_)) << reason;
  EXPECT_EQ(::kill(user, SIGKILL), 0);
  EXPECT_EQ(::waitpid(user, nullptr, 0), user);
  EXPECT_TRUE(Has(WhyNot(other_), "was renamed"));
  std::filesystem::rename(other_, path_);
  const auto b = OpenStore("b");
  EXPECT_EQ(Take(*b, Request(2)), (IdRange{1001, 2001}));
}

TEST_F(SqliteNamesTest, RenamedFileIsRefusedWithoutTheLogOfAKilledHost) {
  LeaseAndDie();
  Move("");
  EXPECT_TRUE(Has(WhyNot(other_), "was renamed"));
  EXPECT_TRUE(Has(WhyNot(other_), "was renamed")) << "the second time as well";
  Move("-wal");
  Move(".witness");
  SqliteStore moved({other_, "b", {}});
  ASSERT_TRUE(moved.Open().ok());
  EXPECT_EQ(Take(moved, Request(2)), (IdRange{1001, 2001}));
}

TEST_F(SqliteNamesTest, RenamedFileIsRefusedBesideAnOlderWitness) {
  LeaseAndDie();
  WriteFile(other_ + ".witness", ReadFile(path_ + ".witness"));
  LeaseAndDie(2);
  Move("");
  EXPECT_TRUE(Has(WhyNot(other_), "was renamed"));
}

TEST_F(SqliteNamesTest, FileThatWasRenamedWithItsWitnessIsServed) {
  {
    const auto a = OpenWithOrders("a");
    EXPECT_EQ(Take(*a, Request(1)), (IdRange{1, 1001}));
  }
  Move("");
  Move(".witness");
  {
    SqliteStore moved({other_, "b", {}});
    ASSERT_TRUE(moved.Open().ok());
    EXPECT_FALSE(moved.started_recently());
    EXPECT_EQ(Take(moved, Request(2)), (IdRange{1001, 2001}));
  }
  // It was closed, so all leases are in it.
  std::filesystem::rename(other_, path_);
  EXPECT_EQ(WhyNot(path_), "");
}

TEST_F(SqliteNamesTest, RenamedFileIsRefusedWhereItsLastPlaceCannotBeSeen) {
  const std::string first = dir_.File("first");
  std::filesystem::create_directory(first);
  const std::string path = first + "/idd.db";
  EXPECT_EQ(WhyNot(path), "");
  std::filesystem::rename(path, other_);
  std::filesystem::rename(first, dir_.File("elsewhere"));
  EXPECT_TRUE(Has(WhyNot(other_), "was renamed: as '" + path));
}

// Nothing else can be done where the witness is lost: see "The witness of a SQLite file" in
// docs/operations.md.
TEST_F(SqliteNamesTest, CopyIsNoRenamedFile) {
  LeaseAndDie();
  Sql(path_, "VACUUM INTO '" + other_ + "'");
  SqliteStore copy({other_, "b", {}});
  const Status status = copy.Open();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(copy.started_recently());
}

TEST_F(SqliteNamesTest, RenamedDirectoryIsTheSamePlace) {
  LeaseAndDie();
  const std::string from = dir_.File("from");
  std::filesystem::create_directory(from);
  for (const char* suffix : {"", "-wal", ".witness"}) {
    std::filesystem::rename(path_ + suffix, from + "/idd.db" + suffix);
  }
  EXPECT_EQ(WhyNot(from + "/idd.db"), "");
  std::filesystem::rename(from, dir_.File("to"));
  ::unlink((dir_.File("to") + "/idd.db.witness").c_str());
  EXPECT_EQ(WhyNot(dir_.File("to") + "/idd.db"), "");
}

}  // namespace
}  // namespace idd::daemon

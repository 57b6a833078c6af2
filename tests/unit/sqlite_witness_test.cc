// SPDX-License-Identifier: Apache-2.0
//
// A SQLite file that is set back, replaced or emptied under the hosts that have it open, and the
// witness beside it (ADR 0019). Real files.
#include "store/sqlite/sqlite_witness.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "sqlite_test_support.h"
#include "store/sqlite/sqlite_store.h"

namespace idd::daemon {
namespace {

using shm::IdRange;

// --- the file

class SqliteWitnessTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<SqliteWitness> NewWitness() const {
    auto witness = std::make_unique<SqliteWitness>();
    witness->SetDatabase(dir_.File("idd.db"));
    return witness;
  }
  static void Note(SqliteWitness& witness, const std::string& stamp, NextIds next) {
    ASSERT_TRUE(witness.Lock().ok());
    const WitnessHold hold(witness);
    const Status status = witness.Append({.line = "line", .stamp = stamp, .next = std::move(next)},
                                         SqliteWitness::Durability::kWritten);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  static SqliteWitness::State Read(SqliteWitness& witness) {
    const Status status = witness.Lock();
    EXPECT_TRUE(status.ok()) << status.message();
    const WitnessHold hold(witness);
    return witness.state();
  }

  TempDir dir_;
  const std::string path_ = dir_.File("idd.db.witness");
};

TEST_F(SqliteWitnessTest, WhatOneAppendsTheOtherReads) {
  const auto one = NewWitness();
  const auto other = NewWitness();
  EXPECT_EQ(Read(*one).line, "");
  const std::string odd = "a b%c=\n\xc3\xa4";
  Note(*one, "s1", {{"orders", 101}, {odd, 7}});
  Note(*other, "s2", {{"orders", 201}});
  const auto third = NewWitness();
  for (SqliteWitness* witness : {one.get(), other.get(), third.get()}) {
    const SqliteWitness::State state = Read(*witness);
    EXPECT_EQ(state.line, "line");
    EXPECT_EQ(state.stamp, "s2");
    EXPECT_EQ(state.next, (NextIds{{"orders", 201}, {odd, 7}}));
  }
}

TEST_F(SqliteWitnessTest, HandBackIsAnnouncedUntilTheNextRecord) {
  const auto one = NewWitness();
  const auto other = NewWitness();
  Note(*one, "s1", {{"orders", 101}});
  const std::string odd = "a b%c=\n\xc3\xa4";
  {
    ASSERT_TRUE(one->Lock().ok());
    const WitnessHold hold(*one);
    ASSERT_TRUE(one->Announce({.token = "t1", .tag = "orders", .next = 1}).ok());
    ASSERT_TRUE(one->Announce({.token = "t2", .tag = odd, .next = 51}).ok());
  }
  const auto third = NewWitness();
  for (SqliteWitness* witness : {one.get(), other.get(), third.get()}) {
    const SqliteWitness::State state = Read(*witness);
    ASSERT_TRUE(state.announced.has_value());
    EXPECT_EQ(state.announced->token, "t2");
    EXPECT_EQ(state.announced->tag, odd);
    EXPECT_EQ(state.announced->next, 51U);
    EXPECT_EQ(state.stamp, "s1");
    EXPECT_EQ(state.next, (NextIds{{"orders", 101}})) << "it is only announced";
  }
  Note(*other, "s2", {});
  EXPECT_FALSE(Read(*one).announced.has_value());
}

// The last record of a file points to the next file.
TEST_F(SqliteWitnessTest, AnnouncementsFillAFileAsOtherRecordsDo) {
  const auto one = NewWitness();
  const auto other = NewWitness();
  Note(*one, "s1", {{"orders", 101}});
  EXPECT_EQ(Read(*other).stamp, "s1");
  const std::string first = ReadFile(path_).substr(0, 64);
  ASSERT_TRUE(one->Lock().ok());
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_TRUE(one->Announce({.token = "t1", .tag = "orders", .next = 1}).ok());
  }
  one->Unlock();
  EXPECT_NE(ReadFile(path_).substr(0, 64), first);
  EXPECT_EQ(Read(*other).next, (NextIds{{"orders", 101}}));
  EXPECT_EQ(Read(*other).line, "line") << "the same data set";
}

TEST_F(SqliteWitnessTest, IsNotMadeWhereItIsOnlyLookedFor) {
  const Result<bool> is_there = NewWitness()->LockIfThere();
  ASSERT_TRUE(is_there.ok());
  EXPECT_FALSE(is_there.value());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SqliteWitnessTest, LockIsExclusiveAndItsWaitEnds) {
  const auto one = NewWitness();
  ASSERT_TRUE(one->Lock().ok());
  const auto other = NewWitness();
  EXPECT_EQ(other->Lock().code(), Code::kUnavailable);
  one->Unlock();
  EXPECT_TRUE(other->Lock().ok());
}

TEST_F(SqliteWitnessTest, RecordThatWasTornEndsTheLogAndIsWrittenOver) {
  Note(*NewWitness(), "s1", {{"orders", 101}});
  Note(*NewWitness(), "s2", {{"orders", 201}});
  Note(*NewWitness(), "s3", {{"orders", 301}});
  std::string bytes = ReadFile(path_);
  bytes[bytes.find("201=")] = '9';
  WriteFile(path_, bytes);
  EXPECT_EQ(Read(*NewWitness()).stamp, "s1");
  // As long as the torn record: the following record must not pass for its successor.
  Note(*NewWitness(), "s4", {{"orders", 401}});
  EXPECT_EQ(Read(*NewWitness()).stamp, "s4");
}

TEST_F(SqliteWitnessTest, FullFileHasASuccessorThatEveryoneFollows) {
  const auto one = NewWitness();
  const auto other = NewWitness();
  Note(*one, "s0", {{"orders", 1}});
  Read(*other);
  struct stat before {};
  ASSERT_EQ(::stat(path_.c_str(), &before), 0);
  const std::string tag(200, 'x');
  struct stat after = before;
  std::uint64_t next = 1;
  while (after.st_ino == before.st_ino) {
    ++next;
    Note(*one, "s" + std::to_string(next), {{tag, next}});
    ASSERT_LT(next, 10'000U);
    ASSERT_EQ(::stat(path_.c_str(), &after), 0);
  }
  const SqliteWitness::State state = Read(*other);
  EXPECT_EQ(state.line, "line") << "the successor was taken for a stranger";
  EXPECT_EQ(state.next, (NextIds{{"orders", 1}, {tag, next}}));
}

TEST_F(SqliteWitnessTest, DeletedFileIsMadeAgainOfWhatIsKnown) {
  const auto one = NewWitness();
  Note(*one, "s1", {{"orders", 101}});
  ::unlink(path_.c_str());
  EXPECT_EQ(one->CheckCurrent().code(), Code::kUnavailable);
  EXPECT_EQ(Read(*one).stamp, "s1");
  EXPECT_EQ(Read(*NewWitness()).next, (NextIds{{"orders", 101}}));
}

// Whether the backup was copied over the file or put in its place, and whichever host continued
// from it.
TEST_F(SqliteWitnessTest, OlderCopyIsMergedWithWhatIsKnownUnderAnotherLine) {
  for (const bool in_place : {true, false}) {
    std::filesystem::remove(path_);
    const auto one = NewWitness();
    Note(*one, "s1", {{"orders", 101}, {"users", 5}});
    const std::string copy = ReadFile(path_);
    Note(*one, "s2", {{"orders", 201}});
    if (in_place) {
      WriteFile(path_, copy);
    } else {
      WriteFile(path_ + ".copy", copy);
      std::filesystem::rename(path_ + ".copy", path_);
    }
    Note(*NewWitness(), "s3", {{"users", 9}});
    const SqliteWitness::State state = Read(*one);
    EXPECT_NE(state.line, "line");
    EXPECT_EQ(state.stamp, "") << "a database cannot continue two others";
    EXPECT_EQ(state.next, (NextIds{{"orders", 201}, {"users", 9}}));
    EXPECT_EQ(Read(*NewWitness()).line, state.line) << "it is kept in the file";
  }
}

TEST_F(SqliteWitnessTest, EmptiedFileIsMadeOfWhatIsKnown) {
  const auto one = NewWitness();
  Note(*one, "s1", {{"orders", 101}});
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  EXPECT_EQ(Read(*one).next, (NextIds{{"orders", 101}}));
  EXPECT_EQ(Read(*NewWitness()).next, (NextIds{{"orders", 101}}));
}

// --- the store beside it

class SetBackTest : public SqliteStoreTest {
 protected:
  void SetUp() override {
    a_ = OpenWithOrders("a");
    b_ = OpenStore("b");
    Take(*a_, Request(1));
    Sql(path_, "VACUUM INTO '" + dir_.File("backup.db") + "'");
    // b leases what the backup lacks; a's own mark stays at 1001.
    EXPECT_EQ(Take(*b_, Request(2)), (IdRange{1001, 2001}));
  }
  void RestoreInPlace() const {
    sqlite3* from = nullptr;
    sqlite3* to = nullptr;
    sqlite3_open(dir_.File("backup.db").c_str(), &from);
    sqlite3_open(path_.c_str(), &to);
    sqlite3_backup* backup = sqlite3_backup_init(to, "main", from, "main");
    ASSERT_NE(backup, nullptr);
    EXPECT_EQ(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    EXPECT_EQ(sqlite3_backup_finish(backup), SQLITE_OK);
    sqlite3_close(to);
    sqlite3_close(from);
  }
  // The first lease is refused if something is wrong, and the next Open() corrects it.
  static IdRange TakeAfterOpen(SqliteStore& store, const LeaseRequest& request) {
    EXPECT_EQ(store.TakeLease(request).status().code(), Code::kUnavailable);
    const Status status = store.Open();
    EXPECT_TRUE(status.ok()) << status.message();
    return Take(store, request);
  }

  std::unique_ptr<SqliteStore> a_;
  std::unique_ptr<SqliteStore> b_;
};

TEST_F(SetBackTest, RestoreInPlaceIsRefusedAndLiftedAboveEveryHostsLeases) {
  RestoreInPlace();
  ASSERT_EQ(MaxId(), "1001");
  EXPECT_EQ(TakeAfterOpen(*a_, Request(3, 1001)), (IdRange{2001, 3001}));
  EXPECT_EQ(a_->generation(), 2U);
  EXPECT_EQ(a_->reconcile_window().count(), 0) << "the witness already has the full information";
  EXPECT_EQ(TakeAfterOpen(*b_, Request(4, 2001)), (IdRange{3001, 4001})) << "from the witness";
  EXPECT_EQ(b_->generation(), 2U);
  EXPECT_EQ(Take(*a_, Request(5, 3001)), (IdRange{4001, 5001}));
  EXPECT_EQ(a_->generation(), 2U) << "once";
}

TEST_F(SetBackTest, RestoreIsSeenByAHostThatStarts) {
  a_.reset();
  b_.reset();
  RestoreInPlace();
  const auto a = OpenStore("a");
  const Result<Reconciliation> reconciliation =
      a->Reconcile({.marks = {{.tag = "orders", .mark = 1001}}, .held = {}});
  ASSERT_TRUE(reconciliation.ok());
  EXPECT_TRUE(reconciliation.value().forgot_leases);
  ASSERT_EQ(reconciliation.value().lifted.size(), 1U);
  EXPECT_EQ(reconciliation.value().lifted[0].from, 1001U);
  EXPECT_EQ(reconciliation.value().lifted[0].to, 2001U);
  EXPECT_EQ(Take(*a, Request(3, 1001)), (IdRange{2001, 3001}));
}

// A copy that was made after the first host had reconciled has the grants of all hosts, but not yet
// the other host's lease.
TEST_F(SetBackTest, CopyWithoutALeaseThatWasRestoredIsOld) {
  RestoreInPlace();
  ASSERT_EQ(TakeAfterOpen(*a_, Request(3, 1001)), (IdRange{2001, 3001}));
  ::unlink(dir_.File("backup.db").c_str());
  Sql(path_, "VACUUM INTO '" + dir_.File("backup.db") + "'");
  ASSERT_TRUE(b_->Open().ok());
  const HostMemory of_b{
      .marks = {{.tag = "orders", .mark = 2001}},
      .held = {{.token = TestToken(2), .tag = "orders", .ids = {1001, 2001}, .previous_mark = 1}}};
  const Result<Reconciliation> first = b_->Reconcile(of_b);
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_EQ(first.value().restored.size(), 1U);
  RestoreInPlace();
  EXPECT_EQ(b_->TakeLease(Request(4, 2001)).status().code(), Code::kUnavailable);
  ASSERT_TRUE(b_->Open().ok());
  const Result<Reconciliation> again = b_->Reconcile(of_b);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value().restored.size(), 1U) << "the second copy lacks it too";
}

TEST_F(SetBackTest, RestoreIsSeenWithoutALease) {
  RestoreInPlace();
  const Deadline deadline = Deadline::After(std::chrono::seconds(30));
  while (a_->CheckCurrent().ok() && !deadline.passed()) ::usleep(10'000);
  EXPECT_EQ(a_->CheckCurrent().code(), Code::kUnavailable);
}

// A range that a backup lists as returned may have been taken back since, by a host that is off
// now.
TEST_F(SetBackTest, RangesThatABackupListsAreNotLeased) {
  Return(*a_, 1, 400, ReturnOutcome::kListed);
  std::filesystem::remove(dir_.File("backup.db"));
  Sql(path_, "VACUUM INTO '" + dir_.File("backup.db") + "'");
  EXPECT_EQ(Take(*a_, Request(3, 401)), (IdRange{401, 1001}));
  RestoreInPlace();
  // As if its own mark had been lost as well.
  EXPECT_EQ(TakeAfterOpen(*a_, Request(4)), (IdRange{2001, 3001}));
}

// Every page restored, bypassing SQLite, with the log unchanged: even if no page that is read is
// known to be old, nothing is leased below the witness.
TEST_F(SetBackTest, NoLeaseBeginsBelowTheWitnessWhateverTheTablesSay) {
  Sql(path_, "DELETE FROM idd_lease; UPDATE leaf_alloc SET max_id = 1");
  const Result<Lease> lease = a_->TakeLease(Request(3));
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease.value().ids, (IdRange{2001, 3001}));
  EXPECT_EQ(lease.value().lifted_from, 1U);
}

// One store alone: within a process, SQLite connections share a mapping, deleted or not.
TEST_F(SetBackTest, DeletedLogIsSavedByAHostThatHasItOpen) {
  b_.reset();
  for (const char* suffix : {"-wal", "-shm"}) ::unlink((path_ + suffix).c_str());
  EXPECT_EQ(a_->CheckCurrent().code(), Code::kUnavailable);
  EXPECT_EQ(TakeAfterOpen(*a_, Request(3, 1001)), (IdRange{2001, 3001}));
  EXPECT_EQ(a_->generation(), 1U) << "nothing was lost";
  EXPECT_EQ(Sql(path_, "PRAGMA integrity_check; SELECT count(*) FROM idd_lease"), "ok,3");
}

TEST_F(SetBackTest, DeletedSharedMemoryIsNotUsedOn) {
  b_.reset();
  ::unlink((path_ + "-shm").c_str());
  EXPECT_EQ(a_->CheckCurrent().code(), Code::kUnavailable);
  EXPECT_EQ(TakeAfterOpen(*a_, Request(3, 1001)), (IdRange{2001, 3001}));
  EXPECT_EQ(a_->generation(), 1U) << "nothing was lost";
}

TEST_F(SetBackTest, EmptiedFileIsNotServedNorMadeAgain) {
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  EXPECT_EQ(a_->CheckCurrent().code(), Code::kUnavailable);
  EXPECT_EQ(a_->TakeLease(Request(3, 1001)).status().code(), Code::kUnavailable);
  for (SqliteStore* store : {a_.get(), b_.get()}) {
    EXPECT_EQ(store->Open().code(), Code::kUnavailable);
  }
  // A host that has never leased from the file does not open it either.
  EXPECT_EQ(NewStore("c")->Open().code(), Code::kUnavailable);
  EXPECT_EQ(ReadFile(path_), "");
}

TEST_F(SetBackTest, WitnessThatWasLostIsMadeAgainAndReported) {
  a_.reset();
  b_.reset();
  ::unlink((path_ + ".witness").c_str());
  const auto a = OpenStore("a");
  EXPECT_TRUE(a->started_recently()) << "hosts that have it open must come first";
  EXPECT_GT(a->reconcile_window().count(), 0);
  EXPECT_EQ(Take(*a, Request(3, 1001)), (IdRange{2001, 3001}));
  EXPECT_FALSE(OpenStore("b")->started_recently());
}

}  // namespace
}  // namespace idd::daemon

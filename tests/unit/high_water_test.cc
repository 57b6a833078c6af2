// SPDX-License-Identifier: Apache-2.0
#include "leasing/high_water.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "idd/shm/abi.h"
#include "sqlite_test_support.h"

namespace idd::daemon {
namespace {

class HighWaterTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<HighWaterMarks> Open() const {
    Result<std::unique_ptr<HighWaterMarks>> marks = HighWaterMarks::Open(dir_.path());
    EXPECT_TRUE(marks.ok()) << marks.status().message();
    return marks.ok() ? std::move(marks).value() : nullptr;
  }
  void ExpectRefusedUntouched() const {
    const std::string before = ReadFile(path_);
    const Status status = HighWaterMarks::Open(dir_.path()).status();
    EXPECT_EQ(status.code(), Code::kIncompatible) << status.message();
    EXPECT_NE(status.message().find("high-water.db"), std::string::npos) << status.message();
    EXPECT_EQ(ReadFile(path_), before);
  }

  TempDir dir_;
  const std::string path_ = dir_.File("high-water.db");
};

TEST_F(HighWaterTest, MarkIsZeroUntilRaisedAndOnlyRises) {
  const auto marks = Open();
  EXPECT_EQ(marks->Get("orders").value(), 0U);
  ASSERT_TRUE(marks->Raise("orders", 1001).ok());
  ASSERT_TRUE(marks->Raise("orders", 500).ok());
  EXPECT_EQ(marks->Get("orders").value(), 1001U);
  ASSERT_TRUE(marks->Raise("orders", shm::kMaxLimit).ok());
  EXPECT_EQ(marks->Get("orders").value(), shm::kMaxLimit);
  EXPECT_EQ(marks->Get("Orders").value(), 0U) << "tags are isolated";
  EXPECT_EQ(marks->Raise("orders", shm::kMaxLimit + 1).code(), Code::kInvalid);
}

TEST_F(HighWaterTest, MarkIsLoweredNeverRaisedByLower) {
  const auto marks = Open();
  ASSERT_TRUE(marks->Raise("orders", 1001).ok());
  ASSERT_TRUE(marks->Lower("orders", 401).ok());
  EXPECT_EQ(marks->Get("orders").value(), 401U);
  ASSERT_TRUE(marks->Lower("orders", 900).ok());
  EXPECT_EQ(marks->Get("orders").value(), 401U);
  ASSERT_TRUE(marks->Lower("users", 5).ok());
  EXPECT_EQ(marks->Get("users").value(), 0U);
}

TEST_F(HighWaterTest, DrainsAreKeptUntilTheyEnd) {
  {
    const auto marks = Open();
    EXPECT_TRUE(marks->Drained().value().empty());
    ASSERT_TRUE(marks->SetDrained("orders", true).ok());
    ASSERT_TRUE(marks->SetDrained("orders", true).ok()) << "again";
    ASSERT_TRUE(marks->SetDrained(kWholeHost, true).ok());
    ASSERT_TRUE(marks->SetDrained("users", true).ok());
    ASSERT_TRUE(marks->SetDrained("users", false).ok());
    ASSERT_TRUE(marks->SetDrained("never", false).ok());
  }
  std::vector<std::string> drained = Open()->Drained().value();
  std::sort(drained.begin(), drained.end());
  EXPECT_EQ(drained, (std::vector<std::string>{kWholeHost, "orders"}));
}

TEST_F(HighWaterTest, AllMarksAreListed) {
  const auto marks = Open();
  EXPECT_TRUE(marks->All().value().empty());
  ASSERT_TRUE(marks->Raise("users", 7).ok());
  ASSERT_TRUE(marks->Raise("orders", 1001).ok());
  const auto all = marks->All().value();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].tag, "orders");
  EXPECT_EQ(all[0].mark, 1001U);
}

TEST_F(HighWaterTest, MarkThatMakesNoSenseIsNamedAndHidesNoOther) {
  const auto marks = Open();
  ASSERT_TRUE(marks->Raise("users", 7).ok());
  ASSERT_TRUE(marks->Raise("orders", 1001).ok());
  Sql(path_,
      "PRAGMA ignore_check_constraints = ON;"
      "UPDATE idd_mark SET mark = -5 WHERE biz_tag = 'orders'");
  const Status status = marks->Get("orders").status();
  EXPECT_EQ(status.code(), Code::kInvalid);
  for (const char* words : {"idd_mark", "column mark", "'orders'"}) {
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  }
  EXPECT_EQ(marks->All().value().size(), 1U);
}

TEST_F(HighWaterTest, EverythingOutlivesTheProcessThatWroteIt) {
  EXPECT_EQ(InChild([&] {
              const auto marks = Open();
              const bool ok = marks->Raise("orders", 1001).ok() &&
                              marks->Lower("orders", 700).ok() &&
                              marks->SetIncarnation("first").ok();
              return ok ? 7 : 1;  // exits without closing anything
            }),
            7);
  const auto marks = Open();
  EXPECT_EQ(marks->Get("orders").value(), 700U);
  EXPECT_EQ(marks->Incarnation().value(), "first");
}

TEST_F(HighWaterTest, FileIsDurableAndIdentified) {
  const auto marks = Open();
  EXPECT_EQ(Sql(path_, "PRAGMA journal_mode; PRAGMA application_id; PRAGMA user_version"),
            "wal,1229210696,1");
}

TEST_F(HighWaterTest, IncarnationIsEmptyUntilSet) {
  const auto marks = Open();
  EXPECT_EQ(marks->Incarnation().value(), "");
  ASSERT_TRUE(marks->SetIncarnation("first").ok());
  ASSERT_TRUE(marks->SetIncarnation("second").ok());
  EXPECT_EQ(marks->Incarnation().value(), "second");
}

TEST_F(HighWaterTest, FallbackHostIdIsMadeOnceAndKept) {
  const std::string first = Open()->FallbackHostId().value();
  EXPECT_EQ(first.size(), 32U);
  EXPECT_EQ(Open()->FallbackHostId().value(), first);
  const TempDir other;
  EXPECT_NE(HighWaterMarks::Open(other.path()).value()->FallbackHostId().value(), first);
}

TEST_F(HighWaterTest, FileThatIsNotOursIsRefusedAndLeftAlone) {
  WriteFile(path_, "garbage that is not a database");
  ExpectRefusedUntouched();
  std::filesystem::remove(path_);
  Sql(path_, "CREATE TABLE something(x)");
  ExpectRefusedUntouched();
  std::filesystem::remove(path_);
  // The allocator's database must not serve as the host's.
  ASSERT_TRUE(SqliteStore({path_, "a", {}}).Open().ok());
  ExpectRefusedUntouched();
}

TEST_F(HighWaterTest, SpoiledOrNewerFileIsRefusedAndLeftAlone) {
  ASSERT_TRUE(Open()->Raise("orders", 1001).ok());
  const std::string good = ReadFile(path_);
  std::string bad = good;
  bad.replace(0, 100, 100, '\0');
  WriteFile(path_, bad);
  ExpectRefusedUntouched();
  WriteFile(path_, good);
  Sql(path_, "PRAGMA user_version = 2");
  ExpectRefusedUntouched();
}

TEST_F(HighWaterTest, MissingDirectoryIsASystemError) {
  const Status status = HighWaterMarks::Open(dir_.File("none")).status();
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_NE(status.message().find("does not exist"), std::string::npos) << status.message();
}

TEST_F(HighWaterTest, FullDiskIsUnavailableAndTheMarkIsKeptWhenThereIsRoomAgain) {
  const auto marks = Open();
  ASSERT_TRUE(marks->Raise("orders", 1001).ok());
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const Status first = marks->Raise("orders", 2001);
  const Status second = marks->Raise("orders", 2001);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(first.code(), Code::kUnavailable) << first.message();
  EXPECT_EQ(second.code(), Code::kUnavailable) << second.message();
  EXPECT_EQ(marks->Get("orders").value(), 1001U);
  ASSERT_TRUE(marks->Raise("orders", 2001).ok());
  EXPECT_EQ(marks->Get("orders").value(), 2001U);
}

// Raises of tags with and without a noted ceiling, in a process that ends without closing anything.
// Ceilings that a witness has noted bound the leases of all hosts, and are no marks of this one.
TEST_F(HighWaterTest, KilledRunLeavesTheMarksThatItRaised) {
  EXPECT_EQ(InChild([&] {
              HighWaterMarks& marks = *Open().release();  // is never closed
              if (!marks.NoteCeilings({{.tag = "orders", .mark = 10'000}}).ok()) return 1;
              for (const std::uint64_t mark : {1001U, 2001U, 3001U}) {
                if (!marks.Raise("orders", mark).ok()) return 1;
              }
              return 7;
            }),
            7);
  EXPECT_EQ(Open()->Get("orders").value(), 3001U);
}

TEST_F(HighWaterTest, NumbersOfRunsRiseOverRestarts) {
  EXPECT_EQ(Open()->NextRunNumber().value(), 1U);
  EXPECT_EQ(Open()->NextRunNumber().value(), 2U);
  const auto marks = Open();
  EXPECT_EQ(marks->NextRunNumber().value(), 3U);
  EXPECT_EQ(marks->NextRunNumber().value(), 4U);
  EXPECT_EQ(Sql(path_, "UPDATE idd_meta SET value = 'x' WHERE key = 'run_number'"), "");
  EXPECT_EQ(Open()->NextRunNumber().status().code(), Code::kInvalid);
}

TEST_F(HighWaterTest, CeilingsAreNotedAndNeverFall) {
  const auto marks = Open();
  EXPECT_TRUE(marks->Ceilings().value().empty());
  ASSERT_TRUE(
      marks->NoteCeilings({{.tag = "users", .mark = 7}, {.tag = "orders", .mark = 9}}).ok());
  ASSERT_TRUE(
      marks->NoteCeilings({{.tag = "users", .mark = 6}, {.tag = "orders", .mark = 10}}).ok());
  const auto ceilings = Open()->Ceilings().value();
  ASSERT_EQ(ceilings.size(), 2U);
  EXPECT_EQ(ceilings[0].tag, "orders");
  EXPECT_EQ(ceilings[0].mark, 10U);
  EXPECT_EQ(ceilings[1].mark, 7U);
  EXPECT_TRUE(marks->All().value().empty()) << "they are no marks";
  EXPECT_EQ(marks->NoteCeilings({{.tag = "users", .mark = shm::kMaxLimit + 1}}).code(),
            Code::kInvalid);
}

TEST_F(HighWaterTest, StateOfAWitnessIsKept) {
  WitnessState state = Open()->GetWitnessState().value();
  EXPECT_EQ(state.disk.size(), kDiskIdSize);
  EXPECT_EQ(state.promise, Term());
  EXPECT_EQ(Open()->GetWitnessState().value(), state) << "the disk is named once";
  const Term term = {.number = 7, .witness = "a." + state.disk};
  state.promise = term;
  state.noted = 12;
  state.beat = 34;
  state.active = {.version = 1, .asked_in = term, .names = {term.witness}};
  state.list = {.version = 2, .asked_in = term, .names = {term.witness, "b.1", "c.1"}};
  state.incarnation = "0123456789abcdef";
  EXPECT_EQ(InChild([&] {
              const auto marks = Open();
              return marks->SetWitnessState(state).ok() ? 7 : 1;  // exits without closing anything
            }),
            7);
  EXPECT_EQ(Open()->GetWitnessState().value(), state);
  const TempDir other;
  EXPECT_NE(HighWaterMarks::Open(other.path()).value()->GetWitnessState().value().disk, state.disk);
}

TEST_F(HighWaterTest, StateOfAWitnessThatMakesNoSenseIsRefused) {
  ASSERT_TRUE(Open()->GetWitnessState().ok());
  for (const char* change : {"promise = '7'", "active = 'x'", "list = '1 1 a b a'"}) {
    ASSERT_EQ(Sql(path_, "UPDATE idd_witness SET promise = '', active = '', list = ''"), "");
    ASSERT_EQ(Sql(path_, std::string("UPDATE idd_witness SET ") + change), "");
    const Status status = Open()->GetWitnessState().status();
    EXPECT_EQ(status.code(), Code::kInvalid) << change;
    EXPECT_NE(status.message().find("idd_witness"), std::string::npos) << status.message();
  }
}

TEST_F(HighWaterTest, FileThatLacksATableIsRefusedAndLeftAlone) {
  const std::string complete = [&] {
    EXPECT_TRUE(Open()->Raise("orders", 7).ok());
    return ReadFile(path_);
  }();
  for (const char* table : {"idd_mark", "idd_drain", "idd_ceiling", "idd_witness", "idd_meta"}) {
    WriteFile(path_, complete);
    Sql(path_, std::string("DROP TABLE ") + table);
    ExpectRefusedUntouched();
  }
}

TEST_F(HighWaterTest, ReplacedFileTakesNoMarks) {
  const auto marks = Open();
  ASSERT_TRUE(marks->Raise("orders", 1001).ok());
  std::filesystem::remove(path_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Status status = marks->Raise("orders", 2001);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("replaced"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// The facts that idd collects for the doctor.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "access/peer_limits.h"
#include "admin/operations/doctor_facts.h"
#include "idd/base/error_text.h"
#include "support/fake_marks.h"
#include "support/fake_store.h"
#include "support/temp_dir.h"

namespace idd::daemon {
namespace {

TEST(TroubleOfTest, IsReadFromTheErrorsOfBothStores) {
  struct Case {
    std::string error;
    const char* trouble;
  };
  for (const Case& each : {
           Case{"the database server at db:3306, connecting: Access denied (error 1045); check",
                "password"},
           Case{"the database password cannot be read from '/x'", "password"},
           Case{"x: INSERT command denied (error 1142)", "rights"},
           Case{"x: Unknown database 'idd' (error 1049)", "database"},
           Case{"the database server at db is read-only", "read_only"},
           Case{"x (error 1290); the server is read-only", "read_only"},
           Case{"'/d/idd.db': attempt to write a readonly database (SQLite code 1032)",
                "read_only"},
           Case{"'/d/idd.db': database or disk is full (SQLite code 13)", "full"},
           Case{"'/d/idd.db': unable to open (SQLite code 14)", "rights"},
           Case{"'/d/idd.db': database is locked (SQLite code 5)", "lock"},
           Case{"another host uses the name 'a' (boot id b, seen 1 s ago); give", "host_name"},
           Case{"'/d/high-water.db': database or disk is full (SQLite code 13)", "state_dir"},
           Case{"x: Can't connect (error 2002)", "away"},
           Case{"x (error 999999999999999999999)", "other"},
           Case{"x (error )", "other"},
           Case{"'/d/idd.db': unable to open (SQLite code 14): " + std::string(ErrorText(EMFILE)),
                "descriptors"},
           Case{"", "other"},
       }) {
    EXPECT_STREQ(TroubleOf(each.error), each.trouble) << each.error;
  }
}

TEST(LookAtPlaceTest, ReportsModeOwnerAndRoom) {
  const harness::TempDir dir;
  const std::string& folder = dir.path();
  ASSERT_EQ(::chmod(folder.c_str(), 0751), 0);
  const PlaceFacts place = ProbePlace("state dir", folder);
  EXPECT_EQ(place.error, "");
  EXPECT_EQ(place.mode, 0751U);
  EXPECT_EQ(place.owner, ::geteuid());
  EXPECT_GT(place.total_bytes, place.free_bytes);
  EXPECT_FALSE(place.is_read_only);
  EXPECT_FALSE(place.file_system.empty());
  ::rmdir(folder.c_str());
  EXPECT_NE(ProbePlace("state dir", folder).error.find("No such file"), std::string::npos);
}

TEST(LookAtPlaceTest, NamesFileSystemsAndFolders) {
  EXPECT_EQ(FileSystemName(0x01021994), "tmpfs");
  EXPECT_EQ(FileSystemName(0x6969), "nfs");
  EXPECT_EQ(FileSystemName(0xabc), "0xabc");
  EXPECT_EQ(ProbePlace("x", "/proc").file_system, "proc");
  EXPECT_EQ(FolderOf("/a/b"), "/a");
  EXPECT_EQ(FolderOf("/b"), "/");
  EXPECT_EQ(FolderOf("b"), ".");
}

TEST(LookAtProcessTest, ReportsWhatTheKernelReports) {
  const ProcessFacts before = ProbeProcess();
  EXPECT_EQ(before.uid, ::geteuid());
  EXPECT_EQ(before.capabilities.size(), 16U);
  EXPECT_GT(before.most_descriptors, before.descriptors);
  const int fd = ::dup(0);
  EXPECT_EQ(ProbeProcess().descriptors, before.descriptors + 1);
  ::close(fd);
}

class LookIntoStoreTest : public ::testing::Test {
 protected:
  LookIntoStoreTest() {
    store_.AddTag("orders", 10);
    EXPECT_TRUE(store_.Open().ok());
  }
  Lease TakeAndHold(const std::string& token) {
    Result<Lease> lease = store_.TakeLease({.tag = "orders", .count = 10, .token = token});
    EXPECT_TRUE(lease.ok());
    session_.held[token] = lease.value();
    return lease.value();
  }
  [[nodiscard]] StoreReport Look() {
    Result<StoreReport> report = InspectStore(store_, marks_, session_, FakeStore::kHost);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? report.value() : StoreReport{};
  }

  FakeStore store_;
  FakeMarks marks_;
  StoreSession session_;
};

TEST_F(LookIntoStoreTest, FindsNothingWhereLeasesAndMarksAgree) {
  const Lease lease = TakeAndHold("a");
  ASSERT_TRUE(marks_.Raise("orders", lease.ids.limit).ok());
  ASSERT_TRUE(marks_.Raise("deleted", 500).ok());
  const StoreReport report = Look();
  EXPECT_EQ(report.facts.version, "fake 1");
  EXPECT_EQ(report.lost_leases + report.strange_leases, 0U);
  EXPECT_TRUE(report.behind.empty());
  EXPECT_TRUE(report.waste.empty());
  ASSERT_EQ(report.tags.size(), 1U);
}

TEST_F(LookIntoStoreTest, CountsLeasesThatAnotherGaveUpOrTook) {
  TakeAndHold("a");
  TakeAndHold("b");
  ASSERT_TRUE(store_.CloseLeases({{"a", "orders", LeaseState::kAbandoned, 0}}).ok());
  EXPECT_EQ(Look().lost_leases, 1U);
  EXPECT_EQ(Look().strange_leases, 0U);
  session_.held.erase("b");
  EXPECT_EQ(Look().strange_leases, 1U);
  session_.unanswered.insert("b");
  EXPECT_EQ(Look().strange_leases, 0U) << "an earlier run of this idd asked for it";
}

TEST_F(LookIntoStoreTest, FindsTagsBelowTheirMarkAndWaste) {
  TakeAndHold("a");
  ASSERT_TRUE(marks_.Raise("orders", 1000).ok());
  session_.held.erase("a");
  ASSERT_TRUE(store_.CloseLeases({{"a", "orders", LeaseState::kAbandoned, 4}}).ok());
  const StoreReport report = Look();
  ASSERT_EQ(report.behind.size(), 1U);
  EXPECT_EQ(report.behind.front().mark, 1000U);
  EXPECT_EQ(report.behind.front().next_id, 11U);
  ASSERT_EQ(report.waste.size(), 1U);
  EXPECT_EQ(report.waste.front().ids, 10U);
  EXPECT_EQ(report.waste.front().abandoned, 6U);
}

// The worker infers from the code of a job's error that the store is down; a question must not
// cause that.
TEST_F(LookIntoStoreTest, AnOddAnswerDoesNotTakeTheStoreForDown) {
  for (const Code code : {Code::kIncompatible, Code::kSystem, Code::kInvalid}) {
    store_.script.Fail("Inspect", {code, "odd"});
    EXPECT_EQ(InspectStore(store_, marks_, session_, "h").status().code(), Code::kInvalid);
  }
  store_.script.Fail("ListTags", {Code::kUnavailable, "away"});
  EXPECT_EQ(InspectStore(store_, marks_, session_, "h").status().code(), Code::kUnavailable);
}

TEST(PeerFactsTest, ReportsTheUserWithTheMostConnections) {
  PeerLimits limits;
  EXPECT_FALSE(limits.Busiest().has_value());
  ASSERT_TRUE(limits.AddConnection(7, 1000));
  ASSERT_TRUE(limits.AddConnection(8, 1000));
  ASSERT_TRUE(limits.AddConnection(8, 1000));
  EXPECT_EQ(limits.Busiest()->first, 8U);
  EXPECT_EQ(limits.Busiest()->second, 2U);
}

}  // namespace
}  // namespace idd::daemon

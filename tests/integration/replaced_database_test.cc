// SPDX-License-Identifier: Apache-2.0
//
// The database file is removed or replaced while idd runs, or between two runs. No id comes twice,
// no ring is closed, and idd creates nothing in place of a missing file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <initializer_list>
#include <set>

#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

class ReplacedDatabase : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.StartWithTag("orders", 100);
    Keep(host_.idctl.Claim("orders", 10));
  }

  [[nodiscard]] const std::string& path() const { return host_.daemon.options().database; }

  // Expects every id once, whatever host and database it came from.
  void Keep(const std::vector<std::uint64_t>& ids) {
    for (const std::uint64_t id : ids) EXPECT_TRUE(ids_.insert(id).second) << id << " twice";
  }
  IdctlResult ClaimUntilDry() {
    for (int i = 0; i < 100; ++i) {
      IdctlResult result = host_.idctl.Run({"claim", "orders", "-n", "20"});
      Keep(ParseIds(result.out));
      if (result.exit_status != 0) return result;
    }
    throw HarnessError("there is no database, and ids keep coming");
  }
  [[nodiscard]] bool WaitForIds(const Host& host) {
    return WaitUntil(Patience(30s), [&] {
      const IdctlResult result = host.idctl.Run({"claim", "orders", "-n", "20"});
      Keep(ParseIds(result.out));
      return result.exit_status == 0;
    });
  }

  // A host whose mark is below the other's.
  void StartLow() {
    low_.daemon.Start();
    Keep(low_.idctl.Claim("orders", 10));
  }
  // Enough rounds for each host to lease more than once: the ring of a host that claims little
  // holds two steps.
  void ClaimInTurn(std::initializer_list<Host*> hosts) {
    for (int i = 0; i < 4; ++i) {
      for (Host* host : hosts) Keep(host->idctl.Claim("orders", 300));
    }
  }

  void MoveAway() const { Move(path(), dir_.File("away.db")); }
  void MoveBack() const { Move(dir_.File("away.db"), path()); }
  static void Move(const std::string& from, const std::string& to) {
    for (const char* suffix : {"-shm", "-wal", ""}) {
      std::error_code ignored;  // the log may be missing
      std::filesystem::rename(from + suffix, to + suffix, ignored);
    }
  }
  // In one step, as `mv` does; removes the log of the old file first.
  void PutInPlace(const std::string& file) const {
    for (const char* suffix : {"-wal", "-shm"}) ::unlink((path() + suffix).c_str());
    std::filesystem::rename(file, path());
  }
  // Makes another database with the tag, whose ids start at 1.
  std::string OtherDatabase() const {
    Host maker(dir_, "maker");
    maker.daemon.options().database = dir_.File("other.db");
    maker.StartWithTag("orders", 100);
    maker.daemon.Stop();
    return maker.daemon.options().database;
  }
  [[nodiscard]] std::string Copy() const {
    const std::string copy = dir_.File("copy.db");
    host_.Database().Execute("VACUUM INTO '" + copy + "'");
    return copy;
  }
  static void ExpectLogged(const Host& host, const std::string& event) {
    EXPECT_NE(host.daemon.Log().find(event), std::string::npos) << host.daemon.Log();
  }
  void ExpectAudit() const {
    // A lease that coincides with the replacement marks the store as down until the next look.
    EXPECT_TRUE(WaitUntil(Patience(10s), [this] {
      return host_.idctl.Run({"audit", "orders"}).err.find("the store is down") ==
             std::string::npos;
    }));
    const AuditRow audit = host_.idctl.Audit("orders");
    EXPECT_TRUE(audit.ok) << host_.idctl.Run({"audit"}).out;
    EXPECT_EQ(audit.leased, audit.claimed + audit.available + audit.returned + audit.abandoned);
  }

  const TempDir dir_;
  CleanHost host_{dir_};
  CleanHost low_{dir_, "host-b"};
  std::set<std::uint64_t> ids_;
};

TEST_F(ReplacedDatabase, MissingFileIsNotCreatedAgainAndClaimsContinueFromTheRing) {
  MoveAway();
  const std::size_t before = ids_.size();
  const IdctlResult dry = ClaimUntilDry();
  EXPECT_GE(ids_.size(), before + 90) << "the ring had ids";
  EXPECT_EQ(dry.exit_status, 5) << dry.err;
  EXPECT_TRUE(WaitUntil(Patience(5s), [this] {
    const nlohmann::json database = host_.idctl.Json({"status"}).at("database");
    return database.at("state") == "down" &&
           database.at("last_error").get<std::string>().find("is missing; restore it") !=
               std::string::npos;
  })) << host_.daemon.Log();
  EXPECT_THAT(host_.idctl.Run({"claim", "orders"}).err, HasSubstr("is missing; restore it"));
  EXPECT_FALSE(Exists(path()));
  WriteFile(path(), "");
  EXPECT_EQ(host_.idctl.Run({"claim", "orders"}).exit_status, 5);
  EXPECT_EQ(ReadFile(path()), "") << "an empty file was made a database";
  ::unlink(path().c_str());
  MoveBack();
  EXPECT_TRUE(WaitForIds(host_)) << host_.daemon.Log();
  EXPECT_THAT(host_.daemon.Log(), Not(HasSubstr("ring.retired")));
  ExpectAudit();
}

TEST_F(ReplacedDatabase, MissingFileAtAStartIsNotCreatedAgain) {
  host_.daemon.Stop();
  MoveAway();
  host_.daemon.Start();
  EXPECT_THAT(host_.idctl.Run({"claim", "orders"}).err, HasSubstr("is missing; restore it"));
  EXPECT_FALSE(Exists(path()));
  MoveBack();
  EXPECT_TRUE(WaitForIds(host_)) << host_.daemon.Log();
}

// The other database starts at 1 again, and the host with the lower mark asks first.
TEST_F(ReplacedDatabase, TwoHostsOnAnotherDatabaseNeverGetTheSameIds) {
  StartLow();
  Keep(host_.idctl.Claim("orders", 2000));
  const std::size_t mark = host_.daemon.LogMark();
  PutInPlace(OtherDatabase());
  ClaimInTurn({&low_, &host_});
  EXPECT_TRUE(host_.daemon.WaitForLogLine("error store.identity_changed was=.* is=", mark, 0s))
      << host_.daemon.Log();
  EXPECT_THAT(host_.daemon.Log() + low_.daemon.Log(), Not(HasSubstr("ring.retired")));
  ExpectAudit();
}

// The other database lacks the tag: the rings must not be treated as those of a deleted tag.
TEST_F(ReplacedDatabase, DatabaseWithoutTheTagClosesNoRingAndItsNamesakeStartsAbove) {
  const std::string other = OtherDatabase();
  SqliteFile(other).Execute("DELETE FROM leaf_alloc");
  PutInPlace(other);
  const std::size_t before = ids_.size();
  const IdctlResult dry = ClaimUntilDry();
  EXPECT_GE(ids_.size(), before + 90);
  EXPECT_TRUE(WaitUntil(Patience(10s), [this] {
    return host_.idctl.Run({"claim", "orders"}).err.find("not the database that the ring") !=
           std::string::npos;
  })) << host_.daemon.Log();
  host_.idctl.CreateTag("orders", 100);
  EXPECT_TRUE(WaitForIds(host_)) << host_.daemon.Log();
  EXPECT_THAT(host_.daemon.Log(), Not(HasSubstr("ring.retired")));
}

TEST_F(ReplacedDatabase, OlderCopyIsLiftedAndTheAuditAddsUp) {
  const std::string copy = Copy();
  Keep(host_.idctl.Claim("orders", 1030));
  const std::size_t mark = host_.daemon.LogMark();
  PutInPlace(copy);
  EXPECT_TRUE(host_.daemon.WaitForLogLine("lease.restored", mark, Patience(5s)))
      << "noticed without a claim: " << host_.daemon.Log();
  ExpectAudit();
  Keep(host_.idctl.Claim("orders", 500));
  EXPECT_GT(*ids_.rbegin(), 1500U);
  ExpectAudit();
  host_.daemon.Restart();
  Keep(host_.idctl.Claim("orders", 500));
  ExpectAudit();
}

TEST_F(ReplacedDatabase, OlderCopyFromBeforeARestartAddsUpToo) {
  const std::string copy = Copy();
  host_.daemon.Restart();
  Keep(host_.idctl.Claim("orders", 10));
  const std::size_t mark = host_.daemon.LogMark();
  PutInPlace(copy);
  EXPECT_TRUE(host_.daemon.WaitForLogLine("lease.restored", mark, Patience(5s)));
  ExpectAudit();
  Keep(host_.idctl.Claim("orders", 500));
  ExpectAudit();
}

TEST_F(ReplacedDatabase, OlderCopyBetweenTwoHostsGivesNoIdTwice) {
  StartLow();
  const std::string copy = Copy();
  Keep(host_.idctl.Claim("orders", 2000));
  PutInPlace(copy);
  ClaimInTurn({&low_, &host_});
  ExpectAudit();
}

// --- set back under hosts that have it open: the file keeps its inode

TEST_F(ReplacedDatabase, RestoreInPlaceBetweenTwoHostsGivesNoIdTwice) {
  StartLow();
  const std::string copy = Copy();
  Keep(host_.idctl.Claim("orders", 2000));
  const std::size_t mark = low_.daemon.LogMark();
  const std::size_t other_mark = host_.daemon.LogMark();
  host_.Database().RestoreFrom(copy);
  ClaimInTurn({&low_, &host_});
  // The host that looks first logs it.
  EXPECT_TRUE(WaitUntil(Patience(5s),
                        [&] {
                          const std::string logs =
                              low_.daemon.LogSince(mark) + host_.daemon.LogSince(other_mark);
                          return logs.find("error store.set_back") != std::string::npos;
                        }))
      << low_.daemon.Log() << host_.daemon.Log();
  ExpectAudit();
}

// The host that starts has never leased the ids that the other host, which is off, handed out.
TEST_F(ReplacedDatabase, RestoreInPlaceIsSeenByAHostThatStartsWhileTheOtherIsOff) {
  StartLow();
  const std::string copy = Copy();
  Keep(host_.idctl.Claim("orders", 2000));
  host_.daemon.Kill();
  low_.daemon.Kill();
  host_.Database().RestoreFrom(copy);
  low_.daemon.Start();
  for (int i = 0; i < 3; ++i) Keep(low_.idctl.Claim("orders", 300));
  host_.daemon.Start();
  ClaimInTurn({&low_, &host_});
}

TEST_F(ReplacedDatabase, DeletedSharedMemoryAndARestartGiveNoIdTwice) {
  StartLow();
  ClaimInTurn({&low_, &host_});
  ::unlink((path() + "-shm").c_str());
  low_.daemon.Kill();
  low_.daemon.Start();
  ClaimInTurn({&low_, &host_});
  ExpectAudit();
  EXPECT_EQ(host_.Database().QueryText("PRAGMA integrity_check"), "ok");
  // A look finds it (store.not_current), or a lease that was under way (store.down).
  ExpectLogged(host_, "-wal or -shm was replaced or deleted while idd had it open");
}

// The host that starts may be the first to open the file; then both lose what was not copied from
// the log.
TEST_F(ReplacedDatabase, DeletedLogAndSharedMemoryAndARestartGiveNoIdTwice) {
  StartLow();
  host_.Database().Execute("PRAGMA wal_checkpoint(TRUNCATE)");
  ClaimInTurn({&low_, &host_});
  for (const char* suffix : {"-wal", "-shm"}) ::unlink((path() + suffix).c_str());
  low_.daemon.Kill();
  low_.daemon.Start();
  ClaimInTurn({&low_, &host_});
  ExpectAudit();
  EXPECT_EQ(host_.Database().QueryText("PRAGMA integrity_check"), "ok");
  // If host-a looks before host-b opens the file, host-a closes the last connection, and SQLite
  // copies the deleted log into the file: then nothing was set back.
  const std::string log = host_.daemon.Log();
  if (log.find("store.not_current") == std::string::npos) {
    ExpectLogged(host_, "store.replaced");
    ExpectLogged(low_, "store.set_back");
  }
}

// Transactions that were committed but not copied into the file are lost with the log.
TEST_F(ReplacedDatabase, LogDeletedWhileEveryHostIsOffGivesNoIdTwice) {
  low_.daemon.Start();
  host_.Database().Execute("PRAGMA wal_checkpoint(TRUNCATE)");
  Keep(low_.idctl.Claim("orders", 10));
  Keep(host_.idctl.Claim("orders", 2000));
  low_.daemon.Kill();
  host_.daemon.Kill();
  for (const char* suffix : {"-wal", "-shm"}) ::unlink((path() + suffix).c_str());
  low_.daemon.Start();
  for (int i = 0; i < 3; ++i) Keep(low_.idctl.Claim("orders", 300));
  host_.daemon.Start();
  ClaimInTurn({&low_, &host_});
}

TEST_F(ReplacedDatabase, EmptiedFileIsNotServed) {
  const std::string copy = Copy();
  ASSERT_EQ(::truncate(path().c_str(), 0), 0);
  EXPECT_TRUE(WaitUntil(Patience(5s), [this] {
    const nlohmann::json database = host_.idctl.Json({"status"}).at("database");
    return database.at("state") == "down" &&
           database.at("last_error").get<std::string>().find("is missing; restore it") !=
               std::string::npos;
  })) << host_.daemon.Log();
  EXPECT_EQ(ClaimUntilDry().exit_status, 5);
  PutInPlace(copy);
  EXPECT_TRUE(WaitForIds(host_)) << host_.daemon.Log();
}

// The file becomes smaller while idd has it open, which is no damage.
TEST_F(ReplacedDatabase, FileThatAVacuumMadeSmallerJustBeforeAStopLosesNothing) {
  SqliteFile database = host_.Database();
  database.Execute("CREATE TABLE ballast (bytes BLOB)");
  database.Execute("INSERT INTO ballast VALUES (zeroblob(10000000))");
  database.Execute("PRAGMA wal_checkpoint(TRUNCATE)");
  host_.idctl.Do({"tag", "set", "orders", "--step", "200"});  // idd has seen the file's size
  Keep(host_.idctl.Claim("orders", 500));
  database.Execute("DROP TABLE ballast");
  database.Execute("VACUUM");
  database.Execute("PRAGMA wal_checkpoint(TRUNCATE)");
  host_.daemon.Stop();
  host_.daemon.Start();
  const AuditRow audit = host_.idctl.Audit("orders");
  EXPECT_EQ(audit.claimed, ids_.size());
  EXPECT_EQ(audit.abandoned, 0U) << host_.daemon.Log();
  ExpectAudit();
}

// A host may start with a state dir that remembers another database.
TEST_F(ReplacedDatabase, OtherDatabaseAtAStartIsLiftedToTheMarksAndAlarmed) {
  Keep(host_.idctl.Claim("orders", 500));
  host_.daemon.Stop();
  const std::size_t mark = host_.daemon.LogMark();
  PutInPlace(OtherDatabase());
  host_.daemon.Start();
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.identity_changed", mark, Patience(2s)));
  EXPECT_GE(host_.Database().MaxId("orders"), 511U) << "before anybody asked for ids";
  Keep(host_.idctl.Claim("orders", 300));
  ExpectAudit();
}

}  // namespace
}  // namespace idd::harness

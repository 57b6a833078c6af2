// SPDX-License-Identifier: Apache-2.0
//
// Rows of leaf_alloc that the database refuses to change, for every reason that a company's own
// tables give: each fails its own tag, at a start, in service and at a stop, and no other. Two
// hosts share the database, beside whose table other programs have their constraints and triggers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/doctor.h"
#include "support/test_environment.h"
#include "support/two_hosts.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

// How many ids a host holds of a tag at most.
constexpr int kPrefetch = 100;

const std::vector<std::string> kGood = {"good-1", "good-2", "good-3", "good-4"};

// How a database refuses the row of one tag, and words of its reason.
struct Refusal {
  std::string tag;
  std::string action;  // of a trigger before the row is changed
  std::string reason;
};

const std::vector<Refusal>& OfSqlite() {
  static const std::vector<Refusal> refusals = {
      {"bad-abort", "SELECT RAISE(ABORT, 'ask the owner')", "ask the owner"},
      {"bad-fail", "SELECT RAISE(FAIL, 'ask the other owner')", "ask the other owner"},
      {"bad-rollback", "SELECT RAISE(ROLLBACK, 'never change this')", "never change this"},
      {"bad-silent", "SELECT RAISE(IGNORE)", "did not advance"},
      {"bad-overflow", "SELECT abs(-9223372036854775807 - 1)", "integer overflow"},
      {"bad-type", "INSERT INTO typed(number) VALUES('text')", "cannot store TEXT"},
      {"bad-unique", "INSERT INTO once(name) VALUES(NEW.biz_tag)", "UNIQUE constraint"},
      {"bad-key", "INSERT INTO child(parent) VALUES(999)", "FOREIGN KEY constraint"},
      {"bad-later", "INSERT INTO later_child(parent) VALUES(999)", "FOREIGN KEY constraint"},
  };
  return refusals;
}

const std::vector<Refusal>& OfMysql() {
  static const std::vector<Refusal> refusals = {
      {"bad-signal", "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'ask the owner'", "ask the owner"},
      {"bad-silent", "SET NEW.max_id = OLD.max_id", "did not advance"},
      {"bad-range", "SET NEW.max_id = 99999999999999999999", "does not fit its column"},
      {"bad-null", "SET NEW.step = NULL", "did not advance"},
      {"bad-missing", "INSERT INTO not_there VALUES(1)", "not_there"},
      {"bad-column", "INSERT INTO once(other) VALUES(1)", "other"},
      {"bad-call", "CALL no_procedure()", "no_procedure"},
      {"bad-unique", "INSERT INTO once(name) VALUES(NEW.biz_tag)", "Duplicate entry"},
      {"bad-key", "INSERT INTO child(parent) VALUES(999)", "foreign key constraint"},
      {"bad-division", "SET NEW.step = 1 / 0", "Division by 0"},
  };
  return refusals;
}

class RefusedRows : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    a_.daemon.Start();
    b_.daemon.Start();
    std::vector<std::string> tags = kGood;
    for (const Refusal& bad : Refusals()) tags.push_back(bad.tag);
    for (const std::string& tag : tags) MakeTag(tag);
    for (const std::string& tag : tags) {
      ASSERT_TRUE(ClaimsWithin(a_, tag)) << tag;
      ASSERT_TRUE(ClaimsWithin(b_, tag)) << tag;
    }
    Execute("CREATE TABLE once(name VARCHAR(64) PRIMARY KEY)");
    Execute("CREATE TABLE parent(id INT PRIMARY KEY)");
    Execute("CREATE TABLE child(parent INT, FOREIGN KEY(parent) REFERENCES parent(id))");
    Execute("CREATE TABLE later_child(parent INT, FOREIGN KEY(parent) REFERENCES parent(id)" +
            std::string(is_mysql() ? ")" : " DEFERRABLE INITIALLY DEFERRED)"));
    if (!is_mysql()) Execute("CREATE TABLE typed(number INT) STRICT");
    for (const Refusal& bad : Refusals()) Execute("INSERT INTO once VALUES('" + bad.tag + "')");
    Keep();
    // The copy will lack ids of both hosts.
    for (Host* host : {&a_, &b_}) {
      for (const std::string& tag : kGood) EXPECT_EQ(Claim(*host, tag, 2 * kPrefetch), "");
      for (const Refusal& bad : Refusals()) EXPECT_EQ(Claim(*host, bad.tag, 2 * kPrefetch), "");
    }
  }
  void MakeTag(const std::string& tag) {
    ASSERT_TRUE(WaitUntil(Patience(20s), [&] {
      return a_.idctl
                 .Run({"tag", "create", tag, "--if-absent", "--step", "50", "--max-prefetch",
                       std::to_string(kPrefetch), "--wait", "0"})
                 .exit_status == 0;
    })) << tag;
  }
  [[nodiscard]] static const std::vector<Refusal>& Refusals() {
    return is_mysql() ? OfMysql() : OfSqlite();
  }
  // From now on the database refuses to change the rows of the bad tags.
  void Refuse() {
    std::string body;
    int number = 0;
    for (const Refusal& bad : Refusals()) {
      if (is_mysql()) {
        body += "IF NEW.biz_tag = '" + bad.tag + "' THEN " + bad.action + "; END IF; ";
        continue;
      }
      Execute("CREATE TRIGGER refusal_" + std::to_string(++number) +
              " BEFORE UPDATE ON leaf_alloc WHEN NEW.biz_tag = '" + bad.tag + "' BEGIN " +
              bad.action + "; END");
    }
    if (is_mysql()) {
      Execute("CREATE TRIGGER refusal BEFORE UPDATE ON leaf_alloc FOR EACH ROW BEGIN " + body +
              "END");
    }
  }
  void Allow() {
    if (is_mysql()) return Execute("DROP TRIGGER refusal");
    for (std::size_t i = 1; i <= Refusals().size(); ++i) {
      Execute("DROP TRIGGER refusal_" + std::to_string(i));
    }
  }
  // Claims ids, which must be new; returns what failed, or nothing.
  std::string Claim(Host& host, const std::string& tag, int count = 50) {
    const IdctlResult result =
        host.idctl.Run({"--timeout", "20s", "claim", tag, "-n", std::to_string(count)});
    std::istringstream lines(result.out);
    for (std::uint64_t id = 0; lines >> id;) {
      EXPECT_TRUE(claimed_[tag].insert(id).second) << tag << " has given " << id << " twice";
    }
    return result.exit_status == 0 ? "" : result.err;
  }
  [[nodiscard]] bool ClaimsWithin(Host& host, const std::string& tag) {
    return WaitUntil(Patience(30s), [&] { return Claim(host, tag, 1).empty(); });
  }
  void ExpectGoodTagsServed() {
    for (int round = 0; round < 3; ++round) {
      for (Host* host : {&a_, &b_}) {
        for (const std::string& tag : kGood) {
          EXPECT_EQ(Claim(*host, tag), "") << host->daemon.Log();
        }
      }
    }
  }
  // Every claim of a bad tag has the database's reason, and so have status, doctor and log.
  void ExpectBadTagsNamed() {
    for (const Refusal& bad : Refusals()) {
      std::string error;
      EXPECT_TRUE(WaitUntil(Patience(20s),
                            [&] {
                              error = Claim(a_, bad.tag);
                              return error.find(bad.reason) != std::string::npos;
                            }))
          << bad.tag << ": " << error;
      EXPECT_THAT(a_.daemon.Log(), HasSubstr("lease.refused tag=" + bad.tag));
    }
    const nlohmann::json status = a_.idctl.Json({"status"});
    EXPECT_EQ(status.at("database").at("state"), "up") << status.at("database");
    std::map<std::string, std::string> errors;
    for (const auto& tag : status.at("tags")) {
      if (tag.at("last_error").is_string()) errors[tag.at("tag")] = tag.at("last_error");
    }
    const std::string doctor = RunDoctor(a_.idctl, {"doctor"}).out;
    for (const Refusal& bad : Refusals()) {
      EXPECT_THAT(errors[bad.tag], HasSubstr(bad.reason)) << bad.tag;
    }
    EXPECT_THAT(doctor, HasSubstr(std::to_string(Refusals().size()) + " tags: 'bad-"));
    for (const std::string& tag : kGood) EXPECT_EQ(errors.count(tag), 0U) << errors[tag];
  }
  static void Shell(const std::string& command) {
    ChildOptions child;
    child.argv = {"/bin/sh", "-c", command};
    ChildProcess process(child);
    ASSERT_EQ(process.WaitFor(Patience(60s)), 0) << command << process.stderr_text();
  }
  // Keeps the database as it is now, for SetBack().
  void Keep() {
    if (is_mysql()) {
      return Shell(server_.DumpCommand() + " > " + dir_.File("kept.sql"));
    }
    a_.Database().Execute("VACUUM INTO '" + dir_.File("kept.db") + "'");
  }
  // Restores what was kept. Nothing refuses a row then.
  void SetBack() {
    if (is_mysql()) {
      return Shell(server_.ClientCommand() + " < " + dir_.File("kept.sql"));
    }
    a_.Database().RestoreFrom(dir_.File("kept.db"));
  }
  [[nodiscard]] std::string Query(const std::string& sql) {
    return is_mysql() ? server_.Session().Query(sql) : a_.Database().QueryText(sql);
  }

  std::map<std::string, std::set<std::uint64_t>> claimed_;
};

INSTANTIATE_TEST_SUITE_P(Stores, RefusedRows, ::testing::Values("sqlite", "mysql"), StoreName);

TEST_P(RefusedRows, FailTheirOwnTagsOnlyInServiceAtAStopAndAtAStart) {
  Refuse();
  ExpectBadTagsNamed();
  ExpectGoodTagsServed();
  // Where max_id cannot be lowered, the list of returned ranges takes the tail.
  a_.daemon.Stop();
  b_.daemon.Stop();
  EXPECT_EQ(Query("SELECT COALESCE(MAX(biz_tag), '') FROM idd_lease WHERE state = 'active'"), "")
      << a_.daemon.Log() << b_.daemon.Log();

  // The rows are set back, and refuse to be lifted again.
  SetBack();
  Refuse();
  a_.daemon.Launch();
  b_.daemon.Launch();
  for (const std::string& tag : kGood) {
    EXPECT_TRUE(ClaimsWithin(a_, tag)) << a_.daemon.Log();
    EXPECT_TRUE(ClaimsWithin(b_, tag)) << b_.daemon.Log();
  }
  EXPECT_THAT(a_.daemon.Log() + b_.daemon.Log(), HasSubstr("tag.lift_refused tag=bad"));
  ExpectGoodTagsServed();

  Allow();
  for (const Refusal& bad : Refusals()) {
    EXPECT_TRUE(ClaimsWithin(a_, bad.tag)) << bad.tag << a_.daemon.Log();
    EXPECT_TRUE(ClaimsWithin(b_, bad.tag)) << bad.tag << b_.daemon.Log();
  }
}

class RefusedTrigger : public RefusedRows {};

INSTANTIATE_TEST_SUITE_P(Stores, RefusedTrigger, ::testing::Values("sqlite"), StoreName);

// SQLite refuses the trigger as a whole, because the file may be anyone's. A server runs it with
// the rights of its maker.
TEST_P(RefusedTrigger, ThatCannotRunIsNamedAndTheStoreStaysUp) {
  Execute("CREATE TRIGGER unsafe BEFORE UPDATE ON leaf_alloc BEGIN SELECT load_extension(''); END");
  const std::size_t mark = a_.daemon.LogMark();
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
    return Claim(a_, "good-1").find("unsafe use of load_extension") != std::string::npos;
  }));
  EXPECT_EQ(a_.idctl.Json({"status"}).at("database").at("state"), "up");
  EXPECT_THAT(a_.daemon.LogSince(mark), ::testing::Not(HasSubstr("store.down")));
  Execute("DROP TRIGGER unsafe");
  for (const std::string& tag : kGood) EXPECT_TRUE(ClaimsWithin(a_, tag)) << tag;
}

// A command is refused; the store is not down for that.
TEST_P(RefusedRows, TagThatTheTableRefusesIsNamedAndStopsNoOther) {
  if (is_mysql()) {
    Execute("ALTER TABLE leaf_alloc ADD COLUMN owner VARCHAR(16) NOT NULL");
  } else {
    Execute(
        "CREATE TRIGGER owner BEFORE INSERT ON leaf_alloc BEGIN SELECT RAISE(ABORT, 'owner is"
        " missing'); END");
  }
  std::string error;
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] {  // the table was altered a moment ago
    const IdctlResult result = a_.idctl.Run({"tag", "create", "new"});
    EXPECT_EQ(result.exit_status, 1) << result.out;
    error = result.err;
    return error.find("owner") != std::string::npos;
  })) << error;
  EXPECT_EQ(a_.idctl.Json({"status"}).at("database").at("state"), "up");
  ExpectGoodTagsServed();
}

}  // namespace
}  // namespace idd::harness

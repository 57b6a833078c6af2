// SPDX-License-Identifier: Apache-2.0
//
// idd on a real MariaDB that refuses, locks, hangs and fills up: `status` and waiting clients get a
// specific message for each fault, claims continue from the ring, and service resumes by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/db_server.h"
#include "support/doctor.h"
#include "support/host.h"
#include "support/mount_namespace.h"
#include "support/mysql_proxy.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

class MysqlFaults : public ::testing::Test {
 protected:
  void Start(const std::string& url) {
    host_.daemon.options().database = url;
    host_.daemon.Start();
  }
  // Starts the server, a proxy in front of it, and idd.
  void StartBehindProxy() {
    server_.Start();
    proxy_.emplace(dir_.File("proxy"), server_.socket());
    Start("mysql://idd:secret@localhost/idd?unix_socket=" + dir_.File("proxy"));
  }
  [[nodiscard]] std::string Url() const { return server_.Url(); }
  [[nodiscard]] nlohmann::json Database() const {
    return host_.idctl.Json({"status"}).at("database");
  }
  [[nodiscard]] bool WaitForError(const std::string& words) const {
    return WaitUntil(Patience(15s), [&] {
      return Database().at("last_error").get<std::string>().find(words) != std::string::npos;
    });
  }
  [[nodiscard]] bool WaitUp() const {
    return WaitUntil(Patience(20s), [&] { return Database().at("state") == "up"; });
  }
  // Creates a tag whose ring holds only one id.
  void CreateDryTag(const std::string& tag) {
    ASSERT_TRUE(WaitUntil(Patience(10s), [&] {
      return host_.idctl
                 .Run({"tag", "create", tag, "--if-absent", "--step", "1", "--refill", "leaf",
                       "--max-step", "1"})
                 .exit_status == 0;
    }));
  }
  [[nodiscard]] bool ClaimsWithin(const std::string& tag, std::chrono::milliseconds time) const {
    return WaitUntil(time, [&] { return host_.idctl.Run({"claim", tag}).exit_status == 0; });
  }
  // Claims until an error contains `words`.
  void ExpectRefusal(const std::string& tag, const std::string& words) {
    std::string last;
    EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
      const IdctlResult result = host_.idctl.Run({"claim", tag, "-n", "50"});
      last = result.err;
      return result.exit_status == 5 && result.err.find(words) != std::string::npos;
    })) << last;
  }

  const TempDir dir_;
  DbServer server_{dir_};
  Host host_{dir_};
  std::optional<MysqlProxy> proxy_;
};

TEST_F(MysqlFaults, WrongPasswordIsNamedAndHidden) {
  server_.Start();
  std::string url = Url();
  url.replace(url.find("secret"), 6, "Pa55word");
  Start(url);
  EXPECT_TRUE(WaitForError("check user and password")) << Database();
  const std::string pid = std::to_string(host_.daemon.pid());
  for (const std::string& place :
       {host_.daemon.Log(), Database().dump(), host_.idctl.Run({"status"}).out,
        ReadFile("/proc/" + pid + "/cmdline")}) {
    EXPECT_EQ(place.find("Pa55word"), std::string::npos) << place;
  }
  server_.Session("").Execute("ALTER USER idd@localhost IDENTIFIED BY 'Pa55word\'");
  EXPECT_TRUE(WaitUp());
}

// Changing the password without a restart: idd reads the file at every connect.
TEST_F(MysqlFaults, ChangedPasswordFileIsReadAtTheNextConnect) {
  server_.Start();
  const std::string file = dir_.File("password");
  WriteFile(file, "secret\n");
  std::string url = Url();
  url.replace(url.find(":secret"), 7, "");
  Start(url + "&password_file=" + file);
  ASSERT_TRUE(WaitUp()) << Database();
  CreateDryTag("orders");
  const pid_t pid = host_.daemon.pid();
  // The file first: the existing connection stays, and the next one uses the new password.
  WriteFile(file, "second\n");
  server_.Session("").Execute("ALTER USER idd@localhost IDENTIFIED BY 'second\'");
  EXPECT_TRUE(ClaimsWithin("orders", Patience(10s)));
  server_.EndSessions();
  EXPECT_TRUE(ClaimsWithin("orders", Patience(10s)));
  EXPECT_EQ(host_.daemon.Log().find("check user and password"), std::string::npos);
  // The server first: an outage until the file follows; the doctor names the file.
  server_.Session("").Execute("ALTER USER idd@localhost IDENTIFIED BY 'third\'");
  server_.EndSessions();
  ASSERT_TRUE(WaitForError("check user and password")) << Database();
  EXPECT_THAT(Examine(host_.idctl).document.dump(),
              HasSubstr("correct the password in '" + file + "'"));
  WriteFile(file, "third\n");
  EXPECT_TRUE(WaitUp()) << Database();
  EXPECT_TRUE(ClaimsWithin("orders", Patience(10s)));
  EXPECT_EQ(host_.daemon.pid(), pid);
  EXPECT_TRUE(host_.daemon.process().Running());
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// systemd passes a copy that it makes at a start (tests/packages), so only a restart passes another
// password, and the doctor advises one.
TEST_F(MysqlFaults, WrongCredentialNeedsARestartAndNotAReload) {
  server_.Start();
  const std::string copies = dir_.File("credentials");
  std::filesystem::create_directory(copies);
  WriteFile(copies + "/idd-database-password", "outdated\n");
  host_.daemon.options().environment = {"CREDENTIALS_DIRECTORY=" + copies};
  std::string url = Url();
  url.replace(url.find(":secret"), 7, "");
  Start(url);
  ASSERT_TRUE(WaitForError("check user and password")) << Database();
  const std::size_t mark = host_.daemon.LogMark();
  host_.daemon.Signal(SIGHUP);
  ASSERT_TRUE(host_.daemon.WaitForLogLine("config.reloaded", mark, Patience(5s)));
  EXPECT_THAT(Examine(host_.idctl).document.dump(),
              HasSubstr("/etc/credstore/idd-database-password', then systemctl restart idd"));
  WriteFile(copies + "/idd-database-password", "secret\n");  // as systemd does at a start
  host_.daemon.Restart();
  EXPECT_TRUE(WaitUp()) << Database();
}

TEST_F(MysqlFaults, MissingRightIsNamed) {
  server_.Start();
  Start(Url());
  CreateDryTag("orders");
  server_.Session("").Execute("REVOKE ALL ON idd.* FROM idd@localhost");
  server_.Session("").Execute("GRANT SELECT, UPDATE ON idd.* TO idd@localhost");
  // The server checks the rights on a database when a connection is made.
  server_.EndSessions();
  ExpectRefusal("orders", "INSERT command denied");
  server_.Session("").Execute("GRANT ALL ON idd.* TO idd@localhost");
  EXPECT_TRUE(ClaimsWithin("orders", Patience(10s)));
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

TEST_F(MysqlFaults, LockedTableIsNamedAndOpensAgain) {
  server_.Start();
  Start(Url());
  CreateDryTag("orders");
  {
    DbSession other = server_.Session();
    other.Execute("LOCK TABLES leaf_alloc WRITE");
    ExpectRefusal("orders", "lock");
  }
  EXPECT_TRUE(ClaimsWithin("orders", Patience(10s)));
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

TEST_F(MysqlFaults, ServerThatAcceptsAndNeverAnswersIsGivenUpInTime) {
  StartBehindProxy();
  CreateDryTag("orders");
  ASSERT_TRUE(ClaimsWithin("orders", Patience(10s)));
  proxy_->Hang(true);
  ExpectRefusal("orders", "the store");
  EXPECT_TRUE(WaitForError("2013")) << Database();
  proxy_->Hang(false);
  EXPECT_TRUE(ClaimsWithin("orders", Patience(30s)));
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// Each byte comes within the time limit of a read.
TEST_F(MysqlFaults, ServerThatDripsBytesIsGivenUpInTime) {
  StartBehindProxy();
  CreateDryTag("orders");
  ASSERT_TRUE(ClaimsWithin("orders", Patience(10s)));
  proxy_->Drip(true);
  // First in an answer, then in a login.
  ExpectRefusal("orders", "the store");
  EXPECT_TRUE(WaitForError("2013")) << Database();
  EXPECT_TRUE(WaitForError("connecting: Lost connection")) << Database();
  proxy_->Drip(false);
  EXPECT_TRUE(ClaimsWithin("orders", Patience(30s)));
}

// The hand-back waits for one statement, and the next idd ends what it left.
TEST_F(MysqlFaults, StopBesideAServerThatDripsBytesEndsInTime) {
  StartBehindProxy();
  host_.idctl.CreateTag("orders", 1000);
  ASSERT_TRUE(ClaimsWithin("orders", Patience(10s)));
  proxy_->Drip(true);
  host_.daemon.Signal(SIGTERM);
  EXPECT_EQ(host_.daemon.process().WaitFor(Patience(30s)), 0) << host_.daemon.Log();
  EXPECT_NE(
      host_.daemon.Log().find("lease.handed_back tag=orders first=2 limit=1001 outcome=\"failed"),
      std::string::npos)
      << host_.daemon.Log();
  proxy_->Drip(false);
  host_.daemon.Start();
  EXPECT_TRUE(ClaimsWithin("orders", Patience(30s)));
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// Regression: after the first locked row, idd counted the server as down and handed nothing more
// back.
TEST_F(MysqlFaults, StopBesideLockedRowsHandsTheOtherTailsBack) {
  if (SlowdownFactor() != 1) GTEST_SKIP() << "a stop ends when a try takes two seconds";
  server_.Start();
  // A younger server may be another one, after a restart: then all marks are pushed first, also
  // those of locked rows.
  ASSERT_TRUE(
      WaitUntil(Patience(20s), [&] { return server_.Session("").Counters().at("uptime") >= 3; }));
  Start(Url());
  const std::vector<std::string> tags = {"a", "b", "c", "d", "e", "f"};
  for (const std::string& tag : tags) {
    host_.idctl.CreateTag(tag, 1000);
    ASSERT_TRUE(ClaimsWithin(tag, Patience(10s))) << tag;
  }
  DbSession other = server_.Session("idd");
  other.Execute("BEGIN");
  other.Execute("SELECT * FROM leaf_alloc WHERE biz_tag IN ('a', 'b', 'd') FOR UPDATE");
  host_.daemon.Signal(SIGTERM);
  EXPECT_EQ(host_.daemon.process().WaitFor(Patience(30s)), 0) << host_.daemon.Log();
  EXPECT_EQ(other.Query("SELECT biz_tag FROM idd_lease WHERE state = 'active' ORDER BY 1"), "a,b,d")
      << host_.daemon.Log();
  other.Execute("ROLLBACK");
  host_.daemon.Start();
  for (const std::string& tag : tags) {
    EXPECT_TRUE(ClaimsWithin(tag, Patience(30s))) << tag;
    EXPECT_TRUE(host_.idctl.Audit(tag).ok) << tag;
  }
}

// No request may wait for the lease worker, whose statement hangs.
TEST_F(MysqlFaults, StatusIsAnsweredWhileTheServerHangs) {
  StartBehindProxy();
  CreateDryTag("orders");
  ASSERT_TRUE(ClaimsWithin("orders", Patience(10s)));
  proxy_->Hang(true);
  const auto begin = std::chrono::steady_clock::now();
  const IdctlResult status = host_.idctl.Run({"--timeout", "60000", "status"});
  EXPECT_EQ(status.exit_status, 0) << status.err;
  EXPECT_NE(status.out.find("orders"), std::string::npos) << status.out;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  proxy_->Hang(false);
}

// A tablespace that cannot grow has the effect of a full disk.
TEST(MysqlFullDisk, IsNamedAndNothingIsLost) {
  const TempDir dir;
  SmallTmpfs disk(dir.File("disk"), 28 * 1024);           // 24 MiB of them are used
  ASSERT_EQ(::chmod(dir.File("disk").c_str(), 0777), 0);  // the server is another user
  DbServer server(
      dir, "db",
      {.port = 0,
       .arguments = {"--innodb-file-per-table=0", "--innodb-data-home-dir=" + dir.File("disk"),
                     "--innodb-data-file-path=ibdata1:12M:autoextend",
                     "--innodb-autoextend-increment=1"}});
  CopyTree(server.data_dir() + "/ibdata1", disk.File("ibdata1"));
  server.Start();
  Host host(dir);
  host.daemon.options().database = server.Url();
  host.daemon.Start();
  ASSERT_TRUE(WaitUntil(Patience(10s), [&] {
    return host.idctl
               .Run({"tag", "create", "orders", "--if-absent", "--step", "1", "--refill", "leaf",
                     "--max-step", "1"})
               .exit_status == 0;
  }));
  disk.Fill();
  std::string error;
  EXPECT_TRUE(WaitUntil(Patience(30s), [&] {
    const IdctlResult result = host.idctl.Run({"claim", "orders", "-n", "1000"});
    error = result.err;
    return error.find("is full") != std::string::npos;
  })) << error;
  disk.Free();
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
    return host.idctl.Run({"claim", "orders"}).exit_status == 0;
  }));
  EXPECT_TRUE(host.idctl.Audit("orders").ok);
}

// A host and a second one whose disk is full: it can keep no mark, and if it is the witness, note
// no ceiling.
class MysqlHostDisk : public MysqlFaults {
 protected:
  void SetUp() override {
    sick_.daemon.options().state_dir = disk_.File("state");
    server_.Start();
  }
  // The first one is the witness.
  void StartBoth(Host& first, Host& second) {
    for (Host* const host : {&first, &second}) {
      host->daemon.options().database = Url();
      host->daemon.Start();
      ASSERT_TRUE(WaitUntil(Patience(20s), [&] {
        return host->idctl.Json({"status"}).at("database").at("state") == "up";
      }));
    }
    CreateDryTag("orders");
    ASSERT_TRUE(ClaimsWithin(first) && ClaimsWithin(second)) << sick_.daemon.Log();
  }
  [[nodiscard]] bool Claims(const Host& host, std::chrono::milliseconds timeout = 500ms) {
    const IdctlResult result = host.idctl.Run(
        {"claim", "orders", "-n", "5", "--timeout", std::to_string(timeout.count())});
    for (const std::uint64_t id : ParseIds(result.out)) {
      EXPECT_TRUE(ids_.insert(id).second) << id << " came twice";
    }
    return result.exit_status == 0;
  }
  [[nodiscard]] bool ClaimsWithin(const Host& host) {
    return WaitUntil(Patience(30s), [&] { return Claims(host); });
  }
  void ExpectBothClaim() {
    for (const Host* const host : {&host_, &sick_}) {
      EXPECT_TRUE(ClaimsWithin(*host)) << sick_.daemon.Log();
    }
    EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  }

  SmallTmpfs disk_{dir_.File("disk"), 1024};
  Host sick_{dir_, "sick"};
  std::set<std::uint64_t> ids_;
};

TEST_F(MysqlHostDisk, ThatIsFullStopsNoOtherHost) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(host_, sick_));
  disk_.Fill();
  EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return !Claims(sick_); }));
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(Claims(host_, Patience(2s))) << i << host_.daemon.Log();
    if (i % 10 == 0) {
      EXPECT_FALSE(Claims(sick_));
    }
  }
  disk_.Free();
  ExpectBothClaim();
}

// Other hosts lease up to the ceilings.
TEST_F(MysqlHostDisk, OfTheOnlyWitnessThatIsFullEndsLeasingUntilItHasRoom) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(sick_, host_));
  disk_.Fill();
  IdctlResult last;
  EXPECT_TRUE(WaitUntil(Patience(60s), [&] {
    last = host_.idctl.Run({"claim", "orders", "-n", "5"});
    for (const std::uint64_t id : ParseIds(last.out)) EXPECT_TRUE(ids_.insert(id).second) << id;
    return last.err.find("that are missing: sick") != std::string::npos;
  })) << last.err;
  disk_.Free();
  ExpectBothClaim();
}

TEST_F(MysqlFaults, ReadOnlyServerIsPassedOverForTheNext) {
  server_.Start();
  DbServer second(dir_, "second", {.port = 0, .arguments = {}});
  second.Start();
  server_.Session("").Execute("SET GLOBAL read_only = 1");
  Start(Url());
  EXPECT_TRUE(WaitForError("is read-only")) << Database();
  server_.Session("").Execute("SET GLOBAL read_only = 0");
  EXPECT_TRUE(WaitUp());
  // While a connection is open: the lease is refused, and idd checks the server again.
  CreateDryTag("orders");
  server_.Session("").Execute("SET GLOBAL read_only = 1");
  ExpectRefusal("orders", "read-only");
  server_.Session("").Execute("SET GLOBAL read_only = 0");
  EXPECT_TRUE(ClaimsWithin("orders", Patience(10s)));
}

// A new package may run on SQLite before the operator configures its database.
TEST_F(MysqlFaults, HostThatWasGrantedNothingMovesToAnEmptyDatabase) {
  server_.Start();
  host_.daemon.Start();
  host_.daemon.Stop();
  const std::size_t mark = host_.daemon.LogMark();
  Start(Url());
  CreateDryTag("orders");
  EXPECT_TRUE(ClaimsWithin("orders", Patience(10s)));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("info store.changed", mark, 0s)) << host_.daemon.Log();
  host_.daemon.Stop();
  // Now the host has been granted ids.
  DbServer empty(dir_, "empty", {.port = 0, .arguments = {}});
  empty.Start();
  host_.daemon.options().database = empty.Url();
  host_.daemon.Start();
  EXPECT_TRUE(WaitForError("knows of granted ids")) << Database();
}

// When there are many leases within a second, idd writes a bound of their marks at once, and the
// marks later.
TEST_F(MysqlFaults, LeasesOfAKilledRunThatTheTablesLackDoNotComeAgain) {
  server_.Start();
  Start(Url());
  CreateDryTag("orders");
  std::this_thread::sleep_for(4s);  // the server must be older than idd's last look
  host_.daemon.Stop();
  host_.daemon.Start();
  ASSERT_TRUE(ClaimsWithin("orders", Patience(10s)));
  const std::vector<std::uint64_t> ids = host_.idctl.Claim("orders", 50);
  ASSERT_EQ(ids.size(), 50U);
  host_.daemon.Kill();
  DbSession session = server_.Session();
  session.Execute("DELETE FROM idd_lease WHERE base >= " + std::to_string(ids.front()));
  session.Execute("UPDATE leaf_alloc SET max_id = " + std::to_string(ids.front()));
  host_.daemon.Start();
  ASSERT_TRUE(ClaimsWithin("orders", Patience(30s)));
  EXPECT_GT(host_.idctl.Claim("orders", 1).front(), ids.back());
}

TEST_F(MysqlFaults, WeakDurabilityIsAStandingWarning) {
  DbServer weak(dir_, "weak", {.port = 0, .arguments = {"--innodb-flush-log-at-trx-commit=0"}});
  weak.Start();
  Start(weak.Url());
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.not_durable.*innodb_flush_log_at_trx_commit=0", 0,
                                          Patience(5s)));
}

}  // namespace
}  // namespace idd::harness

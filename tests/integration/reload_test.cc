// SPDX-License-Identifier: Apache-2.0
//
// SIGHUP with a changed file: what takes effect, while processes claim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "idd/shm/ring_claimer.h"
#include "idd/shm/ring_memory.h"
#include "support/claim_worker_process.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/raw_connection.h"
#include "support/ring_request.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

class Reloading : public HostWithUsers {
 protected:
  void Start(const std::string& config) {
    Configure(config);
    host_.daemon.Start();
    host_.idctl.Do(
        {"tag", "create", "orders", "--step", "1000", "--max-step", "1000", "--refill", "leaf"});
  }
  void StartWorker(bool retry = false) {
    WorkerPlan plan{.socket = host_.daemon.socket(), .tag = "orders", .name = "worker"};
    plan.pace_us = 100;
    plan.batch = 20;
    plan.retry = retry;
    plan.identity = kAlice;
    worker_.emplace(dir_, plan);
    worker_->WaitReady(Patience(10s));
    worker_->Go();
    ExpectProgress();
  }
  void ExpectProgress() {
    const std::uint64_t before = worker_->ids();
    EXPECT_TRUE(WaitUntil(Patience(15s), [&] { return worker_->ids() > before + 2500; }))
        << worker_->Failure() << host_.daemon.Log();
  }
  [[nodiscard]] std::set<std::string> WorkersRings() {
    return RingsMappedBy(std::to_string(worker_->process().pid()));
  }
  void ExpectWorkerWasServedWell() {
    worker_->Stop();
    EXPECT_EQ(worker_->Finish(Patience(10s)), 0) << worker_->Failure();
    std::vector<Claimer> claimers;
    worker_->AddClaimers(claimers);
    EXPECT_EQ(Join(CheckUnique(claimers)) + Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("orders"))), "");
    EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  }
  static std::string Alice(const std::string& grant) { return Rule("'*'", kAlice.uid, grant); }

  static std::string Database(const std::string& url) {
    return "database = '" + url + "'\n" + Alice("access = 'shm'");
  }

  std::optional<ClaimWorkerProcess> worker_;
};

TEST_F(Reloading, LevelOfTheLogChangesAndIsNamed) {
  host_.daemon.options().log_level = "";
  Start("");
  static_cast<void>(host_.idctl.Claim("orders"));
  EXPECT_THAT(host_.daemon.Log(), Not(HasSubstr("lease.granted")));
  Reload("log_level = 'debug'\n");
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("changed=log_level"));
  static_cast<void>(host_.idctl.Claim("orders", 3000));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("lease.granted", 0, Patience(2s)));
}

TEST_F(Reloading, FileWithAMistakeChangesNothing) {
  Start(Alice("access = 'shm'"));
  const std::size_t mark = host_.daemon.LogMark();
  Reload("log_level = 'debug'\n[[access]]\ntags = ['*']\nusers = ['nobody-has-this-name']\n");
  EXPECT_TRUE(host_.daemon.WaitForLogLine("config.reload_failed.*host-a.toml:4.*nobody-has", mark,
                                          Patience(2s)))
      << host_.daemon.LogSince(mark);
  EXPECT_EQ(host_.idctl.As(kAlice).Claim("orders", 2500).size(), 2500U);
  EXPECT_THAT(host_.daemon.Log(), Not(HasSubstr("lease.granted")));
}

TEST_F(Reloading, WhatNeedsARestartIsNamedAndStays) {
  Start("");
  Reload("log_format = 'json'\nlease_limit = 7\n");
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("config.needs_restart keys=log_format"));
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("changed=lease_limit"));
}

TEST_F(Reloading, StricterRuleTakesTheRingFromThoseWhoMapIt) {
  Start(Alice("access = 'shm'"));
  StartWorker();
  const std::set<std::string> closed = WorkersRings();
  EXPECT_EQ(closed.size(), 1U);
  const std::size_t mark = host_.daemon.LogMark();
  Reload(Alice("access = 'socket'"));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("ring.retired.*orders", mark, Patience(2s)));
  ExpectProgress();
  EXPECT_EQ(WorkersRings(), closed) << "no other ring is mapped";
  // A looser rule takes effect by itself. The closed ring is no longer mapped then.
  Reload(Alice("access = 'shm'"));
  EXPECT_TRUE(WaitUntil(Patience(10s), [this, &closed] {
    const std::set<std::string> rings = WorkersRings();
    return rings.size() == 1 && rings != closed;
  }));
  ExpectProgress();
  // Reloading the same rules withdraws nothing.
  const std::size_t quiet = host_.daemon.LogMark();
  Reload(Alice("access = 'shm'") + "\n");
  ExpectProgress();
  EXPECT_THAT(host_.daemon.LogSince(quiet), Not(HasSubstr("ring.retired")));
  ExpectWorkerWasServedWell();
}

TEST_F(Reloading, UserWithoutAnyRightLeftIsClosedAndDenied) {
  Start(Alice("access = 'shm'"));
  StartWorker();
  std::optional<RawConnection> idle;
  {
    const ScopedIdentity alice(kAlice);
    idle.emplace(host_.daemon.socket());
    idle->Hello();
  }
  const std::size_t mark = host_.daemon.LogMark();
  Reload(Rule("'*'", kBob.uid, "access = 'shm'"));
  EXPECT_TRUE(idle->WaitClosed(Patience(2s)));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("ring.retired.*orders", mark, Patience(2s)));
  EXPECT_EQ(worker_->process().WaitFor(Patience(10s)).value_or(0), 1) << "its claim failed";
  EXPECT_THAT(worker_->Failure(), HasSubstr("DENIED"));
  EXPECT_EQ(host_.idctl.As(kAlice).Run({"claim", "orders"}).exit_status, 6);
  EXPECT_EQ(host_.idctl.As(kBob).Claim("orders", 1500).size(), 1500U);
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// A mapping does not end with the connection over which it came.
TEST_F(Reloading, StricterRuleClosesTheRingOfOneWhoHasDisconnected) {
  Start(Alice("access = 'shm'"));
  std::unique_ptr<shm::RingMemory> memory;
  {
    const ScopedIdentity alice(kAlice);
    memory = MapRing(host_.daemon.socket(), "orders");
  }
  shm::ClaimView view{shm::DryPoint()};
  const shm::RingClaimer claimer(memory->table(), memory->cursors(), view);
  EXPECT_EQ(claimer.state(), shm::RingState::kActive);
  static_cast<void>(host_.idctl.Claim("orders", 10));
  Reload(Alice("access = 'socket'"));
  EXPECT_TRUE(WaitUntil(Patience(2s), [&] { return claimer.state() == shm::RingState::kRetired; }));
  EXPECT_EQ(host_.idctl.As(kAlice).Claim("orders").front(), 11U) << "no id was lost";
}

TEST_F(Reloading, MissingDatabaseIsDownAndTheOldOneComesBack) {
  host_.daemon.options().database.clear();
  const std::string good = "database = 'sqlite:" + dir_.File("idd.db") + "'\n";
  Start(good);
  static_cast<void>(host_.idctl.Claim("orders", 10));
  std::size_t mark = host_.daemon.LogMark();
  Reload("database = 'sqlite:" + dir_.File("not-there.db") + "'\n");
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.down.*not-there.db", mark, Patience(5s)));
  EXPECT_FALSE(Exists(dir_.File("not-there.db"))) << "idd made a new database";
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 11U) << "from the ring";
  const nlohmann::json database = host_.idctl.Json({"status"}).at("database");
  EXPECT_EQ(database.at("state"), "down");
  EXPECT_THAT(database.at("url").get<std::string>(), HasSubstr("not-there.db"));
  mark = host_.daemon.LogMark();
  Reload(good);
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.up", mark, Patience(5s)));
  EXPECT_EQ(host_.idctl.Run({"claim", "orders", "-n", "5000", "--timeout", "20000"}).exit_status,
            0);
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

// An older copy under another name: idd lifts it to the marks in use before it leases anything.
TEST_F(Reloading, OlderCopyOfTheDatabaseLeasesNothingTwice) {
  host_.daemon.options().database.clear();
  Start(Database("sqlite:" + dir_.File("idd.db")));
  SqliteFile(dir_.File("idd.db")).Execute("VACUUM INTO '" + dir_.File("copy.db") + "'");
  StartWorker(true);
  const std::size_t mark = host_.daemon.LogMark();
  Reload(Database("sqlite:" + dir_.File("copy.db")));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.replaced", mark, Patience(5s)))
      << host_.daemon.LogSince(mark);
  EXPECT_THAT(host_.daemon.LogSince(mark), HasSubstr("changed=database"));
  ExpectProgress();
  worker_->Stop();
  EXPECT_EQ(worker_->Finish(Patience(10s)), 0) << worker_->Failure();
  std::vector<Claimer> claimers;
  worker_->AddClaimers(claimers);
  EXPECT_EQ(Join(CheckUnique(claimers)) + Join(CheckRising(claimers)), "");
}

TEST_F(Reloading, DatabaseMovesToAnotherEndpointAndPassword) {
  const int port = FreePorts(1).front();
  DbServer server(dir_, "db", {.port = static_cast<std::uint16_t>(port), .arguments = {}});
  server.Start();
  host_.daemon.options().database.clear();
  Start(Database(server.Url()));
  StartWorker(true);
  server.Session().Execute("ALTER USER idd@'127.0.0.1' IDENTIFIED BY 'other\'");
  std::string url = server.TcpUrl();
  const std::size_t at = url.find("secret");
  ASSERT_NE(at, std::string::npos) << url;
  url.replace(at, 6, "other");
  std::size_t mark = host_.daemon.LogMark();
  Reload(Database(url));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("term.entered", mark, Patience(10s)))
      << host_.daemon.LogSince(mark);
  EXPECT_THAT(host_.daemon.Log(), Not(HasSubstr("other")));
  ExpectProgress();
  ExpectProgress();
  EXPECT_EQ(host_.idctl.Json({"status"}).at("database").at("state"), "up");
  // A wrong password: claims continue from the rings, and the next file fixes it.
  mark = host_.daemon.LogMark();
  Reload(Database(server.TcpUrl()));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.down", mark, Patience(10s)));
  Reload(Database(url));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.up", mark, Patience(10s)));
  ExpectProgress();
  ExpectWorkerWasServedWell();
}

}  // namespace
}  // namespace idd::harness

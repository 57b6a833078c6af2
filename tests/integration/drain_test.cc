// SPDX-License-Identifier: Apache-2.0
//
// idctl drain and resume: tags and hosts are taken out of use and returned to use, beside claimers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.hpp"
#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/service_manager_stand_in.h"
#include "support/test_environment.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

constexpr int kClaimers = 4;

class Drain : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", 1000); }
  [[nodiscard]] std::string StateOf(const std::string& tag) const {
    return host_.idctl.Json({"status", tag}).at("tags").at(0).at("state");
  }
  // The claim is refused quickly, and the message names the command that ends the drain.
  void ExpectRefused(const std::string& tag, const std::string& how) const {
    const IdctlResult result = host_.idctl.Run({"claim", tag, "--timeout", "60000"});
    EXPECT_NE(result.exit_status, 0);
    EXPECT_THAT(result.err, HasSubstr("drained on this host"));
    EXPECT_THAT(result.err, HasSubstr(how));
    EXPECT_LT(result.duration, 30s) << "it waited for its deadline";
  }
  void ExpectAuditAddsUp(const std::string& tag) const {
    const IdctlResult audit = host_.idctl.Run({"audit", tag});
    EXPECT_EQ(audit.exit_status, 0) << audit.out << audit.err;
  }
  void ExpectNothingActive(const std::string& tag) const {
    for (const JournalLease& lease : host_.idctl.Leases(tag)) {
      EXPECT_NE(lease.state, "active") << lease.base << " to " << lease.limit;
    }
  }
  // All tails went back, and the next claim gets the first unclaimed id.
  void ExpectGoesOnAt(std::uint64_t next) {
    EXPECT_EQ(host_.idctl.Json({"drain", "orders"}).at("done"), true);
    ExpectNothingActive("orders");
    ExpectAuditAddsUp("orders");
    host_.idctl.Do({"resume", "orders"});
    EXPECT_EQ(host_.idctl.Claim("orders").front(), next);
    host_.daemon.Stop();
  }
  void StartClaimers() {
    for (int i = 0; i < kClaimers; ++i) {
      WorkerPlan plan{
          .socket = host_.daemon.socket(), .tag = "orders", .name = "claimer" + std::to_string(i)};
      plan.pace_us = 50;
      // No claim gives up before its answer: an id that came too late would be a gap, but the tests
      // expect that the last claimed id is the last one used.
      plan.timeout_ms = 120'000;
      plan.retry = true;
      plan.batch = 1;
      workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    }
    for (const auto& worker : workers_) worker->WaitReady(Patience(10s));
    for (const auto& worker : workers_) worker->Go();
  }
  [[nodiscard]] std::uint64_t Claimed() const {
    std::uint64_t ids = 0;
    for (const auto& worker : workers_) ids += worker->ids();
    return ids;
  }
  [[nodiscard]] bool ClaimersGoOn() const {
    const std::uint64_t before = Claimed();
    return WaitUntil(Patience(20s), [&] { return Claimed() > before + 100; });
  }
  [[nodiscard]] std::uint64_t LastClaimed() const {
    std::uint64_t last = 0;
    for (const auto& worker : workers_) {
      last = std::max<std::uint64_t>(last, worker->logs()[0].header().last_id);
    }
    return last;
  }
  void FinishClaimers() {
    std::vector<Claimer> claimers;
    for (const auto& worker : workers_) {
      worker->Stop();
      EXPECT_EQ(worker->Finish(Patience(30s)), 0) << worker->Failure();
      worker->AddClaimers(claimers);
    }
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckOrder(claimers)), "");
    EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("orders"))), "");
  }

  const TempDir dir_;
  ServiceManagerStandIn manager_{dir_};
  CleanHost host_{dir_};
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
};

TEST_F(Drain, HandsBackAndSaysHowMuch) {
  (void)host_.idctl.Claim("orders", 137);
  const nlohmann::json drained = host_.idctl.Json({"drain", "orders"});
  EXPECT_EQ(drained.at("scope"), "tag");
  EXPECT_EQ(drained.at("tag"), "orders");
  EXPECT_EQ(drained.at("was_drained"), false);
  EXPECT_EQ(drained.at("done"), true);
  EXPECT_EQ(drained.at("tags"), 1);
  EXPECT_GE(drained.at("ids_returned"), 863);
  EXPECT_EQ(drained.at("ids_pending"), 0);
  EXPECT_EQ(drained.at("ids_abandoned"), 0);
  EXPECT_EQ(host_.Database().MaxId("orders"), 138U) << "it must happen before the answer";
  EXPECT_EQ(StateOf("orders"), "drained");
  ExpectRefused("orders", "idctl resume orders");
  ExpectNothingActive("orders");
  ExpectAuditAddsUp("orders");

  const IdctlResult again = host_.idctl.Run({"drain", "orders"});
  EXPECT_EQ(again.exit_status, 0);
  EXPECT_THAT(again.out, HasSubstr("tag 'orders' was drained already: "));
  EXPECT_THAT(again.out, HasSubstr(" ids handed back"));

  EXPECT_EQ(host_.idctl.Json({"resume", "orders"}).at("was_drained"), true);
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 138U) << "there is a gap";
  EXPECT_EQ(StateOf("orders"), "ok");
  EXPECT_EQ(host_.idctl.Run({"resume", "orders"}).out, "tag 'orders' was not drained\n");
  ExpectAuditAddsUp("orders");
}

TEST_F(Drain, WholeHostTakesTagsThatComeLater) {
  (void)host_.idctl.Claim("orders", 10);
  EXPECT_EQ(host_.idctl.Json({"drain"}).at("scope"), "host");
  host_.idctl.CreateTag("later", 1000);
  ExpectRefused("later", "'idctl resume' ends it");
  EXPECT_EQ(StateOf("later"), "drained");
  EXPECT_EQ(host_.idctl.Json({"status"}).at("daemon").at("drained"), true);
  EXPECT_THAT(host_.idctl.Run({"status"}).out, HasSubstr("the whole host is drained"));
  const IdctlResult one = host_.idctl.Run({"resume", "orders"});
  EXPECT_EQ(one.exit_status, 1) << "it changes nothing";
  EXPECT_THAT(one.err, HasSubstr("without a tag"));
  host_.idctl.Do({"drain", "later"});
  EXPECT_EQ(host_.idctl.Json({"resume"}).at("still_drained"), nlohmann::json::array({"later"}));
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 11U);
  ExpectRefused("later", "idctl resume later");
  host_.idctl.Do({"resume", "later"});
  EXPECT_EQ(host_.idctl.Claim("later").front(), 1U);
}

// No id comes twice, none is below an earlier claimed one, and the audit adds up throughout.
TEST_F(Drain, BesideClaimersLosesNothingAndGoesOn) {
  StartClaimers();
  const int rounds = static_cast<int>(std::max<std::uint64_t>(3, ScaledLoad(12)));
  for (int round = 0; round < rounds; ++round) {
    ASSERT_TRUE(ClaimersGoOn()) << "round " << round << ": a client needs a restart";
    host_.idctl.Do(round % 3 == 2 ? std::vector<std::string>{"drain"}
                                  : std::vector<std::string>{"drain", "orders"});
    const std::uint64_t claimed = Claimed();
    std::this_thread::sleep_for(50ms);
    EXPECT_LE(Claimed(), claimed + kClaimers) << "only claims in flight may still succeed";
    // A claimer may have claimed an id and not logged it yet. If the daemon loses its processor
    // while it withdraws the ring, a claimer gives up what it added: twice at most, in the segment
    // that it knew and where it looked for the next one.
    EXPECT_TRUE(WaitUntil(Patience(5s),
                          [this] {
                            const std::uint64_t used = host_.Database().MaxId("orders") - 1;
                            const std::uint64_t last = LastClaimed();
                            return used >= last && used <= last + 2 * std::uint64_t{kClaimers};
                          }))
        << host_.Database().MaxId("orders") << " after " << LastClaimed();
    ExpectNothingActive("orders");
    ExpectAuditAddsUp("orders");
    host_.idctl.Do(round % 3 == 2 ? std::vector<std::string>{"resume"}
                                  : std::vector<std::string>{"resume", "orders"});
  }
  ASSERT_TRUE(ClaimersGoOn());
  ExpectAuditAddsUp("orders");
  FinishClaimers();
}

// A refused client gets its answers at once, repeatedly, and continues when the tag does.
TEST_F(Drain, ClientOfARingIsRefusedAtOnceAndNeedsNoRestart) {
  idclient::Options options;
  options.socket_path = host_.daemon.socket();
  options.timeout = std::chrono::minutes(1);
  idclient::Client client(options);
  idclient::Tag tag = client.tag("orders");
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) last = tag.claim();
  host_.idctl.Do({"drain", "orders"});
  for (int i = 0; i < 3; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    try {
      (void)tag.claim();
      ADD_FAILURE() << "claimed from a drained tag";
    } catch (const idclient::Error& error) {
      EXPECT_EQ(error.status(), IDCLIENT_UNAVAILABLE);
      EXPECT_THAT(error.what(), HasSubstr("idctl resume orders"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 30s) << "it waited for its deadline";
  }
  host_.idctl.Do({"resume", "orders"});
  EXPECT_EQ(tag.claim(), last + 1);
}

TEST_F(Drain, StaysOverRestartsAndKills) {
  for (const bool has_manager : {false, true}) {
    host_.daemon.Stop();
    host_.daemon.options().manager = has_manager ? &manager_ : nullptr;
    host_.daemon.Start();
    const std::uint64_t last = host_.idctl.Claim("orders", 10).back();
    host_.idctl.Do({"drain", "orders"});
    const std::uint64_t max_id = host_.Database().MaxId("orders");
    EXPECT_EQ(max_id, last + 1);
    for (const bool is_kill : {false, true}) {
      if (is_kill) {
        host_.daemon.Kill();
        host_.daemon.Start();
      } else {
        host_.daemon.Restart();
      }
      EXPECT_EQ(StateOf("orders"), "drained");
      ExpectRefused("orders", "idctl resume orders");
      EXPECT_EQ(host_.Database().MaxId("orders"), max_id) << "idd leased at its start";
      ExpectAuditAddsUp("orders");
    }
    host_.idctl.Do({"resume", "orders"});
    host_.daemon.Restart();
    EXPECT_EQ(host_.idctl.Claim("orders").front(), last + 1);
  }
}

// idd is killed at any point of a drain or a resume, beside claimers. The next idd continues with
// either, and reports which.
TEST_F(Drain, KilledAtAnyStepMakesNoDuplicate) {
  host_.daemon.Stop();
  host_.daemon.options().manager = &manager_;
  host_.daemon.Start();
  StartClaimers();
  std::mt19937_64 random(TestSeed());
  const int rounds = static_cast<int>(std::max<std::uint64_t>(4, ScaledLoad(24)));
  int drained = 0;
  for (int round = 0; round < rounds; ++round) {
    const char* command = round % 2 == 0 ? "drain" : "resume";
    std::thread operation([&] { (void)host_.idctl.Run({command, "orders", "--timeout", "3000"}); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    host_.daemon.Kill();
    operation.join();
    host_.daemon.Start();
    // A tag that is not drained and had no lease is known only from its next claim on.
    ASSERT_TRUE(WaitUntil(Patience(20s), [this] {
      return host_.idctl.Run({"status", "orders"}).exit_status == 0;
    }));
    if (StateOf("orders") == "drained") {
      ++drained;
      // The tails of the killed idd go back without a request.
      EXPECT_TRUE(WaitUntil(Patience(10s), [&] {
        return host_.idctl.Json({"drain", "orders"}).at("done") == true;
      }));
      ExpectNothingActive("orders");
    }
    ExpectAuditAddsUp("orders");
  }
  std::printf("%d of %d starts found it drained\n", drained, rounds);
  host_.idctl.Do({"resume", "orders"});
  EXPECT_TRUE(ClaimersGoOn());
  EXPECT_EQ(host_.idctl.Audit("orders").abandoned, 0U) << "a kill must lose nothing";
  FinishClaimers();
}

// The drain is recorded, but the store takes no tails back while another program locks it.
TEST_F(Drain, StoreThatTakesNothingIsReportedAndGetsTheTailsLater) {
  (void)host_.idctl.Claim("orders", 137);
  const std::uint64_t before = host_.Database().MaxId("orders");
  {
    SqliteFile database = host_.Database();
    database.Execute("BEGIN EXCLUSIVE");
    const IdctlResult result = host_.idctl.Run({"drain", "orders"});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_THAT(result.out, HasSubstr("not back yet"));
    EXPECT_THAT(result.err, HasSubstr("idd returns them when the store answers"));
    ExpectRefused("orders", "idctl resume orders");
    EXPECT_EQ(StateOf("orders"), "drained");
  }
  EXPECT_GT(before, 138U);
  ASSERT_TRUE(WaitUntil(Patience(20s), [this] {
    return host_.idctl.Json({"status"}).at("database").at("state") == "up" &&
           host_.Database().MaxId("orders") == 138U;
  }));
  ExpectGoesOnAt(138);
}

TEST_F(Drain, OfATagThatOnlyTheStoreKnowsNeedsTheStore) {
  const std::string path = host_.daemon.options().database;
  std::filesystem::rename(path, path + ".away");
  const IdctlResult result = host_.idctl.Run({"drain", "orders", "--timeout", "20000"});
  EXPECT_EQ(result.exit_status, 1) << "idd cannot know whether the tag exists: " << result.out;
  EXPECT_THAT(result.err, HasSubstr("idd.db"));
  // The whole host has nothing open, and only this host records what is drained.
  EXPECT_EQ(host_.idctl.Run({"drain"}).exit_status, 0);
  ExpectRefused("orders", "'idctl resume' ends it");
  std::filesystem::rename(path + ".away", path);
  host_.idctl.Do({"resume"});
  ASSERT_TRUE(WaitUntil(Patience(20s), [this] {
    return host_.idctl.Run({"claim", "orders"}).exit_status == 0;
  }));
}

class DrainRights : public HostWithUsers {};

TEST_F(DrainRights, TagNeedsItsAdministratorHostThatOfAll) {
  Configure(Rule("'orders'", kAlice.uid, "access = 'admin'") +
            Rule("'users'", kAlice.uid, "access = 'shm'"));
  host_.daemon.Start();
  for (const char* tag : {"orders", "users"}) host_.idctl.CreateTag(tag, 100);
  const Idctl alice = host_.idctl.As(kAlice);
  for (const char* command : {"drain", "resume"}) {
    EXPECT_EQ(alice.Run({command, "orders"}).exit_status, 0);
    EXPECT_EQ(alice.Run({command, "users"}).exit_status, 6);
    EXPECT_EQ(alice.Run({command}).exit_status, 6);
    EXPECT_EQ(alice.Run({command, "not-there"}).exit_status, 6) << "whether or not it exists";
  }
  EXPECT_EQ(host_.idctl.Json({"status"}).at("daemon").at("drained"), false);
  // The list of what stays drained does not show tags that the caller may not see.
  host_.idctl.Do({"drain", "users"});
  host_.idctl.Do({"drain", "orders"});
  EXPECT_EQ(alice.Json({"resume", "orders"}).at("still_drained").size(), 1U) << "she may see it";
}

// A reload withdraws a user's ring while the ring is empty.
TEST_F(DrainRights, ReloadMeanwhileOpensNothing) {
  Configure(Rule("'orders'", kAlice.uid, "access = 'shm'"));
  host_.StartWithTag("orders", 100);
  const std::uint64_t last = host_.idctl.As(kAlice).Claim("orders", 10).back();
  host_.idctl.Do({"drain", "orders"});
  Reload(Rule("'orders'", kBob.uid, "access = 'shm'"));
  EXPECT_EQ(host_.idctl.Json({"status"}).at("tags").at(0).at("state"), "drained");
  EXPECT_EQ(host_.Database().MaxId("orders"), last + 1);
  host_.idctl.Do({"resume", "orders"});
  EXPECT_EQ(host_.idctl.As(kBob).Claim("orders").front(), last + 1);
  EXPECT_EQ(host_.idctl.As(kAlice).Run({"claim", "orders"}).exit_status, 6);
}

}  // namespace
}  // namespace idd::harness

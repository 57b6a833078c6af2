// SPDX-License-Identifier: Apache-2.0
//
// One user who asks for too much: what he gets is bounded, and the others notice nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/claim_worker_process.h"
#include "support/raw_connection.h"
#include "support/scrape.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

class Limits : public HostWithUsers {
 protected:
  void Start(const std::string& limits, const std::string& grant = "access = 'shm'") {
    Configure("[limits]\n" + limits + "\n" + Rule("'*'", kAlice.uid, grant) +
              Rule("'*'", kBob.uid, "access = 'shm'"));
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "orders", "--step", "100000"});
  }
  [[nodiscard]] WorkerPlan Plan(const Identity& who, const std::string& name) const {
    WorkerPlan plan;
    plan.socket = host_.daemon.socket();
    plan.tag = "orders";
    plan.name = name;
    plan.identity = who;
    return plan;
  }
  // Retries while the backlog is full.
  [[nodiscard]] std::optional<RawConnection> Connect(std::chrono::milliseconds timeout) const {
    std::optional<RawConnection> connection;
    static_cast<void>(WaitUntil(timeout, [&] {
      connection = RawConnection::TryConnect(host_.daemon.socket());
      return connection.has_value();
    }));
    return connection;
  }
  // How many requests of that operation idd has read.
  [[nodiscard]] double Requested(const std::string& operation) const {
    const Scrape page(host_.idctl.Run({"metrics"}).out);
    const std::string name = "idd_admin_requests_total{operation=\"" + operation + "\"}";
    return page.Find(name).value_or(0);
  }
  [[nodiscard]] std::uint64_t ResidentKib() const {
    std::ifstream status("/proc/" + std::to_string(host_.daemon.pid()) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6));
    }
    return 0;
  }
};

// Two processes of Alice, four threads, batches of all sizes: together they have what she may have.
// How many in a second at most is for tests/unit/peer_limits_test.cc, which has the clock.
TEST_F(Limits, IdsPerSecondHoldWithinATwentieth) {
  constexpr double kPerSecond = 20'000;
  constexpr double kAtOnce = kPerSecond / 10;
  constexpr std::uint64_t kIds = 60'000;
  Start("", "ids_per_second = 20000");
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers;
  for (const char* name : {"one", "two"}) {
    WorkerPlan plan = Plan(kAlice, name);
    plan.threads = 2;
    plan.batch = 500;
    workers.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    workers.back()->WaitReady(Patience(10s));
  }
  const std::uint64_t from_ns = MonotonicNs();
  for (const auto& worker : workers) worker->Go();
  const auto ids = [&] { return workers[0]->ids() + workers[1]->ids(); };
  ASSERT_TRUE(WaitUntil(Patience(60s), [&] { return ids() >= kIds; })) << ids();
  // The ids before the time: what is claimed in between is on the safe side.
  const auto claimed = static_cast<double>(ids());
  const double seconds = static_cast<double>(MonotonicNs() - from_ns) / 1e9;
  std::printf("%.0f ids/s of %.0f\n", claimed / seconds, kPerSecond);
  EXPECT_LE(claimed, kPerSecond * 1.05 * seconds + kAtOnce);
  EXPECT_EQ(MappedRings(std::to_string(workers[0]->process().pid())), 0);
  // Bob is not limited by Alice's use: at her rate, which she uses up, it would take a minute.
  const IdctlResult bob =
      host_.idctl.As(kBob).Run({"claim", "orders", "-n", "1200000", "--timeout", "120000"});
  EXPECT_EQ(bob.exit_status, 0) << bob.err;
  EXPECT_LT(bob.duration, 50s);
  std::vector<Claimer> claimers;
  for (const auto& worker : workers) worker->Stop();
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->Finish(Patience(10s)), 0) << worker->Failure();
    worker->AddClaimers(claimers);
  }
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
}

TEST_F(Limits, WhoMayHaveNoMoreIdsInTimeIsToldSoAtTheDeadline) {
  Start("", "ids_per_second = 1");
  const Idctl alice = host_.idctl.As(kAlice);
  EXPECT_EQ(alice.Claim("orders").size(), 1U);
  const IdctlResult second = alice.Run({"claim", "orders", "-n", "100", "--timeout", "300"});
  EXPECT_EQ(second.exit_status, 5) << second.err;
  EXPECT_THAT(second.err, HasSubstr("1 ids a second"));
  EXPECT_GE(second.duration, 150ms) << "idd's answer comes before the client's own deadline";
  EXPECT_LT(second.duration, 30s) << "it waited for all of them";
}

TEST_F(Limits, RequestsBeyondTheLimitAreRefusedAndTheConnectionSurvives) {
  constexpr std::uint64_t kPerSecond = 50;
  constexpr std::uint64_t kAtOnce = 100;  // requests of one burst: more than there are in a second
  constexpr std::uint64_t kBursts = 10;
  Start("requests_per_second_per_uid = " + std::to_string(kPerSecond));
  for (int i = 0; i < 2; ++i) static_cast<void>(host_.idctl.Claim("orders"));  // it is in the ring
  std::uint64_t served = 0;
  std::uint64_t refused = 0;
  std::string reason;
  const std::uint64_t from_ns = MonotonicNs();
  {
    const ScopedIdentity alice(kAlice);
    RawConnection connection(host_.daemon.socket());
    connection.Hello();
    for (std::uint64_t i = 0; i < kBursts * kAtOnce; ++i) {
      if (i % kAtOnce == 0) {
        for (std::uint64_t j = 0; j < kAtOnce; ++j) {
          ASSERT_TRUE(connection.SendWithin(Patience(1s), MakeClaim("orders", i + j, 1, 30'000)));
        }
      }
      const std::optional<Reply> reply = connection.Receive(Patience(2s));
      ASSERT_TRUE(reply.has_value()) << i;
      const auto status = reply->As<wire::ClaimReply>().status;
      status == 0 ? ++served : ++refused;
      if (status == 0) continue;
      ASSERT_EQ(status, static_cast<std::uint32_t>(Code::kUnavailable));
      reason = reply->Reason<wire::ClaimReply>();
    }
  }
  const double seconds = static_cast<double>(MonotonicNs() - from_ns) / 1e9;
  std::printf("%llu served, %llu refused in %.2f s\n", static_cast<unsigned long long>(served),
              static_cast<unsigned long long>(refused), seconds);
  EXPECT_LE(static_cast<double>(served), static_cast<double>(kPerSecond) * (1 + seconds) + 1)
      << "a second's worth at once, then the rate";
  EXPECT_GE(served, kPerSecond - 1) << "a second's worth at once, less the HELLO";
  EXPECT_GT(refused, 0U);
  EXPECT_THAT(reason, HasSubstr("requests_per_second_per_uid"));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("peer.limited.*uid=12345", 0, Patience(1s)));
  EXPECT_EQ(host_.idctl.As(kBob).Claim("orders", 100).size(), 100U);
}

TEST_F(Limits, ConnectionsBeyondTheLimitAreRefusedByUser) {
  Start("connections_per_uid = 10");
  std::vector<RawConnection> open;
  {
    const ScopedIdentity alice(kAlice);
    for (int i = 0; i < 10; ++i) {
      open.emplace_back(host_.daemon.socket());
      open.back().Hello();
    }
    RawConnection surplus(host_.daemon.socket());
    const std::optional<Reply> reply = surplus.Receive(Patience(2s));
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->As<wire::StatusReply>().status,
              static_cast<std::uint32_t>(Code::kUnavailable));
    EXPECT_THAT(reply->Reason<wire::StatusReply>(), HasSubstr("connections_per_uid"));
  }
  EXPECT_EQ(host_.idctl.As(kBob).Claim("orders").size(), 1U);
  EXPECT_EQ(host_.idctl.As(kAlice).Run({"claim", "orders"}).exit_status, 4);
  open.pop_back();
  EXPECT_TRUE(WaitUntil(Patience(2s), [this] {
    return host_.idctl.As(kAlice).Run({"claim", "orders"}).exit_status == 0;
  }));
}

// Those of one user, who keeps as many as he can, and takes no notice of refusals.
TEST_F(Limits, HundredThousandConnectionsOfOneUserHarmNobody) {
  Start("");
  const std::uint64_t most = ScaledLoad(100'000);
  WorkerPlan plan = Plan(kBob, "honest");
  plan.pace_us = 100;
  ClaimWorkerProcess honest(dir_, plan);
  honest.WaitReady(Patience(10s));
  honest.Go();
  const std::uint64_t before_kib = ResidentKib();
  constexpr int kFewestRounds = 4;
  std::atomic<std::uint64_t> made{0};
  std::atomic<int> rounds{0};
  std::atomic<bool> is_flooding{true};
  std::thread flood([&] {
    const ScopedIdentity alice(kAlice);
    std::vector<std::optional<RawConnection>> kept(8000);
    while (made < most || rounds < kFewestRounds) {
      auto connection = Connect(Patience(10s));
      if (!connection.has_value()) break;
      kept[made++ % kept.size()] = std::move(connection);
    }
    is_flooding = false;
  });
  std::uint64_t peak_kib = 0;
  while (is_flooding) {
    const IdctlResult claim =
        host_.idctl.As(kBob).Run({"claim", "orders", "-n", "10", "--timeout", "60000"});
    EXPECT_EQ(claim.exit_status, 0) << claim.err;
    peak_kib = std::max(peak_kib, ResidentKib());
    ++rounds;
  }
  flood.join();
  std::printf("%llu connections, %d claims by new clients meanwhile, %llu KiB more\n",
              static_cast<unsigned long long>(made.load()), rounds.load(),
              static_cast<unsigned long long>(peak_kib - before_kib));
  EXPECT_GE(made, most);
  EXPECT_GE(rounds, kFewestRounds);
  EXPECT_LT(peak_kib - before_kib, 32U * 1024 * static_cast<unsigned>(SlowdownFactor()));
  const std::uint64_t ids = honest.ids();
  EXPECT_TRUE(WaitUntil(Patience(5s), [&] { return honest.ids() > ids + 10; }));
  honest.Stop();
  EXPECT_EQ(honest.Finish(Patience(10s)), 0) << honest.Failure();
  host_.daemon.Stop();
}

// While the store does not answer, requests for administration pile up.
TEST_F(Limits, AdministrationRequestsOfUsersLeaveRoomForAnOperators) {
  Start("");
  const std::string request = R"({"op": "host.list"})";
  std::optional<RawConnection> connection;
  {
    const ScopedIdentity alice(kAlice);
    connection.emplace(host_.daemon.socket());
  }
  connection->Hello();
  // The store gives up on the lock after two seconds, and all that waited are answered then. A busy
  // machine may take longer to get them there: again, until it has all happened in half of that.
  bool was_in_time = false;
  for (int attempt = 0; attempt < 20 && !was_in_time; ++attempt) {
    const std::string tag = "waits-" + std::to_string(attempt);
    SqliteFile database = host_.Database();
    database.Execute("BEGIN EXCLUSIVE");
    const MonotonicTime began = MonotonicClock::now();
    IdctlResult created;
    std::thread writer([&] { created = host_.idctl.Run({"tag", "create", tag}); });
    // What comes behind it waits, too.
    EXPECT_TRUE(WaitUntil(Patience(5s), [&] { return Requested("tag.create") > attempt + 1; }));
    for (std::uint64_t i = 0; i < 40; ++i) {
      EXPECT_TRUE(connection->Send(MakeFrame(
          wire::FrameType::kAdmin, i, std::as_bytes(std::span(request.data(), request.size())))));
    }
    std::vector<std::pair<std::uint64_t, std::uint32_t>> refused;
    for (int i = 0; i < 9; ++i) {  // the writer is one of the 32
      const std::optional<Reply> reply = connection->Receive(Patience(1s));
      EXPECT_TRUE(reply.has_value()) << i;
      if (!reply.has_value()) break;
      refused.emplace_back(reply->header.request_id, reply->As<wire::AdminReply>().status);
    }
    const double listed_before = Requested("host.list");
    IdctlResult listed;
    std::thread root([&] { listed = host_.idctl.Run({"host", "list"}); });
    EXPECT_TRUE(WaitUntil(Patience(5s), [&] { return Requested("host.list") > listed_before; }));
    was_in_time = MonotonicClock::now() - began < 1s;
    database.Execute("ROLLBACK");
    root.join();
    writer.join();
    for (int i = 0; i < 31; ++i) EXPECT_TRUE(connection->Receive(Patience(5s)).has_value()) << i;
    if (!was_in_time) continue;
    for (std::size_t i = 0; i < refused.size(); ++i) {
      EXPECT_EQ(refused[i].first, 31 + i) << "refused at once";
      EXPECT_EQ(refused[i].second, static_cast<std::uint32_t>(Code::kSystem));
    }
    EXPECT_EQ(created.exit_status, 0) << created.err;
    EXPECT_EQ(listed.exit_status, 0) << listed.err;
  }
  EXPECT_TRUE(was_in_time) << "the store answered before all of them had come";
}

// Everything that ordinary users may have is taken; who administers all gets in, and others do when
// there is room again.
TEST_F(Limits, OperatorGetsInWhenUsersHaveAllConnections) {
  Start("connections_per_uid = 100000");
  const rlimit few{1024, 1024};
  RequireErrno(::prlimit(host_.daemon.pid(), RLIMIT_NOFILE, &few, nullptr) == 0, "prlimit");
  Reload(ReadFile(host_.daemon.options().config));  // idd reckons with what it has now
  std::vector<RawConnection> open;
  {
    const ScopedIdentity alice(kAlice);
    for (int i = 0; i < 1000; ++i) {
      auto connection = Connect(Patience(5s));
      ASSERT_TRUE(connection.has_value()) << i;
      static_cast<void>(connection->Send(MakeHello()));
      open.push_back(std::move(*connection));
    }
  }
  EXPECT_EQ(host_.idctl.As(kBob).Run({"status"}).exit_status, 4);
  EXPECT_EQ(host_.idctl.Run({"status"}).exit_status, 0);
  EXPECT_EQ(host_.idctl.Claim("orders", 10).size(), 10U);
  open.clear();
  EXPECT_TRUE(WaitUntil(Patience(5s), [this] {
    return host_.idctl.As(kBob).Run({"claim", "orders"}).exit_status == 0;
  }));
  host_.daemon.Stop();
}

}  // namespace
}  // namespace idd::harness

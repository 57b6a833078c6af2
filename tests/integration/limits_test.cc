// SPDX-License-Identifier: Apache-2.0
//
// One user who asks for too much: its use is bounded, and the other users notice nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
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
    WorkerPlan plan{.socket = host_.daemon.socket(), .tag = "orders", .name = name};
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
  // The number of requests of that operation that idd has read.
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

// Two processes of Alice with four threads and batches of all sizes: together they get Alice's
// limit. tests/unit/peer_limits_test.cc, which controls the clock, checks the maximum in one
// second.
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
  // Reads the count before the clock, so ids claimed in between cannot fail the check.
  const auto claimed = static_cast<double>(ids());
  const double seconds = static_cast<double>(MonotonicNs() - from_ns) / 1e9;
  std::printf("%.0f ids/s of %.0f\n", claimed / seconds, kPerSecond);
  EXPECT_LE(claimed, kPerSecond * 1.05 * seconds + kAtOnce);
  EXPECT_EQ(MappedRings(std::to_string(workers[0]->process().pid())), 0);
  // Alice's use does not limit Bob: with a shared limit Bob would get no more than Alice.
  constexpr std::uint64_t kIdsOfBob = 1'200'000;
  const std::uint64_t before = ids();
  const IdctlResult bob = host_.idctl.As(kBob).Run(
      {"claim", "orders", "-n", std::to_string(kIdsOfBob), "--timeout", "300000"});
  EXPECT_EQ(bob.exit_status, 0) << bob.err;
  EXPECT_GT(kIdsOfBob, 2 * (ids() - before)) << "after " << bob.duration.count() << " ms";
  std::vector<Claimer> claimers;
  for (const auto& worker : workers) worker->Stop();
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->Finish(Patience(10s)), 0) << worker->Failure();
    worker->AddClaimers(claimers);
  }
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
}

TEST_F(Limits, UserAtItsIdLimitIsRefusedAtTheDeadline) {
  Start("", "ids_per_second = 1");
  const Idctl alice = host_.idctl.As(kAlice);
  EXPECT_EQ(alice.Claim("orders").size(), 1U);
  const IdctlResult second = alice.Run({"claim", "orders", "-n", "100", "--timeout", "300"});
  EXPECT_EQ(second.exit_status, 5) << second.err;
  EXPECT_THAT(second.err, HasSubstr("1 ids a second"));
  EXPECT_GE(second.duration, 150ms) << "idd's answer comes before the client's own deadline";
  EXPECT_LT(second.duration, 30s) << "it waited for all of them";
}

// Requests beyond the limit stay in the socket until idd may read them: idd refuses none and spends
// nothing on them.
TEST_F(Limits, RequestsBeyondTheLimitAreNotReadUntilTheyMayBe) {
  constexpr std::uint64_t kPerSecond = 20;
  constexpr std::uint64_t kClaims = 4 * kPerSecond;
  Start("requests_per_second_per_uid = " + std::to_string(kPerSecond));
  for (int i = 0; i < 2; ++i) static_cast<void>(host_.idctl.Claim("orders"));  // now in the ring
  const ScopedIdentity alice(kAlice);
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  std::uint64_t sent = 0;
  const auto send_some = [&] {  // as far as the socket has room
    for (; sent < kClaims; ++sent) {
      if (!connection.Send(MakeClaim("orders", sent, 1, 30'000))) break;
    }
  };
  const std::uint64_t from_ns = MonotonicNs();
  std::uint64_t unread = 0;  // replies received while requests waited in the socket
  for (std::uint64_t i = 0; i < kClaims; ++i) {
    send_some();
    const std::optional<Reply> reply = connection.Receive(Patience(2s));
    ASSERT_TRUE(reply.has_value()) << i;
    EXPECT_EQ(reply->header.request_id, i) << "no request may be skipped";
    EXPECT_EQ(reply->As<wire::ClaimReply>().status, 0U) << reply->Reason<wire::ClaimReply>();
    // All requests were sent long before idd may read the last one.
    int waiting_bytes = 0;
    RequireErrno(::ioctl(connection.fd(), SIOCOUTQ, &waiting_bytes) == 0, "SIOCOUTQ");
    if (waiting_bytes > 0) ++unread;
  }
  const double seconds = static_cast<double>(MonotonicNs() - from_ns) / 1e9;
  std::printf("%.2f s, %llu times with requests not read\n", seconds,
              static_cast<unsigned long long>(unread));
  EXPECT_GE(seconds * kPerSecond, static_cast<double>(kClaims - kPerSecond - 1))
      << "a second's worth at once, then the rate";
  EXPECT_GE(unread, kPerSecond) << "idd read requests too early";
  EXPECT_TRUE(host_.daemon.WaitForLogLine("peer.limited.*uid=12345", 0, Patience(1s)));
}

TEST_F(Limits, OthersAreServedWhileOneUserIsNotRead) {
  Start("requests_per_second_per_uid = 10");
  for (int i = 0; i < 2; ++i) static_cast<void>(host_.idctl.Claim("orders"));
  std::vector<RawConnection> flood;
  std::optional<RawConnection> late;
  {
    const ScopedIdentity alice(kAlice);
    for (int i = 0; i < 100; ++i) {
      flood.emplace_back(host_.daemon.socket());
      EXPECT_TRUE(flood.back().Send(MakeHello()));
      for (int j = 0; j < 5; ++j) static_cast<void>(flood.back().Send(MakeAttach("orders", 1)));
    }
    late.emplace(host_.daemon.socket());
    EXPECT_TRUE(late->Send(MakeHello()));
  }
  EXPECT_EQ(host_.idctl.As(kBob).Claim("orders", 100).size(), 100U);
  // It takes at least 6 s until idd reads its HELLO, which it sent in time.
  const std::optional<Reply> reply = late->Receive(Patience(30s));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->header.type, 0x8001) << reply->Reason<wire::StatusReply>();
  EXPECT_THAT(host_.daemon.Log(), ::testing::Not(HasSubstr("no HELLO within")));
}

// A user who connected again and again got the reason each time, which took most of the loop.
TEST_F(Limits, UserOverItsRateIsDisconnectedWithoutAReason) {
  Start("connections_per_uid = 1\nrequests_per_second_per_uid = 1");
  const ScopedIdentity alice(kAlice);
  RawConnection first(host_.daemon.socket());
  first.Hello();
  // Frames that idd reads one a second: the user is over its rate until all are read.
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(first.Send(MakeClaim("orders", 1, 1, 0)));
  const auto reasons = [this] {
    RawConnection surplus(host_.daemon.socket());
    EXPECT_TRUE(surplus.WaitClosed(Patience(5s)));
    return surplus.messages();
  };
  EXPECT_TRUE(WaitUntil(Patience(10s), [&] { return reasons() == 0; }));
  EXPECT_TRUE(WaitUntil(Patience(10s), [&] { return reasons() == 1; })) << "it has waited since";
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

// One user opens as many connections as possible and ignores refusals.
TEST_F(Limits, HundredThousandConnectionsOfOneUserHarmNoOther) {
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
}

// While the store does not answer, administration requests pile up.
TEST_F(Limits, AdministrationRequestsOfUsersLeaveRoomForAnOperators) {
  Start("");
  const std::string request = R"({"op": "tag.list"})";
  std::optional<RawConnection> connection;
  {
    const ScopedIdentity alice(kAlice);
    connection.emplace(host_.daemon.socket());
  }
  connection->Hello();
  // The store gives up on the lock after two seconds, and then answers all waiting requests. A busy
  // machine may take longer to get them there, so the test repeats until everything happened before
  // that.
  bool was_in_time = false;
  for (int attempt = 0; attempt < 20 && !was_in_time; ++attempt) {
    const std::string tag = "waits-" + std::to_string(attempt);
    SqliteFile database = host_.Database();
    database.Execute("BEGIN EXCLUSIVE");
    const MonotonicTime began = MonotonicClock::now();
    IdctlResult created;
    std::thread writer([&] { created = host_.idctl.Run({"tag", "create", tag}); });
    // Later requests wait, too.
    EXPECT_TRUE(WaitUntil(Patience(5s), [&] { return Requested("tag.create") > attempt + 1; }));
    for (std::uint64_t i = 0; i < 40; ++i) {
      EXPECT_TRUE(connection->Send(MakeFrame(
          wire::FrameType::kAdmin, i, std::as_bytes(std::span(request.data(), request.size())))));
    }
    std::vector<std::pair<std::uint64_t, std::uint32_t>> refused;
    for (int i = 0; i < 24; ++i) {  // one user gets 16 of the places for users
      const std::optional<Reply> reply = connection->Receive(Patience(1s));
      EXPECT_TRUE(reply.has_value()) << i;
      if (!reply.has_value()) break;
      refused.emplace_back(reply->header.request_id, reply->As<wire::AdminReply>().status);
    }
    const double listed_before = Requested("tag.list");
    IdctlResult listed;
    std::thread root([&] { listed = host_.idctl.Run({"tag", "list"}); });
    EXPECT_TRUE(WaitUntil(Patience(5s), [&] { return Requested("tag.list") > listed_before; }));
    was_in_time = MonotonicClock::now() - began < 1900ms;
    database.Execute("ROLLBACK");
    root.join();
    writer.join();
    for (int i = 0; i < 16; ++i) EXPECT_TRUE(connection->Receive(Patience(5s)).has_value()) << i;
    if (!was_in_time) continue;
    for (std::size_t i = 0; i < refused.size(); ++i) {
      EXPECT_EQ(refused[i].first, 16 + i) << "refused at once";
      EXPECT_EQ(refused[i].second, static_cast<std::uint32_t>(Code::kSystem));
    }
    EXPECT_EQ(created.exit_status, 0) << created.err;
    EXPECT_EQ(listed.exit_status, 0) << listed.err;
  }
  EXPECT_TRUE(was_in_time) << "the store answered before all requests had arrived";
}

// However few descriptors idd has, and however many one user takes, the other users find room; and
// the operator finds room even when users have taken all of theirs.
class FewDescriptors : public Limits {
 protected:
  // Starts idd with rules for the users of Start() and for some more.
  void StartWith(rlim_t descriptors) {
    std::string rules;
    for (uid_t uid = kManyUsers; uid < kManyUsers + kUsers; ++uid) {
      rules += Rule("'*'", uid, "access = 'shm'");
    }
    Configure("[limits]\nconnections_per_uid = 100000\n" + rules +
              Rule("'*'", kAlice.uid, "access = 'shm'") + Rule("'*'", kBob.uid, "access = 'shm'"));
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "orders", "--step", "100000"});
    LimitDescriptors(descriptors, descriptors);
    Reload(ReadFile(host_.daemon.options().config));  // idd plans with the new limit
  }
  void LimitDescriptors(rlim_t soft, rlim_t hard) const {
    const rlimit limit{soft, hard};
    RequireErrno(::prlimit(host_.daemon.pid(), RLIMIT_NOFILE, &limit, nullptr) == 0, "prlimit");
  }
  // The kernel counts the descriptors under way of all processes of idd's user, so that other tests
  // may keep an idd with few descriptors from passing one for a moment.
  [[nodiscard]] IdctlResult RunUnlessBusy(const std::vector<std::string>& arguments) const {
    IdctlResult result;
    EXPECT_TRUE(WaitUntil(Patience(30s), [&] {
      result = host_.idctl.Run(arguments);
      return result.err.find("under way to slow readers") == std::string::npos;
    })) << result.err;
    return result;
  }
  // Makes `attempts` connections as that user; returns how many idd keeps.
  std::size_t Take(const Identity& who, int attempts) {
    std::vector<RawConnection> open;
    {
      const ScopedIdentity identity(who);
      for (int i = 0; i < attempts; ++i) {
        auto connection = Connect(Patience(5s));
        if (!connection.has_value()) break;
        static_cast<void>(connection->Send(MakeHello()));
        open.push_back(std::move(*connection));
      }
    }
    std::size_t kept = 0;
    for (RawConnection& connection : open) {
      const std::optional<Reply> reply = connection.Receive(Patience(5s));
      if (!reply.has_value() || reply->header.type != 0x8001) continue;
      ++kept;
      kept_.push_back(std::move(connection));
    }
    return kept;
  }
  void ExpectServed(const Identity& who) {
    const IdctlResult claim = host_.idctl.As(who).Run({"claim", "orders", "--timeout", "30000"});
    EXPECT_EQ(claim.exit_status, 0) << "uid " << who.uid << ": " << claim.err;
  }
  void ExpectOperatorIsServed() {
    const IdctlResult status = host_.idctl.Run({"status", "--timeout", "30000"});
    EXPECT_EQ(status.exit_status, 0) << status.err;
    EXPECT_EQ(host_.idctl.Claim("orders", 10).size(), 10U);
  }

  static constexpr uid_t kManyUsers = 20001;
  static constexpr uid_t kUsers = 12;
  std::vector<RawConnection> kept_;
};

TEST_F(FewDescriptors, OneUsersConnectionsLeaveRoomForTheOthers) {
  StartWith(64);
  const std::size_t of_alice = Take(kAlice, 200);
  std::printf("%zu connections of 200\n", of_alice);
  EXPECT_GE(of_alice, 4U);
  ExpectServed(kBob);
  ExpectOperatorIsServed();
  const std::size_t of_bob = Take(kBob, 200);
  std::printf("%zu connections of the next 200\n", of_bob);
  EXPECT_GE(of_bob, 2U);
  ExpectServed({.uid = kManyUsers, .gid = kManyUsers});
  ExpectOperatorIsServed();
  EXPECT_THAT(host_.daemon.Log(), ::testing::Not(HasSubstr("accept.failed")));
}

// Unread replies with descriptors are descriptors that idd holds.
TEST_F(FewDescriptors, UnreadRepliesOfOneUserLeaveRoomForTheOthers) {
  StartWith(64);
  Take(kAlice, 4);
  for (RawConnection& deaf : kept_) {
    for (std::uint64_t i = 0; i < 400; ++i) {
      if (!deaf.SendWithin(Patience(1s), MakeAttach("orders", i))) break;
    }
  }
  ExpectServed(kBob);
  ExpectOperatorIsServed();
  EXPECT_THAT(host_.daemon.Log(), ::testing::Not(HasSubstr("accept.failed")));
}

// Regression: rings took every descriptor, so that no client could connect, and the log had twenty
// lines a second that did not say what to raise.
TEST_F(FewDescriptors, RingsLeaveRoomForConnections) {
  StartWith(64);
  ExpectServed(kBob);
  int refused = 0;
  for (int i = 0; i < 30; ++i) {
    const std::string tag = "tag-" + std::to_string(i);
    static_cast<void>(RunUnlessBusy({"tag", "create", tag, "--if-absent"}));
    const IdctlResult claim = RunUnlessBusy({"claim", tag, "--timeout", "30000"});
    if (claim.exit_status == 0) continue;
    ++refused;
    EXPECT_THAT(claim.err, HasSubstr("raise LimitNOFILE="));
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 30);
  ExpectServed(kBob);
  ExpectOperatorIsServed();
  const std::string log = host_.daemon.Log();
  EXPECT_THAT(log, ::testing::Not(HasSubstr("accept.failed")));
  const std::size_t first = log.find("ring.create_failed");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("ring.create_failed", first + 1), std::string::npos) << log;
}

TEST_F(FewDescriptors, LackOfDescriptorsIsReportedOnceWithWhatToRaise) {
  StartWith(64);
  LimitDescriptors(8, 64);
  // idd tries ten times a second.
  ASSERT_EQ(host_.idctl.Run({"claim", "orders", "--timeout", "2000"}).exit_status, 4);
  LimitDescriptors(64, 64);
  ExpectServed(kBob);
  const std::string log = host_.daemon.Log();
  const std::size_t first = log.find("accept.failed");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_THAT(log.substr(first, log.find('\n', first) - first), HasSubstr("LimitNOFILE="));
  EXPECT_EQ(log.find("accept.failed", first + 1), std::string::npos) << log;
}

TEST_F(FewDescriptors, OperatorGetsInWhenUsersHaveAllConnections) {
  StartWith(1024);
  const std::size_t of_alice = Take(kAlice, 1000);
  std::size_t all = of_alice;
  for (uid_t uid = kManyUsers; uid < kManyUsers + kUsers; ++uid) {
    all += Take({.uid = uid, .gid = uid}, 1000 / static_cast<int>(uid - kManyUsers + 2));
  }
  std::printf("%zu connections of one user, %zu of all\n", of_alice, all);
  EXPECT_GE(of_alice, 300U);
  EXPECT_LE(of_alice, all / 2 + 1);
  EXPECT_EQ(host_.idctl.As(kBob).Run({"status"}).exit_status, 4);
  ExpectOperatorIsServed();
  kept_.clear();
  EXPECT_TRUE(WaitUntil(Patience(5s), [this] {
    return host_.idctl.As(kBob).Run({"claim", "orders"}).exit_status == 0;
  }));
}

}  // namespace
}  // namespace idd::harness

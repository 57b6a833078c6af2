// SPDX-License-Identifier: Apache-2.0
//
// Peers that send garbage, nothing or too much; and a daemon that does not answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/raw_connection.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

class HostilePeers : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", 100); }

  // The honest client: it claims all the time and must not notice anything.
  void StartHonestClient() {
    WorkerPlan plan{.socket = host_.daemon.socket(), .tag = "orders", .name = "honest"};
    plan.pace_us = 100;
    plan.timeout_ms = static_cast<std::uint64_t>(Patience(2000ms).count());
    honest_.emplace(dir_, plan);
    honest_->WaitReady(Patience(5s));
    honest_->Go();
    ASSERT_TRUE(WaitUntil(Patience(5s), [this] { return honest_->ids() > 10; }));
  }

  void ExpectHonestClientWasUnharmed() {
    const std::uint64_t ids = honest_->ids();
    EXPECT_TRUE(WaitUntil(Patience(5s), [this, ids] { return honest_->ids() > ids + 10; }));
    honest_->Stop();
    EXPECT_EQ(honest_->Finish(Patience(10s)), 0) << honest_->Failure();
    std::vector<Claimer> claimers;
    honest_->AddClaimers(claimers);
    EXPECT_EQ(Join(CheckUnique(claimers)) + Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("orders"))), "");
    EXPECT_TRUE(host_.daemon.process().Running());
  }

  // idd closes the connection; if it knows the peer's version, it first sends an answer with the
  // reason. The log names the peer and the reason.
  void ExpectClosedWithReason(const Bytes& message, const std::string& reason, bool after_hello) {
    const std::size_t mark = host_.daemon.LogMark();
    RawConnection connection(host_.daemon.socket());
    if (after_hello) connection.Hello();
    ASSERT_TRUE(connection.Send(message)) << reason;
    EXPECT_TRUE(connection.WaitClosed(Patience(2s))) << reason;
    const std::string pid = std::to_string(::getpid());
    EXPECT_TRUE(host_.daemon.WaitForLogLine(
        "(" + reason + ").*\\bpid\\W+" + pid + "\\b|\\bpid\\W+" + pid + "\\b.*(" + reason + ")",
        mark, Patience(2s)))
        << "no line with the reason '" << reason << "' and the peer:\n"
        << host_.daemon.LogSince(mark);
  }

  static Bytes Spoil(Bytes frame, std::size_t offset, std::uint8_t value) {
    frame.at(offset) = std::byte{value};
    return frame;
  }

  const TempDir dir_;
  Host host_{dir_};
  std::optional<ClaimWorkerProcess> honest_;
};

TEST_F(HostilePeers, WrongFramesCloseTheirConnectionWithALoggedReason) {
  StartHonestClient();
  const Bytes claim = MakeClaim("orders", 9, 1, 0);
  for (const bool after_hello : {false, true}) {
    ExpectClosedWithReason(Bytes(1), "short|bytes", after_hello);
    ExpectClosedWithReason(Bytes(23), "short|bytes", after_hello);
    ExpectClosedWithReason(Bytes(wire::kMaxFrameBytes + 1), "long|bytes", after_hello);
    ExpectClosedWithReason(Bytes(100'000), "long|bytes", after_hello);
    ExpectClosedWithReason(Spoil(claim, 0, 0), "magic", after_hello);
    ExpectClosedWithReason(Spoil(claim, 4, 2), "version", after_hello);
    ExpectClosedWithReason(Spoil(claim, 8, 1), "length|bytes|short|long", after_hello);
    ExpectClosedWithReason(Spoil(claim, 12, 1), "reserved", after_hello);
  }
  ExpectClosedWithReason(Spoil(claim, 6, 77), "type", true);
  ExpectClosedWithReason(Spoil(claim, 7, 0x80), "type|reply", true);
  ExpectHonestClientWasUnharmed();
}

TEST_F(HostilePeers, WrongPayloadsCloseTheirConnectionWithALoggedReason) {
  StartHonestClient();
  wire::ClaimRequest claim;
  claim.tag = MakeTag("orders");
  claim.tag.bytes = 200;
  ExpectClosedWithReason(MakeRequest(wire::FrameType::kClaim, 1, claim), "tag", true);
  claim.tag = MakeTag("or\nders");
  ExpectClosedWithReason(MakeRequest(wire::FrameType::kClaim, 2, claim), "tag|control|print", true);
  claim.tag = MakeTag("orders");
  claim.count = 0;
  ExpectClosedWithReason(MakeRequest(wire::FrameType::kClaim, 3, claim), "count|0 ids", true);
  const Bytes stub(7);
  ExpectClosedWithReason(MakeFrame(wire::FrameType::kClaim, 4, stub), "payload|bytes|short", true);
  ExpectHonestClientWasUnharmed();
}

TEST_F(HostilePeers, FirstFrameMustBeHello) {
  ExpectClosedWithReason(MakeClaim("orders", 1, 1, 0), "hello", false);
}

TEST_F(HostilePeers, OtherVersionsGetBothVersions) {
  RawConnection connection(host_.daemon.socket());
  ASSERT_TRUE(connection.Send(Spoil(MakeHello(), 4, 9)));
  const std::optional<Reply> reply = connection.Receive(Patience(2s));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->header.type, 0x8006);
  EXPECT_EQ(reply->As<wire::StatusReply>().status, static_cast<std::uint32_t>(Code::kIncompatible));
  const std::string reason = reply->Reason<wire::StatusReply>();
  EXPECT_THAT(reason, ::testing::HasSubstr("9"));
  EXPECT_THAT(reason, ::testing::HasSubstr("1"));
  EXPECT_TRUE(connection.WaitClosed(Patience(2s)));
}

TEST_F(HostilePeers, OtherAbiMajorVersionIsRefused) {
  wire::HelloRequest hello;
  hello.abi_version = 0x00630000;
  RawConnection connection(host_.daemon.socket());
  ASSERT_TRUE(connection.Send(MakeRequest(wire::FrameType::kHello, 5, hello)));
  const std::optional<Reply> reply = connection.Receive(Patience(2s));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->As<wire::StatusReply>().status, static_cast<std::uint32_t>(Code::kIncompatible));
}

// Sends random bytes, and frames that are valid except for some random bytes, over many
// connections.
TEST_F(HostilePeers, TwoThousandRandomFramesHarmNoOther) {
  StartHonestClient();
  std::mt19937_64 random(TestSeed());
  const std::vector<Bytes> models = {
      MakeHello(), MakeClaim("orders", 1, 1, 1), MakeAttach("orders", 2),
      MakeFrame(wire::FrameType::kAdmin, 3, Bytes(40, std::byte{'{'}))};
  std::optional<RawConnection> connection;
  for (int i = 0; i < 2000; ++i) {
    if (!connection.has_value()) {
      connection.emplace(host_.daemon.socket());
      if (random() % 2 == 0) connection->Hello();
    }
    Bytes frame(random() % 600);
    if (random() % 2 == 0) frame = models[random() % models.size()];
    const std::size_t changes = random() % 2 == 0 ? frame.size() : 1 + random() % 4;
    for (std::size_t j = 0; j < changes && !frame.empty(); ++j) {
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    }
    if (!connection->SendWithin(Patience(5s), frame) || random() % 8 == 0) connection.reset();
  }
  ExpectHonestClientWasUnharmed();
  host_.daemon.Stop();
}

TEST_F(HostilePeers, PeersThatDoNotReadTheirRepliesAreClosed) {
  StartHonestClient();
  RawConnection deaf(host_.daemon.socket());
  deaf.Hello();
  bool closed = false;
  for (int i = 0; i < 200'000 && !closed; ++i) {
    closed = !deaf.Send(MakeClaim("orders", 5, 1, 0)) && errno != EAGAIN;
    if (!closed && errno == EAGAIN) std::this_thread::yield();
  }
  EXPECT_TRUE(closed || deaf.WaitClosed(Patience(5s)));
  ExpectHonestClientWasUnharmed();
}

// The default limit of services, and a thousand idle peers.
class IdlePeers : public HostilePeers {
 protected:
  IdlePeers() { SetLimit(1024); }
  ~IdlePeers() override { ::setrlimit(RLIMIT_NOFILE, &before_); }

  void SetLimit(rlim_t soft) {
    if (before_.rlim_max == 0) {
      RequireErrno(::getrlimit(RLIMIT_NOFILE, &before_) == 0, "getrlimit");
    }
    const rlimit limit{soft, std::max(soft, before_.rlim_max)};
    RequireErrno(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
  }

  rlimit before_{};
};

TEST_F(IdlePeers, ThousandOfThemDoNotStopTheNextClient) {
  SetLimit(4096);  // in this process only; idd started with 1024
  std::vector<RawConnection> idle;
  for (int i = 0; i < 1000; ++i) {
    // A full backlog is no refusal.
    std::optional<RawConnection> connection;
    ASSERT_TRUE(WaitUntil(Patience(5s), [this, &connection] {
      connection = RawConnection::TryConnect(host_.daemon.socket());
      return connection.has_value();
    })) << i;
    if (i % 2 == 0) connection->Hello();
    idle.push_back(std::move(*connection));
  }
  const IdctlResult result = host_.idctl.Run({"claim", "orders", "-n", "250"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(ParseIds(result.out).size(), 250U);
  EXPECT_EQ(host_.idctl.Json({"status"}).at("database").at("state"), "up");
  idle.clear();
  EXPECT_EQ(host_.idctl.Claim("orders").size(), 1U);
  host_.daemon.Stop();
}

TEST_F(IdlePeers, MoreThanItsDescriptorsDoNotEndTheDaemon) {
  SetLimit(4096);
  std::vector<RawConnection> idle;
  for (int i = 0; i < 1500; ++i) {
    std::optional<RawConnection> connection = RawConnection::TryConnect(host_.daemon.socket());
    if (connection.has_value()) idle.push_back(std::move(*connection));
  }
  idle.clear();
  EXPECT_TRUE(WaitUntil(Patience(10s), [this] {
    return host_.idctl.Run({"claim", "orders"}).exit_status == 0;
  })) << host_.daemon.Log();
  EXPECT_TRUE(host_.daemon.process().Running());
}

TEST_F(IdlePeers, WhoNeverSayHelloAreClosedWithAReason) {
  RawConnection silent(host_.daemon.socket());
  RawConnection greeted(host_.daemon.socket());
  greeted.Hello();
  const std::size_t mark = host_.daemon.LogMark();
  EXPECT_TRUE(silent.WaitClosed(Patience(10s)));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("no HELLO within", mark, Patience(2s)));
  EXPECT_FALSE(greeted.WaitClosed(100ms)) << "an idle client may stay";
}

// There are descriptors for a few connections only, and silent peers take all of them.
TEST_F(IdlePeers, WhoSayNothingGiveWayToTheNextClient) {
  SetLimit(4096);
  const rlimit few{48, 48};
  RequireErrno(::prlimit(host_.daemon.pid(), RLIMIT_NOFILE, &few, nullptr) == 0, "prlimit");
  std::vector<RawConnection> silent;
  for (int i = 0; i < 200; ++i) {
    std::optional<RawConnection> connection = RawConnection::TryConnect(host_.daemon.socket());
    if (connection.has_value()) silent.push_back(std::move(*connection));
  }
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_TRUE(WaitUntil(Patience(20s), [this] {
    return host_.idctl.Run({"claim", "orders"}).exit_status == 0;
  })) << host_.daemon.Log();
  std::printf("served after %lld ms\n",
              static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                         MonotonicClock::now() - began)
                                         .count()));
}

// A plain connect() to a stopped daemon with a full backlog blocks indefinitely.
class StoppedDaemon : public HostilePeers {
 protected:
  void StopAndFillBacklog() {
    host_.daemon.Signal(SIGSTOP);
    while (true) {
      std::optional<RawConnection> connection = RawConnection::TryConnect(host_.daemon.socket());
      if (!connection.has_value()) break;
      backlog_.push_back(std::move(*connection));
      ASSERT_LT(backlog_.size(), 10'000U);
    }
  }

  [[nodiscard]] idclient_options Options(std::uint32_t timeout_ms) const {
    idclient_options options = IDCLIENT_OPTIONS_INIT;
    options.socket_path = host_.daemon.socket().c_str();
    options.timeout_ms = timeout_ms;
    return options;
  }

  // Runs the call and expects that it gives up, as the daemon never answers.
  template <typename Call>
  static void ExpectGivesUp(Call call) {
    const std::uint64_t begin_ns = MonotonicNs();
    const idclient_status status = call();
    const auto took = std::chrono::milliseconds((MonotonicNs() - begin_ns) / 1'000'000);
    EXPECT_TRUE(status == IDCLIENT_UNAVAILABLE || status == IDCLIENT_TIMEOUT)
        << idclient_status_name(status);
    EXPECT_STRNE(idclient_last_error(), "");
    EXPECT_LT(took, 30s) << "it did not end at its deadline";
  }

  std::vector<RawConnection> backlog_;
};

TEST_F(StoppedDaemon, OpenAndClaimReturnByTheirDeadlines) {
  rlimit before{};
  RequireErrno(::getrlimit(RLIMIT_NOFILE, &before) == 0, "getrlimit");
  const rlimit raised{before.rlim_max, before.rlim_max};
  RequireErrno(::setrlimit(RLIMIT_NOFILE, &raised) == 0, "setrlimit");
  // The first claim may be answered before the rest of the lease is in the ring; the second is not.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(host_.idctl.Claim("orders").size(), 1U);
  // On a busy machine the daemon's answers may take longer than these 300 ms, so the calls are
  // repeated.
  const idclient_options options = Options(300);
  idclient_client* early = nullptr;
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] {
    return idclient_open(&options, &early) == IDCLIENT_OK;
  })) << idclient_last_error();
  idclient_tag* tag = nullptr;
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] {
    return idclient_tag_open(early, "orders", &tag) == IDCLIENT_OK;
  })) << idclient_last_error();
  std::uint64_t id = 0;
  StopAndFillBacklog();

  idclient_client* late = nullptr;
  ExpectGivesUp([&] { return idclient_open(&options, &late); });
  EXPECT_EQ(late, nullptr);
  idclient_tag* other = nullptr;
  ExpectGivesUp([&] { return idclient_tag_open(early, "others", &other); });
  // Ids in the ring are claimed without a wait; after them each claim must give up in time.
  std::vector<std::uint64_t> ids(1000);
  std::size_t claimed = 0;
  ExpectGivesUp([&] { return idclient_claim_many(tag, ids.data(), ids.size(), &claimed); });
  EXPECT_GE(claimed, 98U);
  ExpectGivesUp([&] { return idclient_claim(tag, &id); });
  const IdctlResult result = host_.idctl.Run({"claim", "orders"});
  EXPECT_EQ(result.exit_status, 4) << result.err;
  EXPECT_LT(result.duration, 30s);

  backlog_.clear();
  host_.daemon.Signal(SIGCONT);
  EXPECT_TRUE(WaitUntil(Patience(10s), [&] { return idclient_claim(tag, &id) == IDCLIENT_OK; }))
      << idclient_last_error();
  EXPECT_GT(id, ids[claimed - 1]);
  idclient_close(early);
  EXPECT_EQ(host_.idctl.Claim("orders").size(), 1U);
  host_.daemon.Stop();
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// Requests that wait on a dry ring, observed on the socket: who gets ids, in which order, and when
// the others get their refusals.
//
// Method: the test holds a write transaction on the database, so that no lease can be taken, drains
// the ring, queues requests, and ends the transaction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "support/host.h"
#include "support/raw_connection.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;

constexpr auto kOk = static_cast<std::uint32_t>(Code::kOk);
constexpr auto kTimeout = static_cast<std::uint32_t>(Code::kTimeout);
constexpr std::uint32_t kLongMs = 30'000;

class Waiters : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.StartWithTag("orders", 10);
    // Both segments that idd keeps exist, so no lease is in progress when the lock is taken.
    (void)host_.idctl.Claim("orders", 3);
    ASSERT_TRUE(WaitUntil(Patience(5s), [this] {
      return host_.idctl.Json({"status"}).at("tags").at(0).at("segments").size() == 2;
    }));
    RawConnection drainer = Connect();
    lock_.emplace(host_.daemon.options().database);
    lock_->Execute("BEGIN IMMEDIATE");
    // A request that may not wait is answered at once: from the ring, or with "dry".
    while (true) {
      const wire::ClaimReply reply = Ask(drainer, MakeClaim("orders", 1, 1000, 0));
      if (reply.status == kTimeout) break;
      ASSERT_EQ(reply.status, kOk);
      next_id_ = reply.first + reply.count;
    }
  }

  void Unlock() { lock_->Execute("ROLLBACK"); }

  [[nodiscard]] RawConnection Connect() const {
    RawConnection connection(host_.daemon.socket());
    connection.Hello();
    return connection;
  }

  static Reply ReplyTo(RawConnection& connection) {
    std::optional<Reply> reply = connection.Receive(Patience(30s));
    Require(reply.has_value(), "no reply");
    return *std::move(reply);
  }
  static wire::ClaimReply Ask(RawConnection& connection, const Bytes& frame) {
    Require(connection.Send(frame), "the daemon has closed");
    return ReplyTo(connection).As<wire::ClaimReply>();
  }

  // Queues a request and returns only when it is queued: frames of one connection are read in
  // order, and ATTACH of a known tag is answered at once.
  static void Queue(RawConnection& connection, std::uint64_t request_id, std::uint64_t count,
                    std::uint32_t timeout_ms) {
    Require(connection.Send(MakeClaim("orders", request_id, count, timeout_ms)), "send");
    Require(connection.Send(MakeAttach("orders", 1'000'000 + request_id)), "send");
    Require(ReplyTo(connection).header.request_id == 1'000'000 + request_id,
            "no answer to ATTACH while a CLAIM waits");
  }

  const TempDir dir_;
  Host host_{dir_};
  std::optional<SqliteFile> lock_;
  std::uint64_t next_id_ = 1;
};

TEST_F(Waiters, OfOneConnectionAreServedInOrder) {
  RawConnection connection = Connect();
  for (std::uint64_t i = 0; i < 8; ++i) Queue(connection, 100 + i, 3, kLongMs);
  Unlock();
  std::uint64_t expected = next_id_;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const Reply reply = ReplyTo(connection);
    EXPECT_EQ(reply.header.request_id, 100 + i);
    const auto claim = reply.As<wire::ClaimReply>();
    ASSERT_EQ(claim.status, kOk) << reply.Reason<wire::ClaimReply>();
    EXPECT_EQ(claim.first, expected);
    EXPECT_GE(claim.count, 1U);  // the end of a segment may shorten it
    EXPECT_LE(claim.count, 3U);
    expected = claim.first + claim.count;
  }
}

TEST_F(Waiters, AreAnsweredByTheirOwnDeadlines) {
  // Queued with falling deadlines, so that the order of arrival differs from that of the deadlines.
  // The first request waits longest; its deadline must not decide when the others are answered.
  RawConnection patient = Connect();
  Queue(patient, 99, 1, 600'000);
  const std::vector<std::uint32_t> timeouts_ms = {1200, 700, 300, 0};
  std::vector<RawConnection> connections;
  std::vector<std::uint64_t> sent_ns;
  for (std::size_t i = 0; i < timeouts_ms.size(); ++i) {
    connections.push_back(Connect());
    sent_ns.push_back(MonotonicNs());
    ASSERT_TRUE(connections[i].Send(MakeClaim("orders", i, 5, timeouts_ms[i])));
  }
  for (std::size_t i = timeouts_ms.size(); i-- > 0;) {
    const std::optional<Reply> reply = connections[i].Receive(Patience(30s));
    const auto waited = std::chrono::milliseconds((MonotonicNs() - sent_ns[i]) / 1'000'000);
    ASSERT_TRUE(reply.has_value()) << timeouts_ms[i];
    EXPECT_EQ(reply->As<wire::ClaimReply>().status, kTimeout);
    EXPECT_NE(reply->Reason<wire::ClaimReply>(), "");
    EXPECT_GE(waited.count(), static_cast<std::int64_t>(timeouts_ms[i]));
  }
  EXPECT_FALSE(patient.Receive(0ms).has_value()) << "answered at another request's deadline";
  Unlock();
  const Reply served = ReplyTo(patient);
  EXPECT_EQ(served.As<wire::ClaimReply>().status, kOk);
}

TEST_F(Waiters, WhoWaitLongerAreNotHurtByThoseWhoseTimeIsUp) {
  RawConnection patient = Connect();
  RawConnection hasty = Connect();
  Queue(hasty, 1, 5, 100);
  Queue(patient, 2, 5, kLongMs);
  const Reply refused = ReplyTo(hasty);
  EXPECT_EQ(refused.As<wire::ClaimReply>().status, kTimeout);
  Unlock();
  const Reply served = ReplyTo(patient);
  EXPECT_EQ(served.As<wire::ClaimReply>().status, kOk);
  EXPECT_EQ(served.As<wire::ClaimReply>().first, next_id_) << "a client that has gone got an id";
}

TEST_F(Waiters, WhoseConnectionIsGoneGetNothing) {
  {
    RawConnection gone = Connect();
    Queue(gone, 1, 5, kLongMs);
  }
  RawConnection waiting = Connect();
  // A round trip on a connection opened later: by then the daemon has seen that the other one
  // closed.
  Queue(waiting, 2, 5, kLongMs);
  Unlock();
  const Reply served = ReplyTo(waiting);
  EXPECT_EQ(served.As<wire::ClaimReply>().first, next_id_);
}

TEST_F(Waiters, AreAnsweredWhenTheDaemonStops) {
  RawConnection connection = Connect();
  Queue(connection, 7, 5, kLongMs);
  Unlock();
  // Either the ids come first or the stop: the request is answered or the connection closed.
  host_.daemon.Stop();
  const std::optional<Reply> reply = connection.Receive(Patience(5s));
  if (reply.has_value()) {
    EXPECT_EQ(reply->header.request_id, 7U);
  }
  EXPECT_TRUE(connection.WaitClosed(Patience(5s)));
}

TEST_F(Waiters, BeyondTheLimitOfOneConnectionAreRefusedAtOnce) {
  RawConnection greedy = Connect();
  RawConnection honest = Connect();
  Queue(honest, 1, 1, kLongMs);
  constexpr std::uint64_t kLimit = 1024;
  for (std::uint64_t i = 0; i < kLimit + 50; ++i) {
    ASSERT_TRUE(greedy.SendWithin(Patience(5s), MakeClaim("orders", i, 1, kLongMs))) << i;
  }
  for (std::uint64_t i = kLimit; i < kLimit + 50; ++i) {
    const Reply told = ReplyTo(greedy);
    EXPECT_EQ(told.header.request_id, i);
    EXPECT_EQ(told.As<wire::ClaimReply>().status, static_cast<std::uint32_t>(Code::kUnavailable));
  }
  Unlock();
  const Reply served = ReplyTo(honest);
  EXPECT_EQ(served.As<wire::ClaimReply>().first, next_id_);
  for (std::uint64_t i = 0; i < kLimit; ++i) {
    const Reply reply = ReplyTo(greedy);
    EXPECT_EQ(reply.header.request_id, i);
    EXPECT_EQ(reply.As<wire::ClaimReply>().status, kOk);
  }
}

TEST_F(Waiters, WhoFloodWithoutReadingAreClosed) {
  RawConnection greedy = Connect();
  const std::size_t mark = host_.daemon.LogMark();
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    if (!greedy.SendWithin(Patience(5s), MakeClaim("orders", i, 1, kLongMs))) break;
  }
  EXPECT_TRUE(greedy.WaitClosed(Patience(5s)));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("pid=", mark, Patience(2s))) << host_.daemon.Log();
}

// More threads in one process than a connection may have requests in flight.
TEST_F(Waiters, ThreadsOfOneProcessAllGetTheirIds) {
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  options.socket_path = host_.daemon.socket().c_str();
  options.timeout_ms = static_cast<std::uint32_t>(Patience(20s).count());
  idclient_client* client = nullptr;
  ASSERT_EQ(idclient_open(&options, &client), IDCLIENT_OK);
  idclient_tag* tag = nullptr;
  ASSERT_EQ(idclient_tag_open(client, "orders", &tag), IDCLIENT_OK);
  const std::size_t count = std::max<std::uint64_t>(300, ScaledLoad(1200));
  std::vector<std::uint64_t> ids(count);
  std::vector<idclient_status> statuses(count, IDCLIENT_SYSTEM);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { statuses[i] = idclient_claim(tag, &ids[i]); });
  }
  const std::size_t limit = 1024;  // of one connection; the other requests are refused and repeated
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] {
    return host_.idctl.Json({"status"}).at("tags").at(0).at("fallbacks") >= std::min(count, limit);
  }));
  Unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(statuses.begin(), statuses.end(), IDCLIENT_OK),
            static_cast<std::ptrdiff_t>(count));
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  EXPECT_EQ(host_.idctl.Audit("orders").claimed, next_id_ - 1 + count) << "an id was lost";
  idclient_close(client);
}

TEST_F(Waiters, LearnFromIdctlWhyThereAreNoIds) {
  const IdctlResult result = host_.idctl.Run({"claim", "orders"});
  EXPECT_EQ(result.exit_status, 5) << result.err;
  EXPECT_LT(result.duration, 30s) << "no lease can be taken before Unlock()";
  EXPECT_NE(result.err, "");
  Unlock();
  EXPECT_TRUE(WaitUntil(Patience(15s), [this] {
    return host_.idctl.Run({"claim", "orders"}).exit_status == 0;
  }));
}

}  // namespace
}  // namespace idd::harness

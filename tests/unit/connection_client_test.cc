// SPDX-License-Identifier: Apache-2.0
//
// libidclient's connection against a scripted daemon.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/client_fixture.h"

namespace idd::client {
namespace {

// With a daemon that leaves each request to the test.
class CallTest : public ConnectionTest {
 protected:
  FakeDaemon daemon_{path_};
  Connection connection_{path_, std::nullopt, Log()};
};

TEST_F(CallTest, CallGetsItsReply) {
  std::thread answers([&] { Echo(daemon_, daemon_.Next().value()); });
  EXPECT_EQ(FirstOf(connection_.Call(ClaimOf(77), Later())), 77U);
  answers.join();
  EXPECT_EQ(daemon_.connections(), 1);
}

TEST_F(CallTest, LateReplyIsDroppedAndTheNextCallGetsItsOwn) {
  EXPECT_EQ(connection_.Call(ClaimOf(1), Soon()).status().code(), Code::kTimeout);
  const Request late = daemon_.Next().value();
  std::thread answers([&] {
    const Request next = daemon_.Next().value();
    Echo(daemon_, late);
    Echo(daemon_, next);
  });
  EXPECT_EQ(FirstOf(connection_.Call(ClaimOf(2), Later())), 2U);
  answers.join();
  EXPECT_EQ(daemon_.connections(), 1) << "a passed deadline must not break the connection";
}

TEST_F(CallTest, ManyThreadsCallAtOnceAndEachGetsItsOwn) {
  constexpr std::uint64_t kThreads = 6;
  constexpr std::uint64_t kCalls = 60;
  // In every round all threads have a call in flight, and the replies arrive in another order.
  std::thread answers([&] {
    std::vector<Request> waiting;
    for (std::uint64_t round = 0; round < kCalls; ++round) {
      for (std::uint64_t i = 0; i < kThreads; ++i) waiting.push_back(daemon_.Next().value());
      while (!waiting.empty()) {
        Echo(daemon_, waiting.back());
        waiting.pop_back();
      }
    }
  });
  std::barrier round(static_cast<std::ptrdiff_t>(kThreads));
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    callers.emplace_back([&, thread] {
      for (std::uint64_t call = 0; call < kCalls; ++call) {
        const std::uint64_t number = 1 + thread * 1000 + call;
        round.arrive_and_wait();
        if (FirstOf(connection_.Call(ClaimOf(number), Later())) != number) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  answers.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(daemon_.connections(), 1);
}

TEST_F(CallTest, LeaderThatLeavesAtItsDeadlineHandsOver) {
  std::atomic<std::uint64_t> patient{0};
  ASSERT_TRUE(connection_.EnsureConnected(Later()).ok());  // may take longer than 80 ms
  Status hasty;
  std::thread leader(
      [&] { hasty = connection_.Call(ClaimOf(1), Deadline::After(milliseconds(80))).status(); });
  ASSERT_TRUE(daemon_.Next().has_value());  // the first caller leads
  std::thread follower([&] { patient = FirstOf(connection_.Call(ClaimOf(2), Later())); });
  const Request second = daemon_.Next().value();
  leader.join();
  EXPECT_EQ(hasty.code(), Code::kTimeout);
  Echo(daemon_, second);
  follower.join();
  EXPECT_EQ(patient, 2U);
}

TEST_F(CallTest, LeaderThatGotItsReplyHandsOver) {
  std::vector<std::thread> callers;
  std::vector<Request> requests;
  std::atomic<int> right{0};
  for (std::uint64_t number = 1; number <= 5; ++number) {
    callers.emplace_back([&, number] {
      if (FirstOf(connection_.Call(ClaimOf(number), Later())) == number) ++right;
    });
    requests.push_back(daemon_.Next().value());
  }
  for (std::size_t i = 0; i < 5; ++i) {
    Echo(daemon_, requests[i]);
    callers[i].join();
  }
  EXPECT_EQ(right, 5);
}

TEST_F(CallTest, BrokenConnectionFailsAllWaitingCallsAtOnceAndTheNextConnectsAgain) {
  std::atomic<int> unavailable{0};
  std::vector<std::thread> callers;
  for (std::uint64_t number = 1; number <= 4; ++number) {
    callers.emplace_back([&, number] {
      if (connection_.Call(ClaimOf(number), Later()).status().code() == Code::kUnavailable) {
        ++unavailable;
      }
    });
  }
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(daemon_.Next().has_value());
  const MonotonicTime broke = MonotonicClock::now();
  daemon_.Close(1);
  for (std::thread& caller : callers) caller.join();
  EXPECT_LT(MonotonicClock::now() - broke, kOnlyByADefect) << "they did not end at their deadlines";
  EXPECT_EQ(unavailable, 4);
  std::thread answers([&] { Echo(daemon_, daemon_.Next().value()); });
  EXPECT_EQ(FirstOf(connection_.Call(ClaimOf(9), Later())), 9U);
  answers.join();
  EXPECT_EQ(daemon_.connections(), 2);
}

TEST_F(CallTest, ConnectionThatBrokeBetweenCallsIsReplaced) {
  ASSERT_TRUE(connection_.EnsureConnected(Later()).ok());
  daemon_.Close(1);
  std::thread answers([&] { Echo(daemon_, daemon_.Next().value()); });
  EXPECT_EQ(FirstOf(connection_.Call(ClaimOf(3), Later())), 3U);
  answers.join();
  EXPECT_EQ(daemon_.connections(), 2);
}

TEST_F(CallTest, ManyThreadsMakeOneConnection) {
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      if (!connection_.EnsureConnected(Later()).ok()) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(daemon_.connections(), 1);
}

TEST_F(ConnectionTest, DaemonThatAcceptsAndNeverAnswersEndsByTheDeadline) {
  FakeDaemon daemon(path_, [](FakeDaemon&, const Request&) { return true; });
  Connection connection(path_, std::nullopt, Log());
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.EnsureConnected(Soon()).code(), Code::kUnavailable);
  EXPECT_GE(MonotonicClock::now() - began, milliseconds(40));
  EXPECT_EQ(connection.Call(ClaimOf(1), Soon()).status().code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
}

TEST_F(ConnectionTest, WaitersForAnothersConnectAttemptKeepTheirOwnDeadlines) {
  FakeDaemon daemon(path_, [](FakeDaemon&, const Request&) { return true; });
  Connection connection(path_, std::nullopt, Log());
  std::thread slow(
      [&] { EXPECT_EQ(connection.EnsureConnected(Later()).code(), Code::kUnavailable); });
  while (daemon.Count(FrameType::kHello) == 0) std::this_thread::yield();
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.EnsureConnected(Soon()).code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect) << "it ended at the other deadline";
  daemon.Close(1);
  slow.join();
}

TEST_F(ConnectionTest, FullBacklogEndsByTheDeadline) {
  const ScopedFd listener = ListenAt(path_, 0);
  std::vector<std::unique_ptr<wire::Channel>> filling;
  while (true) {
    auto channel = wire::Channel::Connect(path_, Deadline::After(milliseconds(20)), std::nullopt);
    if (!channel.ok()) break;
    filling.push_back(std::make_unique<wire::Channel>(std::move(channel).value()));
  }
  Connection connection(path_, std::nullopt, Log());
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.Call(ClaimOf(1), Soon()).status().code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
}

TEST_F(ConnectionTest, NoListenerIsUnavailableAtOnce) {
  Connection connection(path_, std::nullopt, Log());
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.Call(ClaimOf(1), Later()).status().code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
}

TEST_F(ConnectionTest, RefusedHelloReportsTheDaemonsReason) {
  FakeDaemon daemon(path_, [](FakeDaemon& self, const Request& request) {
    self.Send(request.connection,
              wire::BuildReply(FrameType::kError, 0, wire::StatusReply{.status = 7},
                               "the client has ABI 1.0, idd has 2.0"));
    self.Close(request.connection);
    return true;
  });
  Connection connection(path_, std::nullopt, Log());
  const Status status = connection.EnsureConnected(Later());
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_NE(status.message().find("2.0"), std::string::npos);
}

TEST_F(CallTest, ErrorFrameFailsItsOwnCallWithTheReasonAndTheOthersAsUnavailable) {
  Status of_first;
  Status of_second;
  std::thread first([&] { of_first = connection_.Call(ClaimOf(1), Later()).status(); });
  const Request bad = daemon_.Next().value();
  std::thread second([&] { of_second = connection_.Call(ClaimOf(2), Later()).status(); });
  ASSERT_TRUE(daemon_.Next().has_value());
  daemon_.Send(bad.connection, wire::BuildReply(FrameType::kError, bad.header.request_id,
                                                wire::StatusReply{.status = 1}, "bad frame"));
  daemon_.Close(bad.connection);
  first.join();
  second.join();
  EXPECT_EQ(of_first.code(), Code::kInvalid);
  EXPECT_EQ(of_first.message(), "bad frame");
  EXPECT_EQ(of_second.code(), Code::kUnavailable);
}

TEST_F(CallTest, GarbageFromTheDaemonFailsTheCall) {
  std::thread answers([&] {
    const Request request = daemon_.Next().value();
    daemon_.Send(request.connection, std::vector<std::byte>(7));
  });
  EXPECT_EQ(connection_.Call(ClaimOf(1), Later()).status().code(), Code::kIncompatible);
  answers.join();
}

TEST_F(ConnectionTest, DaemonThatStopsReadingEndsByTheDeadline) {
  const ScopedFd listener = ListenAt(path_);
  Connection connection(path_, std::nullopt, Log());
  ScopedFd peer;
  std::thread greets([&] {
    peer.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<std::byte, 256> hello;
    static_cast<void>(!::recv(peer.get(), hello.data(), hello.size(), 0));
    wire::HelloReply reply;
    reply.abi_version = shm::kAbiVersion;
    testing_support::SendMessage(peer.get(), wire::BuildReply(FrameType::kHello, 0, reply));
  });
  ASSERT_TRUE(connection.EnsureConnected(Later()).ok());
  greets.join();
  for (int i = 0; i < 5000; ++i) connection.TryNotify(ClaimOf(1)(0));  // none of them waits
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.Call(ClaimOf(1), Soon()).status().code(), Code::kTimeout);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
}

// The waiter sleeps on its old socket; its next read would be from the program's new one.
TEST_F(CallTest, WaiterWhoseDescriptorIsTakenReadsNothingOfAnothers) {
  ASSERT_TRUE(connection_.EnsureConnected(Later()).ok());
  const int fd = SocketOfPeer(path_);
  ASSERT_GE(fd, 0);
  std::optional<Result<Message>> reply;
  std::atomic<pid_t> tid{0};
  std::thread caller([&] {
    tid = ::gettid();
    reply = connection_.Call(ClaimOf(77), Later());
  });
  ASSERT_TRUE(daemon_.Next().has_value());
  AwaitSleep(tid);
  std::array<int, 2> pair{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()), 0);
  const ScopedFd keep(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  const ScopedFd far(pair[0]);
  const ScopedFd near(pair[1]);
  ASSERT_EQ(::dup3(near.get(), fd, O_CLOEXEC), fd);
  const std::string ours = "for the program alone";
  ASSERT_EQ(::send(far.get(), ours.data(), ours.size(), 0), static_cast<ssize_t>(ours.size()));
  caller.join();
  EXPECT_EQ(reply->status().code(), Code::kUnavailable);
  std::array<char, 64> read{};
  EXPECT_EQ(::recv(fd, read.data(), read.size(), MSG_DONTWAIT), static_cast<ssize_t>(ours.size()));
  ::close(fd);
}

}  // namespace
}  // namespace idd::client

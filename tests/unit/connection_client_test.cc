// SPDX-License-Identifier: Apache-2.0
//
// libidclient's connection and tags against a daemon that does what the test tells it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client.h"
#include "connection.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_writer.h"
#include "support/fake_daemon.h"
#include "support/temp_dir.h"
#include "tag.h"

namespace idd::client {
namespace {

using idd::harness::TempDir;
using idd::shm::IdRange;
using idd::shm::RingMemory;
using idd::shm::RingWriter;
using idd::testing_support::FakeDaemon;
using idd::testing_support::ListenAt;
using idd::testing_support::Request;
using idd::wire::FrameType;
using idd::wire::Message;
using std::chrono::milliseconds;

Deadline Soon() { return Deadline::After(milliseconds(40)); }
// What must not wait for it ends before kOnlyByADefect.
Deadline Later() { return Deadline::After(std::chrono::minutes(1)); }
constexpr std::chrono::seconds kOnlyByADefect(30);

// A call whose reply can be told from every other's: ring_id comes back in `first`.
Connection::RequestBuilder ClaimOf(std::uint64_t number) {
  return [number](std::uint64_t id) {
    wire::ClaimRequest request;
    request.tag = wire::PackTag("orders");
    request.ring_id = number;
    request.count = 1;
    return wire::BuildRequest(FrameType::kClaim, id, request);
  };
}
std::uint64_t FirstOf(const Result<Message>& message) {
  if (!message.ok()) return 0;
  const auto frame = wire::ParseFrame(message.value().bytes);
  std::string reason;
  return wire::ParseReply<wire::ClaimReply>(frame.value(), &reason).value().first;
}
void Echo(FakeDaemon& daemon, const Request& request) {
  daemon.Reply(request,
               wire::ClaimReply{.first = request.As<wire::ClaimRequest>().ring_id, .count = 1});
}

// The daemon's side of one ring.
struct DaemonRing {
  explicit DaemonRing(std::uint64_t ring_id, const std::string& tag = "orders")
      : memory(std::move(RingMemory::Create({.tag = tag, .ring_id = ring_id})).value()),
        writer(memory->writable_table(), memory->cursors()) {}
  [[nodiscard]] std::vector<int> fds() const { return {memory->table_fd(), memory->cursors_fd()}; }
  void Grant(FakeDaemon& daemon, const Request& request) const {
    wire::AttachReply reply;
    reply.abi_version = shm::kAbiVersion;
    reply.ring_id = memory->ring_id();
    reply.table_bytes = shm::kTableBytes;
    reply.cursors_bytes = shm::kCursorsBytes;
    daemon.Reply(request, reply, {}, fds());
  }

  std::unique_ptr<RingMemory> memory;
  RingWriter writer;
};

// How many rings this process has mapped.
int MappedRings() {
  std::ifstream maps("/proc/self/maps");
  int rings = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:idd-cursors") != std::string::npos) ++rings;
  }
  return rings;
}

// Until the thread sleeps in the kernel.
void AwaitSleep(pid_t tid) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/stat";
  for (char state = 'R'; state != 'S';) {
    std::ifstream stat(path);
    std::string text;
    std::getline(stat, text);
    state = text.at(text.rfind(')') + 2);
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// The descriptor of this process's that is connected to a listener at `path`.
int SocketOfPeer(const std::string& path) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_un peer{};
    socklen_t bytes = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0 &&
        peer.sun_family == AF_UNIX && bytes > sizeof(sa_family_t) && path == peer.sun_path) {
      return fd;
    }
  }
  return -1;
}

class ConnectionTest : public ::testing::Test {
 protected:
  TempDir dir_;
  const std::string path_ = dir_.File("idd.sock");
};

// --- calls

TEST_F(ConnectionTest, CallGetsItsReply) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  std::thread answers([&] { Echo(daemon, daemon.Next().value()); });
  EXPECT_EQ(FirstOf(connection.Call(ClaimOf(77), Later())), 77U);
  answers.join();
  EXPECT_EQ(daemon.connections(), 1);
}

TEST_F(ConnectionTest, LateReplyIsDroppedAndTheNextCallGetsItsOwn) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  EXPECT_EQ(connection.Call(ClaimOf(1), Soon()).status().code(), Code::kTimeout);
  const Request late = daemon.Next().value();
  std::thread answers([&] {
    const Request next = daemon.Next().value();
    Echo(daemon, late);
    Echo(daemon, next);
  });
  EXPECT_EQ(FirstOf(connection.Call(ClaimOf(2), Later())), 2U);
  answers.join();
  EXPECT_EQ(daemon.connections(), 1) << "a deadline breaks no connection";
}

TEST_F(ConnectionTest, ManyThreadsCallAtOnceAndEachGetsItsOwn) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  constexpr std::uint64_t kThreads = 6;
  constexpr std::uint64_t kCalls = 60;
  // In every round all threads have a call under way, and the replies come in another order.
  std::thread answers([&] {
    std::vector<Request> waiting;
    for (std::uint64_t round = 0; round < kCalls; ++round) {
      for (std::uint64_t i = 0; i < kThreads; ++i) waiting.push_back(daemon.Next().value());
      while (!waiting.empty()) {
        Echo(daemon, waiting.back());
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
        if (FirstOf(connection.Call(ClaimOf(number), Later())) != number) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  answers.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(daemon.connections(), 1);
}

TEST_F(ConnectionTest, LeaderThatLeavesAtItsDeadlineHandsOver) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  std::atomic<std::uint64_t> patient{0};
  ASSERT_TRUE(connection.EnsureConnected(Later()).ok());  // which may take longer than 80 ms
  Status hasty;
  std::thread leader(
      [&] { hasty = connection.Call(ClaimOf(1), Deadline::After(milliseconds(80))).status(); });
  ASSERT_TRUE(daemon.Next().has_value());  // the first caller leads
  std::thread follower([&] { patient = FirstOf(connection.Call(ClaimOf(2), Later())); });
  const Request second = daemon.Next().value();
  leader.join();
  EXPECT_EQ(hasty.code(), Code::kTimeout);
  Echo(daemon, second);
  follower.join();
  EXPECT_EQ(patient, 2U);
}

TEST_F(ConnectionTest, LeaderThatGotItsReplyHandsOver) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  std::vector<std::thread> callers;
  std::vector<Request> requests;
  std::atomic<int> right{0};
  for (std::uint64_t number = 1; number <= 5; ++number) {
    callers.emplace_back([&, number] {
      if (FirstOf(connection.Call(ClaimOf(number), Later())) == number) ++right;
    });
    requests.push_back(daemon.Next().value());
  }
  for (std::size_t i = 0; i < 5; ++i) {
    Echo(daemon, requests[i]);
    callers[i].join();
  }
  EXPECT_EQ(right, 5);
}

TEST_F(ConnectionTest, BrokenConnectionFailsAllWaitingCallsAtOnceAndTheNextConnectsAnew) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  std::atomic<int> unavailable{0};
  std::vector<std::thread> callers;
  for (std::uint64_t number = 1; number <= 4; ++number) {
    callers.emplace_back([&, number] {
      if (connection.Call(ClaimOf(number), Later()).status().code() == Code::kUnavailable) {
        ++unavailable;
      }
    });
  }
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(daemon.Next().has_value());
  const MonotonicTime broke = MonotonicClock::now();
  daemon.Close(1);
  for (std::thread& caller : callers) caller.join();
  EXPECT_LT(MonotonicClock::now() - broke, kOnlyByADefect) << "not by their deadlines";
  EXPECT_EQ(unavailable, 4);
  std::thread answers([&] { Echo(daemon, daemon.Next().value()); });
  EXPECT_EQ(FirstOf(connection.Call(ClaimOf(9), Later())), 9U);
  answers.join();
  EXPECT_EQ(daemon.connections(), 2);
}

TEST_F(ConnectionTest, ConnectionThatBrokeWhileNobodyCalledIsReplaced) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  ASSERT_TRUE(connection.EnsureConnected(Later()).ok());
  daemon.Close(1);
  std::thread answers([&] { Echo(daemon, daemon.Next().value()); });
  EXPECT_EQ(FirstOf(connection.Call(ClaimOf(3), Later())), 3U);
  answers.join();
  EXPECT_EQ(daemon.connections(), 2);
}

TEST_F(ConnectionTest, ManyThreadsMakeOneConnection) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      if (!connection.EnsureConnected(Later()).ok()) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(daemon.connections(), 1);
}

TEST_F(ConnectionTest, DaemonThatAcceptsAndNeverAnswersEndsByTheDeadline) {
  FakeDaemon daemon(path_, [](FakeDaemon&, const Request&) { return true; });
  Connection connection(path_, std::nullopt);
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.EnsureConnected(Soon()).code(), Code::kUnavailable);
  EXPECT_GE(MonotonicClock::now() - began, milliseconds(40));
  EXPECT_EQ(connection.Call(ClaimOf(1), Soon()).status().code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
}

TEST_F(ConnectionTest, WaitersForAnothersConnectAttemptKeepTheirOwnDeadlines) {
  FakeDaemon daemon(path_, [](FakeDaemon&, const Request&) { return true; });
  Connection connection(path_, std::nullopt);
  std::thread slow(
      [&] { EXPECT_EQ(connection.EnsureConnected(Later()).code(), Code::kUnavailable); });
  while (daemon.Count(FrameType::kHello) == 0) std::this_thread::yield();
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.EnsureConnected(Soon()).code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect) << "not by the other's deadline";
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
  Connection connection(path_, std::nullopt);
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.Call(ClaimOf(1), Soon()).status().code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
}

TEST_F(ConnectionTest, NobodyListeningIsUnavailableAtOnce) {
  Connection connection(path_, std::nullopt);
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(connection.Call(ClaimOf(1), Later()).status().code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
}

TEST_F(ConnectionTest, RefusedHelloTellsTheDaemonsReason) {
  FakeDaemon daemon(path_, [](FakeDaemon& self, const Request& request) {
    self.Send(request.connection,
              wire::BuildReply(FrameType::kError, 0, wire::StatusReply{.status = 7},
                               "the client has ABI 1.0, idd has 2.0"));
    self.Close(request.connection);
    return true;
  });
  Connection connection(path_, std::nullopt);
  const Status status = connection.EnsureConnected(Later());
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_NE(status.message().find("2.0"), std::string::npos);
}

TEST_F(ConnectionTest, ErrorFrameFailsItsOwnCallWithTheReasonAndTheOthersAsUnavailable) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  Status of_first;
  Status of_second;
  std::thread first([&] { of_first = connection.Call(ClaimOf(1), Later()).status(); });
  const Request bad = daemon.Next().value();
  std::thread second([&] { of_second = connection.Call(ClaimOf(2), Later()).status(); });
  ASSERT_TRUE(daemon.Next().has_value());
  daemon.Send(bad.connection, wire::BuildReply(FrameType::kError, bad.header.request_id,
                                               wire::StatusReply{.status = 1}, "bad frame"));
  daemon.Close(bad.connection);
  first.join();
  second.join();
  EXPECT_EQ(of_first.code(), Code::kInvalid);
  EXPECT_EQ(of_first.message(), "bad frame");
  EXPECT_EQ(of_second.code(), Code::kUnavailable);
}

TEST_F(ConnectionTest, GarbageFromTheDaemonFailsTheCall) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  std::thread answers([&] {
    const Request request = daemon.Next().value();
    daemon.Send(request.connection, std::vector<std::byte>(7));
  });
  EXPECT_EQ(connection.Call(ClaimOf(1), Later()).status().code(), Code::kInvalid);
  answers.join();
}

TEST_F(ConnectionTest, DaemonThatStopsReadingEndsByTheDeadline) {
  const ScopedFd listener = ListenAt(path_);
  Connection connection(path_, std::nullopt);
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

// --- tags

class ClientTest : public ConnectionTest {
 protected:
  std::unique_ptr<Client> Open(milliseconds timeout = std::chrono::minutes(1)) {
    auto client = Client::Open({.socket_path = path_, .timeout = timeout, .trusted_uid = {}});
    EXPECT_TRUE(client.ok()) << client.status().message();
    return std::move(client).value();
  }
  static Result<IdRange> Claim(Tag& tag, std::uint64_t count = 1) {
    std::optional<Deadline> deadline;
    return tag.Claim(count, deadline);
  }
  // Attaches to what `grant` hands out.
  Status AttachTo(const std::function<void(FakeDaemon&, const Request&)>& grant) {
    FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
      if (request.type() != FrameType::kAttach) return false;
      grant(self, request);
      return true;
    });
    return Open()->OpenTag("orders").status();
  }
  // Opens a tag whose ring is dry, and claims `count` ids that the daemon answers with `reply`.
  Result<IdRange> ClaimAnsweredBy(wire::ClaimReply reply, std::uint64_t count = 10) {
    const DaemonRing ring(1);
    FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
      if (request.type() == FrameType::kAttach) ring.Grant(self, request);
      if (request.type() == FrameType::kClaim) self.Reply(request, reply, "as told");
      return request.type() != FrameType::kHello;
    });
    const std::unique_ptr<Client> client = Open();
    return Claim(*client->OpenTag("orders").value(), count);
  }
};

TEST_F(ClientTest, RingIsClaimedFromWithoutTheDaemon) {
  DaemonRing ring(1);
  ring.writer.Publish({1, 101}, 0, shm::kNoMark);
  auto daemon = std::make_unique<FakeDaemon>(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    return request.type() == FrameType::kAttach;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  EXPECT_EQ(Claim(*tag, 10).value(), (IdRange{1, 11}));
  EXPECT_EQ(daemon->Count(FrameType::kClaim), 0);
  daemon.reset();
  EXPECT_EQ(Claim(*tag, 1000).value(), (IdRange{11, 101})) << "the ring outlives the daemon";
}

TEST_F(ClientTest, OpeningATagTwiceGivesTheSameHandle) {
  const DaemonRing ring(1);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    return request.type() == FrameType::kAttach;
  });
  const std::unique_ptr<Client> client = Open();
  std::vector<Tag*> tags(4);
  std::vector<std::thread> threads;
  for (Tag*& tag : tags) threads.emplace_back([&] { tag = client->OpenTag("orders").value(); });
  for (std::thread& thread : threads) thread.join();
  for (Tag* tag : tags) EXPECT_EQ(tag, tags[0]);
  EXPECT_EQ(client->OpenTag("orders").value(), tags[0]);
}

TEST_F(ClientTest, BadTagNameIsRefusedWithoutAskingTheDaemon) {
  FakeDaemon daemon(path_);
  const std::unique_ptr<Client> client = Open();
  EXPECT_EQ(client->OpenTag("").status().code(), Code::kInvalid);
  EXPECT_EQ(client->OpenTag("a\nb").status().code(), Code::kInvalid);
  EXPECT_EQ(daemon.Count(FrameType::kAttach), 0);
}

TEST_F(ClientTest, AttachTellsTheDaemonsStatusAndReason) {
  const Status status = AttachTo([](FakeDaemon& daemon, const Request& request) {
    daemon.Reply(request, wire::AttachReply{.status = 3}, "no such tag: 'orders'");
  });
  EXPECT_EQ(status.code(), Code::kNoSuchTag);
  EXPECT_NE(status.message().find("no such tag"), std::string::npos);
}

TEST_F(ClientTest, AttachRefusesAReplyWithoutDescriptors) {
  EXPECT_EQ(AttachTo([](FakeDaemon& daemon, const Request& request) {
              daemon.Reply(request, wire::AttachReply{.ring_id = 1});
            }).code(),
            Code::kIncompatible);
}

TEST_F(ClientTest, AttachRefusesSwappedDescriptors) {
  const DaemonRing ring(1);
  EXPECT_EQ(AttachTo([&](FakeDaemon& daemon, const Request& request) {
              daemon.Reply(request, wire::AttachReply{.ring_id = 1}, {},
                           {ring.memory->cursors_fd(), ring.memory->table_fd()});
            }).code(),
            Code::kIncompatible);
}

TEST_F(ClientTest, AttachRefusesMemoryThatCouldShrink) {
  const DaemonRing ring(1);
  const ScopedFd loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(loose.get(), shm::kCursorsBytes), 0);
  EXPECT_EQ(AttachTo([&](FakeDaemon& daemon, const Request& request) {
              daemon.Reply(request, wire::AttachReply{.ring_id = 1}, {},
                           {ring.memory->table_fd(), loose.get()});
            }).code(),
            Code::kIncompatible);
}

TEST_F(ClientTest, AttachRefusesMemoryOfAnotherSize) {
  const DaemonRing ring(1);
  const ScopedFd small(::memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(small.get(), 64), 0);
  ASSERT_EQ(::fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(AttachTo([&](FakeDaemon& daemon, const Request& request) {
              daemon.Reply(request, wire::AttachReply{.ring_id = 1}, {},
                           {ring.memory->table_fd(), small.get()});
            }).code(),
            Code::kIncompatible);
}

TEST_F(ClientTest, AttachRefusesAnotherTagsRing) {
  const DaemonRing other(1, "users");
  const Status status =
      AttachTo([&](FakeDaemon& daemon, const Request& request) { other.Grant(daemon, request); });
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_NE(status.message().find("not the tag asked for"), std::string::npos) << status.message();
}

TEST_F(ClientTest, DryRingAsksTheDaemon) {
  EXPECT_EQ(ClaimAnsweredBy({.first = 500, .count = 10}).value(), (IdRange{500, 510}));
  EXPECT_EQ(ClaimAnsweredBy({.first = 0, .count = 1}).value(), (IdRange{0, 1}));
  EXPECT_EQ(ClaimAnsweredBy({.first = shm::kMaxLimit - 3, .count = 3}).value(),
            (IdRange{shm::kMaxLimit - 3, shm::kMaxLimit}));
}

TEST_F(ClientTest, GrantThatWasNotAskedForIsRefused) {
  EXPECT_EQ(ClaimAnsweredBy({.first = 500, .count = 0}).status().code(), Code::kIncompatible);
  EXPECT_EQ(ClaimAnsweredBy({.first = 500, .count = 11}).status().code(), Code::kIncompatible);
  EXPECT_EQ(ClaimAnsweredBy({.first = 500, .count = ~0ULL}).status().code(), Code::kIncompatible);
}

TEST_F(ClientTest, GrantAboveTheLimitOfAllIdsIsRefused) {
  for (const std::uint64_t first :
       {shm::kMaxLimit - 2, shm::kMaxLimit, shm::kMaxLimit + 1, ~std::uint64_t{0}}) {
    EXPECT_EQ(ClaimAnsweredBy({.first = first, .count = 3}).status().code(), Code::kIncompatible)
        << first;
  }
}

TEST_F(ClientTest, ClaimTellsTheDaemonsStatusAndReason) {
  for (const Code code : {Code::kTimeout, Code::kOutOfIds, Code::kNoSuchTag, Code::kDenied}) {
    const Status status = ClaimAnsweredBy({.status = static_cast<std::uint32_t>(code)}).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), "as told");
  }
}

TEST_F(ClientTest, ClaimThatIsNeverAnsweredEndsByTheDeadline) {
  const DaemonRing ring(1);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    return request.type() == FrameType::kAttach;
  });
  const std::unique_ptr<Client> client = Open(milliseconds(2000));
  Tag* const tag = client->OpenTag("orders").value();
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(Claim(*tag).status().code(), Code::kTimeout);
  EXPECT_GE(MonotonicClock::now() - began, milliseconds(1900));
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
  const auto request = daemon.Next().value().As<wire::ClaimRequest>();
  EXPECT_LT(request.timeout_ms, 2000U) << "the daemon's reason arrives before the own deadline";
  EXPECT_EQ(request.ring_id, 1U);
  EXPECT_EQ(request.count, 1U);
}

TEST_F(ClientTest, GrantThatSaysSoBringsANewRing) {
  DaemonRing old_ring(1);
  DaemonRing new_ring(2);
  new_ring.writer.Publish({600, 700}, 0, shm::kNoMark);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) {
      (self.Count(FrameType::kAttach) == 1 ? old_ring : new_ring).Grant(self, request);
    } else if (request.type() == FrameType::kClaim) {
      self.Reply(request, wire::ClaimReply{.attach_again = 1, .first = 500, .count = 1});
    }
    return request.type() != FrameType::kHello;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  EXPECT_EQ(Claim(*tag).value(), (IdRange{500, 501}));
  EXPECT_EQ(Claim(*tag).value(), (IdRange{600, 601}));
  EXPECT_EQ(daemon.Count(FrameType::kClaim), 1);
}

TEST_F(ClientTest, RetiredRingIsReplacedByAnAttach) {
  DaemonRing old_ring(1);
  old_ring.writer.SetState(shm::RingState::kRetired);
  DaemonRing new_ring(2);
  new_ring.writer.Publish({600, 700}, 0, shm::kNoMark);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() != FrameType::kAttach) return false;
    (self.Count(FrameType::kAttach) == 1 ? old_ring : new_ring).Grant(self, request);
    return true;
  });
  const std::unique_ptr<Client> client = Open();
  EXPECT_EQ(Claim(*client->OpenTag("orders").value()).value(), (IdRange{600, 601}));
  EXPECT_EQ(daemon.Count(FrameType::kClaim), 0);
}

// Regression: with nothing between two attaches the client asked as fast as the daemon could
// answer.
TEST_F(ClientTest, DaemonThatGoesOnHandingOutARetiredRingIsNotStormed) {
  DaemonRing ring(1);
  ring.writer.SetState(shm::RingState::kRetired);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    return request.type() == FrameType::kAttach;
  });
  const std::unique_ptr<Client> client = Open(milliseconds(400));
  const MonotonicTime began = MonotonicClock::now();
  Tag* const tag = client->OpenTag("orders").value();
  EXPECT_FALSE(Claim(*tag).ok());
  const int attaches = daemon.Count(FrameType::kAttach);
  const auto took = std::chrono::ceil<milliseconds>(MonotonicClock::now() - began);
  EXPECT_LE(attaches, took.count() / 2 + 20) << "one in two milliseconds is plenty";
}

TEST_F(ClientTest, MarkSendsOneWakeUpWithoutAReply) {
  DaemonRing ring(1);
  ring.writer.Publish({1, 101}, 0, 11);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    return request.type() == FrameType::kAttach;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Claim(*tag).ok());
  const Request notice = daemon.Next().value();
  EXPECT_EQ(notice.type(), FrameType::kRefill);
  EXPECT_EQ(notice.As<wire::RefillNotice>().ring_id, 1U);
  // What comes next is of another claim.
  std::thread answers([&] {
    const Request claim = daemon.Next().value();
    EXPECT_EQ(claim.type(), FrameType::kClaim);
    daemon.Reply(claim, wire::ClaimReply{.first = 900, .count = 1});
  });
  EXPECT_EQ(Claim(*tag).value(), (IdRange{900, 901}));
  answers.join();
  EXPECT_EQ(daemon.Count(FrameType::kRefill), 1);
}

TEST_F(ClientTest, DryClaimOutlivesARestartOfTheDaemon) {
  const DaemonRing old_ring(1);
  DaemonRing new_ring(2);
  auto daemon = std::make_unique<FakeDaemon>(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) old_ring.Grant(self, request);
    return request.type() == FrameType::kAttach;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  Result<IdRange> claimed = Status(Code::kTimeout, "not yet");
  std::thread claimer([&] { claimed = Claim(*tag); });
  ASSERT_TRUE(daemon->Next().has_value());
  daemon.reset();
  daemon = std::make_unique<FakeDaemon>(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) new_ring.Grant(self, request);
    if (request.type() == FrameType::kClaim) {
      self.Reply(request, wire::ClaimReply{.attach_again = 1, .first = 70, .count = 1});
    }
    return request.type() != FrameType::kHello;
  });
  claimer.join();
  ASSERT_TRUE(claimed.ok()) << claimed.status().message();
  EXPECT_EQ(claimed.value(), (IdRange{70, 71}));
}

// --- tags without a ring

// Answers CLAIM with the next ids, `most` at most, and ATTACH with `ring`, or that there is none.
class TagWithoutRingTest : public ClientTest {
 protected:
  // `attach_again` is what the next reply to CLAIM says.
  void Start(std::uint64_t most = 1000) {
    daemon_ =
        std::make_unique<FakeDaemon>(path_, [this, most](FakeDaemon& self, const Request& request) {
          if (request.type() == FrameType::kAttach) {
            const DaemonRing* const ring = ring_;
            if (ring != nullptr) {
              ring->Grant(self, request);
            } else {
              self.Reply(request, wire::AttachReply{.abi_version = shm::kAbiVersion});
            }
          }
          if (request.type() == FrameType::kClaim) {
            const auto claim = request.As<wire::ClaimRequest>();
            last_ring_id_ = claim.ring_id;
            const std::uint64_t count = std::min(claim.count, most);
            self.Reply(request, wire::ClaimReply{.attach_again = attach_again_.exchange(0),
                                                 .first = next_.fetch_add(count),
                                                 .count = count});
          }
          return request.type() != FrameType::kHello;
        });
    client_ = Open();
    tag_ = client_->OpenTag("orders").value();
  }

  std::atomic<const DaemonRing*> ring_{nullptr};
  std::atomic<std::uint32_t> attach_again_{0};
  std::atomic<std::uint64_t> next_{1};
  std::atomic<std::uint64_t> last_ring_id_{~0ULL};
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<Client> client_;
  Tag* tag_ = nullptr;
};

TEST_F(TagWithoutRingTest, EveryClaimIsARequestAndNothingIsMapped) {
  Start(7);
  EXPECT_EQ(MappedRings(), 0);
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{1, 2}));
  EXPECT_EQ(Claim(*tag_, 5).value(), (IdRange{2, 7}));
  EXPECT_EQ(Claim(*tag_, 5000).value(), (IdRange{7, 14})) << "as much as the daemon gives";
  EXPECT_EQ(last_ring_id_, 0U);
  EXPECT_EQ(daemon_->Count(FrameType::kClaim), 3);
  EXPECT_EQ(daemon_->Count(FrameType::kAttach), 1) << "and no more";
  EXPECT_EQ(tag_->view().load(), shm::DryPoint()) << "inlined claims fall through to the call";
  EXPECT_TRUE(tag_->ClaimAtView(1).empty());
  tag_->WakeDaemon();
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{14, 15}));
  EXPECT_EQ(daemon_->Count(FrameType::kRefill), 0);
}

TEST_F(TagWithoutRingTest, BlocksAreRequestsToo) {
  Start();
  Tag* const tag = client_->OpenTag("orders", 10).value();
  for (std::uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(tag->ClaimFromBlock().value(), id);
  EXPECT_EQ(daemon_->Count(FrameType::kClaim), 2);
}

TEST_F(TagWithoutRingTest, ManyThreadsClaimAtOnce) {
  Start();
  std::vector<std::vector<std::uint64_t>> ids(4);
  std::vector<std::thread> threads;
  for (auto& own : ids) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) own.push_back(Claim(*tag_).value().first);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all;
  for (const auto& own : ids) {
    EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(all.back(), 800U);
}

TEST_F(TagWithoutRingTest, GrantThatSaysSoBringsARingAndARetiredRingEndsIt) {
  DaemonRing ring(1);
  ring.writer.Publish({600, 700}, 0, shm::kNoMark);
  const int mapped = MappedRings();
  Start();
  EXPECT_EQ(MappedRings(), mapped);
  ring_ = &ring;
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{1, 2})) << "nobody has said so yet";
  attach_again_ = 1;
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{2, 3}));
  EXPECT_EQ(MappedRings(), mapped + 1);
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{600, 601}));
  EXPECT_NE(tag_->view().load(), shm::DryPoint());
  EXPECT_EQ(daemon_->Count(FrameType::kClaim), 2);
  ring_ = nullptr;
  ring.writer.SetState(shm::RingState::kRetired);
  EXPECT_EQ(ring.writer.DrainAll().at(0).next, 601U);
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{3, 4}));
  EXPECT_EQ(last_ring_id_, 0U);
  EXPECT_EQ(tag_->view().load(), shm::DryPoint()) << "no claim adds to a closed cursor for ever";
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{4, 5}));
  EXPECT_EQ(daemon_->Count(FrameType::kAttach), 3);
}

TEST_F(TagWithoutRingTest, OutlivesARestartOfTheDaemon) {
  Start();
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{1, 2}));
  const auto client = std::move(client_);
  Tag* const tag = tag_;
  daemon_.reset();
  Result<IdRange> claimed = Status(Code::kTimeout, "not yet");
  std::thread claimer([&] { claimed = Claim(*tag); });
  std::this_thread::sleep_for(milliseconds(20));
  Start();
  claimer.join();
  ASSERT_TRUE(claimed.ok()) << claimed.status().message();
  EXPECT_EQ(claimed.value(), (IdRange{2, 3}));
}

// What no honest daemon says of a ring and of none.
TEST_F(ClientTest, AttachRefusesARingThatIsNotWhatTheReplySays) {
  const DaemonRing ring(1);
  const int mapped = MappedRings();
  const auto table = ring.memory->table_fd();
  const auto cursors = ring.memory->cursors_fd();
  const struct {
    wire::AttachReply reply;
    std::vector<int> fds;
  } lies[] = {
      {{.ring_id = 0}, {table, cursors}},
      {{.ring_id = 0}, {table}},
      {{.ring_id = 0, .table_bytes = shm::kTableBytes}, {}},
      {{.ring_id = 0, .cursors_bytes = 1}, {}},
      {{.ring_id = 1, .table_bytes = shm::kTableBytes, .cursors_bytes = shm::kCursorsBytes}, {}},
      {{.ring_id = 1}, {table}},
      {{.ring_id = 2}, {table, cursors}},
  };
  for (const auto& lie : lies) {
    EXPECT_EQ(AttachTo([&](FakeDaemon& daemon, const Request& request) {
                daemon.Reply(request, lie.reply, {}, lie.fds);
              }).code(),
              Code::kIncompatible)
        << &lie - lies;
    EXPECT_EQ(MappedRings(), mapped);
  }
}

// --- fork

// The socket is the parent's: what the child writes to it could fall between two halves of the
// parent's request.
TEST_F(ClientTest, ForkedChildThatTakesTheMarkSendsNothingOnTheParentsConnection) {
  DaemonRing ring(1);
  ring.writer.Publish({1, 101}, 0, 11);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    if (request.type() == FrameType::kClaim) {
      self.Reply(request, wire::ClaimReply{.first = 900, .count = 1});
    }
    return request.type() != FrameType::kHello;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    const Result<IdRange> ids = Claim(*tag, 100);
    ::_exit(ids.ok() && ids.value() == (IdRange{1, 101}) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Claim(*tag).value(), (IdRange{900, 901})) << "the daemon has read all that was sent";
  EXPECT_EQ(daemon.Count(FrameType::kRefill), 0);
}

TEST_F(ClientTest, ForkedChildGetsAConnectionOfItsOwnAndTheParentGoesOn) {
  const DaemonRing ring(1);
  std::atomic<std::uint64_t> next{100};
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    // The connection's number tells who asked.
    if (request.type() == FrameType::kClaim) {
      const auto base = static_cast<std::uint64_t>(request.connection) * 1000;
      self.Reply(request, wire::ClaimReply{.first = base + next++, .count = 1});
    }
    return request.type() != FrameType::kHello;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  EXPECT_EQ(Claim(*tag).value().first / 1000, 1U);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    const Result<IdRange> ids = Claim(*tag);
    ::_exit(ids.ok() && ids.value().first / 1000 == 2 ? 0 : 1);
  }
  EXPECT_EQ(Claim(*tag).value().first / 1000, 1U);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Claim(*tag).value().first / 1000, 1U) << "the parent's connection is untouched";
  EXPECT_EQ(daemon.connections(), 2);
}

TEST_F(ClientTest, ForkWhileAThreadWaitsDisturbsNeitherSide) {
  const DaemonRing ring(1);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    return request.type() == FrameType::kAttach;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  Result<IdRange> waited = Status(Code::kTimeout, "not yet");
  std::thread waiter([&] { waited = Claim(*tag); });
  const Request of_parent = daemon.Next().value();
  const pid_t child =
      ::fork();  // the waiter leads, or is about to: its locks are copied as they are
  if (child == 0) {
    ::alarm(10);
    const Result<IdRange> ids = Claim(*tag);
    ::_exit(ids.ok() && ids.value() == IdRange{30, 31} ? 0 : 1);
  }
  const Request of_child = daemon.Next().value();
  EXPECT_NE(of_child.connection, of_parent.connection);
  daemon.Reply(of_child, wire::ClaimReply{.first = 30, .count = 1});
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  daemon.Reply(of_parent, wire::ClaimReply{.first = 20, .count = 1});
  waiter.join();
  ASSERT_TRUE(waited.ok()) << waited.status().message();
  EXPECT_EQ(waited.value(), (IdRange{20, 21}));
}

TEST_F(ClientTest, ChildThatClosesTheInheritedClientHarmsNobody) {
  const DaemonRing ring(1);
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    if (request.type() == FrameType::kClaim) {
      self.Reply(request, wire::ClaimReply{.first = 20, .count = 1});
    }
    return request.type() != FrameType::kHello;
  });
  std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    client.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Claim(*tag).value(), (IdRange{20, 21}));
  EXPECT_EQ(daemon.connections(), 1);
}

// --- descriptors that the program closes

// Files of the program's that have the numbers of what it has closed, as daemons do: sockets, as
// whatever the library sent by one of them would arrive.
class Strangers {
 public:
  // Closes all descriptors of this process but the first three, and opens others.
  Strangers() {
    ::close_range(3, ~0U, 0);
    for (std::size_t i = 0; i < kPairs; ++i) {
      std::array<int, 2> pair{};
      if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair.data()) != 0) ::_exit(70);
      for (const int fd : pair) files_.emplace_back(fd, InodeOf(fd));
    }
  }
  [[nodiscard]] bool AreUntouched() const {
    return std::all_of(files_.begin(), files_.end(), [](const auto& file) {
      std::byte byte{};
      const ssize_t bytes = ::recv(file.first, &byte, sizeof(byte), MSG_DONTWAIT);
      return bytes < 0 && errno == EAGAIN && InodeOf(file.first) == file.second;
    });
  }

 private:
  static constexpr std::size_t kPairs = 50;
  static ino_t InodeOf(int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
  }
  std::vector<std::pair<int, ino_t>> files_;
};

class ClosedDescriptorsTest : public ClientTest {
 protected:
  // What `child` returns in a forked child, where 0 is success.
  static int InChild(const std::function<int()>& child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(90);
      ::_exit(child());
    }
    int status = 0;
    if (::waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  DaemonRing ring_{1};
  FakeDaemon daemon_{path_, [this](FakeDaemon& self, const Request& request) {
                       if (request.type() == FrameType::kAttach) ring_.Grant(self, request);
                       if (request.type() == FrameType::kClaim) {
                         self.Reply(request, wire::ClaimReply{.first = 900, .count = 1});
                       }
                       return request.type() != FrameType::kHello;
                     }};
  std::unique_ptr<Client> client_ = Open(std::chrono::seconds(30));
  Tag* const tag_ = client_->OpenTag("orders").value();
};

// Regression: the child closed the number of its parent's socket, and the next claim's socket took
// the place of the program's log file.
TEST_F(ClosedDescriptorsTest, ForkedChildThatHasOpenedOthersKeepsThem) {
  EXPECT_EQ(InChild([this] {
              const Strangers strangers;
              if (!Claim(*tag_).ok()) return 1;
              return strangers.AreUntouched() ? 0 : 2;
            }),
            0);
}

TEST_F(ClosedDescriptorsTest, ForkedChildThatClosesTheClientKeepsItsOwn) {
  EXPECT_EQ(InChild([this] {
              const Strangers strangers;
              client_.reset();
              return strangers.AreUntouched() ? 0 : 2;
            }),
            0);
}

// The same in one process: here a child that has claimed, and so has a connection of its own.
TEST_F(ClosedDescriptorsTest, ProcessThatHasOpenedOthersKeepsThemAndClaimsOn) {
  EXPECT_EQ(InChild([this] {
              if (!Claim(*tag_).ok()) return 1;
              const Strangers strangers;
              if (!Claim(*tag_).ok()) return 2;
              if (!Claim(*tag_).ok()) return 3;
              client_.reset();
              return strangers.AreUntouched() ? 0 : 4;
            }),
            0);
}

TEST_F(ClosedDescriptorsTest, ProcessThatHasOpenedOthersMayCloseTheClient) {
  EXPECT_EQ(InChild([this] {
              if (!Claim(*tag_).ok()) return 1;
              const Strangers strangers;
              client_.reset();
              return strangers.AreUntouched() ? 0 : 4;
            }),
            0);
}

TEST_F(ClosedDescriptorsTest, WakeUpIsNotSentByAnothersSocket) {
  ring_.writer.Publish({1, 101}, 0, 11);
  EXPECT_EQ(InChild([this] {
              client_ = Open(std::chrono::seconds(30));
              Tag* const tag = client_->OpenTag("orders").value();
              const Strangers strangers;
              for (int i = 0; i < 100; ++i) {
                if (!Claim(*tag).ok()) return 2;
              }
              return strangers.AreUntouched() ? 0 : 4;
            }),
            0);
}

TEST_F(ClosedDescriptorsTest, ProcessThatHasOpenedNoneClaimsOn) {
  EXPECT_EQ(InChild([this] {
              if (!Claim(*tag_).ok()) return 1;
              ::close_range(3, ~0U, 0);
              return Claim(*tag_).ok() ? 0 : 2;
            }),
            0);
}

// What it sleeps in is the old socket; what it reads next would be another's.
TEST_F(ConnectionTest, WaiterWhoseDescriptorIsTakenReadsNothingOfAnothers) {
  FakeDaemon daemon(path_);
  Connection connection(path_, std::nullopt);
  ASSERT_TRUE(connection.EnsureConnected(Later()).ok());
  const int fd = SocketOfPeer(path_);
  ASSERT_GE(fd, 0);
  std::optional<Result<Message>> reply;
  std::atomic<pid_t> tid{0};
  std::thread caller([&] {
    tid = ::gettid();
    reply = connection.Call(ClaimOf(77), Later());
  });
  ASSERT_TRUE(daemon.Next().has_value());
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

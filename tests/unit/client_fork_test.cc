// SPDX-License-Identifier: Apache-2.0
//
// libidclient in a process that forks, and in one that closes descriptors it does not own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/child_exit.h"
#include "support/client_fixture.h"

namespace idd::client {
namespace {

// Runs `child` in a forked child.
pid_t Fork(const std::function<int()>& child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(90);
    ::_exit(child());
  }
  return pid;
}

int InChild(const std::function<int()>& child) { return harness::ExitOf(Fork(child)); }

// --- fork

// The child shares the parent's socket: its output could end up between two halves of a request of
// the parent.
TEST_F(ClientTest, ForkedChildThatTakesTheMarkSendsNothingOnTheParentsConnection) {
  DaemonRing ring(1);
  ring.writer.Publish({1, 101}, 0, 11);
  FakeDaemon daemon(path_, Granting(ring, wire::ClaimReply{.first = 900, .count = 1}));
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  const pid_t child = Fork([&] {
    const Result<IdRange> ids = Claim(*tag, 100);
    return ids.ok() && ids.value() == (IdRange{1, 101}) ? 0 : 1;
  });
  EXPECT_EQ(harness::ExitOf(child), 0);
  EXPECT_EQ(Claim(*tag).value(), (IdRange{900, 901})) << "the daemon has read all that was sent";
  EXPECT_EQ(daemon.Count(FrameType::kRefill), 0);
}

TEST_F(ClientTest, ForkedChildGetsAConnectionOfItsOwnAndTheParentGoesOn) {
  const DaemonRing ring(1);
  std::atomic<std::uint64_t> next{100};
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    // The connection's number identifies the asking process.
    if (request.type() == FrameType::kClaim) {
      const auto base = static_cast<std::uint64_t>(request.connection) * 1000;
      self.Reply(request, wire::ClaimReply{.first = base + next++, .count = 1});
    }
    return request.type() != FrameType::kHello;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  EXPECT_EQ(Claim(*tag).value().first / 1000, 1U);
  const pid_t child = Fork([&] {
    const Result<IdRange> ids = Claim(*tag);
    return ids.ok() && ids.value().first / 1000 == 2 ? 0 : 1;
  });
  EXPECT_EQ(Claim(*tag).value().first / 1000, 1U);
  EXPECT_EQ(harness::ExitOf(child), 0);
  EXPECT_EQ(Claim(*tag).value().first / 1000, 1U) << "the parent's connection is untouched";
  EXPECT_EQ(daemon.connections(), 2);
}

TEST_F(ClientTest, ForkWhileAThreadWaitsDisturbsNeitherSide) {
  const DaemonRing ring(1);
  FakeDaemon daemon(path_, Granting(ring));
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  Result<IdRange> waited = Status(Code::kTimeout, "not yet");
  std::thread waiter([&] { waited = Claim(*tag); });
  const Request of_parent = daemon.Next().value();
  // The waiter leads, or is about to: its locks are copied as they are
  const pid_t child = Fork([&] {
    const Result<IdRange> ids = Claim(*tag);
    return ids.ok() && ids.value() == IdRange{30, 31} ? 0 : 1;
  });
  const Request of_child = daemon.Next().value();
  EXPECT_NE(of_child.connection, of_parent.connection);
  daemon.Reply(of_child, wire::ClaimReply{.first = 30, .count = 1});
  EXPECT_EQ(harness::ExitOf(child), 0);
  daemon.Reply(of_parent, wire::ClaimReply{.first = 20, .count = 1});
  waiter.join();
  ASSERT_TRUE(waited.ok()) << waited.status().message();
  EXPECT_EQ(waited.value(), (IdRange{20, 21}));
}

TEST_F(ClientTest, ChildThatClosesTheInheritedClientHarmsNoOther) {
  const DaemonRing ring(1);
  FakeDaemon daemon(path_, Granting(ring, wire::ClaimReply{.first = 20, .count = 1}));
  std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  const pid_t child = Fork([&] {
    client.reset();
    return 0;
  });
  EXPECT_EQ(harness::ExitOf(child), 0);
  EXPECT_EQ(Claim(*tag).value(), (IdRange{20, 21}));
  EXPECT_EQ(daemon.connections(), 1);
}

// --- descriptors that the program closes

// Files of the program under the descriptor numbers that it has closed, as daemons do it. They are
// sockets, so that anything the library sent over one of them would arrive.
class Strangers {
 public:
  // Closes all descriptors of this process except the first three, and opens others.
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
  DaemonRing ring_{1};
  FakeDaemon daemon_{path_, Granting(ring_, wire::ClaimReply{.first = 900, .count = 1})};
  std::unique_ptr<Client> client_ = Open(std::chrono::seconds(30));
  Tag* const tag_ = client_->OpenTag("orders").value();
};

// Regression: the child closed the descriptor number of its parent's socket, and the socket of the
// next claim replaced the program's log file.
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

// The same in one process. It is a child here; it has claimed, and so has its own connection.
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

}  // namespace
}  // namespace idd::client

// SPDX-License-Identifier: Apache-2.0
//
// The client's blocking socket: every call ends by its deadline, whatever the peer does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "idd/wire/channel.h"
#include "support/child_exit.h"
#include "support/fake_daemon.h"
#include "support/temp_dir.h"

namespace idd::wire {
namespace {

using idd::harness::TempDir;
using idd::testing_support::ListenAt;
using idd::testing_support::SendMessage;
using std::chrono::milliseconds;

Deadline Soon() { return Deadline::After(milliseconds(40)); }
Deadline Later() { return Deadline::After(std::chrono::minutes(1)); }
std::vector<std::byte> HelloFrame(std::uint64_t id = 1) {
  return BuildRequest(FrameType::kHello, id, HelloRequest{});
}

// A connected pair: the client's channel, and the raw socket of the other side.
class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() {
    const ScopedFd listener = ListenAt(path_);
    Result<Channel> channel = Channel::Connect(path_, Later(), std::nullopt);
    EXPECT_TRUE(channel.ok()) << channel.status().message();
    channel_.emplace(std::move(channel).value());
    peer_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  void Answer(std::span<const std::byte> frame, const std::vector<int>& fds = {}) {
    ASSERT_TRUE(SendMessage(peer_.get(), frame, fds));
  }
  // Sends until the peer, which does not read, has no room left.
  void Fill() {
    while (channel_->TrySend(HelloFrame())) {
    }
  }

  TempDir dir_;
  const std::string path_ = dir_.File("idd.sock");
  std::optional<Channel> channel_;
  ScopedFd peer_;
};

TEST_F(ChannelTest, ConnectWithoutASocketSaysThatNoDaemonIsThere) {
  EXPECT_EQ(Channel::Connect(dir_.File("none"), Later(), std::nullopt).status().code(),
            Code::kUnavailable);
  // The fixture's listener is gone, but its file exists.
  const std::string file = dir_.File("file");
  harness::WriteFile(file, "");
  const Status other = Channel::Connect(file, Later(), std::nullopt).status();
  EXPECT_EQ(other.code(), Code::kUnavailable);
  EXPECT_NE(other.message().find("it is not a socket"), std::string::npos) << other.message();
  const Status status = Channel::Connect(path_, Later(), std::nullopt).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find(path_), std::string::npos);
}

TEST_F(ChannelTest, PathThatNoSocketCanHaveIsInvalid) {
  EXPECT_EQ(Channel::Connect("", Later(), std::nullopt).status().code(), Code::kInvalid);
  EXPECT_EQ(Channel::Connect(std::string(108, 'x'), Later(), std::nullopt).status().code(),
            Code::kInvalid);
}

TEST_F(ChannelTest, SocketOfAnotherTypeIsNotIdds) {
  const std::string stream = dir_.File("stream");
  const ScopedFd listener = ListenAt(stream, 8, SOCK_STREAM);
  EXPECT_EQ(Channel::Connect(stream, Later(), std::nullopt).status().code(), Code::kIncompatible);
}

TEST_F(ChannelTest, FullBacklogEndsByTheDeadline) {
  const std::string full = dir_.File("full");
  const ScopedFd listener = ListenAt(full, 0);
  std::vector<Channel> filling;
  MonotonicTime began;
  Status status;
  do {
    began = MonotonicClock::now();
    Result<Channel> channel = Channel::Connect(full, Soon(), std::nullopt);
    status = channel.status();
    if (channel.ok()) filling.push_back(std::move(channel).value());
  } while (status.ok());
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
  EXPECT_GE(MonotonicClock::now() - began, milliseconds(30)) << "it waited for room";
  EXPECT_LT(MonotonicClock::now() - began, std::chrono::seconds(30));
  EXPECT_GE(filling.size(), 1U);
}

TEST_F(ChannelTest, ListenerOfAStrangerIsRefusedUnlessTrusted) {
  constexpr uid_t kStranger = 65534;
  const bool is_root = ::geteuid() == 0;  // only root can act as a stranger
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0777), 0);
  const std::string path = dir_.File("stranger");
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  ScopedFd ready_read(ready[0]);
  ScopedFd ready_write(ready[1]);
  int stop[2];
  ASSERT_EQ(::pipe2(stop, O_CLOEXEC), 0);
  ScopedFd stop_read(stop[0]);
  ScopedFd stop_write(stop[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    stop_write.reset();
    if (is_root && ::setuid(kStranger) != 0) ::_exit(1);
    const ScopedFd listener = ListenAt(path);
    char byte = 'x';
    if (::write(ready_write.get(), &byte, 1) != 1) ::_exit(2);
    static_cast<void>(!::read(stop_read.get(), &byte, 1));
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready_read.get(), &byte, 1), 1);
  const Status stranger = Channel::Connect(path, Later(), std::nullopt).status();
  EXPECT_EQ(stranger.code(), is_root ? Code::kDenied : Code::kOk) << stranger.message();
  EXPECT_TRUE(Channel::Connect(path, Later(), kStranger).ok());
  stop_write.reset();
  EXPECT_EQ(harness::ExitOf(child), 0);
}

TEST_F(ChannelTest, MessagesTravelBothWays) {
  ASSERT_TRUE(channel_->Send(HelloFrame(7), Later()).ok());
  std::array<std::byte, kMaxFrameBytes> buffer;
  EXPECT_EQ(::recv(peer_.get(), buffer.data(), buffer.size(), 0),
            static_cast<ssize_t>(HelloFrame().size()));
  Answer(BuildReply(FrameType::kHello, 7, HelloReply{}));
  const Result<Message> message = channel_->Receive(Later());
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(ParseFrame(message.value().bytes).value().header.request_id, 7U);
  EXPECT_FALSE(message.value().fds[0].valid());
}

TEST_F(ChannelTest, ReceiveEndsByTheDeadline) {
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(channel_->Receive(Soon()).status().code(), Code::kTimeout);
  EXPECT_GE(MonotonicClock::now() - began, milliseconds(40));
  EXPECT_EQ(channel_->Receive(Deadline::After(milliseconds(-1))).status().code(), Code::kTimeout);
}

TEST_F(ChannelTest, SendToAPeerThatDoesNotReadEndsByTheDeadline) {
  Fill();
  EXPECT_EQ(channel_->Send(HelloFrame(), Soon()).code(), Code::kTimeout);
  EXPECT_FALSE(channel_->TrySend(HelloFrame()));
}

TEST_F(ChannelTest, ClosedPeerIsUnavailable) {
  EXPECT_FALSE(channel_->PeerClosed());
  peer_.reset();
  EXPECT_TRUE(channel_->PeerClosed());
  EXPECT_EQ(channel_->Receive(Later()).status().code(), Code::kUnavailable);
  EXPECT_EQ(channel_->Send(HelloFrame(), Later()).code(), Code::kUnavailable);
  EXPECT_FALSE(channel_->TrySend(HelloFrame()));
}

TEST_F(ChannelTest, MessageLongerThanAFrameIsRefused) {
  Answer(std::vector<std::byte>(kMaxFrameBytes + 1));
  EXPECT_EQ(channel_->Receive(Later()).status().code(), Code::kInvalid);
}

TEST_F(ChannelTest, FramesOfOneMessageComeOneByOne) {
  std::vector<std::byte> message;
  for (const std::uint64_t id : {7U, 8U, 9U}) {
    const auto frame = BuildReply(FrameType::kClaim, id, ClaimReply{}, std::string(id, 'x'));
    message.insert(message.end(), frame.begin(), frame.end());
  }
  Answer(message);
  Answer(BuildReply(FrameType::kHello, 10, HelloReply{}));
  for (const std::uint64_t id : {7U, 8U, 9U, 10U}) {
    const Result<Message> received = channel_->Receive(Later());
    ASSERT_TRUE(received.ok()) << received.status().message();
    const Result<FrameView> frame = ParseFrame(received.value().bytes);
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    EXPECT_EQ(frame.value().header.request_id, id);
  }
  EXPECT_EQ(channel_->Receive(Soon()).status().code(), Code::kTimeout);
}

TEST_F(ChannelTest, RestOfAMessageThatIsNoFrameComesAsItIs) {
  std::vector<std::byte> message = BuildReply(FrameType::kClaim, 7, ClaimReply{});
  const std::size_t whole = message.size();
  message.resize(whole + 5, std::byte{0x5a});
  Answer(message);
  EXPECT_EQ(channel_->Receive(Later()).value().bytes.size(), whole);
  EXPECT_EQ(channel_->Receive(Later()).value().bytes.size(), 5U) << "its reader must refuse it";
}

TEST_F(ChannelTest, TwoDescriptorsArriveAndSurplusOnesDoNotLeak) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const ScopedFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto before = open_files();
  for (const std::size_t count : {1U, 2U, 3U}) {
    Answer(HelloFrame(), std::vector<int>(count, null.get()));
    const Result<Message> message = channel_->Receive(Later());
    ASSERT_TRUE(message.ok());
    EXPECT_TRUE(message.value().fds[0].valid());
    EXPECT_EQ(message.value().fds[1].valid(), count >= 2);
    EXPECT_EQ(::fcntl(message.value().fds[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  Answer(std::vector<std::byte>(kMaxFrameBytes + 1), {null.get()});
  EXPECT_FALSE(channel_->Receive(Later()).ok());
  EXPECT_EQ(open_files(), before);
}

TEST_F(ChannelTest, LackOfDescriptorsIsReported) {
  const ScopedFd passed(::memfd_create("passed", MFD_CLOEXEC));
  const std::vector<int> fds = {passed.get(), passed.get()};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(passed.get());
  ::close(next);
  for (const int room : {0, 1}) {
    Answer(BuildReply(FrameType::kHello, 1, HelloReply{}), fds);
    const rlimit few{static_cast<rlim_t>(next + room), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const Status status = channel_->Receive(Later()).status();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(status.code(), Code::kSystem) << status.message();
    EXPECT_NE(status.message().find("RLIMIT_NOFILE"), std::string::npos) << status.message();
  }
}

TEST_F(ChannelTest, ExchangeSkipsLateRepliesToEarlierRequests) {
  Answer(BuildReply(FrameType::kHello, 3, HelloReply{}));
  Answer(BuildReply(FrameType::kClaim, 4, ClaimReply{}));
  Answer(BuildReply(FrameType::kHello, 5, HelloReply{.daemon_id = 99}));
  const Result<Message> message = channel_->Exchange(HelloFrame(5), Later());
  ASSERT_TRUE(message.ok()) << message.status().message();
  EXPECT_EQ(ParseFrame(message.value().bytes).value().header.request_id, 5U);
}

TEST_F(ChannelTest, ExchangeReportsTheDaemonsErrorWhateverItsRequest) {
  Answer(BuildReply(FrameType::kError, 0, StatusReply{.status = 7}, "you are too old"));
  const Status status = channel_->Exchange(HelloFrame(), Later()).status();
  EXPECT_EQ(status.code(), Code::kIncompatible);
  EXPECT_EQ(status.message(), "you are too old");
}

TEST_F(ChannelTest, ExchangeReadsTheReasonThatAClosedDaemonLeft) {
  Answer(BuildReply(FrameType::kError, 0, StatusReply{.status = 2}, "too many connections"));
  peer_.reset();
  const Status status = channel_->Exchange(HelloFrame(), Later()).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "too many connections");
}

// The kernel resets the connection of a peer that closes with something unread.
TEST_F(ChannelTest, ReasonIsReadThoughTheDaemonClosedBeforeItReadTheRequest) {
  ASSERT_TRUE(channel_->TrySend(HelloFrame()));
  Answer(BuildReply(FrameType::kError, 0, StatusReply{.status = 2}, "too many connections"));
  peer_.reset();
  const Result<Message> message = channel_->Receive(Later());
  ASSERT_TRUE(message.ok()) << message.status().message();
  EXPECT_EQ(ParseError(ParseFrame(message.value().bytes).value()).message(),
            "too many connections");
  EXPECT_EQ(channel_->Receive(Later()).status().message(), "idd closed the connection");
}

TEST_F(ChannelTest, ExchangeRefusesAnErrorFrameThatSaysOk) {
  Answer(BuildReply(FrameType::kError, 0, StatusReply{.status = 0}));
  EXPECT_EQ(channel_->Exchange(HelloFrame(), Later()).status().code(), Code::kInvalid);
}

TEST_F(ChannelTest, ExchangeRefusesAReplyOfAnotherTypeAndGarbage) {
  Answer(BuildReply(FrameType::kClaim, 1, ClaimReply{}));
  EXPECT_EQ(channel_->Exchange(HelloFrame(1), Later()).status().code(), Code::kInvalid);
  Answer(std::vector<std::byte>(5));
  EXPECT_EQ(channel_->Exchange(HelloFrame(2), Later()).status().code(), Code::kInvalid);
}

TEST_F(ChannelTest, ExchangeEndsByTheDeadlineAmongEndlessLateReplies) {
  for (int i = 0; i < 20; ++i) Answer(BuildReply(FrameType::kHello, 77, HelloReply{}));
  EXPECT_EQ(channel_->Exchange(HelloFrame(1), Soon()).status().code(), Code::kTimeout);
}

TEST(DefaultSocketPathTest, EnvironmentBeatsTheBuiltInPath) {
  ::unsetenv("IDD_SOCKET");
  EXPECT_EQ(DefaultSocketPath(), "/run/idd/idd.sock");
  ::setenv("IDD_SOCKET", "/tmp/x.sock", 1);
  EXPECT_EQ(DefaultSocketPath(), "/tmp/x.sock");
  ::setenv("IDD_SOCKET", "", 1);
  EXPECT_EQ(DefaultSocketPath(), "/run/idd/idd.sock");
  ::unsetenv("IDD_SOCKET");
}

}  // namespace
}  // namespace idd::wire

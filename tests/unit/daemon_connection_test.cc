// SPDX-License-Identifier: Apache-2.0
//
// The daemon's side of a connection, over a socket pair.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "platform/event_loop.h"
#include "server/connection.h"

namespace idd::daemon {
namespace {

using wire::FrameHeader;
using wire::FrameType;

class DaemonConnectionTest : public ::testing::Test {
 protected:
  DaemonConnectionTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    peer_.reset(ends[1]);
    connection_ = std::make_unique<Connection>(loop_, ScopedFd(ends[0]), 1, Peer{});
    connection_->Start(
        {.on_readable = [](Connection& connection) { connection.ReadOne(); },
         .on_message = [](Connection&, std::span<const std::byte>) {},
         .on_close =
             [this](std::uint64_t) {
               if (!keeps_closed_) connection_.reset();
             },
         .hold =
             [this](const Peer&, std::size_t count) {
               if (held_ + count > most_held_) return false;
               held_ += count;
               return true;
             },
         .release = [this](const Peer&, std::size_t count) { held_ -= count; },
         .pass =
             [this](const Peer&, std::size_t count) {
               if (under_way_ + count > most_under_way_) return false;
               under_way_ += count;
               return true;
             },
         .arrived = [this](const Peer&, std::size_t count) { under_way_ -= count; }});
  }

  [[nodiscard]] static std::vector<std::byte> Reply(std::uint64_t id) {
    return wire::BuildReply(FrameType::kClaim, id, wire::ClaimReply{});
  }
  void Turn() {
    // Runs everything that is ready: the peer's actions are visible at once, and no timer is
    // awaited.
    while (loop_.RunOne(std::chrono::nanoseconds(0))) {
    }
  }
  // The request ids in the next message; nothing if there is no message.
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> Receive() const {
    std::array<std::byte, wire::kMaxFrameBytes + 1> buffer;
    const ssize_t got = ::recv(peer_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got <= 0) return std::nullopt;
    EXPECT_LE(got, static_cast<ssize_t>(wire::kMaxFrameBytes));
    std::vector<std::uint64_t> ids;
    std::span<const std::byte> rest = std::span(buffer).first(static_cast<std::size_t>(got));
    while (!rest.empty()) {
      const std::size_t bytes = wire::LeadingFrameBytes(rest);
      const auto frame = wire::ParseFrame(rest.first(bytes));
      EXPECT_TRUE(frame.ok()) << frame.status().message();
      if (frame.ok()) ids.push_back(frame.value().header.request_id);
      rest = rest.subspan(bytes);
    }
    return ids;
  }
  [[nodiscard]] std::vector<std::uint64_t> ReceiveAll() const {
    std::vector<std::uint64_t> all;
    while (const auto ids = Receive()) all.insert(all.end(), ids->begin(), ids->end());
    return all;
  }

  EventLoop loop_;
  ScopedFd peer_;
  bool keeps_closed_ = false;
  std::size_t held_ = 0;  // descriptors
  std::size_t most_held_ = SIZE_MAX;
  std::size_t under_way_ = 0;  // also descriptors
  std::size_t most_under_way_ = SIZE_MAX;
  std::unique_ptr<Connection> connection_;
};

TEST_F(DaemonConnectionTest, WhatIsSentWithTheNextIsOneMessageAtOnce) {
  connection_->SendWithNext(Reply(1));
  connection_->SendWithNext(Reply(2));
  EXPECT_FALSE(Receive().has_value());
  connection_->Send(Reply(3));
  EXPECT_EQ(Receive(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_FALSE(Receive().has_value());
}

TEST_F(DaemonConnectionTest, MessagesAreNoLongerThanAFrameMayBe) {
  for (std::uint64_t id = 1; id < 1000; ++id) connection_->SendWithNext(Reply(id));
  connection_->Send(Reply(1000));
  int messages = 0;
  std::uint64_t next = 1;
  while (const auto ids = Receive()) {
    ++messages;
    for (const std::uint64_t id : *ids) EXPECT_EQ(id, next++);
  }
  EXPECT_EQ(next, 1001U);
  EXPECT_EQ(messages, 3) << "341 replies of 48 bytes each";
}

// Replies that were not sent yet must not make the peer count as a slow reader.
TEST_F(DaemonConnectionTest, RepliesFollowedByDescriptorsGoOutAtOnceAndInOrder) {
  const ScopedFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  connection_->SendWithNext(Reply(1));
  connection_->SendWithNext(Reply(2));
  std::vector<std::uint64_t> expected = {1, 2};
  for (std::uint64_t id = 3; id <= 100; ++id) {
    connection_->Send(Reply(id), {null.get(), null.get()});
    expected.push_back(id);
  }
  EXPECT_EQ(ReceiveAll(), expected);
  Turn();
  EXPECT_FALSE(Receive().has_value());
  EXPECT_NE(connection_, nullptr);
}

TEST_F(DaemonConnectionTest, ClosingSendsWhatWasGrantedBeforeAndTheReason) {
  connection_->SendWithNext(Reply(1));
  connection_->SendWithNext(Reply(2));
  connection_->CloseWith({Code::kInvalid, "a bad frame"}, 7);
  EXPECT_EQ(ReceiveAll(), (std::vector<std::uint64_t>{1, 2, 7}));
  Turn();
  EXPECT_EQ(connection_, nullptr);
}

// They are limited to what the user may hold, and released as soon as they are sent or dropped.
TEST_F(DaemonConnectionTest, DescriptorsOfUnreadRepliesAreHeldAndGivenBack) {
  const ScopedFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto send_until = [&](std::size_t held) {
    for (int i = 0; i < 5000 && connection_ != nullptr && held_ < held; ++i) {
      connection_->Send(Reply(1), {null.get(), null.get()});
    }
  };
  send_until(6);
  EXPECT_EQ(held_, 6U);
  for (int i = 0; i < 1000 && held_ != 0; ++i) {
    EXPECT_FALSE(ReceiveAll().empty());
    Turn();
  }
  EXPECT_EQ(held_, 0U) << "all were sent";
  most_held_ = 9;
  send_until(8);
  EXPECT_EQ(held_, 8U);
  connection_->Send(Reply(1), {null.get(), null.get()});
  Turn();
  EXPECT_EQ(connection_, nullptr);
  EXPECT_EQ(held_, 0U);
}

TEST_F(DaemonConnectionTest, DescriptorsAreUnderWayUntilThePeerHasReadThem) {
  const ScopedFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (std::size_t i = 1; i <= 5; ++i) {
    connection_->Send(Reply(i), {null.get(), null.get()});
    connection_->CheckArrived();
    EXPECT_EQ(under_way_, 2 * i);
  }
  EXPECT_EQ(ReceiveAll().size(), 5U);
  connection_->CheckArrived();
  EXPECT_EQ(under_way_, 0U);
  EXPECT_FALSE(connection_->has_descriptors_under_way());
  // Sending a reply checks by itself which ones have arrived.
  most_under_way_ = 2;
  for (std::size_t i = 1; i <= 5; ++i) {
    connection_->Send(Reply(i), {null.get(), null.get()});
    EXPECT_EQ(ReceiveAll().size(), 1U);
  }
  ASSERT_FALSE(connection_->is_closed());
  connection_->Send(Reply(6), {null.get(), null.get()});
  connection_->Send(Reply(7), {null.get(), null.get()});
  EXPECT_TRUE(connection_->is_closed()) << "more descriptors in flight than allowed";
}

// Descriptors in its queue count against idd until they are read, even after the connection is
// closed.
TEST_F(DaemonConnectionTest, DescriptorsOfAClosedConnectionAreUnderWayUntilTheyAreRead) {
  keeps_closed_ = true;
  const ScopedFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  connection_->Send(Reply(1), {null.get(), null.get()});
  connection_->CloseWith({Code::kInvalid, "a bad frame"}, 7);
  Turn();
  connection_->CheckArrived();
  EXPECT_EQ(under_way_, 2U);
  EXPECT_EQ(ReceiveAll(), (std::vector<std::uint64_t>{1, 7}));
  std::byte byte{};
  EXPECT_EQ(::recv(peer_.get(), &byte, 1, MSG_DONTWAIT), 0) << "the peer must see the close";
  connection_->CheckArrived();
  EXPECT_EQ(under_way_, 0U);
}

TEST_F(DaemonConnectionTest, DescriptorsAreUnderWayNoMoreWhenThePeerIsGone) {
  keeps_closed_ = true;
  const ScopedFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  connection_->Send(Reply(1), {null.get(), null.get()});
  connection_->CloseWith({Code::kInvalid, "a bad frame"}, 7);
  EXPECT_EQ(under_way_, 2U);
  peer_.reset();
  connection_->CheckArrived();
  EXPECT_EQ(under_way_, 0U);
}

TEST_F(DaemonConnectionTest, PeerThatDoesNotReadIsClosedAndOneThatReadsLateIsServed) {
  std::uint64_t sent = 0;
  for (; sent < 1000; ++sent) connection_->Send(Reply(sent));
  Turn();
  ASSERT_NE(connection_, nullptr) << "within the limit of requests in flight";
  std::vector<std::uint64_t> got;
  while (got.size() < 1000) {
    const std::vector<std::uint64_t> more = ReceiveAll();
    ASSERT_FALSE(more.empty());
    got.insert(got.end(), more.begin(), more.end());
    Turn();
  }
  for (std::uint64_t id = 0; id < 1000; ++id) EXPECT_EQ(got[id], id);
  for (int i = 0; i < 5000 && connection_ != nullptr; ++i) {
    connection_->Send(Reply(0));
    while (loop_.RunOne(std::chrono::nanoseconds(0))) {
    }
  }
  EXPECT_EQ(connection_, nullptr);
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// Observers: who gets a ring to observe, what its descriptors allow, and what it shows.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>

#include "idclient/idclient.hpp"
#include "idd/shm/abi.h"
#include "idd/shm/ring_observer.h"
#include "idd/wire/frames.h"
#include "support/child_exit.h"
#include "support/raw_connection.h"
#include "support/ring_request.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

class Observe : public HostWithUsers {
 protected:
  void SetUp() override {
    HostWithUsers::SetUp();
    if (IsSkipped()) return;
    Configure(Rule("'orders'", kAlice.uid, "access = 'shm'") +
              Rule("'users'", kAlice.uid, "access = 'socket'") +
              Rule("'bob'", kBob.uid, "access = 'admin'"));
    host_.daemon.Start();
    for (const char* tag : {"orders", "users"}) {
      host_.idctl.CreateTag(tag, 1000);
      static_cast<void>(host_.idctl.Claim(tag, 10));
    }
  }

  [[nodiscard]] Result<wire::Message> Ask(const std::string& tag) const {
    const Deadline deadline = Deadline::After(Patience(5s));
    Result<wire::Channel> channel = ConnectAndGreet(host_.daemon.socket(), deadline);
    if (!channel.ok()) return channel.status();
    const wire::ObserveRequest request{.tag = wire::PackTag(tag)};
    return channel.value().Exchange(wire::BuildRequest(wire::FrameType::kObserve, 7, request),
                                    deadline);
  }
  [[nodiscard]] static wire::AttachReply ReplyOf(const wire::Message& message) {
    std::string reason;
    const Result<wire::FrameView> frame = wire::ParseFrame(message.bytes);
    Require(frame.ok(), "not a frame");
    const Result<wire::AttachReply> reply =
        wire::ParseReply<wire::AttachReply>(frame.value(), wire::FrameType::kObserve, &reason);
    Require(reply.ok(), "not a reply to OBSERVE");
    return reply.value();
  }
  // The ring that this user gets for the tag, or none.
  [[nodiscard]] std::optional<shm::RingObserver> ObserverFor(const Identity& who,
                                                             const std::string& tag) const {
    const ScopedIdentity identity(who);
    const Result<wire::Message> message = Ask(tag);
    Require(message.ok(), message.status().message());
    const wire::AttachReply reply = ReplyOf(message.value());
    EXPECT_EQ(message.value().fds[0].valid(), reply.ring_id != 0);
    EXPECT_EQ(message.value().fds[1].valid(), reply.ring_id != 0);
    if (reply.ring_id == 0) return std::nullopt;
    Result<shm::RingObserver> observer =
        shm::RingObserver::Attach(message.value().fds[0], message.value().fds[1], tag);
    Require(observer.ok(), observer.status().message());
    return std::move(observer).value();
  }
  [[nodiscard]] nlohmann::json StatusOf(const std::string& tag) const {
    return host_.idctl.Json({"status", tag}).at("tags").at(0);
  }
};

const Identity kRoot{};

TEST_F(Observe, RingShowsWhatStatusSays) {
  std::optional<shm::RingObserver> ring = ObserverFor(kRoot, "orders");
  ASSERT_TRUE(ring.has_value());
  // The daemon publishes its own numbers when it looks at the tag, at least once a second.
  ASSERT_TRUE(WaitUntil(Patience(10s), [&] { return ring->Snapshot().numbers.leases > 0; }));
  static_cast<void>(host_.idctl.Claim("orders", 490));
  const nlohmann::json status = StatusOf("orders");
  const shm::RingView view = ring->Snapshot();
  EXPECT_TRUE(view.has_numbers);
  EXPECT_FALSE(view.is_over);
  EXPECT_EQ(view.claimed, 500U);
  EXPECT_EQ(view.claimed, status.at("claimed"));
  EXPECT_EQ(view.available, status.at("available"));
  EXPECT_EQ(view.numbers.step, 1000U);
  EXPECT_EQ(view.numbers.outage_tolerance_s, status.at("promise").at("outage_tolerance_s"));
  EXPECT_EQ(view.numbers.max_prefetch, status.at("promise").at("max_prefetch"));
}

TEST_F(Observe, ClaimsAddUpOverManySegments) {
  std::optional<shm::RingObserver> ring = ObserverFor(kRoot, "orders");
  ASSERT_TRUE(ring.has_value());
  std::uint64_t claimed = 10;
  for (int round = 0; round < 20; ++round) {
    static_cast<void>(host_.idctl.Claim("orders", 1700));
    claimed += 1700;
    // A waiter gets its ids a moment before the rest of the lease is published.
    ASSERT_TRUE(WaitUntil(Patience(2s), [&] { return ring->Snapshot().claimed >= claimed; }))
        << "round " << round << ": " << ring->Snapshot().claimed;
    ASSERT_EQ(ring->Snapshot().claimed, claimed) << "round " << round;
    ASSERT_FALSE(ring->Snapshot().is_over);
  }
}

TEST_F(Observe, OnlyUsersWithShmAccessGetTheMemory) {
  host_.idctl.Do({"tag", "create", "bob", "--step", "1000"});
  static_cast<void>(host_.idctl.Claim("bob", 1));
  EXPECT_TRUE(ObserverFor(kAlice, "orders").has_value());
  EXPECT_TRUE(ObserverFor(kBob, "bob").has_value());
  EXPECT_FALSE(ObserverFor(kAlice, "users").has_value()) << "she has access socket";
  EXPECT_TRUE(ObserverFor(kRoot, "users").has_value());
  const ScopedIdentity identity(kAlice);
  const Result<wire::Message> denied = Ask("bob");
  ASSERT_TRUE(denied.ok());
  EXPECT_EQ(ReplyOf(denied.value()).status, static_cast<std::uint32_t>(Code::kDenied));
  EXPECT_FALSE(denied.value().fds[0].valid());
}

TEST_F(Observe, TagWithoutARingIsNotGivenOneForIt) {
  host_.idctl.CreateTag("fresh", 1000);
  EXPECT_FALSE(ObserverFor(kRoot, "fresh").has_value());
  EXPECT_FALSE(ObserverFor(kRoot, "not-there").has_value());
  EXPECT_EQ(StatusOf("fresh").at("leases"), 0) << "observing must lease nothing";
  EXPECT_EQ(host_.idctl.Run({"status", "not-there"}).exit_status, 3);
}

TEST_F(Observe, TagOfTheSocketAloneIsGivenToNoObserver) {
  host_.idctl.Do({"tag", "set", "orders", "--access", "socket"});
  EXPECT_FALSE(ObserverFor(kRoot, "orders").has_value());
}

// Runs in a child as another user. Returns 0, or a number for what the user could do to the cursors
// with the descriptor.
int HarmDoneAsSomebodyElse(int fd) {
  const pid_t child = ::fork();
  RequireErrno(child >= 0, "fork");
  if (child == 0) {
    if (::setgid(kAlice.gid) != 0 || ::setuid(kAlice.uid) != 0) ::_exit(20);
    if (::prctl(PR_SET_DUMPABLE, 1) != 0) ::_exit(21);  // else /proc alone could explain a refusal
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::access("/proc/self/fd", R_OK) != 0) ::_exit(22);
    if (::open(link.c_str(), O_RDWR | O_CLOEXEC) >= 0) ::_exit(1);
    if (::open(link.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC) >= 0) ::_exit(2);
    constexpr int kWritable = PROT_READ | PROT_WRITE;
    if (::mmap(nullptr, shm::kCursorsBytes, kWritable, MAP_SHARED, fd, 0) != MAP_FAILED) ::_exit(3);
    void* const pages = ::mmap(nullptr, shm::kCursorsBytes, PROT_READ, MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED) ::_exit(4);
    if (::mprotect(pages, shm::kCursorsBytes, kWritable) == 0) ::_exit(5);
    if (::ftruncate(fd, 0) == 0) ::_exit(6);
    const char byte = 'x';
    if (::pwrite(fd, &byte, 1, 0) >= 0) ::_exit(7);
    if (::fchmod(fd, 0666) == 0) ::_exit(8);
    ::_exit(0);
  }
  return ExitOf(child);
}

TEST_F(Observe, NothingCanBeWrittenThroughTheDescriptors) {
  const Result<wire::Message> message = Ask("orders");
  ASSERT_TRUE(message.ok());
  for (const ScopedFd& fd : message.value().fds) {
    ASSERT_TRUE(fd.valid());
    EXPECT_EQ(HarmDoneAsSomebodyElse(fd.get()), 0);
  }
  EXPECT_EQ(::fcntl(message.value().fds[1].get(), F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST_F(Observe, ObserverThatLosesItsRightCostsNoClientTheRing) {
  std::optional<shm::RingObserver> ring = ObserverFor(kAlice, "orders");
  ASSERT_TRUE(ring.has_value());
  const std::uint64_t ring_id = ring->ring_id();
  Reload(Rule("'users'", kAlice.uid, "access = 'socket'"));
  const std::optional<shm::RingObserver> now = ObserverFor(kRoot, "orders");
  ASSERT_TRUE(now.has_value());
  EXPECT_EQ(now->ring_id(), ring_id) << "it cannot write, so nothing need be replaced";
  // A user who has claimed from it could write.
  Reload(Rule("'orders'", kAlice.uid, "access = 'shm'"));
  EXPECT_EQ(host_.idctl.As(kAlice).Claim("orders", 1).size(), 1U);
  Reload(Rule("'users'", kAlice.uid, "access = 'socket'"));
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] { return ring->Snapshot().is_over; }));
  EXPECT_NE(ObserverFor(kRoot, "orders")->ring_id(), ring_id);
}

TEST_F(Observe, RingIsSeenWhileItsDaemonIsGone) {
  idclient::Client client({.socket_path = host_.daemon.socket()});
  idclient::Tag tag = client.tag("orders");
  static_cast<void>(tag.claim());
  std::optional<shm::RingObserver> ring = ObserverFor(kRoot, "orders");
  ASSERT_TRUE(ring.has_value());
  const std::uint64_t before = ring->Snapshot().claimed;
  host_.daemon.Kill();
  for (int i = 0; i < 100; ++i) static_cast<void>(tag.claim());
  EXPECT_EQ(ring->Snapshot().claimed, before + 100);
  EXPECT_FALSE(ring->Snapshot().is_over);
  host_.daemon.Start();
  static_cast<void>(host_.idctl.Claim("orders", 1));
  const std::optional<shm::RingObserver> next = ObserverFor(kRoot, "orders");
  ASSERT_TRUE(next.has_value());
  EXPECT_NE(next->ring_id(), ring->ring_id());
}

TEST_F(Observe, StopEndsTheRingAndItsClaimsAreKept) {
  std::optional<shm::RingObserver> ring = ObserverFor(kRoot, "orders");
  ASSERT_TRUE(ring.has_value());
  EXPECT_EQ(ring->Snapshot().claimed, 10U);
  host_.daemon.Stop();
  EXPECT_TRUE(ring->Snapshot().is_over);
  EXPECT_EQ(ring->Snapshot().claimed, 10U) << "what was handed back is not claimed";
  EXPECT_EQ(ring->Snapshot().available, 0U);
}

TEST_F(Observe, MalformedRequestEndsTheConnectionAlone) {
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  const char byte = 'x';
  ASSERT_TRUE(
      connection.Send(MakeFrame(wire::FrameType::kObserve, 3, std::as_bytes(std::span(&byte, 1)))));
  EXPECT_TRUE(connection.WaitClosed(Patience(5s)));
  EXPECT_TRUE(RawConnection::AnswersHello(host_.daemon.socket()));
}

// The daemon does not write for an idle tag: with thousands of tags that would be most of its work.
TEST_F(Observe, NumbersAreWrittenWhenSomethingHasChangedAndNotOtherwise) {
  host_.idctl.CreateTag("quiet", 1000);
  const Deadline deadline = Deadline::After(Patience(5s));
  Result<wire::Channel> channel = ConnectAndGreet(host_.daemon.socket(), deadline);
  ASSERT_TRUE(channel.ok());
  ASSERT_TRUE(RequestRing(channel.value(), "quiet", deadline).ok());
  std::optional<shm::RingObserver> ring = ObserverFor(kRoot, "quiet");
  ASSERT_TRUE(ring.has_value());
  const auto age = [&ring] {
    return std::chrono::nanoseconds(MonotonicNs() - ring->Snapshot().numbers.written_at_ns);
  };
  // By then the daemon has looked at the tag several times.
  ASSERT_TRUE(WaitUntil(Patience(30s), [&] { return age() > 6s; })) << age().count();
  const std::uint64_t written_at = ring->Snapshot().numbers.written_at_ns;
  static_cast<void>(host_.idctl.Claim("quiet", 990));
  EXPECT_TRUE(WaitUntil(Patience(15s),
                        [&] { return ring->Snapshot().numbers.written_at_ns > written_at; }));
}

// The reply for programs that observe the rings themselves.
TEST_F(Observe, StatusOfWhatCannotBeObservedLeavesTheOthersOut) {
  host_.idctl.Do({"tag", "set", "users", "--access", "socket"});
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  const auto ask = [&connection](const std::string& request) {
    Require(connection.Send(MakeFrame(wire::FrameType::kAdmin, 1,
                                      std::as_bytes(std::span(request.data(), request.size())))),
            "the daemon has closed");
    const std::optional<Reply> reply = connection.Receive(Patience(5s));
    Require(reply.has_value(), "no reply");
    return reply->As<wire::AdminReply>();
  };
  const auto all = ask(R"({"op":"status","tags":"all"})");
  const auto rest = ask(R"({"op":"status","tags":"unobserved"})");
  EXPECT_EQ(all.status, 0U);
  EXPECT_EQ(rest.status, 0U);
  EXPECT_LT(rest.document_bytes, all.document_bytes);
  for (const char* bad :
       {R"({"op":"status","tags":"some"})", R"({"op":"status","tags":"unobserved","tag":"users"})",
        R"({"op":"status","tags":7})"}) {
    EXPECT_EQ(ask(bad).status, static_cast<std::uint32_t>(Code::kInvalid)) << bad;
  }
}

}  // namespace
}  // namespace idd::harness

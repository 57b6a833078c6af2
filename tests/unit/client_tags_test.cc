// SPDX-License-Identifier: Apache-2.0
//
// libidclient's tags against a scripted daemon.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/client_fixture.h"

namespace idd::client {
namespace {

TEST_F(ClientTest, RingIsClaimedFromWithoutTheDaemon) {
  DaemonRing ring(1);
  ring.writer.Publish({1, 101}, 0, shm::kNoMark);
  auto daemon = std::make_unique<FakeDaemon>(path_, Granting(ring));
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  EXPECT_EQ(Claim(*tag, 10).value(), (IdRange{1, 11}));
  EXPECT_EQ(daemon->Count(FrameType::kClaim), 0);
  daemon.reset();
  EXPECT_EQ(Claim(*tag, 1000).value(), (IdRange{11, 101})) << "the ring outlives the daemon";
}

TEST_F(ClientTest, OpeningATagTwiceGivesTheSameHandle) {
  const DaemonRing ring(1);
  FakeDaemon daemon(path_, Granting(ring));
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

TEST_F(ClientTest, AttachReportsTheDaemonsStatusAndReason) {
  const Status status = AttachTo([](FakeDaemon& daemon, const Request& request) {
    daemon.Reply(request, wire::AttachReply{.status = 3}, "no such tag: 'orders'");
  });
  EXPECT_EQ(status.code(), Code::kNoSuchTag);
  EXPECT_NE(status.message().find("no such tag"), std::string::npos);
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

TEST_F(ClientTest, ClaimReportsTheDaemonsStatusAndReason) {
  for (const Code code : {Code::kTimeout, Code::kOutOfIds, Code::kNoSuchTag, Code::kDenied}) {
    const Status status = ClaimAnsweredBy({.status = static_cast<std::uint32_t>(code)}).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), "as told");
  }
}

TEST_F(ClientTest, ClaimThatIsNeverAnsweredEndsByTheDeadline) {
  const DaemonRing ring(1);
  FakeDaemon daemon(path_, Granting(ring));
  const std::unique_ptr<Client> client = Open(milliseconds(2000));
  Tag* const tag = client->OpenTag("orders").value();
  const MonotonicTime began = MonotonicClock::now();
  EXPECT_EQ(Claim(*tag).status().code(), Code::kTimeout);
  EXPECT_GE(MonotonicClock::now() - began, milliseconds(1900));
  EXPECT_LT(MonotonicClock::now() - began, kOnlyByADefect);
  const auto request = daemon.Next().value().As<wire::ClaimRequest>();
  EXPECT_LT(request.timeout_ms, 2000U) << "the daemon's reason comes before the client's deadline";
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

// Programs live for many restarts of idd, and a process has a limited number of mappings.
TEST_F(ClientTest, RingsOfManyRestartsAreNotKeptMapped) {
  constexpr std::uint64_t kRestarts = 50;
  std::vector<std::unique_ptr<DaemonRing>> rings;
  for (std::uint64_t i = 0; i < kRestarts; ++i) {
    rings.push_back(std::make_unique<DaemonRing>(i + 1));
    rings[i]->writer.Publish({10 * i + 1, 10 * i + 11}, 0, shm::kNoMark);
  }
  std::atomic<std::size_t> next = 0;
  FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) rings.at(next)->Grant(self, request);
    return request.type() == FrameType::kAttach;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  const int mapped = MappedRings();
  // Where a thread of the first ring has stopped.
  shm::ClaimView stopped(tag->view().load());
  std::uint64_t id = 1;
  for (std::uint64_t i = 0; i < kRestarts; ++i) {
    next = i;
    if (i > 0) rings[i - 1]->writer.SetState(shm::RingState::kRetired);
    for (int k = 0; k < 10; ++k) {
      EXPECT_EQ(Claim(*tag, 1).value(), (IdRange{id, id + 1})) << "no id is lost or comes twice";
      ++id;
    }
    if (i == 0) stopped = tag->view().load();
    EXPECT_LE(MappedRings(), mapped + 1);
  }
  for (int k = 0; k < 20; ++k) EXPECT_TRUE(shm::ClaimAtPoint(stopped, 1).ids.empty());
  EXPECT_TRUE(shm::ClaimAtPoint(stopped, 5).ids.empty());
}

// Regression: without a pause between two attaches, the client asked as fast as the daemon could
// answer.
TEST_F(ClientTest, DaemonThatGoesOnHandingOutARetiredRingIsNotStormed) {
  DaemonRing ring(1);
  ring.writer.SetState(shm::RingState::kRetired);
  FakeDaemon daemon(path_, Granting(ring));
  const std::unique_ptr<Client> client = Open(milliseconds(400));
  const MonotonicTime began = MonotonicClock::now();
  Tag* const tag = client->OpenTag("orders").value();
  EXPECT_FALSE(Claim(*tag).ok());
  const int attaches = daemon.Count(FrameType::kAttach);
  const auto took = std::chrono::ceil<milliseconds>(MonotonicClock::now() - began);
  EXPECT_LE(attaches, took.count() / 2 + 20) << "at most one attach in two milliseconds";
}

TEST_F(ClientTest, MarkSendsOneWakeUpWithoutAReply) {
  DaemonRing ring(1);
  ring.writer.Publish({1, 101}, 0, 11);
  FakeDaemon daemon(path_, Granting(ring));
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Claim(*tag).ok());
  const Request notice = daemon.Next().value();
  EXPECT_EQ(notice.type(), FrameType::kRefill);
  EXPECT_EQ(notice.As<wire::RefillNotice>().ring_id, 1U);
  // The next CLAIM is that of another claim.
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
  auto daemon = std::make_unique<FakeDaemon>(path_, Granting(old_ring));
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  Result<IdRange> claimed = Status(Code::kTimeout, "not yet");
  std::thread claimer([&] { claimed = Claim(*tag); });
  ASSERT_TRUE(daemon->Next().has_value());
  daemon.reset();
  daemon = std::make_unique<FakeDaemon>(
      path_, Granting(new_ring, wire::ClaimReply{.attach_again = 1, .first = 70, .count = 1}));
  claimer.join();
  ASSERT_TRUE(claimed.ok()) << claimed.status().message();
  EXPECT_EQ(claimed.value(), (IdRange{70, 71}));
}

// --- tags without a ring

TEST_F(ClientTest, FinalRefusalEndsTheClaimAtOnceAndAnyOtherIsRetried) {
  FakeDaemon daemon(path_, [](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) {
      self.Reply(request, wire::AttachReply{.abi_version = shm::kAbiVersion});
    } else if (request.type() == FrameType::kClaim) {
      const bool is_final = self.Count(FrameType::kClaim) == 3;
      self.Reply(request,
                 wire::ClaimReply{.status = static_cast<std::uint32_t>(Code::kUnavailable),
                                  .is_final = static_cast<std::uint16_t>(is_final ? 1 : 0)},
                 is_final ? "the store is down" : "idd is stopping");
    }
    return request.type() != FrameType::kHello;
  });
  const std::unique_ptr<Client> client = Open();
  Tag* const tag = client->OpenTag("orders").value();
  const MonotonicTime began = MonotonicClock::now();
  const Status status = Claim(*tag).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_EQ(status.message(), "the store is down");
  EXPECT_EQ(daemon.Count(FrameType::kClaim), 3);
  EXPECT_LT(MonotonicClock::now() - began, milliseconds(1900));
}

class TagWithoutRingTest : public ClientTest {
 protected:
  // The daemon answers CLAIM with the next ids, at most `most`, and ATTACH with ring_, or with no
  // ring. attach_again_ is sent in the next reply to CLAIM.
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
  std::atomic<std::uint16_t> attach_again_{0};
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
  EXPECT_EQ(Claim(*tag_, 5000).value(), (IdRange{7, 14})) << "as many ids as the daemon grants";
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
  std::optional<Deadline> deadline;
  for (std::uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(tag->ClaimFromBlock(deadline).value(), id);
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
  EXPECT_EQ(Claim(*tag_).value(), (IdRange{1, 2})) << "no reply has said so yet";
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
  EXPECT_EQ(tag_->view().load(), shm::DryPoint()) << "a claim must stop adding to a closed cursor";
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

// Replies about a ring, or about no ring, that no honest daemon sends.
TEST_F(ClientTest, AttachRefusesARingThatIsNotWhatTheReplySays) {
  const DaemonRing ring(1);
  const int mapped = MappedRings();
  const auto table = ring.memory->table_fd();
  const auto cursors = ring.memory->cursors_fd();
  const ScopedFd loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(loose.get(), shm::kCursorsBytes), 0);
  const ScopedFd small(::memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(small.get(), 64), 0);
  ASSERT_EQ(::fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  const struct {
    const char* name;
    wire::AttachReply reply;
    std::vector<int> fds;
  } lies[] = {
      {"descriptors without a ring", {.ring_id = 0}, {table, cursors}},
      {"a table without a ring", {.ring_id = 0}, {table}},
      {"bytes of a table without a ring", {.ring_id = 0, .table_bytes = shm::kTableBytes}, {}},
      {"bytes of cursors without a ring", {.ring_id = 0, .cursors_bytes = 1}, {}},
      {"no descriptors", {.ring_id = 1}, {}},
      {"no descriptors, but their bytes",
       {.ring_id = 1, .table_bytes = shm::kTableBytes, .cursors_bytes = shm::kCursorsBytes},
       {}},
      {"no cursors", {.ring_id = 1}, {table}},
      {"another ring", {.ring_id = 2}, {table, cursors}},
      {"swapped descriptors", {.ring_id = 1}, {cursors, table}},
      {"memory that could shrink", {.ring_id = 1}, {table, loose.get()}},
      {"memory of another size", {.ring_id = 1}, {table, small.get()}},
  };
  for (const auto& lie : lies) {
    EXPECT_EQ(AttachTo([&](FakeDaemon& daemon, const Request& request) {
                daemon.Reply(request, lie.reply, {}, lie.fds);
              }).code(),
              Code::kIncompatible)
        << lie.name;
    EXPECT_EQ(MappedRings(), mapped) << lie.name;
  }
}

}  // namespace
}  // namespace idd::client

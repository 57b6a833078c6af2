// SPDX-License-Identifier: Apache-2.0
//
// Orders about all tags are carried out in turns of the loop. Between two turns the test does what
// may come in between: requests, other orders, the store's answers, a stop.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "support/tag_service_fixture.h"

namespace idd::daemon {
namespace {

using shm::RingState;
using std::chrono_literals::operator""ns;

class TagServiceTurnsTest : public TagServiceTest {
 protected:
  static constexpr int kTags = 5;

  TagServiceTurnsTest() {
    for (int i = 0; i < kTags; ++i) h_.store.AddTag(Name(i), 100);
    for (int i = 0; i < kTags; ++i) static_cast<void>(AttachedClient(Name(i)));
    h_.loop.SetTurn(0ns);
    h_.descriptors.is_busy = true;  // each new ring waits for GoOn()
  }

  static std::string Name(int number) { return "tag-" + std::to_string(number); }
  // Gives the order, and does the first of the turns that it takes.
  void Begin(const std::function<void()>& order) {
    bool is_begun = false;
    h_.loop.Post([&] {
      order();
      is_begun = true;
    });
    ASSERT_TRUE(h_.RunUntil([&] { return is_begun; }));
  }
  void BeginDrain() {
    Begin([this] { service_.Drain(kWholeHost); });
  }
  void BeginResume() {
    Begin([this] { service_.Resume(kWholeHost); });
  }
  // Lets the loop do one thing, at most another turn.
  void GoOn() {
    std::function<void()> next = h_.descriptors.TakeWaiting();
    if (next) h_.loop.Post(std::move(next));
    h_.loop.RunOne(std::chrono::milliseconds(5));
  }
  void Finish() {
    while (IsClosing()) GoOn();
    h_.Settle();
  }
  [[nodiscard]] bool IsClosing() const { return service_.IsClosing(kWholeHost); }
  // How many of the first rings are in that state.
  [[nodiscard]] int Count(RingState state) const {
    int count = 0;
    for (int i = 0; i < kTags; ++i) {
      count += clients_[static_cast<std::size_t>(i)]->state() == state ? 1 : 0;
    }
    return count;
  }
  [[nodiscard]] int Drained() const { return Count(RingState::kDrained); }
  void ExpectAllBack() {
    PollAndSettle();
    EXPECT_TRUE(service_.ProgressOf(kWholeHost).done());
    EXPECT_TRUE(service_.LiveLeases().empty());
    for (const LeaseRecord& lease : h_.store.leases()) ExpectAccounted(lease);
  }
  // Each tag is served again, from the first id that nobody has claimed.
  void ExpectAllServed() {
    for (int i = 0; i < kTags; ++i) {
      const Answer& answer = Awaited(Claim(Name(i), 1));
      EXPECT_TRUE(answer.status.ok()) << answer.status.message();
      EXPECT_EQ(answer.grant.ids.first, 1U) << Name(i);
    }
  }
};

TEST_F(TagServiceTurnsTest, DrainRefusesAllAtOnceAndClosesOneRingAfterTheOther) {
  BeginDrain();
  EXPECT_EQ(Drained(), 1);
  EXPECT_TRUE(IsClosing());
  EXPECT_FALSE(service_.ProgressOf(kWholeHost).done()) << "ids may still be claimed";
  for (int i = 0; i < kTags; ++i) {
    EXPECT_EQ(Claim(Name(i), 1).status.code(), Code::kUnavailable);
    EXPECT_EQ(Attach(Name(i)).status.code(), Code::kUnavailable);
    EXPECT_EQ(SnapshotOf(Name(i)).state, TagState::kDrained);
  }
  for (int closed = 2; closed <= kTags; ++closed) {
    while (Drained() < closed && IsClosing()) GoOn();
    EXPECT_EQ(Drained(), closed);
  }
  Finish();
  EXPECT_FALSE(IsClosing());
  for (const auto& client : clients_) EXPECT_TRUE(client->Claim(1).empty());
  ExpectAllBack();
}

// The drain reaches the tag after the store's answer.
TEST_F(TagServiceTurnsTest, LeaseThatComesBeforeItsTagsTurnGoesBackFirst) {
  const std::string last = Name(kTags - 1);
  h_.store.script.Hold("TakeLease");
  const int leases = Leases();
  EXPECT_EQ(clients_.back()->Claim(80).size(), 80U);
  service_.Refill(last);
  ASSERT_TRUE(h_.RunUntil([&] { return Leases() > leases; }));
  // The answer is there when the first turn ends.
  bool is_begun = false;
  h_.loop.Post([&] {
    service_.Drain(kWholeHost);
    is_begun = true;
  });
  h_.store.script.Release();
  std::promise<void> answered;
  h_.worker.Submit<bool>(
      [&answered](Store&, HighWaterMarks&) -> Result<bool> {
        answered.set_value();
        return true;
      },
      [](const Result<bool>&) {});
  answered.get_future().wait();
  ASSERT_TRUE(h_.RunUntil([&] { return is_begun; }));
  EXPECT_EQ(Drained(), 1);
  h_.loop.RunOne(std::chrono::milliseconds(5));
  EXPECT_EQ(Drained(), 2);
  EXPECT_EQ(clients_.back()->state(), RingState::kDrained) << "before its turn";
  EXPECT_TRUE(clients_.back()->Claim(1).empty());
  Finish();
  ExpectAllBack();
  EXPECT_EQ(h_.store.FindTag(last).value().next_id, 81U) << "the newest must go back first";
}

TEST_F(TagServiceTurnsTest, ResumeDuringADrainIsTheLastWord) {
  BeginDrain();
  int drained = 0;
  Begin([&] {
    drained = Drained();
    service_.Resume(kWholeHost);
  });
  ASSERT_LT(drained, kTags);
  Finish();
  EXPECT_EQ(Count(RingState::kRetired), drained) << "these have new ones";
  EXPECT_EQ(Count(RingState::kActive), kTags - drained);
  for (int i = 0; i < kTags; ++i) EXPECT_NE(SnapshotOf(Name(i)).state, TagState::kDrained);
  h_.descriptors.is_busy = false;
  ExpectAllServed();
}

TEST_F(TagServiceTurnsTest, DrainDuringAResumeIsTheLastWord) {
  BeginDrain();
  Finish();
  BeginResume();
  GoOn();
  ASSERT_TRUE(IsClosing());
  BeginDrain();
  Finish();
  EXPECT_FALSE(IsClosing());
  for (int i = 0; i < kTags; ++i) {
    EXPECT_EQ(SnapshotOf(Name(i)).state, TagState::kDrained);
    EXPECT_EQ(Claim(Name(i), 1).status.code(), Code::kUnavailable);
  }
  ExpectAllBack();
}

TEST_F(TagServiceTurnsTest, TagThatIsAskedForIsResumedAtOnce) {
  BeginDrain();
  Finish();
  BeginResume();
  const std::string last = Name(kTags - 1);
  const Answer& answer = Attach(last);
  ASSERT_TRUE(answer.done());
  ASSERT_TRUE(answer.status.ok()) << answer.status.message();
  EXPECT_EQ(clients_.back()->state(), RingState::kActive) << "a drained ring was handed out";
  const Answer& claim = Awaited(Claim(last, 1));
  EXPECT_EQ(claim.grant.ids.first, 1U);
  Finish();
  EXPECT_EQ(clients_.back()->state(), RingState::kActive) << "its turn came a second time";
}

// The service manager takes its time for each, and the loop would wait for it.
TEST_F(TagServiceTurnsTest, NewRingsWaitForEachOtherAndNobodyElseDoes) {
  const std::size_t before = h_.descriptors.names.size();
  const auto new_rings = [&] { return (h_.descriptors.names.size() - before) / 2; };
  std::vector<const Answer*> attached;
  for (const char* tag : {"new-0", "new-1", "new-2"}) {
    h_.store.AddTag(tag, 100);
    attached.push_back(&Attach(tag));
    h_.Settle();
  }
  EXPECT_EQ(new_rings(), 1U);
  EXPECT_TRUE(attached[0]->done());
  const Answer& late = Awaited(Claim("new-2", 1, std::chrono::milliseconds(20)));
  EXPECT_EQ(late.status.code(), Code::kTimeout);
  EXPECT_NE(late.status.message().find("service manager"), std::string::npos)
      << late.status.message();
  const Answer& served = Awaited(Claim(Name(0), 1));
  EXPECT_TRUE(served.status.ok()) << "its ring is there";
  for (std::size_t made = 1; made < attached.size(); ++made) {
    EXPECT_FALSE(attached[made]->done());
    h_.descriptors.TakeWaiting()();
    EXPECT_EQ(new_rings(), made + 1);
    EXPECT_TRUE(attached[made]->done());
  }
  h_.Settle();
  for (const Answer* answer : attached) EXPECT_TRUE(answer->status.ok());
}

TEST_F(TagServiceTurnsTest, TagThatIsDeletedOrStopsBeforeItsTurnGetsNoRing) {
  for (const char* tag : {"new-0", "new-1", "new-2", "new-3"}) {
    h_.store.AddTag(tag, 100);
    static_cast<void>(Attach(tag));
    h_.Settle();
  }
  const std::size_t before = h_.descriptors.names.size();
  service_.OnTagDeleted("new-1");
  EXPECT_EQ(answers_[answers_.size() - 3].status.code(), Code::kNoSuchTag);
  service_.Drain("new-2");
  h_.descriptors.TakeWaiting()();
  EXPECT_EQ(answers_[answers_.size() - 2].status.code(), Code::kUnavailable);
  EXPECT_EQ(h_.descriptors.names.size(), before + 2) << "that of the last one";
  h_.store.AddTag("new-4", 100);
  const Answer& stopped = Attach("new-4");
  h_.Settle();
  Shutdown();
  EXPECT_EQ(stopped.status.code(), Code::kUnavailable);
  const std::size_t left = h_.descriptors.names.size();
  h_.descriptors.TakeWaiting()();
  EXPECT_LE(h_.descriptors.names.size(), left);
}

TEST_F(TagServiceTurnsTest, TagsThatComeAndGoBetweenTwoTurns) {
  BeginDrain();
  service_.OnTagDeleted(Name(0));  // that the last turn was about
  service_.OnTagDeleted(Name(1));  // that the next turn would be about
  h_.store.AddTag("a-new-one", 100);
  EXPECT_EQ(Attach("a-new-one").status.code(), Code::kUnavailable);
  Finish();
  EXPECT_FALSE(IsClosing());
  EXPECT_EQ(Count(RingState::kRetired), 2);
  EXPECT_EQ(Drained(), kTags - 2);
  ExpectAllBack();
}

TEST_F(TagServiceTurnsTest, StopBetweenTwoTurnsHandsAllBackOnce) {
  BeginDrain();
  Shutdown();
  EXPECT_FALSE(IsClosing());
  for (const auto& client : clients_) EXPECT_NE(client->state(), RingState::kActive);
  ASSERT_TRUE(h_.RunUntil([this] { return shutdowns_ > 0; }));
  EXPECT_EQ(shutdowns_, 1);
  for (const LeaseRecord& lease : h_.store.leases()) {
    EXPECT_EQ(lease.state, LeaseState::kReturned);
    ExpectAccounted(lease);
  }
}

TEST_F(TagServiceTurnsTest, PollReachesEveryTag) {
  for (auto& client : clients_) EXPECT_EQ(client->Claim(100).size(), 100U);
  Begin([this] { service_.Poll(); });
  h_.Settle();
  ASSERT_TRUE(h_.RunUntil([this] {
    for (int i = 0; i < kTags; ++i) {
      if (SnapshotOf(Name(i)).claimed < 100 || SnapshotOf(Name(i)).leases_taken < 2) return false;
    }
    return true;
  }));
}

}  // namespace
}  // namespace idd::daemon

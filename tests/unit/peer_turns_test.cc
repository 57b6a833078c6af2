// SPDX-License-Identifier: Apache-2.0
#include "server/peer_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "platform/event_loop.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Lt;

constexpr uid_t kCrowd = 1001;
constexpr uid_t kLoner = 1002;
constexpr uid_t kThird = 1003;

class PeerTurnsTest : public ::testing::Test {
 protected:
  // The connections of a user are numbered from uid * 1000.
  static std::uint64_t Of(uid_t uid, std::uint64_t n) { return uid * 1000 + n; }
  static uid_t UserOf(std::uint64_t connection) { return static_cast<uid_t>(connection / 1000); }
  void AddMany(uid_t uid, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) turns_.Add(uid, Of(uid, i));
  }
  // Runs what is due without a wait.
  void Settle() {
    while (loop_.RunOne(std::chrono::nanoseconds(0))) {
    }
  }
  [[nodiscard]] std::vector<uid_t> Users() const {
    std::vector<uid_t> users;
    for (const std::uint64_t connection : read_) users.push_back(UserOf(connection));
    return users;
  }

  EventLoop loop_;
  std::vector<std::uint64_t> read_;
  std::set<std::uint64_t> gone_;
  std::map<uid_t, MonotonicTime> limited_until_;
  std::map<uid_t, MonotonicClock::duration> costs_;
  PeerTurns turns_{loop_,
                   [this](std::uint64_t connection) -> std::optional<MonotonicClock::duration> {
                     if (gone_.contains(connection)) return std::nullopt;
                     read_.push_back(connection);
                     return costs_[UserOf(connection)];
                   },
                   [this](uid_t uid, MonotonicTime now) {
                     const auto it = limited_until_.find(uid);
                     return it == limited_until_.end() ? now : it->second;
                   }};
};

TEST_F(PeerTurnsTest, QuietDaemonReadsAtOnce) {
  turns_.Add(kLoner, Of(kLoner, 0));
  EXPECT_THAT(read_, ElementsAre(Of(kLoner, 0)));
  EXPECT_EQ(turns_.waiting(), 0U);
}

TEST_F(PeerTurnsTest, UserOfManyConnectionsHasOneTurnLikeTheOthers) {
  AddMany(kCrowd, 500);
  AddMany(kLoner, 3);
  AddMany(kThird, 1);
  Settle();
  ASSERT_EQ(read_.size(), 504U);
  EXPECT_EQ(turns_.waiting(), 0U);
  std::vector<std::size_t> crowd_before;  // crowd frames before each other frame
  std::size_t crowd = 0;
  for (const uid_t uid : Users()) {
    if (uid == kCrowd) {
      ++crowd;
    } else {
      crowd_before.push_back(std::exchange(crowd, 0));
    }
  }
  ASSERT_EQ(crowd_before.size(), 4U);
  EXPECT_THAT(crowd_before, Each(Lt(PeerTurns::kFramesAtOnce + 2U)));
}

TEST_F(PeerTurnsTest, ConnectionsOfAUserAreReadInTheOrderInWhichTheyCame) {
  AddMany(kCrowd, 50);
  Settle();
  ASSERT_EQ(read_.size(), 50U);
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(read_[i], Of(kCrowd, i));
}

// This lets the loop notice new peers soon.
TEST_F(PeerTurnsTest, FewFramesAreReadBetweenTwoLooksOfTheLoop) {
  AddMany(kCrowd, 100);
  std::size_t before = read_.size();
  EXPECT_LE(before, static_cast<std::size_t>(PeerTurns::kFramesAtOnce));
  while (loop_.RunOne(std::chrono::nanoseconds(0))) {
    EXPECT_LE(read_.size() - before, static_cast<std::size_t>(PeerTurns::kFramesAtOnce));
    before = read_.size();
  }
  EXPECT_EQ(before, 100U);
}

// Eight frames that each closed a connection with hundreds of unread requests held the loop for
// milliseconds.
TEST_F(PeerTurnsTest, OneExpensiveFrameIsReadBetweenTwoLooksOfTheLoop) {
  costs_ = {{kCrowd, PeerTurns::kTurn}, {kLoner, PeerTurns::kTurn}};
  AddMany(kCrowd, 20);
  AddMany(kLoner, 1);
  std::size_t before = read_.size();
  EXPECT_LE(before, 1U);
  while (loop_.RunOne(std::chrono::nanoseconds(0))) {
    EXPECT_LE(read_.size() - before, 1U);
    before = read_.size();
  }
  ASSERT_EQ(read_.size(), 21U);
  const std::vector<uid_t> users = Users();
  EXPECT_LE(std::find(users.begin(), users.end(), kLoner) - users.begin(), 2);
}

TEST_F(PeerTurnsTest, UserOverItsLimitIsNotReadBeforeItIsBelowIt) {
  const MonotonicTime until = MonotonicClock::now() + 30ms;
  limited_until_[kCrowd] = until;
  AddMany(kCrowd, 20);
  AddMany(kLoner, 20);
  Settle();
  EXPECT_THAT(Users(), Each(kLoner));
  EXPECT_EQ(read_.size(), 20U);
  EXPECT_EQ(turns_.waiting(), 20U);
  while (turns_.waiting() != 0 && MonotonicClock::now() < until + 1h) {
    if (loop_.RunOne(5ms) && read_.size() > 20) {
      EXPECT_GE(MonotonicClock::now(), until);
      limited_until_.clear();
    }
  }
  EXPECT_EQ(read_.size(), 40U);
}

TEST_F(PeerTurnsTest, ChangedLimitsCountAtOnce) {
  limited_until_[kCrowd] = MonotonicClock::now() + 1h;
  AddMany(kCrowd, 3);
  Settle();
  EXPECT_TRUE(read_.empty());
  turns_.Reconsider();
  Settle();
  EXPECT_TRUE(read_.empty()) << "they have not changed";
  limited_until_.clear();
  turns_.Reconsider();
  Settle();
  EXPECT_EQ(read_.size(), 3U);
}

TEST_F(PeerTurnsTest, ConnectionsThatAreGoneTakeNoTurn) {
  AddMany(kCrowd, PeerTurns::kFramesAtOnce);  // read at once
  read_.clear();
  for (std::uint64_t i = 0; i < 100; ++i) {
    turns_.Add(kCrowd, Of(kCrowd, i));
    gone_.insert(Of(kCrowd, i));
  }
  turns_.Add(kLoner, Of(kLoner, 0));
  Settle();
  EXPECT_THAT(read_, ElementsAre(Of(kLoner, 0)));
  EXPECT_EQ(turns_.waiting(), 0U);
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// The limits of one uid.
#include "access/peer_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""us;

constexpr uid_t kSpender = 1001;
constexpr uid_t kOther = 1002;
constexpr std::size_t kPlenty = 1'000'000;

class PeerLimitsTest : public ::testing::Test {
 protected:
  static ClaimOrder Order(std::uint64_t count, std::uint64_t per_s = 1000) {
    return {.tag = "orders",
            .count = count,
            .deadline = Deadline::After(0ms),
            .pace = ClaimOrder::Pace{.uid = kSpender, .per_s = per_s}};
  }
  // The ids that a user gets in that time if it always asks for that many.
  std::uint64_t IdsIn(MonotonicClock::duration span, std::uint64_t count, std::uint64_t per_s) {
    std::uint64_t ids = 0;
    for (MonotonicTime now = start_; now <= start_ + span;) {
      ClaimOrder order = Order(count, per_s);
      const PeerLimits::IdTurn turn = limits_.NextIds(order, now);
      order.count = turn.ids;
      limits_.TakeIds(order, now);
      now = turn.at;
      if (now <= start_ + span) ids += turn.ids;
    }
    return ids;
  }

  const MonotonicTime start_ = MonotonicTime{} + 1000s;
  PeerLimits limits_;
};

TEST_F(PeerLimitsTest, ConnectionsAreCountedByUid) {
  limits_.Configure({.connections_per_uid = 2, .requests_per_s_per_uid = 1});
  EXPECT_TRUE(limits_.AddConnection(kSpender, kPlenty));
  EXPECT_TRUE(limits_.AddConnection(kSpender, kPlenty));
  EXPECT_FALSE(limits_.AddConnection(kSpender, kPlenty));
  EXPECT_TRUE(limits_.AddConnection(kOther, kPlenty));
  limits_.DropConnection(kSpender);
  EXPECT_TRUE(limits_.AddConnection(kSpender, kPlenty));
  EXPECT_EQ(limits_.ConnectionsOf(kSpender), 2U);
  limits_.Configure({.connections_per_uid = 1, .requests_per_s_per_uid = 1});
  EXPECT_FALSE(limits_.AddConnection(kOther, kPlenty));
}

TEST_F(PeerLimitsTest, UserHoldsNoMoreDescriptorsThanAreFree) {
  std::size_t free = 20;
  std::size_t of_spender = 0;
  for (; limits_.AddConnection(kSpender, free); --free) ++of_spender;
  EXPECT_EQ(of_spender, 10U);
  EXPECT_FALSE(limits_.HoldDescriptors(kSpender, 1, free)) << "they count as connections do";
  std::size_t of_other = 0;
  for (; limits_.HoldDescriptors(kOther, 1, free); --free) ++of_other;
  EXPECT_EQ(of_other, 5U);
  EXPECT_FALSE(limits_.AddConnection(kOther, free));
  EXPECT_TRUE(limits_.AddConnection(kOther + 1, free)) << "another user must find room";
  limits_.ReleaseDescriptors(kOther, 5);
  EXPECT_TRUE(limits_.AddConnection(kOther, free));
}

TEST_F(PeerLimitsTest, RequestsComeAtTheirRateAfterOneSecondsWorth) {
  limits_.Configure({.connections_per_uid = 1, .requests_per_s_per_uid = 100});
  const auto taken = [this](MonotonicTime now) {
    int count = 0;
    for (; count < 1000 && limits_.NextRequestAt(kSpender, now) <= now; ++count) {
      limits_.Take(kSpender, 1, 1us, now);
    }
    return count;
  };
  EXPECT_EQ(taken(start_), 100);
  EXPECT_EQ(taken(start_), 0);
  EXPECT_EQ(limits_.NextRequestAt(kOther, start_), start_) << "each user has its own";
  EXPECT_EQ(limits_.NextRequestAt(kSpender, start_), start_ + 10ms);
  EXPECT_EQ(taken(start_ + 10ms), 1);
  EXPECT_EQ(taken(start_ + 60ms), 5);
  EXPECT_EQ(taken(start_ + 3600s), 100) << "no more than a second's worth is saved";
}

// A frame that closes its connection costs ten times a claim, so twenty thousand of them a second
// took all of the loop.
TEST_F(PeerLimitsTest, UserWhoseRequestsTakeLongGetsAQuarterOfTheTime) {
  limits_.Configure({.connections_per_uid = 1, .requests_per_s_per_uid = 20'000});
  const auto time_in = [this](MonotonicTime from, MonotonicTime until,
                              MonotonicClock::duration of_request) {
    MonotonicClock::duration used{};
    for (MonotonicTime now = from; now < until;) {
      now = std::max(now, limits_.NextRequestAt(kSpender, now)) + of_request;
      limits_.Take(kSpender, 1, of_request, now);
      used += of_request;
    }
    return used;
  };
  EXPECT_GE(time_in(start_, start_ + 1s, 100us), 400ms) << "a second's worth at once";
  const MonotonicClock::duration used = time_in(start_ + 1s, start_ + 3s, 100us);
  EXPECT_GE(used, 450ms);
  EXPECT_LE(used, 510ms);
  const MonotonicClock::duration used_by_short = time_in(start_ + 3s, start_ + 5s, 1us);
  EXPECT_LE(used_by_short, 41ms) << "the rate is the limit";
}

TEST_F(PeerLimitsTest, TimeWithoutARequestCountsToo) {
  limits_.Configure({.connections_per_uid = 1, .requests_per_s_per_uid = 100});
  for (int i = 0; i < 248; ++i) limits_.Take(kSpender, 0, 1ms, start_);
  EXPECT_EQ(limits_.NextRequestAt(kSpender, start_), start_ + 2ms);
  for (int i = 0; i < 1000; ++i) limits_.Take(kSpender, 0, 1ms, start_);
  EXPECT_EQ(limits_.NextRequestAt(kSpender, start_), start_ + 2ms)
      << "a user over its limit pays for no more";
  for (int i = 0; i < 1000; ++i) limits_.Take(kOther, 0, 0us, start_);
  EXPECT_EQ(limits_.NextRequestAt(kOther, start_), start_);
  limits_.Take(kOther, 0, 1h, start_);
  EXPECT_EQ(limits_.NextRequestAt(kOther, start_), start_)
      << "the machine may have held idd up for an hour";
}

TEST_F(PeerLimitsTest, UserOverItsLimitIsLookedAtTwoHundredTimesASecondAtMost) {
  limits_.Configure({.connections_per_uid = 1, .requests_per_s_per_uid = 20'000});
  for (int i = 0; i < 20'000; ++i) limits_.Take(kSpender, 1, 1us, start_);
  const MonotonicTime next = limits_.NextRequestAt(kSpender, start_);
  EXPECT_EQ(next, start_ + 5ms);
  int count = 0;
  for (; limits_.NextRequestAt(kSpender, next) <= next; ++count)
    limits_.Take(kSpender, 1, 1us, next);
  EXPECT_EQ(count, 100);
}

TEST_F(PeerLimitsTest, RefusalsAreReportedOnceInTenSeconds) {
  EXPECT_TRUE(limits_.ShouldLogLimit(kSpender, start_));
  EXPECT_FALSE(limits_.ShouldLogLimit(kSpender, start_ + 9s));
  EXPECT_TRUE(limits_.ShouldLogLimit(kOther, start_ + 9s));
  EXPECT_TRUE(limits_.ShouldLogLimit(kSpender, start_ + 10s));
}

TEST_F(PeerLimitsTest, IdsComeAtTheirRateHoweverManyAreAskedForAtOnce) {
  for (const std::uint64_t count : {1U, 7U, 100U, 5000U}) {
    limits_ = PeerLimits();
    const std::uint64_t ids = IdsIn(10s, count, 1000);
    EXPECT_GE(ids, 9900U) << count;
    EXPECT_LE(ids, 10'200U) << count;
  }
  limits_ = PeerLimits();
  EXPECT_EQ(IdsIn(10s, 50, 1), 11U) << "one at once, then one a second";
}

TEST_F(PeerLimitsTest, IdsThatWereNotClaimedAreGivenBack) {
  ClaimOrder order = Order(100);
  limits_.TakeIds(order, start_);
  EXPECT_EQ(limits_.NextIds(Order(100), start_).at, start_ + 100ms);
  limits_.GiveIdsBack(order);
  EXPECT_EQ(limits_.NextIds(Order(100), start_).at, start_ + 100ms) << "it was not marked as taken";
  order.pace->is_taken = true;
  limits_.GiveIdsBack(order, 40);
  EXPECT_EQ(limits_.NextIds(Order(100), start_).at, start_ + 40ms);
  limits_.GiveIdsBack(order, 100);
  EXPECT_EQ(limits_.NextIds(Order(100), start_).at, start_ + 40ms);
  for (int i = 0; i < 5; ++i) limits_.GiveIdsBack(order);
  EXPECT_EQ(limits_.NextIds(Order(5000), start_).ids, 100U) << "never more than a burst";
}

TEST_F(PeerLimitsTest, IdleUserIsForgotten) {
  EXPECT_TRUE(limits_.AddConnection(kSpender, kPlenty));
  for (uid_t uid = 0; uid < 1000; ++uid) limits_.Take(uid, 1, 0us, start_);
  limits_.TakeIds(Order(100), start_);
  limits_.ForgetIdle(start_);
  EXPECT_EQ(limits_.entries(), 1002U) << "the thousand, Alice's connection, her tag";
  limits_.ForgetIdle(start_ + 200ms);
  EXPECT_EQ(limits_.entries(), 1U);
  limits_.DropConnection(kSpender);
  limits_.ForgetIdle(start_ + 200ms);
  EXPECT_EQ(limits_.entries(), 0U);
}

}  // namespace
}  // namespace idd::daemon

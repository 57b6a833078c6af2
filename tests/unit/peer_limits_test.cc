// SPDX-License-Identifier: Apache-2.0
//
// What one uid may have and ask.
#include "peer_limits.h"

#include <gtest/gtest.h>

#include <chrono>

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr uid_t kSpender = 1001;
constexpr uid_t kOther = 1002;

class PeerLimitsTest : public ::testing::Test {
 protected:
  static ClaimOrder Order(std::uint64_t count, std::uint64_t per_s = 1000) {
    return {.tag = "orders",
            .count = count,
            .deadline = Deadline::After(0ms),
            .pace = ClaimOrder::Pace{.uid = kSpender, .per_s = per_s}};
  }
  // The ids that one who never stops asking for so many has in so long.
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
  EXPECT_TRUE(limits_.AddConnection(kSpender));
  EXPECT_TRUE(limits_.AddConnection(kSpender));
  EXPECT_FALSE(limits_.AddConnection(kSpender));
  EXPECT_TRUE(limits_.AddConnection(kOther));
  limits_.DropConnection(kSpender);
  EXPECT_TRUE(limits_.AddConnection(kSpender));
  limits_.Configure({.connections_per_uid = 1, .requests_per_s_per_uid = 1});
  EXPECT_FALSE(limits_.AddConnection(kOther));
}

TEST_F(PeerLimitsTest, RequestsComeAtTheirRateBehindOneSecondsWorth) {
  limits_.Configure({.connections_per_uid = 1, .requests_per_s_per_uid = 100});
  const auto taken = [this](MonotonicTime now) {
    int count = 0;
    while (count < 1000 && limits_.TakeRequest(kSpender, now)) ++count;
    return count;
  };
  EXPECT_EQ(taken(start_), 100);
  EXPECT_EQ(taken(start_), 0);
  EXPECT_TRUE(limits_.TakeRequest(kOther, start_)) << "everybody has his own";
  EXPECT_EQ(taken(start_ + 10ms), 1);
  EXPECT_EQ(taken(start_ + 60ms), 5);
  EXPECT_EQ(taken(start_ + 3600s), 100) << "no more than a second's worth is saved";
}

TEST_F(PeerLimitsTest, RefusalsAreToldOnceInTenSeconds) {
  EXPECT_TRUE(limits_.ShouldTell(kSpender, start_));
  EXPECT_FALSE(limits_.ShouldTell(kSpender, start_ + 9s));
  EXPECT_TRUE(limits_.ShouldTell(kOther, start_ + 9s));
  EXPECT_TRUE(limits_.ShouldTell(kSpender, start_ + 10s));
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

TEST_F(PeerLimitsTest, WhoIsIdleIsForgotten) {
  EXPECT_TRUE(limits_.AddConnection(kSpender));
  for (uid_t uid = 0; uid < 1000; ++uid) static_cast<void>(limits_.TakeRequest(uid, start_));
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

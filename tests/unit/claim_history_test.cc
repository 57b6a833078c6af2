// SPDX-License-Identifier: Apache-2.0
#include "refill/claim_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr MonotonicTime kStart = MonotonicTime{} + 1h;

// A history with claims and looks by hand.
class Claims {
 public:
  explicit Claims(std::chrono::seconds tolerance) {
    history_.SetWindow(tolerance);
    Look();
  }
  void Wait(MonotonicClock::duration time) { now_ += time; }
  void Claim(std::uint64_t ids) { claimed_ += ids; }
  void Look() { history_.Observe(now_, now_, claimed_); }
  // As when idd looks once a second at a tag with that claim rate.
  void Run(std::chrono::seconds time, std::uint64_t per_s) {
    for (std::chrono::seconds passed(0); passed < time; passed += 1s) {
      Wait(1s);
      Claim(per_s);
      Look();
    }
  }
  [[nodiscard]] std::uint64_t Most() const { return history_.Most(now_); }
  [[nodiscard]] ClaimHistory& history() { return history_; }

 private:
  ClaimHistory history_;
  MonotonicTime now_ = kStart;
  std::uint64_t claimed_ = 1'000'000;  // before the first look, so not counted
};

TEST(ClaimHistoryTest, CountsAllClaimsUntilTheWindowIsFull) {
  Claims claims(600s);
  EXPECT_EQ(claims.Most(), 0U);
  for (std::uint64_t second = 1; second <= 600; ++second) {
    claims.Run(1s, 10);
    EXPECT_EQ(claims.Most(), 10 * second);
  }
  claims.Run(3h, 10);
  EXPECT_LE(claims.Most(), 6000U);
  EXPECT_GE(claims.Most(), 6000U * 15 / 16 - 10);
}

TEST(ClaimHistoryTest, BusiestWindowCountsForTheRestOfTheDay) {
  Claims claims(600s);
  claims.Run(300s, 1000);
  claims.Run(22h, 1);
  EXPECT_GE(claims.Most(), 300'000U);
  claims.Run(3h, 1);
  EXPECT_LE(claims.Most(), 600U);
  EXPECT_GE(claims.Most(), 600U * 15 / 16 - 1);
}

// A window of a week counts the whole last week.
TEST(ClaimHistoryTest, WindowLongerThanADayIsCountedWhole) {
  Claims claims(std::chrono::hours(7 * 24));
  claims.Run(std::chrono::hours(4 * 24), 1);
  EXPECT_EQ(claims.Most(), 4U * 24 * 3600);
}

TEST(ClaimHistoryTest, ShortestWindowIsTenSeconds) {
  for (const auto tolerance : {0s, 1s, 10s}) {
    Claims claims(tolerance);
    claims.Run(60s, 100);
    EXPECT_LE(claims.Most(), 1000U) << tolerance.count();
    EXPECT_GE(claims.Most(), 800U) << tolerance.count();
  }
}

TEST(ClaimHistoryTest, ClaimsOfUnknownTimeCountForNothing) {
  Claims claims(60s);
  claims.Wait(61s);
  claims.Claim(5000);
  claims.Look();
  EXPECT_EQ(claims.Most(), 0U) << "their window is unknown";
  claims.Wait(59s);
  claims.Claim(100);
  claims.Look();
  EXPECT_EQ(claims.Most(), 100U);
}

TEST(ClaimHistoryTest, CountThatFellIsNoClaim) {
  ClaimHistory history;
  history.SetWindow(600s);
  history.Observe(kStart, kStart, 1000);
  history.Observe(kStart + 1s, kStart + 1s, 1100);
  history.Observe(kStart + 2s, kStart + 2s, 5);
  history.Observe(kStart + 3s, kStart + 3s, 10);
  EXPECT_EQ(history.Most(kStart + 3s), 105U);
}

TEST(ClaimHistoryTest, LongerWindowKeepsWhatIsKnown) {
  Claims claims(60s);
  claims.Run(3600s, 10);
  const std::uint64_t before = claims.Most();
  claims.history().SetWindow(600s);
  EXPECT_EQ(claims.Most(), before);
  claims.Run(600s, 10);
  EXPECT_GE(claims.Most(), 6000U * 15 / 16 - 10);
}

TEST(ClaimHistoryTest, ShorterWindowKeepsItsShare) {
  Claims claims(600s);
  claims.Run(3600s, 10);
  claims.history().SetWindow(300s);
  EXPECT_LE(claims.Most(), 3000U);
  EXPECT_GE(claims.Most(), 3000U * 15 / 16 - 10);
  claims.history().SetWindow(299s);
  EXPECT_LE(claims.Most(), 1500U) << "two windows cover an old one";
  claims.Run(299s, 10);
  EXPECT_GE(claims.Most(), 2990U * 15 / 16 - 10) << "later claims count in full";
}

struct Claimed {
  MonotonicTime at;
  std::uint64_t ids;
};

// The ids claimed after `from` in the busiest interval of that length.
std::uint64_t Busiest(const std::vector<Claimed>& claims, MonotonicTime from,
                      MonotonicClock::duration length) {
  std::uint64_t most = 0;
  std::uint64_t sum = 0;
  auto begin = claims.begin();
  while (begin != claims.end() && begin->at <= from) ++begin;
  for (auto end = begin; end != claims.end(); ++end) {
    sum += end->ids;
    for (; end->at - begin->at > length; ++begin) sum -= begin->ids;
    most = std::max(most, sum);
  }
  return most;
}

// Random claims over more than a day: Most() is at most the claims in the busiest window of the
// last day, and nearly all of them.
class RandomClaims : public ::testing::TestWithParam<int> {};

TEST_P(RandomClaims, MostIsNeverTooLargeAndHardlyTooSmall) {
  constexpr std::int64_t kGapMs = 999;
  std::mt19937_64 random(static_cast<std::uint64_t>(GetParam()));
  const auto up_to = [&random](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
  };
  const std::chrono::seconds window(10 + up_to(up_to(10'000)));
  ClaimHistory history;
  history.SetWindow(window);
  std::vector<Claimed> claims;
  MonotonicTime now = kStart;
  std::uint64_t claimed = 0;
  history.Observe(now, now, claimed);
  std::int64_t longest_pause_ms = 0;
  for (int look = 0; look < 4000; ++look) {
    if (look % 100 == 0) longest_pause_ms = up_to(up_to(250'000));
    // An interval without claims; idd looks each second.
    for (std::int64_t ms = up_to(longest_pause_ms); ms > 1000; ms -= 1000) {
      now += 1s;
      history.Observe(now, now, claimed);
    }
    for (int i = 0; i < 3; ++i) {
      now += std::chrono::milliseconds(1 + up_to(kGapMs / 3 - 1));
      claims.push_back({now, static_cast<std::uint64_t>(up_to(up_to(1'000'000)))});
      claimed += claims.back().ids;
    }
    const MonotonicTime before = now;
    now += std::chrono::milliseconds(up_to(3));  // the duration of the look
    history.Observe(before, now, claimed);
    if (look % 20 != 0) continue;
    const std::uint64_t most = history.Most(now);
    ASSERT_LE(most, Busiest(claims, now - 24h, window)) << "look " << look;
    const auto seen = window - window / 16 - 2 * std::chrono::milliseconds(kGapMs + 3);
    ASSERT_GE(most, Busiest(claims, now - 23h, seen)) << "look " << look;
  }
  EXPECT_GT(now - kStart, 12h);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomClaims, ::testing::Range(0, 20));

}  // namespace
}  // namespace idd::daemon

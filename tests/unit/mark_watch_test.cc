// SPDX-License-Identifier: Apache-2.0
#include "refill/mark_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;

// Plays a load against the watch: looks when it wants, at marks every `segment` ids.
class MarkWatchTest : public testing::Test {
 protected:
  struct Outcome {
    int looks = 0;
    int early = 0;                 // refills that began before the mark
    int messages = 0;              // marks that a claim took
    std::uint64_t most_early = 0;  // ids before the mark
  };

  // `claimed_at`: ids claimed at a time since the beginning; rising.
  [[nodiscard]] Outcome Play(std::uint64_t segment, std::chrono::milliseconds time,
                             const std::function<std::uint64_t(double)>& claimed_at) {
    Outcome outcome;
    const MonotonicTime begin = MonotonicTime{} + 1h;
    std::uint64_t mark = segment;
    std::optional<MonotonicTime> look = begin;
    MonotonicTime poll = begin + 1s;
    for (MonotonicTime now = begin; now < begin + time; now += 100us) {
      const std::uint64_t claimed = claimed_at(std::chrono::duration<double>(now - begin).count());
      while (claimed > mark) {  // a claim has taken it
        ++outcome.messages;
        mark += segment;
        look = now;  // the message, and the publication after it
      }
      if (now >= poll) {
        poll += 1s;
        look = now;
      }
      if (!look.has_value() || now < *look) continue;
      ++outcome.looks;
      const MarkWatch::Plan plan = watch_.Look(now, claimed, mark - claimed);
      look = plan.next_look;
      if (!plan.is_due) continue;
      ++outcome.early;
      outcome.most_early = std::max(outcome.most_early, mark - claimed);
      mark += segment;
      look = now + 1ms;  // the publication
    }
    return outcome;
  }

  MarkWatch watch_;
};

TEST_F(MarkWatchTest, SteadyLoadTakesNoMark) {
  for (const double rate : {20e3, 1e6, 20e6}) {
    watch_ = MarkWatch();
    const auto segment = static_cast<std::uint64_t>(rate / 50);  // 20 ms
    const Outcome outcome = Play(segment, 10s, [rate](double seconds) {
      return static_cast<std::uint64_t>(rate * seconds);
    });
    EXPECT_LE(outcome.messages, 3) << rate << "/s: until the rate is known";
    EXPECT_GE(outcome.early, 490) << rate;
    EXPECT_LE(outcome.looks, 6 * outcome.early) << rate;
    EXPECT_LE(outcome.most_early, static_cast<std::uint64_t>(rate * 0.0025)) << rate;
  }
}

TEST_F(MarkWatchTest, LongSegmentsTakeAFewLooks) {
  // 100 ids a second, a segment lasts 100 s.
  const Outcome outcome = Play(
      10'000, 1'000s, [](double seconds) { return static_cast<std::uint64_t>(100 * seconds); });
  EXPECT_LE(outcome.looks, 1'000 + 12 * 10) << "the poll, and a dozen for each mark";
  EXPECT_LE(outcome.messages, 2);
}

TEST_F(MarkWatchTest, IdleTagIsNotLookedAt) {
  EXPECT_FALSE(watch_.Look(MonotonicTime{} + 1h, 0, 500).next_look.has_value());
  EXPECT_TRUE(watch_.Look(MonotonicTime{} + 1h + 1s, 1'000'000, 500).is_due);
  MonotonicTime now = MonotonicTime{} + 1h + 1s;
  for (int look = 0; look < 3; ++look) {
    EXPECT_FALSE(watch_.Look(now += 1s, 1'000'000, 500).next_look.has_value()) << look;
  }
  EXPECT_EQ(watch_.Expected(now), 0U);
}

TEST_F(MarkWatchTest, LoadThatStopsEndsTheLooks) {
  const Outcome outcome = Play(100'000, 60s, [](double seconds) {
    return static_cast<std::uint64_t>(1e6 * std::min(seconds, 1.0));
  });
  EXPECT_LE(outcome.looks, 10 * 10 + 60 + 20);
}

TEST_F(MarkWatchTest, SingleBurstIsNoLoad) {
  static_cast<void>(watch_.Look(MonotonicTime{} + 1h, 0, 900));
  const MarkWatch::Plan plan = watch_.Look(MonotonicTime{} + 1h + 200us, 100, 800);
  EXPECT_FALSE(plan.is_due) << "500,000 ids a second, for a moment";
}

TEST_F(MarkWatchTest, BurstTakesTheMarkByItself) {
  // 1,000 ids/s, and a thousand times as many for the last second.
  const Outcome outcome = Play(100'000, 11s, [](double seconds) {
    return static_cast<std::uint64_t>(1e3 * seconds + 1e6 * std::max(0.0, seconds - 10));
  });
  EXPECT_GE(outcome.messages, 1);
  EXPECT_GE(outcome.early, 7) << "the burst is a steady load after its first mark";
}

TEST_F(MarkWatchTest, NothingIsLookedAtWithoutAMark) {
  static_cast<void>(watch_.Look(MonotonicTime{} + 1h, 0, std::nullopt));
  const MarkWatch::Plan plan = watch_.Look(MonotonicTime{} + 1h + 1s, 1'000'000, std::nullopt);
  EXPECT_FALSE(plan.is_due);
  EXPECT_FALSE(plan.next_look.has_value());
  EXPECT_EQ(watch_.Expected(MonotonicTime{} + 1h + 1s), 2'000U);
  EXPECT_EQ(watch_.Expected(MonotonicTime{} + 2h), 0U) << "a look long ago shows nothing";
}

TEST_F(MarkWatchTest, ImpossibleCountsEndInNoLook) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  MonotonicTime now = MonotonicTime{} + 1h;
  static_cast<void>(watch_.Look(now, kMost / 2, 10));
  EXPECT_FALSE(watch_.Look(now += 1ms, 5, 10).next_look.has_value()) << "a forged cursor went back";
  const MarkWatch::Plan plan = watch_.Look(now += 1ms, kMost, kMost);
  EXPECT_FALSE(plan.is_due);
  EXPECT_LE(watch_.Expected(now), 1'000'000'000'000'000U);
}

TEST_F(MarkWatchTest, LooksAreAMillisecondApart) {
  MonotonicTime now = MonotonicTime{} + 1h;
  std::uint64_t claimed = 0;
  static_cast<void>(watch_.Look(now, claimed, 1'000'000));
  for (int look = 0; look < 100; ++look) {
    const MarkWatch::Plan plan = watch_.Look(now += 50us, claimed += 10'000, 500'000);
    if (!plan.next_look.has_value()) continue;
    EXPECT_GE(*plan.next_look - now, MarkWatch::kShortestPause);
    EXPECT_EQ(plan.next_look->time_since_epoch() % 1ms, 0ms) << "looks of several tags meet";
  }
}

}  // namespace
}  // namespace idd::daemon

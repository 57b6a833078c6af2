// SPDX-License-Identifier: Apache-2.0
#include "store/folded_ranges.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>

namespace idd::daemon {
namespace {

FoldedRanges Parsed(const std::string& text) {
  Result<FoldedRanges> ranges = FoldedRanges::Parse(text);
  EXPECT_TRUE(ranges.ok()) << text;
  return ranges.ok() ? std::move(ranges).value() : FoldedRanges();
}

TEST(FoldedRangesTest, RangesThatTouchAreOne) {
  FoldedRanges ranges;
  EXPECT_EQ(ranges.Text(), "");
  ranges.Add({1001, 2001});
  ranges.Add({5001, 6001});
  ranges.Add({1, 1001});
  EXPECT_EQ(ranges.Text(), "1+2000 3000+1000");
  ranges.Add({2001, 5001});
  EXPECT_EQ(ranges.Text(), "1+6000");
  ranges.Add({7, 7});
  ranges.Add({10, 20});
  EXPECT_EQ(ranges.Text(), "1+6000");
  ranges.Add({0, 1});
  EXPECT_EQ(ranges.Text(), "0+6001");
  EXPECT_TRUE(ranges.is_exact());
}

TEST(FoldedRangesTest, TextComesBack) {
  for (const char* text : {"", "0+1", "1+2000 3000+1000", "~ 5+1 1+1", "9223372036854775806+1"}) {
    EXPECT_EQ(Parsed(text).Text(), text);
  }
}

TEST(FoldedRangesTest, OtherTextIsRefused) {
  for (const char* text : {" ", "x", "1", "1+", "+1", "1+0", "1+1 ", "1+1  2+1", "1+1 0+1", "-1+1",
                           "1+1,2+1", "~", "9223372036854775807+1", "1+9223372036854775807",
                           "18446744073709551616+1", "1+18446744073709551615 2+3"}) {
    EXPECT_EQ(FoldedRanges::Parse(text).status().code(), Code::kInvalid) << text;
  }
}

TEST(FoldedRangesTest, ReduceClosesTheSmallestGaps) {
  FoldedRanges ranges = Parsed("10+10 1+10 100+10 2+10 50+10");
  ranges.Reduce(5);
  EXPECT_TRUE(ranges.is_exact());
  ranges.Reduce(3);
  EXPECT_EQ(ranges.Text(), "~ 10+21 100+22 50+10");
  EXPECT_FALSE(ranges.is_exact());
  ranges.Reduce(1);
  EXPECT_EQ(ranges.size(), 1U);
  EXPECT_EQ(ranges.Text(), "~ 10+203");
}

// Every id that was added is found, and while the ranges are exact no other.
TEST(FoldedRangesTest, HasTheIdsThatWereAdded) {
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same cases each time
  for (int round = 0; round < 200; ++round) {
    FoldedRanges ranges;
    std::set<std::uint64_t> ids;
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t first = random() % 300;
      const std::uint64_t limit = first + random() % 12;
      ranges.Add({first, limit});
      for (std::uint64_t id = first; id < limit; ++id) ids.insert(id);
    }
    if (round % 2 == 1) ranges.Reduce(1 + random() % 5);
    ranges = Parsed(ranges.Text());
    for (std::uint64_t id = 0; id < 320; ++id) {
      if (ids.contains(id)) {
        EXPECT_TRUE(ranges.Contains(id)) << id;
      } else if (ranges.is_exact()) {
        EXPECT_FALSE(ranges.Contains(id)) << id;
      }
    }
  }
}

}  // namespace
}  // namespace idd::daemon

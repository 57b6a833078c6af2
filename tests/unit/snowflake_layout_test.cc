// SPDX-License-Identifier: Apache-2.0
//
// Layouts of snowflake ids: what is accepted, how ids are taken apart, and names of counters.
#include "store/snowflake_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace idd::daemon {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kNow = 1'800'000'000'000;  // 2027-01-15

SnowflakeLayout Bits(std::uint32_t time, std::uint32_t worker, std::uint32_t sequence,
                     std::uint32_t unit_ms = 1) {
  return {.time_bits = time, .worker_bits = worker, .sequence_bits = sequence, .unit_ms = unit_ms};
}

TEST(SnowflakeLayoutTest, LayoutsOfTheSystemsThatWeAnswerAreAccepted) {
  for (const SnowflakeLayout& layout :
       {SnowflakeLayout(), Bits(39, 16, 8, 10), Bits(30, 20, 13, 1000), Bits(41, 5, 7)}) {
    EXPECT_TRUE(CheckLayout(layout).ok()) << BitsText(layout);
    EXPECT_TRUE(CheckLifetime(layout, kNow).ok()) << BitsText(layout);
  }
}

TEST(SnowflakeLayoutTest, RefusesBitsThatDoNotFitOrAreMissing) {
  EXPECT_THAT(CheckLayout(Bits(42, 10, 12)).message(), HasSubstr("at most 63 bits"));
  EXPECT_FALSE(CheckLayout(Bits(41, 0, 12)).ok());
  EXPECT_FALSE(CheckLayout(Bits(41, 10, 0)).ok());
  EXPECT_FALSE(CheckLayout(Bits(0, 10, 12)).ok());
  EXPECT_FALSE(CheckLayout(Bits(30, 21, 12)).ok());
  EXPECT_FALSE(CheckLayout(Bits(20, 10, 23)).ok());
  EXPECT_FALSE(CheckLayout(Bits(std::numeric_limits<std::uint32_t>::max(), 1, 1)).ok());
  EXPECT_FALSE(CheckLayout(Bits(41, 10, 12, 7)).ok());
  SnowflakeLayout layout;
  layout.epoch_ms = -1;
  EXPECT_FALSE(CheckLayout(layout).ok());
  layout = {};
  layout.max_ahead_ms = kMostAheadMs + 1;
  EXPECT_FALSE(CheckLayout(layout).ok());
}

// uid-generator's 28 bits of seconds from 2016-05-20 were used up in November 2024.
TEST(SnowflakeLayoutTest, RefusesALayoutWhoseTimeEndsSoonWithTheDates) {
  SnowflakeLayout layout = Bits(28, 20, 13, 1000);
  layout.epoch_ms = *ParseUtc("2016-05-20");
  const Status status = CheckLifetime(layout, kNow);
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_THAT(status.message(), HasSubstr("end at 2024-11-20"));
  layout = {};
  layout.epoch_ms = kNow + 1;
  EXPECT_THAT(CheckLifetime(layout, kNow).message(), HasSubstr("future"));
}

TEST(SnowflakeLayoutTest, TimeNeverLeavesItsBits) {
  const SnowflakeLayout layout;
  EXPECT_EQ(layout.TimeAt(layout.epoch_ms - 1), 0U);
  EXPECT_EQ(layout.TimeAt(std::numeric_limits<std::int64_t>::max()), layout.time_limit());
  EXPECT_EQ(layout.TimeAt(layout.end_ms() - 1), layout.time_limit() - 1);
  const std::uint64_t greatest = layout.IdsOfWorker(1023).IdOf(layout.number_limit() - 1);
  EXPECT_EQ(greatest, (1ULL << 63) - 1) << "the greatest id is positive";
}

TEST(SnowflakeLayoutTest, PartsOfAnIdAreThoseThatMadeIt) {
  for (const SnowflakeLayout& layout :
       {SnowflakeLayout(), Bits(39, 16, 8, 10), Bits(30, 20, 13, 1000), Bits(41, 5, 7)}) {
    const auto worker = static_cast<std::uint32_t>(layout.workers() - 1);
    const std::uint64_t number = layout.FirstOf(layout.TimeAt(kNow)) + layout.ids_per_unit() - 1;
    const std::uint64_t id = layout.IdsOfWorker(worker).IdOf(number);
    const auto parts = layout.PartsOf(id);
    ASSERT_TRUE(parts.has_value());
    EXPECT_EQ(parts->worker, worker);
    EXPECT_EQ(parts->sequence, layout.ids_per_unit() - 1);
    EXPECT_EQ(parts->time, layout.TimeAt(kNow));
    EXPECT_EQ(layout.NumberOf(*parts), number);
    EXPECT_LE(kNow - layout.UnixMsOf(parts->time), layout.unit_ms);
  }
  EXPECT_FALSE(Bits(41, 5, 7).PartsOf(1ULL << 53).has_value()) << "more than 53 bits";
}

TEST(SnowflakeLayoutTest, TextIsReadBackAndNothingElseIs) {
  SnowflakeLayout layout = Bits(39, 16, 8, 10);
  layout.clock = shm::TagClock::kDaemon;
  layout.max_ahead_ms = 0;
  EXPECT_EQ(ParseLayout(FormatLayout(layout)), layout);
  EXPECT_EQ(FormatLayout(SnowflakeLayout()),
            "41/10/12 unit=1 epoch=1704067200000 clock=client ahead=1000");
  for (const char* text : {"", "41/10/12", "41/10/12 unit=1 epoch=0 clock=client",
                           "41/10 unit=1 epoch=0 clock=client"
                           " ahead=0",
                           "41/10/12 unit=1 epoch=0 clock=none ahead=0",
                           "41/10/12 unit=1 epoch=0 clock=client ahead=0 more",
                           "60/10/12 unit=1 epoch=0 clock=client"
                           " ahead=0",
                           "41/10/12 unit=0 epoch=0 clock=client ahead=0"}) {
    EXPECT_FALSE(ParseLayout(text).has_value()) << text;
  }
}

TEST(SnowflakeLayoutTest, DatesAreReadAndWritten) {
  EXPECT_EQ(ParseUtc("2024-01-01"), 1'704'067'200'000);
  EXPECT_EQ(ParseUtc("2024-01-01T00:00:01Z"), 1'704'067'201'000);
  EXPECT_EQ(ParseUtc("2010-11-04T01:42:54.657Z"), 1'288'834'974'657) << "Twitter's and Leaf's";
  EXPECT_EQ(UtcText(1'704'067'200'123), "2024-01-01T00:00:00.123Z");
  for (const char* text : {"", "2024-1-1", "2024-02-30", "2024-01-01T24:00:00Z",
                           "2024-01-01 00:00:00Z", "2024-01-01T00:00:00", "yyyy-mm-dd",
                           "2024-01-01T00:00:00,000Z", "2024-01-01T00:00:00.00xZ"}) {
    EXPECT_FALSE(ParseUtc(text).has_value()) << text;
  }
}

TEST(SnowflakeLayoutTest, CounterNamesAreThoseThatAreMadeAndNoOthers) {
  EXPECT_EQ(CounterName("orders", 7), "orders#7");
  EXPECT_EQ(ServedName("orders#7"), "orders");
  EXPECT_EQ(ServedName("a#b#0"), "a#b");
  for (const char* name : {"orders", "#7", "orders#", "orders#07", "orders#-1", "orders#7 ",
                           "orders#4294967296", "orders#x"}) {
    EXPECT_FALSE(ParseCounterName(name).has_value()) << name;
    EXPECT_EQ(ServedName(name), name);
  }
}

}  // namespace
}  // namespace idd::daemon

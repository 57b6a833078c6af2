// SPDX-License-Identifier: Apache-2.0
//
// idctl top's numbers and lines; tests/integration/screens_test.cc covers the terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>
#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "idd/shm/ring_observer.h"
#include "idd/shm/ring_stats.h"
#include "support/idctl_documents.h"
#include "top/top_model.h"
#include "top/top_source.h"
#include "top/top_view.h"

namespace idd::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TagReading Reading(std::uint64_t claimed, std::uint64_t available) {
  return {.state = "ok",
          .claimed = claimed,
          .available = available,
          .step = 1000,
          .leases = 3,
          .outage_tolerance_s = 600,
          .is_observed = true};
}

class Top : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr); }
  static void TearDownTestSuite() { std::setlocale(LC_CTYPE, "C"); }

  TopTag& Add(const std::string& name, double rate = 0, std::uint64_t available = 1000) {
    TopTag& tag = tags_.emplace_back();
    tag.name = name;
    Advance(tag, Reading(0, available), 0);
    Advance(tag, Reading(static_cast<std::uint64_t>(rate), available), 1);
    return tag;
  }
  [[nodiscard]] std::vector<const TopTag*> All() const {
    std::vector<const TopTag*> all;
    for (const TopTag& tag : tags_) all.push_back(&tag);
    return all;
  }
  [[nodiscard]] std::vector<std::string> Names(const TopArrangement& arrangement) const {
    std::vector<std::string> names;
    for (const TopTag* tag : Arrange(All(), arrangement)) names.push_back(tag->name);
    return names;
  }
  [[nodiscard]] TopPage Page() const {
    TopPage page;
    page.head.version = "1.2.3";
    page.head.host_id = "host-a";
    page.head.database_state = "up";
    page.head.database_url = "sqlite:/var/lib/idd/idd.db";
    page.tags = Arrange(All(), page.arrangement);
    page.sums = SumUp(All());
    return page;
  }
  // Every line fits, and there are as many as the screen has rows.
  static std::vector<std::string> Lines(const TopPage& page, const Screen& screen) {
    const std::vector<StyledLine> lines = RenderTop(page, screen);
    EXPECT_EQ(lines.size(), screen.rows);
    std::vector<std::string> texts;
    for (const StyledLine& line : lines) {
      texts.push_back(PlainText(line));
      EXPECT_LE(DisplayWidth(texts.back()), screen.columns) << texts.back();
      EXPECT_EQ(texts.back().find('\x1b'), std::string::npos) << texts.back();
    }
    return texts;
  }
  static std::string Joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }

  std::list<TopTag> tags_;
};

Screen ScreenOf(std::size_t columns, std::size_t rows, bool has_utf8 = true) {
  return {.is_terminal = true, .columns = columns, .rows = rows, .has_utf8 = has_utf8};
}

TEST_F(Top, RateIsWhatWasClaimedSinceTheLastLook) {
  TopTag tag;
  Advance(tag, Reading(5000, 100), 0);
  EXPECT_EQ(tag.rate_per_s, 0) << "the time before the first look is unknown";
  EXPECT_EQ(tag.rates.size(), 0U);
  Advance(tag, Reading(5500, 100), 0.5);
  EXPECT_DOUBLE_EQ(tag.rate_per_s, 1000);
  EXPECT_DOUBLE_EQ(tag.covered_s.value(), 0.1);
  Advance(tag, Reading(5500, 100), 1);
  EXPECT_EQ(tag.rate_per_s, 0);
  EXPECT_TRUE(tag.covered_s.has_value()) << "the cover must change gradually";
}

TEST_F(Top, AnotherDaemonsSmallerCountIsNoRate) {
  TopTag tag;
  Advance(tag, Reading(5000, 100), 0);
  Advance(tag, Reading(10, 100), 1);
  EXPECT_EQ(tag.rate_per_s, 0);
  Advance(tag, Reading(20, 100), 1);
  EXPECT_EQ(tag.rate_per_s, 10);
}

// `top` compared the ids held with the whole outage tolerance, and said "short" of a tag that was
// "ok" in `status`.
TEST_F(Top, StatusAndTopGiveOneAnswerAboutOneSample) {
  shm::RingView view;
  view.has_numbers = true;
  view.numbers.outage_tolerance_s = 600;
  view.numbers.reckoned_per_1000_s = 10'000;
  view.numbers.promised_ids = 1410;
  for (const std::uint64_t available : {2230U, 1410U, 1409U}) {
    const bool is_kept = available >= 1410;
    view.available = available;
    TopTag& tag = tags_.emplace_back();
    tag.name = "orders";
    tag.mode = "segment";
    TagReading reading = ReadingOf(view, 0);
    Advance(tag, reading, 0);
    reading.claimed = 10;
    Advance(tag, reading, 1);
    EXPECT_EQ(tag.is_kept, is_kept) << available;
    EXPECT_DOUBLE_EQ(tag.promise_s, 141);
    const std::string top = RenderTopText(Page(), Screen());
    EXPECT_THAT(top, HasSubstr(is_kept ? "promise kept for 1 of 1" : "promise kept for 0 of 1"));
    EXPECT_THAT(top, HasSubstr(is_kept ? "orders  ok " : "orders  short "));
    EXPECT_THAT(top, HasSubstr(" 2m 21s "));
    Json document = StatusDocument();
    document["tags"].erase(1);
    Json& listed = document["tags"][0];
    listed["available"] = available;
    listed["rate_per_s"] = 10;
    listed["covered_s"] = static_cast<double>(available) / 10;
    listed["promise"]["length_s"] = 141;
    listed["promise"]["kept"] = shm::IsPromiseKept(available, 1410);
    const std::string status = RenderStatus(document, "").value();
    EXPECT_THAT(status, HasSubstr(is_kept ? "orders  segment  ok " : "orders  segment  short "));
    tags_.clear();
  }
}

TEST_F(Top, ObservedRingReadsAsStatusWouldSay) {
  shm::RingView view;
  view.has_numbers = true;
  view.available = 7;
  view.claimed = 8;
  view.numbers.reckoned_per_1000_s = 1500;
  view.numbers.quarantined_until_ns = 100;
  view.lanes.left = 5;
  const TagReading reading = ReadingOf(view, 50);
  EXPECT_EQ(reading.in_lanes, 5U);
  EXPECT_EQ(reading.state, "ok");
  EXPECT_DOUBLE_EQ(reading.planning_rate_per_s, 1.5);
  EXPECT_EQ(reading.claimed, 8U);
  view.available = 0;
  EXPECT_EQ(ReadingOf(view, 50).state, "dry");
  view.numbers.condition = shm::TagCondition::kQuarantined;
  EXPECT_EQ(ReadingOf(view, 50).state, "quarantined");
  EXPECT_EQ(ReadingOf(view, 100).state, "dry") << "shown only for some time";
  view.numbers.condition = shm::TagCondition::kDrained;
  EXPECT_EQ(ReadingOf(view, 50).state, "drained");
}

TEST_F(Top, OrdersPutFirstWhatWantsAttention) {
  Add("b", 10, 100);
  Add("a", 1000, 5000);
  Add("c", 0, 7);
  EXPECT_THAT(Names({.order = TopOrder::kRate}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Names({.order = TopOrder::kCover}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Names({.order = TopOrder::kAvailable}), ElementsAre("c", "b", "a"));
  EXPECT_THAT(Names({.order = TopOrder::kName}), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Names({.order = TopOrder::kName, .is_reversed = true}), ElementsAre("c", "b", "a"));
  EXPECT_THAT(Names({.order = TopOrder::kName, .filter = "b"}), ElementsAre("b"));
  for (const TopOrder order :
       {TopOrder::kRate, TopOrder::kCover, TopOrder::kAvailable, TopOrder::kName}) {
    EXPECT_EQ(ParseTopOrder(TopOrderName(order)), order);
  }
  EXPECT_FALSE(ParseTopOrder("size").has_value());
  Add("d", 0, 0).now.state = "dry";
  EXPECT_THAT(Names({.order = TopOrder::kCover}), ElementsAre("d", "a", "b", "c"));
}

TEST_F(Top, EveryWidthFitsAndAligns) {
  for (int i = 0; i < 100; ++i)
    Add("tag-" + std::to_string(i), i * 12345.6, static_cast<std::uint64_t>(i) * 1'000'000'007);
  Add(std::string(128, 'x'), 1e12, 1);
  Add("\u4e16\u754c\u4e16\u754c\u4e16\u754c\u4e16\u754c\u4e16\u754c\u4e16\u754c", 5);
  Add("evil\x1b[2J\nname", 1).last_error = "line\nbreak\x1b]0;x\x07";
  for (std::size_t columns = 1; columns <= 220; ++columns) {
    for (const std::size_t rows : {1U, 7U, 8U, 24U, 60U}) {
      const auto lines = Lines(Page(), ScreenOf(columns, rows));
      if (columns < kLeastTopColumns || rows < kLeastTopRows) continue;
      const std::size_t width = DisplayWidth(lines[4]);
      for (std::size_t y = 5; y + 1 < lines.size() && !lines[y].empty(); ++y) {
        EXPECT_EQ(DisplayWidth(lines[y]), width) << columns << "x" << rows << ": " << lines[y];
      }
    }
  }
}

TEST_F(Top, EightyColumnsShowBothCurvesAndTwoHundredEverything) {
  Add("orders", 1000);
  const auto narrow = Lines(Page(), ScreenOf(80, 24));
  EXPECT_THAT(narrow[0], HasSubstr("idd 1.2.3 on host-a"));
  EXPECT_THAT(narrow[1], HasSubstr("database up"));
  EXPECT_THAT(narrow[2], HasSubstr("1 tag, 1000 ids/s, promise kept for 1 of 1"));
  EXPECT_THAT(narrow[4], HasSubstr("COVERED"));
  EXPECT_EQ(std::count(narrow[5].begin(), narrow[5].end(), '\x96'), 2) << "a block of each curve";
  EXPECT_THAT(narrow[23], HasSubstr("q quit"));
  const auto wide = Lines(Page(), ScreenOf(200, 60));
  for (const char* title : {"PROMISE", "CLAIMED", "LEASES", "FALLBACKS", "STEP", "LAST ERROR"}) {
    EXPECT_THAT(wide[4], HasSubstr(title));
    EXPECT_THAT(narrow[4], Not(HasSubstr(title)));
  }
}

TEST_F(Top, IdsInLanesAreShownOfTagsThatHaveThem) {
  Add("orders", 1000);
  Add("lanes", 1000).now.in_lanes = 12'345;
  const auto lines = Lines(Page(), ScreenOf(200, 60));
  EXPECT_THAT(lines[4], HasSubstr("IN LANES"));
  EXPECT_THAT(lines[5] + lines[6], HasSubstr("12345"));
  EXPECT_THAT(RenderTopText(Page(), ScreenOf(200, 60)), HasSubstr("12345\n"));
}

TEST_F(Top, SmallScreenShowsTheSizeThatIsNeeded) {
  EXPECT_THAT(Joined(Lines(Page(), ScreenOf(39, 24))), HasSubstr("top needs 40x8"));
  EXPECT_THAT(Joined(Lines(Page(), ScreenOf(80, 7))), HasSubstr("too small: 80x7"));
  EXPECT_THAT(Joined(Lines(Page(), ScreenOf(40, 8))), Not(HasSubstr("too small")));
}

TEST_F(Top, WithoutUtf8NothingElseThanAsciiIsShown) {
  Add("gr\u00f6\u00dfe", 3);
  const std::string text = Joined(Lines(Page(), ScreenOf(200, 24, false)));
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char byte) {
    return static_cast<unsigned char>(byte) < 0x80;
  })) << text;
  EXPECT_THAT(text, HasSubstr("gr??"));
}

TEST_F(Top, DaemonThatIsGoneIsReportedAndTheTagsStay) {
  Add("orders", 10);
  TopPage page = Page();
  page.head.gone_why = "connection refused";
  page.head.gone_s = 12.7;
  const auto lines = Lines(page, ScreenOf(80, 24));
  EXPECT_THAT(lines[0], HasSubstr("daemon gone since 12s: connection refused"));
  EXPECT_THAT(lines[1], HasSubstr("last report: database up for"));
  EXPECT_THAT(lines[5], HasSubstr("orders"));
}

TEST_F(Top, StatesStandOut) {
  Add("dry").now.state = "dry";
  Add("gone").now.state = "quarantined";
  Add("short").is_kept = false;
  TopPage page = Page();
  const auto lines = RenderTop(page, ScreenOf(80, 24));
  EXPECT_THAT(PlainText(lines[2]), HasSubstr("promise kept for 2 of 3, 1 dry, 1 quarantined"));
  EXPECT_EQ(lines[2][0].tone, Tone::kBad);
  const auto tone_of = [&lines](const std::string& cell) {
    for (std::size_t y = 5; y < lines.size(); ++y) {
      for (std::size_t i = 2; i < lines[y].size(); ++i) {
        if (lines[y][i].text.rfind(cell, 0) == 0) return lines[y][i].tone;
      }
    }
    return Tone::kPlain;
  };
  EXPECT_EQ(tone_of("dry"), Tone::kBad);
  EXPECT_EQ(tone_of("quarantined"), Tone::kBad);
  EXPECT_EQ(tone_of("short"), Tone::kWarning);
}

TEST_F(Top, DrainedTagBreaksNoPromise) {
  Add("orders");
  TopTag& drained = Add("drained");
  drained.now.state = "drained";
  drained.is_kept = false;
  TopPage page = Page();
  const auto lines = RenderTop(page, ScreenOf(80, 24));
  EXPECT_THAT(PlainText(lines[2]), HasSubstr("promise kept for 1 of 1, 1 drained"));
  EXPECT_EQ(lines[2][0].tone, Tone::kPlain);
  for (std::size_t y = 5; y < lines.size(); ++y) {
    for (const Span& span : lines[y]) EXPECT_NE(span.tone, Tone::kWarning) << span.text;
  }
}

TEST_F(Top, SnowflakeTagHasNoRateAndNoIdsToCount) {
  TopTag& tag = tags_.emplace_back();
  tag.name = "flakes";
  tag.mode = "snowflake";
  Advance(tag, Reading(0, 1), 0);
  TagReading reading = Reading(4'096'000, 77);
  reading.promised_ids = 1'000'000'000;
  Advance(tag, reading, 1);
  EXPECT_EQ(tag.rate_per_s, 0) << "time passed, whether or not ids were claimed";
  EXPECT_FALSE(tag.covered_s.has_value());
  EXPECT_TRUE(tag.is_kept);
  EXPECT_EQ(tag.rates.size(), 0U);
  const auto alone = Lines(Page(), ScreenOf(220, 24));
  EXPECT_EQ(alone[2], "1 tag, 1 snowflake");
  EXPECT_THAT(alone[5], ::testing::MatchesRegex("flakes +ok +- +- +- +10m +- +3 +0 +- +- *"));
  EXPECT_THAT(RenderTopText(Page(), Screen()),
              HasSubstr("\nflakes  ok          -          -        -      10m        -       3"));
  Add("orders", 1000).is_kept = false;
  const auto both = Lines(Page(), ScreenOf(80, 24));
  EXPECT_EQ(both[2], "2 tags, 1000 ids/s, promise kept for 0 of 1, 1 snowflake");
  EXPECT_THAT(Names({.order = TopOrder::kAvailable}), ElementsAre("orders", "flakes"));
  EXPECT_EQ(SumUp(All()).available, 1000U);
}

TEST_F(Top, UnusedSnowflakeTagIsNotDry) {
  TopTag& tag = tags_.emplace_back();
  tag.name = "flakes";
  tag.mode = "snowflake";
  TagReading reading = Reading(0, 0);
  reading.state = "dry";
  Advance(tag, reading, 0);
  EXPECT_EQ(tag.now.state, "ok");
  EXPECT_EQ(SumUp(All()).dry, 0U);
  tag.last_error = "no worker id is free";
  Advance(tag, reading, 1);
  EXPECT_EQ(tag.now.state, "dry");
  EXPECT_EQ(SumUp(All()).dry, 1U);
}

TEST_F(Top, ScrollingShowsTheRestOfTheTags) {
  for (int i = 10; i < 50; ++i) Add("tag-" + std::to_string(i));
  TopPage page = Page();
  page.first = 30;
  const auto lines = Lines(page, ScreenOf(80, 24));
  EXPECT_THAT(lines[3], HasSubstr("31-40 of 40"));
  EXPECT_THAT(lines[5], HasSubstr("tag-40"));
  EXPECT_THAT(lines[14], HasSubstr("tag-49"));
  EXPECT_EQ(lines[15], "");
}

TEST_F(Top, CurvesEndWithTheNewestValue) {
  History history;
  EXPECT_EQ(Sparkline(history, 4, 1, true), "    ");
  for (const double value : {0.0, 1.0, 0.5, 7.0}) history.Add(value);
  EXPECT_EQ(Sparkline(history, 6, 1, false), "  _#+#");
  EXPECT_EQ(Sparkline(history, 2, 1, true), "\u2585\u2588");
  EXPECT_EQ(Sparkline(history, 4, 0, false), "____") << "no height to measure by";
  for (int i = 0; i < 500; ++i) history.Add(1);
  EXPECT_EQ(history.size(), History::kMaxValues);
  EXPECT_EQ(Sparkline(history, 3, 1, false), "###");
}

TEST_F(Top, LongNumbersAreShortenedToFit) {
  EXPECT_EQ(ShortCount(0, 9), "0");
  EXPECT_EQ(ShortCount(999'999'999, 9), "999999999");
  EXPECT_EQ(ShortCount(1'000'000'000, 9), "1000000k");
  for (double value = 1; value < 1e19; value *= 7) {
    EXPECT_LE(ShortCount(value, 8).size(), 8U) << value;
  }
}

TEST_F(Top, CellsAreCutAndFilledByColumnsNotBytes) {
  EXPECT_EQ(InColumns("abc", 5, Align::kLeft, true), "abc  ");
  EXPECT_EQ(InColumns("abc", 5, Align::kRight, true), "  abc");
  EXPECT_EQ(InColumns("abcdef", 5, Align::kLeft, true), "abc..");
  EXPECT_EQ(InColumns("\u4e16\u754c\u4e16", 5, Align::kLeft, true), "\u4e16.. ");
  EXPECT_EQ(DisplayWidth("\u4e16\u754c"), 4U);
  EXPECT_EQ(InColumns("a\xff", 3, Align::kLeft, true), "a? ");
}

TEST_F(Top, TextHasEveryTagOnALine) {
  Add("orders", 1000);
  Add("users");
  const std::string text = RenderTopText(Page(), Screen());
  EXPECT_THAT(text, HasSubstr("\norders  ok       1000"));
  EXPECT_THAT(text, HasSubstr("\nusers   ok          0"));
  EXPECT_THAT(text, HasSubstr("TAG     STATE  RATE/S  AVAILABLE  COVERED  PROMISE"));
}

}  // namespace
}  // namespace idd::tools

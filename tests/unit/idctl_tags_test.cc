// SPDX-License-Identifier: Apache-2.0
//
// Files of tags, their differences to idd's tags, and suggestions for misspelt words. Without a
// daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tags/tag_changes.h"
#include "tags/tag_file.h"
#include "terminal/suggestion.h"

namespace idd::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TagFields SegmentTag() {
  TagFields tag;
  tag.tag = "orders";
  tag.mode = "segment";
  tag.access = "ring";
  tag.order = "host";
  tag.step = 1000;
  tag.refill = "promise";
  tag.max_step = 1'000'000'000'000;
  tag.max_prefetch = 1'000'000'000;
  tag.outage_tolerance_s = 600;
  tag.next_id = 4711;
  tag.max_id = kMaxId;
  return tag;
}

TagFields SnowflakeTag() {
  TagFields tag = SegmentTag();
  tag.tag = "events";
  tag.mode = "snowflake";
  LayoutFields& layout = tag.layout.emplace();
  layout.layout = "41/10/12";
  layout.unit_ms = 1;
  layout.epoch = "2024-01-01T00:00:00.000Z";
  layout.clock = "client";
  layout.max_ahead_ms = 1000;
  return tag;
}

Screen ScreenOf(std::size_t columns) {
  Screen screen;
  screen.is_terminal = true;
  screen.columns = columns;
  return screen;
}

TEST(TagFileTest, ReadsWhatItWrites) {
  TagFields odd = SegmentTag();
  odd.tag = "two \"words\" \\ #";
  odd.description = "line\nline\x7f\t\u6ce8";
  odd.order = "cpu";
  odd.lane_block = 64;
  odd.outage_tolerance_s = 86'401;
  TagFields ticket = SegmentTag();
  ticket.tag = "invoices";
  ticket.mode = "ticket";
  const std::vector<TagFields> tags = {odd, ticket, SnowflakeTag()};
  const auto entries = ParseTagFile(FormatTagFile(tags), "f");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries.value().size(), tags.size());
  for (std::size_t i = 0; i < tags.size(); ++i) {
    EXPECT_EQ(entries.value()[i].settings.tag, tags[i].tag);
    EXPECT_EQ(Given(entries.value()[i].settings).size(), SettingsOf(tags[i]).size());
    EXPECT_THAT(Differences(tags[i], entries.value()[i].settings), IsEmpty());
  }
}

TEST(TagFileTest, EmptyFileHasNoTags) {
  for (const char* text : {"", "# nothing\n", "tag = []\n"}) {
    const auto entries = ParseTagFile(text, "f");
    EXPECT_EQ(entries.ok(), *text != 't');
    if (entries.ok()) {
      EXPECT_THAT(entries.value(), IsEmpty());
    }
  }
}

// Any bytes are an answer, never a crash.
TEST(TagFileTest, RefusesGarbageWithALine) {
  std::string text = FormatTagFile({SegmentTag(), SnowflakeTag()});
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char wrong : {'\0', '"', '\xff', '['}) {
      std::string damaged = text;
      damaged[i] = wrong;
      const auto entries = ParseTagFile(damaged, "f");
      if (!entries.ok()) {
        EXPECT_THAT(entries.status().message(), ::testing::StartsWith("f:"));
      }
    }
  }
}

TEST(DifferencesTest, ComparesValuesNotNotations) {
  TagSettings asked;
  asked.layout = "041/10/012";
  asked.epoch = "2024-01-01T00:00:00Z";
  asked.max_ahead_ms = 1000;
  asked.order = "host";
  EXPECT_THAT(Differences(SnowflakeTag(), asked), IsEmpty());
  asked.order = "cpu";
  asked.step = 5;
  const std::vector<Difference> differences = Differences(SnowflakeTag(), asked);
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0].name, "order");
  EXPECT_EQ(differences[1].name, "step");
  EXPECT_EQ(differences[1].before, "");
  EXPECT_EQ(differences[1].after, "5");
}

TEST(DifferencesTest, StartIsMetByATagThatHasPassedIt) {
  TagSettings asked;
  asked.start = 4711;
  EXPECT_THAT(Differences(SegmentTag(), asked), IsEmpty());
  asked.start = 4712;
  ASSERT_EQ(Differences(SegmentTag(), asked).size(), 1U);
  EXPECT_EQ(Differences(SegmentTag(), asked)[0].before, "4711");
}

TEST(RenderChangesTest, NoLineIsWiderThanTheScreen) {
  TagChanges changes;
  changes.is_dry_run = true;
  changes.not_in_file = 3;
  changes.changes.push_back({TagAction::kChange,
                             "orders",
                             {{"max_id", "9223372036854775806", "1000"},
                              {"description", std::string(300, 'x'), "\u6ce8\u6587 \x1b"}},
                             false});
  for (const std::size_t columns : {12U, 40U, 60U, 80U}) {
    const std::string text = RenderChanges(changes, ScreenOf(columns));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(WidthInCharacters(line), columns) << line;
    }
    EXPECT_THAT(text, HasSubstr("\\x1b"));
  }
  EXPECT_THAT(RenderChanges(changes, {}), HasSubstr("9223372036854775806 -> 1000\n"));
}

TEST(SuggestionTest, FindsTheNearestWord) {
  const std::vector<std::string> words = {"status", "tag", "top", "audit", "--max-step"};
  EXPECT_EQ(Nearest("statsu", words), "status");
  EXPECT_EQ(Nearest("tga", words), "tag");
  EXPECT_EQ(Nearest("--maxstep", words), "--max-step");
  EXPECT_EQ(Nearest("audt", words), "audit");
  for (const char* far : {"", "x", "nonsense", "status", "sxxyus", "claim"}) {
    EXPECT_EQ(Nearest(far, words), std::nullopt) << far;
  }
  EXPECT_EQ(Nearest(std::string(1000, 'a'), {std::string(1000, 'b')}), std::nullopt);
}

TEST(SuggestionTest, DistanceCountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0U);
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("abc", "acb"), 1U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
  EXPECT_EQ(EditDistance("orders", "order"), 1U);
}

}  // namespace
}  // namespace idd::tools

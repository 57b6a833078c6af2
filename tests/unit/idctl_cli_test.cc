// SPDX-License-Identifier: Apache-2.0
//
// idctl's command line: what counts as wrong usage, and the exit statuses. Without a daemon.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "commands/cli.h"
#include "idd/base/scoped_fd.h"
#include "support/run_tool.h"
#include "tags/snowflake_layout.h"

namespace idd::tools {
namespace {

void ExpectOneLine(const std::string& err) {
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  EXPECT_TRUE(err.starts_with("idctl: ")) << err;
  EXPECT_TRUE(err.ends_with("\n")) << err;
}

// The others: IdctlTest.TheDaemonsCodeIsTheExitStatus.
TEST(ExitStatusTest, OfIdctlItselfHaveTheirNumbers) {
  EXPECT_EQ(static_cast<int>(ExitFor(Code::kOk)), 0);
  EXPECT_EQ(static_cast<int>(ExitStatus::kUsage), 2);
  EXPECT_EQ(static_cast<int>(ExitStatus::kExists), 7);
  EXPECT_NE(RunTool({"--help"}).out.find("7 exists already"), std::string::npos);
}

TEST(FormatFailureTest, IsOneLineWhateverTheTextsContain) {
  EXPECT_EQ(FormatFailure({ExitStatus::kFailed, "top", "not available in this version", ""}),
            "idctl: top: not available in this version\n");
  EXPECT_EQ(FormatFailure({ExitStatus::kFailed, "a\nb", " c.\n", "d\x1b"}),
            "idctl: a\\x0ab: c; d\\x1b\n");
}

TEST(FormatFailureTest, CutsAnEndlessReason) {
  const std::string line =
      FormatFailure({ExitStatus::kFailed, "status", std::string(1 << 20, 'x'), "try again"});
  EXPECT_LT(line.size(), 2000U);
  EXPECT_TRUE(line.ends_with("x...; try again\n"));
}

TEST(FailureFromTest, AddsAdviceOnlyWhereThereIsNone) {
  EXPECT_FALSE(FailureFrom({Code::kNoSuchTag, "there is none"}, "claim").todo.empty());
  EXPECT_TRUE(FailureFrom({Code::kNoSuchTag, "there is none; make it"}, "claim").todo.empty());
  EXPECT_EQ(FailureFrom({Code::kTimeout, ""}, "claim").why, "TIMEOUT");
}

TEST(ParseNumberTest, TakesDecimalDigitsOnly) {
  constexpr NumberRange kRange = {0, 9223372036854775806ULL};
  std::uint64_t number = 0;
  EXPECT_EQ(ParseNumber("010", kRange, &number), "");
  EXPECT_EQ(number, 10U);
  EXPECT_EQ(ParseNumber("9223372036854775806", kRange, &number), "");
  EXPECT_EQ(number, 9223372036854775806ULL);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "0x10", "1e3", "1.0", "1_000", "ten",
                           "9223372036854775807", "18446744073709551616", "99999999999999999999"}) {
    EXPECT_NE(ParseNumber(text, kRange, &number), "") << text;
  }
  EXPECT_EQ(number, 9223372036854775806ULL) << "written on success only";
}

TEST(ParseCountTest, TakesPowersOfThousandInLowerCase) {
  constexpr NumberRange kRange = {1, 9223372036854775806ULL};
  const std::vector<std::pair<const char*, std::uint64_t>> counts = {
      {"1", 1},
      {"999", 999},
      {"10k", 10'000},
      {"10m", 10'000'000},
      {"2g", 2'000'000'000},
      {"3t", 3'000'000'000'000},
      {"9223372t", 9'223'372'000'000'000'000ULL}};
  std::uint64_t count = 0;
  for (const auto& [text, expected] : counts) {
    EXPECT_EQ(ParseCount(text, kRange, &count), "") << text;
    EXPECT_EQ(count, expected) << text;
  }
  count = 7;
  for (const char* text : {"", "k", "0k", "0", "10K", "10M", "1.5k", "-1k", "+1k", "10kk", "10 k",
                           "10s", "10h", "10ms", "10d", "9223373t", "99999999999999t", "1e3"}) {
    EXPECT_NE(ParseCount(text, kRange, &count), "") << text;
  }
  EXPECT_EQ(count, 7U) << "written on success only";
}

TEST(ParseTimeTest, TakesUnitsOfTimeAndNoPowers) {
  constexpr TimeRange kSeconds = {0, 604'800, 1000, BareTime::kAllowed};
  const std::vector<std::pair<const char*, std::uint64_t>> times = {
      {"0", 0},      {"90", 90},      {"90s", 90},   {"10m", 600},
      {"2h", 7'200}, {"7d", 604'800}, {"3000ms", 3}, {"0ms", 0}};
  std::uint64_t time = 0;
  for (const auto& [text, expected] : times) {
    EXPECT_EQ(ParseTime(text, kSeconds, &time), "") << text;
    EXPECT_EQ(time, expected) << text;
  }
  time = 7;
  for (const char* text : {"", "s", "10k", "10g", "10t", "1500ms", "8d", "1w", "10M", "1.5h", "-1s",
                           "1 h", "1h30m", "604801", "18446744073709551615d"}) {
    EXPECT_NE(ParseTime(text, kSeconds, &time), "") << text;
  }
  EXPECT_NE(ParseTime("5", {0, 10, 1000, BareTime::kRefused}, &time), "");
  EXPECT_EQ(time, 7U) << "written on success only";
}

TEST(ParseTimeTest, ReadsWhatTimeTextWrites) {
  for (const std::uint64_t ms : {0ULL, 1ULL, 500ULL, 1000ULL, 1500ULL, 90'000ULL, 600'000ULL,
                                 7'200'000ULL, 86'400'000ULL, 604'800'000ULL, 604'800'001ULL}) {
    std::uint64_t read = 7;
    EXPECT_EQ(ParseTime(TimeText(ms), {0, 1'000'000'000, 1, BareTime::kRefused}, &read), "");
    EXPECT_EQ(read, ms) << TimeText(ms);
  }
  EXPECT_EQ(TimeText(600'000), "10m");
  EXPECT_EQ(TimeText(604'800'000), "7d");
  EXPECT_EQ(TimeText(90'000), "90s");
}

TEST(LayoutArgumentTest, LayoutIsThreeNumbersOfBits) {
  for (const char* text : {"41/10/12", "0/0/0", "39/16/8", "62/1/99"}) {
    EXPECT_EQ(CheckLayoutArgument(text), "") << text << ": the daemon knows the bounds";
  }
  for (const char* text :
       {"", "/", "//", "41", "41/10", "41/10/", "/10/12", "41//12", "41/10/12/", "41/10/12/1",
        "41-10-12", "41 / 10 / 12", "+41/10/12", "41/10/-1", "41/10/100", "a/b/c"}) {
    EXPECT_NE(CheckLayoutArgument(text), "") << text;
  }
}

TEST(LayoutArgumentTest, UnitIsOneOfThree) {
  std::uint64_t ms = 0;
  const std::vector<std::pair<const char*, std::uint64_t>> units = {
      {"1ms", 1}, {"10ms", 10}, {"1s", 1000}};
  for (const auto& [text, expected] : units) {
    EXPECT_EQ(ParseUnitArgument(text, &ms), "");
    EXPECT_EQ(ms, expected);
  }
  for (const char* text : {"", "1", "ms", "s", "1 ms", "100ms", "1000ms", "1S", "01s"}) {
    EXPECT_NE(ParseUnitArgument(text, &ms), "") << text;
  }
}

TEST(LayoutArgumentTest, EpochIsADayOrASecondInUtc) {
  for (const char* text : {"2024-01-01", "2024-02-29", "1970-01-01", "2024-01-01T00:00:00Z",
                           "2010-11-04T01:42:54Z", "2024-12-31T23:59:59Z"}) {
    EXPECT_EQ(CheckEpochArgument(text), "") << text;
  }
  for (const char* text : {"",
                           "2024",
                           "2024-01",
                           "2024-1-1",
                           "24-01-01",
                           "2024/01/01",
                           "01-01-2024",
                           "2023-02-29",
                           "2024-00-01",
                           "2024-13-01",
                           "2024-01-00",
                           "2024-01-32",
                           "2024-01-01T00:00:00",
                           "2024-01-01 00:00:00Z",
                           "2024-01-01T00:00Z",
                           "2024-01-01T24:00:00Z",
                           "2024-01-01T00:60:00Z",
                           "2024-01-01T00:00:60Z",
                           "2024-01-01T00:00:00.000Z",
                           "2024-01-01T00:00:00+01:00",
                           "2024-01-01Z",
                           "-024-01-01",
                           "1704067200"}) {
    EXPECT_NE(CheckEpochArgument(text), "") << text;
  }
}

TEST(LayoutArgumentTest, AheadIsATimeOfAtMostAnHour) {
  std::uint64_t ms = 0;
  const std::vector<std::pair<const char*, std::uint64_t>> times = {
      {"0", 0},       {"0ms", 0},     {"0s", 0},          {"500ms", 500},
      {"1s", 1000},   {"2s", 2000},   {"3600s", 3600000}, {"3600000ms", 3600000},
      {"2m", 120000}, {"1h", 3600000}};
  for (const auto& [text, expected] : times) {
    EXPECT_EQ(ParseAheadArgument(text, &ms), "") << text;
    EXPECT_EQ(ms, expected) << text;
  }
  ms = 7;
  for (const char* text : {"", "1", "s", "ms", "-1s", "1.5s", "1 s", "61m", "2h", "1k", "3601s",
                           "3600001ms", "18446744073709551615s", "1sms"}) {
    EXPECT_NE(ParseAheadArgument(text, &ms), "") << text;
  }
  EXPECT_EQ(ms, 7U) << "written on success only";
}

TEST(ArgumentCheckTest, RefusesWhatCannotBeSent) {
  EXPECT_EQ(CheckTagArgument("orders"), "");
  EXPECT_NE(CheckTagArgument(""), "");
  EXPECT_NE(CheckTagArgument(std::string(129, 'x')), "");
  EXPECT_NE(CheckTagArgument("a\nb"), "");
  EXPECT_EQ(CheckTextArgument("注文\n"), "");
  EXPECT_NE(CheckTextArgument("\xff"), "");
  EXPECT_NE(CheckTextArgument(std::string(kMaxTextBytes + 1, 'x')), "");
  EXPECT_EQ(CheckSocketArgument(std::string(107, 'x')), "");
  EXPECT_NE(CheckSocketArgument(std::string(108, 'x')), "");
  EXPECT_NE(CheckSocketArgument(""), "");
}

TEST(UsageTest, WrongCommandLinesExitWithTwoAndOneLine) {
  const std::string long_path(200, 'a');
  const std::vector<std::vector<const char*>> lines = {
      {},
      {"nonsense"},
      {"--nonsense"},
      {"tag"},
      {"tag", "nonsense"},
      {"tag", "create"},
      {"tag", "create", ""},
      {"tag", "create", "a\nb"},
      {"tag", "create", "a", "b"},
      {"tag", "create", "a", "--step", "0"},
      {"tag", "create", "a", "--step", "ten"},
      {"tag", "create", "a", "--start", "9223372036854775807"},
      {"tag", "create", "a", "--start", "5", "--max-id", "4"},
      {"tag", "create", "a", "--mode", "magic"},
      {"tag", "create", "a", "--access", "both"},
      {"tag", "create", "a", "--order", "strict"},
      {"tag", "create", "a", "--lane-block", "65537"},
      {"tag", "create", "a", "--order", "cpu", "--mode", "snowflake"},
      {"tag", "create", "a", "--layout", "41/10/12"},
      {"tag", "create", "a", "--unit", "1ms", "--mode", "segment"},
      {"tag", "create", "a", "--epoch", "2024-01-01", "--mode", "ticket"},
      {"tag", "create", "a", "--clock", "client"},
      {"tag", "create", "a", "--max-ahead", "1s"},
      {"tag", "create", "a", "--mode", "snowflake", "--step", "1"},
      {"tag", "create", "a", "--mode", "snowflake", "--start", "1"},
      {"tag", "create", "a", "--mode", "snowflake", "--max-id", "1"},
      {"tag", "create", "a", "--mode", "snowflake", "--refill", "leaf"},
      {"tag", "create", "a", "--mode", "snowflake", "--max-step", "1"},
      {"tag", "create", "a", "--mode", "snowflake", "--max-prefetch", "1"},
      {"tag", "create", "a", "--mode", "snowflake", "--layout", "41/10"},
      {"tag", "create", "a", "--mode", "snowflake", "--unit", "1"},
      {"tag", "create", "a", "--mode", "snowflake", "--epoch", "yesterday"},
      {"tag", "create", "a", "--mode", "snowflake", "--clock", "sun"},
      {"tag", "create", "a", "--mode", "snowflake", "--max-ahead", "1"},
      {"tag", "set", "a", "--layout", "41/10/12"},
      {"tag", "create", "a", "--description", "\xff"},
      {"tag", "set", "a"},
      {"tag", "set", "a", "--mode", "segment"},
      {"tag", "set", "a", "--access", "Socket"},
      {"tag", "delete", "a"},
      {"claim"},
      {"claim", "a", "-n", "0"},
      {"claim", "a", "-n", "-1"},
      {"claim", "a", "-n"},
      {"claim", "a", "--timeout", "0"},
      {"claim", "a", "--timeout", "3600001"},
      {"status", "a", "b"},
      {"status", "--socket", ""},
      {"status", "--socket", long_path.c_str()},
      {"lease"},
      {"lease", "list", "--state", "lost"},
      {"lease", "list", "--tag", " a"},
      {"host", "list", "x"},
      {"host", "forget"},
      {"status", "--all-hosts", "--limit", "0"},
      {"top", "--all-hosts", "--limit", "100001"},
      {"import"},
      {"import", "leaf"},
      {"import", "tinyid", "--step", "0"},
      {"import", "tinyid", "more"},
      {"import", "tinyid", "--from", "\xff"},
      {"whois", "orders"},
      {"whois", "orders", "-1"},
      {"whois", "orders", "9223372036854775807"},
      {"whois", "4711 ", "1"},
      {"decode"},
      {"decode", "orders"},
      {"decode", "orders", "1", "-1"},
      {"decode", "orders", "1", "9223372036854775807"},
      {"audit", "orders", "--all-hosts=maybe"},
  };
  for (const auto& line : lines) {
    const Ran ran = RunTool(line);
    EXPECT_EQ(ran.exit, ExitStatus::kUsage) << ran.err;
    EXPECT_EQ(ran.out, "");
    ExpectOneLine(ran.err);
  }
}

TEST(UsageTest, OptionOfAnotherModeIsNamed) {
  EXPECT_EQ(RunTool({"tag", "create", "a", "--max-ahead", "0"}).err,
            "idctl: tag create: --max-ahead is for mode snowflake only; add --mode snowflake\n");
  EXPECT_EQ(
      RunTool({"tag", "create", "a", "--mode", "snowflake", "--step", "5"}).err,
      "idctl: tag create: --step has no meaning in mode snowflake; leave it out; --layout and "
      "--epoch define the ids\n");
}

TEST(UsageTest, DecodeTakesAsManyIdsAsFitARequest) {
  std::vector<const char*> line = {"decode", "orders"};
  line.insert(line.end(), 501, "9223372036854775806");
  const Ran ran = RunTool(line);
  EXPECT_EQ(ran.exit, ExitStatus::kUsage);
  EXPECT_NE(ran.err.find("got 501; "), std::string::npos) << ran.err;
}

TEST(UsageTest, PasswordInAMisplacedUrlIsNotRepeated) {
  const Ran ran = RunTool({"import", "cosid", "mysql://idd:Pa55word@h/x"});
  EXPECT_EQ(ran.exit, ExitStatus::kUsage);
  EXPECT_NE(ran.err.find("'mysql://idd:********@h/x'"), std::string::npos) << ran.err;
}

TEST(UsageTest, PathThatIsTooLongIsReportedWithItsLength) {
  const std::string path = "/" + std::string(120, 's');
  const Ran ran = RunTool({"status", "--socket", path.c_str()});
  EXPECT_EQ(ran.exit, ExitStatus::kUsage);
  EXPECT_NE(ran.err.find("path must have at most 107 bytes, got 121;"), std::string::npos)
      << ran.err;
}

// Regression: it said that leaf "is not one of tinyid, ...", as if Leaf could not be moved from.
TEST(UsageTest, ImportOfAGeneratorThatNeedsNoneSaysSo) {
  for (const char* source : {"leaf", "leaf-segment", "leaf_alloc"}) {
    const Ran ran = RunTool({"import", source});
    EXPECT_EQ(ran.exit, ExitStatus::kUsage);
    EXPECT_NE(ran.err.find(source + std::string("' needs no import: name Leaf's database")),
              std::string::npos)
        << ran.err;
  }
  for (const char* source : {"leaf-snowflake", "snowflake", "sonyflake", "uid-generator"}) {
    EXPECT_NE(RunTool({"import", source}).err.find("--mode snowflake"), std::string::npos);
  }
}

TEST(UsageTest, DeleteNamesForce) {
  EXPECT_NE(RunTool({"tag", "delete", "orders"}).err.find("--force"), std::string::npos);
}

TEST(UsageTest, HelpListsEveryCommand) {
  const std::string help = RunTool({"--help"}).out;
  for (const char* name : {"tag", "claim", "status", "lease", "host", "audit", "top", "doctor",
                           "metrics", "whois", "decode", "drain", "resume", "client", "import"}) {
    EXPECT_NE(help.find(std::string("\n  ") + name + " "), std::string::npos) << name;
  }
}

TEST(UsageTest, VersionIsOneLine) {
  const Ran ran = RunTool({"--version"});
  EXPECT_EQ(ran.exit, ExitStatus::kDone);
  EXPECT_TRUE(ran.out.starts_with("idctl ")) << ran.out;
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 1);
}

}  // namespace
}  // namespace idd::tools

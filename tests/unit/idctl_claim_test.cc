// SPDX-License-Identifier: Apache-2.0
//
// idctl claim's output, over a fake library.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "support/run_tool.h"

namespace idd::tools {
namespace {

// Hands out 1, 2, 3, ... and fails with `status` after `limit` ids.
struct FakeSource {
  std::uint64_t limit = 0;
  idclient_status status = IDCLIENT_TIMEOUT;
  std::uint64_t next = 1;
  std::size_t calls = 0;
  std::size_t largest_chunk = 0;

  idclient_status operator()(std::uint64_t* ids, std::size_t count, std::size_t* claimed) {
    ++calls;
    largest_chunk = std::max(largest_chunk, count);
    for (*claimed = 0; *claimed < count && next <= limit; ++*claimed) ids[*claimed] = next++;
    return *claimed == count ? IDCLIENT_OK : status;
  }
};

struct Printed {
  Outcome outcome;
  std::string text;
};

Printed RunClaim(const ClaimRun& run, const ClaimSource& source) {
  const PrintedFile file;
  Output out(file.fd());
  Printed printed;
  printed.outcome = ClaimAndPrint(
      run, source, [] { return std::string("the ring is dry"); }, out);
  EXPECT_TRUE(out.Flush());
  printed.text = file.text();
  return printed;
}

// JavaScript reads the number as 9223372036854776000.
TEST(ClaimAndPrintTest, PrintsIdsAsStringsWhoseDigitsAreExact) {
  constexpr std::uint64_t kLast = 9'223'372'036'854'775'806;
  const Printed printed =
      RunClaim({.tag = "orders", .count = 2, .as_json = true, .has_text_integers = true},
               FakeSource{.limit = kLast, .next = kLast - 1});
  EXPECT_EQ(printed.text,
            "{\n  \"tag\": \"orders\",\n  \"ids\": [\n    \"9223372036854775805\",\n"
            "    \"9223372036854775806\"\n  ]\n}\n");
}

TEST(JsonDocumentTest, IntegersBecomeTextsAndNothingElseDoes) {
  const Json document = Json::parse(
      R"({"id": 9223372036854775807, "low": -3, "rate": 1.5, "whole": 2.0, "is": true, "no": null,
          "list": [{"n": 18446744073709551615}, [0], "7"]})");
  const std::string text = JsonDocument(document).WithTextIntegers().Compact();
  EXPECT_EQ(text, R"({"id":"9223372036854775807","low":"-3","rate":1.5,"whole":2.0,"is":true,)"
                  R"("no":null,"list":[{"n":"18446744073709551615"},["0"],"7"]})");
}

TEST(ClaimAndPrintTest, PrintsOneIdALine) {
  const Printed printed = RunClaim({"orders", 3, false}, FakeSource{.limit = 100});
  EXPECT_FALSE(printed.outcome.has_value());
  EXPECT_EQ(printed.text, "1\n2\n3\n");
}

TEST(ClaimAndPrintTest, ClaimsManyInBoundedChunks) {
  FakeSource source{.limit = 10'000};
  const Printed printed = RunClaim({"orders", 10'000, false}, std::ref(source));
  EXPECT_FALSE(printed.outcome.has_value());
  EXPECT_EQ(std::count(printed.text.begin(), printed.text.end(), '\n'), 10'000);
  EXPECT_LE(source.largest_chunk, 4096U);
  EXPECT_EQ(source.next, 10'001U);  // not one more than was asked for
}

TEST(ClaimAndPrintTest, PrintsWhatWasClaimedBeforeTheError) {
  const Printed printed = RunClaim({"orders", 5, false}, FakeSource{.limit = 2});
  EXPECT_EQ(printed.text, "1\n2\n");
  ASSERT_TRUE(printed.outcome.has_value());
  EXPECT_EQ(printed.outcome->exit, ExitStatus::kNothingToClaim);
  EXPECT_EQ(FormatFailure(*printed.outcome),
            "idctl: claim from 'orders' after 2 of 5 ids: the ring is dry; look at 'idctl status', "
            "or wait longer with --timeout\n");
}

TEST(ClaimAndPrintTest, JsonIsOneDocument) {
  const Printed printed = RunClaim({"orders", 3, true}, FakeSource{.limit = 100});
  EXPECT_FALSE(printed.outcome.has_value());
  const Json expected = {{"tag", "orders"}, {"ids", {1, 2, 3}}};
  EXPECT_EQ(printed.text, expected.dump(2) + "\n");
}

TEST(ClaimAndPrintTest, JsonIsCompleteAfterAnError) {
  const Printed printed = RunClaim({"a\"b", 5000, true}, FakeSource{.limit = 4500});
  ASSERT_TRUE(printed.outcome.has_value());
  const Json document = Json::parse(printed.text, nullptr, false);
  ASSERT_TRUE(document.is_object());
  EXPECT_EQ(document["tag"], "a\"b");
  EXPECT_EQ(document["ids"].size(), 4500U);
}

TEST(ClaimAndPrintTest, PrintsNothingWhenNothingWasClaimed) {
  for (const bool as_json : {false, true}) {
    const Printed printed =
        RunClaim({"orders", 5, as_json}, FakeSource{.limit = 0, .status = IDCLIENT_OUT_OF_IDS});
    EXPECT_EQ(printed.text, "");
    ASSERT_TRUE(printed.outcome.has_value());
    EXPECT_EQ(printed.outcome->exit, ExitStatus::kNothingToClaim);
  }
}

TEST(ClaimAndPrintTest, MapsTheLibrarysStatus) {
  const std::vector<std::pair<idclient_status, ExitStatus>> expected = {
      {IDCLIENT_INVALID, ExitStatus::kFailed},
      {IDCLIENT_UNAVAILABLE, ExitStatus::kUnreachable},
      {IDCLIENT_NO_SUCH_TAG, ExitStatus::kNoSuchTag},
      {IDCLIENT_DENIED, ExitStatus::kDenied},
      {IDCLIENT_TIMEOUT, ExitStatus::kNothingToClaim},
      {IDCLIENT_OUT_OF_IDS, ExitStatus::kNothingToClaim},
      {IDCLIENT_INCOMPATIBLE, ExitStatus::kFailed},
      {IDCLIENT_SYSTEM, ExitStatus::kFailed},
  };
  for (const auto& [status, exit] : expected) {
    const Printed printed = RunClaim({"t", 1, false}, FakeSource{.limit = 0, .status = status});
    ASSERT_TRUE(printed.outcome.has_value());
    EXPECT_EQ(printed.outcome->exit, exit) << idclient_status_name(status);
  }
}

TEST(ClaimAndPrintTest, StopsWhenTheLibraryMakesNoProgress) {
  const auto source = [](std::uint64_t*, std::size_t, std::size_t* claimed) {
    *claimed = 0;
    return IDCLIENT_OK;
  };
  const Printed printed = RunClaim({"orders", 5, false}, source);
  ASSERT_TRUE(printed.outcome.has_value());
  EXPECT_EQ(printed.outcome->exit, ExitStatus::kFailed);
}

TEST(ClaimAndPrintTest, TakesNoMoreIdsWithoutAReader) {
  const ScopedFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  Output out(full.get());
  FakeSource source{.limit = 1'000'000};
  const Outcome outcome = ClaimAndPrint(
      {"orders", 1'000'000, false}, std::ref(source), [] { return std::string(); }, out);
  EXPECT_FALSE(outcome.has_value());  // the writer reports its own error
  EXPECT_FALSE(out.ok());
  EXPECT_EQ(source.calls, 1U);
}

}  // namespace
}  // namespace idd::tools

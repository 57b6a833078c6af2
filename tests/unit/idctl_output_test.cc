// SPDX-License-Identifier: Apache-2.0
//
// How idctl writes: escapes, durations, tables, and output errors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <limits>
#include <string>

#include "idd/base/scoped_fd.h"
#include "terminal/output.h"

namespace idd::tools {
namespace {

TEST(EscapeTextTest, LeavesPrintableTextAlone) {
  EXPECT_EQ(EscapeText(""), "");
  EXPECT_EQ(EscapeText("orders/eu-1 ~ \\ \"'"), "orders/eu-1 ~ \\ \"'");
  EXPECT_EQ(EscapeText("Aufträge 注文 🐘"), "Aufträge 注文 🐘");
}

TEST(EscapeTextTest, EscapesWhatMovesTheCursorOrStartsALine) {
  EXPECT_EQ(EscapeText("a\nb\r\t\x1b[2J\x7f"), "a\\x0ab\\x0d\\x09\\x1b[2J\\x7f");
  EXPECT_EQ(EscapeText(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(EscapeText("\xc2\x85"), "\\x85");        // next line, a C1 control
  EXPECT_EQ(EscapeText("\xe2\x80\xa8"), "\\u2028");  // line separator
  EXPECT_EQ(EscapeText("x\xe2\x80\xae"
                       "y"),
            "x\\u202ey");  // right-to-left override
}

TEST(EscapeTextTest, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(EscapeText("\xff"), "\\xff");
  EXPECT_EQ(EscapeText("a\xc3"), "a\\xc3");                           // cut short
  EXPECT_EQ(EscapeText("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(EscapeText("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(EscapeText("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
}

TEST(IsUtf8Test, DistinguishesTextFromBytes) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\n注文🐘"));
  EXPECT_FALSE(IsUtf8("a\xff"));
  EXPECT_FALSE(IsUtf8("\xe6\xb3"));
}

TEST(FormatDurationTest, ShowsTheTwoLargestUnits) {
  EXPECT_EQ(FormatDuration(0), "0s");
  EXPECT_EQ(FormatDuration(0.9), "0s");
  EXPECT_EQ(FormatDuration(59.9), "59s");
  EXPECT_EQ(FormatDuration(60), "1m");
  EXPECT_EQ(FormatDuration(723), "12m 3s");
  EXPECT_EQ(FormatDuration(3605), "1h");
  EXPECT_EQ(FormatDuration(3661), "1h 1m");
  EXPECT_EQ(FormatDuration(273600), "3d 4h");
}

TEST(FormatDurationTest, SurvivesAnyNumber) {
  EXPECT_EQ(FormatDuration(-5), "0s");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::quiet_NaN()), "0s");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::infinity()), FormatDuration(1e15));
}

TEST(FormatRateTest, ShowsOneDecimalOnlyWhereItMatters) {
  EXPECT_EQ(FormatRate(0), "0");
  EXPECT_EQ(FormatRate(0.26), "0.3");
  EXPECT_EQ(FormatRate(9.94), "9.9");
  EXPECT_EQ(FormatRate(9.96), "10");
  EXPECT_EQ(FormatRate(1234567.8), "1234568");
  EXPECT_EQ(FormatRate(1e300), "1000000000000000000");
  EXPECT_EQ(FormatRate(std::numeric_limits<double>::quiet_NaN()), "0");
}

TEST(TableTest, AlignsColumnsWithoutTrailingBlanks) {
  Table table({{"TAG"}, {"STEP", Align::kRight}, {"MODE"}});
  table.AddRow({"orders", "1000", "segment"});
  table.AddRow({"ü", "5", "x"});
  EXPECT_EQ(table.Format(),
            "TAG     STEP  MODE\n"
            "orders  1000  segment\n"
            "ü          5  x\n");
}

TEST(TableTest, AlignsWideAndJoiningCharactersAsATerminalShowsThem) {
  ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr);
  Table table({{"TAG"}, {"MODE"}});
  table.AddRow({"\u4e16\u754c", "x"});
  table.AddRow({"o\u0308", "x"});
  const std::string text = table.Format();
  std::setlocale(LC_CTYPE, "C");
  EXPECT_EQ(text, "TAG   MODE\n\u4e16\u754c  x\no\u0308     x\n");
}

TEST(TableTest, ShowsEveryCellOnItsLine) {
  Table table({{"A"}, {"B"}, {"C"}});
  table.AddRow({"a\nb", "", "c"});
  table.AddRow({"", "x", ""});
  EXPECT_EQ(table.Format(),
            "A       B  C\n"
            "a\\x0ab  -  c\n"
            "-       x  -\n");
}

TEST(TableTest, WithoutRowsIsItsTitles) {
  EXPECT_EQ(Table({{"A"}, {"LONG"}}).Format(), "A  LONG\n");
}

TEST(OutputTest, WritesEverythingInOrderAcrossBuffers) {
  const ScopedFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  Output out(file.get());
  std::string expected;
  for (std::uint64_t i = 0; i < 50'000; ++i) {
    out.WriteNumber(i);
    out.Write("\n");
    expected += std::to_string(i) + "\n";
  }
  ASSERT_TRUE(out.Flush());
  std::string written(expected.size() + 1, '\0');
  EXPECT_EQ(::pread(file.get(), written.data(), written.size(), 0),
            static_cast<ssize_t>(expected.size()));
  written.pop_back();
  EXPECT_EQ(written, expected);
}

TEST(OutputTest, RemembersTheFirstError) {
  const ScopedFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  Output out(full.get());
  out.Write("x");
  EXPECT_TRUE(out.ok());
  EXPECT_FALSE(out.Flush());
  EXPECT_EQ(out.error(), ENOSPC);
  out.Write("y");
  EXPECT_FALSE(out.Flush());
  EXPECT_EQ(out.error(), ENOSPC);
}

TEST(OutputTest, WaitsForANonBlockingPipe) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  const ScopedFd reader(ends[0]);
  ScopedFd writer(ends[1]);
  constexpr std::size_t kBytes = 1 << 20;  // more than a pipe holds
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Output out(writer.get());
    for (std::size_t i = 0; i < kBytes; ++i) out.Write("x");
    ::_exit(out.Flush() ? 0 : 1);
  }
  writer.reset();
  ASSERT_EQ(::fcntl(reader.get(), F_SETFL, 0), 0);
  std::size_t total = 0;
  std::string buffer(65536, '\0');
  for (ssize_t got = 1; got > 0; total += static_cast<std::size_t>(got)) {
    got = ::read(reader.get(), buffer.data(), buffer.size());
    ASSERT_GE(got, 0);
  }
  EXPECT_EQ(total, kBytes);
}

}  // namespace
}  // namespace idd::tools

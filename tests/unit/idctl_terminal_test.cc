// SPDX-License-Identifier: Apache-2.0
//
// How idctl uses the terminal that it writes to: size, colour, progress.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "idd/base/scoped_fd.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

TEST(WrapToTest, BreaksAtBlanksAndIndentsWhatFollows) {
  EXPECT_EQ(WrapTo("one two three", 0, 2), "one two three");
  EXPECT_EQ(WrapTo("one two three", 13, 2), "one two three");
  EXPECT_EQ(WrapTo("one two three", 12, 2), "one two\n  three");
  EXPECT_EQ(WrapTo("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(WrapTo("one two three", 3, 1), "one\n two\n three") << "a longer word exceeds it";
  EXPECT_EQ(WrapTo("a    b", 3, 2), "a\n  b") << "a line must not begin with blanks";
  EXPECT_EQ(WrapTo("gr\u00f6\u00dfe x", 7, 0), "gr\u00f6\u00dfe x");
  EXPECT_EQ(WrapTo("", 5, 2), "");
  EXPECT_EQ(WrapTo("   ", 5, 2), "   ");
}

class TerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("NO_COLOR");
    ::setenv("TERM", "xterm-256color", 1);
    Open(80, 24);
  }

  void Open(unsigned short columns, unsigned short rows) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = rows;
    int master = -1;
    int slave = -1;
    ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
    master_ = ScopedFd(master);
    slave_ = ScopedFd(slave);
    ASSERT_EQ(::fcntl(master, F_SETFL, O_NONBLOCK), 0);
  }

  // The output to the terminal since the last call.
  [[nodiscard]] std::string Seen() const {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(master_.get(), bytes.data(), bytes.size());
    return {bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
  }

  ScopedFd master_;
  ScopedFd slave_;
};

TEST_F(TerminalTest, ReportsItsSize) {
  Open(200, 60);
  const Screen screen = ProbeScreen(slave_.get());
  EXPECT_TRUE(screen.is_terminal);
  EXPECT_EQ(screen.columns, 200U);
  EXPECT_EQ(screen.rows, 60U);
  EXPECT_TRUE(screen.has_color);
}

TEST_F(TerminalTest, WithoutASizeIs80x24) {
  Open(0, 0);
  EXPECT_EQ(ProbeScreen(slave_.get()).columns, 80U);
  EXPECT_EQ(ProbeScreen(slave_.get()).rows, 24U);
}

TEST_F(TerminalTest, FileHasNeitherSizeNorColor) {
  const ScopedFd file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const Screen screen = ProbeScreen(file.get());
  EXPECT_FALSE(screen.is_terminal);
  EXPECT_EQ(screen.columns, 0U);
  EXPECT_FALSE(screen.has_color);
}

TEST_F(TerminalTest, NoColorWhereItIsNotWanted) {
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(ProbeScreen(slave_.get()).has_color);
  ::setenv("NO_COLOR", "", 1);  // empty counts as unset
  EXPECT_TRUE(ProbeScreen(slave_.get()).has_color);
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(ProbeScreen(slave_.get()).has_color);
  ::unsetenv("TERM");
  EXPECT_FALSE(ProbeScreen(slave_.get()).has_color);
}

TEST_F(TerminalTest, TonesAreWrittenWhereThereIsColor) {
  EXPECT_EQ(Toned(Tone::kBad, "down", {.has_color = true}), "\x1b[1;31mdown\x1b[0m");
  EXPECT_EQ(Toned(Tone::kPlain, "up", {.has_color = true}), "up");
  EXPECT_EQ(Toned(Tone::kBad, "down", {}), "down");
}

TEST_F(TerminalTest, TextIsCutAtTheScreensEdge) {
  EXPECT_EQ(FitTo("0123456789", 0), "0123456789");
  EXPECT_EQ(FitTo("0123456789", 10), "0123456789");
  EXPECT_EQ(FitTo("0123456789", 9), "012345...");
  EXPECT_EQ(FitTo("0123456789", 2), "01");
  EXPECT_EQ(FitTo("注文注文注文", 5), "注文...");
}

TEST_F(TerminalTest, ProgressIsWrittenOverAndWiped) {
  {
    ProgressLine line(slave_.get());
    line.Show("10 %");
    line.Show("11 %");  // too soon
    EXPECT_EQ(Seen(), "\r10 %\x1b[K");
  }
  EXPECT_EQ(Seen(), "\r\x1b[K");
}

TEST_F(TerminalTest, ProgressStaysOnOneLineAndEscapesControls) {
  Open(10, 24);
  ProgressLine line(slave_.get());
  line.Show("\x1b[2J 0123456789");
  EXPECT_EQ(Seen(), "\r\\x1b[2...\x1b[K");
}

TEST_F(TerminalTest, ProgressIsSilentInAFile) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const ScopedFd reader(pipe[0]);
  {
    const ScopedFd writer(pipe[1]);
    ProgressLine line(writer.get());
    line.Show("10 %");
    EXPECT_FALSE(line.is_shown());
  }
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
}

TEST(NarrowTableTest, LeavesOutTheSparestColumnsWhereThereIsNoRoom) {
  Table table({{"TAG"}, {"MODE", Align::kLeft, 2}, {"STEP", Align::kRight, 1}, {"LEFT"}});
  table.AddRow({"orders", "segment", "1000", "5"});
  EXPECT_EQ(table.Format(), "TAG     MODE     STEP  LEFT\norders  segment  1000  5\n");
  EXPECT_EQ(table.Format(27), table.Format());
  EXPECT_EQ(table.Format(26), "TAG     STEP  LEFT\norders  1000  5\n");
  EXPECT_EQ(table.Format(17), "TAG     LEFT\norders  5\n");
  EXPECT_EQ(table.Format(3), "TAG     LEFT\norders  5\n");
}

}  // namespace
}  // namespace idd::tools

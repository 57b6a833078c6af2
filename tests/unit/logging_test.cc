// SPDX-License-Identifier: Apache-2.0
//
// There is one logger for each process, so every case runs in its own process.
#include "platform/logging.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"

namespace idd::daemon::log {
namespace {

using ::testing::HasSubstr;

// The lines that `body` writes to stderr in a child.
std::vector<std::string> LinesOf(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const ScopedFd read_end(ends[0]);
  ScopedFd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(write_end.get(), STDERR_FILENO);
    body();
    ::_exit(0);
  }
  write_end.reset();
  std::string text;
  char buffer[4096];
  for (ssize_t bytes = 0; (bytes = ::read(read_end.get(), buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(bytes));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The line of text that `body` writes.
std::string TextOf(const std::function<void()>& body) {
  const std::vector<std::string> lines = LinesOf([&body] {
    Configure(Level::kInfo, Format::kText);
    body();
  });
  EXPECT_EQ(lines.size(), 1U) << ::testing::PrintToString(lines);
  return lines.empty() ? "" : lines[0];
}

TEST(LoggingTest, WarningsAndErrorsAreCountedWhetherOrNotTheyAreWritten) {
  const auto lines = LinesOf([] {
    Configure(Level::kError, Format::kText);
    for (int i = 0; i < 30; ++i) Error("store.down", {});
    Warning("access.denied", {});
    Info("store.up", {});
    const std::vector<EventCount> counts = Counts();
    Configure(Level::kInfo, Format::kText);
    Info("counted", {{"down", CountOf("store.down")},
                     {"denied", CountOf("access.denied")},
                     {"up", CountOf("store.up")},
                     {"events", counts.size()},
                     {"left_out", SuppressedLines()}});
  });
  ASSERT_EQ(lines.size(), 21U);
  EXPECT_THAT(lines.back(), HasSubstr("down=30 denied=1 up=0 events=2 left_out=10"));
}

TEST(LoggingTest, TextLineHasTimeLevelEventAndFields) {
  const std::string line = TextOf([] {
    Info("lease.granted", {{"tag", "orders"}, {"base", 1}, {"limit", std::uint64_t{1001}}});
  });
  const std::regex expected(
      R"(^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info lease\.granted tag=orders base=1 limit=1001$)");
  EXPECT_TRUE(std::regex_match(line, expected)) << line;
}

// As under the service manager: the variable names the actual stream.
void PretendJournal(const char* inode_of_another = "") {
  struct stat info {};
  ASSERT_EQ(::fstat(STDERR_FILENO, &info), 0);
  ::setenv(
      "JOURNAL_STREAM",
      (std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) + inode_of_another).c_str(),
      1);
}

TEST(LoggingTest, JournalGetsThePriorityOfEachLineAndNoSecondTime) {
  const auto lines = LinesOf([] {
    PretendJournal();
    Configure(Level::kDebug, Format::kText);
    Debug("d", {});
    Info("i", {{"tag", "orders"}});
    Warning("w", {});
    Error("e", {});
  });
  EXPECT_EQ(lines, (std::vector<std::string>{"<7>debug d", "<6>info i tag=orders", "<4>warning w",
                                             "<3>error e"}));
  const auto json = LinesOf([] {
    PretendJournal();
    Configure(Level::kInfo, Format::kJson);
    Error("e", {});
  });
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0].substr(0, 4), "<3>{");
}

TEST(LoggingTest, StreamThatIsNotTheJournalsGetsTimes) {
  const auto lines = LinesOf([] {
    PretendJournal("0");
    Configure(Level::kInfo, Format::kText);
    Info("i", {});
  });
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].substr(0, 2), "20") << lines[0];
}

TEST(LoggingTest, JsonLineIsOneDocumentWithNumbersAsNumbers) {
  const auto lines = LinesOf([] {
    Configure(Level::kInfo, Format::kJson);
    Error("store.down", {{"error", "disk \"full\"\n"}, {"failures", 3}});
  });
  ASSERT_EQ(lines.size(), 1U);
  const auto document = nlohmann::json::parse(lines[0], nullptr, false);
  ASSERT_TRUE(document.is_object()) << lines[0];
  EXPECT_EQ(document["event"], "store.down");
  EXPECT_EQ(document["level"], "error");
  EXPECT_EQ(document["error"], "disk \"full\"\n");
  EXPECT_EQ(document["failures"], 3);
  EXPECT_TRUE(document["time"].is_string());
}

TEST(LoggingTest, ValueCanNeitherBeginALineNorForgeAField) {
  const std::string line = TextOf([] {
    Info("e",
         {{"a", "x\n2026-01-01 info forged tag=root"}, {"b", "1 c=2"}, {"d", ""}, {"f", "\"q\""}});
  });
  EXPECT_THAT(line,
              HasSubstr(R"( a="x\n2026-01-01 info forged tag=root" b="1 c=2" d="" f="\"q\"")"));
}

// Regression: a value was not quoted if it contained only an escape character.
TEST(LoggingTest, ValueCannotSendControlCharactersToATerminal) {
  const std::string line = TextOf([] {
    Info("e", {{"a", "\x1b[2J"}, {"b", "\x07"}, {"c", "\x0b"}});
  });
  EXPECT_TRUE(std::none_of(line.begin(), line.end(), [](unsigned char c) {
    return c < 0x20 || c == 0x7f;
  })) << line;
}

// Regression: every character beyond ASCII was escaped, so a name in Cyrillic or Chinese could be
// neither read nor searched for.
TEST(LoggingTest, NamesInAnyScriptAreWrittenAsTheyAre) {
  for (const Format format : {Format::kText, Format::kJson}) {
    const auto lines = LinesOf([format] {
      Configure(Level::kInfo, format);
      Info("e", {{"tag", "заказы-注文-\U0001f680"}, {"error", "no tag 'Bestellungen für Köln'"}});
    });
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_NE(lines[0].find("заказы-注文-\U0001f680"), std::string::npos) << lines[0];
    EXPECT_NE(lines[0].find("\"no tag 'Bestellungen für Köln'\""), std::string::npos) << lines[0];
  }
}

TEST(LoggingTest, CharactersThatHideOrReverseTextAndInvalidBytesAreEscaped) {
  const std::string line = TextOf([] {
    Info("e", {{"bidi", "a\u202eb"},
               {"letter_mark", "\u061c"},
               {"zero_width", "\u200b"},
               {"c1", "\u009b2J"},
               {"line", "\u2028"},
               {"invalid", "\xc3("},
               {"wide_space", "\u3000"}});
  });
  EXPECT_THAT(line,
              HasSubstr(R"(bidi="a\u202eb" letter_mark="\u061c" zero_width="\u200b" )"
                        R"(c1="\u009b2J" line="\u2028" invalid="\ufffd(" wide_space="\u3000")"));
}

TEST(LoggingTest, MalformedUtf8IsReplacedNotFatal) {
  const auto body = [](Format format) {
    return LinesOf([format] {
      Configure(Level::kInfo, format);
      Info("e", {{"a", "\xff\xfe \x80"}});
    });
  };
  EXPECT_EQ(body(Format::kText).size(), 1U);
  const auto json = body(Format::kJson);
  ASSERT_EQ(json.size(), 1U);
  EXPECT_TRUE(nlohmann::json::accept(json[0])) << json[0];
}

TEST(LoggingTest, PercentAndBracesAreNoFormat) {
  EXPECT_THAT(TextOf([] { Info("e", {{"a", "%v{}{0}%n"}}); }), HasSubstr("a=%v{}{0}%n"));
}

TEST(LoggingTest, LevelsBelowTheConfiguredOneAreSilent) {
  const auto write_all = [] {
    Debug("d", {});
    Info("i", {});
    Warning("w", {});
    Error("e", {});
  };
  for (const auto& [level, lines] :
       {std::pair{Level::kDebug, 4U}, std::pair{Level::kWarning, 2U}}) {
    const auto written = LinesOf([&, level = level] {
      Configure(level, Format::kText);
      write_all();
    });
    EXPECT_EQ(written.size(), lines);
  }
  EXPECT_EQ(LinesOf([&] {
              Configure(Level::kInfo, Format::kText);
              SetLevel(Level::kError);
              write_all();
            }).size(),
            1U);
  EXPECT_EQ(LinesOf(write_all).size(), 3U) << "before Configure: text from info on";
}

TEST(LoggingTest, EventThatLastsWritesOneLineAndCountsTheRest) {
  const auto lines = LinesOf([] {
    Configure(Level::kInfo, Format::kText);
    for (int i = 0; i < 50; ++i) Error("accept.failed", {{"i", i}}, Pace::kSeldom);
    std::this_thread::sleep_for(std::chrono::milliseconds(1050));
    Error("accept.failed", {{"i", 50}}, Pace::kSeldom);
    FlushSuppressed(false);
    FlushSuppressed(true);
  });
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], HasSubstr("accept.failed i=0"));
  EXPECT_THAT(lines[1], HasSubstr("log.suppressed of=accept.failed suppressed=50"));
}

TEST(LoggingTest, OneEventWritesTwentyLinesASecondAndCountsTheRest) {
  std::vector<std::string> lines;
  MonotonicTime began;
  do {  // repeats if the 500 lines may have taken longer than a second
    began = MonotonicClock::now();
    lines = LinesOf([] {
      Configure(Level::kInfo, Format::kText);
      for (int i = 0; i < 500; ++i) Info("noisy", {{"i", i}});
      Info("other", {});
      std::this_thread::sleep_for(std::chrono::milliseconds(1050));
      Info("noisy", {{"i", 1000}});
      Info("noisy", {{"i", 1001}});
    });
  } while (MonotonicClock::now() - began >= std::chrono::seconds(2));
  ASSERT_EQ(lines.size(), 23U) << "20, another event's line, and the second's first two";
  EXPECT_NE(lines[20].find("other"), std::string::npos);
  EXPECT_NE(lines[21].find("i=1000 suppressed=480"), std::string::npos) << lines[21];
  EXPECT_EQ(lines[22].find("suppressed"), std::string::npos) << lines[22];
}

TEST(LoggingTest, SuppressedLinesAreReportedAtTheEndWhenNoneFollows) {
  const auto lines = LinesOf([] {
    Configure(Level::kInfo, Format::kText);
    for (int i = 0; i < 60; ++i) Info("lease.handed_back", {{"i", i}});
    FlushSuppressed(false);  // within the second: another line may still come
    FlushSuppressed(true);
    FlushSuppressed(true);
  });
  ASSERT_EQ(lines.size(), 21U);
  EXPECT_THAT(lines.back(), HasSubstr("log.suppressed of=lease.handed_back suppressed=40"));
}

TEST(LoggingTest, EndlessNumberOfEventsIsStillWritten) {
  const auto lines = LinesOf([] {
    Configure(Level::kInfo, Format::kText);
    for (int i = 0; i < 1000; ++i) Info("event." + std::to_string(i), {});
  });
  EXPECT_EQ(lines.size(), 1000U);
}

TEST(LoggingTest, LinesOfManyThreadsDoNotMix) {
  const auto lines = LinesOf([] {
    Configure(Level::kInfo, Format::kJson);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 200; ++i) {
          Info("event." + std::to_string(i),
               {{"text", std::string(100, static_cast<char>('a' + t))}});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(lines.size(), 800U);
  for (const std::string& line : lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
}

}  // namespace
}  // namespace idd::daemon::log

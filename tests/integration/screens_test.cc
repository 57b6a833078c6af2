// SPDX-License-Identifier: Apache-2.0
//
// The screens of idctl in a terminal, captured with tmux. To add a screen, add a line to kScreens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/child_process.h"
#include "support/daemon_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::HasSubstr;
using ::testing::Not;

struct Size {
  int columns;
  int rows;
};

struct ScreenCase {
  const char* command;
  bool is_full;         // fills the screen until the user quits
  const char* awaited;  // shown when the screen is ready
  const char* column;   // title of a column of numbers, one for each tag; nullptr: none
  int least_columns;    // of lines that cannot be left out; narrower terminals wrap them
};

constexpr ScreenCase kScreens[] = {
    {"top --interval 0.2", true, "orders", "RATE/S", 1},
    {"status", false, "orders", "RATE/S", 72},
    {"top --all-hosts --interval 0.2", true, "hosts     1: 1 live", nullptr, 1},
    {"status --all-hosts", false, "orders", nullptr, 40},
    {"top --once", false, "orders", "RATE/S", 72},
    {"doctor", false, "healthy: ", nullptr, 60},
};

// The output of a command line; throws HarnessError unless it exits 0.
std::string OutputOf(const std::vector<std::string>& argv) {
  ChildProcess child({.argv = argv, .environment = {}});
  const std::optional<int> status = child.WaitFor(Patience(10s));
  Require(status == 0, argv[1] + ": " + child.stderr_text());
  return child.stdout_text();
}

// A tmux server with one window; its socket is in the test's folder.
class Tmux {
 public:
  Tmux(std::string socket, Size size, const std::string& locale) : socket_(std::move(socket)) {
    // A shell without output of its own: only idctl's output is visible.
    static_cast<void>(
        Do({"-f", "/dev/null", "new-session", "-d", "-x", std::to_string(size.columns), "-y",
            std::to_string(size.rows), "env LC_ALL=" + locale + " PS1=$ sh"}));
    static_cast<void>(Do({"set-option", "-g", "remain-on-exit", "on"}));
  }
  ~Tmux() {
    try {
      static_cast<void>(Do({"kill-server"}));
    } catch (const HarnessError&) {  // it has ended already
    }
  }
  Tmux(const Tmux&) = delete;
  Tmux& operator=(const Tmux&) = delete;

  [[nodiscard]] std::string Do(const std::vector<std::string>& arguments) const {
    std::vector<std::string> argv = {"/usr/bin/tmux", "-S", socket_};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return OutputOf(argv);
  }
  void Type(const std::string& line) const {
    static_cast<void>(Do({"send-keys", "-l", line}));
    Press("Enter");
  }
  void Press(const std::string& key) const { static_cast<void>(Do({"send-keys", key})); }
  void Resize(Size size) const {
    static_cast<void>(
        Do({"resize-window", "-x", std::to_string(size.columns), "-y", std::to_string(size.rows)}));
  }
  // The screen's lines. With `escapes`, they include colours as escape sequences.
  [[nodiscard]] std::string Seen(bool escapes = false) const {
    return escapes ? Do({"capture-pane", "-p", "-e"}) : Do({"capture-pane", "-p"});
  }
  // The screen once it no longer changes, and the same with the lines joined that the terminal had
  // to wrap.
  [[nodiscard]] std::pair<std::string, std::string> SeenAndUnwrapped() const {
    const std::string mark = "== unwrapped ==\n";
    const std::vector<std::string> capture = {
        "capture-pane", "-p", ";", "display-message", "-p", "== unwrapped ==", ";",
        "capture-pane", "-p", "-J"};
    std::string before;
    std::string both = Do(capture);
    (void)WaitUntil(Patience(5s), [&] {
      before = std::exchange(both, Do(capture));
      return both == before;
    });
    const std::size_t at = both.find(mark);
    Require(at != std::string::npos, "tmux shows no mark:\n" + both);
    return {both.substr(0, at), both.substr(at + mark.size())};
  }
  [[nodiscard]] bool WaitFor(const std::string& text) const {
    return WaitUntil(Patience(15s), [&] { return Seen().find(text) != std::string::npos; });
  }
  [[nodiscard]] bool IsAlternate() const {
    return Do({"display-message", "-p", "#{alternate_on}"}).front() == '1';
  }

 private:
  std::string socket_;
};

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
  }
  return lines;
}

std::size_t Characters(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U;
  }));
}

class Screens : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access("/usr/bin/tmux", X_OK) != 0) GTEST_SKIP() << "tmux is not installed";
    host_.daemon.Start();
    for (const char* tag : {"orders", "users.eu", "a.tag.with.a.longer.name"}) {
      host_.idctl.CreateTag(tag, 1000);
      static_cast<void>(host_.idctl.Claim(tag, 200));
    }
  }
  [[nodiscard]] std::string Command(const std::string& command) const {
    return IdctlBinary() + " --socket " + host_.daemon.socket() + " " + command;
  }
  [[nodiscard]] std::unique_ptr<Tmux> Open(Size size, const std::string& locale = "C.UTF-8") const {
    // Each server has its own socket: an ending server still exists for a moment after its last
    // answer.
    static int servers = 0;
    const std::string socket = dir_.File("tmux" + std::to_string(++servers));
    auto tmux = std::make_unique<Tmux>(socket, size, locale);
    Require(tmux->WaitFor("$"), "no shell in tmux");
    // The look of the prompt and of the command line does not matter.
    tmux->Type("PS1=; clear");
    Require(WaitUntil(Patience(5s), [&] { return tmux->Seen().find('$') == std::string::npos; }),
            "the prompt stays");
    return tmux;
  }
  // Shows the screen and waits until it is complete. The previous screen may show the same text,
  // and the shell echoes the command line, so the awaited text must occur in neither.
  void Show(const Tmux& tmux, const ScreenCase& screen) const {
    static int shown = 0;
    const std::string number = std::to_string(++shown);
    tmux.Type("clear; " + Command(screen.command) +
              (screen.is_full ? "" : "; echo; echo 'READY'" + number));
    if (screen.is_full) {
      ASSERT_TRUE(WaitUntil(Patience(15s), [&] { return tmux.IsAlternate(); })) << tmux.Seen();
    } else {
      ASSERT_TRUE(tmux.WaitFor("READY" + number)) << tmux.Seen();
    }
    ASSERT_TRUE(tmux.WaitFor(screen.awaited)) << tmux.Seen();
  }

  const TempDir dir_;
  Host host_{dir_};
};

// No line is wrapped or cut at the edge, and no escape sequence is shown as text.
void ExpectWhole(const Tmux& tmux, const std::string& what) {
  const auto [seen, unwrapped] = tmux.SeenAndUnwrapped();
  EXPECT_EQ(LinesOf(seen), LinesOf(unwrapped)) << what << ": a line is wrapped\n" << seen;
  EXPECT_THAT(seen, Not(HasSubstr("\x1b"))) << what;
  for (const char* rest : {"[0m", "[32m", "[?1049", "\xef\xbf\xbd"}) {
    EXPECT_THAT(seen, Not(HasSubstr(rest))) << what << ": an escape remains\n" << seen;
  }
}

// The numbers of a column end below the end of its title.
void ExpectAligned(const std::string& seen, const std::string& title, const std::string& what) {
  std::size_t end = 0;
  for (const std::string& line : LinesOf(seen)) {
    const std::size_t at = line.find(title);
    if (end == 0) {
      if (at != std::string::npos) end = Characters(line.substr(0, at)) + title.size();
      continue;
    }
    const bool is_tag = line.rfind("orders", 0) == 0 || line.rfind("users.eu", 0) == 0;
    if (!is_tag) continue;
    std::size_t byte = 0;
    for (std::size_t seen_characters = 0; byte < line.size(); ++byte) {
      const bool begins = (static_cast<unsigned char>(line[byte]) & 0xc0U) != 0x80U;
      if (begins && ++seen_characters > end) break;
    }
    ASSERT_GT(byte, 0U);
    EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(line[byte - 1])))
        << what << ": " << title << " and its numbers\n"
        << seen;
    EXPECT_TRUE(byte == line.size() || line[byte] == ' ') << what << ": " << title << "\n" << seen;
  }
  EXPECT_NE(end, 0U) << what << ": no " << title << "\n" << seen;
}

TEST_F(Screens, FitEveryTerminal) {
  for (const Size size : {Size{80, 24}, Size{200, 60}, Size{132, 43}, Size{60, 15}, Size{40, 8}}) {
    const auto tmux = Open(size);
    for (const ScreenCase& screen : kScreens) {
      if (size.columns < screen.least_columns || (size.rows < 15 && !screen.is_full)) continue;
      const std::string what = std::string(screen.command) + " at " + std::to_string(size.columns) +
                               "x" + std::to_string(size.rows);
      ASSERT_NO_FATAL_FAILURE(Show(*tmux, screen)) << what;
      ExpectWhole(*tmux, what);
      EXPECT_EQ(tmux->IsAlternate(), screen.is_full) << what;
      const std::string seen = tmux->SeenAndUnwrapped().first;
      if (screen.column != nullptr) ExpectAligned(seen, screen.column, what);
      if (screen.column != nullptr && size.columns >= 72) ExpectAligned(seen, "AVAILABLE", what);
      if (!screen.is_full) continue;
      tmux->Press("q");
      ASSERT_TRUE(WaitUntil(Patience(10s), [&] { return !tmux->IsAlternate(); })) << what;
    }
  }
}

TEST_F(Screens, TopFollowsTheTerminalsSize) {
  const auto tmux = Open({80, 24});
  ASSERT_NO_FATAL_FAILURE(Show(*tmux, kScreens[0]));
  tmux->Resize({200, 60});
  EXPECT_TRUE(tmux->WaitFor("FALLBACKS")) << tmux->Seen();
  ExpectWhole(*tmux, "after growing");
  tmux->Resize({30, 6});
  EXPECT_TRUE(tmux->WaitFor("too small: 30x6")) << tmux->Seen();
  tmux->Resize({80, 24});
  EXPECT_TRUE(tmux->WaitFor("COVERED")) << tmux->Seen();
  ExpectWhole(*tmux, "after shrinking");
}

// Every way to quit restores the previous screen, the terminal's echo and the cursor.
TEST_F(Screens, TopLeavesTheTerminalAsItWas) {
  for (const std::string way : {"q", "C-c", "C-\\", "TERM"}) {
    const auto tmux = Open({80, 24});
    tmux->Type("stty -a > " + dir_.File("before"));
    tmux->Type("echo before-it");
    ASSERT_TRUE(tmux->WaitFor("before-it"));
    tmux->Type("sh -c 'echo $$ > " + dir_.File("pid") + "; exec " + Command("top") + "'");
    ASSERT_TRUE(tmux->WaitFor("orders"));
    if (way == "TERM") {
      std::string pid = ReadFile(dir_.File("pid"));
      ASSERT_EQ(::kill(static_cast<pid_t>(std::stol(pid)), SIGTERM), 0);
    } else {
      tmux->Press(way);
    }
    ASSERT_TRUE(WaitUntil(Patience(10s), [&] { return !tmux->IsAlternate(); })) << way;
    tmux->Type("echo ended with $?; stty -a > " + dir_.File("after") + "; echo writ''ten");
    ASSERT_TRUE(tmux->WaitFor("written")) << way << "\n" << tmux->Seen();
    EXPECT_EQ(ReadFile(dir_.File("after")), ReadFile(dir_.File("before"))) << way;
    EXPECT_THAT(tmux->Seen(), HasSubstr("before-it")) << way;
    const bool is_quiet = way == "q" || way == "C-c";
    const std::string status = is_quiet ? "0" : way == "TERM" ? "143" : "131";
    EXPECT_THAT(tmux->Seen(), HasSubstr("ended with " + status)) << way;
    EXPECT_EQ(tmux->Do({"display-message", "-p", "#{cursor_flag}"}), "1\n") << way;
  }
}

TEST_F(Screens, TopStopsAndComesBack) {
  const auto tmux = Open({80, 24});
  tmux->Type("set -m");
  tmux->Type(Command("top --interval 0.2"));
  ASSERT_TRUE(tmux->WaitFor("orders"));
  tmux->Press("C-z");
  ASSERT_TRUE(WaitUntil(Patience(10s), [&] { return !tmux->IsAlternate(); }));
  tmux->Type("echo the-sh''ell");
  ASSERT_TRUE(tmux->WaitFor("the-shell")) << tmux->Seen();
  tmux->Resize({100, 30});
  tmux->Type("fg");
  ASSERT_TRUE(WaitUntil(Patience(10s), [&] { return tmux->IsAlternate(); }));
  EXPECT_TRUE(tmux->WaitFor("q quit")) << tmux->Seen();
  EXPECT_TRUE(tmux->WaitFor("PROMISE")) << "the new width\n" << tmux->Seen();
  tmux->Press("q");
  EXPECT_TRUE(WaitUntil(Patience(10s), [&] { return !tmux->IsAlternate(); }));
}

TEST_F(Screens, KeysSortFilterAndScroll) {
  for (int i = 10; i < 50; ++i) host_.idctl.CreateTag("z-" + std::to_string(i), 100);
  const auto tmux = Open({80, 24});
  ASSERT_NO_FATAL_FAILURE(Show(*tmux, kScreens[0]));
  tmux->Press("N");
  EXPECT_TRUE(tmux->WaitFor("by name, 1-18 of 43")) << tmux->Seen();
  tmux->Press("End");
  EXPECT_TRUE(tmux->WaitFor("26-43 of 43")) << tmux->Seen();
  EXPECT_THAT(tmux->Seen(), HasSubstr("z-49"));
  tmux->Press("r");
  EXPECT_TRUE(tmux->WaitFor("by name, reversed")) << tmux->Seen();
  tmux->Press("/");
  tmux->Press("z");
  tmux->Press("-");
  tmux->Press("2");
  EXPECT_TRUE(tmux->WaitFor("filter: z-2_")) << tmux->Seen();
  tmux->Press("Enter");
  EXPECT_TRUE(tmux->WaitFor("filter 'z-2', 1-10 of 10")) << tmux->Seen();
  EXPECT_THAT(tmux->Seen(), Not(HasSubstr("orders")));
}

TEST_F(Screens, TopGoesOnWhileTheDaemonIsDownAndFindsItAgain) {
  const auto tmux = Open({80, 24});
  ASSERT_NO_FATAL_FAILURE(Show(*tmux, kScreens[0]));
  host_.daemon.Kill();
  EXPECT_TRUE(tmux->WaitFor("daemon gone since")) << tmux->Seen();
  EXPECT_THAT(tmux->Seen(), HasSubstr("orders"));
  ExpectWhole(*tmux, "without a daemon");
  host_.daemon.Start();
  EXPECT_TRUE(tmux->WaitFor("idd ")) << tmux->Seen();
  EXPECT_TRUE(WaitUntil(Patience(10s), [&] {
    return tmux->Seen().find("daemon gone") == std::string::npos;
  })) << tmux->Seen();
  EXPECT_THAT(tmux->Seen(), HasSubstr("orders"));
}

TEST_F(Screens, ColoursAndBlocksComeWhereTheTerminalHasThem) {
  struct Variant {
    const char* environment;
    const char* locale;
    bool has_color;
    bool has_blocks;
  };
  for (const Variant& variant :
       {Variant{"TERM=screen-256color", "C.UTF-8", true, true},
        Variant{"NO_COLOR=1", "C.UTF-8", false, true},
        Variant{"TERM=screen-256color", "C", true, false},
        Variant{"TERM=screen-256color", "xx_NOWHERE.UTF-8", true, false}}) {
    const std::string what = std::string(variant.environment) + " " + variant.locale;
    const auto tmux = Open({80, 24}, variant.locale);
    tmux->Type("clear; env " + std::string(variant.environment) + " " +
               Command("top --interval 0.1"));
    ASSERT_TRUE(tmux->WaitFor("orders")) << what;
    const char* const curve = variant.has_blocks ? "\u2581\u2581" : "__";
    EXPECT_TRUE(tmux->WaitFor(curve)) << what << "\n" << tmux->Seen();
    const std::string escapes = tmux->Seen(true);
    EXPECT_EQ(escapes.find("[32m") != std::string::npos, variant.has_color) << what << escapes;
  }
}

TEST_F(Screens, UnknownAndDumbTerminalsGetASnapshot) {
  for (const char* type : {"TERM=no-such-terminal", "TERM=", "TERM=dumb"}) {
    const auto tmux = Open({80, 24});
    tmux->Type(std::string("clear; env ") + type + " " + Command("top --timeout 60000") +
               "; echo ended with $?");
    EXPECT_TRUE(tmux->WaitFor("ended with 0")) << type << "\n" << tmux->Seen();
    EXPECT_THAT(tmux->Seen(), HasSubstr("orders"));
    ExpectWhole(*tmux, type);
  }
}

// Without a terminal.

TEST_F(Screens, PipeGetsOneSnapshotWithRates) {
  const IdctlResult result = host_.idctl.Run({"top", "--interval", "0.3"});
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_GE(result.duration, 300ms) << "rates need an interval";
  EXPECT_THAT(result.out, HasSubstr("\norders "));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
}

TEST_F(Screens, JsonIsOneDocumentOrOneALine) {
  const nlohmann::json one = host_.idctl.Json({"top", "--interval", "0.2"});
  EXPECT_EQ(one.at("daemon").at("state"), "up");
  EXPECT_EQ(one.at("database").at("state"), "up");
  EXPECT_EQ(one.at("sum").at("tags"), 3);
  ASSERT_EQ(one.at("tags").size(), 3U);
  const IdctlResult three =
      host_.idctl.Run({"top", "--json", "--interval", "0.1", "--count", "3", "--filter", "orders"});
  EXPECT_EQ(three.exit_status, 0) << three.err;
  const std::vector<std::string> lines = LinesOf(three.out);
  ASSERT_EQ(lines.size(), 3U);
  for (const std::string& line : lines) {
    const nlohmann::json document = nlohmann::json::parse(line);
    ASSERT_EQ(document.at("tags").size(), 1U);
    const nlohmann::json& tag = document.at("tags").at(0);
    EXPECT_EQ(tag.at("tag"), "orders");
    EXPECT_EQ(tag.at("claimed"), 200);
    EXPECT_EQ(tag.at("observed"), true);
    EXPECT_EQ(tag.at("state"), "ok");
  }
}

TEST_F(Screens, ClosedPipeEndsItQuietly) {
  ChildProcess shell({.argv = {"/bin/bash", "-c",
                               "set -o pipefail; " + Command("top --interval 0.1 --count 100000") +
                                   " | head -n 1; echo ${PIPESTATUS[0]}"},
                      .environment = {}});
  EXPECT_TRUE(shell.WaitFor(Patience(20s)).has_value()) << "it does not end";
  EXPECT_EQ(shell.stderr_text(), "");
  EXPECT_THAT(shell.stdout_text(), HasSubstr("\n1\n"));
}

TEST_F(Screens, WrongUsageAndNoDaemonAreReported) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"top", "--interval", "0.09"},
                                             {"top", "--interval", "nan"},
                                             {"top", "--interval", "1e3"},
                                             {"top", "--interval", ""},
                                             {"top", "--sort", "size"},
                                             {"top", "--count", "0"},
                                             {"top", "orders"}}) {
    EXPECT_EQ(host_.idctl.Run(arguments).exit_status, 2) << arguments.back();
  }
  host_.daemon.Stop();
  const IdctlResult gone = host_.idctl.Run({"top"});
  EXPECT_EQ(gone.exit_status, 4);
  EXPECT_EQ(gone.out, "");
  EXPECT_THAT(gone.err, HasSubstr("idctl: top: "));
}

}  // namespace
}  // namespace idd::harness

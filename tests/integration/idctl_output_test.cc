// SPDX-License-Identifier: Apache-2.0
//
// Every command of idctl on every kind of output: a pipe without a reader, a full disk, a narrow
// terminal, one without colours, a locale that does not exist.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <regex>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/daemon_process.h"
#include "support/host.h"
#include "support/pseudo_terminal.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

// Repeatable commands that succeed and print something on a host with the tag "orders". A command
// of idctl that is missing here fails EveryCommandIsHere.
const std::vector<Words>& Commands() {
  static const std::vector<Words> commands = {{"tag", "list"},
                                              {"tag", "show", "orders"},
                                              {"tag", "export", "orders"},
                                              {"tag", "set", "orders", "--description", "x"},
                                              {"claim", "orders", "-n", "20000"},
                                              {"status"},
                                              {"status", "orders"},
                                              {"status", "--all-hosts"},
                                              {"top", "--all-hosts", "--once"},
                                              {"lease", "list"},
                                              {"host", "list"},
                                              {"audit"},
                                              {"audit", "orders"},
                                              {"whois", "orders", "1"},
                                              {"client", "list"},
                                              {"config", "show"},
                                              {"log-level"},
                                              {"doctor", "--all"},
                                              {"metrics"},
                                              {"store", "init"},
                                              {"top", "--once", "--interval", "0.1"},
                                              {"bench", "orders", "--seconds", "1"}};
  return commands;
}
// Commands that need another set-up; other tests cover them.
const std::vector<std::string> kElsewhere = {"apply",  "import", "drain",
                                             "resume", "decode", "witness"};

std::string Text(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

class IdctlOutput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    host_ = new Host(*dir_);
    host_->daemon.Start();
    // Lets the tag hold what a bench's rate needs; otherwise the doctor reports a problem after a
    // bench.
    host_->idctl.Do({"tag", "create", "orders", "--step", "1000000000", "--outage-tolerance", "1",
                     "--max-prefetch", "1000000000000"});
    static_cast<void>(host_->idctl.Claim("orders", 10));
  }
  static void TearDownTestSuite() {
    delete host_;
    delete dir_;
  }

  struct Ended {
    int exit_status;
    std::string out;
    std::string err;
  };
  // `environment`: arguments of env(1).
  static Ended Run(const Words& words, const Words& environment, int out_fd = -1, int err_fd = -1) {
    ChildOptions child;
    child.argv = {"/usr/bin/env", "-u", "NO_COLOR", "TERM=xterm-256color"};
    child.argv.insert(child.argv.end(), environment.begin(), environment.end());
    child.argv.insert(child.argv.end(), {IdctlBinary(), "--socket", host_->daemon.socket()});
    child.argv.insert(child.argv.end(), words.begin(), words.end());
    child.stdout_fd = out_fd;
    child.stderr_fd = err_fd;
    ChildProcess process(child);
    const int status = process.WaitFor(Patience(30s)).value_or(-1);
    return {status, process.stdout_text(), process.stderr_text()};
  }
  // The text on a terminal, including standard error.
  static std::string OnTerminal(const Words& words, unsigned short columns,
                                const Words& environment = {}) {
    PseudoTerminal terminal(columns, 24);
    const Ended ended = Run(words, environment, terminal.fd(), terminal.fd());
    EXPECT_EQ(ended.exit_status, 0) << Text(words);
    return terminal.Finish();
  }

  inline static TempDir* dir_ = nullptr;
  inline static Host* host_ = nullptr;
};

// The text with every digit replaced by 0, as numbers change while the tests run.
std::string WithoutNumbers(std::string text) {
  text = std::regex_replace(text, std::regex("[0-9a-f]{32}"), "token");
  text = std::regex_replace(
      text, std::regex("[0-9]+([.][0-9]+)?(e[-+]?[0-9]+)?[a-z]?( [0-9]+[a-z])?"), "0");
  return std::regex_replace(text, std::regex(" +"), " ");
}

// The names of the commands in a help text.
Words Listed(const std::string& help) {
  const std::size_t begin = help.find("\nSubcommands:");
  if (begin == std::string::npos) return {};
  const std::string list = help.substr(begin);
  const std::regex line("\n  ([a-z-]+) +[A-Z]");
  Words names;
  for (std::sregex_iterator it(list.begin(), list.end(), line), end; it != end; ++it) {
    names.push_back((*it)[1]);
  }
  return names;
}

TEST_F(IdctlOutput, EveryCommandIsHere) {
  const Words names = Listed(Run({"--help"}, {}).out);
  EXPECT_GE(names.size(), 10U);
  for (const std::string& name : names) {
    bool is_here = std::count(kElsewhere.begin(), kElsewhere.end(), name) > 0;
    for (const Words& words : Commands()) is_here = is_here || words[0] == name;
    EXPECT_TRUE(is_here) << name << " is missing in this test's lists";
  }
}

TEST_F(IdctlOutput, EveryHelpHasAnExample) {
  std::vector<Words> to_see = {{}};
  std::size_t examples = 0;
  while (!to_see.empty()) {
    const Words command = to_see.back();
    to_see.pop_back();
    Words words = command;
    words.emplace_back("--help");
    const auto [exit_status, help, err] = Run(words, {});
    EXPECT_EQ(exit_status, 0) << Text(words);
    EXPECT_EQ(err, "") << Text(words);
    for (const std::string& name : Listed(help)) {
      to_see.push_back(command);
      to_see.back().push_back(name);
    }
    const std::size_t example = help.find("\nExample: idctl");
    ASSERT_NE(example, std::string::npos) << Text(words);
    EXPECT_THAT(help.substr(example), HasSubstr(Text(command)));
    ++examples;
  }
  EXPECT_GE(examples, 15U);
}

// A reader that stops early is no error, and idctl prints nothing about it.
TEST_F(IdctlOutput, ClosedPipeEndsItQuietly) {
  for (const Words& words : Commands()) {
    std::array<int, 2> pipe{};
    RequireErrno(::pipe2(pipe.data(), O_CLOEXEC) == 0, "pipe2");
    ::close(pipe[0]);
    const Ended ended = Run(words, {}, pipe[1]);
    ::close(pipe[1]);
    EXPECT_EQ(ended.exit_status, 1) << Text(words);
    EXPECT_EQ(ended.err, "") << Text(words);
  }
}

TEST_F(IdctlOutput, FullDiskIsAnError) {
  for (const Words& words : Commands()) {
    const ScopedFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    const Ended ended = Run(words, {}, full.get());
    EXPECT_EQ(ended.exit_status, 1) << Text(words);
    EXPECT_THAT(ended.err, ContainsRegex("^idctl: [^\n]*No space left on device[^\n]*\n$"))
        << Text(words);
  }
}

TEST_F(IdctlOutput, LocaleChangesNothingThatIsNotDrawn) {
  for (const Words& words : Commands()) {
    Ended plain = Run(words, {"LC_ALL=C"});
    for (const char* const locale : {"LC_ALL=xx_XX.nonsense", "LC_ALL=de_DE.UTF-8", "LC_ALL="}) {
      Ended other = Run(words, {locale});
      const auto is_same = [&] { return WithoutNumbers(other.out) == WithoutNumbers(plain.out); };
      // Some lines disappear when a tag becomes idle, which may happen between the two runs; a
      // difference by locale would stay.
      (void)WaitUntil(Patience(30s), [&] {
        if (is_same()) return true;
        plain = Run(words, {"LC_ALL=C"});
        other = Run(words, {locale});
        return is_same();
      });
      EXPECT_EQ(plain.exit_status, 0) << Text(words) << plain.err;
      EXPECT_EQ(other.exit_status, 0) << Text(words) << other.err;
      EXPECT_EQ(WithoutNumbers(other.out), WithoutNumbers(plain.out)) << Text(words);
      EXPECT_EQ(other.err, "") << Text(words);
    }
  }
}

TEST_F(IdctlOutput, PipeGetsNoEscapeAndJsonIsOneDocument) {
  for (const Words& words : Commands()) {
    const Ended text = Run(words, {});
    EXPECT_THAT(text.out, Not(HasSubstr("\x1b"))) << Text(words);
    EXPECT_EQ(text.err, "") << Text(words);
    Words as_json = {"--json"};
    as_json.insert(as_json.end(), words.begin(), words.end());
    const Ended json = Run(as_json, {});
    EXPECT_EQ(json.exit_status, 0) << Text(words);
    EXPECT_FALSE(nlohmann::json::parse(json.out, nullptr, false).is_discarded()) << Text(words);
  }
}

bool HasInteger(const nlohmann::json& value) {
  if (value.is_number_integer()) return true;
  return value.is_structured() && std::any_of(value.begin(), value.end(), HasInteger);
}

// The largest id of every tag, 2^63-2, was read as 2^63 by jq and JavaScript.
TEST_F(IdctlOutput, JsonStringsHasTheDigitsOfEveryInteger) {
  for (const Words& words : Commands()) {
    Words as_strings = {"--json-strings"};
    as_strings.insert(as_strings.end(), words.begin(), words.end());
    const Ended ended = Run(as_strings, {});
    EXPECT_EQ(ended.exit_status, 0) << Text(words);
    const nlohmann::json document = nlohmann::json::parse(ended.out, nullptr, false);
    ASSERT_FALSE(document.is_discarded()) << Text(words);
    EXPECT_FALSE(HasInteger(document)) << Text(words) << ended.out;
  }
  const Ended shown = Run({"--json-strings", "tag", "show", "orders"}, {});
  EXPECT_THAT(shown.out, HasSubstr("\"max_id\": \"9223372036854775806\""));
}

TEST_F(IdctlOutput, TerminalWithoutColorsGetsNone) {
  for (const Words& words : Commands()) {
    for (const char* const variable : {"NO_COLOR=1", "TERM=dumb"}) {
      EXPECT_THAT(OnTerminal(words, 80, {variable}), Not(ContainsRegex("\x1b\\[[0-9;]*m")))
          << Text(words) << variable;
    }
  }
}

// Columns without room are left out or continue in the next line; nothing is cut off, nothing
// fails.
TEST_F(IdctlOutput, NarrowTerminalLosesNoTag) {
  for (const Words& words : Commands()) {
    const Words names_no_tag = {"host",   "claim",  "whois",     "client",
                                "doctor", "config", "log-level", "store"};
    if (std::count(names_no_tag.begin(), names_no_tag.end(), words[0]) > 0) continue;
    for (const unsigned short columns : std::initializer_list<unsigned short>{1, 10, 40, 80, 200}) {
      EXPECT_THAT(OnTerminal(words, columns), AnyOf(HasSubstr("orders"), HasSubstr("raw add")))
          << Text(words) << columns;
    }
  }
}

// On standard error, rewritten in one line and erased at the end.
TEST_F(IdctlOutput, LongWorkShowsHowFarItIs) {
  PseudoTerminal terminal(80, 24);
  const Ended ended = Run({"bench", "orders", "--seconds", "3"}, {}, -1, terminal.fd());
  EXPECT_EQ(ended.exit_status, 0);
  const std::string seen = terminal.Finish();
  EXPECT_THAT(seen, ContainsRegex("idctl bench orders: [1-9][0-9] % of 3s"));
  EXPECT_THAT(seen, ::testing::EndsWith("\r\x1b[K"));
  EXPECT_THAT(seen, Not(HasSubstr("\n")));
  EXPECT_THAT(ended.out, Not(HasSubstr("%")));
}

}  // namespace
}  // namespace idd::harness

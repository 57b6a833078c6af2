// SPDX-License-Identifier: Apache-2.0
//
// idctl config show and log-level: the configuration of a running idd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "support/child_process.h"
#include "support/pseudo_terminal.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

class ConfigShow : public HostWithUsers {
 protected:
  void Start(const std::string& config) {
    Configure(config);
    host_.daemon.Start();
  }
  // "value | source | where" of a setting, "-" for null.
  [[nodiscard]] std::string Shown(const std::string& key) const {
    const nlohmann::json document = host_.idctl.Json({"config", "show"});
    for (const auto& setting : document.at("settings")) {
      if (setting.at("key") != key) continue;
      const auto text = [&setting](const char* field) {
        return setting.at(field).is_null() ? "-" : setting.at(field).get<std::string>();
      };
      return text("value") + " | " + text("source") + " | " + text("where");
    }
    return "no setting " + key;
  }
  [[nodiscard]] std::string FileLine(int line) const {
    return "file | " + host_.daemon.options().config + ":" + std::to_string(line);
  }
};

TEST_F(ConfigShow, EverySettingHasItsSource) {
  host_.daemon.options().environment = {"IDD_LEASE_LIMIT=77"};
  host_.daemon.options().more_arguments = {"--log-format=text"};
  Start("# a comment\nmetrics_textfile = '" + dir_.File("idd.prom") +
        "'\nlease_limit = 5\n\n[limits]\nconnections_per_uid = 50\n\n" +
        Rule("'orders*', 'billing'", kAlice.uid, "access = 'shm'"));
  EXPECT_EQ(Shown("lease_limit"), "77 | environment | IDD_LEASE_LIMIT") << "it beats the file";
  EXPECT_EQ(Shown("metrics_textfile"), dir_.File("idd.prom") + " | " + FileLine(2));
  EXPECT_EQ(Shown("log_format"), "text | command line | -");
  EXPECT_EQ(Shown("metrics_listen"), "- | default | -");
  EXPECT_EQ(Shown("limits.connections_per_uid"), "50 | " + FileLine(6));
  EXPECT_EQ(Shown("limits.requests_per_second_per_uid"), "20000 | default | -");
  EXPECT_EQ(Shown("access"),
            "shm to orders*,billing for uids " + std::to_string(kAlice.uid) + " | " + FileLine(8));
  EXPECT_EQ(Shown("socket"), host_.daemon.socket() + " | command line | -");
  const std::string text = host_.idctl.Run({"config", "show"}).out;
  EXPECT_THAT(text, ::testing::StartsWith("SETTING "));
  EXPECT_THAT(text, HasSubstr("environment IDD_LEASE_LIMIT\n"));
  EXPECT_THAT(text, HasSubstr(host_.daemon.options().config + ":2\n"));
}

TEST_F(ConfigShow, HostIdIsTheOneInUse) {
  const std::string name = host_.daemon.options().host_id;
  Start("");
  EXPECT_THAT(Shown("host_id"), HasSubstr(name + " | "));
}

TEST_F(ConfigShow, ReloadedValuesAreShownAndThoseThatNeedARestartStay) {
  Start("lease_limit = 5\n");
  Reload("\nlease_limit = 6\nlog_format = 'json'\n[limits]\nconnections_per_uid = 9\n");
  EXPECT_EQ(Shown("lease_limit"), "6 | " + FileLine(2));
  EXPECT_EQ(Shown("log_format"), "text | default | -");
  EXPECT_EQ(Shown("limits.connections_per_uid"), "9 | " + FileLine(5));
  Reload("lease_limit = 'many'\n");
  EXPECT_EQ(Shown("lease_limit"), "6 | " + FileLine(2)) << "a wrong file changes nothing";
  Reload("");
  EXPECT_EQ(Shown("lease_limit"), "1000 | default | -");
}

TEST_F(ConfigShow, PasswordIsNeverShown) {
  host_.daemon.options().database = "mysql://idd:geheim@127.0.0.1:1/idd";
  host_.daemon.Start();
  const IdctlResult text = host_.idctl.Run({"config", "show"});
  EXPECT_EQ(text.exit_status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("mysql://idd@127.0.0.1:1/idd"));
  EXPECT_THAT(text.out, Not(HasSubstr("geheim")));
  EXPECT_THAT(host_.idctl.Json({"config", "show"}).dump(), Not(HasSubstr("geheim")));
  host_.daemon.Kill();
}

TEST_F(ConfigShow, OnlyAdministratorsSeeAndChangeIt) {
  Start(Rule("'*'", kAlice.uid, "access = 'shm'") + Rule("'*'", kBob.uid, "access = 'admin'"));
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"config", "show"}, {"log-level"}, {"log-level", "debug"}}) {
    const IdctlResult result = host_.idctl.As(kAlice).Run(words);
    EXPECT_EQ(result.exit_status, 6) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(host_.idctl.As(kBob).Run(words).exit_status, 0) << words[0];
  }
}

TEST_F(ConfigShow, LogLevelLastsUntilTheNextReload) {
  Start("lease_limit = 5\n");
  EXPECT_EQ(host_.idctl.Run({"log-level"}).out, "info\n");
  const std::size_t mark = host_.daemon.LogMark();
  EXPECT_EQ(host_.idctl.Run({"log-level", "debug"}).out,
            "debug, was info\nuntil idd reloads or restarts\n");
  EXPECT_THAT(host_.daemon.LogSince(mark), HasSubstr("log.level_set level=debug was=info uid=0"));
  EXPECT_EQ(Shown("log_level"), "debug | log.level | -");
  EXPECT_THAT(host_.idctl.Run({"config", "show"}).out, HasSubstr("idctl log-level\n"));
  const nlohmann::json document = host_.idctl.Json({"log-level", "error"});
  EXPECT_EQ(document.at("level"), "error");
  EXPECT_EQ(document.at("was"), "debug");
  EXPECT_THAT(host_.daemon.LogSince(mark), HasSubstr("log.level_set level=error was=debug"));
  EXPECT_EQ(host_.idctl.Run({"log-level", "loud"}).exit_status, 2);
  EXPECT_EQ(host_.idctl.Run({"log-level"}).out, "error\n");
  Reload("lease_limit = 6\n");
  EXPECT_EQ(host_.idctl.Run({"log-level"}).out, "info\n");
  EXPECT_THAT(Shown("log_level"), HasSubstr("info | "));
  host_.daemon.Stop();
  EXPECT_EQ(host_.idctl.Run({"log-level"}).exit_status, 4);
  EXPECT_EQ(host_.idctl.Run({"config", "show"}).exit_status, 4);
}

// Values and sources that do not fit beside each other are below the name; none is lost.
TEST_F(ConfigShow, NarrowTerminalGetsNarrowLines) {
  Start("metrics_textfile = '" + dir_.File(std::string(100, 'x') + ".prom") + "'\n");
  for (const unsigned short columns : std::initializer_list<unsigned short>{40, 60, 80}) {
    PseudoTerminal terminal(columns, 24);
    ChildOptions child;
    child.argv = {IdctlBinary(), "--socket", host_.daemon.socket(), "config", "show"};
    child.stdout_fd = terminal.fd();
    ChildProcess process(child);
    EXPECT_EQ(process.WaitFor(Patience(30s)), 0) << process.stderr_text();
    const std::string seen = terminal.Finish();
    std::istringstream lines(seen);
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      EXPECT_LE(line.size(), columns) << line;
    }
    for (const char* key : {"database", "limits.requests_per_second_per_uid", "20000", "default"}) {
      EXPECT_THAT(seen, HasSubstr(key));
    }
    EXPECT_GE(std::count(seen.begin(), seen.end(), 'x'), 100);
  }
}

}  // namespace
}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// idd's command line, environment and file, seen from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "support/child_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

struct Ended {
  int exit_status;
  std::string out;
  std::string err;
};

Ended RunIdd(const std::vector<std::string>& arguments) {
  ChildOptions options;
  options.argv = {IddBinary()};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  ChildProcess process(options);
  const int status = process.WaitFor(Patience(5s)).value_or(-1);
  process.Kill();
  return {status, process.stdout_text(), process.stderr_text()};
}

class IddOptions : public ::testing::Test {
 protected:
  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(IddOptions, VersionAndHelpGoToStdoutWithStatus0) {
  const Ended version = RunIdd({"--version"});
  EXPECT_EQ(version.exit_status, 0);
  EXPECT_THAT(version.out, ::testing::ContainsRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_EQ(version.err, "");
  const Ended help = RunIdd({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, HasSubstr("--check-config"));
  EXPECT_EQ(help.err, "");
}

TEST_F(IddOptions, CheckConfigTouchesNothing) {
  WriteFile(dir_.File("good.toml"), "host_id = \"checked\"\nstate_dir = \"" + dir_.File("state") +
                                        "\"\nsocket = \"" + dir_.File("sock") +
                                        "\"\ndatabase = \"sqlite:" + dir_.File("db") + "\"\n");
  const Ended good = RunIdd({"--check-config", "--config", dir_.File("good.toml")});
  EXPECT_EQ(good.exit_status, 0) << good.err;
  for (const char* name : {"state", "sock", "db"}) EXPECT_FALSE(Exists(dir_.File(name))) << name;
}

// Regression: such a rule locked the group out without a word.
TEST_F(IddOptions, CheckConfigAndStartNameTheTagsThatRulesTakeFromTheGroup) {
  const std::string file = host_.daemon.options().config;
  WriteFile(file, "[[access]]\ntags = [\"orders\"]\nusers = [1001]\naccess = \"shm\"\n");
  const Ended checked = RunIdd({"--check-config", "--config", file});
  EXPECT_EQ(checked.exit_status, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("members of group idd may not claim from 'orders'"));
  host_.daemon.Start();
  EXPECT_TRUE(host_.daemon.WaitForLogLine("access.group_left_out tags='orders'", 0, Patience(5s)))
      << host_.daemon.Log();
  host_.daemon.Stop();
}

TEST_F(IddOptions, CheckConfigReportsFilesOfTlsThatCannotBeRead) {
  const std::string missing = dir_.File("none/ca.pem");
  const Ended bad = RunIdd({"--check-config", "--config", "/dev/null", "--database",
                            "mysql://idd:x@db/idd?ssl_ca=" + missing});
  EXPECT_EQ(bad.exit_status, 2) << bad.out;
  EXPECT_THAT(bad.err, HasSubstr("ssl_ca, '" + missing));
  EXPECT_THAT(bad.err, HasSubstr("directory '" + dir_.File("none") + "' does not exist"));
}

TEST_F(IddOptions, JsonLogLinesAreJson) {
  host_.daemon.options().more_arguments = {"--log-format", "json"};
  host_.daemon.options().host_id = "quote-free";
  host_.StartWithTag("orders", 10);
  (void)host_.idctl.Claim("orders", 25);
  host_.daemon.Stop();
  std::istringstream lines(host_.daemon.Log());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << line;
    EXPECT_TRUE(parsed.contains("level")) << line;
    EXPECT_TRUE(parsed.contains("event")) << line;
  }
  EXPECT_GT(count, 1);
}

}  // namespace
}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// Flag beats variable beats file, and what is wrong is told with where it stands.
#include "options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace idd::daemon {
namespace {

class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() {
    for (const char* name :
         {"IDD_CONFIG", "IDD_DATABASE", "IDD_SOCKET", "IDD_STATE_DIR", "IDD_HOST_ID",
          "IDD_METRICS_LISTEN", "IDD_METRICS_TEXTFILE", "IDD_LOG_LEVEL", "IDD_LOG_FORMAT"}) {
      ::unsetenv(name);
    }
    Write("");
  }
  void Write(const std::string& text) const { harness::WriteFile(file_, text); }
  // With the file of the test, never that of the machine.
  [[nodiscard]] ParsedOptions Parse(std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.end(), {"--config", file_});
    return ParseOptions(arguments);
  }
  [[nodiscard]] Options Good(const std::vector<std::string>& arguments = {}) const {
    ParsedOptions parsed = Parse(arguments);
    EXPECT_TRUE(parsed.options.has_value()) << parsed.output;
    return parsed.options.value_or(Options());
  }
  void ExpectUsageError(const ParsedOptions& parsed, const std::vector<std::string>& words) const {
    EXPECT_FALSE(parsed.options.has_value());
    EXPECT_EQ(parsed.exit_status, 2) << parsed.output;
    EXPECT_TRUE(parsed.output.starts_with("idd: ")) << parsed.output;
    for (const std::string& word : words) {
      EXPECT_NE(parsed.output.find(word), std::string::npos) << parsed.output;
    }
  }

  harness::TempDir dir_;
  const std::string file_ = dir_.File("idd.toml");
};

TEST_F(OptionsTest, PathsThatCannotWorkAreUsageErrors) {
  ExpectUsageError(Parse({"--socket", "/" + std::string(108, 's')}), {"socket", "107"});
  Write("socket = \"a\\u0000b\"\n");
  ExpectUsageError(Parse(), {"socket", "NUL"});
  Write("state_dir = \"a\\u0000b\"\n");
  ExpectUsageError(Parse(), {"state-dir", "NUL"});
  ExpectUsageError(ParseOptions({"--config", dir_.File("")}), {"is a directory"});
}

TEST_F(OptionsTest, DefaultsAreThoseOfTheContract) {
  const Options options = Good();
  EXPECT_EQ(options.database, "sqlite:/var/lib/idd/idd.db");
  EXPECT_EQ(options.socket, "/run/idd/idd.sock");
  EXPECT_EQ(options.state_dir, "/var/lib/idd");
  EXPECT_EQ(options.host_id, "");
  EXPECT_EQ(options.log_level, log::Level::kInfo);
  EXPECT_EQ(options.log_format, log::Format::kText);
  EXPECT_FALSE(options.check_config);
}

TEST_F(OptionsTest, EveryOptionIsAFlag) {
  const Options options =
      Good({"--database", "sqlite:/tmp/x.db", "--socket=/tmp/s", "--state-dir", "/tmp/d",
            "--host-id", "h1", "--log-level", "debug", "--log-format", "json", "--check-config"});
  EXPECT_EQ(options.database, "sqlite:/tmp/x.db");
  EXPECT_EQ(options.socket, "/tmp/s");
  EXPECT_EQ(options.state_dir, "/tmp/d");
  EXPECT_EQ(options.host_id, "h1");
  EXPECT_EQ(options.log_level, log::Level::kDebug);
  EXPECT_EQ(options.log_format, log::Format::kJson);
  EXPECT_TRUE(options.check_config);
}

TEST_F(OptionsTest, EveryOptionIsAKeyOfTheFile) {
  Write(
      "database = \"sqlite:/tmp/f.db\"\nsocket = \"/tmp/f\"\nstate_dir = \"/tmp/fd\"\n"
      "host_id = \"f1\"\nlog_level = \"warning\"\nlog_format = \"json\"\n");
  const Options options = Good();
  EXPECT_EQ(options.database, "sqlite:/tmp/f.db");
  EXPECT_EQ(options.socket, "/tmp/f");
  EXPECT_EQ(options.state_dir, "/tmp/fd");
  EXPECT_EQ(options.host_id, "f1");
  EXPECT_EQ(options.log_level, log::Level::kWarning);
  EXPECT_EQ(options.log_format, log::Format::kJson);
  EXPECT_EQ(options.config_file, file_);
}

TEST_F(OptionsTest, LeaseLimitIsAWholeNumberWithinItsBounds) {
  EXPECT_EQ(Good({}).lease_limit, kDefaultLeasesPerSecond);
  EXPECT_EQ(Good({"--lease-limit", "20"}).lease_limit, 20U);
  for (const char* wrong : {"0", "-1", "1000001", "many", "", "5x", "99999999999999999999"}) {
    ExpectUsageError(Parse({"--lease-limit", wrong}), {"lease-limit"});
  }
  Write("lease_limit = 30\n");
  EXPECT_EQ(Good().lease_limit, 30U);
  Write("lease_limit = \"30\"\n");
  ExpectUsageError(Parse(), {"lease_limit", "whole number"});
}

TEST_F(OptionsTest, MetricsAreOffUnlessAnAddressOrAFileIsSet) {
  EXPECT_EQ(Good().metrics_listen, "");
  EXPECT_EQ(Good().metrics_textfile, "");
  for (const char* good : {"127.0.0.1:9742", "[::1]:1", "localhost:65535", "0.0.0.0:9742"}) {
    EXPECT_EQ(Good({"--metrics-listen", good}).metrics_listen, good);
  }
  Write("metrics_listen = \"[::]:80\"\nmetrics_textfile = \"/tmp/m.prom\"\n");
  EXPECT_EQ(Good().metrics_listen, "[::]:80");
  EXPECT_EQ(Good().metrics_textfile, "/tmp/m.prom");
}

TEST_F(OptionsTest, MetricsAddressOrFileOfNoSenseIsAUsageError) {
  for (const char* wrong :
       {"9742", ":9742", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1:80s", "::1:9742", "[::1]", "[127.0.0.1]:80", "[]:80",
        "host.example:80", "127.0.0.1:80,127.0.0.1:81", " 127.0.0.1:80", "+127.0.0.1:80"}) {
    ExpectUsageError(Parse({"--metrics-listen", wrong}), {"metrics-listen", wrong});
  }
  ExpectUsageError(Parse({"--metrics-textfile", "/tmp/"}), {"metrics-textfile"});
  Write("metrics_textfile = \"/tmp/a\\u0000b\"\n");
  ExpectUsageError(Parse(), {"metrics-textfile"});
}

TEST_F(OptionsTest, EveryOptionIsAVariable) {
  ::setenv("IDD_DATABASE", "sqlite:/tmp/e.db", 1);
  ::setenv("IDD_SOCKET", "/tmp/e", 1);
  ::setenv("IDD_STATE_DIR", "/tmp/ed", 1);
  ::setenv("IDD_HOST_ID", "e1", 1);
  ::setenv("IDD_LOG_LEVEL", "error", 1);
  ::setenv("IDD_LOG_FORMAT", "json", 1);
  const Options options = Good();
  EXPECT_EQ(options.database, "sqlite:/tmp/e.db");
  EXPECT_EQ(options.socket, "/tmp/e");
  EXPECT_EQ(options.state_dir, "/tmp/ed");
  EXPECT_EQ(options.host_id, "e1");
  EXPECT_EQ(options.log_level, log::Level::kError);
  EXPECT_EQ(options.log_format, log::Format::kJson);
}

TEST_F(OptionsTest, FlagBeatsVariableBeatsFile) {
  Write("socket = \"/tmp/file\"\nhost_id = \"file\"\nstate_dir = \"/tmp/file\"\n");
  ::setenv("IDD_SOCKET", "/tmp/variable", 1);
  ::setenv("IDD_HOST_ID", "variable", 1);
  const Options options = Good({"--socket", "/tmp/flag"});
  EXPECT_EQ(options.socket, "/tmp/flag");
  EXPECT_EQ(options.host_id, "variable");
  EXPECT_EQ(options.state_dir, "/tmp/file");
}

TEST_F(OptionsTest, FlagThatRepeatsTheDefaultStillBeatsTheFile) {
  Write("socket = \"/tmp/file\"\n");
  EXPECT_EQ(Good({"--socket", "/run/idd/idd.sock"}).socket, "/run/idd/idd.sock");
}

TEST_F(OptionsTest, FileMayBeNamedByTheVariable) {
  Write("host_id = \"from-file\"\n");
  ::setenv("IDD_CONFIG", file_.c_str(), 1);
  const ParsedOptions parsed = ParseOptions({});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.output;
  EXPECT_EQ(parsed.options->host_id, "from-file");
}

TEST_F(OptionsTest, ArgumentsAreKeptForAReload) {
  const Options options = Good({"--host-id", "h1"});
  EXPECT_EQ(options.arguments, (std::vector<std::string>{"--host-id", "h1", "--config", file_}));
}

TEST_F(OptionsTest, FileThatIsGivenMustBeThere) {
  ExpectUsageError(ParseOptions({"--config", dir_.File("none.toml")}), {"none.toml"});
}

TEST_F(OptionsTest, SyntaxErrorIsToldWithItsLine) {
  Write("host_id = \"h\"\nsocket = \n");
  ExpectUsageError(Parse(), {file_ + ":2:"});
}

TEST_F(OptionsTest, UnknownKeyIsToldWithItsLine) {
  Write("host_id = \"h\"\n\nsoket = \"/tmp/x\"\n");
  ExpectUsageError(Parse(), {file_ + ":3:", "soket"});
}

TEST_F(OptionsTest, ValueOfAnotherTypeIsRefused) {
  Write("socket = 5\n");
  ExpectUsageError(Parse(), {"socket", "string"});
  Write("[socket]\npath = \"x\"\n");
  ExpectUsageError(Parse(), {"socket", "string"});
}

TEST_F(OptionsTest, BadValuesAreRefusedWithTheGoodOnes) {
  ExpectUsageError(Parse({"--log-level", "loud"}), {"loud", "debug, info, warning or error"});
  ExpectUsageError(Parse({"--log-format", "xml"}), {"xml", "text or json"});
  ExpectUsageError(Parse({"--host-id", "a b"}), {"host id"});
  ExpectUsageError(Parse({"--socket", ""}), {"socket"});
  ExpectUsageError(Parse({"--state-dir", ""}), {"state-dir"});
  const ParsedOptions parsed = Parse({"--database", "postgres://user:secret@host/db"});
  ExpectUsageError(parsed, {"database", "sqlite:PATH"});
  EXPECT_EQ(parsed.output.find("secret"), std::string::npos) << "a URL may hold a password";
}

TEST_F(OptionsTest, BadValueInTheFileIsRefused) {
  Write("log_level = \"loud\"\n");
  ExpectUsageError(Parse(), {"loud"});
}

TEST_F(OptionsTest, UnknownFlagsAndStrayArgumentsAreWrongUsage) {
  ExpectUsageError(Parse({"--sokcet", "/tmp/x"}), {"--help"});
  ExpectUsageError(Parse({"start"}), {"--help"});
  ExpectUsageError(ParseOptions({"--socket"}), {"--socket"});
}

TEST_F(OptionsTest, HelpNamesEveryOptionAndEndsWell) {
  const ParsedOptions parsed = ParseOptions({"--help"});
  EXPECT_FALSE(parsed.options.has_value());
  EXPECT_EQ(parsed.exit_status, 0);
  for (const char* option :
       {"--config", "--database", "--socket", "--state-dir", "--host-id", "--lease-limit",
        "--log-level", "--log-format", "--check-config", "--version"}) {
    EXPECT_NE(parsed.output.find(option), std::string::npos) << option;
  }
}

TEST_F(OptionsTest, VersionIsOneLine) {
  const ParsedOptions parsed = ParseOptions({"--version"});
  EXPECT_FALSE(parsed.options.has_value());
  EXPECT_EQ(parsed.exit_status, 0);
  EXPECT_TRUE(parsed.output.starts_with("idd ")) << parsed.output;
  EXPECT_EQ(parsed.output.back(), '\n');
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// A flag overrides a variable, which overrides the file. An error names the place of the wrong
// value.
#include "config/options.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

// Another effective user, without access to root's files.
class AsNobody {
 public:
  AsNobody() { harness::RequireErrno(::seteuid(65534) == 0, "seteuid"); }
  ~AsNobody() { static_cast<void>(::seteuid(0)); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
};

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
  // With the test's file, never the machine's.
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
  ExpectUsageError(Parse(), {file_ + ":1: state_dir", "NUL"});
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

TEST_F(OptionsTest, InvalidMetricsAddressOrFileIsAUsageError) {
  for (const char* wrong :
       {"9742", ":9742", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1:80s", "::1:9742", "[::1]", "[127.0.0.1]:80", "[]:80",
        "host.example:80", "127.0.0.1:80,127.0.0.1:81", " 127.0.0.1:80", "+127.0.0.1:80"}) {
    ExpectUsageError(Parse({"--metrics-listen", wrong}), {"metrics-listen", wrong});
  }
  ExpectUsageError(Parse({"--metrics-textfile", "/tmp/"}), {"metrics-textfile"});
  Write("metrics_textfile = \"/tmp/a\\u0000b\"\n");
  ExpectUsageError(Parse(), {file_ + ":1: metrics_textfile"});
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

TEST_F(OptionsTest, OnlyAnAbsentDefaultFileIsNoError) {
  for (const std::string& absent : {dir_.File("none.toml"), file_ + "/idd.toml"}) {
    const ParsedOptions parsed = ParseOptions({}, absent);
    ASSERT_TRUE(parsed.options.has_value()) << parsed.output;
    EXPECT_EQ(parsed.options->config_file, "");
  }
  const std::string link = dir_.File("link.toml");
  harness::RequireErrno(::symlink(dir_.File("none.toml").c_str(), link.c_str()) == 0, "symlink");
  ExpectUsageError(ParseOptions({}, link), {link, "symbolic link to nothing"});
  const std::string loop = dir_.File("loop.toml");
  harness::RequireErrno(::symlink(loop.c_str(), loop.c_str()) == 0, "symlink");
  ExpectUsageError(ParseOptions({}, loop), {loop, "cannot read"});
  ExpectUsageError(ParseOptions({}, dir_.path()), {"is a directory"});
}

// Regression: when root had made /etc/idd accessible to itself only, idd ran on the defaults: on a
// new SQLite file, and without access rules.
TEST_F(OptionsTest, FileThatThisUserCannotReadIsAnErrorAndNotTheDefaults) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  Write("database = \"mysql://idd@db/idd\"\n");
  {
    const AsNobody nobody;
    ExpectUsageError(ParseOptions({}, file_), {file_, "Permission denied", "uid 65534"});
    ExpectUsageError(ParseOptions({"--check-config"}, file_), {file_, "Permission denied"});
    ExpectUsageError(ParseOptions({"--check-config", "--config", file_}), {"Permission denied"});
  }
  EXPECT_TRUE(ParseOptions({}, file_).options.has_value());
}

TEST_F(OptionsTest, SyntaxErrorIsReportedWithItsLine) {
  Write("host_id = \"h\"\nsocket = \n");
  ExpectUsageError(Parse(), {file_ + ":2:"});
}

TEST_F(OptionsTest, UnknownKeyIsReportedWithItsLine) {
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

TEST_F(OptionsTest, WrongValueInTheFileIsReportedWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"log_level = \"loud\"", "log_level must be debug, info, warning or error, got 'loud'"},
      {"log_format = \"xml\"", "log_format must be text or json, got 'xml'"},
      {"lease_limit = 0", "lease_limit must be a whole number from 1 to 1000000, got '0'"},
      {"host_id = \"a b\"", "host id"},
      {"host_id = \"" + std::string(65, 'h') + "\"", "got 65: "},
      {"socket = \"\"", "socket must not be empty"},
      {"socket = \"/" + std::string(108, 's') + "\"",
       "socket must have at most 107 bytes, got 109"},
      {"metrics_listen = \"9742\"", "metrics-listen must be"},
      {"metrics_textfile = \"/tmp/\"", "metrics_textfile must be the path of a file"},
      {"database = \"oracle:x\"", "sqlite:PATH"},
      {"database = \"mysql://idd@h/x?ssl_c=1\"", "unknown parameter"}};
  for (const auto& [line, words] : wrong) {
    Write("# a comment\n\n" + line + "\n");
    ExpectUsageError(Parse(), {file_ + ":3: ", words});
  }
  // An overridden value in the file must not be reported as an error of the flag.
  Write("log_level = \"loud\"\n");
  ExpectUsageError(Parse({"--log-format", "xml", "--log-level", "info"}), {"idd: log-format must"});
}

// The unit's working directory is "/", a shell's is another, so a relative path would mean two
// places.
TEST_F(OptionsTest, RelativePathInTheFileIsRefusedWithWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"socket = \"idd.sock\"", "socket must be an absolute path, as \"/run/idd/idd.sock\""},
      {"state_dir = \"./state\"", "state_dir must be an absolute path, as \"/var/lib/idd\""},
      {"metrics_textfile = \"m.prom\"", "metrics_textfile must be an absolute path"},
      {"database = \"sqlite:idd.db\"", "database must name an absolute path, as \"sqlite:/var"},
      {"database = \"mysql://idd@h/x?password_file=./pw\"", "absolute path in password_file"},
      {"database = \"mysql://idd@h/x?ssl_ca=ca.pem\"", "must have an absolute path in ssl_ca"},
      {"database = \"mysql://idd@h/x?ssl_cert=c&ssl_key=/k\"", "absolute path in ssl_cert"},
      {"database = \"mysql://idd@h/x?ssl_cert=/c&ssl_key=k\"", "absolute path in ssl_key"},
      {"database = \"mysql://idd@h/x?server_public_key=k\"", "path in server_public_key"},
      {"database = \"mysql://idd@/x?unix_socket=db.sock\"", "absolute path in unix_socket"}};
  for (const auto& [line, words] : wrong) {
    Write("\n" + line + "\n");
    ExpectUsageError(Parse(), {file_ + ":2: ", words});
  }
  Write("database = \"mysql://idd@h/x?password_file=a-credential&ssl_ca=/ca.pem\"\n");
  EXPECT_TRUE(Parse().options.has_value());
}

TEST_F(OptionsTest, RelativePathOfAFlagOrAVariableIsOfTheWorkingDirectory) {
  ::setenv("IDD_STATE_DIR", "state", 1);
  const Options options = Good({"--database", "sqlite:idd.db", "--socket", "idd.sock"});
  EXPECT_EQ(options.database, "sqlite:idd.db");
  EXPECT_EQ(options.socket, "idd.sock");
  EXPECT_EQ(options.state_dir, "state");
}

TEST_F(OptionsTest, CheckConfigReadsThePasswordFile) {
  const std::string password = dir_.File("password");
  Write("\ndatabase = \"mysql://idd@h/x?password_file=" + password + "\"\n");
  EXPECT_TRUE(Parse().options.has_value()) << "idd must start without its database";
  ExpectUsageError(Parse({"--check-config"}), {file_ + ":2: database", password, "cannot be read"});
  for (const char* empty : {"", "\nsecond line\n"}) {
    harness::WriteFile(password, empty);
    ExpectUsageError(Parse({"--check-config"}), {file_ + ":2: ", password, "first line is empty"});
  }
  harness::WriteFile(password, "secret\n");
  const ParsedOptions good = Parse({"--check-config"});
  EXPECT_TRUE(good.options.has_value()) << good.output;
  EXPECT_NE(good.output.find("is valid (" + file_), std::string::npos) << good.output;
  EXPECT_EQ(good.output.find("secret"), std::string::npos);
  if (::geteuid() != 0) return;
  harness::RequireErrno(::chmod(dir_.path().c_str(), 0755) == 0, "chmod");
  harness::RequireErrno(::chmod(file_.c_str(), 0644) == 0, "chmod");
  harness::RequireErrno(::chmod(password.c_str(), 0600) == 0, "chmod");
  const AsNobody nobody;
  ExpectUsageError(Parse({"--check-config"}), {file_ + ":2: ", password, "uid 65534, cannot use"});
}

TEST_F(OptionsTest, CheckConfigSaysWhatItCannotLookAt) {
  ::unsetenv("CREDENTIALS_DIRECTORY");
  Write("database = \"mysql://idd@h/x?password_file=idd-db\"\n");
  const ParsedOptions unchecked = Parse({"--check-config"});
  EXPECT_TRUE(unchecked.options.has_value());
  EXPECT_NE(unchecked.output.find("not checked: the credential 'idd-db'"), std::string::npos);
  ::setenv("CREDENTIALS_DIRECTORY", dir_.path().c_str(), 1);
  ExpectUsageError(Parse({"--check-config"}), {file_ + ":1: ", "cannot be read"});
  ::unsetenv("CREDENTIALS_DIRECTORY");
  const ParsedOptions no_file = ParseOptions({"--check-config"}, dir_.File("none.toml"));
  EXPECT_NE(no_file.output.find("is valid (no file"), std::string::npos);
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
        "--log-level", "--log-format", "--check-config", "--version", "sqlite:", "mysql:"}) {
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

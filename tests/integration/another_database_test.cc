// SPDX-License-Identifier: Apache-2.0
//
// Hosts that have been granted ids begin with a database that knows nothing of them: another one,
// or an empty one in place of one that is lost. `idctl store init` makes it. No id comes twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/db_server.h"
#include "support/host.h"
#include "support/service_manager_stand_in.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"
#include "support/two_hosts.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kLong = "60000";  // milliseconds: longer than a witness watches

// Expects every id once, whatever host and database it came from.
class GivenIds {
 public:
  // What `idctl claim` printed.
  void Keep(const IdctlResult& result) {
    for (const std::uint64_t id : ParseIds(result.out)) {
      EXPECT_TRUE(ids_.insert(id).second) << id << " came twice";
    }
  }
  // Claims until one fails; returns that one.
  IdctlResult Exhaust(const Idctl& idctl) {
    for (int i = 0; i < 200; ++i) {
      IdctlResult result = idctl.Run({"claim", "orders", "-n", "20"});
      Keep(result);
      if (result.exit_status != 0) return result;
    }
    throw HarnessError("ids keep coming");
  }
  // Waits for ids, through terms and restarts.
  [[nodiscard]] bool Claim(const Idctl& idctl, const std::string& count) {
    return WaitUntil(Patience(60s), [&] {
      const IdctlResult result = idctl.Run({"--timeout", "5000", "claim", "orders", "-n", count});
      Keep(result);
      return result.exit_status == 0;
    });
  }
  [[nodiscard]] std::uint64_t newest() const { return *ids_.rbegin(); }

 private:
  std::set<std::uint64_t> ids_;
};

// The blocks of shell commands of docs/mysql.md below that heading.
std::vector<std::string> CommandsBelow(const std::string& heading) {
  const std::string page = ReadFile(IDD_TEST_MYSQL_PAGE);
  const std::size_t begin = page.find("\n#" + heading + "\n");
  Require(begin != std::string::npos, "there is no " + heading);
  const std::string text = page.substr(begin, page.find("\n## ", begin + 1) - begin);
  const std::string fence = "\n```sh\n";
  std::vector<std::string> blocks;
  for (std::size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at + 1)) {
    const std::size_t first = at + fence.size();
    blocks.push_back(text.substr(first, text.find("\n```\n", first) - first));
  }
  return blocks;
}

// A host that began with a SQLite file, and now comes to another file or to a server.
class OtherDatabase : public ::testing::TestWithParam<const char*> {
 protected:
  OtherDatabase() { host_.daemon.options().manager = &manager_; }

  void SetUp() override {
    if (is_mysql()) server_.Start();
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "orders", "--step", "70", "--description", "of the shop"});
    ASSERT_TRUE(ids_.Claim(host_.idctl, "10"));
  }
  [[nodiscard]] static bool is_mysql() { return std::string(GetParam()) == "mysql"; }
  // As `systemctl restart` does, after the file of the configuration was changed.
  void RestartOnTheOther() {
    host_.daemon.options().database = is_mysql() ? server_.Url() : dir_.File("other.db");
    host_.daemon.Restart();
  }
  [[nodiscard]] nlohmann::json Database() const {
    return host_.idctl.Json({"status"}).at("database");
  }

  const TempDir dir_;
  DbServer server_{dir_};
  ServiceManagerStandIn manager_{dir_};
  CleanHost host_{dir_};
  GivenIds ids_;
};

INSTANTIATE_TEST_SUITE_P(Stores, OtherDatabase, ::testing::Values("sqlite", "mysql"), StoreName);

TEST_P(OtherDatabase, IsMadeOnlyWhenAnOperatorSaysSoAndThenGetsTheTagsOfTheOld) {
  const std::string file = dir_.File("tags.toml");
  WriteFile(file, host_.idctl.Run({"tag", "export"}).out);
  RestartOnTheOther();
  ASSERT_TRUE(WaitUntil(Patience(20s), [this] {
    return Database().at("state") == "down" && !Database().at("last_error").is_null();
  }));
  EXPECT_THAT(Database().at("last_error").get<std::string>(), HasSubstr("idctl store init"));
  EXPECT_EQ(ids_.Exhaust(host_.idctl).exit_status, 5);

  const nlohmann::json made = host_.idctl.Json({"store", "init"});
  EXPECT_EQ(made.at("created"), true);
  EXPECT_THAT(made.at("missing_tags"), ElementsAre("orders"));
  EXPECT_EQ(Database().at("state"), "up");
  const nlohmann::json again = host_.idctl.Json({"store", "init"});
  EXPECT_EQ(again.at("created"), false) << "it is repeated without harm";
  EXPECT_EQ(host_.idctl.Run({"claim", "orders"}).exit_status, 3) << "nothing is leased before";

  const std::uint64_t before = ids_.newest();
  EXPECT_THAT(host_.idctl.Run({"apply", "-f", file}).out, HasSubstr("+ orders"));
  ASSERT_TRUE(ids_.Claim(host_.idctl, "500"));
  EXPECT_GE(ids_.newest(), before + 500);
  const nlohmann::json tag = host_.idctl.Json({"tag", "show", "orders"}).at("tag");
  EXPECT_EQ(tag.at("step"), 70);
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  EXPECT_THAT(host_.idctl.Json({"store", "init"}).at("missing_tags"), IsEmpty());
}

// The tag's refusal outlived its cause: claims went on failing with NO_SUCH_TAG, which programs do
// not try again.
TEST_P(OtherDatabase, TagThatIsCreatedAgainIsNotRefusedAnyMore) {
  RestartOnTheOther();
  host_.idctl.Do({"store", "init"});
  EXPECT_EQ(ids_.Exhaust(host_.idctl).exit_status, 3);
  host_.idctl.CreateTag("orders", 70);
  const IdctlResult next = host_.idctl.Run({"--timeout", kLong, "claim", "orders", "-n", "10"});
  EXPECT_EQ(next.exit_status, 0) << next.err;
  ids_.Keep(next);
}

// README's quick start, then "Set-up" of mysql.md, word by word: the store stayed down.
TEST_P(OtherDatabase, CommandsOfThePageMoveTheTagsOfAHostToAServer) {
  if (!is_mysql()) GTEST_SKIP() << "the page is about servers";
  const std::vector<std::string> blocks = CommandsBelow("## From SQLite to a server");
  ASSERT_EQ(blocks.size(), 2U);
  const auto run = [this](const std::string& commands) {
    ChildOptions child;
    child.argv = {"/bin/sh", "-euc", "cd " + dir_.path() + "\n" + commands};
    const std::string folder = IdctlBinary().substr(0, IdctlBinary().rfind('/'));
    child.environment = {"PATH=" + folder + ":/usr/bin:/bin",
                         "IDD_SOCKET=" + host_.daemon.socket()};
    ChildProcess process(child);
    EXPECT_EQ(process.WaitFor(Patience(60s)), 0) << process.stdout_text() << process.stderr_text();
    return process.stdout_text();
  };
  run(blocks[0]);
  RestartOnTheOther();
  EXPECT_THAT(run(blocks[1]), HasSubstr("+ orders"));
  ASSERT_TRUE(ids_.Claim(host_.idctl, "500"));
  EXPECT_EQ(host_.idctl.Json({"tag", "show", "orders"}).at("tag").at("description"), "of the shop");
}

// Three hosts whose database is lost.
class LostDatabase : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.Start();
    for (Host* host : {&a_, &b_, &c_}) {
      host->daemon.options().database = server_.Url();
      host->daemon.Start();
    }
    a_.idctl.CreateTag("orders", 100);
    for (Host* host : {&a_, &b_, &c_}) ASSERT_TRUE(ids_.Claim(host->idctl, "50"));
  }
  void LoseDatabase() {
    server_.Session("").Execute("DROP DATABASE idd");
    server_.Session("").Execute("CREATE DATABASE idd");
  }
  [[nodiscard]] static bool Init(const Host& host) {
    return WaitUntil(Patience(30s), [&host] {
      return host.idctl.Run({"--json", "store", "init"}).out.find("\"created\": true") !=
             std::string::npos;
    });
  }

  // What operations.md asks for before the tags are created: each host has pushed what it knows.
  [[nodiscard]] static bool AllAreLive(const Host& host) {
    return WaitUntil(Patience(30s), [&host] {
      const IdctlResult list = host.idctl.Run({"--json", "host", "list"});
      if (list.exit_status != 0) return false;
      const nlohmann::json hosts = nlohmann::json::parse(list.out).at("hosts");
      return hosts.size() == 3 && std::all_of(hosts.begin(), hosts.end(), [](const auto& one) {
               return one.at("condition") == "live" && !one.at("version").is_null();
             });
    });
  }

  const TempDir dir_;
  DbServer server_{dir_};
  CleanHost a_{dir_, "host-a"};
  CleanHost b_{dir_, "host-b"};
  CleanHost c_{dir_, "host-c"};
  GivenIds ids_;
};

// Host a, the first witness, knows only what was granted before it stopped.
TEST_F(LostDatabase, HostThatKnowsLittleMakesItAgainAndTheOthersPushWhatTheyKnow) {
  a_.daemon.Stop();
  for (int i = 0; i < 20; ++i) {
    for (Host* host : {&b_, &c_}) ASSERT_TRUE(ids_.Claim(host->idctl, "200"));
  }
  LoseDatabase();
  a_.daemon.Start();
  ASSERT_TRUE(Init(a_));
  ASSERT_TRUE(AllAreLive(a_));
  a_.idctl.CreateTag("orders", 100);
  for (int i = 0; i < 4; ++i) {
    for (Host* host : {&a_, &b_, &c_}) EXPECT_TRUE(ids_.Claim(host->idctl, "300"));
  }
  EXPECT_TRUE(a_.idctl.Audit("orders").ok);
}

TEST_F(LostDatabase, HostsThatRunGoOnAboveTheIdsOfAllOfThem) {
  ASSERT_TRUE(ids_.Claim(c_.idctl, "2000"));
  LoseDatabase();
  ASSERT_TRUE(Init(b_));
  ASSERT_TRUE(AllAreLive(b_));
  b_.idctl.CreateTag("orders", 100);
  for (int i = 0; i < 4; ++i) {
    for (Host* host : {&a_, &b_, &c_}) EXPECT_TRUE(ids_.Claim(host->idctl, "300"));
  }
  EXPECT_TRUE(a_.idctl.Audit("orders").ok);
}

}  // namespace
}  // namespace idd::harness

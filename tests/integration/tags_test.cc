// SPDX-License-Identifier: Apache-2.0
//
// Tags through idctl: its replies, and the guarantees for the ids over the life of a tag.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "idclient/idclient.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Tags : public ::testing::Test {
 protected:
  void SetUp() override { host_.daemon.Start(); }

  // One line that reports the failure, for scripts and for people.
  static void ExpectOneLine(const IdctlResult& result) {
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }

  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(Tags, AbsentDaemonExits4WithoutAWait) {
  host_.daemon.Stop();
  const std::vector<std::vector<std::string>> commands = {
      {"claim", "orders"}, {"status"},       {"tag", "list"}, {"tag", "create", "a"},
      {"lease", "list"},   {"host", "list"}, {"audit"},       {"claim", "orders", "--json"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.begin(), {"--timeout", "60000"});
    const IdctlResult result = host_.idctl.Run(command);
    EXPECT_EQ(result.exit_status, 4) << command[2] << ": " << result.err;
    EXPECT_LT(result.duration, 30s) << command[2] << " waited for its deadline";
    EXPECT_THAT(result.err, AllOf(HasSubstr(host_.daemon.socket()), HasSubstr("; ")));
    ExpectOneLine(result);
  }
}

TEST_F(Tags, KilledDaemonsSocketExits4WithoutAWait) {
  host_.daemon.Kill();
  const IdctlResult result = host_.idctl.Run({"claim", "orders", "--timeout", "60000"});
  EXPECT_EQ(result.exit_status, 4) << result.err;
  EXPECT_LT(result.duration, 30s) << "it waited for its deadline";
}

TEST_F(Tags, CreateShowListAgree) {
  host_.idctl.Do({"tag", "create", "orders", "--step", "50", "--start", "1000", "--max-id", "5000",
                  "--description", "order ids"});
  const nlohmann::json shown = host_.idctl.Json({"tag", "show", "orders"}).at("tag");
  EXPECT_EQ(shown.at("step"), 50);
  EXPECT_EQ(shown.at("next_id"), 1000);
  EXPECT_EQ(shown.at("max_id"), 5000);
  EXPECT_EQ(shown.at("mode"), "segment");
  EXPECT_EQ(shown.at("description"), "order ids");
  EXPECT_TRUE(shown.at("returned").empty());
  const nlohmann::json listed = host_.idctl.Json({"tag", "list"}).at("tags");
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].at("tag"), "orders");
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 1000U);
}

// Regression: a tag named "*" could be created, which no rule can name without every other tag.
TEST_F(Tags, NameThatRulesUseAsAPatternIsRefusedForANewTag) {
  for (const char* name : {"*", "**", "orders.*", "order?", "orders#7"}) {
    const IdctlResult result = host_.idctl.Run({"tag", "create", name});
    EXPECT_EQ(result.exit_status, 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(std::string("'") + name + "'"));
    ExpectOneLine(result);
    WriteFile(dir_.File("tags.toml"), std::string("[[tag]]\nname = \"") + name + "\"\n");
    EXPECT_EQ(host_.idctl.Run({"apply", "-f", dir_.File("tags.toml")}).exit_status, 2) << name;
  }
  EXPECT_TRUE(host_.idctl.Json({"tag", "list"}).at("tags").empty());
  for (const char* name :
       {"-n", "--help", ".", "..", "a/b", "a,b", "'", "\"", "#", "a#b", "$(id)"}) {
    host_.idctl.Do({"tag", "create", "--", name});
    const IdctlResult claim = host_.idctl.Run({"--timeout", "60s", "claim", "--", name});
    EXPECT_EQ(claim.out, "1\n") << name << ": " << claim.err;
  }
}

TEST_F(Tags, NameThatRulesUseAsAPatternIsServedAndReportedIfTheTableHasIt) {
  host_.Database().Execute("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES ('*', 5, 10)");
  EXPECT_EQ(host_.idctl.Claim("*").front(), 5U);
  EXPECT_TRUE(host_.daemon.WaitForLogLine("tag.name_is_pattern tag=\\*", 0, Patience(5s)))
      << host_.daemon.Log();
  EXPECT_EQ(host_.idctl.Json({"tag", "list"}).at("tags").at(0).at("tag"), "*");
  host_.idctl.Do({"tag", "delete", "*", "--force"});
  EXPECT_TRUE(host_.idctl.Json({"tag", "list"}).at("tags").empty());
}

TEST_F(Tags, CreateOfAnExistingTagExits7AndChangesNothing) {
  host_.idctl.CreateTag("orders", 50);
  (void)host_.idctl.Claim("orders", 3);
  for (const char* format : {"--timeout=60000", "--json"}) {
    const IdctlResult result = host_.idctl.Run({format, "tag", "create", "orders", "--step", "7"});
    EXPECT_EQ(result.exit_status, 7) << result.err;
    EXPECT_THAT(result.err, HasSubstr("exists already"));
    ExpectOneLine(result);
  }
  EXPECT_EQ(host_.idctl.Json({"tag", "show", "orders"}).at("tag").at("step"), 50);
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 4U);
}

TEST_F(Tags, CreateIfAbsentSucceedsIfTheTagHasTheSettings) {
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"tag", "create", "orders", "--if-absent"});
    return host_.idctl.Run(more);
  };
  EXPECT_THAT(run({"--step", "50", "--start", "10"}).out, HasSubstr("created tag 'orders'"));
  EXPECT_EQ(host_.idctl.Claim("orders", 3).front(), 10U);
  // The next id has moved on, and settings that are not given do not matter.
  for (const std::vector<std::string>& same :
       {std::vector<std::string>{},
        {"--step", "50"},
        {"--start", "10"},
        {"--mode", "segment"},
        {"--outage-tolerance", "10m", "--max-prefetch", "1g", "--description", ""}}) {
    const IdctlResult again = run(same);
    EXPECT_EQ(again.exit_status, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("kept existing tag 'orders'"));
    EXPECT_THAT(again.out, HasSubstr("step 50"));
  }
  const nlohmann::json document = nlohmann::json::parse(run({"--step", "50", "--json"}).out);
  EXPECT_FALSE(document.at("created"));
  EXPECT_EQ(document.at("tag").at("step"), 50);
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 13U);
  host_.idctl.Do({"tag", "delete", "orders", "--force"});
  EXPECT_TRUE(nlohmann::json::parse(run({"--step", "7", "--json"}).out).at("created"));
}

TEST_F(Tags, CreateIfAbsentExits7AndNamesTheSettingsThatDiffer) {
  host_.idctl.CreateTag("orders", 50);
  host_.idctl.Do({"tag", "create", "events", "--mode", "snowflake", "--epoch", "2024-05-01"});
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"orders", "--step", "7"}, "step is 50, not 7"},
      {{"orders", "--step", "50", "--max-id", "10k"}, "max_id is 9223372036854775806, not 10000"},
      {{"orders", "--mode", "ticket"}, "mode is segment, not ticket"},
      {{"orders", "--start", "10"}, "start is 1, not 10"},
      {{"orders", "--outage-tolerance", "2h"}, "outage_tolerance is 10m, not 2h"},
      {{"orders", "--description", "x"}, "description is not set, not x"},
      {{"events", "--mode", "snowflake", "--epoch", "2024-05-02"},
       "epoch is 2024-05-01, not 2024-05-02"},
      {{"events", "--mode", "snowflake", "--layout", "39/16/8", "--unit", "10ms"},
       "layout is 41/10/12, not 39/16/8, unit is 1ms, not 10ms"}};
  for (const auto& [words, difference] : cases) {
    std::vector<std::string> command = {"tag", "create", "--if-absent"};
    command.insert(command.end(), words.begin(), words.end());
    const IdctlResult result = host_.idctl.Run(command);
    EXPECT_EQ(result.exit_status, 7) << difference << result.err;
    EXPECT_THAT(result.err, HasSubstr("exists already with other settings: " + difference));
    ExpectOneLine(result);
  }
  EXPECT_EQ(host_.idctl.Json({"tag", "show", "orders"}).at("tag").at("step"), 50);
}

TEST_F(Tags, MisspeltNamesGetASuggestionInASecondLine) {
  for (const char* tag : {"orders", "invoices"}) host_.idctl.CreateTag(tag, 50);
  struct Case {
    std::vector<std::string> words;
    int exit_status;
    std::string suggestion;  // empty: none
  };
  const std::vector<Case> cases = {{{"statsu"}, 2, "idctl status"},
                                   {{"tga", "list"}, 2, "idctl tag"},
                                   {{"tag", "lsit"}, 2, "idctl tag list"},
                                   {{"tag", "create", "x", "--stpe", "5"}, 2, "--step"},
                                   {{"tag", "create", "x", "--max_id=5"}, 2, "--max-id"},
                                   {{"status", "--jsno"}, 2, "--json"},
                                   {{"frobnicate"}, 2, ""},
                                   {{"tag", "list", "--frobnicate"}, 2, ""},
                                   {{"status", "a", "b"}, 2, ""},
                                   {{"tag", "show", "order"}, 3, "orders"},
                                   {{"tag", "set", "oredrs", "--step", "7"}, 3, "orders"},
                                   {{"tag", "delete", "Orders", "--force"}, 3, "orders"},
                                   {{"tag", "export", "orders", "invoice"}, 3, "invoices"},
                                   {{"claim", "invocies"}, 3, "invoices"},
                                   {{"status", "ordres"}, 3, "orders"},
                                   {{"drain", "ordres"}, 3, "orders"},
                                   {{"resume", "ordres"}, 3, "orders"},
                                   {{"claim", "nobody"}, 3, ""}};
  for (const Case& one : cases) {
    const IdctlResult result = host_.idctl.Run(one.words);
    EXPECT_EQ(result.exit_status, one.exit_status) << result.err;
    EXPECT_EQ(result.out, "");
    const std::string second = result.err.substr(result.err.find('\n') + 1);
    EXPECT_EQ(second,
              one.suggestion.empty() ? "" : "idctl: did you mean '" + one.suggestion + "'?\n")
        << result.err;
  }
}

TEST_F(Tags, CountsAndTimesTakeSuffixes) {
  host_.idctl.Do({"tag", "create", "orders", "--step", "10k", "--max-step", "1t", "--max-prefetch",
                  "2g", "--max-id", "10m", "--start", "1k", "--outage-tolerance", "2h"});
  const nlohmann::json tag = host_.idctl.Json({"tag", "show", "orders"}).at("tag");
  EXPECT_EQ(tag.at("step"), 10'000);
  EXPECT_EQ(tag.at("max_step"), 1'000'000'000'000);
  EXPECT_EQ(tag.at("max_prefetch"), 2'000'000'000);
  EXPECT_EQ(tag.at("max_id"), 10'000'000);
  EXPECT_EQ(tag.at("next_id"), 1'000);
  EXPECT_EQ(tag.at("outage_tolerance_s"), 7'200);
  host_.idctl.Do({"tag", "set", "orders", "--outage-tolerance", "90"});
  EXPECT_EQ(host_.idctl.Json({"tag", "show", "orders"}).at("tag").at("outage_tolerance_s"), 90);
  const IdctlResult claimed = host_.idctl.Run({"claim", "orders", "-n", "1k", "--timeout", "60s"});
  EXPECT_EQ(claimed.exit_status, 0) << claimed.err;
  EXPECT_EQ(std::count(claimed.out.begin(), claimed.out.end(), '\n'), 1000);
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--step", "10h"},
                                                {"--step", "10K"},
                                                {"--step", "1.5k"},
                                                {"--outage-tolerance", "10k"},
                                                {"--outage-tolerance", "8d"},
                                                {"--outage-tolerance", "1500ms"}}) {
    const IdctlResult result = host_.idctl.Run({"tag", "set", "orders", wrong[0], wrong[1]});
    EXPECT_EQ(result.exit_status, 2) << wrong[1];
    EXPECT_THAT(result.err, HasSubstr("'" + wrong[1] + "' is not a"));
    ExpectOneLine(result);
  }
}

// Each option, and its name in the document of `tag create --json`.
TEST_F(Tags, HelpOfCreateShowsTheDefaultsThatANewTagHas) {
  const std::string help = host_.idctl.Run({"tag", "create", "--help"}).out;
  const nlohmann::json tag = host_.idctl.Json({"tag", "create", "orders"}).at("tag");
  const auto shown = [&](const std::string& option) {
    const std::size_t begin = help.find("  " + option + " ");
    // CLI11 shows `N=1000`, and since 2.4 `N [1000]`.
    const std::size_t value = help.find_first_of("=[\n", begin);
    if (begin == std::string::npos || help[value] == '\n') return std::string("none");
    return help.substr(value + 1, help.find_first_of(" ]\n", value) - value - 1);
  };
  const std::vector<std::pair<std::string, std::string>> options = {
      {"--step", "step"},
      {"--max-id", "max_id"},
      {"--access", "access"},
      {"--order", "order"},
      {"--lane-block", "lane_block"},
      {"--refill", "refill"},
      {"--outage-tolerance", "outage_tolerance_s"},
      {"--max-prefetch", "max_prefetch"},
      {"--max-step", "max_step"},
      {"--start", "next_id"},
      {"--mode", "mode"}};
  for (const auto& [option, key] : options) {
    const nlohmann::json value = tag.at(key);
    EXPECT_EQ(shown(option), value.is_string() ? value.get<std::string>() : value.dump()) << option;
  }
  EXPECT_THAT(host_.idctl.Run({"tag", "set", "--help"}).out,
              Not(AnyOf(HasSubstr("=1000"), HasSubstr("[1000]"))))
      << "an option that is not given changes nothing";
}

TEST_F(Tags, HelpOfCreateBeginsWithTheThreeOptionsThatPeopleNeedFirst) {
  const std::string help = host_.idctl.Run({"tag", "create", "--help"}).out;
  const std::size_t first = help.find("\nOptions people need first:\n");
  const std::size_t more = help.find("\nMore:\n");
  ASSERT_NE(first, std::string::npos) << help;
  ASSERT_NE(more, std::string::npos) << help;
  std::vector<std::size_t> places;
  for (const char* option : {"\n  --step ", "\n  --mode ", "\n  --description ", "\nMore:\n",
                             "\n  -h,--help ", "\n  --max-id "}) {
    places.push_back(help.find(option));
  }
  EXPECT_LT(first, places.front());
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end())) << help;
  const std::string shown = help.substr(first, more - first);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '-'), 6) << "three options: " << shown;
}

TEST_F(Tags, PathThatIsNotASocketIsCalledSo) {
  const std::string file = dir_.File("a-file");
  WriteFile(file, "");
  for (const char* command : {"status", "doctor"}) {
    const IdctlResult result = host_.idctl.Run({"--socket", file, command});
    EXPECT_EQ(result.exit_status, 4) << command;
    EXPECT_THAT(result.out + result.err, HasSubstr("not a socket")) << command;
    EXPECT_THAT(result.out + result.err, Not(HasSubstr("no process listens"))) << command;
    EXPECT_THAT(result.out + result.err, Not(HasSubstr("has ended"))) << command;
  }
}

TEST_F(Tags, AreIsolatedFromOneAnother) {
  host_.idctl.CreateTag("orders", 10);
  host_.idctl.CreateTag("Orders", 10);
  EXPECT_EQ(host_.idctl.Claim("orders", 25).back(), 25U);
  EXPECT_EQ(host_.idctl.Claim("Orders").front(), 1U);
}

TEST_F(Tags, SpaceThatIsUsedUpEndsWithExit5AndEveryIdOnce) {
  host_.idctl.Do({"tag", "create", "small", "--step", "10", "--start", "1", "--max-id", "25"});
  const IdctlResult result = host_.idctl.Run({"claim", "small", "-n", "40"});
  EXPECT_EQ(result.exit_status, 5) << result.err;
  const std::vector<std::uint64_t> ids = ParseIds(result.out);
  ASSERT_EQ(ids.size(), 25U);
  for (std::uint64_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], i + 1);
  EXPECT_EQ(host_.idctl.Run({"claim", "small"}).exit_status, 5);
  host_.idctl.Do({"tag", "set", "small", "--max-id", "30"});
  EXPECT_TRUE(WaitUntil(Patience(10s), [this] {
    return host_.idctl.Run({"claim", "small"}).out == "26\n";
  }));
}

TEST_F(Tags, DeletedAndRecreatedTagNeverRepeatsAnId) {
  std::set<std::uint64_t> seen;
  for (int round = 0; round < 4; ++round) {
    host_.idctl.CreateTag("orders", 10);
    for (const std::uint64_t id : host_.idctl.Claim("orders", 25)) {
      EXPECT_TRUE(seen.insert(id).second) << id << " again in round " << round;
    }
    host_.idctl.Do({"tag", "delete", "orders", "--force"});
    EXPECT_EQ(host_.idctl.Run({"claim", "orders"}).exit_status, 3);
    if (round == 1) host_.daemon.Restart();
    if (round == 2) {
      host_.daemon.Kill();
      host_.daemon.Start();
    }
  }
  const IdctlResult below = host_.idctl.Run({"tag", "create", "orders", "--start", "1"});
  EXPECT_EQ(below.exit_status, 1) << "a start below the ids of the deleted namesake";
}

TEST_F(Tags, OpenHandleSeesTheDeletionAndTheNewTag) {
  host_.idctl.CreateTag("orders", 100);
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  options.socket_path = host_.daemon.socket().c_str();
  idclient_client* client = nullptr;
  ASSERT_EQ(idclient_open(&options, &client), IDCLIENT_OK) << idclient_last_error();
  idclient_tag* tag = nullptr;
  ASSERT_EQ(idclient_tag_open(client, "orders", &tag), IDCLIENT_OK) << idclient_last_error();
  std::uint64_t before = 0;
  ASSERT_EQ(idclient_claim(tag, &before), IDCLIENT_OK) << idclient_last_error();
  host_.idctl.Do({"tag", "delete", "orders", "--force"});
  std::uint64_t id = 0;
  EXPECT_EQ(idclient_claim(tag, &id), IDCLIENT_NO_SUCH_TAG) << idclient_last_error();
  host_.idctl.CreateTag("orders", 100);
  EXPECT_EQ(idclient_claim(tag, &id), IDCLIENT_OK) << idclient_last_error();
  EXPECT_GT(id, 100U) << "the deleted tag had leased up to there";
  idclient_close(client);
}

TEST_F(Tags, StatusShowsWhatIsPublished) {
  host_.idctl.CreateTag("orders", 100);
  (void)host_.idctl.Claim("orders", 42);
  const nlohmann::json status = host_.idctl.Json({"status"});
  EXPECT_EQ(status.at("daemon").at("pid"), host_.daemon.pid());
  EXPECT_EQ(status.at("daemon").at("socket"), host_.daemon.socket());
  EXPECT_EQ(status.at("database").at("state"), "up");
  ASSERT_EQ(status.at("tags").size(), 1U);
  const nlohmann::json& tag = status.at("tags")[0];
  EXPECT_EQ(tag.at("state"), "ok");
  EXPECT_EQ(tag.at("claimed"), 42);
  EXPECT_EQ(tag.at("segments")[0].at("base"), 1);
  EXPECT_EQ(tag.at("segments")[0].at("limit"), 101);
  EXPECT_EQ(tag.at("segments")[0].at("next"), 43);
  for (const char* key : {"mode", "step", "available", "rate_per_s", "covered_s", "fallbacks",
                          "leases", "last_error"}) {
    EXPECT_TRUE(tag.contains(key)) << key;
  }
}

TEST_F(Tags, AuditAddsUpAfterEveryStep) {
  host_.idctl.CreateTag("orders", 100);
  const auto expect = [this](std::uint64_t claimed) {
    EXPECT_EQ(Join(CheckAudit(host_.idctl.Audit("orders"), claimed, 0)), "");
  };
  expect(0);
  (void)host_.idctl.Claim("orders", 1);
  expect(1);
  (void)host_.idctl.Claim("orders", 250);
  expect(251);
  host_.daemon.Restart();
  expect(251);
  (void)host_.idctl.Claim("orders", 1000);
  expect(1251);
  host_.daemon.Kill();
  host_.daemon.Start();
  (void)host_.idctl.Claim("orders");
  EXPECT_TRUE(host_.idctl.Audit("orders").ok) << "with the leases that the kill abandoned";
}

}  // namespace
}  // namespace idd::harness

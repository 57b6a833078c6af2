// SPDX-License-Identifier: Apache-2.0
//
// [limits] and [[access]] of the file, and the difference that a reload finds between two
// configurations.
#include "config/config_tables.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/reload.h"

namespace idd::daemon {
namespace {

Result<ConfigTables> Read(const std::string& text) {
  const Result<ConfigFile> file = ConfigFile::Parse(text, "f");
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.value().ReadTables();
}

// The text is refused with a message that contains the line and the words.
void ExpectWrong(const std::string& text, int line, const std::vector<std::string>& words) {
  const Result<ConfigTables> tables = Read(text);
  ASSERT_FALSE(tables.ok()) << text;
  EXPECT_EQ(tables.status().code(), Code::kInvalid);
  const std::string& message = tables.status().message();
  EXPECT_TRUE(message.starts_with("f:" + std::to_string(line) + ": ")) << message;
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << message << " lacks " << word;
  }
}

TEST(ConfigTablesTest, AbsentTablesHaveTheirDefaults) {
  const Result<ConfigTables> tables = Read("socket = 'x'\n");
  ASSERT_TRUE(tables.ok());
  EXPECT_EQ(tables.value().limits.connections_per_uid, 1000U);
  EXPECT_EQ(tables.value().limits.requests_per_s_per_uid, 20000U);
  EXPECT_TRUE(tables.value().access.empty());
}

TEST(ConfigTablesTest, RulesHaveWhatTheySay) {
  const Result<ConfigTables> tables = Read(R"([limits]
connections_per_uid = 7
requests_per_second_per_uid = 8
[[access]]
tags = ["orders", "billing.*"]
users = ["root", 1001]
groups = ["root", 0, 27]
access = "admin"
[[access]]
tags = ["*"]
users = [5]
ids_per_second = 100
access = "shm"
[[access]]
tags = ["*"]
users = [5]
ids_per_second = 100
)");
  ASSERT_TRUE(tables.ok()) << tables.status().message();
  EXPECT_EQ(tables.value().limits, (LimitSettings{7, 8}));
  const std::vector<AccessRule>& rules = tables.value().access;
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[0], (AccessRule{.tags = {"orders", "billing.*"},
                                  .users = {0, 1001},
                                  .groups = {0, 0, 27},
                                  .access = Access::kAdmin,
                                  .ids_per_s = std::nullopt}));
  EXPECT_EQ(
      rules[1],
      (AccessRule{
          .tags = {"*"}, .users = {5}, .groups = {}, .access = Access::kSocket, .ids_per_s = 100}))
      << "memory cannot be limited";
  EXPECT_EQ(rules[2], rules[1]);
}

TEST(ConfigTablesTest, WrongLimitsAreReportedWithTheirLine) {
  ExpectWrong("[limits]\nconnections_per_uid = 0\n", 2, {"connections_per_uid", "from 1"});
  ExpectWrong("[limits]\nrequests_per_second_per_uid = -1\n", 2, {"requests_per_second_per_uid"});
  ExpectWrong("[limits]\nconnections_per_uid = 1.5\n", 2, {"whole number"});
  ExpectWrong("[limits]\nconnections_per_uid = '5'\n", 2, {"whole number"});
  ExpectWrong("[limits]\n\nconnections = 5\n", 3, {"unknown key 'connections'"});
  ExpectWrong("limits = 5\n", 1, {"table"});
}

TEST(ConfigTablesTest, WrongRulesAreReportedWithTheirLine) {
  const std::string head = "[[access]]\n";
  const std::string good = head + "tags = ['a']\nusers = [1]\n";
  ExpectWrong("access = 5\n", 1, {"[[access]]"});
  ExpectWrong("access = [5]\n", 1, {"[[access]]"});
  ExpectWrong("\n[access]\ntags = ['a']\n", 2, {"[[access]]"});
  ExpectWrong(head + "users = [1]\naccess = 'shm'\n", 1, {"'tags'"});
  ExpectWrong(head + "tags = []\nusers = [1]\naccess = 'shm'\n", 2, {"'tags'", "empty"});
  ExpectWrong(head + "tags = 'a'\nusers = [1]\naccess = 'shm'\n", 2, {"'tags'"});
  ExpectWrong(head + "tags = ['a',\n'']\nusers = [1]\naccess = 'shm'\n", 3, {"'tags'"});
  ExpectWrong(head + "tags = ['" + std::string(129, 'a') + "']\nusers = [1]\naccess = 'shm'\n", 2,
              {"128"});
  ExpectWrong(head + "tags = ['a']\naccess = 'shm'\n", 1, {"'users' or 'groups'"});
  ExpectWrong(head + "tags = ['a']\nusers = []\naccess = 'shm'\n", 3, {"'users'", "empty"});
  ExpectWrong(head + "tags = ['a']\nusers = ['no such user']\naccess = 'shm'\n", 3,
              {"'no such user'", "'users'", "not known"});
  ExpectWrong(head + "tags = ['a']\ngroups = ['no such group']\naccess = 'shm'\n", 3,
              {"'no such group'", "'groups'"});
  ExpectWrong(head + "tags = ['a']\nusers = [-1]\naccess = 'shm'\n", 3, {"'users'"});
  ExpectWrong(head + "tags = ['a']\nusers = [4294967295]\naccess = 'shm'\n", 3, {"'users'"});
  ExpectWrong(head + "tags = ['a']\nusers = [4294967296]\naccess = 'shm'\n", 3, {"'users'"});
  ExpectWrong(head + "tags = ['a']\nusers = [true]\naccess = 'shm'\n", 3, {"'users'"});
  ExpectWrong(good, 1, {"'access'"});
  ExpectWrong(good + "access = 'ring'\n", 4, {"socket", "shm", "admin"});
  ExpectWrong(good + "access = 'none'\n", 4, {"socket", "shm", "admin"});
  ExpectWrong(good + "access = 1\n", 4, {"'access'"});
  ExpectWrong(good + "ids_per_second = 0\n", 4, {"ids_per_second"});
  ExpectWrong(good + "access = 'admin'\nids_per_second = 5\n", 5, {"admin"});
  ExpectWrong(good + "access = 'shm'\nuser = 1\n", 5, {"unknown key 'user'"});
}

TEST(ReloadTest, WhatCanBeReloadedIsAndTheRestIsNamed) {
  Options now;
  Options asked;
  ReloadPlan plan = PlanReload(now, asked);
  EXPECT_EQ(KeyList(plan.changed), "nothing");
  EXPECT_TRUE(plan.not_changed.empty());
  asked.database = "sqlite:/other";
  asked.lease_limit = 7;
  asked.metrics_textfile = "/m";
  asked.host_address = "10.0.0.1";
  asked.metrics_listen = "[::1]:1";
  asked.log_level = log::Level::kDebug;
  asked.limits.connections_per_uid = 7;
  asked.access = {AccessRule{}};
  asked.socket = "/s";
  asked.state_dir = "/d";
  asked.host_id = "h";
  asked.log_format = log::Format::kJson;
  plan = PlanReload(now, asked);
  EXPECT_EQ(KeyList(plan.changed),
            "database, lease_limit, host_address, log_level, metrics_textfile, limits, access");
  EXPECT_EQ(KeyList(plan.not_changed), "socket, state_dir, host_id, metrics_listen, log_format");
  EXPECT_EQ(plan.options.lease_limit, 7U);
  EXPECT_EQ(plan.options.socket, now.socket);
  EXPECT_EQ(plan.options.metrics_textfile, "/m");
  EXPECT_EQ(plan.options.metrics_listen, "");
  EXPECT_EQ(plan.options.log_format, now.log_format);
  EXPECT_TRUE(plan.Changes("access"));
  EXPECT_FALSE(plan.Changes("socket"));
  EXPECT_EQ(KeyList(PlanReload(plan.options, asked).changed), "nothing");
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// The journal of leases as an operator sees it: it is kept short, and what is folded stays
// accounted for. The commands' tables, JSON, exit status and narrow terminals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "support/host.h"
#include "support/pseudo_terminal.h"
#include "support/sqlite_file.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

class Journal : public ::testing::Test {
 protected:
  void StartWith(const std::string& retention) {
    host_.daemon.options().more_arguments = {"--journal-retention", retention};
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "orders", "--step", "100", "--if-absent"});
  }
  // Each claim takes the rest of a lease or more, so that leases end.
  void UseUpLeases(int claims) const {
    for (int i = 0; i < claims; ++i) static_cast<void>(host_.idctl.Claim("orders", 100));
  }
  [[nodiscard]] std::int64_t Rows(const std::string& table) const {
    return host_.Database().QueryInteger("SELECT COUNT(*) FROM " + table);
  }
  [[nodiscard]] std::int64_t Folded() const {
    return host_.Database().QueryInteger("SELECT coalesce(SUM(folded_leases), 0) FROM idd_total");
  }
  void FoldSome() {
    StartWith("1s");
    UseUpLeases(20);
    ASSERT_TRUE(WaitUntil(Patience(60s), [this] { return Folded() > 2; }));
  }

  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(Journal, EndedLeasesAreFoldedAndStayAccountedFor) {
  FoldSome();
  const nlohmann::json audit = host_.idctl.Json({"audit", "--full"});
  EXPECT_EQ(audit.at("ok"), true) << audit;
  EXPECT_EQ(audit.at("tags").at(0).at("claimed"), 2000U);
  EXPECT_EQ(audit.at("compared"), audit.at("leases")) << "folded leases have no row";
  EXPECT_THAT(host_.idctl.Run({"audit", "--full"}).out, Not(HasSubstr("Compared")));
  EXPECT_TRUE(host_.daemon.WaitForLogLine("journal\\.folded leases=[0-9]+", 0, Patience(30s)));
  // The first ids are folded, the last ones are not.
  const nlohmann::json first = host_.idctl.Json({"whois", "orders", "1"});
  EXPECT_EQ(first.at("leases").size(), 0U);
  EXPECT_EQ(first.at("folded").size(), 1U);
  EXPECT_EQ(first.at("folded").at(0).at("host"), "host-a");
  EXPECT_EQ(first.at("folded").at(0).at("exact"), true);
  EXPECT_EQ(first.at("reason"), nullptr);
  const IdctlResult table = host_.idctl.Run({"whois", "orders", "1"});
  EXPECT_EQ(table.exit_status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("folded"));
  EXPECT_THAT(table.out, HasSubstr("host-a"));
  const nlohmann::json last = host_.idctl.Json({"whois", "orders", "2000"});
  EXPECT_EQ(last.at("folded").size(), 0U);
  EXPECT_EQ(host_.idctl.Run({"whois", "orders", "99999999"}).exit_status, 1);
  // A restart finds what it left, and ids go on.
  host_.daemon.Restart();
  EXPECT_GT(host_.idctl.Claim("orders", 1).at(0), 2000U);
  EXPECT_EQ(host_.idctl.Json({"audit"}).at("ok"), true);
}

// Regression: what ended while a round folded was settled only in the next one.
TEST_F(Journal, SettlesWhileItFolds) {
  StartWith("0");
  host_.daemon.Stop();
  host_.Database().Execute(
      "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 100000)"
      " INSERT INTO idd_ended SELECT seq, printf('%032x', seq), 'old', 'h', seq, seq + 1,"
      " 'exhausted', 1, 0, 0, '2020-01-01 00:00:00', '2020-01-01 00:00:01', seq + 1 FROM n;"
      "INSERT INTO idd_total(biz_tag, host, month, leases, leased, claimed, returned, abandoned,"
      " used_limit, ranges) SELECT 'old', 'h', '2020-01', 100000, 100000, 100000, 0, 0, 100001, '';"
      "INSERT INTO idd_lease(seq, token, biz_tag, host, base, \"limit\") VALUES(100001,"
      " '0000000000000000000000000000ffff', 'gone', 'gone', 1, 2)");
  StartWith("1s");
  ASSERT_TRUE(WaitUntil(Patience(30s), [this] { return Folded() > 0; }));
  static_cast<void>(host_.idctl.Claim("orders", 1));
  const std::string lease =
      "idd_lease WHERE seq = " + std::to_string(host_.Database().QueryInteger(
                                     "SELECT MIN(seq) FROM idd_lease WHERE biz_tag = 'orders'"));
  std::this_thread::sleep_for(3s);  // the round looks at it while it is active
  UseUpLeases(5);
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] { return Rows(lease) == 0; }));
  EXPECT_GT(Rows("idd_ended WHERE biz_tag = 'old'"), 1) << "folded before the leases had ended";
}

// If ids came twice, both owners matter.
TEST_F(Journal, FoldedOwnerIsShownBesideALeaseWithTheSameId) {
  FoldSome();
  host_.Database().Execute(
      "INSERT INTO idd_lease(token, biz_tag, host, base, \"limit\") VALUES("
      "'0000000000000000000000000000beef', 'orders', 'host-b', 3, 8)");
  const nlohmann::json both = host_.idctl.Json({"whois", "orders", "5"});
  ASSERT_EQ(both.at("leases").size(), 1U);
  EXPECT_EQ(both.at("leases").at(0).at("host"), "host-b");
  ASSERT_EQ(both.at("folded").size(), 1U);
  EXPECT_EQ(both.at("folded").at(0).at("host"), "host-a");
}

TEST_F(Journal, IsKeptWholeWithoutARetention) {
  StartWith("0");
  UseUpLeases(20);
  host_.daemon.Restart();
  EXPECT_EQ(Folded(), 0);
  EXPECT_GT(host_.idctl.Json({"lease", "list"}).at("leases").size(), 3U);
}

// The first look at the journal fails here.
TEST_F(Journal, IsKeptSoonAfterTheStoreOpens) {
  host_.daemon.Start();
  host_.daemon.Stop();
  SqliteFile database(host_.daemon.options().database);
  database.Execute("BEGIN EXCLUSIVE");
  host_.daemon.Start();
  EXPECT_TRUE(WaitUntil(Patience(30s), [this] {
    return host_.idctl.Json({"status"}).at("database").at("state") == "down";
  }));
  database.Execute("COMMIT");
  // A minute would be the time between two rounds.
  EXPECT_TRUE(WaitUntil(55s, [this] {
    return host_.idctl.Run({"metrics"}).out.find("idd_journal_keeper 1") != std::string::npos;
  })) << host_.daemon.Log();
}

// A reload takes another retention.
TEST_F(Journal, RetentionIsReloaded) {
  WriteFile(host_.daemon.options().config, "journal_retention = \"0\"\n");
  host_.daemon.Start();
  const std::size_t mark = host_.daemon.LogMark();
  WriteFile(host_.daemon.options().config, "journal_retention = \"1s\"\n");
  host_.daemon.Signal(SIGHUP);
  EXPECT_TRUE(
      host_.daemon.WaitForLogLine("config\\.reloaded .*journal_retention", mark, Patience(30s)));
}

TEST_F(Journal, WrongRetentionIsRefused) {
  for (const char* wrong : {"", "x", "90", "-1d", "1w", "1.5d", "99999999d", "10 d", "d"}) {
    const std::string config = std::string("journal_retention = \"") + wrong + "\"\n";
    WriteFile(host_.daemon.options().config, config);
    EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(20s)), 2) << wrong;
  }
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("journal_retention must be a time"));
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("toml:1: "));
}

TEST_F(Journal, LeasesAreListedInPagesAndSinceATime) {
  StartWith("0");
  UseUpLeases(30);
  host_.idctl.Do({"drain", "orders"});  // the journal stands still
  const nlohmann::json all = host_.idctl.Json({"lease", "list"});
  const std::size_t leases = all.at("leases").size();
  ASSERT_GT(leases, 4U);
  EXPECT_EQ(all.at("before"), nullptr);
  std::vector<nlohmann::json> pages;
  std::vector<std::string> arguments = {"lease", "list", "--limit", "2"};
  while (true) {
    const nlohmann::json page = host_.idctl.Json(arguments);
    pages.insert(pages.begin(), page.at("leases").begin(), page.at("leases").end());
    if (page.at("before").is_null()) break;
    ASSERT_LE(pages.size(), leases);
    arguments = {"lease", "list",     "--limit",
                 "2",     "--before", std::to_string(page.at("before").get<std::uint64_t>())};
  }
  EXPECT_TRUE(pages == all.at("leases").get<std::vector<nlohmann::json>>());
  EXPECT_EQ(host_.idctl.Json({"lease", "list", "--since", "1h"}).at("leases").size(), leases);
  EXPECT_EQ(host_.idctl.Json({"lease", "list", "--since", "2099-01-01"}).at("leases").size(), 0U);
  EXPECT_EQ(host_.idctl.Json({"audit", "--since", "1h"}).at("tags").at(0).at("claimed"), 3000U);
  EXPECT_EQ(
      host_.idctl.Json({"audit", "--since", "2099-01-01 10:00"}).at("tags").at(0).at("leased"), 0U);
  const IdctlResult cut = host_.idctl.Run({"lease", "list", "--limit", "2"});
  EXPECT_THAT(cut.out, HasSubstr("Only the newest; --limit shows more, --before "));
  for (const char* wrong : {"yesterday", "2026-13-01", "2026-02-30", "7w", "26-11-26", ""}) {
    for (const auto& command : {std::vector<std::string>{"lease", "list"}, {"audit"}}) {
      std::vector<std::string> line = command;
      line.insert(line.end(), {"--since", wrong});
      const IdctlResult refused = host_.idctl.Run(line);
      EXPECT_EQ(refused.exit_status, 2) << wrong;
      EXPECT_THAT(refused.err, HasSubstr("--since")) << wrong;
    }
  }
}

// No line is wider than the terminal.
TEST_F(Journal, TablesFitNarrowTerminals) {
  FoldSome();
  for (const unsigned short columns : std::initializer_list<unsigned short>{80, 60, 40}) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"audit"},
                                                    {"audit", "--full", "--all-hosts"},
                                                    {"lease", "list", "--limit", "2"},
                                                    {"whois", "orders", "1"}}) {
      const std::string out = host_.idctl.OnTerminal(command, columns);
      for (const std::string& line : ShownLines(out)) {
        EXPECT_LE(line.size(), static_cast<std::size_t>(columns))
            << command.front() << ": " << line;
      }
      EXPECT_THAT(out, Not(HasSubstr("Error"))) << command.front();
    }
  }
}

}  // namespace
}  // namespace idd::harness

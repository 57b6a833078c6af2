// SPDX-License-Identifier: Apache-2.0
//
// idctl import takes tags over from the tables of other generators, above every id that those may
// have handed out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/daemon_process.h"
#include "support/db_server.h"
#include "support/host.h"
#include "support/mysql_proxy.h"
#include "support/pseudo_terminal.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// As the generators' own scripts create them.
constexpr const char* kTinyid =
    "CREATE TABLE `tiny_id_info` (`id` bigint(20) unsigned NOT NULL AUTO_INCREMENT,"
    " `biz_type` varchar(63) NOT NULL DEFAULT '', `begin_id` bigint(20) NOT NULL DEFAULT '0',"
    " `max_id` bigint(20) NOT NULL DEFAULT '0', `step` int(11) DEFAULT '0',"
    " `delta` int(11) NOT NULL DEFAULT '1', `remainder` int(11) NOT NULL DEFAULT '0',"
    " `create_time` timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',"
    " `update_time` timestamp NOT NULL DEFAULT '2010-01-01 00:00:00',"
    " `version` bigint(20) NOT NULL DEFAULT '0',"
    " PRIMARY KEY (`id`), UNIQUE KEY `uniq_biz_type` (`biz_type`)) ENGINE=InnoDB"
    " DEFAULT CHARSET=utf8";
constexpr const char* kCosid =
    "CREATE TABLE cosid (name varchar(100) NOT NULL, last_max_id bigint unsigned NOT NULL DEFAULT "
    "0,"
    " last_fetch_time bigint unsigned NOT NULL DEFAULT 0, CONSTRAINT cosid_pk PRIMARY KEY (name))"
    " ENGINE=InnoDB";
constexpr const char* kCommonSequence =
    "CREATE TABLE common_sequence (service_name varchar(64) NOT NULL, business_name varchar(64) NOT"
    " NULL, current_max_id bigint NOT NULL, step int NOT NULL, version bigint NOT NULL DEFAULT 0,"
    " PRIMARY KEY (service_name, business_name)) ENGINE=InnoDB";

constexpr const char* kTickets64 =
    "CREATE TABLE `Tickets64` (`id` bigint(20) unsigned NOT NULL auto_increment,"
    " `stub` char(1) NOT NULL default '', PRIMARY KEY (`id`), UNIQUE KEY `stub` (`stub`))"
    " ENGINE=InnoDB";

// The result of an import for one tag: "action from next_id step".
std::string Line(const nlohmann::json& document, const std::string& tag) {
  for (const auto& row : document.at("tags")) {
    if (row.at("tag") != tag) continue;
    return row.at("action").get<std::string>() + " " + row.at("from").dump() + " " +
           row.at("next_id").dump() + " " + row.at("step").dump();
  }
  return "not there";
}

std::string Reason(const nlohmann::json& document, const std::string& tag) {
  for (const auto& row : document.at("tags")) {
    if (row.at("tag") == tag && row.at("reason").is_string()) return row.at("reason");
  }
  return "";
}

class Import : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.Start();
    DbSession root = server_.Session("");
    root.Execute("CREATE DATABASE legacy");
    root.Execute("CREATE USER reader@localhost IDENTIFIED BY 'Pa55word'");
    root.Execute("GRANT SELECT ON legacy.* TO reader@localhost");
    host_.daemon.options().database = server_.Url();
    host_.daemon.Start();
  }
  void Sql(const std::string& sql, const std::string& database = "idd") const {
    server_.Session(database).Execute(sql);
  }
  // The other database, as another user.
  [[nodiscard]] std::string Legacy() const {
    return "mysql://reader:Pa55word@localhost/legacy?unix_socket=" + server_.socket();
  }
  [[nodiscard]] IdctlResult Try(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--json", "import"});
    return host_.idctl.Run(arguments);
  }
  // An import that refuses nothing and warns of nothing.
  [[nodiscard]] nlohmann::json Take(const std::vector<std::string>& arguments) const {
    const IdctlResult result = Try(arguments);
    EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }
  // An import that fails as a whole; its line on stderr.
  [[nodiscard]] std::string Refusal(const std::vector<std::string>& arguments) const {
    const IdctlResult result = Try(arguments);
    EXPECT_EQ(result.exit_status, 1) << result.out << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  }
  // Everything in idd's tables about tags and leases.
  [[nodiscard]] std::string Dump() const {
    std::string all;
    for (const char* table :
         {"leaf_alloc", "idd_tag", "idd_lease", "idd_returned", "idd_deleted_tag"}) {
      DbSession root = server_.Session();
      const std::string columns = root.Query(
          "SELECT GROUP_CONCAT('`', column_name, '`' ORDER BY ordinal_position)"
          " FROM information_schema.columns WHERE table_schema = 'idd' AND table_name = '" +
          std::string(table) + "'");
      all += std::string(table) + ":" +
             root.Query("SELECT CONCAT_WS('|', " + columns + ") FROM " + table + " ORDER BY 1") +
             "\n";
    }
    return all;
  }

  const TempDir dir_;
  DbServer server_{dir_};
  Host host_{dir_};
};

TEST_F(Import, TinyidsTagsBeginAboveAllItsIds) {
  Sql(kTinyid);
  Sql("INSERT INTO tiny_id_info(biz_type, begin_id, max_id, step, delta, remainder) VALUES"
      " ('test', 1, 1, 100000, 1, 0), ('orders', 1, 700001, 1000, 1, 0),"
      " ('odd', 5000, 3001, 50, 2, 1)");
  const nlohmann::json document = Take({"tinyid"});
  EXPECT_EQ(document.at("source"), "tinyid");
  EXPECT_EQ(document.at("dry_run"), false);
  EXPECT_EQ(document.at("tags").size(), 3U);
  EXPECT_TRUE(document.at("warnings").empty());
  EXPECT_EQ(Line(document, "test"), "created null 2 100000");
  EXPECT_EQ(Line(document, "orders"), "created null 700002 1000");
  EXPECT_EQ(Line(document, "odd"), "created null 5001 50");
  EXPECT_THAT(Reason(document, "odd"), HasSubstr("delta is 2"));
  EXPECT_EQ(Reason(document, "orders"), "");
  EXPECT_EQ(host_.idctl.Claim("orders", 2), (std::vector<std::uint64_t>{700002, 700003}));
  EXPECT_EQ(host_.idctl.Claim("odd").front(), 5001U);
  EXPECT_EQ(host_.idctl.Json({"tag", "show", "orders"}).at("tag").at("description"), "from tinyid");
  EXPECT_TRUE(host_.daemon.WaitForLogLine("tags.imported.*source=tinyid.*tags=3", 0, 1s));
}

TEST_F(Import, CosidsTagsComeFromAnotherDatabaseByUrl) {
  Sql(kCosid, "legacy");
  Sql("INSERT INTO cosid(name, last_max_id) VALUES('shop.orders', 5000000000), ('shop.new', 0)",
      "legacy");
  const nlohmann::json document = Take({"cosid", "--from", Legacy(), "--step", "20"});
  EXPECT_EQ(Line(document, "shop.orders"), "created null 5000000001 20");
  EXPECT_EQ(Line(document, "shop.new"), "created null 1 20");
  EXPECT_EQ(host_.idctl.Claim("shop.orders").front(), 5000000001U);
  // Without a step, idd's default is used.
  Sql("INSERT INTO cosid(name, last_max_id) VALUES('shop.late', 9)", "legacy");
  EXPECT_EQ(Line(Take({"cosid", "--from", Legacy()}), "shop.late"), "created null 10 1000");
}

TEST_F(Import, CommonSequencesTagsAreNamedAfterServiceAndBusiness) {
  Sql(kCommonSequence, "legacy");
  Sql("INSERT INTO common_sequence(service_name, business_name, current_max_id, step) VALUES"
      " ('shop', 'orders', 8000, 500), ('pay', 'orders', 120, 7)",
      "legacy");
  Sql("RENAME TABLE common_sequence TO `my ``seq`", "legacy");
  const nlohmann::json document =
      Take({"common-sequence", "--from", Legacy(), "--table", "my `seq", "--prefix", "old."});
  EXPECT_EQ(Line(document, "old.shop.orders"), "created null 8001 500");
  EXPECT_EQ(Line(document, "old.pay.orders"), "created null 121 7");
  EXPECT_EQ(host_.idctl.Claim("old.shop.orders").front(), 8001U);
}

// A ticket server's table is one sequence, whatever stubs it has. Two servers with offsets share
// the ids, so the tag must begin above both.
TEST_F(Import, TicketServersOfAPairMakeOneTagAboveBoth) {
  Sql(kTickets64);
  Sql(kTickets64, "legacy");
  for (int i = 0; i < 5; ++i) Sql("REPLACE INTO Tickets64(stub) VALUES('a')");
  Sql("INSERT INTO Tickets64(id, stub) VALUES(72157623227190423, 'a')", "legacy");
  EXPECT_EQ(Line(Take({"flickr", "--dry-run"}), "Tickets64"), "would create null 6 1000");
  EXPECT_EQ(Line(Take({"flickr"}), "Tickets64"), "created null 6 1000");
  EXPECT_EQ(Line(Take({"flickr", "--from", Legacy()}), "Tickets64"),
            "lifted 6 72157623227190424 1000");
  EXPECT_EQ(Line(Take({"flickr"}), "Tickets64"), "kept null 72157623227190424 1000");
  const nlohmann::json tag = host_.idctl.Json({"tag", "show", "Tickets64"}).at("tag");
  EXPECT_EQ(tag.at("mode"), "ticket");
  EXPECT_EQ(tag.at("access"), "socket");
  EXPECT_EQ(host_.idctl.Claim("Tickets64", 2),
            (std::vector<std::uint64_t>{72157623227190424, 72157623227190425}));
  Sql("DELETE FROM Tickets64");
  EXPECT_EQ(Line(Take({"flickr", "--prefix", "old.", "--mode", "segment"}), "old.Tickets64"),
            "created null 6 1000")
      << "the number of a deleted row was used";
  EXPECT_EQ(host_.idctl.Json({"tag", "show", "old.Tickets64"}).at("tag").at("mode"), "segment");
}

TEST_F(Import, StandingTagsAreLiftedOrKeptAndNeverLowered) {
  Sql(kTinyid);
  Sql(kTinyid, "legacy");
  for (const char* database : {"idd", "legacy"}) {
    const std::string max_id = std::string(database) == "idd" ? "1001" : "5001";
    Sql("INSERT INTO tiny_id_info(biz_type, max_id, step, delta) VALUES('orders', " + max_id +
            ", 10, 2), ('high', " + max_id + ", 10, 2)",
        database);
  }
  host_.idctl.Do({"tag", "create", "high", "--start", "90000", "--step", "3"});
  EXPECT_EQ(Line(Take({"tinyid"}), "orders"), "created null 1002 10");
  const nlohmann::json second = Take({"tinyid", "--from", Legacy()});
  EXPECT_EQ(Line(second, "orders"), "lifted 1002 5002 10");
  EXPECT_EQ(Line(second, "high"), "kept null 90000 3");
  EXPECT_EQ(Line(Take({"tinyid"}), "orders"), "kept null 5002 10") << "never lowered";
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 5002U);
  EXPECT_EQ(host_.idctl.Claim("high").front(), 90000U);
  // Also once the tags are in use.
  EXPECT_THAT(Line(Take({"tinyid", "--from", Legacy()}), "orders"), HasSubstr("kept null "));
  const std::string text = host_.idctl.Run({"import", "tinyid"}).out;
  EXPECT_THAT(text, HasSubstr("TAG     ACTION  NEXT-ID  STEP  WHY\n"));
  EXPECT_THAT(text, HasSubstr("2 rows of tinyid, 0 refused\n"));
}

TEST_F(Import, LiftedTagLeasesNothingBelowAgain) {
  host_.idctl.CreateTag("orders", 100);
  EXPECT_FALSE(host_.idctl.Claim("orders", 5).empty());
  Sql(kCosid);
  Sql("INSERT INTO cosid(name, last_max_id) VALUES('orders', 7000)");
  const IdctlResult result = Try({"cosid"});
  EXPECT_EQ(result.exit_status, 1) << "lower ids are still in the ring";
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(Line(document, "orders"), HasSubstr("lifted "));
  ASSERT_EQ(document.at("warnings").size(), 1U);
  EXPECT_THAT(document.at("warnings").at(0).get<std::string>(), HasSubstr("host-a; run"));
  EXPECT_THAT(result.err, HasSubstr("run 'idctl drain orders' and 'idctl resume orders' there"));
  host_.idctl.Do({"drain", "orders"});
  host_.idctl.Do({"resume", "orders"});
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 7001U);
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
  EXPECT_EQ(Line(Take({"cosid"}), "orders").substr(0, 4), "kept");
}

TEST_F(Import, DryRunSaysTheSameAndWritesNothing) {
  Sql(kTinyid);
  Sql("INSERT INTO tiny_id_info(biz_type, max_id, step) VALUES('new', 10, 5), ('low', 5000, 5),"
      " ('high', 5000, 5), ('bad', -1, 5), ('reborn', 10, 5)");
  host_.idctl.Do({"tag", "create", "low", "--start", "100", "--step", "5"});
  host_.idctl.Do({"tag", "create", "high", "--start", "6000", "--step", "5"});
  host_.idctl.Do({"tag", "create", "reborn", "--start", "300"});
  host_.idctl.Do({"tag", "delete", "reborn", "--force"});
  const std::string before = Dump();
  const IdctlResult dry = Try({"tinyid", "--dry-run"});
  EXPECT_EQ(dry.exit_status, 1) << "a row is refused";
  EXPECT_EQ(Dump(), before);
  nlohmann::json document = nlohmann::json::parse(dry.out);
  EXPECT_EQ(document.at("dry_run"), true);
  EXPECT_EQ(Line(document, "new"), "would create null 11 5");
  EXPECT_EQ(Line(document, "low"), "would lift 100 5001 5");
  EXPECT_EQ(Line(document, "high"), "kept null 6000 5");
  EXPECT_EQ(Line(document, "bad"), "refused null null null");
  EXPECT_EQ(Line(document, "reborn"), "would create null 300 5");
  EXPECT_THAT(host_.idctl.Run({"import", "tinyid", "--dry-run"}).out,
              HasSubstr("5 rows of tinyid, 1 refused; nothing was written"));
  const IdctlResult wet = Try({"tinyid"});
  EXPECT_NE(Dump(), before);
  for (auto& row : document.at("tags")) {
    if (row.at("action") == "would create") row.at("action") = "created";
    if (row.at("action") == "would lift") row.at("action") = "lifted";
  }
  document.at("dry_run") = false;
  nlohmann::json done = nlohmann::json::parse(wet.out);
  EXPECT_EQ(done.at("claimable"), true);
  for (const char* key : {"claimable", "reason", "waits_for"})
    done.erase(key);  // written tags only
  EXPECT_EQ(done, document);
}

TEST_F(Import, BadRowsAreRefusedAndTheOthersGoOn) {
  Sql("CREATE TABLE tiny_id_info(biz_type varchar(200), max_id bigint unsigned, step bigint)");
  Sql("INSERT INTO tiny_id_info VALUES('good', 10, 5), (NULL, 10, 5), ('no-max', NULL, 5),"
      " ('no-step', 10, NULL), ('zero-step', 10, 0), ('minus-step', 10, -7), ('', 10, 5),"
      " (' blank', 10, 5), ('last', 9223372036854775805, 5), ('end', 9223372036854775806, 5),"
      " ('beyond', 18446744073709551615, 5), ('twice', 1, 5), ('twice', 2, 5),"
      " (REPEAT('x', 129), 10, 5)");
  const IdctlResult result = Try({"tinyid"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.err, HasSubstr("12 rows were refused"));
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document.at("tags").size(), 14U);
  EXPECT_EQ(Line(document, "good"), "created null 11 5");
  EXPECT_EQ(Line(document, "last"), "created null 9223372036854775806 5");
  EXPECT_EQ(host_.idctl.Claim("last").front(), 9223372036854775806U);
  EXPECT_THAT(Reason(document, "no-max"), HasSubstr("max_id is NULL"));
  EXPECT_THAT(Reason(document, "no-step"), HasSubstr("step is NULL"));
  EXPECT_THAT(Reason(document, "zero-step"), HasSubstr("give --step"));
  EXPECT_THAT(Reason(document, "minus-step"), HasSubstr("step is -7"));
  EXPECT_THAT(Reason(document, "end"), HasSubstr("from 0 to 9223372036854775805"));
  EXPECT_THAT(Reason(document, "beyond"), HasSubstr("max_id is 18446744073709551615"));
  EXPECT_THAT(Reason(document, "twice"), HasSubstr("more than one row"));
  EXPECT_NE(Reason(document, " blank"), "");
  EXPECT_EQ(server_.Session().Query("SELECT GROUP_CONCAT(biz_tag ORDER BY 1) FROM leaf_alloc"),
            "good,last");
  // --step applies to all tags without a step of their own.
  EXPECT_EQ(Line(nlohmann::json::parse(Try({"tinyid", "--step", "9"}).out), "no-step"),
            "created null 11 9");
}

TEST_F(Import, TagRowThatMakesNoSenseIsRefused) {
  Sql("INSERT INTO leaf_alloc(biz_tag, max_id, step) VALUES('orders', -5, 10)");
  Sql(kCosid);
  Sql("INSERT INTO cosid(name, last_max_id) VALUES('orders', 10), ('users', 10)");
  const IdctlResult result = Try({"cosid"});
  EXPECT_EQ(result.exit_status, 1);
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(Reason(document, "orders"), HasSubstr("max_id"));
  EXPECT_EQ(Line(document, "users"), "created null 11 1000");
}

TEST_F(Import, SourcesThatAreNoneAreNamed) {
  EXPECT_THAT(Refusal({"tinyid"}), HasSubstr("no table 'tiny_id_info'"));
  EXPECT_THAT(Refusal({"cosid", "--from", Legacy(), "--table", "nope"}),
              HasSubstr("no table 'nope'"));
  Sql(kCosid, "legacy");
  EXPECT_THAT(Refusal({"cosid", "--from", Legacy()}), HasSubstr("has no rows"));
  EXPECT_THAT(Refusal({"tinyid", "--from", Legacy(), "--table", "cosid"}),
              HasSubstr("has no column biz_type"));
  Sql("CREATE TABLE doubled(name varchar(100), last_max_id double)", "legacy");
  EXPECT_THAT(Refusal({"cosid", "--from", Legacy(), "--table", "doubled"}),
              HasSubstr("last_max_id of table 'doubled' is a double"));
}

TEST_F(Import, SourcesThatCannotBeReadAreNamedWithoutThePassword) {
  const std::string socket = "?unix_socket=" + server_.socket();
  EXPECT_THAT(Refusal({"cosid", "--from", "mysql://reader:Wr0ng@localhost/legacy" + socket}),
              HasSubstr("Access denied"));
  Sql("CREATE DATABASE secret", "");
  EXPECT_THAT(Refusal({"cosid", "--from", "mysql://reader:Pa55word@localhost/secret" + socket}),
              HasSubstr("denied"));
  EXPECT_THAT(
      Refusal({"cosid", "--from",
               "mysql://reader:Pa55word@localhost/legacy?unix_socket=" + dir_.File("nobody")}),
      HasSubstr("cannot import from mysql://reader@"));
  EXPECT_THAT(Refusal({"cosid", "--from", "mysql://reader:Pa55word@"}), HasSubstr("names no"));
  EXPECT_EQ(host_.idctl.Json({"status"}).at("database").at("state"), "up")
      << "the source is not idd's store";
}

TEST_F(Import, PasswordIsShownNowhere) {
  Sql(kCosid, "legacy");
  Sql("INSERT INTO cosid(name, last_max_id) VALUES('orders', 10)", "legacy");
  const IdctlResult result = Try({"cosid", "--from", Legacy()});
  EXPECT_EQ(result.exit_status, 0);
  // While it waits for a server that does not answer.
  MysqlProxy proxy(dir_.File("proxy"), server_.socket());
  proxy.Hang(true);
  ChildProcess idctl(
      {.argv = {IdctlBinary(), "--socket", host_.daemon.socket(), "import", "cosid", "--from",
                "mysql://reader:Pa55word@localhost/legacy?unix_socket=" + dir_.File("proxy")},
       .environment = {},
       .stderr_path = {}});
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] { return proxy.connections() > 0; }));
  const std::string command = ReadFile("/proc/" + std::to_string(idctl.pid()) + "/cmdline");
  EXPECT_THAT(command, HasSubstr("mysql://reader:********@localhost/legacy"));
  // A source that hangs delays no lease and no other administration request.
  host_.idctl.CreateTag("users", 10);
  EXPECT_FALSE(host_.idctl.Claim("users", 30).empty());
  EXPECT_EQ(idctl.WaitFor(Patience(20s)), 1);
  for (const std::string& text : {result.out, result.err, command, idctl.stdout_text(),
                                  idctl.stderr_text(), host_.daemon.Log()}) {
    EXPECT_THAT(text, Not(HasSubstr("Pa55word")));
  }
}

TEST_F(Import, TooManyRowsAreRefusedAsAWhole) {
  Sql(kCosid);
  Sql("INSERT INTO cosid(name, last_max_id) SELECT CONCAT('t', seq), seq FROM " +
      Numbers(1, 100'001));
  EXPECT_THAT(Refusal({"cosid"}), HasSubstr("more than 100000 rows"));
  EXPECT_EQ(server_.Session().Query("SELECT COUNT(*) FROM leaf_alloc"), "0");
  Sql("DELETE FROM cosid WHERE last_max_id > 1000");
  EXPECT_EQ(Take({"cosid"}).at("tags").size(), 1000U);
  EXPECT_EQ(server_.Session().Query("SELECT COUNT(*) FROM leaf_alloc"), "1000");
  EXPECT_EQ(host_.idctl.Claim("t1000").front(), 1001U);
}

// On a terminal; there are rows for some seconds of work.
TEST_F(Import, ShowsHowManyRowsAreDone) {
  // More than a second's work.
  const auto count = static_cast<std::uint64_t>(5000 / SlowdownFactor());
  const std::string rows = std::to_string(count);
  Sql(kTinyid, "legacy");
  Sql("INSERT INTO tiny_id_info(biz_type, max_id, step) SELECT CONCAT('t', seq), seq, 10"
      " FROM " +
          Numbers(1, count),
      "legacy");
  PseudoTerminal terminal(80, 24);
  ChildOptions child;
  child.argv = {"/usr/bin/env", "TERM=xterm", IdctlBinary(), "--socket", host_.daemon.socket(),
                "import",       "tinyid",     "--from",      Legacy()};
  child.stderr_fd = terminal.fd();
  ChildProcess process(child);
  EXPECT_EQ(process.WaitFor(Patience(60s)), 0);
  EXPECT_THAT(terminal.Finish(),
              ContainsRegex("idctl import tinyid: [1-9][0-9]* of " + rows + " rows, [1-9][0-9]*s"));
  EXPECT_THAT(process.stdout_text(), HasSubstr(rows + " rows of tinyid, 0 refused"));
  const nlohmann::json after = host_.idctl.Json({"status"});
  EXPECT_EQ(std::to_string(after.at("tags").size()), rows);
}

// A server of the source takes its next segment after the first reading; a trigger simulates it.
TEST_F(Import, SourceThatMovesMeanwhileIsNoticedAndLiftedAbove) {
  Sql(kTinyid);
  Sql("INSERT INTO tiny_id_info(biz_type, max_id, step) VALUES('orders', 1000, 100), ('users', 50,"
      " 10)");
  Sql("CREATE TRIGGER server AFTER INSERT ON leaf_alloc FOR EACH ROW"
      " UPDATE tiny_id_info SET max_id = max_id + step"
      " WHERE biz_type = 'orders' AND NEW.biz_tag = 'orders'");
  IdctlResult result = Try({"tinyid"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.err, HasSubstr("is a server of tinyid still running?"));
  nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_EQ(Line(document, "orders"), "created null 1101 100");
  EXPECT_THAT(Reason(document, "orders"), HasSubstr("moved while importing"));
  EXPECT_EQ(Line(document, "users"), "created null 51 10");
  EXPECT_EQ(Reason(document, "users"), "");
  ASSERT_EQ(document.at("warnings").size(), 1U);
  EXPECT_THAT(document.at("warnings").at(0).get<std::string>(), HasSubstr("'orders'"));
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 1101U);
  Sql("DROP TRIGGER server");
  EXPECT_EQ(Line(Take({"tinyid"}), "users"), "kept null 51 10");
}

TEST(ImportIntoSqlite, ComesFromAServerByUrl) {
  const TempDir dir;
  DbServer server(dir);
  server.Start();
  Host host(dir);
  host.daemon.Start();
  server.Session().Execute(kCosid);
  server.Session().Execute("INSERT INTO cosid(name, last_max_id) VALUES('orders', 4000)");
  const IdctlResult own = host.idctl.Run({"import", "cosid"});
  EXPECT_EQ(own.exit_status, 1);
  EXPECT_THAT(own.err, HasSubstr("--from"));
  host.idctl.Do({"import", "cosid", "--from", server.Url()});
  EXPECT_EQ(host.idctl.Claim("orders").front(), 4001U);
  server.Session().Execute("UPDATE cosid SET last_max_id = 9000");
  EXPECT_EQ(host.idctl.Run({"import", "cosid", "--from", server.Url()}).exit_status, 1);
  host.daemon.Restart();
  EXPECT_EQ(host.idctl.Claim("orders").front(), 9001U);
  EXPECT_TRUE(host.idctl.Audit("orders").ok);
}

}  // namespace
}  // namespace idd::harness

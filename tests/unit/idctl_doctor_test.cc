// SPDX-License-Identifier: Apache-2.0
//
// The findings of idctl doctor from valid and invalid facts of the daemon, and from its own checks.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "doctor/doctor_checks.h"
#include "doctor/doctor_host.h"
#include "support/idctl_documents.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"
#include "terminal/output.h"

namespace idd::tools {
namespace {

const DoctorSelf kSelf{.version = "1.2.3", .abi_major = 1, .abi_minor = 1};

Json HealthyFacts() {
  return Json::parse(R"({
    "daemon": {"version": "1.2.3", "pid": 1, "uptime_s": 5, "host_id": "web-1", "socket": "/s",
               "abi": {"major": 1, "minor": 1}},
    "store": {"url": "mysql://idd@db/idd", "state": "up", "last_error": null, "since_s": 60,
              "errors": [], "look_error": null,
              "look": {"version": "10.11.6-MariaDB", "read_only": false,
                       "log_bytes": 0,
                       "settings": [{"name": "innodb_flush_log_at_trx_commit", "value": "1",
                                     "wanted": "1", "risk": "a crash"}],
                       "clock": {"off_ms": 3, "is_ahead": true, "uncertain_ms": 5},
                       "lost_leases": 0, "strange_leases": 0, "behind": [],
                       "waste": [{"tag": "orders", "ids": 1000, "abandoned": 10}]}},
    "tags": [{"tag": "orders", "state": "ok", "step": 1000, "available": 5000, "rate_per_s": 1.5,
              "reckoned_per_s": 2.0, "promised_ids": 1200, "outage_tolerance_s": 600, "max_prefetch": 1000000,
              "next_id": 6001, "max_id": 9223372036854775806, "exhausted_in_days": 1e9,
              "last_error": null}],
    "peers": {"connections": 3, "most_connections": 15000, "connections_per_uid": 1000,
              "busiest": {"uid": 1000, "connections": 2},
              "clients": [{"version": "1.2.3", "abi": {"major": 1, "minor": 1}, "connections": 3,
                           "pid": 77, "uid": 1000}],
              "not_listed": 0},
    "process": {"uid": 999, "seccomp_mode": 2, "no_new_privileges": true,
                "capabilities": "0000000000000000", "descriptors": 30, "most_descriptors": 65536},
    "service": {"manager": true, "watchdog_s": 30.0},
    "places": [{"what": "state dir", "path": "/var/lib/idd", "error": null, "owner": 999,
                "mode": 448, "file_system": "ext4", "read_only": false,
                "free_bytes": 50000000000, "total_bytes": 90000000000, "free_files": 1000000},
               {"what": "socket", "path": "/run/idd", "error": null, "owner": 999,
                "mode": 493, "file_system": "tmpfs", "read_only": false,
                "free_bytes": 500000000, "total_bytes": 500000000, "free_files": null}]})");
}

Json OneError(const std::string& error, const std::string& trouble) {
  return Json::array({{{"error", error}, {"trouble", trouble}}});
}

Diagnosis Check(const Json& facts) {
  Result<Diagnosis> diagnosis = CheckFacts(facts, kSelf);
  EXPECT_TRUE(diagnosis.ok()) << diagnosis.status().message();
  return diagnosis.ok() ? std::move(diagnosis).value() : Diagnosis{};
}

// The findings of a check that are not ok, as "state: found -> next".
std::string Told(const Diagnosis& diagnosis, const std::string& check) {
  std::string told;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.check != check || finding.state == Health::kOk) continue;
    EXPECT_FALSE(finding.next.empty()) << finding.found;
    told += std::string(HealthName(finding.state)) + ": " + finding.found + " -> " + finding.next;
  }
  return told;
}

std::string ToldOf(const Json& facts, const std::string& check) {
  return Told(Check(facts), check);
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Json FactsWithWitnesses() {
  Json facts = HealthyFacts();
  facts["store"]["agreement"] = AgreementDocument();
  facts["store"]["look"]["live_hosts"] = 5U;
  return facts;
}

TEST(DoctorWitnessesTest, WitnessesThatAreThereAreOk) {
  EXPECT_EQ(ToldOf(FactsWithWitnesses(), "witnesses"), "");
  Json facts = HealthyFacts();
  facts["store"]["agreement"] = nullptr;  // a SQLite file
  EXPECT_EQ(ToldOf(facts, "witnesses"), "");
}

TEST(DoctorWitnessesTest, MissingWitnessIsAWarningAndAMissingMajorityAProblem) {
  Json facts = FactsWithWitnesses();
  Json& agreement = facts["store"]["agreement"];
  agreement["witnesses"][1]["is_there"] = false;
  agreement["witnesses"][1]["silent_s"] = 120;
  EXPECT_EQ(ToldOf(facts, "witnesses").rfind("warning: web-2 has been silent for 2m; the other", 0),
            0U)
      << ToldOf(facts, "witnesses");
  agreement["witnesses"][2]["is_there"] = false;
  agreement["has_majority"] = false;
  const std::string told = ToldOf(facts, "witnesses");
  EXPECT_EQ(
      told.rfind("problem: no majority of the 3 witnesses is there: web-2 has been silent for "
                 "2m, web-3 has not come to the present term; leasing ends",
                 0),
      0U)
      << told;
  EXPECT_TRUE(Contains(told, "idctl witness set --force")) << told;
  facts["store"]["state"] = "down";  // what was seen is from before
  EXPECT_EQ(ToldOf(facts, "witnesses"), "");
}

TEST(DoctorWitnessesTest, OnlyWitnessOfTwoHostsIsAWarning) {
  Json facts = FactsWithWitnesses();
  Json& agreement = facts["store"]["agreement"];
  agreement["witnesses"] = Json::array({agreement["witnesses"][0]});
  for (const unsigned hosts : {1U, 3U}) {
    facts["store"]["look"]["live_hosts"] = hosts;
    EXPECT_EQ(ToldOf(facts, "witnesses"), "") << hosts;
  }
  facts["store"]["look"]["live_hosts"] = 2U;
  EXPECT_EQ(ToldOf(facts, "witnesses").rfind("warning: web-1 is the only witness of two hosts", 0),
            0U)
      << ToldOf(facts, "witnesses");
}

class DoctorChecksTest : public ::testing::Test {
 protected:
  Json facts_ = HealthyFacts();
};

TEST_F(DoctorChecksTest, HealthyFactsMakeOneOkOfEachCheck) {
  const Diagnosis diagnosis = Check(HealthyFacts());
  std::set<std::string> checks;
  for (const Finding& finding : diagnosis.findings) {
    EXPECT_EQ(finding.state, Health::kOk) << finding.check << ": " << finding.found;
    EXPECT_TRUE(finding.next.empty()) << finding.next;
    EXPECT_TRUE(checks.insert(finding.check).second) << finding.check << " twice";
  }
  EXPECT_EQ(checks.size(), 19U);
  EXPECT_TRUE(diagnosis.left_out.empty());
}

struct Fault {
  std::string pointer;  // the changed field of the healthy facts
  const char* value;
  std::string check;
  std::string state;
  std::string found;
};

TEST_F(DoctorChecksTest, EachFactHasItsFinding) {
  const std::vector<Fault> faults = {
      {"/daemon/version", R"("1.2.2")", "versions", "warning", "idd is 1.2.2"},
      {"/daemon/abi/minor", "2", "versions", "warning", "ABI 1.2"},
      {"/daemon/version", R"("what")", "versions", "warning", "idd is what"},
      {"/store/look/read_only", "true", "writable", "problem", "is read-only"},
      {"/store/look/log_bytes", "67108863", "disk", "", ""},
      {"/store/look/log_bytes", "67108864", "disk", "warning",
       "-wal beside the SQLite file has 64 MiB"},
      {"/store/look/settings/0/value", R"("2")", "durability", "warning", "commit is 2: a crash"},
      {"/store/look/clock/off_ms", "1005", "clock", "warning", "1005 ms ahead of"},
      {"/store/look/clock/off_ms", "18446744073709551615", "clock", "problem", "ms ahead of"},
      {"/store/look/lost_leases", "2", "host", "problem", "another idd leases as 'web-1'"},
      {"/store/look/strange_leases", "1", "host", "problem", "holds 1 of its own"},
      {"/store/look/behind", R"([{"tag":"a","mark":9,"next_id":4}])", "marks", "problem",
       "'a' (the store is at 4, this host was granted all below 9)"},
      {"/store/look/waste/0/abandoned", "400", "waste", "warning", "'orders' (40 % of 1000)"},
      {"/tags/0/state", R"("quarantined")", "quarantine", "problem", "1 tag: 'orders'"},
      {"/tags/0/state", R"("drained")", "drained", "warning", "1 tag: 'orders' drained"},
      {"/daemon/drained", "true", "drained", "warning", "the whole host is drained"},
      {"/daemon/drained", "false", "drained", "", ""},
      {"/tags/0/state", R"("dry")", "dry", "warning", "without ids at this moment"},
      {"/tags/0/max_id", "6500", "exhaustion", "warning", "5500 ids left"},
      {"/tags/0/max_id", "6000", "exhaustion", "warning", "5000 ids left"},
      {"/tags/0/next_id", "9223372036854775806", "exhaustion", "warning", "5001 ids left"},
      {"/tags/0/step", "5000", "exhaustion", "", ""},
      {"/tags/0/exhausted_in_days", "20", "exhaustion", "warning", "20d at this rate"},
      {"/tags/0/exhausted_in_days", "2.5", "exhaustion", "problem", "2d 12h at this rate"},
      {"/tags/0/available", "600", "promise", "warning", "covers 5m of 10m"},
      {"/tags/0/reckoned_per_s", "5000", "promise", "problem", "may hold 1000000"},
      {"/peers/clients/0/version", R"("1.2.2")", "clients", "warning", "1.2.2 (ABI 1.1) in 3"},
      {"/peers/clients/0/abi/minor", "0", "clients", "warning", "1.2.3 (ABI 1.0)"},
      {"/peers/clients/0/version", R"("1.3.0")", "clients", "", ""},
      {"/peers/clients/0/abi/minor", "2", "clients", "", ""},
      {"/peers/not_listed", "7", "clients", "warning", "others in 7 connections"},
      {"/peers/connections", "14900", "limits", "problem", "connections: 14900 of 15000"},
      {"/peers/connections", "13000", "limits", "warning", "connections: 13000 of 15000"},
      {"/peers/busiest/connections", "1000", "limits", "problem", "uid 1000's connections: 1000"},
      {"/process/descriptors", "60000", "limits", "warning", "descriptors: 60000 of 65536"},
      {"/process/most_descriptors", "40", "limits", "problem", "no room for another tag's ring"},
      {"/process/uid", "0", "hardening", "warning", "runs as root"},
      {"/process/seccomp_mode", "0", "hardening", "warning", "no system call filter"},
      {"/process/no_new_privileges", "false", "hardening", "warning", "may gain privileges"},
      {"/process/capabilities", R"("0000000000000001")", "hardening", "warning", "capabilities"},
      {"/service/manager", "false", "restarts", "warning", "no service manager"},
      {"/service/watchdog_s", "null", "restarts", "warning", "no watchdog notices"},
      {"/places/0/free_bytes", "100", "disk", "problem", "has 0 KiB of 83 GiB left"},
      {"/places/0/free_bytes", "100000000", "disk", "warning", "has 95 MiB of 83 GiB left"},
      {"/places/0/free_files", "0", "disk", "problem", "no room for files"},
      {"/places/0/read_only", "true", "disk", "problem", "mounted read-only"},
      {"/places/0/mode", "511", "permissions", "problem", "has mode 0777: any user can"},
      {"/places/0/mode", "1023", "permissions", "problem", "is open to all users (mode 01777)"},
      {"/places/0/mode", "504", "permissions", "warning", "has mode 0770: its group"},
      {"/places/0/owner", "1000", "permissions", "problem", "belongs to uid 1000"},
      {"/places/0/error", R"("gone")", "permissions", "problem", "cannot be examined by idd: gone"},
      {"/places/0/file_system", R"("tmpfs")", "durability", "warning", "in memory (tmpfs)"},
      {"/places/1/free_bytes", "0", "disk", "", ""},
  };
  for (const Fault& fault : faults) {
    Json facts = HealthyFacts();
    facts[Json::json_pointer(fault.pointer)] = Json::parse(fault.value);
    const std::string told = ToldOf(facts, fault.check);
    EXPECT_TRUE(told.starts_with(fault.state) && Contains(told, fault.found))
        << fault.pointer << " = " << fault.value << " told: " << told;
    EXPECT_EQ(fault.state.empty(), told.empty()) << fault.pointer;
  }
}

TEST_F(DoctorChecksTest, AnOutageIsReportedByItsKind) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"password", "refuses the password"},   {"rights", "lacks a right"},
      {"database", "database is not there"},  {"read_only", "is read-only"},
      {"host_name", "has this host's name"},  {"full", "disk is full"},
      {"state_dir", "write its marks"},       {"lock", "a lock is held"},
      {"away", "cannot be reached"},          {"other", "has been down for"},
      {"never heard of", "has been down for"}};
  for (const auto& [trouble, words] : kinds) {
    Json facts = HealthyFacts();
    facts["store"]["state"] = "down";
    facts["store"]["last_error"] = "it said no (error 1); do something";
    facts["store"]["errors"] = OneError("it said no (error 1); do something", trouble);
    facts["store"]["look"] = nullptr;
    facts["store"]["look_error"] = "the store is down";
    const Diagnosis diagnosis = Check(facts);
    const std::string told = Told(diagnosis, "store");
    EXPECT_TRUE(Contains(told, words) && Contains(told, "it said no (error 1)")) << told;
    EXPECT_EQ(CountOf(diagnosis, Health::kProblem), 1U) << trouble;
    ASSERT_EQ(diagnosis.left_out.size(), 1U);
    EXPECT_TRUE(Contains(diagnosis.left_out.front(), "durability"));
  }
}

Json DownWith(const Json& errors) {
  Json facts = HealthyFacts();
  facts["store"]["state"] = "down";
  facts["store"]["errors"] = errors;
  facts["store"]["look"] = nullptr;
  facts["store"]["look_error"] = "the store is down";
  return facts;
}

// The replica's "is read-only" was the title of both errors of a failover.
TEST_F(DoctorChecksTest, EachEndpointsErrorIsExplainedByItself) {
  const Diagnosis diagnosis = Check(DownWith(Json::array(
      {{{"error", "the database server at db1, connecting: refused (error 2002)"},
        {"trouble", "away"}},
       {{"error", "the database server at db2 is read-only"}, {"trouble", "read_only"}}})));
  std::vector<std::string> found;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.check == "store") found.push_back(finding.found + " -> " + finding.next);
  }
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(Contains(found[0], "endpoint 1 of 2: the store cannot be reached, ") &&
              Contains(found[0], "db1") && !Contains(found[0], "read-only"))
      << found[0];
  EXPECT_TRUE(Contains(found[1], "endpoint 2 of 2: the store is read-only, ") &&
              Contains(found[1], "db2") && !Contains(found[1], "2002"))
      << found[1];
  // With two primaries, each leases what the other leases.
  EXPECT_TRUE(Contains(found[1], "if it is a replica, start its primary, or promote it once"))
      << found[1];
}

TEST_F(DoctorChecksTest, NextDoesNotRepeatWhatWasFound) {
  for (const char* trouble : {"other", "read_only", "away", "lock"}) {
    for (const Finding& finding :
         Check(DownWith(OneError("it said no (error 1); ask the manual", trouble))).findings) {
      if (finding.check != "store") continue;
      EXPECT_FALSE(Contains(finding.found, "ask the manual")) << finding.found;
    }
  }
  EXPECT_TRUE(Contains(ToldOf(DownWith(OneError("no (error 1); ask the manual", "other")), "store"),
                       ": no (error 1) -> ask the manual"));
}

TEST_F(DoctorChecksTest, AdvisesTheRightsThatThePageGrants) {
  const std::string page = harness::ReadFile(IDD_TEST_MYSQL_PAGE);
  const std::size_t begin = page.find("GRANT SELECT");
  ASSERT_NE(begin, std::string::npos);
  const std::string grant = page.substr(begin, page.find(" ON idd.*", begin) - begin);
  const std::string told = ToldOf(DownWith(OneError("no (error 1142)", "rights")), "store");
  EXPECT_TRUE(Contains(told, grant + " ON its database")) << told << " for " << grant;
  EXPECT_FALSE(Contains(told, "GRANT ALL")) << told;
}

// systemd passes a credential at a start only; a reload would keep the old password.
TEST_F(DoctorChecksTest, AdviceForAWrongPasswordDependsOnWhereItIsFrom) {
  Json facts =
      DownWith(OneError("Access denied (error 1045); check user and password", "password"));
  const auto told = [&](const char* source, const char* path) {
    facts["store"]["password_source"] = source == nullptr ? Json(nullptr) : Json(source);
    facts["store"]["password_path"] = path == nullptr ? Json(nullptr) : Json(path);
    return ToldOf(facts, "store");
  };
  const std::string credential = told("credential", "idd-database-password");
  EXPECT_TRUE(
      Contains(credential, "'/etc/credstore/idd-database-password', then systemctl restart"))
      << credential;
  EXPECT_FALSE(Contains(credential, "reload")) << credential;
  const std::string file = told("file", "/etc/idd/password");
  EXPECT_TRUE(Contains(file, "'/etc/idd/password'")) << file;
  EXPECT_TRUE(Contains(file, "at its next try, without a reload")) << file;
  EXPECT_TRUE(Contains(told("url", nullptr), "database URL, then systemctl reload idd"));
  // The user may not know the source, or idd is older: the advice names all three.
  const std::string unknown = told(nullptr, nullptr);
  for (const char* words : {"reload", "password_file", "restart"}) {
    EXPECT_TRUE(Contains(unknown, words)) << unknown;
  }
}

TEST_F(DoctorChecksTest, AStoreThatIsUpAndDoesNotAnswerIsAProblem) {
  facts_["store"]["look"] = nullptr;
  facts_["store"]["look_error"] = "the store has not answered within 2 s";
  EXPECT_TRUE(Contains(ToldOf(facts_, "store"), "problem: mysql://idd@db/idd is slow"));
}

TEST_F(DoctorChecksTest, ASqliteFileInMemoryOrOnANetworkIsAProblem) {
  for (const char* kind : {"tmpfs", "ramfs", "nfs", "cifs", "ceph"}) {
    Json facts = HealthyFacts();
    facts["places"][0]["what"] = "database";
    facts["places"][0]["file_system"] = kind;
    const std::string told = ToldOf(facts, "durability");
    EXPECT_TRUE(told.starts_with("problem: ") && Contains(told, kind)) << told;
  }
}

TEST_F(DoctorChecksTest, ADryTagWithAnErrorIsAProblem) {
  facts_["tags"][0]["state"] = "dry";
  facts_["tags"][0]["last_error"] = "used up";
  EXPECT_TRUE(Contains(ToldOf(facts_, "dry"), "problem: 1 tag: 'orders' (used up)"));
}

TEST_F(DoctorChecksTest, TagWithIdsWhoseLeaseFailedIsAWarningWhileTheStoreIsUp) {
  facts_["tags"][0]["last_error"] = "a trigger refuses the row";
  EXPECT_TRUE(Contains(ToldOf(facts_, "dry"), "warning: 1 tag: 'orders' (a trigger refuses"));
  facts_["store"]["state"] = "down";
  EXPECT_FALSE(Contains(ToldOf(facts_, "dry"), "a trigger refuses"));
}

TEST_F(DoctorChecksTest, UnusedSnowflakeTagIsNeitherDryNorShort) {
  Json& tag = facts_["tags"][0];
  tag["mode"] = "snowflake";
  tag["state"] = "dry";
  tag["available"] = 0U;
  tag["next_id"] = tag["max_id"] = 1U;
  for (const Finding& finding : Check(facts_).findings) {
    EXPECT_EQ(finding.state, Health::kOk) << finding.check << ": " << finding.found;
  }
  tag["last_error"] = "no worker id is free";
  EXPECT_TRUE(Contains(ToldOf(facts_, "dry"), "problem: 1 tag: 'orders' (no worker id is free)"));
}

TEST_F(DoctorChecksTest, SnowflakeTagEndsWithItsTimeBits) {
  Json& tag = facts_["tags"][0];
  tag["mode"] = "snowflake";
  tag["exhausted_in_days"] = 20;
  std::string told = ToldOf(facts_, "exhaustion");
  EXPECT_TRUE(
      told.starts_with("warning: 1 tag: 'orders' (20d left) whose time bits are running "
                       "out -> a tag keeps its layout"))
      << told;
  EXPECT_FALSE(Contains(told, "--max-id")) << told;
  tag["exhausted_in_days"] = 2.5;
  told = ToldOf(facts_, "exhaustion");
  EXPECT_TRUE(told.starts_with("problem: 1 tag: 'orders' (2d 12h left)")) << told;
}

TEST_F(DoctorChecksTest, TimeThatACrashGaveUpIsNoWaste) {
  Json& waste = facts_["store"]["look"]["waste"][0];
  waste["abandoned"] = 400U;
  for (const char* counter : {"orders#3", "a#b#1048575"}) {
    waste["tag"] = counter;
    EXPECT_EQ(ToldOf(facts_, "waste"), "") << counter;
  }
  for (const char* name : {"orders#", "#3", "orders3", "123", "orders#3x", ""}) {
    waste["tag"] = name;
    EXPECT_TRUE(ToldOf(facts_, "waste").starts_with("warning")) << name;
  }
}

TEST_F(DoctorChecksTest, LanesNeedRestartableSequences) {
  facts_["tags"][0]["order"] = "cpu";
  EXPECT_EQ(ToldOf(facts_, "lanes"), "");
  DoctorSelf self = kSelf;
  self.has_rseq = false;
  const std::string told = Told(CheckFacts(facts_, self).value(), "lanes");
  EXPECT_TRUE(Contains(told, "'orders' of order cpu, but there are no restartable sequences here"))
      << told;
  facts_["tags"][0]["order"] = "host";
  EXPECT_EQ(Told(CheckFacts(facts_, self).value(), "lanes"), "");
}

TEST_F(DoctorChecksTest, ManyTagsMakeOneFinding) {
  facts_["tags"][0]["state"] = "quarantined";
  for (int i = 0; i < 1999; ++i) {
    facts_["tags"].push_back(facts_["tags"][0]);
    facts_["tags"].back()["tag"] = "t" + std::to_string(i);
  }
  const std::string told = ToldOf(facts_, "quarantine");
  EXPECT_TRUE(Contains(told, "2000 tags: 'orders', 't0', 't1' and 1997 more"))
      << told.substr(0, 200);
}

TEST_F(DoctorChecksTest, UserWithoutAdminRightsSeesWhatIsLeftOut) {
  for (const char* key : {"peers", "process", "service", "places"}) facts_[key] = nullptr;
  const Diagnosis diagnosis = Check(facts_);
  ASSERT_EQ(diagnosis.left_out.size(), 1U);
  EXPECT_TRUE(Contains(diagnosis.left_out.front(), "clients, limits, disk, permissions"));
  EXPECT_EQ(CountOf(diagnosis, Health::kProblem) + CountOf(diagnosis, Health::kWarning), 0U);
}

// The paths of everything in the document except its root.
std::vector<Json::json_pointer> PathsOf(const Json& document) {
  std::vector<Json::json_pointer> paths = {Json::json_pointer()};
  for (std::size_t next = 0; next < paths.size(); ++next) {
    const Json::json_pointer path = paths[next];
    const Json& node = document[path];
    if (node.is_object()) {
      for (const auto& item : node.items()) paths.push_back(path / item.key());
    }
    for (std::size_t i = 0; node.is_array() && i < node.size(); ++i) paths.push_back(path / i);
  }
  paths.erase(paths.begin());
  return paths;
}

// Fields without any check, or for which null and no value are equivalent.
bool IsShownOnly(const std::string& path) {
  static const std::set<std::string> unread = {"/daemon/pid", "/daemon/uptime_s", "/daemon/socket",
                                               // shown, not read
                                               "/store/last_error", "/tags/0/rate_per_s"};
  return unread.contains(path);
}

TEST(DoctorDocumentTest, AFieldOfAnotherTypeIsIncompatible) {
  const Json healthy = HealthyFacts();
  const std::vector<Json::json_pointer> paths = PathsOf(healthy);
  ASSERT_GT(paths.size(), 80U);
  for (const auto& path : paths) {
    if (IsShownOnly(path.to_string())) continue;
    for (const char* text : {R"("x")", "-1", "[1]", R"({"x": 1})", "true"}) {
      const Json wrong = Json::parse(text);
      const Json& right = healthy[path];
      // A text may replace null; and each value may be replaced by one of its own type.
      if (wrong.type() == right.type() || (right.is_null() && wrong.is_string())) continue;
      Json facts = healthy;
      facts[path] = wrong;
      const Result<Diagnosis> checked = CheckFacts(facts, kSelf);
      EXPECT_EQ(checked.status().code(), Code::kIncompatible) << path.to_string() << " = " << text;
    }
  }
}

TEST(DoctorDocumentTest, AMissingFieldIsIncompatible) {
  const Json healthy = HealthyFacts();
  const std::set<std::string> optional = {
      "/store/look_error", "/store/since_s",  "/tags/0/last_error", "/tags/0/exhausted_in_days",
      "/places/0/error",   "/places/1/error", "/service/watchdog_s"};
  const std::vector<Json::json_pointer> paths = PathsOf(healthy);
  for (const auto& path : paths) {
    const bool is_field = healthy[path.parent_pointer()].is_object();
    if (!is_field || optional.contains(path.to_string()) || IsShownOnly(path.to_string())) continue;
    Json facts = healthy;
    facts[path.parent_pointer()].erase(path.back());
    EXPECT_EQ(CheckFacts(facts, kSelf).status().code(), Code::kIncompatible) << path.to_string();
  }
}

TEST(DoctorDocumentTest, PromiseOfAYoungLoadIsShort) {
  Json facts = HealthyFacts();
  facts["tags"][0]["available"] = 60U;
  facts["tags"][0]["promised_ids"] = 60U;
  EXPECT_FALSE(Contains(ToldOf(facts, "promise"), "warning")) << ToldOf(facts, "promise");
  facts["tags"][0]["available"] = 59U;
  EXPECT_TRUE(Contains(ToldOf(facts, "promise"), "covers 29s of 30s")) << ToldOf(facts, "promise");
}

TEST(DoctorDocumentTest, NumbersThatNoDaemonHasDoNoHarm) {
  const char* kPaths[] = {"/tags/0/next_id",
                          "/tags/0/max_id",
                          "/tags/0/available",
                          "/tags/0/step",
                          "/tags/0/reckoned_per_s",
                          "/tags/0/max_prefetch",
                          "/store/look/clock/uncertain_ms",
                          "/places/0/mode",
                          "/places/0/free_bytes",
                          "/places/0/total_bytes",
                          "/peers/clients/0/connections",
                          "/store/look/waste/0/ids"};
  for (const char* path : kPaths) {
    for (const char* number : {"0", "18446744073709551615"}) {
      Json facts = HealthyFacts();
      facts[Json::json_pointer(path)] = Json::parse(number);
      EXPECT_TRUE(CheckFacts(facts, kSelf).ok()) << path << " = " << number;
    }
  }
  Json facts = HealthyFacts();
  facts["tags"][0]["reckoned_per_s"] = 1e300;
  EXPECT_TRUE(Contains(ToldOf(facts, "promise"), "problem")) << ToldOf(facts, "promise");
}

Diagnosis Sample() {
  return {.findings = {{"store", Health::kOk, "up", ""},
                       {"clients", Health::kWarning, "old\x1b[2Jone", "restart it"},
                       {"disk", Health::kProblem,
                        "the folder of the database, /var/lib/idd, has 0 KiB of 83 GiB left",
                        "free space there, or move it: without room nothing is leased"}},
          .left_out = {"limits: not yours"}};
}

TEST(DoctorTextTest, ProblemsComeFirstAndEachIsOneLine) {
  EXPECT_EQ(RenderDiagnosis(Sample(), false, Screen{}),
            "problem  disk         the folder of the database, /var/lib/idd, has 0 KiB of 83 GiB "
            "left; next: free space there, or move it: without room nothing is leased\n"
            "warning  clients      old\\x1b[2Jone; next: restart it\n"
            "not checked  limits: not yours\n"
            "not healthy: 1 problem, 1 warning, 1 ok\n");
  EXPECT_TRUE(Contains(RenderDiagnosis(Sample(), true, Screen{}), "\nok       store        up\n"));
}

void ExpectLinesFit(const std::string& text, std::size_t columns) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), columns) << line;
}

TEST(DoctorTextTest, ATerminalGetsLinesThatFit) {
  const Screen narrow{.is_terminal = true, .columns = 80, .rows = 24, .has_color = false};
  std::string text = RenderDiagnosis(Sample(), false, narrow);
  EXPECT_TRUE(text.starts_with(
      "problem  disk         the folder of the database, /var/lib/idd, has 0 KiB of 83\n"
      "                      GiB left; next: free space there, or move it: without room\n"
      "                      nothing is leased\n"))
      << text;
  ExpectLinesFit(text, 80);
  // If there is no room beside the lead, the text goes below it.
  text = RenderDiagnosis(Sample(), false, {.is_terminal = true, .columns = 40, .rows = 24});
  EXPECT_TRUE(text.starts_with("problem  disk       \n  the folder of the database,")) << text;
  ExpectLinesFit(text, 40);
}

TEST(DoctorTextTest, AWordLongerThanALineIsCutAndNothingLoops) {
  Diagnosis diagnosis;
  diagnosis.findings = {{"store", Health::kProblem, std::string(300, 'x'), "y"}};
  for (const std::size_t columns : {1U, 22U, 23U, 80U}) {
    const Screen screen{.is_terminal = true, .columns = columns, .rows = 24, .has_color = false};
    const std::string text = RenderDiagnosis(diagnosis, false, screen);
    EXPECT_EQ(std::count(text.begin(), text.end(), 'x'), 301) << text;  // one in "next"
  }
}

TEST(DoctorTextTest, ColourIsForTerminalsAlone) {
  const Screen colored{.is_terminal = true, .columns = 80, .rows = 24, .has_color = true};
  EXPECT_TRUE(Contains(RenderDiagnosis(Sample(), false, colored), "\x1b[1;31mproblem\x1b[0m"));
  EXPECT_FALSE(Contains(RenderDiagnosis(Sample(), false, Screen{}), "\x1b"));
}

TEST(DoctorTextTest, TheDocumentHasAllOfIt) {
  Diagnosis diagnosis = Sample();
  diagnosis.findings.push_back({"socket", Health::kOk, "\xff.sock", ""});
  const JsonDocument built = DiagnosisJson(diagnosis);
  const Json& document = built.json();
  EXPECT_EQ(document["ok"], false);
  EXPECT_EQ(document["findings"].size(), 4U);
  EXPECT_EQ(document["findings"][0]["next"], nullptr);
  EXPECT_EQ(document["findings"][2]["state"], "problem");
  EXPECT_EQ(document["findings"][3]["found"], "\\xff.sock") << "a path need not be UTF-8";
  EXPECT_FALSE(document.dump().empty());
}

TEST(DoctorTextTest, AdviceCanBePastedIntoAShell) {
  EXPECT_EQ(ShellWord("orders-1.x"), "orders-1.x");
  EXPECT_EQ(ShellWord("two words"), "'two words'");
  EXPECT_EQ(ShellWord("a'; rm -rf /; '"), "'a'\\''; rm -rf /; '\\'''");
  EXPECT_EQ(ShellWord("$(id)"), "'$(id)'");
  EXPECT_EQ(ShellWord("-x"), "TAG");
  EXPECT_EQ(ShellWord("a\nb"), "TAG");
  EXPECT_EQ(ShellWord(""), "TAG");
}

// --- without the daemon

FileProbe Socket(mode_t mode = S_IFSOCK | 0666) {
  return {.path = "/run/idd/idd.sock", .error = 0, .owner = 999, .mode = mode, .may_write = true};
}
FileProbe Folder(mode_t mode = S_IFDIR | 0755) {
  return {.path = "/run/idd", .error = 0, .owner = 999, .mode = mode, .may_write = false};
}

TEST(DoctorSocketTest, IsReportedByTheKindOfItsFile) {
  EXPECT_EQ(CheckSocket(Socket(), Folder(), 1000).state, Health::kOk);
  FileProbe missing = Socket();
  missing.error = ENOENT;
  EXPECT_TRUE(Contains(CheckSocket(missing, Folder(), 1000).found, "there is no"));
  missing.error = EACCES;
  EXPECT_TRUE(Contains(CheckSocket(missing, Folder(), 1000).next, "usermod -aG idd"));
  EXPECT_TRUE(
      Contains(CheckSocket(Socket(S_IFREG | 0666), Folder(), 1000).found, "is not a socket"));
  FileProbe shut = Socket(S_IFSOCK | 0600);
  shut.may_write = false;
  EXPECT_TRUE(Contains(CheckSocket(shut, Folder(), 1000).found, "uid 1000) may not connect"));
  EXPECT_EQ(CheckSocket(Socket(), Folder(S_IFDIR | 0777), 1000).state, Health::kProblem);
  EXPECT_EQ(CheckSocket(Socket(), Folder(S_IFDIR | 01777), 1000).state, Health::kOk)
      << "users can remove only their own files in it";
}

// Regression: doctor asked whether "idd (pid 1)" hangs, which is systemd.
TEST(DoctorSocketTest, SilenceBehindASocketOfSystemdIsNotBlamedOnPid1) {
  NoAnswer failed{.status = {Code::kUnavailable, "idd did not answer in time"},
                  .listener = {.error = 0, .pid = 1, .uid = 0},
                  .socket = Socket(),
                  .service = "active"};
  const Finding finding = ExplainNoAnswer(failed);
  EXPECT_TRUE(Contains(finding.found, "systemd listens at the socket, and idd does not answer"));
  EXPECT_TRUE(Contains(finding.found, "systemd says idd.service is active"));
  EXPECT_TRUE(Contains(finding.next, "LimitNOFILE="));
  failed.service = std::nullopt;  // in a container, idd may be pid 1
  EXPECT_TRUE(Contains(ExplainNoAnswer(failed).found, "idd (pid 1) does not answer"));
}

TEST(DoctorSocketTest, SilenceIsExplainedByWhoListens) {
  NoAnswer failed{.status = {Code::kUnavailable, "idd did not answer in time"},
                  .listener = {.error = 0, .pid = 12, .uid = 0},
                  .socket = Socket(),
                  .service = "failed"};
  EXPECT_TRUE(Contains(ExplainNoAnswer(failed).found, "idd (pid 12) does not answer"));
  EXPECT_TRUE(Contains(ExplainNoAnswer(failed).found, "systemd says idd.service is failed"));
  failed.listener.error = ECONNREFUSED;
  EXPECT_TRUE(Contains(ExplainNoAnswer(failed).found, "no process listens"));
  failed.socket = Socket(S_IFREG | 0644);
  EXPECT_TRUE(Contains(ExplainNoAnswer(failed).found, "is not a socket"));
  failed.socket = Socket();
  failed.status = {Code::kDenied, "runs as uid 7"};
  EXPECT_TRUE(Contains(ExplainNoAnswer(failed).next, "another process"));
  failed.listener.error = EACCES;
  EXPECT_TRUE(Contains(ExplainNoAnswer(failed).next, "usermod"));
  failed.status = {Code::kIncompatible, "ABI 2.0"};
  EXPECT_EQ(ExplainNoAnswer(failed).check, "versions");
  for (const Code code : {Code::kSystem, Code::kInvalid, Code::kDenied, Code::kUnavailable}) {
    failed.status = {code, "x"};
    EXPECT_EQ(ExplainNoAnswer(failed).state, Health::kProblem);
    EXPECT_FALSE(ExplainNoAnswer(failed).next.empty());
  }
}

// A script in place of systemctl.
class ServiceManagerTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::optional<std::string> Ask(const std::string& script) const {
    harness::WriteFile(program_, "#!/bin/sh\n" + script + "\n");
    ::chmod(program_.c_str(), 0700);
    return AskServiceManager(folder_, program_);
  }
  // The program has one second, which may be too short on a busy machine, so ask until there is an
  // answer.
  [[nodiscard]] std::optional<std::string> AskPatiently(const std::string& script) const {
    std::optional<std::string> answer;
    static_cast<void>(harness::WaitUntil(harness::Patience(std::chrono::seconds(5)), [&] {
      answer = Ask(script);
      return answer.has_value();
    }));
    return answer;
  }

  const harness::TempDir dir_;
  const std::string& folder_ = dir_.path();
  const std::string program_ = dir_.File("systemctl");
};

TEST_F(ServiceManagerTest, IsAskedAndNotBelievedBlindly) {
  EXPECT_EQ(AskPatiently("echo inactive; exit 3"), "inactive");
  EXPECT_EQ(AskPatiently("[ \"$1 $2\" = 'is-active idd.service' ] && echo active"), "active");
  EXPECT_EQ(Ask("printf '\\033[2J'"), std::nullopt);
  EXPECT_EQ(Ask("exit 1"), std::nullopt);
  EXPECT_EQ(Ask("head -c 1000000 /dev/zero | tr '\\0' a"), std::nullopt)
      << "a state is one short word";
  EXPECT_EQ(AskServiceManager(folder_ + "/none", program_), std::nullopt);
  EXPECT_EQ(AskServiceManager(folder_, folder_ + "/none"), std::nullopt);
}

TEST_F(ServiceManagerTest, IsNotWaitedForIfItHangs) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Ask("exec sleep 60"), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace idd::tools

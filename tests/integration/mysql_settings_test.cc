// SPDX-License-Identifier: Apache-2.0
//
// A server whose settings are not idd's: each row has one at its worst value. The ids and reports
// are right, or idd names the setting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mysql_store_fixture.h"
#include "store/mysql/mysql_store.h"
#include "support/db_server.h"
#include "support/store_case.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

constexpr const char* kPlain = "orders";
constexpr const char* kWide = "f\xc3\xbcr\xf0\x9f\x8d\x8b:a";  // two and four bytes, and a colon
constexpr const char* kWitness = "a.00000000";

struct Setting {
  const char* name;
  const char* value;
  const char* refusal = "";        // "": it must work
  const char* mysql_refusal = "";  // of MySQL alone
};

// Set for the whole server. Sessions that begin then have it.
constexpr Setting kSettings[] = {
    {"sql_select_limit", "3"},
    {"sql_select_limit", "0"},
    {"max_join_size", "1"},
    {"sql_mode", "'ANSI'"},
    {"sql_mode", "'ORACLE,NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE,PAD_CHAR_TO_FULL_LENGTH'"},
    {"sql_mode", "'NO_BACKSLASH_ESCAPES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ONLY_FULL_GROUP_BY'"},
    {"sql_mode", "''"},
    {"autocommit", "0"},
    {"completion_type", "1"},
    {"completion_type", "2"},
    {"tx_isolation", "'SERIALIZABLE'"},
    {"tx_isolation", "'READ-UNCOMMITTED'"},
    {"tx_read_only", "1"},
    {"transaction_isolation", "'SERIALIZABLE'"},
    {"transaction_isolation", "'READ-UNCOMMITTED'"},
    {"transaction_read_only", "1"},
    {"default_collation_for_utf8mb4", "'utf8mb4_general_ci'"},
    {"sql_require_primary_key", "1"},
    {"sql_generate_invisible_primary_key", "1"},
    {"information_schema_stats_expiry", "31536000"},
    {"max_execution_time", "1"},
    {"cte_max_recursion_depth", "0"},
    {"time_zone", "'+13:00'"},
    {"character_set_server", "'latin1'"},
    {"character_set_client", "'latin1'"},
    {"collation_server", "'utf8mb4_unicode_ci'"},
    {"collation_connection", "'utf8mb4_unicode_ci'"},
    {"character_set_results", "'latin1'"},
    {"default_storage_engine", "'MyISAM'"},
    {"enforce_storage_engine", "'MyISAM'", "enforce_storage_engine"},
    {"explicit_defaults_for_timestamp", "0"},
    {"unique_checks", "0"},
    {"check_constraint_checks", "0"},
    {"sql_safe_updates", "1"},
    {"sql_auto_is_null", "1"},
    {"max_sort_length", "64"},
    {"max_statement_time", "0.000001"},
    {"wait_timeout", "1"},
    {"innodb_lock_wait_timeout", "1"},
    {"max_allowed_packet", "1024", "max_allowed_packet"},
    {"max_session_mem_used", "8192"},
    {"auto_increment_increment", "65535"},
    {"binlog_format", "'STATEMENT'", "binlog_format"},
    {"in_predicate_conversion_threshold", "2"},
    {"optimizer_switch",
     "'index_merge=off,index_condition_pushdown=off,derived_merge=off,materialization=off,"
     "semijoin=off,firstmatch=off,subquery_cache=off,split_materialized=off'"},
    {"query_cache_type", "1"},
    {"system_versioning_asof", "'2001-01-01 00:00:00'"},
    {"read_only", "1", "read-only"},
    {"init_connect", "\"SET NAMES utf8\""},
    {"init_connect", "\"SET NAMES latin1\""},
    {"init_connect", "\"SET character_set_connection=ucs2\""},
    {"init_connect", "\"SET character_set_results=NULL\""},
    {"init_connect", "\"SET autocommit=0\""},
    {"init_connect", "\"SET completion_type=2\""},
    {"init_connect", "\"START TRANSACTION READ ONLY\""},
    {"init_connect", "\"SET TRANSACTION READ ONLY\""},
    {"init_connect", "\"SET TRANSACTION ISOLATION LEVEL SERIALIZABLE\""},
    {"init_connect", "\"SET SESSION TRANSACTION READ ONLY\""},
    {"init_connect", "\"SET sql_mode='ANSI'\""},
    {"init_connect", "\"SET sql_select_limit=2\""},
    {"init_connect", "\"SET time_zone='-11:00'\""},
    {"init_connect", "\"SET timestamp=1\""},
    {"init_connect", "\"SET insert_id=7\"", "", "insert_id"},
    {"init_connect", "\"SET last_insert_id=7\""},
    {"init_connect", "\"SET @a=1 /*M! , max_statement_time=0.000001 */\""},
    {"init_connect", "\"SET @a=1 /*!80000 , max_execution_time=1 */\""},
    {"init_connect", "\"SET @a=1 /*!80000 , session_track_gtids=ALL_GTIDS */\""},
    {"init_connect", "\"SET @a=1 /*!80000 , resultset_metadata=NONE */\"", "", "init_connect"},
    {"init_connect", "\"USE information_schema\""},
    {"init_connect", "\"SET lc_time_names='ja_JP', lc_messages='de_DE'\""},
    {"init_connect", "\"SET @idd_lowered=7, @idd_gone=7\""},
    {"init_connect", "\"SELECT nothing FROM nowhere\"", "init_connect"},
};
// Those that hide nothing of each other, all at once.
constexpr Setting kTogether[] = {
    {"innodb_snapshot_isolation", "1"},
    {"foreign_key_checks", "0"},
    {"group_concat_max_len", "4"},
    {"div_precision_increment", "0"},
    {"net_read_timeout", "1"},
    {"net_write_timeout", "1"},
    {"lock_wait_timeout", "0"},
    {"auto_increment_offset", "65535"},
    {"binlog_row_image", "'MINIMAL'"},
    {"low_priority_updates", "1"},
    {"optimizer_use_condition_selectivity", "1"},
    {"old_mode", "'NO_DUP_KEY_WARNINGS_WITH_IGNORE,NO_PROGRESS_INFO,ZERO_DATE_TIME_CAST'"},
    {"old_alter_table", "'COPY'"},
    {"sql_notes", "0"},
    {"sql_quote_show_create", "0"},
    {"max_error_count", "0"},
    {"max_heap_table_size", "16384"},
    {"tmp_table_size", "0"},
    {"big_tables", "1"},
    {"sql_buffer_result", "1"},
    {"session_track_system_variables", "'*'"},
    {"session_track_state_change", "1"},
    {"session_track_transaction_info", "'CHARACTERISTICS'"},
    {"innodb_strict_mode", "0"},
    {"innodb_default_row_format", "'redundant'"},
    {"innodb_read_only_compressed", "1"},
    {"updatable_views_with_limit", "0"},
    {"profiling", "1"},
    {"idle_transaction_timeout", "1"},
    {"idle_write_transaction_timeout", "1"},
    {"sql_if_exists", "1"},
};

std::string NameOf(const Setting& setting) {
  return std::string(setting.name) + "=" + setting.value;
}

class MysqlSettings : public MysqlStoreTest {
 protected:
  // Durability costs most of the time. With a binary log, its format matters.
  static void SetUpTestSuite() {
    dir_ = new harness::TempDir;
    server_ = new harness::DbServer(
        *dir_, "db",
        {.port = 0,
         .arguments = {"--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite",
                       "--log-bin=binlog", "--sync-binlog=0", "--server-id=1"}});
    server_->Start();
  }
  // This session has the settings of before.
  void SetUp() override {
    root_ = std::make_unique<harness::DbSession>(server_->socket(), "root", "");
    for (const Setting& setting : All()) {
      if (root_->Try(std::string("SELECT @@global.") + setting.name) != 0) continue;
      std::string value = root_->Query(std::string("SELECT QUOTE(@@global.") + setting.name + ")");
      const bool is_number = value.find_first_not_of("0123456789.'") == std::string::npos;
      if (is_number && value != "''") value = value.substr(1, value.size() - 2);
      if (value == "NULL" || value == "'DEFAULT'") value = "DEFAULT";
      before_[setting.name] = value;
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) Set(name, value);
    root_.reset();
  }
  [[nodiscard]] static std::vector<Setting> All() {
    std::vector<Setting> all(std::begin(kSettings), std::end(kSettings));
    all.insert(all.end(), std::begin(kTogether), std::end(kTogether));
    return all;
  }
  // False: this server has no such setting, or MySQL not this value.
  [[nodiscard]] bool TrySet(const Setting& setting) {
    if (!before_.contains(setting.name)) return false;
    const unsigned error =
        root_->Try("SET GLOBAL " + std::string(setting.name) + " = " + setting.value);
    EXPECT_TRUE(error == 0 || harness::IsMysql()) << NameOf(setting) << ": error " << error;
    return error == 0;
  }
  static void Set(const std::string& name, const std::string& value) {
    root_->Execute("SET GLOBAL " + name + " = " + value);
  }

  // A life of a host: Ok, or the first failure.
  [[nodiscard]] static Status Live() {
    const std::unique_ptr<MysqlStore> store = NewStore("a");
    if (Status status = store->Open(); !status.ok()) return status;
    if (Status status = CreateTags(*store); !status.ok()) return status;
    if (Status status = Lease(*store); !status.ok()) return status;
    Report(*store);
    return Status::Ok();
  }
  // With ceilings that are active.
  [[nodiscard]] static Status CreateTags(MysqlStore& store) {
    for (const std::string tag : {kPlain, kWide, "flake#0"}) {
      NewTag wanted;
      wanted.tag = tag;
      wanted.description = kWide;
      const Result<TagRecord> made = store.CreateTag(wanted);
      if (!made.ok()) return made.status();
      EXPECT_EQ(made.value().description, kWide);
    }
    return MakeCeilings(store);
  }
  // As the witnesses of a term would.
  [[nodiscard]] static Status MakeCeilings(MysqlStore& store) {
    Result<TermView> view = store.ReadTerm(std::nullopt);
    if (!view.ok()) return view.status();
    const Term term = {.number = 1, .witness = kWitness};
    const WitnessList list = {.version = 1, .asked_in = term, .names = {kWitness}};
    const Result<bool> begun = store.BeginTerm(view.value().row, term, list);
    if (!begun.ok()) return begun.status();
    EXPECT_TRUE(begun.value());
    const Result<std::uint64_t> epoch = store.Raise(Raises());
    if (!epoch.ok()) return epoch.status();
    view = store.ReadTerm(0);
    if (!view.ok()) return view.status();
    const TermRow& row = view.value().row;
    EXPECT_TRUE(row.is_current);
    EXPECT_EQ(row.active, list);
    EXPECT_EQ(view.value().wanted.size(), 3U);
    const std::vector<TagMark> notes = {{.tag = kPlain, .mark = 1}, {.tag = kWide, .mark = 1}};
    const Result<bool> pushed = store.Push(row, notes);
    if (!pushed.ok()) return pushed.status();
    EXPECT_TRUE(pushed.value());
    const WitnessRow witness = {
        .name = kWitness, .term = term, .noted = epoch.value(), .list = list, .beat = 1};
    const Result<bool> written = store.WriteWitness(row, witness, 0);
    if (!written.ok()) return written.status();
    EXPECT_TRUE(written.value());
    const Result<bool> active = store.Activate(row, 0, epoch.value());
    if (!active.ok()) return active.status();
    EXPECT_TRUE(active.value());
    const auto ceilings = store.ReadCeilings({kPlain, kWide, "flake#0"});
    if (!ceilings.ok()) return ceilings.status();
    EXPECT_EQ(ceilings.value().size(), 3U);
    for (const Ceiling& ceiling : ceilings.value()) EXPECT_EQ(ceiling.active, 9'000'000U);
    return Status::Ok();
  }
  [[nodiscard]] static std::vector<CeilingRaise> Raises() {
    std::vector<CeilingRaise> raises;
    for (const char* tag : {kPlain, kWide, "flake#0"}) {
      raises.push_back({.tag = tag, .wanted = 9'000'000, .least = 1});
    }
    return raises;
  }
  // Alone and together, handed back and taken again, exhausted and settled.
  [[nodiscard]] static Status Lease(MysqlStore& store) {
    std::vector<LeaseRequest> all;
    std::uint64_t token = 1;
    for (const char* tag : {kPlain, kWide, "flake#0"})
      all.push_back(Request(token++, 0, 1000, tag));
    const auto together = store.TakeLeases(all);
    if (!together.ok()) return together.status();
    for (const Result<idd::daemon::Lease>& lease : together.value()) {
      if (!lease.ok()) return lease.status();
      EXPECT_EQ(lease.value().ids.first, 1U);
      EXPECT_EQ(lease.value().ids.limit, 1001U);
    }
    for (std::uint64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(Take(store, Request(10 + i)).first, 1001 + 1000 * i);
    }
    Return(store, 14, 100, ReturnOutcome::kLowered);
    EXPECT_EQ(Take(store, Request(15)).first, 5101U);
    Return(store, 12, 100, ReturnOutcome::kListed);
    EXPECT_EQ(Take(store, Request(16)).first, 3101U);
    for (const std::uint64_t ended : {1UL, 10UL, 11UL, 13UL, 15UL, 16UL}) {
      const std::uint64_t claimed = ended == 16 ? 900 : 1000;
      Status status = store.CloseLeases({Closure(ended, LeaseState::kExhausted, claimed)});
      if (!status.ok()) return status;
    }
    return Status::Ok();
  }
  // Twelve leases of three tags.
  static void Report(MysqlStore& store) {
    const std::unique_ptr<MysqlStore> keeper = NewStore("a");
    ASSERT_TRUE(keeper->OpenToKeepJournal().ok());
    // Once over all ten leases, of which one may still be active.
    const Result<JournalOutcome> kept = keeper->journal()->KeepJournal({.settle_after = 0s});
    ASSERT_TRUE(kept.ok()) << kept.status().message();
    EXPECT_GE(kept.value().settled, 6U);
    const std::unique_ptr<MysqlStore> reader = NewStore("a");
    ASSERT_TRUE(reader->OpenToRead().ok());
    const auto tags = reader->ListTags();
    ASSERT_TRUE(tags.ok()) << tags.status().message();
    EXPECT_EQ(tags.value().size(), 3U);
    const auto leases = reader->ListLeases({});
    ASSERT_TRUE(leases.ok()) << leases.status().message();
    EXPECT_EQ(leases.value().size(), 10U);
    std::uint64_t ids = 0;
    const auto sums = reader->SumLeases({});
    ASSERT_TRUE(sums.ok()) << sums.status().message();
    for (const LeaseSums& sum : sums.value()) ids += sum.active_ids + sum.ended.leased;
    EXPECT_EQ(ids, 9'900U);
    for (const char* tag : {kPlain, kWide}) {
      const auto wrong = reader->CheckSums(tag);
      ASSERT_TRUE(wrong.ok()) << wrong.status().message();
      EXPECT_TRUE(wrong.value().empty()) << wrong.value().front();
    }
    EXPECT_EQ(
        root_->Query(
            "SELECT COUNT(*) FROM idd.idd_lease WHERE leased_at < UTC_TIMESTAMP() - INTERVAL 1 "
            "HOUR OR leased_at > UTC_TIMESTAMP() + INTERVAL 1 HOUR"),
        "0");
    EXPECT_EQ(root_->Query("SELECT HEX(biz_tag) FROM idd.leaf_alloc WHERE biz_tag "
                           "= CONVERT(X'66C3BC72F09F8D8B3A61' USING utf8mb4)"),
              "66C3BC72F09F8D8B3A61");
    EXPECT_TRUE(store.CheckCurrent().ok());
  }

  inline static std::unique_ptr<harness::DbSession> root_;
  std::map<std::string, std::string> before_;
};

// With sql_select_limit=3 tables were missing, with SET NAMES utf8 tags, and so on.
TEST_F(MysqlSettings, AreRightOrNamed) {
  int tried = 0;
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(NameOf(setting));
    root_->Execute("DROP DATABASE IF EXISTS idd");
    root_->Execute("CREATE DATABASE idd CHARACTER SET latin1");
    if (!TrySet(setting)) continue;
    ++tried;
    const Status status = Live();
    Set(setting.name, before_[setting.name]);
    const std::string refusal = harness::IsMysql() && *setting.mysql_refusal != '\0'
                                    ? setting.mysql_refusal
                                    : setting.refusal;
    if (refusal.empty()) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else {
      EXPECT_THAT(status.message(), HasSubstr(refusal));
    }
  }
  EXPECT_GE(tried, harness::IsMysql() ? 45 : 60);
}

TEST_F(MysqlSettings, AreRightTogether) {
  root_->Execute("DROP DATABASE IF EXISTS idd");
  root_->Execute("CREATE DATABASE idd");
  int tried = 0;
  for (const Setting& setting : kTogether) tried += TrySet(setting) ? 1 : 0;
  EXPECT_GE(tried, harness::IsMysql() ? 15 : 30);
  const Status status = Live();
  EXPECT_TRUE(status.ok()) << status.message();
}

// The triggers that pt-online-schema-change makes. The value of LAST_INSERT_ID() was lost in them,
// and no lease was granted while they existed.
TEST_F(MysqlSettings, TriggersOfASchemaChangeHoldNoLeaseUp) {
  root_->Execute("DROP DATABASE IF EXISTS idd");
  root_->Execute("CREATE DATABASE idd");
  const std::unique_ptr<MysqlStore> store = NewStore("a");
  ASSERT_TRUE(store->Open().ok());
  harness::DbSession session = Root();
  session.Execute("CREATE TABLE _leaf_alloc_new LIKE leaf_alloc");
  const std::string copy =
      "REPLACE INTO _leaf_alloc_new(biz_tag, max_id, step) VALUES(NEW.biz_tag, NEW.max_id, "
      "NEW.step)";
  const std::string gone = "DELETE IGNORE FROM _leaf_alloc_new WHERE biz_tag <=> OLD.biz_tag";
  session.Execute("CREATE TRIGGER pt_ins AFTER INSERT ON leaf_alloc FOR EACH ROW " + copy);
  session.Execute("CREATE TRIGGER pt_del AFTER DELETE ON leaf_alloc FOR EACH ROW " + gone);
  session.Execute("CREATE TRIGGER pt_upd AFTER UPDATE ON leaf_alloc FOR EACH ROW BEGIN " + gone +
                  " AND !(OLD.biz_tag <=> NEW.biz_tag); " + copy + "; END");
  Status status = CreateTags(*store);
  ASSERT_TRUE(status.ok()) << status.message();
  status = Lease(*store);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(session.Query("SELECT COUNT(*) FROM leaf_alloc JOIN _leaf_alloc_new copy"
                          " USING(biz_tag, max_id)"),
            "3");
}

// The journal's keeper looks for the tables a second after a start, and logged that they were
// missing and must be restored from a backup.
TEST_F(MysqlSettings, TablesThatNoHostHasMadeYetAreNotMissed) {
  root_->Execute("DROP DATABASE IF EXISTS idd");
  root_->Execute("CREATE DATABASE idd");
  const Status status = NewStore("a")->OpenToKeepJournal();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("have not been made yet"));
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/mysql_schema.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "idd/shm/abi.h"
#include "platform/random.h"

namespace idd::daemon {
namespace {

constexpr const char* kVersion = "1";

#define IDD_TAG_COLUMN "varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
#define IDD_WORD_COLUMN(length) "varchar(" length ") CHARACTER SET ascii COLLATE ascii_bin"
#define IDD_TABLE "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"

// The same tables as in SQLite (sqlite_schema.cc says what they are for), names compared byte by
// byte. idd_meta comes last, so that its presence shows that all the others exist. Times are UTC.
constexpr std::array kMysqlSchema = {
    // Leaf's table, name for name. An existing one is kept, whatever its character set is.
    "CREATE TABLE IF NOT EXISTS leaf_alloc("
    " biz_tag " IDD_TAG_COLUMN " NOT NULL DEFAULT '',"
    " max_id bigint NOT NULL DEFAULT 1,"
    " step bigint NOT NULL,"
    " description varchar(256) DEFAULT NULL,"
    " update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
    " PRIMARY KEY(biz_tag)) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_tag("
    " biz_tag " IDD_TAG_COLUMN " NOT NULL PRIMARY KEY,"
    " mode " IDD_WORD_COLUMN("16") " NOT NULL DEFAULT 'segment',"
    " max_id_allowed bigint NOT NULL DEFAULT 9223372036854775806,"
    " access " IDD_WORD_COLUMN("16") " NOT NULL DEFAULT 'ring',"
    " refill " IDD_WORD_COLUMN("16") " DEFAULT NULL,"
    " max_step bigint DEFAULT NULL,"
    " max_prefetch bigint DEFAULT NULL,"
    " outage_tolerance_s bigint DEFAULT NULL) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_lease("
    " seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,"
    " token " IDD_WORD_COLUMN("32") " NOT NULL UNIQUE,"
    " biz_tag " IDD_TAG_COLUMN " NOT NULL,"
    " host " IDD_WORD_COLUMN("64") " NOT NULL,"
    " base bigint NOT NULL CHECK(base >= 0),"
    " `limit` bigint NOT NULL,"
    " state " IDD_WORD_COLUMN("16") " NOT NULL DEFAULT 'active',"
    " claimed bigint NOT NULL DEFAULT 0,"
    " returned bigint NOT NULL DEFAULT 0,"
    " abandoned bigint NOT NULL DEFAULT 0,"
    " leased_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,"
    " closed_at timestamp NULL DEFAULT NULL,"
    " used_limit bigint AS (CASE WHEN state <> 'returned' THEN `limit`"
    "   WHEN claimed = 0 THEN 0 ELSE base + claimed END) STORED,"
    " KEY idd_lease_used(biz_tag, used_limit),"
    " KEY idd_lease_host(host, state, biz_tag),"
    " CONSTRAINT idd_lease_range CHECK(`limit` > base),"
    " CONSTRAINT idd_lease_sum CHECK(claimed >= 0 AND returned >= 0 AND abandoned >= 0 AND"
    "   claimed + returned + abandoned = IF(state = 'active', 0, `limit` - base))) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_returned("
    " token " IDD_WORD_COLUMN("32") " NOT NULL PRIMARY KEY,"
    " biz_tag " IDD_TAG_COLUMN " NOT NULL,"
    " host " IDD_WORD_COLUMN("64") " NOT NULL,"
    " base bigint NOT NULL,"
    " `limit` bigint NOT NULL,"
    " returned_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,"
    " KEY idd_returned_next(biz_tag, host, base),"
    " KEY idd_returned_end(biz_tag, `limit`),"
    " CONSTRAINT idd_returned_range CHECK(`limit` > base)) " IDD_TABLE,

    // boot_id and instance distinguish hosts with the same name, and run distinguishes idds with
    // the same state dir. beat counts the host's signs of life, so that it notices if the tables
    // were set back.
    "CREATE TABLE IF NOT EXISTS idd_host("
    " host " IDD_WORD_COLUMN("64") " NOT NULL PRIMARY KEY,"
    " first_seen timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,"
    " last_seen timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,"
    " stopped_at timestamp NULL DEFAULT NULL,"
    " forgotten_at timestamp NULL DEFAULT NULL,"
    " boot_id " IDD_WORD_COLUMN("64") " NOT NULL,"
    " instance " IDD_WORD_COLUMN("64") " NOT NULL,"
    " run " IDD_WORD_COLUMN("32") " NOT NULL,"
    " beat bigint NOT NULL,"
    " disk " IDD_WORD_COLUMN("16") " NOT NULL DEFAULT '',"
    " name varchar(255) NOT NULL DEFAULT '',"
    " address varchar(255) NOT NULL DEFAULT '',"
    " version varchar(64) NOT NULL DEFAULT '',"
    " report mediumtext) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_deleted_tag("
    " biz_tag " IDD_TAG_COLUMN " NOT NULL PRIMARY KEY,"
    " max_id bigint NOT NULL,"
    " deleted_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP) " IDD_TABLE,

    // What the hosts agree on (term_store.h): the data set's term with its witnesses, a row for each
    // witness, and for each tag the ceiling of its leases. The tag with the empty name counts the
    // raises.
    "CREATE TABLE IF NOT EXISTS idd_term("
    " id int NOT NULL PRIMARY KEY,"
    " number bigint NOT NULL DEFAULT 0,"
    " witness " IDD_WORD_COLUMN("96") " NOT NULL DEFAULT '',"
    " identity varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',"
    " active " IDD_WORD_COLUMN("640") " NOT NULL DEFAULT '',"
    " wanted " IDD_WORD_COLUMN("640") " NOT NULL DEFAULT '') " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_witness("
    " name " IDD_WORD_COLUMN("96") " NOT NULL PRIMARY KEY,"
    " term_number bigint NOT NULL DEFAULT 0,"
    " term_witness " IDD_WORD_COLUMN("96") " NOT NULL DEFAULT '',"
    " noted bigint NOT NULL DEFAULT 0,"
    " list " IDD_WORD_COLUMN("640") " NOT NULL DEFAULT '',"
    " beat bigint NOT NULL DEFAULT 0,"
    " seen timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_ceiling("
    " biz_tag " IDD_TAG_COLUMN " NOT NULL PRIMARY KEY,"
    " wanted bigint NOT NULL DEFAULT 0,"
    " pushed bigint NOT NULL DEFAULT 0,"
    " epoch bigint NOT NULL DEFAULT 0,"
    " active bigint NOT NULL DEFAULT 0,"
    " term_number bigint NOT NULL DEFAULT 0,"
    " term_witness " IDD_WORD_COLUMN("96") " NOT NULL DEFAULT '',"
    " KEY idd_ceiling_epoch(epoch)) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_snowflake("
    " biz_tag " IDD_TAG_COLUMN " NOT NULL PRIMARY KEY,"
    " layout " IDD_WORD_COLUMN("128") " NOT NULL) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_worker("
    " biz_tag " IDD_TAG_COLUMN " NOT NULL,"
    " worker int unsigned NOT NULL,"
    " host " IDD_WORD_COLUMN("64") " NOT NULL,"
    " taken_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,"
    " PRIMARY KEY(biz_tag, worker)) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_order("
    " biz_tag " IDD_TAG_COLUMN " NOT NULL PRIMARY KEY,"
    " tag_order " IDD_WORD_COLUMN("16") " NOT NULL DEFAULT 'host',"
    " lane_block bigint NOT NULL DEFAULT 0) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_ended("
    " seq bigint NOT NULL PRIMARY KEY,"
    " token " IDD_WORD_COLUMN("32") " NOT NULL UNIQUE,"
    " biz_tag " IDD_TAG_COLUMN " NOT NULL,"
    " host " IDD_WORD_COLUMN("64") " NOT NULL,"
    " base bigint NOT NULL,"
    " `limit` bigint NOT NULL,"
    " state " IDD_WORD_COLUMN("16") " NOT NULL,"
    " claimed bigint NOT NULL,"
    " returned bigint NOT NULL,"
    " abandoned bigint NOT NULL,"
    " leased_at timestamp NOT NULL DEFAULT '2000-01-01 00:00:00',"
    " closed_at timestamp NOT NULL DEFAULT '2000-01-01 00:00:00',"
    " used_limit bigint NOT NULL,"
    " KEY idd_ended_used(biz_tag, used_limit),"
    " KEY idd_ended_tag(biz_tag, seq),"
    " KEY idd_ended_host(host, seq),"
    " KEY idd_ended_state(state, seq),"
    " KEY idd_ended_returned(biz_tag, state, base),"
    " CONSTRAINT idd_ended_sum CHECK(claimed + returned + abandoned = `limit` - base)) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_total("
    " biz_tag " IDD_TAG_COLUMN " NOT NULL,"
    " host " IDD_WORD_COLUMN("64") " NOT NULL,"
    " month " IDD_WORD_COLUMN("7") " NOT NULL,"
    " leases bigint NOT NULL,"
    " leased bigint NOT NULL,"
    " claimed bigint NOT NULL,"
    " returned bigint NOT NULL,"
    " abandoned bigint NOT NULL,"
    " used_limit bigint NOT NULL,"
    " folded_leases bigint NOT NULL DEFAULT 0,"
    " folded_leased bigint NOT NULL DEFAULT 0,"
    " folded_claimed bigint NOT NULL DEFAULT 0,"
    " folded_returned bigint NOT NULL DEFAULT 0,"
    " folded_abandoned bigint NOT NULL DEFAULT 0,"
    " first_id bigint NOT NULL DEFAULT 0,"
    " last_limit bigint NOT NULL DEFAULT 0,"
    " ranges mediumtext CHARACTER SET ascii COLLATE ascii_bin NOT NULL,"
    " PRIMARY KEY(biz_tag, host, month),"
    " KEY idd_total_used(biz_tag, used_limit)) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_role("
    " role " IDD_WORD_COLUMN("16") " NOT NULL PRIMARY KEY,"
    " host " IDD_WORD_COLUMN("64") " NOT NULL,"
    " since timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP) " IDD_TABLE,

    "CREATE TABLE IF NOT EXISTS idd_meta("
    " name " IDD_WORD_COLUMN("32") " NOT NULL PRIMARY KEY,"
    " value " IDD_WORD_COLUMN("64") " NOT NULL) " IDD_TABLE,
};
#undef IDD_TAG_COLUMN
#undef IDD_WORD_COLUMN
#undef IDD_TABLE

constexpr std::array kTables = {"leaf_alloc",  "idd_tag",     "idd_lease",     "idd_returned",
                                "idd_host",    "idd_term",    "idd_meta",      "idd_deleted_tag",
                                "idd_witness", "idd_ceiling", "idd_snowflake", "idd_worker",
                                "idd_order",   "idd_ended",   "idd_total",     "idd_role"};

}  // namespace

Status CheckMysqlTables(MysqlDb& db) {
  const Result<MysqlResult> tables = db.Query(
      "SELECT LOWER(table_name), engine FROM information_schema.tables"
      " WHERE table_schema = DATABASE()");
  if (!tables.ok()) return tables.status();
  std::set<std::string> there;
  for (const auto& cells : tables.value().rows) {
    const std::string name = cells[0].value_or("");
    there.insert(name);
    if (std::find(kTables.begin(), kTables.end(), name) == kTables.end()) continue;
    if (!cells[1].has_value()) {
      return {Code::kUnavailable, "table " + name + " at " + db.where() +
                                      " cannot be opened now: it is being altered, or is damaged"};
    }
    if (cells[1] != "InnoDB") {
      return {Code::kIncompatible, "table " + name + " at " + db.where() + " has the engine " +
                                       *cells[1] + "; idd needs InnoDB, which can roll back"};
    }
  }
  for (const char* name : kTables) {
    if (there.contains(name)) continue;
    return {Code::kIncompatible, std::string("table ") + name +
                                     " is missing in idd's database at " + db.where() +
                                     "; restore it from a backup; idd does not repair it"};
  }
  return Status::Ok();
}

namespace {

Status WrongType(const MysqlDb& db, const std::string& column, const std::string& type) {
  return {Code::kIncompatible, "leaf_alloc." + column + " at " + db.where() + " is a " + type +
                                   "; it must be a bigint or int, or ids would be rounded"};
}

std::uint64_t LargestOf(const std::string& type, bool is_unsigned) {
  if (type != "int") return shm::kMaxLimit;
  return is_unsigned ? std::numeric_limits<std::uint32_t>::max()
                     : std::numeric_limits<std::int32_t>::max();
}

}  // namespace

// If a tag had two rows, an UPDATE would move both and the tag would have two next ids.
Result<std::uint64_t> CheckLeafAlloc(MysqlDb& db) {
  const Result<MysqlResult> columns = db.Query(
      "SELECT LOWER(column_name), LOWER(data_type), column_type LIKE '%unsigned%'"
      " FROM information_schema.columns"
      " WHERE table_schema = DATABASE() AND LOWER(table_name) = 'leaf_alloc'");
  if (!columns.ok()) return columns.status();
  std::uint64_t largest = shm::kMaxLimit;
  std::set<std::string> there;
  for (const auto& cells : columns.value().rows) {
    const std::string name = cells[0].value_or("");
    const std::string type = cells[1].value_or("");
    there.insert(name);
    const bool is_number = name == "max_id" || name == "step";
    if (is_number && type != "bigint" && type != "int") return WrongType(db, name, type);
    if (name == "max_id") largest = LargestOf(type, cells[2] == "1");
  }
  for (const char* name : {"biz_tag", "max_id", "step", "description", "update_time"}) {
    if (there.contains(name)) continue;
    return Status(Code::kIncompatible, std::string("table leaf_alloc at ") + db.where() +
                                           " lacks Leaf's column " + name);
  }
  const Result<MysqlResult> keys = db.Query(
      "SELECT index_name FROM information_schema.statistics WHERE table_schema = DATABASE()"
      " AND LOWER(table_name) = 'leaf_alloc' GROUP BY index_name"
      " HAVING MAX(non_unique) = 0 AND COUNT(*) = 1 AND LOWER(MAX(column_name)) = 'biz_tag'"
      " AND MAX(sub_part) IS NULL");
  if (!keys.ok()) return keys.status();
  if (!keys.value().rows.empty()) return largest;
  return Status(Code::kIncompatible, "table leaf_alloc at " + db.where() +
                                         " has no primary key or unique index on biz_tag alone");
}

namespace {

// idd writes the rows of idd_meta before it grants anything. If there are records of ids without
// them, a dump is being restored, or a part of one was.
Status CheckHasNoGrants(MysqlDb& db) {
  const Result<MysqlResult> tables = db.Query(
      "SELECT LOWER(table_name) FROM information_schema.tables WHERE table_schema = DATABASE()"
      " AND LOWER(table_name) IN ('idd_lease', 'idd_ended', 'idd_returned', 'idd_deleted_tag')");
  if (!tables.ok()) return tables.status();
  for (const auto& cells : tables.value().rows) {
    const std::string table = cells[0].value_or("");
    const Result<MysqlResult> row = db.Query("SELECT 1 FROM " + table + " LIMIT 1");
    if (!row.ok()) return row.status();
    if (row.value().rows.empty()) continue;
    return {Code::kUnavailable, "the database at " + db.where() + " has rows in " + table +
                                    " and none in idd_meta: it is being restored, or was restored "
                                    "in part; restore all of it"};
  }
  return Status::Ok();
}

Status CreateDataSet(MysqlDb& db) {
  if (Status status = CheckHasNoGrants(db); !status.ok()) return status;
  for (const char* statement : kMysqlSchema) {
    const Result<MysqlResult> made = db.Query(statement);
    if (!made.ok()) return made.status();
  }
  const Result<std::vector<MysqlResult>> rows =
      db.Packet({"INSERT IGNORE INTO idd_term(id) VALUES(1)",
                 "INSERT IGNORE INTO idd_ceiling(biz_tag) VALUES('')"});
  if (!rows.ok()) return rows.status();
  // Hosts that start at the same time agree on the first one's value.
  const Result<MysqlResult> named =
      db.Query("INSERT IGNORE INTO idd_meta(name, value) VALUES('incarnation', '" + RandomToken() +
               "'), ('schema_version', '" + kVersion + "')");
  return named.status();
}

}  // namespace

// idd_meta gets its rows last, in one statement. (A host that died before that left it empty.)
Result<bool> HasMysqlSchema(MysqlDb& db) {
  const Result<MysqlResult> table = db.Query(
      "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
      " AND LOWER(table_name) = 'idd_meta'");
  if (!table.ok()) return table.status();
  if (table.value().rows.at(0).at(0) == "0") return false;
  const Result<MysqlResult> rows = db.Query("SELECT COUNT(*) FROM idd_meta");
  if (!rows.ok()) return rows.status();
  return rows.value().rows.at(0).at(0) != "0";
}

Result<MysqlDataSet> EnsureMysqlSchema(MysqlDb& db, bool may_create) {
  const Result<bool> is_made = HasMysqlSchema(db);
  if (!is_made.ok()) return is_made.status();
  if (!is_made.value() && !may_create) {
    return Status(
        Code::kUnavailable,
        "the database at " + db.where() +
            " has none of idd's tables, but this host has used it before or knows of granted ids, "
            "which an empty database would grant again; restore it, or make a new one on purpose: "
            "'idctl store init'");
  }
  if (!is_made.value()) {
    if (Status status = CreateDataSet(db); !status.ok()) return status;
  }
  if (Status status = CheckMysqlTables(db); !status.ok()) return status;
  const Result<std::uint64_t> largest_max_id = CheckLeafAlloc(db);
  if (!largest_max_id.ok()) return largest_max_id.status();
  const Result<MysqlResult> meta = db.Query(
      "SELECT MAX(IF(name = 'schema_version', value, NULL)),"
      " MAX(IF(name = 'incarnation', value, NULL)) FROM idd_meta");
  if (!meta.ok()) return meta.status();
  const auto& cells = meta.value().rows.at(0);
  if (cells[0] != kVersion) {
    return Status(Code::kIncompatible, "idd's database at " + db.where() + " has schema version " +
                                           cells[0].value_or("(none)") + ", this idd knows " +
                                           kVersion);
  }
  if (cells[1].value_or("").empty()) {
    return Status(Code::kIncompatible, "idd's database at " + db.where() +
                                           " has no incarnation in idd_meta; restore it");
  }
  return MysqlDataSet{.incarnation = *cells[1], .largest_max_id = largest_max_id.value()};
}

}  // namespace idd::daemon

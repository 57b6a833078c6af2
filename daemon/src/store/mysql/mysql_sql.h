// SPDX-License-Identifier: Apache-2.0
//
// Pieces of SQL that several files of MysqlStore put into their statements.
#ifndef IDD_DAEMON_STORE_MYSQL_MYSQL_SQL_H_
#define IDD_DAEMON_STORE_MYSQL_MYSQL_SQL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "sql/mysql_db.h"

namespace idd::daemon::sql {

// The status of a Galera cluster; other servers return no rows.
inline constexpr const char* kClusterStatus =
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status',"
    " 'wsrep_cluster_state_uuid', 'wsrep_cluster_conf_id')";

// The variables that tell one server, cluster or group from another. Those of what a server lacks
// have no row.
inline constexpr const char* kServerVariables =
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'server_uid', 'server_uuid',"
    " 'group_replication_group_name', 'group_replication_single_primary_mode')";

// The error of a packet whose guard did not hold: a guard then sets a column to NULL.
inline constexpr unsigned kNullRefused = 1048;
// The errors of a statement that another transaction was in the way of.
inline constexpr unsigned kLockTimeout = 1205;
inline constexpr unsigned kDeadlock = 1213;
inline constexpr unsigned kAutoIncrement = 1467;  // that lock was waited for
// The server does not know what a statement asks for, or refuses it in a cluster.
[[nodiscard]] constexpr bool IsUnknown(unsigned error) noexcept {
  constexpr unsigned kSyntax = 1064;
  constexpr unsigned kNoSuchFunction = 1305;
  constexpr unsigned kNotSupported = 1235;
  return error == kSyntax || error == kNoSuchFunction || error == kNotSupported;
}

// The tables that leases depend on, and the time when a table was made.
inline constexpr const char* kLeaseTables =
    "table_schema = DATABASE() AND engine = 'InnoDB'"
    " AND table_name IN ('leaf_alloc', 'idd_lease', 'idd_term', 'idd_witness', 'idd_ceiling')";
inline constexpr std::size_t kLeaseTableCount = 5;
inline constexpr const char* kTableMade = "COALESCE(UNIX_TIMESTAMP(create_time), 0)";

// "(literal, ...)". Precondition: not empty.
inline std::string Texts(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "(" : ", ") + MysqlDb::Text(text);
  return list + ")";
}

// "'word', ...", of letters and digits.
inline std::string Words(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "'" : ", '") + word + "'";
  return list;
}

// A row's place among `tags`, from 1; 0: it is none of them. Precondition: the tags' rows were
// read, so the column treats no two of the names as equal.
inline std::string PlaceOfTag(const std::vector<std::string>& tags) {
  std::string place = "FIELD(biz_tag";
  for (const std::string& tag : tags) place += ", " + MysqlDb::Text(tag);
  return place + ")";
}

// The guard of a lease: since the tags were read, no other host has left a tombstone above the ids
// that will be leased (Store::Reconcile). `above`: where these begin, as an expression of biz_tag.
inline std::string HasNoTombstoneAbove(const std::vector<std::string>& tags,
                                       const std::string& above) {
  return " AND NOT EXISTS(SELECT 1 FROM idd_deleted_tag WHERE biz_tag IN " + Texts(tags) +
         " AND max_id > " + above + ")";
}

// Numbers below 2^63, one for each of several tags.
class List {
 public:
  void Add(std::uint64_t number) { text_ += ", " + std::to_string(number); }
  // NULL at place 0.
  [[nodiscard]] std::string NumberAt(const std::string& place) const {
    return "CAST(ELT(" + place + text_ + ") AS SIGNED)";
  }

 private:
  std::string text_;
};

}  // namespace idd::daemon::sql

#endif  // IDD_DAEMON_STORE_MYSQL_MYSQL_SQL_H_

// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: the hosts, and what they say about themselves (host_store.h).
#include <string>
#include <utility>
#include <vector>

#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"

namespace idd::daemon {

Result<std::vector<HostRecord>> MysqlStore::ListHosts() {
  if (db_ == nullptr) return NotOpen();
  const std::string last_seen = "GREATEST(h.last_seen, COALESCE(i.last_seen, h.last_seen))";
  const Result<MysqlResult> found =
      db_->Query("SELECT h.host, h.first_seen, " + last_seen +
                 ", IF(h.boot_id = '', COALESCE(i.boot_id, ''), h.boot_id), i.host IS NOT NULL,"
                 " COALESCE(i.name, ''), COALESCE(i.address, ''), COALESCE(i.version, ''),"
                 " COALESCE(i.report, ''), GREATEST(0, TIMESTAMPDIFF(SECOND, " +
                 last_seen +
                 ", CURRENT_TIMESTAMP)), h.boot_id = '', i.forgotten_at IS NOT NULL FROM idd_host h"
                 " LEFT JOIN idd_host_info i ON i.host = h.host"
                 " ORDER BY h.host");
  if (!found.ok()) return Failed(found.status());
  std::vector<HostRecord> hosts;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    const auto text = [&row](int column) { return row.TextIf(column).value_or(""); };
    HostRecord& host = hosts.emplace_back();
    host.host = text(0);
    host.first_seen = text(1);
    host.last_seen = text(2);
    host.boot_id = text(3);
    host.has_info = text(4) == "1";
    host.name = text(5);
    host.address = text(6);
    host.version = text(7);
    host.report = text(8);
    host.silent_s = row.UintIf(9).value_or(0);
    host.has_stopped = text(10) == "1";
    host.is_forgotten = text(11) == "1";
  }
  return hosts;
}

Result<std::vector<RecentLeases>> MysqlStore::SumRecent(std::chrono::seconds window,
                                                        const std::optional<std::string>& tag) {
  if (db_ == nullptr) return NotOpen();
  const std::string since =
      "(CURRENT_TIMESTAMP - INTERVAL " + std::to_string(window.count()) + " SECOND)";
  const std::string is_leased = "leased_at >= " + since;
  const std::string is_closed = "COALESCE(closed_at >= " + since + ", FALSE)";
  const Result<MysqlResult> found =
      db_->Query("SELECT biz_tag, SUM(IF(" + is_leased + ", `limit` - base, 0)), SUM(IF(" +
                 is_closed + ", returned, 0)) FROM idd_lease WHERE " +
                 (tag.has_value() ? "biz_tag = " + MysqlDb::Text(*tag) + " AND " : std::string()) +
                 "(" + is_leased + " OR " + is_closed + ") GROUP BY biz_tag");
  if (!found.ok()) return Failed(found.status());
  std::vector<RecentLeases> recent;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    recent.push_back(
        {row.TextIf(0).value_or(""), row.UintIf(1).value_or(0), row.UintIf(2).value_or(0)});
  }
  return recent;
}

Result<bool> MysqlStore::Introduce(const HostInfo& info) {
  if (db_ == nullptr) return NotOpen();
  const std::string host = MysqlDb::Text(options_.host.id);
  const Result<std::vector<MysqlResult>> introduced = db_->Packet(
      {"SELECT COUNT(*) FROM idd_host_info WHERE host = " + host + " AND forgotten_at IS NOT NULL",
       "INSERT INTO idd_host_info(host, name, address, version, boot_id, report) VALUES(" + host +
           ", " + MysqlDb::Text(info.name) + ", " + MysqlDb::Text(info.address) + ", " +
           MysqlDb::Text(info.version) + ", " + MysqlDb::Text(info.boot_id) + ", " +
           MysqlDb::Text(info.report) +
           ") ON DUPLICATE KEY UPDATE name = VALUES(name), address = VALUES(address),"
           " version = VALUES(version), boot_id = VALUES(boot_id), report = VALUES(report),"
           " last_seen = CURRENT_TIMESTAMP, stopped_at = NULL, forgotten_at = NULL"});
  if (!introduced.ok()) return Failed(introduced.status());
  return introduced.value()[0].rows.at(0).at(0) != "0";
}

// Each lease of the other host locks its row of idd_host, and so does this: a lease of it is either
// known here or comes after it. Tables that were set back do not have this host's row.
Result<ForgetOutcome> MysqlStore::Forget(const ForgetOrder& order) {
  if (db_ == nullptr) return NotOpen();
  const std::string host = MysqlDb::Text(order.host);
  const std::string limit = " LIMIT " + std::to_string(order.rows);
  const Result<std::vector<MysqlResult>> found = db_->Packet(
      {"SELECT token FROM idd_lease WHERE host = " + host + " AND state = 'active' ORDER BY seq" +
           limit,
       "SELECT token FROM idd_returned WHERE host = " + host + " ORDER BY token" + limit});
  if (!found.ok()) return Failed(found.status());
  std::vector<std::string> active = {""};  // no lease has this token, and a list must not be empty
  std::vector<std::string> listed = {""};
  for (const auto& cells : found.value()[0].rows) active.push_back(cells[0].value_or(""));
  for (const auto& cells : found.value()[1].rows) listed.push_back(cells[0].value_or(""));
  const std::string is_silent =
      order.is_forced ? ""
                      : " AND (h.boot_id = '' OR h.last_seen < CURRENT_TIMESTAMP - INTERVAL " +
                            std::to_string(kHostSilentAfter.count()) + " SECOND)";
  const std::string has_come_back =
      order.is_first ? ""
                     : " AND EXISTS(SELECT 1 FROM idd_host_info i WHERE i.host = " + host +
                           " AND i.forgotten_at IS NOT NULL)";
  const std::string are_active =
      " FROM idd_lease WHERE @idd_gone = 1 AND state = 'active'"
      " AND host = " +
      host + " AND token IN " + sql::Texts(active);
  const std::string are_listed = " FROM idd_returned WHERE @idd_gone = 1 AND host = " + host +
                                 " AND token IN " + sql::Texts(listed);
  const Result<std::vector<MysqlResult>> done = db_->Transaction(
      {"SELECT COUNT(*) INTO @idd_gone FROM idd_host h WHERE h.host = " + host + is_silent +
           has_come_back + " AND (" + SelectIsCurrent() + ") = 1 FOR UPDATE",
       "SELECT COUNT(*), COALESCE(SUM(`limit` - base), 0)" + are_active + " FOR UPDATE",
       "SELECT COALESCE(SUM(`limit` - base), 0)" + are_listed + " FOR UPDATE",
       "UPDATE idd_lease SET state = 'abandoned', abandoned = `limit` - base,"
       " closed_at = CURRENT_TIMESTAMP WHERE @idd_gone = 1 AND state = 'active' AND host = " +
           host + " AND token IN " + sql::Texts(active),
       "UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
       " WHERE token IN " +
           sql::Texts(listed) + " AND token IN (SELECT token" + are_listed + ")",
       "DELETE" + are_listed,
       "INSERT INTO idd_host_info(host, last_seen, forgotten_at) SELECT host, last_seen,"
       " CURRENT_TIMESTAMP FROM idd_host WHERE @idd_gone = 1 AND host = " +
           host + " ON DUPLICATE KEY UPDATE forgotten_at = CURRENT_TIMESTAMP",
       "SELECT @idd_gone"});
  if (!done.ok()) return Failed(done.status());
  if (done.value().back().rows.at(0).at(0) != "1") {
    if (Status status = CheckIdentity(); !status.ok()) return status;
    return Status(Code::kInvalid, "host '" + order.host + "' is not known, or is alive");
  }
  const MysqlRow leases(done.value()[1].rows.at(0));
  const MysqlRow tails(done.value()[2].rows.at(0));
  states_.clear();
  return ForgetOutcome{.is_done = active.size() <= order.rows && listed.size() <= order.rows,
                       .leases = leases.UintIf(0).value_or(0),
                       .ids = leases.UintIf(1).value_or(0),
                       .returned_ids = tails.UintIf(0).value_or(0)};
}

Status MysqlStore::NoteStop() {
  if (db_ == nullptr) return NotOpen();
  return Failed(db_->Query("UPDATE idd_host_info SET last_seen = CURRENT_TIMESTAMP,"
                           " stopped_at = CURRENT_TIMESTAMP WHERE host = " +
                           MysqlDb::Text(options_.host.id))
                    .status());
}

}  // namespace idd::daemon

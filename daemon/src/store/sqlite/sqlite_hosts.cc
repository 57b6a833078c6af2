// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: the hosts, and what they say about themselves (host_store.h).
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "store/sqlite/sqlite_store.h"

namespace idd::daemon {

Result<std::vector<HostRecord>> SqliteStore::ListHosts() {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(
      "SELECT h.host, h.first_seen, MAX(h.last_seen, coalesce(i.last_seen, '')),"
      " i.host IS NOT NULL, coalesce(i.boot_id, ''), coalesce(i.name, ''),"
      " coalesce(i.address, ''), coalesce(i.version, ''), coalesce(i.report, ''),"
      " MAX(0, CAST(strftime('%s', 'now') AS INTEGER) - CAST(strftime('%s',"
      "   MAX(h.last_seen, coalesce(i.last_seen, ''))) AS INTEGER)),"
      " i.stopped_at IS NOT NULL, i.forgotten_at IS NOT NULL"
      " FROM idd_host AS h LEFT JOIN idd_host_info AS i ON i.host = h.host ORDER BY h.host");
  std::vector<HostRecord> hosts;
  while (query.Next()) {
    HostRecord& host = hosts.emplace_back();
    host.host = query.Text(0);
    host.first_seen = query.Text(1);
    host.last_seen = query.Text(2);
    host.has_info = query.Uint(3) != 0;
    if (std::string boot_id = query.Text(4); !boot_id.empty()) host.boot_id = std::move(boot_id);
    host.name = query.Text(5);
    host.address = query.Text(6);
    host.version = query.Text(7);
    host.report = query.Text(8);
    host.silent_s = query.Uint(9);
    host.has_stopped = query.Uint(10) != 0;
    host.is_forgotten = query.Uint(11) != 0;
  }
  if (!query.Finish().ok()) return query.Finish();
  return hosts;
}

Result<std::vector<RecentLeases>> SqliteStore::SumRecent(std::chrono::seconds window,
                                                         const std::optional<std::string>& tag) {
  if (!db_) return NotOpen();
  const std::string since = "datetime('now', '-" + std::to_string(window.count()) + " seconds')";
  SqliteQuery query = db_->Query("SELECT biz_tag, SUM(IIF(leased_at >= " + since +
                                     ", \"limit\" - base, 0)), SUM(IIF(closed_at >= " + since +
                                     ", returned, 0)) FROM idd_lease WHERE" +
                                     (tag.has_value() ? " biz_tag = ?1" : " ?1 IS NULL") +
                                     " AND (leased_at >= " + since + " OR closed_at >= " + since +
                                     ") GROUP BY biz_tag",
                                 tag);
  std::vector<RecentLeases> recent;
  while (query.Next()) recent.push_back({query.Text(0), query.Uint(1), query.Uint(2)});
  if (!query.Finish().ok()) return query.Finish();
  return recent;
}

// Without the witness: this changes nothing that ids depend on, and no lease has to wait for it.
Result<bool> SqliteStore::Introduce(const HostInfo& info) {
  if (!db_) return NotOpen();
  return db_->InTransaction([&]() -> Result<bool> {
    SqliteQuery known =
        db_->Query("SELECT 1 FROM idd_host_info WHERE host = ?1 AND forgotten_at IS NOT NULL",
                   options_.host_id);
    const bool was_forgotten = known.Next();
    if (!known.Finish().ok()) return known.Finish();
    const Status status = db_->Run(
        "INSERT INTO idd_host_info(host, name, address, version, boot_id, report)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(host) DO UPDATE SET name = excluded.name,"
        " address = excluded.address, version = excluded.version, boot_id = excluded.boot_id,"
        " report = excluded.report, last_seen = CURRENT_TIMESTAMP, stopped_at = NULL,"
        " forgotten_at = NULL",
        options_.host_id, info.name, info.address, info.version, info.boot_id, info.report);
    if (!status.ok()) return status;
    return was_forgotten;
  });
}

// A sign of life within the last minute is all that shows a host alive.
Status SqliteStore::CheckIsGone(const ForgetOrder& order) {
  const Result<std::vector<HostRecord>> hosts = ListHosts();
  if (!hosts.ok()) return hosts.status();
  const auto host =
      std::find_if(hosts.value().begin(), hosts.value().end(),
                   [&order](const HostRecord& record) { return record.host == order.host; });
  const std::string name = "host '" + order.host + "'";
  if (host == hosts.value().end()) return {Code::kInvalid, name + " is not known"};
  if (!order.is_first) {
    return host->is_forgotten ? Status::Ok() : Status(Code::kInvalid, name + " has come back");
  }
  if (order.is_forced || host->has_stopped || host->is_forgotten) return Status::Ok();
  if (!host->has_info) {
    return {Code::kInvalid, name +
                                " may be alive, its idd is too old to show that; stop it, then "
                                "add --force"};
  }
  if (host->silent_s > static_cast<std::uint64_t>(kHostSilentAfter.count())) return Status::Ok();
  return {Code::kInvalid, name + " may be alive, it was seen " + std::to_string(host->silent_s) +
                              " s ago; stop it, or wait until it has been silent for " +
                              std::to_string(kHostSilentAfter.count()) + " s, or add --force"};
}

Result<ForgetOutcome> SqliteStore::Forget(const ForgetOrder& order) {
  if (!db_) return NotOpen();
  Result<ForgetOutcome> outcome = Change([&] { return ForgetInTransaction(order); });
  if (outcome.ok()) AtPoint("forget.committed");
  return outcome;
}

Result<ForgetOutcome> SqliteStore::ForgetInTransaction(const ForgetOrder& order) {
  if (Status status = CheckIsGone(order); !status.ok()) return status;
  ForgetOutcome done;
  std::uint64_t tails = 0;
  const std::string limit = " LIMIT " + std::to_string(order.rows);
  // The batch is the same for all statements: each of them finds the first rows that are left.
  const std::string active =
      "(SELECT seq FROM idd_lease WHERE host = ?1 AND state = 'active' ORDER BY seq" + limit + ")";
  const std::string listed =
      "(SELECT token FROM idd_returned WHERE host = ?1 ORDER BY token" + limit + ")";
  SqliteQuery sums = db_->Query(
      "SELECT a.leases, a.ids, r.tails, r.ids FROM"
      " (SELECT COUNT(*) AS leases, coalesce(SUM(\"limit\" - base), 0) AS ids FROM idd_lease"
      "  WHERE seq IN " +
          active +
          ") AS a, (SELECT COUNT(*) AS tails, coalesce(SUM(\"limit\" - base), 0) AS ids"
          "  FROM idd_returned WHERE token IN " +
          listed + ") AS r",
      order.host);
  if (sums.Next()) {
    done.leases = sums.Uint(0);
    done.ids = sums.Uint(1);
    tails = sums.Uint(2);
    done.returned_ids = sums.Uint(3);
  }
  if (!sums.Finish().ok()) return sums.Finish();
  for (const std::string& sql :
       {"UPDATE idd_lease SET state = 'abandoned', abandoned = \"limit\" - base,"
        " closed_at = CURRENT_TIMESTAMP WHERE seq IN " +
            active,
        "UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
        " WHERE token IN " +
            listed,
        "DELETE FROM idd_returned WHERE token IN " + listed,
        std::string("INSERT INTO idd_host_info(host, last_seen, forgotten_at) SELECT host,"
                    " last_seen, CURRENT_TIMESTAMP FROM idd_host WHERE host = ?1"
                    " ON CONFLICT(host) DO UPDATE SET forgotten_at = CURRENT_TIMESTAMP")}) {
    if (Status status = db_->Run(sql, order.host); !status.ok()) return status;
  }
  done.is_done = done.leases < order.rows && tails < order.rows;
  AtPoint("forget.journalled");
  return done;
}

Status SqliteStore::NoteStop() {
  if (!db_) return NotOpen();
  return db_->InTransaction([&]() -> Status {
    return db_->Run(
        "UPDATE idd_host_info SET last_seen = CURRENT_TIMESTAMP, stopped_at = CURRENT_TIMESTAMP"
        " WHERE host = ?1",
        options_.host_id);
  });
}

}  // namespace idd::daemon

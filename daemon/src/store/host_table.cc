// SPDX-License-Identifier: Apache-2.0
#include "store/host_table.h"

#include <cstdint>
#include <utility>

namespace idd::daemon {
namespace {

Status HasComeBack(const std::string& host) {
  return {Code::kInvalid, "host '" + host + "' has come back"};
}

}  // namespace

Result<std::vector<HostRecord>> HostTable::List() {
  const auto query = session_.Query(
      "SELECT host, first_seen, last_seen, boot_id, name, address, version, COALESCE(report, "
      "''), " +
      session_.AgeOf("last_seen") +
      ", stopped_at IS NOT NULL, forgotten_at IS NOT NULL FROM idd_host ORDER BY host");
  std::vector<HostRecord> hosts;
  while (query->Next()) {
    HostRecord& host = hosts.emplace_back();
    host.host = query->Text(0);
    host.first_seen = query->Text(1);
    host.last_seen = query->Text(2);
    if (std::string boot_id = query->Text(3); !boot_id.empty()) host.boot_id = std::move(boot_id);
    host.name = query->Text(4);
    host.address = query->Text(5);
    host.version = query->Text(6);
    host.report = query->Text(7);
    host.silent_s = query->Uint(8);
    host.has_stopped = query->Uint(9) != 0;
    host.is_forgotten = query->Uint(10) != 0;
  }
  if (!query->Finish().ok()) return query->Finish();
  return hosts;
}

Result<std::vector<RecentLeases>> HostTable::SumRecent(std::chrono::seconds window,
                                                       const std::optional<std::string>& tag) {
  const std::string since = session_.Ago(window);
  const auto query = session_.Query(
      "SELECT biz_tag, SUM(CASE WHEN leased_at >= " + since +
          " THEN `limit` - base ELSE 0 END), SUM(CASE WHEN closed_at >= " + since +
          " THEN returned ELSE 0 END) FROM idd_lease WHERE " + (tag ? "biz_tag = ?1 AND " : "") +
          "(leased_at >= " + since + " OR closed_at >= " + since + ") GROUP BY biz_tag",
      {ValueOrNull(tag)});
  std::vector<RecentLeases> recent;
  while (query->Next()) recent.push_back({query->Text(0), query->Uint(1), query->Uint(2)});
  if (!query->Finish().ok()) return query->Finish();
  return recent;
}

// Without the witness: this changes nothing that ids depend on, and no lease has to wait for it.
Result<bool> HostTable::Introduce(const HostInfo& info) {
  const Result<std::vector<std::uint64_t>> done = session_.Transact(
      {{"SELECT COUNT(*) FROM idd_host WHERE forgotten_at IS NOT NULL AND " + own_row_ +
            session_.ForUpdate(),
        {host_}},
       {"UPDATE idd_host SET name = ?2, address = ?3, version = ?4, boot_id = ?5, report = ?6,"
        " last_seen = CURRENT_TIMESTAMP, stopped_at = NULL, forgotten_at = NULL WHERE " +
            own_row_,
        {host_, info.name, info.address, info.version, info.boot_id, info.report}}});
  if (!done.ok()) return done.status();
  return done.value()[0] != 0;
}

Status HostTable::NoteStop() {
  return session_
      .Transact({{"UPDATE idd_host SET last_seen = CURRENT_TIMESTAMP,"
                  " stopped_at = CURRENT_TIMESTAMP WHERE " +
                      own_row_,
                  {host_}}})
      .status();
}

// A sign of life within the last minute is all that shows a host alive.
Result<std::string> HostTable::FindGone(const ForgetOrder& order, std::string& last_seen) {
  const auto query = session_.Query(
      "SELECT last_seen, " + session_.AgeOf("last_seen") +
          ", stopped_at IS NOT NULL, forgotten_at IS NOT NULL FROM idd_host WHERE host = ?1",
      {order.host});
  const bool is_known = query->Next();
  last_seen = is_known ? query->Text(0) : "";
  const std::uint64_t silent_s = is_known ? query->Uint(1) : 0;
  const bool has_stopped = is_known && query->Uint(2) != 0;
  const bool is_forgotten = is_known && query->Uint(3) != 0;
  if (!query->Finish().ok()) return query->Finish();
  if (!is_known) return Status(Code::kInvalid, "host '" + order.host + "' is not known");
  if (!order.is_first && !is_forgotten) return HasComeBack(order.host);
  const bool is_silent = silent_s > static_cast<std::uint64_t>(kHostSilentAfter.count());
  if (!order.is_forced && !has_stopped && !is_silent) {
    return Status(Code::kInvalid, "host '" + order.host + "' may be alive, it was seen " +
                                      std::to_string(silent_s) +
                                      " s ago; stop it, or wait until it has been silent for " +
                                      std::to_string(kHostSilentAfter.count()) +
                                      " s, or add --force");
  }
  std::string gone = "idd_host.host = ?1";
  if (!order.is_first) gone += " AND idd_host.last_seen <= idd_host.forgotten_at";
  if (!order.is_forced) gone += " AND idd_host.last_seen = ?2";
  if (!order.is_forced && has_stopped) gone += " AND idd_host.stopped_at IS NOT NULL";
  return gone;
}

Result<std::vector<std::string>> HostTable::FindTokens(const std::string& rows,
                                                       const ForgetOrder& order) {
  const auto query = session_.Query(
      "SELECT token FROM " + rows + " LIMIT " + std::to_string(order.rows), {order.host});
  std::vector<std::string> tokens;
  while (query->Next()) tokens.push_back(query->Text(0));
  if (!query->Finish().ok()) return query->Finish();
  return tokens;
}

// Each lease of the other host locks its row of idd_host on a server, and so does this: a lease of
// it is either known here or comes after it.
Status HostTable::ForgetBatch(const ForgetOrder& order, ForgetOutcome& done) {
  std::string last_seen;
  const Result<std::string> gone = FindGone(order, last_seen);
  if (!gone.ok()) return gone.status();
  // Of an older copy of the tables, the host's row says nothing.
  if (Status status = session_.CheckNotSetBack(); !status.ok()) return status;
  const Result<std::vector<std::string>> active =
      FindTokens("idd_lease WHERE host = ?1 AND state = 'active' ORDER BY seq", order);
  if (!active.ok()) return active.status();
  const Result<std::vector<std::string>> listed =
      FindTokens("idd_returned WHERE host = ?1 ORDER BY token", order);
  if (!listed.ok()) return listed.status();
  const SqlValues values = {order.host, last_seen, active.value(), listed.value()};
  const std::string is_gone = " AND EXISTS(SELECT 1 FROM idd_host WHERE " + gone.value() + ")";
  const std::string are_active =
      " WHERE host = ?1 AND state = 'active' AND token" + session_.In(3) + is_gone;
  const std::string are_listed =
      " FROM idd_returned WHERE host = ?1 AND token" + session_.In(4) + is_gone;
  const std::string lock = session_.ForUpdate();
  const Result<std::vector<std::uint64_t>> numbers = session_.Transact(
      {{"SELECT COUNT(*) FROM idd_host WHERE " + gone.value() + lock, values},
       {"SELECT COALESCE(SUM(`limit` - base), 0) FROM idd_lease" + are_active + lock, values},
       {"SELECT COALESCE(SUM(`limit` - base), 0)" + are_listed + lock, values},
       {"UPDATE idd_lease SET state = 'abandoned', abandoned = `limit` - base,"
        " closed_at = CURRENT_TIMESTAMP" +
            are_active,
        values},
       {"UPDATE idd_lease SET state = 'abandoned', abandoned = abandoned + returned, returned = 0"
        " WHERE token" +
            session_.In(4) + " AND token IN (SELECT token" + are_listed + ")",
        values},
       {"DELETE" + are_listed, values},
       {"UPDATE idd_host SET forgotten_at = CURRENT_TIMESTAMP WHERE " + gone.value(), values,
        "forget.journalled"}});
  if (!numbers.ok()) return numbers.status();
  if (numbers.value()[0] == 0) return HasComeBack(order.host);
  done = {.is_done = active.value().size() < order.rows && listed.value().size() < order.rows,
          .leases = numbers.value()[3],
          .ids = numbers.value()[1],
          .returned_ids = numbers.value()[2]};
  return Status::Ok();
}

Result<ForgetOutcome> HostTable::Forget(const ForgetOrder& order) {
  ForgetOutcome done;
  Status status = session_.ChangeIds([&] { return ForgetBatch(order, done); }, "forget.committed");
  if (!status.ok()) return status;
  return done;
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: the fence's tables. idd_fence has a row for each host, idd_ceiling one for each tag,
// and one without a name whose epoch is the counter of all raises: its lock puts them in order, so
// that no raise of a lower epoch commits after one of a higher epoch was seen.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "platform/random.h"
#include "store/mysql/mysql_schema.h"
#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"

namespace idd::daemon {
namespace {

constexpr const char* kMemberColumns = "host, run, beat, noted, state, server, silence_s";

Result<FenceMember> ParseMember(const MysqlRow& row) {
  FenceMember member;
  member.host = row.TextIf(0).value_or("");
  member.run = row.TextIf(1).value_or("");
  member.server = row.TextIf(5).value_or("");
  const std::optional<std::uint64_t> beat = row.UintIf(2);
  const std::optional<std::uint64_t> noted = row.UintIf(3);
  const std::optional<MemberState> state = ParseMemberState(row.TextIf(4).value_or(""));
  const std::optional<std::uint64_t> silence = row.UintIf(6);
  constexpr auto kMaxSilence = static_cast<std::uint64_t>(kMaxFenceAfter.count());
  if (!beat || !noted || !state || !silence || *silence > kMaxSilence) {
    return Status(Code::kUnavailable,
                  "the row of host '" + member.host +
                      "' in idd_fence is invalid; delete the row, then restart the idd of that "
                      "host if it runs");
  }
  member.beat = *beat;
  member.noted = *noted;
  member.state = *state;
  member.silence = std::chrono::seconds(*silence);
  return member;
}

// A raise that has to wait takes a second each time. Six seconds make a host late (fence.cc).
constexpr int kRaiseTries = 3;

}  // namespace

// Precondition: the statement before it has taken the next epoch. MySQL assigns from left to right,
// so the epoch's condition sees the row as it was.
std::string MysqlStore::RaiseRows(const std::vector<CeilingRaise>& raises) const {
  std::string rows;
  for (const CeilingRaise& raise : raises) {
    rows += rows.empty() ? "SELECT " : " UNION ALL SELECT ";
    rows += MysqlDb::Text(raise.tag) + " AS tag, " + std::to_string(raise.wanted) + " AS wanted, " +
            std::to_string(raise.least) + " AS least, " + std::to_string(raise.pushed) +
            " AS pushed";
  }
  return "INSERT INTO idd_ceiling(biz_tag, active, wanted, epoch, pushed)"
         " SELECT r.tag, 0, r.wanted, IF(ROW_COUNT() = 1 AND " +
         tables_.AreSame() + ", LAST_INSERT_ID(), NULL), r.pushed FROM (" + rows +
         ") AS r ON DUPLICATE KEY UPDATE"
         " epoch = IF(idd_ceiling.wanted < r.least OR idd_ceiling.pushed < r.pushed,"
         " VALUES(epoch), idd_ceiling.epoch),"
         " wanted = IF(idd_ceiling.wanted < r.least, GREATEST(idd_ceiling.wanted, r.wanted),"
         " idd_ceiling.wanted),"
         " pushed = GREATEST(idd_ceiling.pushed, r.pushed)";
}

// Includes the server's identity: a proxy may have led the session to another server with the same
// row.
std::string MysqlStore::IsThisMember() const {
  return server_.condition() + " AND host = " + MysqlDb::Text(options_.host.id) + " AND run = '" +
         member_run_ + "' AND beat = " + std::to_string(member_beat_);
}

// Takes the row over for this run. Clears `server`: until this host has pushed its marks here, its
// beats confirm nothing to other hosts.
Status MysqlStore::ClaimMember() {
  const std::string host = MysqlDb::Text(options_.host.id);
  const std::string fresh = RunOfConnection("");
  const std::string random = fresh.substr(kRunNumberSize);
  const std::string select =
      std::string("SELECT ") + kMemberColumns + " FROM idd_fence WHERE host = " + host;
  const Result<std::vector<MysqlResult>> claimed = db_->Packet(
      {select,
       "INSERT INTO idd_fence(host, run, beat, state) VALUES(" + host + ", '" + fresh +
           "', 1, 'left') ON DUPLICATE KEY UPDATE run = CONCAT(LEFT(run, " +
           std::to_string(kRunNumberSize) + "), '" + random + "'), beat = beat + 1, server = ''",
       select});
  if (!claimed.ok()) return claimed.status();
  found_.reset();
  if (!claimed.value()[0].rows.empty()) {
    Result<FenceMember> found = ParseMember(MysqlRow(claimed.value()[0].rows[0]));
    if (!found.ok()) return found.status();
    found_ = std::move(found).value();
  }
  if (claimed.value()[2].rows.empty()) {
    return {Code::kUnavailable,
            "the row of host '" + options_.host.id + "' is gone from idd_fence"};
  }
  const Result<FenceMember> row = ParseMember(MysqlRow(claimed.value()[2].rows[0]));
  if (!row.ok()) return row.status();
  if (!row.value().run.ends_with(random)) {
    return {Code::kUnavailable, "another idd has taken the row of host '" + options_.host.id +
                                    "' in idd_fence; give each host its own --host-id"};
  }
  if (member_beat_ != 0 && row.value().beat <= member_beat_) ++generation_;  // set back
  member_beat_ = row.value().beat;
  member_run_ = row.value().run;
  return Status::Ok();
}

// Learns table times that another host has seen, after tables were made again or their files were
// touched. The name of a data set is made from these times, and hosts that use different names for
// the same one would wait for each other.
bool MysqlStore::LearnTablesFrom(const FenceMember& member) {
  const std::string_view name = member.server;
  return !server_.is_cluster() && name.starts_with(server_.name()) &&
         tables_.AddSeenElsewhere(name.substr(server_.name().size()));
}

Result<FenceView> MysqlStore::ReadFence(std::uint64_t noted) {
  if (db_ == nullptr) return NotOpen();
  std::vector<std::string> statements = {
      // A host that sees the row move believes that this host has pushed into these tables.
      "UPDATE idd_fence SET beat = beat + 1 WHERE " + IsThisMember() + " AND " + tables_.AreSame(),
      "SELECT " + server_.condition() + ", @@global.read_only, @@innodb_read_only, " +
          tables_.AreSame(),
      // First the counter: a raise that commits in between has a higher epoch, and the next look
      // finds it.
      "SELECT epoch FROM idd_ceiling WHERE biz_tag = ''",
      std::string("SELECT ") + kMemberColumns + " FROM idd_fence ORDER BY host",
      "SELECT biz_tag, active, wanted, pushed FROM idd_ceiling WHERE biz_tag <> '' AND epoch > " +
          std::to_string(noted)};
  if (server_.is_cluster()) statements.emplace_back(sql::kClusterStatus);
  const Result<std::vector<MysqlResult>> answers = db_->Packet(statements);
  if (!answers.ok()) {
    // It is unknown whether the beat was raised, so the next Open() takes the row over again.
    db_.reset();
    return answers.status();
  }
  const auto& server = answers.value()[1].rows.at(0);
  if (!IsOff(server[1]) || !IsOff(server[2])) return ReadOnly();
  if (server[3] != "1") {
    Status status = CheckTables();
    // The tables are back as they were. The next Open() finds out whether the beat was raised.
    db_.reset();
    return status.ok() ? NotOpen() : status;
  }
  if (answers.value()[0].changed != 1 || server[0] != "1") return RowIsNotAsLeft();
  if (server_.is_cluster()) {
    if (Status status = CheckCluster(answers.value()[5]); !status.ok()) return status;
  }
  ++member_beat_;
  FenceView view;
  view.server = data_set_name_;
  if (answers.value()[2].rows.empty()) {
    return Status(Code::kUnavailable, "idd_ceiling at " + db_->where() + " has lost its counter");
  }
  const std::optional<std::uint64_t> epoch = MysqlRow(answers.value()[2].rows[0]).UintIf(0);
  if (!epoch.has_value())
    return Status(Code::kUnavailable, "the counter of idd_ceiling is invalid");
  view.epoch = std::max(*epoch, noted);
  for (const auto& cells : answers.value()[3].rows) {
    Result<FenceMember> member = ParseMember(MysqlRow(cells));
    if (!member.ok()) return member.status();
    if (LearnTablesFrom(member.value())) return SetBack();
    view.members.push_back(std::move(member).value());
  }
  for (const auto& cells : answers.value()[4].rows) {
    const MysqlRow row(cells);
    const auto active = row.UintIf(1);
    const auto wanted = row.UintIf(2);
    const auto pushed = row.UintIf(3);
    if (!active || !wanted || !pushed) {
      return Status(Code::kUnavailable, "the row of tag '" + row.TextIf(0).value_or("") +
                                            "' in idd_ceiling is invalid");
    }
    view.ceilings.push_back({.tag = row.TextIf(0).value_or(""),
                             .active = *active,
                             .wanted = std::max(*active, *wanted),
                             .pushed = *pushed});
  }
  return view;
}

// Checks the tables first, so that the next Open() knows if they are the reason.
Status MysqlStore::RowIsNotAsLeft() {
  Status status = CheckTables();
  return status.ok() ? SetBack() : status;
}

Status MysqlStore::UpdateMember(const std::string& assignments) {
  if (db_ == nullptr) return NotOpen();
  const Result<MysqlResult> set =
      db_->Query("UPDATE idd_fence SET beat = beat + 1, " + assignments + " WHERE " +
                 IsThisMember() + " AND " + tables_.AreSame());
  if (!set.ok()) {
    // It is unknown whether the beat was raised, so the next Open() takes the row over again.
    db_.reset();
    return set.status();
  }
  if (set.value().changed != 1) return RowIsNotAsLeft();
  ++member_beat_;
  return Status::Ok();
}

Status MysqlStore::SetState(MemberState state, std::chrono::seconds silence, std::uint64_t number) {
  const std::string run = MakeRun(number);
  Status status =
      UpdateMember(std::string("noted = 0, server = '', state = '") + MemberStateName(state) +
                   "', silence_s = " + std::to_string(silence.count()) + ", run = '" + run + "'");
  if (status.ok()) member_run_ = run;
  return status;
}

Status MysqlStore::SetNoted(std::uint64_t epoch) {
  return UpdateMember("noted = " + std::to_string(epoch));
}

Status MysqlStore::Confirm() { return UpdateMember("server = " + MysqlDb::Text(data_set_name_)); }

Status MysqlStore::Admit(const std::vector<FenceMember>& members) {
  if (db_ == nullptr) return NotOpen();
  if (members.empty()) return Status::Ok();
  std::string rows;
  std::vector<std::string> statements;
  for (const FenceMember& member : members) {
    const std::string host = MysqlDb::Text(member.host);
    const std::string run = MysqlDb::Text(member.run);
    const std::string silence = std::to_string(member.silence.count());
    rows += (rows.empty() ? "(" : ", (") + host + ", " + run + ", 1, 0, 'live', " + silence + ")";
    const std::string number = std::to_string(kRunNumberSize);
    statements.push_back("UPDATE idd_fence SET state = 'live', noted = 0, server = '', run = " +
                         run + " WHERE host = " + host + " AND state <> 'live' AND LEFT(run, " +
                         number + ") < LEFT(" + run + ", " + number + ")");
  }
  // Last: a row that is there would be locked for reading first, and for writing only then.
  statements.push_back(
      "INSERT IGNORE INTO idd_fence(host, run, beat, noted, state, silence_s) VALUES " + rows);
  return Failed(db_->Transaction(statements).status());
}

std::vector<std::string> MysqlStore::RaiseStatements(
    const std::vector<CeilingRaise>& raises) const {
  // In a data set that was set back, a row may have a noted epoch above the counter.
  std::vector<std::string> statements = {
      "UPDATE idd_ceiling SET epoch = LAST_INSERT_ID(GREATEST(epoch,"
      " (SELECT COALESCE(MAX(noted), 0) FROM idd_fence)) + 1) WHERE biz_tag = ''"};
  if (!raises.empty()) statements.push_back(RaiseRows(raises));
  return statements;
}

Status MysqlStore::Raise(const std::vector<CeilingRaise>& raises) {
  if (db_ == nullptr) return NotOpen();
  const std::vector<std::string> statements = RaiseStatements(raises);
  for (int tries = 1;; ++tries) {
    const Result<std::vector<MysqlResult>> raised = db_->Transaction(statements);
    if (raised.ok()) return Status::Ok();
    const unsigned error = db_->last_error();
    const bool is_in_the_way = error == sql::kLockTimeout || error == sql::kDeadlock;
    if (is_in_the_way && !db_->broken() && tries < kRaiseTries) continue;
    if (error != sql::kNullRefused) return Failed(raised.status());
    if (Status status = CheckTables(); !status.ok()) return status;
    return {Code::kUnavailable, "idd_ceiling at " + db_->where() + " has lost its counter"};
  }
}

Result<bool> MysqlStore::TryRaise(const std::vector<CeilingRaise>& raises) {
  if (db_ == nullptr) return NotOpen();
  std::vector<std::string> statements = RaiseStatements(raises);
  statements.insert(statements.begin(),
                    "SELECT epoch FROM idd_ceiling WHERE biz_tag = '' FOR UPDATE NOWAIT");
  const Result<std::vector<MysqlResult>> raised = db_->Transaction(statements);
  if (raised.ok()) return true;
  const unsigned error = db_->last_error();
  if (db_->broken()) return Failed(raised.status());
  if (error == sql::kLockTimeout || error == sql::kLockNotFree || error == sql::kDeadlock) {
    return false;
  }
  // A server that does not know NOWAIT (before MariaDB 10.3 and MySQL 8.0), or an error to report.
  Status status = Raise(raises);
  return status.ok() ? Result<bool>(true) : Result<bool>(std::move(status));
}

Result<std::vector<Ceiling>> MysqlStore::Activate(const std::vector<std::string>& tags) {
  if (db_ == nullptr) return NotOpen();
  const std::string where = " WHERE biz_tag IN " + sql::Texts(tags);
  const Result<std::vector<MysqlResult>> answers =
      db_->Packet({"UPDATE idd_ceiling SET active = wanted" + where +
                       " AND active < wanted AND epoch <="
                       " (SELECT MIN(noted) FROM idd_fence WHERE state = 'live') AND " +
                       tables_.AreSame(),
                   "SELECT biz_tag, active, wanted FROM idd_ceiling" + where});
  if (!answers.ok()) return Failed(answers.status());
  std::vector<Ceiling> ceilings;
  for (const auto& cells : answers.value()[1].rows) {
    const MysqlRow row(cells);
    const Ceiling ceiling{.tag = row.TextIf(0).value_or(""),
                          .active = row.UintIf(1).value_or(0),
                          .wanted = row.UintIf(2).value_or(0)};
    const auto state = states_.find(ceiling.tag);
    if (state != states_.end() && state->second.ok()) {
      state->second.value().record.ceiling = ceiling.active;
    }
    ceilings.push_back(ceiling);
  }
  return ceilings;
}

Result<bool> MysqlStore::PutOut(const FenceMember& member) {
  if (db_ == nullptr) return NotOpen();
  const Result<MysqlResult> put = db_->Query(
      "UPDATE idd_fence SET state = 'out' WHERE host = " + MysqlDb::Text(member.host) +
      " AND run = " + MysqlDb::Text(member.run) + " AND beat = " + std::to_string(member.beat) +
      " AND state IN ('live', 'waiting') AND " + server_.condition() + " AND " + tables_.AreSame());
  if (!put.ok()) return Failed(put.status());
  return put.value().changed == 1;
}

}  // namespace idd::daemon

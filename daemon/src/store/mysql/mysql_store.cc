// SPDX-License-Identifier: Apache-2.0
#include "store/mysql/mysql_store.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "platform/logging.h"
#include "platform/random.h"
#include "store/mysql/mysql_schema.h"
#include "store/mysql/mysql_sql.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// The pause between two rounds of tries, per endpoint.
constexpr milliseconds kConnectPause(1000);

std::map<std::string, std::string> Pairs(const MysqlResult& result) {
  std::map<std::string, std::string> pairs;
  for (const auto& cells : result.rows) pairs[cells[0].value_or("")] = cells[1].value_or("");
  return pairs;
}

}  // namespace

MysqlStore::MysqlStore(const MysqlStoreOptions& options)
    : MysqlStore(options, MakeRun(options.host.run_number)) {}

MysqlStore::MysqlStore(const MysqlStoreOptions& options, const std::string& run)
    : SqlStore(Dialect::kMysql, options.host.id, "host = ?1 AND run = '" + run + "'"),
      options_(options),
      host_row_(options.host, run) {}

// Frees the host's name at once, so that a host that is stopped and rebooted need not wait.
MysqlStore::~MysqlStore() {
  if (is_beside_ || db_ == nullptr || db_->PeerClosed()) return;
  static_cast<void>(hosts()->NoteStop());
}

Status MysqlStore::NotOpen() const {
  return {Code::kUnavailable, "the allocator " + DisplayUrl() + " is not open"};
}

Status MysqlStore::Failed(Status status) {
  if (db_ == nullptr) return status;
  if (!db_->broken()) return status.code() == Code::kIncompatible ? WhatIsMissing(status) : status;
  db_.reset();
  // A guard refused the statement, and the connection ended before it could be asked which one.
  if (status.code() == Code::kInvalid) return {Code::kUnavailable, status.message()};
  return status;
}

// The table or the column that a statement lacks may be one that only a trigger needs.
Status MysqlStore::WhatIsMissing(const Status& status) {
  Status schema = CheckMysqlTables(*db_);
  if (schema.ok()) schema = CheckLeafAlloc(*db_).status();
  if (schema.ok()) {
    return {Code::kInvalid, status.message() + "; look for triggers on the table"};
  }
  db_.reset();
  return schema;
}

// --- opening

Status MysqlStore::Open() {
  const MonotonicTime now = MonotonicClock::now();
  if (now < next_connect_) return last_refusal_;
  db_.reset();
  states_.clear();
  last_token_.clear();
  term_ = {};
  Status refusal;
  for (const MysqlEndpoint& endpoint : options_.url.endpoints) {
    Status status = OpenAt(endpoint);
    if (status.ok()) return status;
    db_.reset();
    // Whatever keeps the store from being opened is the store's.
    if (!IsOfStore(status)) status = {Code::kUnavailable, status.message()};
    refusal = refusal.ok() ? std::move(status)
                           : Status(status.code(), refusal.message() + std::string(kNextEndpoint) +
                                                       status.message());
  }
  const auto endpoints = static_cast<int>(options_.url.endpoints.size());
  next_connect_ = MonotonicClock::now() + kConnectPause * endpoints;
  last_refusal_ = refusal;
  return refusal;
}

Status MysqlStore::OpenAt(const MysqlEndpoint& endpoint) {
  Result<std::unique_ptr<MysqlDb>> db = MysqlDb::Connect(options_.url, endpoint);
  if (!db.ok()) return db.status();
  db_ = std::move(db).value();
  if (Status status = CheckSettings(); !status.ok()) return status;
  if (Status status = Recognise(); !status.ok()) return status;
  Result<MysqlDataSet> data_set = EnsureMysqlSchema(*db_, may_create_);
  if (!data_set.ok()) return data_set.status();
  incarnation_ = std::move(data_set.value().incarnation);
  largest_max_id_ = data_set.value().largest_max_id;
  // Done before anything is read from the tables: from here on each lease notices if one is
  // replaced.
  if (Status status = RecogniseTables(); !status.ok()) return status;
  const Result<bool> is_set_back = host_row_.Claim(*db_);
  if (!is_set_back.ok()) return is_set_back.status();
  if (is_set_back.value()) ++generation_;
  if (Status status = AbandonLost(); !status.ok()) return status;
  may_create_ = false;
  ++connection_;
  return Status::Ok();
}

Status MysqlStore::OpenToRead() { return OpenBeside("SET SESSION TRANSACTION READ ONLY"); }

// Its statements wait for no lease that is under way, and no lease waits for them.
Status MysqlStore::OpenToKeepJournal() {
  return OpenBeside("SET SESSION innodb_lock_wait_timeout=1");
}

Status MysqlStore::OpenBeside(const std::string& session) {
  is_beside_ = true;
  Status refusal;
  for (const MysqlEndpoint& endpoint : options_.url.endpoints) {
    Status status = OpenBesideAt(endpoint, session);
    if (status.ok()) return status;
    db_.reset();
    refusal = std::move(status);
  }
  return refusal;
}

// Only at a server that grants leases, because a replica may lag.
Status MysqlStore::OpenBesideAt(const MysqlEndpoint& endpoint, const std::string& session) {
  Result<std::unique_ptr<MysqlDb>> db = MysqlDb::Connect(options_.url, endpoint);
  if (!db.ok()) return db.status();
  db_ = std::move(db).value();
  if (Status status = CheckSettings(); !status.ok()) return status;
  const Result<bool> is_made = HasMysqlSchema(*db_);
  if (!is_made.ok()) return is_made.status();
  if (!is_made.value()) {
    return {Code::kUnavailable, "idd's tables at " + db_->where() + " have not been made yet"};
  }
  const Result<std::vector<MysqlResult>> answers =
      db_->Packet({"SELECT @@global.read_only, @@innodb_read_only", sql::kClusterStatus,
                   sql::kServerVariables, session});
  if (!answers.ok()) return answers.status();
  const auto& server = answers.value()[0].rows.at(0);
  if (!IsOff(server[0]) || !IsOff(server[1])) return ReadOnly();
  std::map<std::string, std::string> variables = Pairs(answers.value()[2]);
  if (const Result<std::string> group = CheckGroup(variables); !group.ok()) return group.status();
  if (variables["wsrep_on"] == "ON") {
    if (Status status = JoinCluster(answers.value()[1]); !status.ok()) return status;
  }
  // If the tables are wrong, each statement says so.
  const Result<std::uint64_t> largest_max_id = CheckLeafAlloc(*db_);
  if (largest_max_id.ok()) largest_max_id_ = largest_max_id.value();
  return db_->broken() ? largest_max_id.status() : Status::Ok();
}

// Finds out whether the server is writable, and which server it is.
Status MysqlStore::Recognise() {
  const Result<std::vector<MysqlResult>> answers =
      db_->Packet({"SELECT @@hostname, @@port, @@server_id, @@global.read_only, @@innodb_read_only,"
                   " @@innodb_flush_log_at_trx_commit, CONNECTION_ID()",
                   sql::kClusterStatus, sql::kServerVariables});
  if (!answers.ok()) return answers.status();
  const auto& server = answers.value()[0].rows.at(0);
  if (!IsOff(server[3]) || !IsOff(server[4])) return ReadOnly();
  const Result<std::uint64_t> started = ReadStart();
  if (!started.ok()) return started.status();
  const auto number = [](const std::optional<std::string>& text) {
    return std::strtoull(text.value_or("").c_str(), nullptr, 10);
  };
  std::map<std::string, std::string> variables = Pairs(answers.value()[2]);
  Result<std::string> group = CheckGroup(variables);
  if (!group.ok()) return group.status();
  ServerFacts facts{.hostname = server[0].value_or(""),
                    .port = number(server[1]),
                    .server_id = number(server[2]),
                    .uid = variables["server_uid"],
                    .uuid = variables["server_uuid"],
                    .connection = number(server[6]),
                    .started = started.value(),
                    .cluster = std::move(group).value()};
  view_.clear();
  if (variables["wsrep_on"] == "ON") {
    if (Status status = JoinCluster(answers.value()[1]); !status.ok()) return status;
    const Result<std::string> members = MembersOfCluster();
    if (!members.ok()) return members.status();
    facts.cluster = view_.substr(0, view_.find(' ')) + " " + members.value();
  }
  if (!server_.Recognise(facts)) return Status::Ok();
  tables_ = {};
  if (server[5] != "1") {
    log::Warning("store.not_durable",
                 {{"server", db_->where()},
                  {"innodb_flush_log_at_trx_commit", server[5].value_or("")},
                  {"action", "set it to 1: a crash may lose leases that were granted"}});
  }
  return Status::Ok();
}

// The second in which the server's process started. The server computes its uptime from the start
// of the statement, so in one second both differ by exactly that, whatever its clock shows.
Result<std::uint64_t> MysqlStore::ReadStart() {
  constexpr int kTries = 10;  // the second may end between the statements
  for (int tries = 0; tries < kTries; ++tries) {
    const Result<std::vector<MysqlResult>> answers = db_->Packet(
        {"SELECT UNIX_TIMESTAMP()", "SHOW GLOBAL STATUS LIKE 'Uptime'", "SELECT UNIX_TIMESTAMP()"});
    if (!answers.ok()) return answers.status();
    const std::optional<std::uint64_t> before = MysqlRow(answers.value()[0].rows.at(0)).UintIf(0);
    const std::optional<std::uint64_t> after = MysqlRow(answers.value()[2].rows.at(0)).UintIf(0);
    if (answers.value()[1].rows.empty() || !before.has_value()) break;
    const std::optional<std::uint64_t> uptime = MysqlRow(answers.value()[1].rows[0]).UintIf(1);
    if (!uptime.has_value() || *uptime > *before) break;
    if (before == after) return *before - *uptime;
  }
  return Status(Code::kUnavailable,
                "the server at " + db_->where() + " does not say when it was started");
}

// The processes that form the present component of a Galera cluster: each has an id of its own, so
// a component that was bootstrapped from an older node has other members.
Result<std::string> MysqlStore::MembersOfCluster() {
  const Result<MysqlResult> members = db_->Query(
      "SELECT MD5(GROUP_CONCAT(node_uuid ORDER BY node_uuid)) FROM mysql.wsrep_cluster_members");
  if (!members.ok()) {
    return members.status().WithContext("the members of the cluster at " + db_->where());
  }
  std::string digest = members.value().rows.at(0).at(0).value_or("");
  if (!digest.empty()) return digest;
  return Status(Code::kUnavailable,
                "the node at " + db_->where() + " does not show the members of its cluster");
}

// A dump that is restored table by table may set one table back after idd has written into another.
// Only the creation times of the tables show that, because the dump may have this host's row just
// as this host left it.
Status MysqlStore::RecogniseTables() {
  const bool was_open = !tables_.empty();
  const Result<bool> has_new = ReadTables();
  if (!has_new.ok()) return has_new.status();
  if (was_open && has_new.value()) ++generation_;
  return Status::Ok();
}

// True: a table has a creation time that was not known. It is recorded now.
Result<bool> MysqlStore::ReadTables() {
  const Result<MysqlResult> made =
      db_->Query(std::string("SELECT LOWER(table_name), ") + sql::kTableMade +
                 " FROM information_schema.tables WHERE " + sql::kLeaseTables);
  if (!made.ok()) return made.status();
  if (made.value().rows.size() != sql::kLeaseTableCount) {
    Status status = CheckMysqlTables(*db_);
    return status.ok() ? Status(Code::kUnavailable,
                                "the tables at " + db_->where() + " are being made or restored")
                       : status;
  }
  bool has_new = false;
  for (const auto& cells : made.value().rows) {
    const MysqlRow row(cells);
    has_new |= tables_.Add(row.TextIf(0).value_or(""), row.UintIf(1).value_or(0));
  }
  return has_new;
}

Status MysqlStore::CheckTables() {
  const Result<bool> has_new = ReadTables();
  if (has_new.ok()) return has_new.value() ? SetBack() : Status::Ok();
  db_.reset();
  return has_new.status();
}

Status MysqlStore::CheckIdentity() {
  if (Status status = CheckTables(); !status.ok()) return status;
  const Result<MysqlResult> guard =
      db_->Query("SELECT (" + SelectIsCurrent() + "), @@global.read_only, @@innodb_read_only");
  if (!guard.ok()) return Failed(guard.status());
  const auto& cells = guard.value().rows.at(0);
  if (cells[0] != "1") return SetBack();
  return IsOff(cells[1]) && IsOff(cells[2]) ? Status::Ok() : ReadOnly();
}

Status MysqlStore::CheckGuard() {
  if (Status status = CheckIdentity(); !status.ok()) return status;
  const Result<MysqlResult> same = db_->Query("SELECT " + IsGuarded());
  if (!same.ok()) return Failed(same.status());
  if (same.value().rows.at(0).at(0) == "1") return Status::Ok();
  return {Code::kTimeout, "the database at " + db_->where() +
                              " is in another term than at the last look; it is tried again"};
}

// This host's commits at another node must be visible at this one.
Status MysqlStore::JoinCluster(const MysqlResult& status) {
  view_.clear();
  if (Status usable = CheckCluster(status); !usable.ok()) return usable;
  const Result<MysqlResult> set = db_->Query("SET SESSION wsrep_sync_wait=7");
  if (set.ok()) db_->SendSingly();
  return set.status();
}

// Checks that the node may be used and the cluster has the same members as at the last look.
Status MysqlStore::CheckCluster(const MysqlResult& status) {
  std::map<std::string, std::string> cluster = Pairs(status);
  if (cluster["wsrep_cluster_status"] != "Primary" || cluster["wsrep_ready"] != "ON") {
    Status refused(Code::kUnavailable, "the cluster's node at " + db_->where() + " is not ready (" +
                                           cluster["wsrep_cluster_status"] + ")");
    db_.reset();
    return refused;
  }
  const std::string view =
      "cluster-" + cluster["wsrep_cluster_state_uuid"] + " " + cluster["wsrep_cluster_conf_id"];
  if (view_.empty()) view_ = view;
  if (view_ == view) return Status::Ok();
  db_.reset();
  return {Code::kUnavailable, "the members of the cluster at " + DisplayUrl() + " have changed"};
}

// A server that is meant for a group of Group Replication, but is not in it, may be writable: its
// leases would be lost to the group. In a group with several primaries a server may show less than
// another one has committed.
Result<std::string> MysqlStore::CheckGroup(std::map<std::string, std::string>& variables) {
  const std::string name = variables["group_replication_group_name"];
  if (name.empty()) return std::string();
  const auto refused = [this](const std::string& why) {
    Status status(Code::kUnavailable, "the server at " + db_->where() + " " + why);
    db_.reset();
    return status;
  };
  if (variables["group_replication_single_primary_mode"] != "ON") {
    return refused(
        "has Group Replication with several primaries; idd needs"
        " group_replication_single_primary_mode=ON");
  }
  // The view's id begins with what the group got when it was bootstrapped.
  const Result<MysqlResult> member = db_->Query(
      "SELECT m.member_state, SUBSTRING_INDEX(s.view_id, ':', 1)"
      " FROM performance_schema.replication_group_members m"
      " LEFT JOIN performance_schema.replication_group_member_stats s USING(member_id)"
      " WHERE m.member_id = @@server_uuid");
  if (!member.ok())
    return refused("does not show the state of its group: " + member.status().message());
  const auto& rows = member.value().rows;
  const std::string state = rows.empty() ? "OFFLINE" : rows[0].at(0).value_or("");
  if (state != "ONLINE") return refused("is not in its group (" + state + ")");
  const std::string bootstrap = rows[0].at(1).value_or("");
  if (bootstrap.empty()) return refused("does not show the view of its group");
  return "group-" + name + " " + bootstrap;
}

bool MysqlStore::IsOff(const std::optional<std::string>& value) {
  return value == "0" || value == "OFF";
}

Status MysqlStore::ReadOnly() {
  Status status(Code::kUnavailable, "the database server at " + db_->where() + " is read-only");
  db_.reset();
  return status;
}

// A statement that returns 1 on the opened connection while the tables are those that were opened
// and have what this host last wrote there. Tables that were set back do not have it.
std::string MysqlStore::SelectIsCurrent() const {
  if (is_beside_) return "SELECT 1";
  return "SELECT COUNT(*) FROM idd_host JOIN idd_meta WHERE " + HasOwnRows();
}

std::string MysqlStore::HasOwnRows() const {
  const std::string has_token =
      last_token_.empty()
          ? ""
          : " AND (EXISTS(SELECT 1 FROM idd_lease WHERE token = '" + last_token_ +
                "') OR EXISTS(SELECT 1 FROM idd_ended WHERE token = '" + last_token_ + "'))";
  return server_.condition() +
         " AND idd_meta.name = 'incarnation' AND idd_meta.value = " + MysqlDb::Text(incarnation_) +
         " AND " + host_row_.IsAsLeft() + has_token;
}

Status MysqlStore::SetBack() {
  db_.reset();
  ++generation_;
  return {Code::kUnavailable, "the tables at " + DisplayUrl() +
                                  " were set back or replaced, or another host took this one's "
                                  "name"};
}

Status MysqlStore::CheckCurrent() {
  if (db_ == nullptr || db_->PeerClosed()) {
    db_.reset();
    return NotOpen();
  }
  if (Status status = AbandonLost(); !status.ok()) return Failed(std::move(status));
  const Result<bool> beaten = host_row_.Beat(*db_);
  if (!beaten.ok()) return Failed(beaten.status());
  return beaten.value() ? Status::Ok() : SetBack();
}

Result<std::string> MysqlStore::Incarnation() {
  if (db_ == nullptr) return NotOpen();
  return incarnation_;
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "store/mysql_store.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "logging.h"
#include "random.h"
#include "store/mysql_schema.h"
#include "store/mysql_sql.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// A host without leases shows itself this often ...
constexpr std::chrono::seconds kBeatEvery(20);
// ... and after so long without a sign of it another may take its name.
constexpr int kSilentForS = 60;
// Between two tries at all endpoints, for each of them.
constexpr milliseconds kConnectPause(1000);
// What became of a lost lease is known after so long: its packet has ended.
constexpr std::chrono::seconds kLostFor(120);

}  // namespace

MysqlStore::MysqlStore(MysqlStoreOptions options)
    : options_(std::move(options)), run_(RandomToken()) {}

// The name is free at once: a host that was stopped and rebooted need not wait.
MysqlStore::~MysqlStore() {
  if (db_ == nullptr || db_->PeerClosed()) return;
  static_cast<void>(db_->Query("UPDATE idd_host SET boot_id = '' WHERE " + IsThisHost()));
}

std::string MysqlStore::IsThisHost() const {
  return "host = " + MysqlDb::Text(options_.host.id) + " AND run = '" + run_ + "'";
}

Status MysqlStore::NotOpen() const {
  return {Code::kUnavailable, "the allocator " + DisplayUrl() + " is not open"};
}

Status MysqlStore::Failed(Status status) {
  if (db_ != nullptr && db_->broken()) db_.reset();
  return status;
}

// --- opening

Status MysqlStore::Open() {
  const MonotonicTime now = MonotonicClock::now();
  if (now < next_connect_) return last_refusal_;
  db_.reset();
  states_.clear();
  last_token_.clear();
  Status refusal;
  for (const MysqlEndpoint& endpoint : options_.url.endpoints) {
    Status status = OpenAt(endpoint);
    if (status.ok()) return status;
    db_.reset();
    refusal = refusal.ok() ? std::move(status)
                           : Status(status.code(), refusal.message() + "; " + status.message());
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
  if (Status status = Recognise(); !status.ok()) return status;
  Result<std::string> incarnation = EnsureMysqlSchema(*db_, may_create_);
  if (!incarnation.ok()) return incarnation.status();
  incarnation_ = std::move(incarnation).value();
  if (Status status = ClaimHost(); !status.ok()) return status;
  if (Status status = AbandonLostLeases(); !status.ok()) return status;
  may_create_ = false;
  return Status::Ok();
}

// Whether the server may be written to, and whether it is the one that was open last and has run
// since: any other may have less than that one had.
Status MysqlStore::Recognise() {
  const MonotonicTime asked = MonotonicClock::now();
  const Result<std::vector<MysqlResult>> answers = db_->Packet(
      {"SELECT @@hostname, @@port, @@server_id, @@global.read_only, @@innodb_read_only,"
       " @@innodb_flush_log_at_trx_commit, CONNECTION_ID()",
       "SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'wsrep_ready', 'wsrep_cluster_status',"
       " 'wsrep_cluster_state_uuid', 'wsrep_last_committed', 'wsrep_cluster_conf_id')",
       "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'server_uid', 'server_uuid')"});
  if (!answers.ok()) return answers.status();
  const auto& server = answers.value()[0].rows.at(0);
  std::map<std::string, std::string> status;
  for (const std::size_t answer : {1U, 2U}) {
    for (const auto& cells : answers.value()[answer].rows) {
      status[cells[0].value_or("")] = cells[1].value_or("");
    }
  }
  const bool is_cluster = status["wsrep_on"] == "ON";
  if (!IsOff(server[3]) || !IsOff(server[4])) return ReadOnly();
  if (is_cluster &&
      (status["wsrep_cluster_status"] != "Primary" || status["wsrep_ready"] != "ON")) {
    return {Code::kUnavailable, "the cluster's node at " + db_->where() + " is not ready (" +
                                    status["wsrep_cluster_status"] + ")"};
  }
  if (is_cluster) {
    // What this host has committed at another node is to be seen at this one.
    const Result<MysqlResult> set = db_->Query("SET SESSION wsrep_sync_wait=7");
    if (!set.ok()) return set.status();
    db_->SendSingly();
  }
  const std::string name = is_cluster ? "cluster " + status["wsrep_cluster_state_uuid"]
                                      : server[0].value_or("") + ":" + server[1].value_or("") +
                                            " " + server[2].value_or("") + " " +
                                            status["server_uid"] + status["server_uuid"];
  // A cluster counts its commits and the changes of its members, a server its connections and its
  // seconds; none may have begun anew meanwhile. Seconds are whole, so that the server may be one
  // younger than it says.
  const auto number = [](const std::optional<std::string>& text) {
    return std::strtoull(text.value_or("").c_str(), nullptr, 10);
  };
  const std::uint64_t count = number(is_cluster ? status["wsrep_last_committed"] : server[6]);
  const std::uint64_t view = is_cluster ? number(status["wsrep_cluster_conf_id"]) : 0;
  const std::chrono::seconds uptime(number(status["Uptime"]));
  const bool ran_then = uptime >= MonotonicClock::now() - first_seen_ + std::chrono::seconds(1);
  const bool is_unbroken = view > last_view_ || (view == last_view_ && ran_then);
  if (view != last_view_) first_seen_ = asked;
  is_young_ = uptime < lease_grace() + std::chrono::seconds(1);
  is_cluster_ = is_cluster;
  if (name != server_ || count < last_count_ || !is_unbroken) {
    ++generation_;
    server_ = name;
    first_seen_ = asked;
    if (server[5] != "1") {
      log::Warning("store.not_durable",
                   {{"server", db_->where()},
                    {"innodb_flush_log_at_trx_commit", server[5].value_or("")},
                    {"action", "set it to 1: a crash may lose leases that were granted"}});
    }
  }
  last_count_ = count;
  last_view_ = view;
  return Status::Ok();
}

bool MysqlStore::IsOff(const std::optional<std::string>& value) {
  return value == "0" || value == "OFF";
}

Status MysqlStore::ReadOnly() {
  Status status(Code::kUnavailable, "the database server at " + db_->where() + " is read-only");
  db_.reset();
  return status;
}

// The row of this host. Another live host under its name would take its returned ranges and give up
// its leases.
Status MysqlStore::ClaimHost() {
  const std::string host = MysqlDb::Text(options_.host.id);
  const std::string boot = MysqlDb::Text(options_.host.boot_id);
  const std::string instance = MysqlDb::Text(options_.host.instance);
  // The next run on the same state dir takes over from one that ended. One that did not, as two
  // share the state dir, does not take it back.
  const std::string is_next = "boot_id = " + boot + " AND instance = " + instance +
                              (beat_ == 0 ? "" : " AND run = '" + run_ + "'");
  const Result<std::vector<MysqlResult>> claimed = db_->Packet(
      {"INSERT IGNORE INTO idd_host(host, boot_id, instance, run, beat) VALUES(" + host + ", '', " +
           instance + ", '', 0)",
       "UPDATE idd_host SET boot_id = " + boot + ", instance = " + instance + ", run = '" + run_ +
           "', beat = beat + 1, last_seen = CURRENT_TIMESTAMP WHERE host = " + host +
           " AND (boot_id = '' OR (" + is_next + ") OR last_seen < CURRENT_TIMESTAMP - INTERVAL " +
           std::to_string(kSilentForS) + " SECOND)",
       "SELECT boot_id, run, beat, TIMESTAMPDIFF(SECOND, last_seen, CURRENT_TIMESTAMP)"
       " FROM idd_host WHERE host = " +
           host});
  if (!claimed.ok()) return claimed.status();
  if (claimed.value()[2].rows.empty()) {
    return {Code::kUnavailable, "the row of host '" + options_.host.id + "' is gone from idd_host"};
  }
  const MysqlRow row(claimed.value()[2].rows[0]);
  if (row.TextIf(1) != run_) {
    return {Code::kUnavailable,
            "another host uses the name '" + options_.host.id + "' (boot id " +
                row.TextIf(0).value_or("") + ", seen " + row.TextIf(3).value_or("?") +
                " s ago); give one of them another --host-id, or wait until the other has been "
                "silent for " +
                std::to_string(kSilentForS) + " s"};
  }
  const std::optional<std::uint64_t> beat = row.UintIf(2);
  if (!beat.has_value()) return {Code::kInvalid, "idd_host.beat is not a number above 0"};
  if (beat_ != 0 && *beat <= beat_) ++generation_;  // the tables were set back
  beat_ = *beat;
  beaten_at_ = MonotonicClock::now();
  return Status::Ok();
}

// Answers 1 while the tables are those that were opened, and have what this host was granted last:
// what was set back to an older state has not.
std::string MysqlStore::SelectIsCurrent() const {
  if (!last_token_.empty()) {
    return "SELECT COUNT(*) FROM idd_lease WHERE token = '" + last_token_ + "'";
  }
  return "SELECT COUNT(*) FROM idd_host JOIN idd_meta ON name = 'incarnation' AND value = " +
         MysqlDb::Text(incarnation_) + " WHERE " + IsThisHost() +
         " AND beat = " + std::to_string(beat_);
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
  if (Status status = AbandonLostLeases(); !status.ok()) return Failed(std::move(status));
  if (MonotonicClock::now() - beaten_at_ < kBeatEvery) return Status::Ok();
  const Result<std::vector<MysqlResult>> beaten =
      db_->Packet({"UPDATE idd_host SET last_seen = CURRENT_TIMESTAMP, beat = beat + 1 WHERE " +
                       IsThisHost() + " AND beat = " + std::to_string(beat_),
                   "SELECT @@global.read_only", "SHOW GLOBAL STATUS LIKE 'wsrep_last_committed'"});
  if (!beaten.ok()) return Failed(beaten.status());
  if (!IsOff(beaten.value()[1].rows.at(0).at(0))) return ReadOnly();
  if (beaten.value()[0].changed != 1) return SetBack();
  if (is_cluster_ && !beaten.value()[2].rows.empty()) {
    last_count_ = std::strtoull(beaten.value()[2].rows[0][1].value_or("").c_str(), nullptr, 10);
  }
  ++beat_;
  beaten_at_ = MonotonicClock::now();
  return Status::Ok();
}

// Unless the URL says otherwise: another host may see that its connection is gone 5 s later
// (keep-alive), look at it after one more, and try every endpoint in vain before the right one.
milliseconds MysqlStore::lease_grace() const {
  if (options_.url.grace.has_value()) return *options_.url.grace;
  const auto endpoints = static_cast<int>(options_.url.endpoints.size());
  return std::chrono::seconds(6) + (kMysqlTimeout + kConnectPause) * endpoints;
}

Result<std::string> MysqlStore::Incarnation() {
  if (db_ == nullptr) return NotOpen();
  return incarnation_;
}

// One that is not there yet may still come: the packet on the old connection may not have ended.
Status MysqlStore::AbandonLostLeases() {
  if (lost_tokens_.empty()) return Status::Ok();
  std::vector<std::string> tokens;
  tokens.reserve(lost_tokens_.size());
  for (const auto& [token, since] : lost_tokens_) tokens.push_back(token);
  const std::string is_lost =
      " WHERE host = " + MysqlDb::Text(options_.host.id) + " AND token IN " + sql::Texts(tokens);
  const Result<std::vector<MysqlResult>> results =
      db_->Packet({"UPDATE idd_lease SET state = 'abandoned', abandoned = `limit` - base,"
                   " closed_at = CURRENT_TIMESTAMP" +
                       is_lost + " AND state = 'active'",
                   "SELECT token FROM idd_lease" + is_lost + " AND state <> 'active'"});
  if (!results.ok()) return results.status();
  for (const auto& cells : results.value()[1].rows) lost_tokens_.erase(cells[0].value_or(""));
  const MonotonicTime oldest = MonotonicClock::now() - kLostFor;
  std::erase_if(lost_tokens_, [oldest](const auto& lost) { return lost.second < oldest; });
  return Status::Ok();
}

void MysqlStore::Lose(const std::vector<std::string>& tokens) {
  for (const std::string& token : tokens) lost_tokens_[token] = MonotonicClock::now();
}

// --- what this host knows and the data set may not

Result<Reminded> MysqlStore::Remind(const HostMemory& memory) {
  if (db_ == nullptr) return NotOpen();
  Reminded reminded;
  constexpr std::size_t kAtOnce = 500;
  for (std::size_t begin = 0; begin < memory.marks.size(); begin += kAtOnce) {
    const std::size_t end = std::min(begin + kAtOnce, memory.marks.size());
    std::vector<std::string> tags;
    for (std::size_t i = begin; i < end; ++i) tags.push_back(memory.marks[i].tag);
    const Result<TagStates> states = ReadTags(tags);
    if (!states.ok()) return Failed(states.status());
    for (std::size_t i = begin; i < end; ++i) {
      Status status = RemindOfMark(memory.marks[i], states.value(), reminded);
      if (!status.ok()) return Failed(std::move(status));
    }
  }
  if (Status status = RemindOfLeases(memory, reminded); !status.ok()) {
    return Failed(std::move(status));
  }
  return reminded;
}

// Each by itself: lifting twice is lifting once.
Status MysqlStore::RemindOfMark(const TagMark& mark, const TagStates& states, Reminded& reminded) {
  const Result<TagState>& state = states.find(mark.tag)->second;
  // A row that makes no sense is mended by hand, perhaps to less than the mark: as if not there.
  const bool has_row = state.ok();
  std::uint64_t used = has_row ? state.value().used_limit : 0;
  if (!has_row) {
    const Result<std::uint64_t> known = UsedLimit(mark.tag);
    if (!known.ok()) return known.status();
    used = known.value();
  }
  const std::uint64_t stands_at = has_row ? state.value().record.next_id : used;
  if (stands_at >= mark.mark) return Status::Ok();
  const std::string to = std::to_string(mark.mark);
  const Result<MysqlResult> lifted = db_->Query(
      has_row ? "UPDATE leaf_alloc SET max_id = " + to + " WHERE " + sql::IsTag(mark.tag) +
                    " AND max_id < " + to
              : "INSERT INTO idd_deleted_tag(biz_tag, max_id) VALUES(" + MysqlDb::Text(mark.tag) +
                    ", " + to + ") ON DUPLICATE KEY UPDATE max_id = GREATEST(max_id, " + to + ")");
  if (!lifted.ok()) return lifted.status();
  reminded.lifted.push_back({.tag = mark.tag, .from = stands_at, .to = mark.mark});
  if (std::max(stands_at, used) < mark.mark) reminded.forgot_leases = true;
  return Status::Ok();
}

std::string MysqlStore::Restore(const Lease& lease) const {
  return "INSERT INTO idd_lease(token, biz_tag, host, base, `limit`) VALUES('" + lease.token +
         "', " + MysqlDb::Text(lease.tag) + ", " + MysqlDb::Text(options_.host.id) + ", " +
         std::to_string(lease.ids.first) + ", " + std::to_string(lease.ids.limit) + ")";
}

std::string MysqlStore::SharesIdsWith(const Lease& lease) const {
  return " WHERE biz_tag = " + MysqlDb::Text(lease.tag) +
         " AND host = " + MysqlDb::Text(options_.host.id) + " AND base < " +
         std::to_string(lease.ids.limit) + " AND `limit` > " + std::to_string(lease.ids.first);
}

std::string MysqlStore::EndSharing(const Lease& lease, const std::string& shared,
                                   const std::vector<std::string>& but) {
  const std::string first = std::to_string(lease.ids.first);
  return "UPDATE idd_lease SET state = 'returned', abandoned = GREATEST(base, " + first +
         ") - base, returned = `limit` - GREATEST(base, " + first +
         "), closed_at = CURRENT_TIMESTAMP" + shared + " AND state = 'active' AND token NOT IN " +
         sql::Texts(but);
}

Status MysqlStore::RemindOfLeases(const HostMemory& memory, Reminded& reminded) {
  if (memory.held.empty()) return Status::Ok();
  std::vector<std::string> tokens;
  for (const Lease& lease : memory.held) tokens.push_back(lease.token);
  const Result<MysqlResult> known =
      db_->Query("SELECT token FROM idd_lease WHERE token IN " + sql::Texts(tokens));
  if (!known.ok()) return known.status();
  std::set<std::string> there;
  for (const auto& cells : known.value().rows) there.insert(cells[0].value_or(""));
  std::map<std::string, std::vector<std::string>> of_tag;
  for (const Lease& lease : memory.held) of_tag[lease.tag].push_back(lease.token);
  // Each by itself, too: what was journalled again is there the next time.
  constexpr std::size_t kAtOnce = 500;
  std::vector<std::string> statements;
  for (const Lease& lease : memory.held) {
    if (there.contains(lease.token)) continue;
    reminded.forgot_leases = true;
    reminded.restored.push_back(lease);
    restored_tokens_.insert(lease.token);  // whether this commits or not
    statements.push_back(Restore(lease));
    if (!memory.from_other_data_set) {  // else: what its own leases share with these came twice
      // An older copy may still list ids of the lease as returned, or have leases of ours as active
      // whose ids these are: what they had from here on was given back, or it would not have been
      // leased again. What became of the rest of them nobody knows.
      const std::string shared = SharesIdsWith(lease);
      statements.push_back("DELETE FROM idd_returned" + shared);
      statements.push_back(EndSharing(lease, shared, of_tag[lease.tag]));
    }
    if (statements.size() < kAtOnce) continue;
    Status status = db_->Transaction(statements).status();
    if (!status.ok()) return status;
    statements.clear();
  }
  if (statements.empty()) return Status::Ok();
  return db_->Transaction(statements).status();
}

}  // namespace idd::daemon

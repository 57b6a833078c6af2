// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: what the hosts agree on (term_store.h). The row of idd_term puts in order what must
// not happen side by side: a lease, a note and an activation lock it shared, a new term and another
// list of witnesses write it. The row of idd_ceiling without a name counts the raises: its lock
// puts them in order, so that no raise of a lower epoch commits after one of a higher epoch was
// seen.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// A raise that has to wait for a locked row takes a second each time.
constexpr int kRaiseTries = 2;

std::string IsTerm(const Term& term, const std::string& number, const std::string& witness) {
  return number + " = " + std::to_string(term.number) + " AND " + witness + " = " +
         MysqlDb::Text(term.witness);
}

Status Invalid(const std::string& what) {
  return {Code::kUnavailable, what + " is invalid; restore the database"};
}

Result<TermRow> ParseTermRow(const MysqlRow& row) {
  const std::optional<std::uint64_t> number = row.UintIf(0);
  std::optional<WitnessList> active = ParseWitnessList(row.TextIf(3).value_or(""));
  std::optional<WitnessList> wanted = ParseWitnessList(row.TextIf(4).value_or(""));
  if (!number || !active || !wanted) return Invalid("the row of idd_term");
  return TermRow{.term = {.number = *number, .witness = row.TextIf(1).value_or("")},
                 .identity = row.TextIf(2).value_or(""),
                 .active = *std::move(active),
                 .wanted = *std::move(wanted)};
}

Result<WitnessRow> ParseWitness(const MysqlRow& row) {
  const std::string name = row.TextIf(0).value_or("");
  const std::optional<std::uint64_t> number = row.UintIf(1);
  const std::optional<std::uint64_t> noted = row.UintIf(3);
  const std::optional<std::uint64_t> beat = row.UintIf(5);
  std::optional<WitnessList> list = ParseWitnessList(row.TextIf(4).value_or(""));
  if (!number || !noted || !beat || !list)
    return Invalid("the row of '" + name + "' in idd_witness");
  return WitnessRow{.name = name,
                    .term = {.number = *number, .witness = row.TextIf(2).value_or("")},
                    .noted = *noted,
                    .list = *std::move(list),
                    .beat = *beat,
                    .silent_s = row.UintIf(6).value_or(0)};
}

}  // namespace

// An SQL condition on idd_term: it is as found, over this connection and with the known tables. A
// proxy may have led the session to another server with the same row.
std::string MysqlStore::IsAsFound(const TermRow& found) const {
  return server_.condition() + " AND idd_term.id = 1 AND " +
         IsTerm(found.term, "idd_term.number", "idd_term.witness") +
         " AND idd_term.identity = " + MysqlDb::Text(found.identity) +
         " AND idd_term.active = " + MysqlDb::Text(found.active.Text()) +
         " AND idd_term.wanted = " + MysqlDb::Text(found.wanted.Text()) + " AND " +
         tables_.AreSame();
}

// The first statement of a transaction: later ones can ask whether @idd_found = 1, and the row
// stays as it is until the COMMIT.
std::string MysqlStore::LockFound(const TermRow& found) const {
  return "SELECT COUNT(*) INTO @idd_found FROM idd_term WHERE " + IsAsFound(found) +
         " LOCK IN SHARE MODE";
}

// The identity of the data set that this connection reaches. Each node of a cluster has creation
// times of its own.
std::string MysqlStore::IdentityOfConnection() const {
  return server_.name() + (server_.is_cluster() ? "" : tables_.Times());
}

// Some sessions see a later time of the same table than others (MysqlTables), and then the term's
// identity has it.
void MysqlStore::LearnTablesFrom(const std::string& identity) {
  if (server_.is_cluster() || !identity.starts_with(server_.name())) return;
  tables_.AddSeenElsewhere(std::string_view(identity).substr(server_.name().size()));
}

Result<TermView> MysqlStore::ReadTerm(std::optional<std::uint64_t> noted) {
  if (db_ == nullptr) return NotOpen();
  std::vector<std::string> statements = {
      "SELECT " + server_.condition() + ", @@global.read_only, @@innodb_read_only, " +
          tables_.AreSame(),
      "SELECT number, witness, identity, active, wanted FROM idd_term WHERE id = 1",
      "SELECT name, term_number, term_witness, noted, list, beat,"
      " GREATEST(0, TIMESTAMPDIFF(SECOND, seen, CURRENT_TIMESTAMP)) FROM idd_witness ORDER BY name",
      // First the counter: a raise that commits in between has a higher epoch, and the next look
      // finds it.
      "SELECT epoch FROM idd_ceiling WHERE biz_tag = ''"};
  if (noted.has_value()) {
    statements.push_back(
        "SELECT biz_tag, wanted FROM idd_ceiling WHERE biz_tag <> '' AND epoch > " +
        std::to_string(*noted));
  }
  if (server_.is_cluster()) statements.emplace_back(sql::kClusterStatus);
  const Result<std::vector<MysqlResult>> answers = db_->Packet(statements);
  if (!answers.ok()) return Failed(answers.status());
  const auto& server = answers.value()[0].rows.at(0);
  if (!IsOff(server[1]) || !IsOff(server[2])) return ReadOnly();
  if (server[3] != "1") {
    if (Status status = CheckTables(); !status.ok()) return status;
  }
  if (server[0] != "1") return SetBack();
  if (!view_.empty()) {
    if (Status status = CheckCluster(answers.value().back()); !status.ok()) return status;
  }
  if (answers.value()[1].rows.empty() || answers.value()[3].rows.empty()) {
    return Status(Code::kUnavailable, "idd_term or idd_ceiling at " + db_->where() +
                                          " has lost its row; restore the database");
  }
  Result<TermRow> row = ParseTermRow(MysqlRow(answers.value()[1].rows[0]));
  if (!row.ok()) return row.status();
  LearnTablesFrom(row.value().identity);
  TermView view{
      .row = std::move(row).value(), .server = server_.name(), .is_cluster = server_.is_cluster()};
  view.row.is_current = view.row.identity == IdentityOfConnection();
  for (const auto& cells : answers.value()[2].rows) {
    Result<WitnessRow> witness = ParseWitness(MysqlRow(cells));
    if (!witness.ok()) return witness.status();
    view.witnesses.push_back(std::move(witness).value());
  }
  const std::optional<std::uint64_t> epoch = MysqlRow(answers.value()[3].rows[0]).UintIf(0);
  if (!epoch.has_value()) return Invalid("the counter of idd_ceiling");
  view.epoch = *epoch;
  if (noted.has_value()) {
    for (const auto& cells : answers.value()[4].rows) {
      const MysqlRow ceiling(cells);
      const std::string tag = ceiling.TextIf(0).value_or("");
      const std::optional<std::uint64_t> wanted = ceiling.UintIf(1);
      if (!wanted.has_value()) return Invalid("the row of tag '" + tag + "' in idd_ceiling");
      view.wanted.push_back({.tag = tag, .mark = *wanted});
    }
  }
  const bool is_another = view.row.term != term_.term || view.row.identity != term_.identity;
  if (is_another) states_.clear();
  term_ = view.row;
  return view;
}

// Runs one UPDATE of idd_term. False: it changed nothing.
Result<bool> MysqlStore::UpdateTerm(const std::string& update) {
  if (db_ == nullptr) return NotOpen();
  const Result<MysqlResult> updated = db_->Query(update);
  if (!updated.ok()) return FailedOrUnknown(updated.status());
  return updated.value().changed == 1;
}

// After an error it is not known whether the statement was carried out. The next Open() looks.
Status MysqlStore::FailedOrUnknown(const Status& status) {
  if (db_ != nullptr && db_->outcome_unknown()) db_.reset();
  return Failed(status);
}

Result<bool> MysqlStore::BeginTerm(const TermRow& found, const Term& term,
                                   const WitnessList& active) {
  return UpdateTerm("UPDATE idd_term SET number = " + std::to_string(term.number) +
                    ", witness = " + MysqlDb::Text(term.witness) +
                    ", identity = " + MysqlDb::Text(IdentityOfConnection()) +
                    ", active = " + MysqlDb::Text(active.Text()) + " WHERE " + IsAsFound(found));
}

Result<bool> MysqlStore::VoidTerm(const TermRow& found) {
  return UpdateTerm("UPDATE idd_term SET identity = '' WHERE " + IsAsFound(found));
}

Result<bool> MysqlStore::SetLists(const TermRow& found, const WitnessList& active,
                                  const WitnessList& wanted, std::uint64_t epoch) {
  return UpdateTerm(
      "UPDATE idd_term SET active = " + MysqlDb::Text(active.Text()) +
      ", wanted = " + MysqlDb::Text(wanted.Text()) + " WHERE " + IsAsFound(found) +
      " AND (SELECT epoch FROM idd_ceiling WHERE biz_tag = '') <= " + std::to_string(epoch));
}

Result<bool> MysqlStore::Push(const TermRow& found, const std::vector<TagMark>& notes) {
  if (db_ == nullptr) return NotOpen();
  if (notes.empty()) return true;
  std::string rows;
  std::vector<std::string> tags;
  sql::List marks;
  for (const TagMark& note : notes) {
    rows += rows.empty() ? "SELECT " : " UNION ALL SELECT ";
    rows += MysqlDb::Text(note.tag) + " AS tag, " + std::to_string(note.mark) + " AS mark";
    tags.push_back(note.tag);
    marks.Add(note.mark);
  }
  const Result<std::vector<MysqlResult>> pushed = db_->Transaction(
      {LockFound(found),
       "UPDATE idd_ceiling SET epoch = LAST_INSERT_ID(epoch + 1) WHERE biz_tag = ''"
       " AND @idd_found = 1",
       "INSERT INTO idd_ceiling(biz_tag, wanted, pushed, epoch)"
       " SELECT r.tag, r.mark, r.mark, LAST_INSERT_ID() FROM (" +
           rows +
           ") AS r WHERE @idd_found = 1 ON DUPLICATE KEY UPDATE"
           " epoch = IF(idd_ceiling.wanted < r.mark, VALUES(epoch), idd_ceiling.epoch),"
           " wanted = GREATEST(idd_ceiling.wanted, r.mark),"
           " pushed = GREATEST(idd_ceiling.pushed, r.mark)",
       "SELECT @idd_found"});
  if (!pushed.ok()) return FailedOrUnknown(pushed.status());
  if (pushed.value().back().rows.at(0).at(0) != "1") return false;
  // For Leaf servers, which see only max_id. idd's own leases begin above what was pushed anyway,
  // so a row that is locked or refuses the change stays as it is.
  const std::string mark = marks.NumberAt(sql::PlaceOfTag(tags));
  const Result<MysqlResult> lifted =
      db_->Query("UPDATE leaf_alloc SET max_id = " + mark + " WHERE biz_tag IN " +
                 sql::Texts(tags) + " AND max_id < " + mark);
  if (!lifted.ok() && db_->broken()) return Failed(lifted.status());
  states_.clear();
  return true;
}

Result<bool> MysqlStore::WriteWitness(const TermRow& found, const WitnessRow& row,
                                      std::uint64_t was) {
  if (db_ == nullptr) return NotOpen();
  const std::string name = MysqlDb::Text(row.name);
  std::vector<std::string> statements = {LockFound(found)};
  if (was == 0) {
    statements.push_back("INSERT IGNORE INTO idd_witness(name) SELECT " + name +
                         " FROM idd_term WHERE id = 1 AND @idd_found = 1");
  }
  const std::string is_term = IsTerm(row.term, "term_number", "term_witness");
  statements.push_back("UPDATE idd_witness SET noted = " + std::to_string(row.noted) +
                       ", list = " + MysqlDb::Text(row.list.Text()) + ", seen = CURRENT_TIMESTAMP" +
                       ", beat = IF(beat = " + std::to_string(was) + " OR NOT (" + is_term + "), " +
                       std::to_string(row.beat) +
                       ", NULL), term_number = " + std::to_string(row.term.number) +
                       ", term_witness = " + MysqlDb::Text(row.term.witness) +
                       " WHERE name = " + name + " AND @idd_found = 1");
  statements.emplace_back("SELECT @idd_found");
  const Result<std::vector<MysqlResult>> written = db_->Transaction(statements);
  if (!written.ok() && db_->last_error() == sql::kNullRefused && !db_->outcome_unknown()) {
    return false;  // the row is not as this host left it
  }
  if (!written.ok()) return FailedOrUnknown(written.status());
  return written.value().back().rows.at(0).at(0) == "1";
}

// Precondition: the statement before it has taken the next epoch. MySQL assigns from left to right,
// so the epoch's condition sees the row as it was.
std::string MysqlStore::RaiseRows(const std::vector<CeilingRaise>& raises) const {
  std::string rows;
  for (const CeilingRaise& raise : raises) {
    rows += rows.empty() ? "SELECT " : " UNION ALL SELECT ";
    rows += MysqlDb::Text(raise.tag) + " AS tag, " + std::to_string(raise.wanted) + " AS wanted, " +
            std::to_string(raise.least) + " AS least";
  }
  return "INSERT INTO idd_ceiling(biz_tag, wanted, epoch) SELECT r.tag, r.wanted,"
         " IF(ROW_COUNT() = 1 AND " +
         tables_.AreSame() + ", LAST_INSERT_ID(), NULL) FROM (" + rows +
         ") AS r ON DUPLICATE KEY UPDATE"
         " epoch = IF(idd_ceiling.wanted < r.least, VALUES(epoch), idd_ceiling.epoch),"
         " wanted = IF(idd_ceiling.wanted < r.least, GREATEST(idd_ceiling.wanted, r.wanted),"
         " idd_ceiling.wanted)";
}

Result<std::uint64_t> MysqlStore::Raise(const std::vector<CeilingRaise>& raises) {
  if (db_ == nullptr) return NotOpen();
  const std::vector<std::string> statements = {
      "UPDATE idd_ceiling SET epoch = LAST_INSERT_ID(epoch + 1) WHERE biz_tag = ''",
      RaiseRows(raises), "SELECT epoch FROM idd_ceiling WHERE biz_tag = ''"};
  for (int tries = 1;; ++tries) {
    const Result<std::vector<MysqlResult>> raised = db_->Transaction(statements);
    if (raised.ok()) {
      states_.clear();
      const std::optional<std::uint64_t> epoch =
          MysqlRow(raised.value().back().rows.at(0)).UintIf(0);
      return epoch.has_value() ? Result<std::uint64_t>(*epoch)
                               : Invalid("the counter of idd_ceiling");
    }
    const unsigned error = db_->last_error();
    const bool is_in_the_way = error == sql::kLockTimeout || error == sql::kDeadlock;
    if (is_in_the_way && !db_->broken()) {
      if (tries < kRaiseTries) continue;
      return Status(Code::kTimeout,
                    "another session holds a row of idd_ceiling locked; look for an open "
                    "transaction on the server");
    }
    if (error != sql::kNullRefused) return Failed(raised.status());
    if (Status status = CheckTables(); !status.ok()) return status;
    return Status(Code::kUnavailable, "idd_ceiling at " + db_->where() + " has lost its counter");
  }
}

Result<std::vector<Ceiling>> MysqlStore::ReadCeilings(const std::vector<std::string>& tags) {
  if (db_ == nullptr) return NotOpen();
  const Result<MysqlResult> found =
      db_->Query("SELECT biz_tag, IF(" + IsTerm(term_.term, "term_number", "term_witness") +
                 ", active, 0), wanted FROM idd_ceiling WHERE biz_tag IN " + sql::Texts(tags));
  if (!found.ok()) return Failed(found.status());
  std::vector<Ceiling> ceilings;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    ceilings.push_back({.tag = row.TextIf(0).value_or(""),
                        .active = row.UintIf(1).value_or(0),
                        .wanted = row.UintIf(2).value_or(0)});
  }
  return ceilings;
}

Result<bool> MysqlStore::Activate(const TermRow& found, std::uint64_t after, std::uint64_t epoch) {
  if (db_ == nullptr) return NotOpen();
  const std::string is_term = IsTerm(found.term, "term_number", "term_witness");
  const Result<std::vector<MysqlResult>> activated =
      db_->Transaction({LockFound(found),
                        "UPDATE idd_ceiling SET active = wanted, term_number = " +
                            std::to_string(found.term.number) +
                            ", term_witness = " + MysqlDb::Text(found.term.witness) +
                            " WHERE biz_tag <> '' AND epoch > " + std::to_string(after) +
                            " AND epoch <= " + std::to_string(epoch) +
                            " AND (active <> wanted OR NOT (" + is_term + ")) AND @idd_found = 1",
                        "SELECT @idd_found"});
  if (!activated.ok()) return FailedOrUnknown(activated.status());
  states_.clear();
  return activated.value().back().rows.at(0).at(0) == "1";
}

Result<std::vector<Candidate>> MysqlStore::ListCandidates() {
  if (db_ == nullptr) return NotOpen();
  const Result<MysqlResult> found = db_->Query(
      "SELECT host, disk, GREATEST(0, TIMESTAMPDIFF(SECOND, last_seen, CURRENT_TIMESTAMP))"
      " FROM idd_host WHERE stopped_at IS NULL AND disk <> '' ORDER BY host");
  if (!found.ok()) return Failed(found.status());
  std::vector<Candidate> candidates;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    candidates.push_back(
        {.name = WitnessName(row.TextIf(0).value_or(""), row.TextIf(1).value_or("")),
         .silent_s = row.UintIf(2).value_or(0)});
  }
  return candidates;
}

}  // namespace idd::daemon

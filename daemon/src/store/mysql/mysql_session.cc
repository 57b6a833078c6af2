// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: the session of the tables that are written once (sql/sql_session.h).
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/mysql/mysql_store.h"

namespace idd::daemon {

std::unique_ptr<SqlQuery> MysqlStore::Query(const std::string& text, const SqlValues& values) {
  if (db_ == nullptr) return FailedQuery(NotOpen());
  Result<MysqlResult> found = db_->Query(MysqlDb::WithLiterals(text, values));
  if (!found.ok()) return FailedQuery(Failed(found.status()));
  return std::make_unique<MysqlQuery>(std::move(found).value(), db_->where());
}

Result<std::vector<std::uint64_t>> MysqlStore::Transact(
    const std::vector<SqlStatement>& statements) {
  if (db_ == nullptr) return NotOpen();
  std::vector<std::string> texts;
  for (const SqlStatement& statement : statements) {
    texts.push_back(MysqlDb::WithLiterals(statement.text, statement.values));
  }
  const Result<std::vector<MysqlResult>> done = db_->Transaction(texts);
  if (!done.ok()) return Failed(done.status());
  std::vector<std::uint64_t> numbers;
  for (const MysqlResult& result : done.value()) {
    numbers.push_back(result.rows.empty() ? result.changed
                                          : MysqlRow(result.rows.front()).UintIf(0).value_or(0));
  }
  return numbers;
}

// A connection whose transaction does not end must not be used again.
Status MysqlStore::Snapshot(const std::function<Status()>& body) {
  if (db_ == nullptr) return NotOpen();
  const Result<std::vector<MysqlResult>> begun =
      db_->Packet({"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
                   "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"});
  if (!begun.ok()) return Failed(begun.status());
  Status status = body();
  if (db_ != nullptr && !db_->Query("COMMIT").ok()) db_.reset();
  return status;
}

Status MysqlStore::CheckNotSetBack() { return is_beside_ ? Status::Ok() : CheckIdentity(); }

}  // namespace idd::daemon

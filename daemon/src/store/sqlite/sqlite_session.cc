// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: the session of the tables that are written once (sql/sql_session.h).
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/sqlite/sqlite_store.h"

namespace idd::daemon {
namespace {

void BindValue(SqliteQuery& query, int index, const SqlValue& value) {
  if (std::holds_alternative<std::monostate>(value)) {
    query.Bind(index, std::optional<std::string>());
  } else if (const auto* const number = std::get_if<std::uint64_t>(&value)) {
    query.Bind(index, *number);
  } else if (const auto* const text = std::get_if<std::string>(&value)) {
    query.Bind(index, *text);
  } else {
    const auto* const numbers = std::get_if<std::vector<std::uint64_t>>(&value);
    const nlohmann::json list = numbers != nullptr
                                    ? nlohmann::json(*numbers)
                                    : nlohmann::json(std::get<std::vector<std::string>>(value));
    query.Bind(index, list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

}  // namespace

std::unique_ptr<SqlQuery> SqliteStore::Query(const std::string& text, const SqlValues& values) {
  if (!db_) return FailedQuery(NotOpen());
  auto query = std::make_unique<SqliteQuery>(*db_, text);
  for (int index = 1; index <= query->arguments(); ++index) {
    BindValue(*query, index, values.at(static_cast<std::size_t>(index) - 1));
  }
  return query;
}

Result<std::vector<std::uint64_t>> SqliteStore::Transact(
    const std::vector<SqlStatement>& statements) {
  if (!db_) return NotOpen();
  if (!is_changing_) return db_->InTransaction([&] { return Run(statements); });
  if (!db_->has_transaction()) return TransactionIsGone();
  if (Status status = db_->Run("SAVEPOINT part"); !status.ok()) return status;
  Result<std::vector<std::uint64_t>> numbers = Run(statements);
  if (!numbers.ok() && !db_->has_transaction()) return numbers;
  Status status = numbers.ok() ? Status::Ok() : db_->Run("ROLLBACK TO part");
  if (status.ok()) status = db_->Run("RELEASE part");
  if (!status.ok()) return status;
  return numbers;
}

Result<std::vector<std::uint64_t>> SqliteStore::Run(const std::vector<SqlStatement>& statements) {
  std::vector<std::uint64_t> numbers;
  for (const SqlStatement& statement : statements) {
    const auto query = Query(statement.text, statement.values);
    const bool has_row = query->Next();
    std::uint64_t number = has_row ? query->Uint(0) : 0;
    while (query->Next()) {
    }
    if (!query->Finish().ok()) return query->Finish();
    if (!has_row) number = static_cast<std::uint64_t>(db_->changes());
    numbers.push_back(number);
    if (statement.point != nullptr) AtPoint(statement.point);
  }
  return numbers;
}

Status SqliteStore::ChangeIds(const std::function<Status()>& body, const char* point) {
  Status status = Change(body);
  if (status.ok() && point != nullptr) AtPoint(point);
  return status;
}

// A transaction that only reads: it waits for no other, and no other waits for it.
Status SqliteStore::Snapshot(const std::function<Status()>& body) {
  if (!db_) return NotOpen();
  if (Status status = db_->Run("BEGIN"); !status.ok()) return status;
  Status status = body();
  const Status ended = db_->Run("ROLLBACK");
  return status.ok() ? ended : status;
}

}  // namespace idd::daemon

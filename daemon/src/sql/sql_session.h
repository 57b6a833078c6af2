// SPDX-License-Identifier: Apache-2.0
//
// SQL of idd's own tables that is written once for SQLite and MySQL. What the two say differently
// is in the methods of SqlSession; `limit` in backticks is the column's name in both.
#ifndef IDD_DAEMON_SQL_SQL_SESSION_H_
#define IDD_DAEMON_SQL_SQL_SESSION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "idd/base/status.h"
#include "sql/stored_row.h"

namespace idd::daemon {

// The value of a placeholder: NULL, a number up to 2^63-1, a text or, for SqlSession::In(), a list.
using SqlValue = std::variant<std::monostate, std::uint64_t, std::string,
                              std::vector<std::uint64_t>, std::vector<std::string>>;
using SqlValues = std::vector<SqlValue>;

// nullopt: NULL.
[[nodiscard]] SqlValue ValueOrNull(const std::optional<std::string>& value);

struct SqlStatement {
  // The placeholders ?1, ?2, ... stand for the values; each may be used any number of times. A '?'
  // stands for nothing else. SQLite keeps compiled statements by their text, so what varies is in
  // the values.
  std::string text;
  SqlValues values{};
  const char* point = nullptr;  // for tests: reached after the statement
};

// The rows of a query. The first error sticks: from then on Next() returns false and Finish()
// returns the error, so a loop needs one check after it.
//
//   const auto query = session.Query("SELECT host, base FROM ... WHERE biz_tag = ?1", {tag});
//   while (query->Next()) use(query->Text(0), query->Uint(1));
//   if (!query->Finish().ok()) return query->Finish();
//
// Thread safety: none.
class SqlQuery : public StoredRow {
 public:
  // Steps to the next row; false at the end or on an error.
  [[nodiscard]] virtual bool Next() = 0;
  [[nodiscard]] const Status& Finish() const noexcept { return status_; }

  // The column (from 0) of the present row. For a value of another type, or a number that is
  // negative or too large, the query gets an error (kInvalid, naming the column) and the result is
  // 0 or "".
  [[nodiscard]] std::uint64_t Uint(int column);
  [[nodiscard]] std::string Text(int column);
  // Makes the row's column the query's error.
  void Reject(int column, std::string_view expected);

 protected:
  SqlQuery() = default;
  explicit SqlQuery(Status status) : status_(std::move(status)) {}
  // For messages: "column host in '/var/lib/idd/idd.db'".
  [[nodiscard]] virtual std::string Place(int column) const = 0;

  Status status_;
};

// A query that has failed already.
[[nodiscard]] std::unique_ptr<SqlQuery> FailedQuery(Status status);

// `text` with each placeholder replaced by what `literal` makes of its value.
[[nodiscard]] std::string ReplacePlaceholders(
    const std::string& text, const SqlValues& values,
    const std::function<std::string(const SqlValue&)>& literal);

// What the tables' SQL runs on. While the database is not open, everything fails with that.
//
// Thread safety: none. Errors: those of SqliteDb and MysqlDb.
class SqlSession {
 public:
  enum class Dialect { kSqlite, kMysql };

  explicit SqlSession(Dialect dialect) : dialect_(dialect) {}
  virtual ~SqlSession() = default;
  SqlSession(const SqlSession&) = delete;
  SqlSession& operator=(const SqlSession&) = delete;

  // Never null. The query must be gone, or at its end, before anything is changed.
  [[nodiscard]] virtual std::unique_ptr<SqlQuery> Query(const std::string& text,
                                                        const SqlValues& values = {}) = 0;

  // Runs the statements in one transaction, in which the server does not wait for this host, except
  // at a Galera node (MysqlDb::SendSingly()). So what was read before is checked again by
  // conditions in the statements. Returns a number for each: of a SELECT, which must have a row,
  // its first column; of others, how many rows it changed. (MySQL does not count rows that stay as
  // they are, and counts two for an upsert that changes a row.)
  [[nodiscard]] virtual Result<std::vector<std::uint64_t>> Transact(
      const std::vector<SqlStatement>& statements) = 0;
  // Runs `body`, which reads and then calls Transact(), for a change that ids depend on. With
  // SQLite all of it is one transaction, with the witness, and a ChangeIds() within it is a part of
  // it; Transact() on its own leaves the witness out. `point` is reached after the transaction.
  [[nodiscard]] virtual Status ChangeIds(const std::function<Status()>& body,
                                         const char* point = nullptr) = 0;
  // Runs `body`, which only reads: all that it reads is of one moment.
  [[nodiscard]] virtual Status Snapshot(const std::function<Status()>& body) = 0;
  // Ok while the tables are those that were opened, not an older copy of them.
  [[nodiscard]] virtual Status CheckNotSetBack() = 0;

  // A time so long before another one, or before now; after it if negative.
  [[nodiscard]] std::string Before(const std::string& time, std::chrono::seconds age) const;
  [[nodiscard]] std::string Ago(std::chrono::seconds age) const {
    return Before("CURRENT_TIMESTAMP", age);
  }
  // The seconds since a time; 0 if it is ahead.
  [[nodiscard]] std::string AgeOf(const std::string& time) const;
  [[nodiscard]] std::string Concat(std::initializer_list<std::string_view> texts) const;
  // The largest of the values, of which none may be NULL.
  [[nodiscard]] std::string Largest(std::initializer_list<std::string_view> values) const;
  // " IN (...)" of the list that value `index` is; never true for an empty one.
  [[nodiscard]] std::string In(int index) const;
  // Whether a column, which may compare without case, is byte by byte text value `index`.
  [[nodiscard]] std::string IsExactly(const std::string& column, int index) const;
  // A name in leaf_alloc, whose column may have any character set, as idd's own tables have it.
  [[nodiscard]] std::string AsOwnName(const std::string& column) const;
  // Instead of "INSERT INTO": a row whose key is there already is left out.
  [[nodiscard]] const char* InsertIfNew() const;
  // After the VALUES or the SELECT of an INSERT: what follows changes the row of this key if it is
  // there already. NewValue(): what the INSERT has for a column.
  [[nodiscard]] std::string OrUpdate(const std::string& key) const;
  [[nodiscard]] std::string NewValue(const std::string& column) const;
  // After a table's name: the index to read it by.
  [[nodiscard]] std::string ByIndex(const std::string& index) const;
  // Whether the server grants changes. A user with all rights could write to a read-only one.
  [[nodiscard]] const char* IsWritable() const;
  // After a SELECT in Transact(): its rows stay as they are until the end of the transaction.
  [[nodiscard]] const char* ForUpdate() const;

 protected:
  [[nodiscard]] bool is_mysql() const noexcept { return dialect_ == Dialect::kMysql; }

 private:
  const Dialect dialect_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SQL_SQL_SESSION_H_

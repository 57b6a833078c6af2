// SPDX-License-Identifier: Apache-2.0
//
// A connection to a server of the MySQL protocol, as idd uses it: statements in packets, buffered
// rows, every wait bounded. Nothing else in idd calls libmariadb.
#ifndef IDD_DAEMON_SQL_MYSQL_DB_H_
#define IDD_DAEMON_SQL_MYSQL_DB_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idd/base/status.h"
#include "sql/mysql_url.h"
#include "sql/sql_session.h"

struct st_mysql;

namespace idd::daemon {

// The timeout for connecting, for a wait for an answer and for sending. A packet of a lease gets
// its row lock and finishes within it, or the server gives up the lock wait first.
inline constexpr std::chrono::seconds kMysqlTimeout(2);
// The timeout for a statement, from the end of the previous one to the last byte of its answer,
// even while bytes keep coming: a server that sends them slowly must hold up neither leases nor a
// stop. It also holds for a login.
inline constexpr std::chrono::seconds kMysqlStatementTimeout(5);

// What a server has listed. It may have left something out, and what is missing reads as empty.
template <typename Item>
class MysqlList : public std::vector<Item> {
 public:
  using std::vector<Item>::vector;
  [[nodiscard]] const Item& at(std::size_t place) const {
    static const Item kNothing{};
    return place < this->size() ? *(this->begin() + static_cast<std::ptrdiff_t>(place)) : kNothing;
  }
  [[nodiscard]] const Item& operator[](std::size_t place) const { return at(place); }
};
using MysqlCells = MysqlList<std::optional<std::string>>;

// The result of a statement: rows, or how many it changed.
struct MysqlResult {
  MysqlList<MysqlCells> rows;
  std::uint64_t changed = 0;
};

// A row of a MysqlResult, which has to outlive it.
class MysqlRow final : public StoredRow {
 public:
  explicit MysqlRow(const MysqlCells& cells) : cells_(cells) {}

  [[nodiscard]] bool IsNull(int column) const override;
  [[nodiscard]] std::optional<std::uint64_t> UintIf(int column) const override;
  [[nodiscard]] std::optional<std::string> TextIf(int column) const override;
  [[nodiscard]] std::string Describe(int column) const override;

 private:
  [[nodiscard]] const std::optional<std::string>& Cell(int column) const;

  const MysqlCells& cells_;
};

// A MysqlResult, read row by row. `where`: the server, for messages.
class MysqlQuery final : public SqlQuery {
 public:
  MysqlQuery(MysqlResult result, std::string where)
      : result_(std::move(result)), where_(std::move(where)) {}

  [[nodiscard]] bool Next() override { return status_.ok() && next_++ < result_.rows.size(); }
  [[nodiscard]] bool IsNull(int column) const override { return Row().IsNull(column); }
  [[nodiscard]] std::optional<std::uint64_t> UintIf(int column) const override {
    return Row().UintIf(column);
  }
  [[nodiscard]] std::optional<std::string> TextIf(int column) const override {
    return Row().TextIf(column);
  }
  [[nodiscard]] std::string Describe(int column) const override { return Row().Describe(column); }

 private:
  [[nodiscard]] std::string Place(int column) const override;
  [[nodiscard]] MysqlRow Row() const { return MysqlRow(result_.rows[next_ - 1]); }

  const MysqlResult result_;
  const std::string where_;
  std::size_t next_ = 0;
};

// One connection. Thread safety: none.
//
// Errors of all members: kUnavailable (unreachable, restarting, read-only, full, no password: the
// connection is broken()), kTimeout (a lock or another transaction was in the way: worth trying
// again), kIncompatible (a table or a column is missing), kInvalid (the server refuses this
// statement, its numbers or its row), kSystem.
class MysqlDb {
 public:
  // Looks the name of `endpoint` up, connects to it, and sets the session up, each within its
  // limit.
  [[nodiscard]] static Result<std::unique_ptr<MysqlDb>> Connect(const MysqlUrl& url,
                                                                const MysqlEndpoint& endpoint);
  MysqlDb(const MysqlDb&) = delete;
  MysqlDb& operator=(const MysqlDb&) = delete;
  ~MysqlDb();

  // Runs one statement.
  [[nodiscard]] Result<MysqlResult> Query(const std::string& sql);
  // Runs the statements in one packet, so that the server never waits for this host between them,
  // or one after the other if SendSingly() was called. The first error ends the packet. Earlier
  // statements stay in effect, unless they are in a transaction, which is then rolled back.
  [[nodiscard]] Result<std::vector<MysqlResult>> Packet(const std::vector<std::string>& statements);
  // Runs START TRANSACTION, the statements, COMMIT, and then `behind`, in one packet. Returns the
  // results of the statements and of `behind`.
  [[nodiscard]] Result<std::vector<MysqlResult>> Transaction(
      const std::vector<std::string>& statements, const std::vector<std::string>& behind = {});
  // Sends statements one at a time from now on. A node of a Galera cluster that must roll a
  // transaction back in favour of one from another node reports that only to the next packet. The
  // rest of the present packet runs on outside any transaction, and can commit a journal row
  // without its advance of max_id.
  void SendSingly() noexcept { sends_singly_ = true; }

  // After an error of Packet() or Transaction(): whether a commit may have happened nevertheless.
  [[nodiscard]] bool outcome_unknown() const noexcept { return outcome_unknown_; }
  // The error number of the last failure, the server's or libmariadb's; 0: there was no failure, or
  // it has no number.
  [[nodiscard]] unsigned last_error() const noexcept { return last_error_; }
  // The connection cannot be used any more.
  [[nodiscard]] bool broken() const noexcept { return broken_; }

  // Whether the server has closed the connection or sent unrequested data. Makes no round trip.
  [[nodiscard]] bool PeerClosed() const;

  // "host:port" or the socket, for messages.
  [[nodiscard]] const std::string& where() const noexcept { return where_; }

  // Literals, whatever the session's modes are.
  [[nodiscard]] static std::string Text(std::string_view value);  // of utf8mb4
  // A statement with literals in place of its placeholders.
  [[nodiscard]] static std::string WithLiterals(const std::string& text, const SqlValues& values);

 private:
  explicit MysqlDb(std::string where);
  // `db` stays null if the login is given up.
  [[nodiscard]] static Status LogInWithin(std::unique_ptr<MysqlDb>& db, const MysqlUrl& url,
                                          const MysqlEndpoint& endpoint,
                                          const std::string& password);
  [[nodiscard]] Status LogIn(const MysqlUrl& url, const MysqlEndpoint& endpoint,
                             const std::string& password);
  [[nodiscard]] Status SetSession(const std::string& database);
  [[nodiscard]] Status Failure(const char* doing);
  // The connection is not used any more.
  [[nodiscard]] Status Refusal(const std::string& what);
  [[nodiscard]] Result<std::vector<MysqlResult>> Send(const std::vector<std::string>& statements);

  st_mysql* mysql_ = nullptr;
  const std::string where_;
  bool sends_singly_ = false;
  bool outcome_unknown_ = false;
  bool broken_ = false;
  unsigned last_error_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SQL_MYSQL_DB_H_

// SPDX-License-Identifier: Apache-2.0
#include "sql/sql_session.h"

#include <cctype>
#include <utility>

#include "idd/base/check.h"

namespace idd::daemon {
namespace {

class NoRows final : public SqlQuery {
 public:
  explicit NoRows(Status status) : SqlQuery(std::move(status)) {}
  bool Next() override { return false; }
  bool IsNull(int /*column*/) const override { return true; }
  std::optional<std::uint64_t> UintIf(int /*column*/) const override { return std::nullopt; }
  std::optional<std::string> TextIf(int /*column*/) const override { return std::nullopt; }
  std::string Describe(int /*column*/) const override { return "NULL"; }

 private:
  std::string Place(int /*column*/) const override { return "no row"; }
};

std::string Joined(std::initializer_list<std::string_view> texts, const char* between) {
  std::string all;
  for (const std::string_view text : texts) {
    if (!all.empty()) all += between;
    all += text;
  }
  return all;
}

}  // namespace

SqlValue ValueOrNull(const std::optional<std::string>& value) {
  return value.has_value() ? SqlValue(*value) : SqlValue();
}

// --- SqlQuery

std::uint64_t SqlQuery::Uint(int column) {
  const std::optional<std::uint64_t> value = UintIf(column);
  if (!value.has_value()) Reject(column, "an integer that is not negative");
  return value.value_or(0);
}

std::string SqlQuery::Text(int column) {
  std::optional<std::string> value = TextIf(column);
  if (!value.has_value()) Reject(column, "a text");
  return std::move(value).value_or(std::string());
}

void SqlQuery::Reject(int column, std::string_view expected) {
  if (!status_.ok()) return;
  status_ = Status(Code::kInvalid, Place(column) + " holds " + Describe(column) + " instead of " +
                                       std::string(expected));
}

std::unique_ptr<SqlQuery> FailedQuery(Status status) {
  return std::make_unique<NoRows>(std::move(status));
}

std::string ReplacePlaceholders(const std::string& text, const SqlValues& values,
                                const std::function<std::string(const SqlValue&)>& literal) {
  std::string replaced;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] != '?') {
      replaced += text[at++];
      continue;
    }
    std::size_t index = 0;
    while (++at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) {
      index = index * 10 + static_cast<std::size_t>(text[at] - '0');
    }
    IDD_CHECK(index >= 1 && index <= values.size());
    replaced += literal(values[index - 1]);
  }
  return replaced;
}

// --- SqlSession

std::string SqlSession::Before(const std::string& time, std::chrono::seconds age) const {
  if (is_mysql()) return "(" + time + " - INTERVAL " + std::to_string(age.count()) + " SECOND)";
  return "datetime(" + time + ", '" + std::to_string(-age.count()) + " seconds')";
}

std::string SqlSession::AgeOf(const std::string& time) const {
  if (is_mysql()) return "GREATEST(0, TIMESTAMPDIFF(SECOND, " + time + ", CURRENT_TIMESTAMP))";
  return "MAX(0, CAST(strftime('%s', 'now') AS INTEGER) - CAST(strftime('%s', " + time +
         ") AS INTEGER))";
}

std::string SqlSession::Concat(std::initializer_list<std::string_view> texts) const {
  return (is_mysql() ? "CONCAT(" : "(") + Joined(texts, is_mysql() ? ", " : " || ") + ")";
}

std::string SqlSession::Largest(std::initializer_list<std::string_view> values) const {
  return (is_mysql() ? "GREATEST(" : "MAX(") + Joined(values, ", ") + ")";
}

std::string SqlSession::In(int index) const {
  const std::string value = "?" + std::to_string(index);
  return is_mysql() ? " IN (" + value + ")" : " IN (SELECT value FROM json_each(" + value + "))";
}

std::string SqlSession::IsExactly(const std::string& column, int index) const {
  const std::string value = "?" + std::to_string(index);
  const std::string is_equal = column + " = " + value + " AND ";
  if (!is_mysql()) return is_equal + column + " = " + value + " COLLATE BINARY";
  return is_equal + "CAST(CONVERT(" + column + " USING utf8mb4) AS BINARY) = CAST(" + value +
         " AS BINARY)";
}

std::string SqlSession::AsOwnName(const std::string& column) const {
  if (!is_mysql()) return column;
  return "CONVERT(" + column + " USING utf8mb4) COLLATE utf8mb4_bin";
}

const char* SqlSession::InsertIfNew() const {
  return is_mysql() ? "INSERT IGNORE INTO " : "INSERT OR IGNORE INTO ";
}

std::string SqlSession::OrUpdate(const std::string& key) const {
  return is_mysql() ? " ON DUPLICATE KEY UPDATE " : " ON CONFLICT(" + key + ") DO UPDATE SET ";
}

std::string SqlSession::NewValue(const std::string& column) const {
  return is_mysql() ? "VALUES(" + column + ")" : "excluded." + column;
}

std::string SqlSession::ByIndex(const std::string& index) const {
  return is_mysql() ? " FORCE INDEX(" + index + ")" : " INDEXED BY " + index;
}

const char* SqlSession::IsWritable() const {
  return is_mysql() ? "CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') AND @@innodb_read_only = 0"
                    : "1";
}

const char* SqlSession::ForUpdate() const { return is_mysql() ? " FOR UPDATE" : ""; }

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_SQL_STORED_ROW_H_
#define IDD_DAEMON_SQL_STORED_ROW_H_

#include <cstdint>
#include <optional>
#include <string>

namespace idd::daemon {

// The present row of a query. Other programs also write the table, so every value is checked.
// Columns are counted from 0.
class StoredRow {
 public:
  virtual ~StoredRow() = default;

  [[nodiscard]] virtual bool IsNull(int column) const = 0;
  // Nothing unless the value is an integer from 0 to 2^63-1.
  [[nodiscard]] virtual std::optional<std::uint64_t> UintIf(int column) const = 0;
  [[nodiscard]] virtual std::optional<std::string> TextIf(int column) const = 0;
  // The column's value, for a message: "-5", "the real number 1.500000", "a text", "NULL". Never
  // quotes texts.
  [[nodiscard]] virtual std::string Describe(int column) const = 0;

 protected:
  StoredRow() = default;
  StoredRow(const StoredRow&) = default;
  StoredRow& operator=(const StoredRow&) = default;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SQL_STORED_ROW_H_

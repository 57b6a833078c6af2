// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_SQLITE_FILE_H_
#define IDD_TESTS_SUPPORT_SQLITE_FILE_H_

#include <cstdint>
#include <string>

struct sqlite3;

namespace idd::harness {

// A connection to idd's database beside idd's own, as another program of the operator would have.
// Thread safety: none.
class SqliteFile {
 public:
  // Throws HarnessError unless the file exists and opens.
  explicit SqliteFile(const std::string& path);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  // Executes statements without a result; throws HarnessError on an error.
  void Execute(const std::string& sql);
  // The first column of the first row.
  [[nodiscard]] std::string QueryText(const std::string& sql);
  [[nodiscard]] std::int64_t QueryInteger(const std::string& sql);

  // Overwrites the database with another file through SQLite's backup API, like `.restore` of
  // sqlite3(1): the file keeps its inode, and programs that have it open continue with it.
  void RestoreFrom(const std::string& backup);

  // leaf_alloc.max_id, where the next lease begins.
  [[nodiscard]] std::uint64_t MaxId(const std::string& tag);
  void SetMaxId(const std::string& tag, std::uint64_t max_id);

 private:
  sqlite3* db_ = nullptr;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_SQLITE_FILE_H_

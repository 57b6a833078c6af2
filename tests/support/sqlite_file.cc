// SPDX-License-Identifier: Apache-2.0
#include "support/sqlite_file.h"

#include <sqlite3.h>

#include <cstdlib>

#include "support/test_environment.h"

namespace idd::harness {

SqliteFile::SqliteFile(const std::string& path) {
  const int outcome = sqlite3_open_v2(path.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr);
  if (outcome != SQLITE_OK) {
    sqlite3_close(db_);
    throw HarnessError("sqlite3_open " + path + ": " + sqlite3_errstr(outcome));
  }
  sqlite3_busy_timeout(db_, static_cast<int>(Patience(std::chrono::seconds(5)).count()));
}

SqliteFile::~SqliteFile() { sqlite3_close(db_); }

void SqliteFile::Execute(const std::string& sql) {
  const int outcome = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  Require(outcome == SQLITE_OK, sql + ": " + sqlite3_errmsg(db_));
}

std::string SqliteFile::QueryText(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int prepared = sqlite3_prepare_v2(db_, sql.c_str(), -1, &statement, nullptr);
  Require(prepared == SQLITE_OK, sql + ": " + sqlite3_errmsg(db_));
  const int stepped = sqlite3_step(statement);
  const unsigned char* text = stepped == SQLITE_ROW ? sqlite3_column_text(statement, 0) : nullptr;
  std::string value;
  for (; text != nullptr && *text != 0; ++text) value.push_back(static_cast<char>(*text));
  sqlite3_finalize(statement);
  Require(stepped == SQLITE_ROW, sql + ": no row");
  return value;
}

std::int64_t SqliteFile::QueryInteger(const std::string& sql) {
  return std::strtoll(QueryText(sql).c_str(), nullptr, 10);
}

void SqliteFile::RestoreFrom(const std::string& backup) {
  const SqliteFile source(backup);
  sqlite3_backup* copy = sqlite3_backup_init(db_, "main", source.db_, "main");
  Require(copy != nullptr, std::string("sqlite3_backup_init: ") + sqlite3_errmsg(db_));
  static_cast<void>(WaitUntil(Patience(std::chrono::seconds(5)), [copy] {
    const int outcome = sqlite3_backup_step(copy, -1);
    return outcome != SQLITE_BUSY && outcome != SQLITE_LOCKED;
  }));
  Require(sqlite3_backup_finish(copy) == SQLITE_OK, std::string("restore: ") + sqlite3_errmsg(db_));
}

std::uint64_t SqliteFile::MaxId(const std::string& tag) {
  return static_cast<std::uint64_t>(
      QueryInteger("SELECT max_id FROM leaf_alloc WHERE biz_tag = '" + tag + "'"));
}

void SqliteFile::SetMaxId(const std::string& tag, std::uint64_t max_id) {
  Execute("UPDATE leaf_alloc SET max_id = " + std::to_string(max_id) + " WHERE biz_tag = '" + tag +
          "'");
  Require(sqlite3_changes(db_) == 1, "no such tag: " + tag);
}

}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: facts about the file and the library.
#include <unistd.h>

#include <string>

#include "store/sqlite/sqlite_store.h"

namespace idd::daemon {
namespace {

constexpr std::uint64_t kFull = 2;

Result<std::string> ReadText(SqliteDb& db, std::string_view sql) {
  SqliteQuery query = db.Query(sql);
  std::string text = query.Next() ? query.Text(0) : "";
  if (!query.Finish().ok()) return query.Finish();
  return text;
}

// Reports EXTRA as FULL, because it is at least as good.
Result<std::string> ReadSynchronous(SqliteDb& db) {
  SqliteQuery query = db.Query("PRAGMA synchronous");
  const std::uint64_t level = query.Next() ? query.Uint(0) : 0;
  if (!query.Finish().ok()) return query.Finish();
  return level >= kFull ? std::string("FULL") : std::to_string(level);
}

}  // namespace

Result<StoreFacts> SqliteStore::Inspect() {
  if (!db_) return NotOpen();
  const Result<std::string> version = ReadText(*db_, "SELECT sqlite_version()");
  if (!version.ok()) return version.status();
  const Result<std::string> journal = ReadText(*db_, "PRAGMA journal_mode");
  if (!journal.ok()) return journal.status();
  const Result<std::string> synchronous = ReadSynchronous(*db_);
  if (!synchronous.ok()) return synchronous.status();
  StoreFacts facts;
  facts.version = "SQLite " + version.value();
  // The open file may still be writable although the next open will not be.
  facts.is_read_only = ::access(options_.path.c_str(), W_OK) != 0;
  facts.log_bytes = db_->LogBytes();
  facts.settings = {
      {"journal_mode", journal.value(), "wal", "a program that reads it holds up leases"},
      {"synchronous", synchronous.value(), "FULL", "a power cut forgets leases"}};
  return facts;
}

}  // namespace idd::daemon

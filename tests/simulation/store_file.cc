// SPDX-License-Identifier: Apache-2.0
#include "store_file.h"

#include <sqlite3.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "idd/base/check.h"
#include "store/sqlite/sqlite_store.h"

namespace idd::simulation {
namespace {

constexpr auto kOverwrite = std::filesystem::copy_options::overwrite_existing;

using Database = std::unique_ptr<sqlite3, decltype([](sqlite3* db) { sqlite3_close(db); })>;

Database Open(const std::string& path) {
  sqlite3* db = nullptr;
  IDD_CHECK(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  return Database(db);
}

std::unique_ptr<daemon::SqliteStore> OpenStore(const std::string& path,
                                               const std::string& host = "operator") {
  daemon::SqliteStoreOptions options;
  options.path = path;
  options.host_id = host;
  return std::make_unique<daemon::SqliteStore>(std::move(options));
}

}  // namespace

StoreFile::StoreFile(std::filesystem::path dir) : dir_(std::move(dir)) {
  std::filesystem::remove_all(dir_);
  std::filesystem::create_directories(dir_);
}

StoreFile::~StoreFile() {
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

void StoreFile::CreateTag(const daemon::NewTag& tag) const {
  const auto store = OpenStore(path());
  IDD_CHECK(store->Open().ok());
  IDD_CHECK(store->CreateTag(tag).ok());
}

bool StoreFile::HasTag(const std::string& tag) const {
  const auto store = OpenStore(path());
  return store->OpenToRead().ok() && store->FindTag(tag).ok();
}

std::vector<daemon::LeaseRecord> StoreFile::Journal() const {
  const auto store = OpenStore(path());
  IDD_CHECK(store->OpenToRead().ok());
  return store->ListLeases({}).value();
}

std::vector<daemon::WorkerRecord> StoreFile::ListWorkers(const std::string& tag,
                                                         const std::string& host) const {
  const auto store = OpenStore(path(), host);
  if (!store->OpenToRead().ok()) return {};
  const Result<std::vector<daemon::WorkerRecord>> workers = store->ListWorkers(tag);
  return workers.ok() ? workers.value() : std::vector<daemon::WorkerRecord>();
}

std::uint64_t StoreFile::NextOf(const std::string& row) const {
  const auto store = OpenStore(path());
  if (!store->OpenToRead().ok()) return 0;
  const std::uint64_t used = store->UsedLimit(row).value();
  const Result<daemon::TagRecord> record = store->FindTag(row);
  return record.ok() ? std::max(used, record.value().next_id) : used;
}

void StoreFile::Dump() const {
  std::filesystem::remove(dir_ / "dump.db");
  const std::string sql = "VACUUM INTO '" + (dir_ / "dump.db").string() + "'";
  static_cast<void>(sqlite3_exec(Open(path()).get(), sql.c_str(), nullptr, nullptr, nullptr));
  std::filesystem::copy_file(path() + ".witness", dir_ / "dump.witness", kOverwrite);
}

void StoreFile::Restore(How how) const {
  if (how != How::kInPlace) {
    std::filesystem::copy_file(dir_ / "dump.db", dir_ / "copy", kOverwrite);
    std::filesystem::remove(path() + "-wal");
    std::filesystem::remove(path() + "-shm");
    std::filesystem::rename(dir_ / "copy", path());
    if (how == How::kByCopy) return;
    std::filesystem::copy_file(dir_ / "dump.witness", dir_ / "copy", kOverwrite);
    std::filesystem::rename(dir_ / "copy", path() + ".witness");
    return;
  }
  const Database from = Open((dir_ / "dump.db").string());
  const Database to = Open(path());
  sqlite3_backup* const backup = sqlite3_backup_init(to.get(), "main", from.get(), "main");
  IDD_CHECK(backup != nullptr);
  static_cast<void>(sqlite3_backup_step(backup, -1));
  static_cast<void>(sqlite3_backup_finish(backup));
}

}  // namespace idd::simulation

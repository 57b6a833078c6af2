// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: snowflake tags, their layouts and worker ids.
#include <algorithm>
#include <limits>
#include <utility>

#include "store/sqlite/sqlite_store.h"
#include "store/tag_row.h"

namespace idd::daemon {

// Fills in the layout of a record of mode snowflake.
Status SqliteStore::ReadLayout(TagRecord& record) {
  if (record.mode != TagMode::kSnowflake) return Status::Ok();
  SqliteQuery query = db_->Query("SELECT layout FROM idd_snowflake WHERE biz_tag = ?1", record.tag);
  std::optional<std::string> layout;
  if (query.Next()) layout = query.Text(0);
  if (!query.Finish().ok()) return query.Finish();
  return SetLayout(layout, record);
}

Status SqliteStore::WriteLayout(const NewTag& tag) {
  if (!tag.snowflake.has_value()) return Status::Ok();
  TagRecord before;
  before.tag = tag.tag;
  SqliteQuery query = db_->Query("SELECT layout FROM idd_snowflake WHERE biz_tag = ?1", tag.tag);
  const bool was_there = query.Next();
  std::optional<std::string> layout;
  if (was_there) layout = query.Text(0);
  if (!query.Finish().ok()) return query.Finish();
  if (was_there) {
    if (Status status = SetLayout(layout, before); !status.ok()) return status;
    if (Status status = CheckSameIds(tag, *before.snowflake); !status.ok()) return status;
  }
  return db_->Run("INSERT OR REPLACE INTO idd_snowflake(biz_tag, layout) VALUES(?1, ?2)", tag.tag,
                  FormatLayout(*tag.snowflake));
}

Result<std::vector<WorkerRecord>> SqliteStore::ListWorkers(const std::string& tag) {
  if (!db_) return NotOpen();
  SqliteQuery query = db_->Query(
      "SELECT w.worker, w.host, coalesce(a.max_id, 0) FROM idd_worker AS w LEFT JOIN leaf_alloc AS "
      "a"
      " ON a.biz_tag = w.biz_tag || '#' || w.worker WHERE w.biz_tag = ?1 ORDER BY w.worker",
      tag);
  std::vector<WorkerRecord> workers;
  while (query.Next()) {
    const std::uint64_t worker = query.Uint(0);
    if (worker > std::numeric_limits<std::uint32_t>::max()) query.Reject(0, "a worker id");
    workers.push_back({.worker = static_cast<std::uint32_t>(worker),
                       .host = query.Text(1),
                       .is_mine = query.Text(1) == options_.host_id,
                       .next_number = query.Uint(2)});
  }
  if (!query.Finish().ok()) return query.Finish().WithContext("idd_worker of tag '" + tag + "'");
  return workers;
}

Result<std::optional<std::string>> SqliteStore::OwnerOf(const std::string& tag,
                                                        std::uint32_t worker) {
  SqliteQuery query =
      db_->Query("SELECT host FROM idd_worker WHERE biz_tag = ?1 AND worker = ?2", tag, worker);
  std::optional<std::string> owner;
  if (query.Next()) owner = query.Text(0);
  if (!query.Finish().ok()) return query.Finish();
  return owner;
}

Result<bool> SqliteStore::OwnsWorker(const LeaseRequest& request) {
  if (!request.is_of_worker) return true;
  const std::optional<CounterOf> counter = ParseCounterName(request.tag);
  if (!counter.has_value()) return false;
  const Result<std::optional<std::string>> owner = OwnerOf(counter->tag, counter->worker);
  if (!owner.ok()) return owner.status();
  return owner.value() == options_.host_id;
}

Result<bool> SqliteStore::TakeWorker(const WorkerChoice& choice) {
  if (!db_) return NotOpen();
  const Result<bool> taken = Change([&] { return TakeWorkerInTransaction(choice); });
  if (taken.ok()) AtPoint("worker.committed");
  return taken;
}

Result<bool> SqliteStore::TakeWorkerInTransaction(const WorkerChoice& choice) {
  const std::string counter = CounterName(choice.tag, choice.worker);
  const Result<std::optional<std::string>> owner = OwnerOf(choice.tag, choice.worker);
  if (!owner.ok()) return owner.status();
  if (owner.value() != choice.owner) return false;
  Result<std::uint64_t> used = UsedLimit(counter);
  if (!used.ok()) return used.status();
  std::uint64_t next = std::max(used.value(), NextOfWitness(counter));
  const Result<TagRecord> row = ReadTag(counter);
  if (row.ok()) {
    next = std::max(next, row.value().next_id);
  } else if (row.status().code() != Code::kNoSuchTag) {
    return row.status();
  }
  if (next > choice.at_most) return false;
  if (!row.ok()) {
    const Result<TagRecord> made = CreateInTransaction(CounterTag(choice));
    if (!made.ok()) return made.status();
  }
  Status status =
      db_->Run("INSERT OR REPLACE INTO idd_worker(biz_tag, worker, host) VALUES(?1, ?2, ?3)",
               choice.tag, choice.worker, options_.host_id);
  if (!status.ok()) return status;
  AtPoint("worker.taken");
  return true;
}

}  // namespace idd::daemon

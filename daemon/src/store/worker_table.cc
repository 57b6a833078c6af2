// SPDX-License-Identifier: Apache-2.0
#include "store/worker_table.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "store/tag_row.h"

namespace idd::daemon {
Result<std::vector<WorkerRecord>> WorkerTable::List(const std::string& tag) {
  const auto query = session_.Query(
      "SELECT w.worker, w.host, COALESCE(a.max_id, 0) FROM idd_worker AS w LEFT JOIN leaf_alloc AS "
      "a ON a.biz_tag = " +
          session_.Concat({"?1", "'#'", "w.worker"}) + " WHERE w.biz_tag = ?1 ORDER BY w.worker",
      {tag});
  std::vector<WorkerRecord> workers;
  while (query->Next()) {
    const std::uint64_t worker = query->Uint(0);
    if (worker > std::numeric_limits<std::uint32_t>::max()) query->Reject(0, "a worker id");
    std::string host = query->Text(1);
    const bool is_mine = host == host_;
    workers.push_back({.worker = static_cast<std::uint32_t>(worker),
                       .host = std::move(host),
                       .is_mine = is_mine,
                       .next_number = query->Uint(2)});
  }
  if (!query->Finish().ok()) return query->Finish().WithContext("idd_worker of tag '" + tag + "'");
  return workers;
}

Result<bool> WorkerTable::Take(const WorkerChoice& choice) {
  bool is_taken = false;
  Status status = session_.ChangeIds(
      [&]() -> Status {
        const Result<bool> may_take = MayTake(choice);
        if (!may_take.ok()) return may_take.status();
        return may_take.value() ? TakeAsFound(choice, is_taken) : Status::Ok();
      },
      "worker.committed");
  if (!status.ok()) return status;
  return is_taken;
}

// Makes the counter if there is none: without an owner it is only a row.
Result<bool> WorkerTable::MayTake(const WorkerChoice& choice) {
  const auto query =
      session_.Query("SELECT host FROM idd_worker WHERE biz_tag = ?1 AND worker = ?2",
                     {choice.tag, std::uint64_t{choice.worker}});
  std::optional<std::string> owner;
  while (query->Next()) owner = query->Text(0);
  if (!query->Finish().ok()) return query->Finish();
  if (owner != choice.owner) return false;
  const std::string counter = CounterName(choice.tag, choice.worker);
  const Result<std::uint64_t> used = store_.UsedLimit(counter);
  if (!used.ok()) return used.status();
  if (used.value() > choice.at_most) return false;
  Result<TagRecord> row = store_.FindTag(counter);
  if (row.status().code() == Code::kNoSuchTag) {
    row = store_.CreateTag(CounterTag(choice));
    // Another host may have made it just now, and the server may be gone since.
    if (row.status().code() == Code::kInvalid) {
      const Status made = store_.FindTag(counter).status();
      if (made.ok()) return false;
      if (made.code() != Code::kNoSuchTag) return made;
    }
  }
  if (!row.ok()) return row.status();
  return std::max(row.value().next_id, row.value().used_limit) <= choice.at_most;
}

// Locks the counter's row, as a lease does: a lease that is under way is either known here or finds
// another owner.
Status WorkerTable::TakeAsFound(const WorkerChoice& choice, bool& is_taken) {
  const SqlValues values = {CounterName(choice.tag, choice.worker),
                            choice.at_most,
                            choice.tag,
                            std::uint64_t{choice.worker},
                            ValueOrNull(choice.owner),
                            host_};
  const std::string is_counter = session_.IsExactly("biz_tag", 1);
  const std::string is_free =
      "(SELECT COUNT(*) FROM leaf_alloc WHERE " + is_counter + " AND max_id <= ?2) = 1";
  const std::string lock = session_.ForUpdate();
  std::vector<SqlStatement> statements = {
      {"SELECT COUNT(*) FROM leaf_alloc WHERE " + is_counter + lock, values}};
  if (choice.owner.has_value()) {
    const std::string is_theirs =
        " WHERE biz_tag = ?3 AND worker = ?4 AND host = ?5 AND " + is_free;
    // The UPDATE need not count a row that stays as it is: this host's own.
    statements.push_back({"SELECT COUNT(*) FROM idd_worker" + is_theirs + lock, values});
    statements.push_back(
        {"UPDATE idd_worker SET host = ?6, taken_at = CURRENT_TIMESTAMP" + is_theirs, values});
  } else {
    statements.push_back(
        {session_.InsertIfNew() + ("idd_worker(biz_tag, worker, host) SELECT ?3, ?4, ?6"
                                   " FROM (SELECT 1) AS one WHERE " +
                                   is_free),
         values});
  }
  statements.back().point = "worker.taken";
  const Result<std::vector<std::uint64_t>> numbers = session_.Transact(statements);
  if (!numbers.ok()) return numbers.status();
  is_taken = numbers.value()[1] == 1;
  return Status::Ok();
}

Result<bool> WorkerTable::Owns(const std::string& counter) {
  const std::optional<CounterOf> of = ParseCounterName(counter);
  if (!of.has_value()) return false;
  const auto query =
      session_.Query("SELECT 1 FROM idd_worker WHERE biz_tag = ?1 AND worker = ?2 AND host = ?3",
                     {of->tag, std::uint64_t{of->worker}, host_});
  const bool owns = query->Next();
  if (!query->Finish().ok()) return query->Finish();
  return owns;
}

Status WorkerTable::CheckNew(const NewTag& tag, std::uint64_t used) {
  const auto workers =
      session_.Query("SELECT COUNT(*) FROM idd_worker WHERE biz_tag = ?1", {tag.tag});
  const bool had_workers = workers->Next() && workers->Uint(0) != 0;
  if (!workers->Finish().ok()) return workers->Finish();
  if (Status status = CheckSameKind(tag, used, had_workers); !status.ok()) return status;
  if (!tag.snowflake.has_value()) return Status::Ok();
  const auto query =
      session_.Query("SELECT layout FROM idd_snowflake WHERE biz_tag = ?1", {tag.tag});
  const bool was_there = query->Next();
  const std::string layout = was_there ? query->Text(0) : "";
  if (!query->Finish().ok() || !was_there) return query->Finish();
  TagRecord before;
  before.tag = tag.tag;
  if (Status status = SetLayout(layout, before); !status.ok()) return status;
  return CheckSameIds(tag, *before.snowflake);
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: snowflake tags, their layouts and worker ids.
#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

std::string IsWorker(const std::string& tag, std::uint32_t worker) {
  return " WHERE biz_tag = " + MysqlDb::Text(tag) + " AND worker = " + std::to_string(worker);
}

}  // namespace

// Fills in the layouts of the snowflake tags among `states`, and replaces a state by the error if
// its layout is missing or wrong.
Status MysqlStore::ReadLayouts(TagStates& states) {
  std::vector<std::string> tags;
  for (const auto& [tag, state] : states) {
    if (state.ok() && state.value().record.mode == TagMode::kSnowflake) tags.push_back(tag);
  }
  if (tags.empty()) return Status::Ok();
  const Result<MysqlResult> found =
      db_->Query("SELECT biz_tag, layout FROM idd_snowflake WHERE biz_tag IN " + sql::Texts(tags));
  if (!found.ok()) return found.status();
  std::map<std::string, std::string, std::less<>> layouts;
  for (const auto& cells : found.value().rows) {
    layouts[cells[0].value_or("")] = cells[1].value_or("");
  }
  for (const std::string& tag : tags) {
    const auto layout = layouts.find(tag);
    Result<TagState>& state = states.find(tag)->second;
    Status status =
        SetLayout(layout == layouts.end() ? std::nullopt : std::optional(layout->second),
                  state.value().record);
    if (!status.ok()) state = std::move(status);
  }
  return Status::Ok();
}

Status MysqlStore::AddLayouts(std::vector<TagRecord>& records) {
  TagStates states;
  for (const TagRecord& record : records) {
    if (record.mode != TagMode::kSnowflake) continue;
    TagState state;
    state.record = record;
    states.emplace(record.tag, std::move(state));
  }
  if (Status status = ReadLayouts(states); !status.ok()) return status;
  std::erase_if(records, [&states](TagRecord& record) {
    const auto state = states.find(record.tag);
    if (state == states.end()) return false;
    if (state->second.ok()) record.snowflake = state->second.value().record.snowflake;
    return !state->second.ok();
  });
  return Status::Ok();
}

Status MysqlStore::CheckEarlierLayout(const NewTag& tag) {
  const Result<MysqlResult> found =
      db_->Query("SELECT layout FROM idd_snowflake WHERE biz_tag = " + MysqlDb::Text(tag.tag));
  if (!found.ok()) return Failed(found.status());
  if (found.value().rows.empty()) return Status::Ok();
  TagRecord before;
  before.tag = tag.tag;
  if (Status status = SetLayout(found.value().rows[0][0], before); !status.ok()) return status;
  return CheckSameIds(tag, *before.snowflake);
}

Result<std::vector<WorkerRecord>> MysqlStore::ListWorkers(const std::string& tag) {
  if (db_ == nullptr) return NotOpen();
  const std::string name = MysqlDb::Text(tag);
  const Result<MysqlResult> found = db_->Query(
      "SELECT w.worker, w.host, COALESCE(a.max_id, 0) FROM idd_worker w LEFT JOIN leaf_alloc a"
      " ON a.biz_tag = CONCAT(" +
      name + ", '#', w.worker) WHERE w.biz_tag = " + name + " ORDER BY w.worker");
  if (!found.ok()) return Failed(found.status());
  std::vector<WorkerRecord> workers;
  for (const auto& cells : found.value().rows) {
    const MysqlRow row(cells);
    const std::uint64_t worker = row.UintIf(0).value_or(std::numeric_limits<std::uint64_t>::max());
    const std::optional<std::uint64_t> next = row.UintIf(2);
    if (worker > std::numeric_limits<std::uint32_t>::max() || !next.has_value()) {
      return Status(Code::kInvalid, "idd_worker of tag '" + tag + "' has worker " +
                                        row.Describe(0) + ", whose counter is at " +
                                        row.Describe(2));
    }
    workers.push_back({.worker = static_cast<std::uint32_t>(worker),
                       .host = row.TextIf(1).value_or(""),
                       .is_mine = row.TextIf(1) == options_.host.id,
                       .next_number = *next});
  }
  return workers;
}

// The condition under which a lease may be taken: whoever takes the worker id over waits for the
// lease's COMMIT, because it locks the counter's row first, as the lease does.
std::string MysqlStore::OwnsWorker(const LeaseRequest& request) const {
  if (!request.is_of_worker) return "";
  const std::optional<CounterOf> counter = ParseCounterName(request.tag);
  if (!counter.has_value()) return " AND 1 = 0";
  return " AND (SELECT COUNT(*) FROM idd_worker" + IsWorker(counter->tag, counter->worker) +
         " AND host = " + MysqlDb::Text(options_.host.id) + " LOCK IN SHARE MODE) = 1";
}

Status MysqlStore::CheckOwner(const LeaseRequest& request) {
  const std::string owns = OwnsWorker(request);
  if (owns.empty()) return Status::Ok();
  const Result<MysqlResult> found = db_->Query("SELECT 1 FROM DUAL WHERE 1 = 1" + owns);
  if (!found.ok()) return Failed(found.status());
  return found.value().rows.empty() ? NoOwner(request.tag) : Status::Ok();
}

// The counter is made before, in a transaction of its own: without an owner it is only a row.
Result<bool> MysqlStore::TakeWorker(const WorkerChoice& choice) {
  if (db_ == nullptr) return NotOpen();
  const std::string counter = CounterName(choice.tag, choice.worker);
  Result<TagRecord> row = FindTag(counter);
  if (row.status().code() == Code::kNoSuchTag) {
    row = CreateTag(CounterTag(choice));
    // Another host may have made it just now, and the server may be gone since.
    if (row.status().code() == Code::kInvalid) {
      const Result<TagRecord> made = FindTag(counter);
      if (made.ok()) return false;
      if (made.status().code() != Code::kNoSuchTag) return made.status();
    }
  }
  if (!row.ok()) return row.status();
  if (std::max(row.value().next_id, row.value().used_limit) > choice.at_most) return false;
  const std::string mine = MysqlDb::Text(options_.host.id);
  const std::string is_free = "(SELECT COUNT(*) FROM leaf_alloc WHERE " + sql::IsTag(counter) +
                              " AND max_id <= " + std::to_string(choice.at_most) + ") = 1";
  const std::string name = MysqlDb::Text(choice.tag);
  const std::string worker = std::to_string(choice.worker);
  std::vector<std::string> statements = {"SELECT max_id FROM leaf_alloc WHERE " +
                                         sql::IsTag(counter) + " FOR UPDATE"};
  if (choice.owner.has_value()) {
    const std::string is_theirs = IsWorker(choice.tag, choice.worker) +
                                  " AND host = " + MysqlDb::Text(*choice.owner) + " AND " + is_free;
    // The UPDATE does not count a row that stays as it is: this host's own, taken a moment ago.
    statements.push_back("SELECT 1 FROM idd_worker" + is_theirs + " FOR UPDATE");
    statements.push_back("UPDATE idd_worker SET host = " + mine + ", taken_at = CURRENT_TIMESTAMP" +
                         is_theirs);
  } else {
    statements.push_back("INSERT IGNORE INTO idd_worker(biz_tag, worker, host) SELECT " + name +
                         ", " + worker + ", " + mine + " FROM DUAL WHERE " + is_free);
  }
  const Result<std::vector<MysqlResult>> taken = db_->Transaction(statements);
  if (!taken.ok()) return Failed(taken.status());
  const MysqlResult& found = taken.value().at(1);
  return choice.owner.has_value() ? !found.rows.empty() : found.changed == 1;
}

}  // namespace idd::daemon

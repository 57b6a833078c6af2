// SPDX-License-Identifier: Apache-2.0
//
// SqliteStore: leasing, and leases whose answer was lost.
#include <algorithm>
#include <utility>

#include "store/sqlite/sqlite_store.h"
#include "store/tag_row.h"

namespace idd::daemon {

Result<Store::LeaseResults> SqliteStore::TakeLeases(const std::vector<LeaseRequest>& requests) {
  if (!db_) return NotOpen();
  Result<LeaseResults> together = TakeTogether(requests);
  if (together.status().code() != Code::kInvalid) return together;
  // One of the rows has ended the transaction of all of them.
  LeaseResults singly;
  for (const LeaseRequest& request : requests) {
    Result<LeaseResults> one = TakeTogether({request});
    if (one.ok()) {
      singly.push_back(std::move(one.value().front()));
    } else if (one.status().code() == Code::kInvalid) {
      singly.emplace_back(one.status());
    } else {
      for (const Result<Lease>& lease : singly) {
        if (lease.ok()) NoteLost({lease.value().token});
      }
      return one.status();
    }
  }
  return singly;
}

// kInvalid: a row has ended the transaction; nothing is leased.
Result<Store::LeaseResults> SqliteStore::TakeTogether(const std::vector<LeaseRequest>& requests) {
  Result<LeaseResults> leases = Change([&] { return LeaseInTransaction(requests); });
  if (leases.ok()) {
    AtPoint("lease.committed");
    return leases;
  }
  // The leases may be committed but are never answered. The witness does not know them before the
  // next grant.
  if (!db_->commit_outcome_unknown() && !continuity_.is_unrecorded()) return leases;
  for (const LeaseRequest& request : requests) NoteLost({request.token});
  return leases.status().WithContext("the outcome of a lease of tag '" + requests.front().tag +
                                     "' is unknown and its range is lost");
}

Result<Store::LeaseResults> SqliteStore::LeaseInTransaction(
    const std::vector<LeaseRequest>& requests) {
  LeaseResults leases;
  for (const LeaseRequest& request : requests) {
    if (Status status = CheckLeaseRequest(request); !status.ok()) {
      leases.emplace_back(std::move(status));
      continue;
    }
    const Result<bool> owns = request.is_of_worker ? workers().Owns(request.tag) : true;
    if (!owns.ok()) return owns.status();
    if (!owns.value()) {
      const Result<TagRecord> tag = ReadTag(request.tag);
      if (!tag.ok() && tag.status().code() != Code::kNoSuchTag) return tag.status();
      leases.emplace_back(tag.ok() ? NoOwner(request.tag) : tag.status());
      continue;
    }
    if (Status status = db_->Run("SAVEPOINT one"); !status.ok()) return status;
    Result<Lease> lease = LeaseOne(request);
    const Code code = lease.status().code();
    const bool is_its_own =
        code == Code::kNoSuchTag || code == Code::kInvalid || code == Code::kOutOfIds;
    if (!lease.ok() && !(is_its_own && db_->has_transaction())) return lease.status();
    Status status = lease.ok() ? Status::Ok() : db_->Run("ROLLBACK TO one");
    if (status.ok()) status = db_->Run("RELEASE one");
    if (!status.ok()) return status;
    leases.push_back(std::move(lease));
  }
  return leases;
}

Result<Lease> SqliteStore::LeaseOne(const LeaseRequest& request) {
  AtPoint("lease.begun");
  Result<TagRecord> tag = ReadTag(request.tag);
  if (!tag.ok()) return tag.status();
  Result<std::optional<Lease>> taken = TakeBack(request, tag.value());
  if (!taken.ok()) return taken.status();
  Result<Lease> lease = taken.value().has_value() ? *taken.value() : Advance(request, tag.value());
  if (!lease.ok()) return lease;
  AtPoint(lease.value().from_returned ? "lease.taken_back" : "lease.advanced");
  const shm::IdRange ids = lease.value().ids;
  Status status = db_->Run(
      "INSERT INTO idd_lease(token, biz_tag, host, base, \"limit\") VALUES(?1, ?2, ?3, ?4, ?5)",
      request.token, request.tag, options_.host_id, ids.first, ids.limit);
  if (!status.ok()) return status;
  AtPoint("lease.journalled");
  continuity_.Raise(request.tag, lease.value().from_returned ? tag.value().next_id : ids.limit);
  return lease;
}

// A returned range counts only at or above the mark. All ids that this host took back and handed
// out lie below the mark, so a list from a restored backup cannot be served twice. A range above
// max_id shows that max_id was moved by hand; Advance() lifts max_id first.
Result<std::optional<Lease>> SqliteStore::TakeBack(const LeaseRequest& request,
                                                   const TagRecord& tag) {
  if (request.rises) return std::optional<Lease>();
  const std::uint64_t lowest = std::max(request.floor, request.high_water_mark);
  SqliteQuery query = db_->Query(
      "SELECT token, base, \"limit\" FROM idd_returned"
      " WHERE biz_tag = ?1 AND host = ?2 AND base >= ?3 AND \"limit\" <= ?4 AND \"limit\" <= ?5"
      " ORDER BY base LIMIT 1",
      request.tag, options_.host_id, lowest, tag.max_id + 1, tag.next_id);
  if (!query.Next()) {
    if (!query.Finish().ok()) return query.Finish();
    return std::optional<Lease>();
  }
  const std::string returned_token = query.Text(0);
  Lease lease{.token = request.token,
              .tag = request.tag,
              .ids = {query.Uint(1), query.Uint(2)},
              .from_returned = true};
  if (lease.ids.empty()) query.Reject(2, "a number above base");
  if (!query.Finish().ok()) {
    return query.Finish().WithContext("idd_returned of tag '" + request.tag + "'");
  }
  Status status = db_->Run("DELETE FROM idd_returned WHERE token = ?1", returned_token);
  if (!status.ok()) return status;
  return std::optional<Lease>(std::move(lease));
}

// Advances max_id relatively, from the highest of itself and every end of used ids that the
// request, the witness, the journal and a tombstone know: lifting only makes gaps.
Result<Lease> SqliteStore::Advance(const LeaseRequest& request, const TagRecord& tag) {
  Result<std::uint64_t> used = UsedLimit(request.tag);
  if (!used.ok()) return used.status();
  const std::uint64_t lowest =
      std::max({used.value(), request.high_water_mark, request.floor, *NextInWitness(request.tag)});
  const std::uint64_t base = std::max(tag.next_id, lowest);
  if (base > tag.max_id) {
    return Status(Code::kOutOfIds, "tag '" + request.tag + "' is used up: the next id would be " +
                                       std::to_string(base) + ", its largest allowed id is " +
                                       std::to_string(tag.max_id));
  }
  const std::uint64_t count = std::min(request.count, tag.max_id - base + 1);
  const std::uint64_t limit = base + count;
  Status status = db_->Run(
      "UPDATE leaf_alloc SET max_id = MAX(max_id, ?2) + ?3, update_time = CURRENT_TIMESTAMP"
      " WHERE biz_tag = ?1 AND typeof(max_id) = 'integer' AND max_id BETWEEN 0 AND ?4 - ?3"
      " AND ?2 <= ?4 - ?3",
      request.tag, lowest, count, tag.max_id + 1);
  if (!status.ok()) return status;
  const bool advanced = db_->changes() == 1;
  // A trigger, or a column of another type, may have changed the value.
  Result<TagRecord> after = ReadTag(request.tag);
  if (!after.ok()) return after.status();
  if (!advanced || after.value().next_id != limit) {
    return Status(Code::kInvalid,
                  "leaf_alloc.max_id of tag '" + request.tag + "' in " + DisplayUrl() +
                      " did not advance to " + std::to_string(limit) + " but is " +
                      std::to_string(after.value().next_id) + "; look for triggers on the table");
  }
  Lease lease{.token = request.token, .tag = request.tag, .ids = {base, limit}};
  if (base > tag.next_id) lease.lifted_from = tag.next_id;
  return lease;
}

}  // namespace idd::daemon

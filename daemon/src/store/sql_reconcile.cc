// SPDX-License-Identifier: Apache-2.0
//
// SqlStore: what this host knows and the data set may not. First each tag is lifted to this host's
// mark and to its ceiling; then the leases that this host holds are put back into the journal. Both
// may be done again: what is there already stays.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/sql_store.h"
#include "store/tag_row.h"

namespace idd::daemon {
namespace {

// The batches need not commit together.
constexpr std::size_t kAtOnce = 500;
constexpr const char* kPoint = "remind.reconciliation";

// The result includes the lease's own token.
std::vector<std::string> TokensThatShareIdsWith(const Lease& lease,
                                                const std::vector<const Lease*>& held) {
  std::vector<std::string> tokens;
  for (const Lease* other : held) {
    const bool shares = other->ids.first < lease.ids.limit && lease.ids.first < other->ids.limit;
    if (shares) tokens.push_back(other->token);
  }
  return tokens;
}

}  // namespace

Result<Reconciliation> SqlStore::Reconcile(const HostMemory& memory) {
  Reconciliation found = set_back_.value_or(Reconciliation{});
  Reconciliation to_ceilings;
  Status status = ChangeIds(
      [&]() -> Status {
        if (Status lifted = LiftToMarks(memory.marks, found); !lifted.ok()) return lifted;
        if (Status lifted = LiftToMarks(memory.ceilings, to_ceilings); !lifted.ok()) return lifted;
        return RestoreLeases(memory, found);
      },
      "remind.committed");
  avoids_rows_ = !is_mysql() && status.code() == Code::kInvalid;
  if (!status.ok()) return status;
  found.lifted_to_ceilings = to_ceilings.lifted.size();
  found.refused.insert(found.refused.end(), to_ceilings.refused.begin(), to_ceilings.refused.end());
  set_back_.reset();
  return found;
}

Status SqlStore::LiftToMarks(const std::vector<TagMark>& marks, Reconciliation& found) {
  TimeBudget waits;
  for (std::size_t begin = 0; begin < marks.size(); begin += kAtOnce) {
    std::vector<std::string> tags;
    for (std::size_t i = begin; i < std::min(begin + kAtOnce, marks.size()); ++i) {
      tags.push_back(marks[i].tag);
    }
    const Result<TagResults> records = FindTags(tags);
    if (!records.ok()) return records.status();
    for (std::size_t i = 0; i < tags.size(); ++i) {
      Status status = LiftToMark(marks[begin + i], records.value()[i], waits, found);
      if (!status.ok()) return status;
    }
  }
  return Status::Ok();
}

Status SqlStore::LiftToMark(const TagMark& mark, const Result<TagRecord>& record, TimeBudget& waits,
                            Reconciliation& found) {
  if (IsOfStore(record.status())) return record.status();
  // An invalid row is treated as missing: an operator will fix it, perhaps to less than the mark. A
  // row of the journal that makes no sense shows no use.
  const bool has_row = record.ok();
  // What the tables know: a witness beside them may be lost.
  std::uint64_t used = has_row && is_mysql() ? record.value().used_limit : 0;
  if (!has_row || record.value().next_id < mark.mark) {
    const Result<std::uint64_t> journalled = UsedLimit(mark.tag);
    if (IsOfStore(journalled.status())) return journalled.status();
    if (journalled.ok()) used = std::max(used, journalled.value());
  }
  const std::uint64_t stands_at = has_row ? record.value().next_id : used;
  if (stands_at >= mark.mark) return Status::Ok();
  Status status = has_row ? LiftRow(mark, used, waits, found) : Entomb(mark);
  if (!status.ok()) return status;
  found.lifted.push_back({.tag = mark.tag, .from = stands_at, .to = mark.mark});
  if (std::max(stands_at, used) < mark.mark) {
    found.forgot_leases = true;
    NoteForgotten(mark);
  }
  NoteChange(mark.tag, mark.mark);
  return Status::Ok();
}

// One row that refuses the change, or is locked, must not keep the other tags from their leases.
Status SqlStore::LiftRow(const TagMark& mark, std::uint64_t used, TimeBudget& waits,
                         Reconciliation& found) {
  Status refusal(Code::kInvalid, "another row has refused a transaction with many changes");
  const bool may_wait = !is_mysql() || waits.GoesOn();  // no row of a file is locked
  if (!may_wait) refusal = {Code::kTimeout, "other rows were locked for too long"};
  if (may_wait && !avoids_rows_) {
    const std::string is_tag = IsExactly("biz_tag", 1);
    const SqlValues values = {mark.tag, mark.mark};
    const Result<std::vector<std::uint64_t>> lifted = Transact(
        {{"UPDATE leaf_alloc SET max_id = ?2, update_time = CURRENT_TIMESTAMP WHERE " + is_tag +
              " AND max_id < ?2",
          values, kPoint},
         {"SELECT COUNT(*) FROM leaf_alloc WHERE " + is_tag + " AND max_id >= ?2", values}});
    refusal = lifted.status();
    // A trigger may have undone it without an error.
    if (lifted.ok() && lifted.value()[1] == 0) {
      refusal = {Code::kInvalid, "max_id did not advance; look for triggers on the table"};
    }
  }
  if (refusal.ok() || IsOfStore(refusal)) return refusal;
  found.refused.push_back({.tag = mark.tag, .mark = mark.mark, .error = refusal.message()});
  return used >= mark.mark ? Status::Ok() : Entomb(mark);
}

Result<std::set<std::string>> SqlStore::FindTokens(const std::vector<Lease>& leases) {
  std::vector<std::string> tokens;
  for (const Lease& lease : leases) tokens.push_back(lease.token);
  const auto query = Query("SELECT token FROM idd_lease WHERE token" + In(1) +
                               " UNION ALL SELECT token FROM idd_ended WHERE token" + In(1),
                           {tokens});
  std::set<std::string> found;
  while (query->Next()) found.insert(query->Text(0));
  if (!query->Finish().ok()) return query->Finish();
  return found;
}

// An older copy may still list ids of a restored lease as returned, or still have our earlier
// leases of the same ids as active. Those leases had given back their ids from this lease's base
// on, or the ids would not have been leased again. The fate of their other ids is unknown.
Status SqlStore::RestoreLeases(const HostMemory& memory, Reconciliation& found) {
  if (memory.held.empty()) return Status::Ok();
  const Result<std::set<std::string>> there = FindTokens(memory.held);
  if (!there.ok()) return there.status();
  std::map<std::string, std::vector<const Lease*>> of_tag;
  for (const Lease& lease : memory.held) of_tag[lease.tag].push_back(&lease);
  std::vector<SqlStatement> statements;
  for (const Lease& lease : memory.held) {
    if (there.value().contains(lease.token)) continue;
    found.forgot_leases = true;
    found.restored.push_back(lease);
    restored_tokens_.insert(lease.token);  // whether this commits or not
    // A copy that was made before this row is old, whichever host granted ids since.
    NoteChange(lease.tag, lease.ids.limit);
    const SqlValues values = {lease.token,     lease.tag,
                              host_,           lease.ids.first,
                              lease.ids.limit, TokensThatShareIdsWith(lease, of_tag[lease.tag])};
    statements.push_back(
        {"INSERT INTO idd_lease(token, biz_tag, host, base, `limit`) VALUES(?1, ?2, ?3, ?4, ?5)",
         values, kPoint});
    if (!memory.from_other_data_set) {  // else: ids shared with its own leases were leased twice
      const std::string shares = " WHERE biz_tag = ?2 AND host = ?3 AND base < ?5 AND `limit` > ?4";
      const std::string first = Largest({"base", "?4"});
      statements.push_back({"DELETE FROM idd_returned" + shares, values});
      statements.push_back({"UPDATE idd_lease SET state = 'returned', abandoned = " + first +
                                " - base, returned = `limit` - " + first +
                                ", closed_at = CURRENT_TIMESTAMP" + shares +
                                " AND state = 'active' AND token NOT" + In(6),
                            values});
    }
    if (statements.size() < kAtOnce) continue;
    if (Status status = Transact(statements).status(); !status.ok()) return status;
    statements.clear();
  }
  return statements.empty() ? Status::Ok() : Transact(statements).status();
}

}  // namespace idd::daemon

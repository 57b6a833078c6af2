// SPDX-License-Identifier: Apache-2.0
//
// MysqlStore: leases of tags whose rows other sessions hold locked. Such a lease costs its whole
// lock wait and fails every lease in the same transaction, so these tags are taken apart from the
// others for as long as their rows are locked. So are tags whose rows refused a lease.
//
// Hosts that all need the same tags at once would wait for each other's rows until they give up,
// and then ask for each row alone. So a host that has waited in vain takes turns with the others:
// it first waits for a lock of the whole database, which the server gives to one session after the
// other, and which guards nothing.
#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "store/mysql/mysql_sql.h"
#include "store/mysql/mysql_store.h"

namespace idd::daemon {
namespace {

// The time between two looks whether its row is still locked: the tag asks again every 20 ms.
constexpr std::chrono::milliseconds kBetweenLooks(200);
// The time between two leases that wait for a locked row, of any tag.
constexpr std::chrono::seconds kBetweenWaits(3);
// How long a host takes turns with others after it has waited for a locked row for a whole second.
constexpr std::chrono::seconds kContended(10);
// MySQL's names of locks have at most 64 characters.
constexpr const char* kTurn = "LEFT(CONCAT('idd ', DATABASE()), 64)";

}  // namespace

Status MysqlStore::IsLocked(const std::string& tag) {
  return {Code::kTimeout, "the row of tag '" + tag +
                              "' in leaf_alloc is locked by another session; it is tried "
                              "again"};
}

// Looks which of the tags' rows are locked, without a wait, and remembers them. Servers that cannot
// answer (before MariaDB 10.6 and MySQL 8.0) have none.
void MysqlStore::NoteLocked(const std::vector<LeaseRequest>& requests) {
  if (!can_skip_locked_) return;
  std::vector<std::string> tags;
  for (const LeaseRequest& request : requests) tags.push_back(request.tag);
  const Result<MysqlResult> found = db_->Query("SELECT biz_tag FROM leaf_alloc WHERE biz_tag IN " +
                                               sql::Texts(tags) + " FOR UPDATE SKIP LOCKED");
  if (!found.ok()) {
    can_skip_locked_ = !sql::IsUnknown(db_->last_error());
    return;
  }
  std::set<std::string> free;
  for (const auto& cells : found.value().rows) free.insert(cells.at(0).value_or(""));
  const MonotonicTime until = MonotonicClock::now() + kApart;
  for (const std::string& tag : tags) {
    if (free.contains(tag)) {
      locked_.erase(tag);
    } else {
      locked_.insert_or_assign(tag, until);
    }
  }
}

void MysqlStore::TakeTurns() { contended_to_ = MonotonicClock::now() + kContended; }

bool MysqlStore::IsContended() const {
  return can_take_turns_ && MonotonicClock::now() < contended_to_;
}

// Waits for this host's turn to lease, for a second, if it takes turns with others. False: it is
// another one's. A session that still has the turn after such a wait hangs, and is not waited for
// again: the host leases without a turn.
Result<bool> MysqlStore::AwaitTurn() {
  if (!IsContended()) return true;
  const std::string holder_now = std::string("COALESCE(IS_USED_LOCK(") + kTurn + "), 0)";
  const std::string wait = hangs_.empty() ? "1" : "IF(" + holder_now + " = " + hangs_ + ", 0, 1)";
  const Result<MysqlResult> turn =
      db_->Query(std::string("SELECT GET_LOCK(") + kTurn + ", " + wait + "), " + holder_now);
  if (!turn.ok()) {
    if (db_->broken()) return Failed(turn.status());
    can_take_turns_ = !sql::IsUnknown(db_->last_error());
    return true;
  }
  const auto& cells = turn.value().rows.at(0);
  has_turn_ = cells[0] == "1";
  const std::string holder = cells[1].value_or("");
  const bool hangs = !has_turn_ && holder == hangs_;
  hangs_ = has_turn_ ? "" : holder;
  return has_turn_ || hangs;
}

void MysqlStore::EndTurn() {
  if (!has_turn_) return;
  has_turn_ = false;
  const std::string release = std::string("DO RELEASE_LOCK(") + kTurn + ")";
  // A statement may be killed. The end of the connection ends the turn, too.
  for (int tries = 0; tries < 2 && db_ != nullptr && !db_->broken(); ++tries) {
    if (db_->Query(release).ok()) return;
  }
}

bool MysqlStore::IsApart(const std::string& tag) {
  bool is_apart = false;
  for (TagTimes* const times : {&locked_, &refused_}) {
    const auto it = times->find(tag);
    if (it == times->end()) continue;
    if (MonotonicClock::now() < it->second) {
      is_apart = true;
    } else {
      times->erase(it);
    }
  }
  return is_apart;
}

// Leases of tags that are apart. Those whose rows are free again are taken together. Of the others
// one waits, as a row that many hosts lease from is never free for long.
Result<Store::LeaseResults> MysqlStore::TakeApart(const std::vector<LeaseRequest>& requests) {
  if (MonotonicClock::now() >= next_look_) {
    NoteLocked(requests);
    next_look_ = MonotonicClock::now() + kBetweenLooks;
  }
  LeasePart free;
  std::vector<std::size_t> waiting;
  LeaseResults leases;
  for (const LeaseRequest& request : requests) {
    if (locked_.contains(request.tag)) {
      waiting.push_back(leases.size());
    } else {
      free.Add(request, leases.size());
    }
    leases.emplace_back(IsLocked(request.tag));
  }
  if (!free.requests.empty()) {
    Result<LeaseResults> taken = TakeTogether(free.requests);
    if (!taken.ok()) return taken;
    free.PutInto(leases, taken.value());
  }
  if (waiting.empty() || MonotonicClock::now() < next_wait_) return leases;
  const std::size_t place = waiting[waits_++ % waiting.size()];
  leases[place] = TakeSingly(requests[place]);
  next_wait_ = MonotonicClock::now() + kBetweenWaits;
  if (leases[place].ok()) locked_.erase(requests[place].tag);
  if (!leases[place].ok() && db_ == nullptr) return GiveUp(leases, leases[place].status());
  return leases;
}

}  // namespace idd::daemon

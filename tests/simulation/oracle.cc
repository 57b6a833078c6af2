// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace idd::simulation {
namespace {

using daemon::CounterName;
using daemon::CounterOf;
using daemon::ParseCounterName;
using daemon::ServedName;
using daemon::UtcText;

constexpr const char* kLeaf = "leaf";  // who has the ids that Leaf servers took

std::string Text(shm::IdRange ids) {
  return "[" + std::to_string(ids.first) + ", " + std::to_string(ids.limit) + ")";
}

}  // namespace

void Oracle::Fail(std::string what) {
  if (failure_.has_value()) return;
  world_.Trace("FAILURE: " + what);
  failure_ = std::move(what);
}

void Oracle::OnLeased(const Lease& lease, const std::string& host,
                      const std::optional<std::string>& owner) {
  ++leases_;
  CheckWindow(lease, host, owner);
  std::uint64_t& limit = leased_[{lease.tag, host}][lease.ids.first];
  limit = std::max(limit, lease.ids.limit);
  world_.Trace(host + " leased " + lease.tag + " " + Text(lease.ids) +
               (lease.from_returned ? ", a returned range" : ""));
  const auto limits = limits_.find(lease.tag);
  std::uint64_t& leased_before = ids_leased_[{lease.tag, host}];
  if (limits != limits_.end() && !lease.from_returned) {
    const auto [step, max_prefetch] = limits->second;
    // The host has claimed no more than it has leased.
    const std::uint64_t earned = std::max(2 * step, 2 * leased_before);
    if (lease.ids.size() > std::min(earned, max_prefetch)) {
      Fail("too much: " + host + " leased " + lease.tag + " " + Text(lease.ids) +
           "; its step was never above " + std::to_string(step) +
           ", its max_prefetch never above " + std::to_string(max_prefetch) +
           ", and the host had leased " + std::to_string(leased_before) + " ids before");
    }
  }
  leased_before += lease.ids.size();
}

void Oracle::Allow(const std::string& tag, Limits limits) {
  Limits& highest = limits_[tag];
  highest.step = std::max(highest.step, limits.step);
  highest.max_prefetch = std::max(highest.max_prefetch, limits.max_prefetch);
}

// Twice max_prefetch: a host takes back a whole range that it held before, even if it then holds
// more than max_prefetch.
void Oracle::OnHeld(const std::string& tag, const std::string& host, std::uint64_t available) {
  const auto limits = limits_.find(tag);
  if (limits == limits_.end() || available <= 2 * limits->second.max_prefetch) return;
  Fail("too much: " + host + " holds " + std::to_string(available) + " ids of " + tag +
       ", and its max_prefetch was never above " + std::to_string(limits->second.max_prefetch));
}

// --- snowflake tags

void Oracle::AddSnowflake(const std::string& tag, const SnowflakeLayout& layout,
                          std::chrono::milliseconds window) {
  Snowflake& known = snowflakes_[tag];
  known.layout = layout;
  known.window = std::max(known.window, window);
}

const SnowflakeLayout* Oracle::LayoutOf(const std::string& tag) const {
  const auto it = snowflakes_.find(tag);
  return it == snowflakes_.end() ? nullptr : &it->second.layout;
}

bool Oracle::IsAfter(const std::string& scope, const std::string& tag, std::int64_t unix_ms) const {
  const SnowflakeLayout* const layout = LayoutOf(tag);
  const auto order = orders_.find({scope, tag});
  if (layout == nullptr || order == orders_.end()) return false;
  const std::uint64_t newest = std::max(order->second.newest, order->second.before);
  const auto parts = layout->PartsOf(newest);
  return newest != 0 && parts.has_value() && layout->UnixMsOf(parts->time) > unix_ms;
}

// The lease of a counter is its owner's, and lies near the host's clock.
void Oracle::CheckWindow(const Lease& lease, const std::string& host,
                         const std::optional<std::string>& owner) {
  const std::optional<CounterOf> counter = ParseCounterName(lease.tag);
  if (!counter.has_value()) return;
  const std::string what = host + " leased " + lease.tag + " " + Text(lease.ids);
  if (owner != host)
    return Fail("not owned: " + what + ", and its owner is " + owner.value_or("-"));
  const auto snowflake = snowflakes_.find(counter->tag);
  if (snowflake == snowflakes_.end()) return;
  const auto& [layout, window] = snowflake->second;
  if (counter->worker >= layout.workers()) return Fail("no such worker: " + what);
  std::int64_t greatest = 0;
  for (const HostClock* const clock : clocks_[host]) {
    greatest = std::max(greatest, clock->greatest_ms());
  }
  // A window begins at most max_ahead beyond the one before, which ended three quarters of a window
  // beyond the clock.
  const std::int64_t most =
      greatest + window.count() + 2 * layout.max_ahead_ms + 3 * layout.unit_ms;
  const std::int64_t end = layout.UnixMsOf((lease.ids.limit - 1) >> layout.sequence_bits);
  if (end <= most) return;
  const auto moved = moved_.find(lease.tag);
  if (moved != moved_.end() && moved->second == lease.ids.first) return;
  Fail("too much: " + what + ", whose time ends at " + UtcText(end) +
       ", and the host's clock was never above " + UtcText(greatest));
}

bool Oracle::CheckTime(const Claim& claim, const SnowflakeLayout& layout, std::uint64_t time) {
  const std::int64_t greatest = claim.clock->greatest_ms();
  const std::string what = claim.machine + " claimed an id of " + claim.tag + " of " +
                           UtcText(layout.UnixMsOf(time)) + ", ";
  if (time > layout.TimeAt(greatest) + layout.max_ahead_units() + 1) {
    Fail("too early: " + what + "and its clock was never above " + UtcText(greatest));
    return false;
  }
  const std::int64_t least = claim.clock->LeastSince(claim.began);
  if (claim.is_timely && time < layout.TimeAt(least)) {
    Fail("too late: " + what + "and its clock was never below " + UtcText(least) +
         " since the claim began");
    return false;
  }
  return true;
}

std::optional<Oracle::Counted> Oracle::Count(const Claim& claim, shm::IdRange ids) {
  const SnowflakeLayout* const layout = LayoutOf(claim.tag);
  if (layout == nullptr) return Counted{.row = claim.tag, .numbers = ids};
  const auto first = layout->PartsOf(ids.first);
  const auto last = layout->PartsOf(ids.limit - 1);
  const bool is_sane = ids.first != 0 && ids.limit <= shm::kMaxLimit && first.has_value() &&
                       last.has_value() && first->time == last->time &&
                       first->worker == last->worker;
  if (!is_sane) {
    Fail("no snowflake: " + claim.machine + " claimed " + claim.tag + " " + Text(ids));
    return std::nullopt;
  }
  if (!CheckTime(claim, *layout, first->time)) return std::nullopt;
  const std::uint64_t number = layout->NumberOf(*first);
  return Counted{.row = CounterName(claim.tag, first->worker),
                 .numbers = {number, number + ids.size()}};
}

// Ids of a snowflake tag may fall after an idd has begun that did not know the earlier ones, if the
// clock was then behind those. After a deletion, each host takes the tag for another one as soon as
// it notices.
bool Oracle::IsRising(const Claim& claim, std::uint64_t first) const {
  const SnowflakeLayout* const layout = LayoutOf(claim.tag);
  if (layout == nullptr) return first >= claim.above;
  if (deleted_.contains(claim.tag)) return true;
  if (first < claim.above) return false;
  if (first >= claim.earlier) return true;
  const auto parts = layout->PartsOf(claim.earlier - 1);
  world_.Met("ids of a snowflake tag fell, as idd had begun without knowing the earlier ones");
  return parts.has_value() && layout->TimeAt(claim.clock->LeastSince(std::min(
                                  claim.first_forgot_at, claim.earlier_at))) <= parts->time;
}

void Oracle::OnForged(const std::string& machine, const std::string& tag) {
  if (forged_.emplace(machine, tag).second) world_.Met("a program forged a cursor");
}

Oracle::Claim Oracle::Begin(Claim claim) const {
  claim.began = world_.now();
  claim.first_forgot_at = claim.forgot_at;
  ChangeScope(claim, std::string(claim.scope));
  if (!rising_.contains(claim.tag)) return claim;
  const auto of_all = orders_.find({"", claim.tag});
  if (of_all != orders_.end()) claim.above = std::max(claim.above, of_all->second.newest);
  return claim;
}

void Oracle::ChangeScope(Claim& claim, std::string scope) const {
  claim.scope = std::move(scope);
  const auto it = orders_.find({claim.scope, claim.tag});
  const Order order = it == orders_.end() ? Order() : it->second;
  claim.above = order.newest;
  claim.earlier = order.before;
  claim.earlier_at = order.before_at;
  if (order.since < claim.forgot_at) Forget(claim, claim.forgot_at);
}

void Oracle::Forget(Claim& claim, Nanos forgot_at) {
  claim.forgot_at = forgot_at;
  if (claim.above > claim.earlier) {
    claim.earlier = claim.above;
    claim.earlier_at = forgot_at;
  }
  claim.above = 0;
}

void Oracle::OnDrained(const std::string& machine, const std::string& tag) {
  drained_.try_emplace({machine, tag}, world_.now());
}

void Oracle::OnResumed(const std::string& machine, const std::string& tag) {
  drained_.erase({machine, tag});
}

const Oracle::Ranges::value_type* Oracle::FindShared(const Ranges& ranges, shm::IdRange ids) {
  auto it = ranges.lower_bound(ids.limit);
  if (it == ranges.begin()) return nullptr;
  --it;
  return it->second.first > ids.first ? &*it : nullptr;
}

void Oracle::OnClaimed(const Claim& claim, shm::IdRange ids) {
  const std::string& machine = claim.machine;
  const std::string& tag = claim.tag;
  claimed_ += ids.size();
  const std::optional<Counted> counted = Count(claim, ids);
  if (!counted.has_value()) return;
  const auto& [row, numbers] = *counted;
  const bool is_forged = IsForged(machine, tag);
  if (const auto* const shared = FindShared(handed_out_[row], numbers)) {
    const std::string& other = shared->second.second;
    const bool is_of_clone = unprotected_.contains(machine) || unprotected_.contains(other);
    // Ids that were claimed on a host with a forged cursor unnoticed may be handed back by it.
    if (!is_of_clone && !IsForged(other, tag)) {
      return Fail("twice: " + machine + " claimed " + row + " " + Text(numbers) + ", and " + other +
                  " had " + Text({shared->first, shared->second.first}));
    }
    world_.Met(is_of_clone ? "ids of two machines with one name came twice after a loss of data"
                           : "ids came twice after a forged cursor");
  } else {
    Add(handed_out_[row], numbers, machine);
    if (is_watching_ && !claim.is_of_old_ring) Add(watched_[row], numbers, machine);
  }

  // The claimed ids must lie in leases of this host that were committed; a claim is of one lease.
  const auto& leases = leased_[{row, claim.host}];
  bool is_leased = false;
  for (auto it = leases.upper_bound(numbers.first); it != leases.begin() && !is_leased;) {
    --it;
    is_leased = it->second >= numbers.limit;
  }
  if (!is_leased) {
    return Fail("not leased: " + machine + " claimed " + row + " " + Text(numbers) +
                ", which no committed lease of host " + claim.host + " has");
  }
  for (const std::string& drained_scope : {tag, std::string()}) {
    const auto drained = drained_.find({machine, drained_scope});
    if (drained != drained_.end() && drained->second < claim.began && !is_forged) {
      return Fail("drained: " + machine + " claimed " + tag + " " + Text(ids) +
                  " after an operator had drained it");
    }
  }
  if (!is_forged && !IsRising(claim, ids.first)) {
    Fail("out of order: " + machine + " claimed " + tag + " " + Text(ids) +
         " after a claim below " + std::to_string(std::max(claim.above, claim.earlier)) +
         " had returned");
  }
  for (const std::string& scope : {claim.scope, std::string()}) {
    Order& order = orders_[{scope, tag}];
    if (order.since < claim.forgot_at) {
      order.Forget(order.newest, claim.forgot_at);
      order.newest = 0;
      order.since = claim.forgot_at;
    }
    // The ring of a claim that took so long may have been an earlier one.
    if (claim.began < order.since) {
      order.Forget(ids.limit, order.since);
    } else {
      order.newest = std::max(order.newest, ids.limit);
    }
  }
  if (rising_.contains(tag)) world_.Met("a ticket was claimed");
}

void Oracle::Add(Ranges& ranges, shm::IdRange ids, const std::string& machine) {
  std::uint64_t first = ids.first;
  const auto next = ranges.lower_bound(ids.first);
  if (next != ranges.begin()) {
    const auto before = std::prev(next);
    if (before->second.first == ids.first && before->second.second == machine) {
      first = before->first;
      ranges.erase(before);
    }
  }
  ranges[first] = {ids.limit, machine};
}

void Oracle::OnDataLost() {
  rising_.clear();
  unprotected_ = clones_;
  for (auto& [tag, ranges] : handed_out_) {
    std::erase_if(ranges, [](const auto& range) { return range.second.second == kLeaf; });
  }
}

void Oracle::OnLeafTook(const std::string& tag, shm::IdRange ids) {
  Ranges& ranges = handed_out_[tag];
  if (const auto* const shared = FindShared(ranges, ids)) {
    return Fail("twice: a Leaf server took " + tag + " " + Text(ids) + ", and " +
                shared->second.second + " had " + Text({shared->first, shared->second.first}));
  }
  ranges[ids.first] = {ids.limit, kLeaf};
}

void Oracle::CheckJournal(const std::vector<LeaseRecord>& journal,
                          const std::set<std::string>& exact, bool only_watched) {
  std::map<std::string, Ranges> kept;  // by tag
  for (const LeaseRecord& row : journal) {
    world_.Trace("journal: " + row.tag + " " + Text(row.ids) + " of " + row.host + ", " +
                 daemon::LeaseStateName(row.state) + ", " + std::to_string(row.claimed) +
                 " claimed");
    if (row.state == daemon::LeaseState::kActive) {
      return Fail("open: the journal still has lease " + Text(row.ids) + " of " + row.tag + " by " +
                  row.host + " as active, and all idds have stopped");
    }
    const bool has_claimed_part =
        row.state == daemon::LeaseState::kReturned || exact.contains(row.host);
    const std::uint64_t limit = has_claimed_part ? row.ids.first + row.claimed : row.ids.limit;
    std::uint64_t& end = kept[row.tag][row.ids.first].first;
    end = std::max(end, limit);
  }
  for (const auto& [tag, ranges] : only_watched ? watched_ : handed_out_) {
    for (const auto& [first, range] : ranges) {
      if (range.second == kLeaf || IsForged(range.second, ServedName(tag))) continue;
      // Walks over the leases that keep these ids, which may be several.
      std::uint64_t next = first;
      while (next < range.first) {
        auto it = kept[tag].upper_bound(next);
        std::uint64_t end = next;
        while (it != kept[tag].begin() && end == next) end = std::max(end, (--it)->second.first);
        if (end <= next) {
          return Fail("unaccounted: " + range.second + " claimed id " + std::to_string(next) +
                      " of " + tag + ", which no lease of the journal has as claimed");
        }
        next = end;
      }
    }
  }
}

}  // namespace idd::simulation

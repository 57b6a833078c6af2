// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <algorithm>
#include <utility>

namespace idd::simulation {
namespace {

std::string Text(shm::IdRange ids) {
  return "[" + std::to_string(ids.first) + ", " + std::to_string(ids.limit) + ")";
}

}  // namespace

void Oracle::Fail(std::string what) {
  if (failure_.has_value()) return;
  world_.Trace("FAILURE: " + what);
  failure_ = std::move(what);
}

void Oracle::OnLeased(const Lease& lease, const std::string& host) {
  ++leases_;
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

void Oracle::OnForged(const std::string& machine, const std::string& tag) {
  if (forged_.emplace(machine, tag).second) world_.Met("a program forged a cursor");
}

Oracle::Claim Oracle::Begin(std::string machine, std::string host, std::string tag,
                            std::string scope) const {
  Claim claim{.machine = std::move(machine),
              .host = std::move(host),
              .tag = std::move(tag),
              .scope = std::move(scope),
              .began = world_.now()};
  const auto it = newest_.find({claim.scope, claim.tag});
  if (it != newest_.end()) claim.above = it->second;
  if (!rising_.contains(claim.tag)) return claim;
  const auto of_all = newest_.find({"", claim.tag});
  if (of_all != newest_.end()) claim.above = std::max(claim.above, of_all->second);
  return claim;
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
  const auto& [machine, host, tag, scope, began, above, is_of_old_ring] = claim;
  claimed_ += ids.size();
  const bool is_forged = IsForged(machine, tag);
  if (const auto* const shared = FindShared(handed_out_[tag], ids)) {
    if (!is_forged || shared->second.second != machine) {
      return Fail("twice: " + machine + " claimed " + tag + " " + Text(ids) + ", and " +
                  shared->second.second + " had " + Text({shared->first, shared->second.first}));
    }
    world_.Met("ids came twice after a forged cursor");
  } else {
    Add(handed_out_[tag], ids, machine);
    if (is_watching_ && !is_of_old_ring) Add(watched_[tag], ids, machine);
  }

  // The claimed ids must lie in leases of this host that were committed; a claim is of one lease.
  const auto& leases = leased_[{tag, host}];
  bool is_leased = false;
  for (auto it = leases.upper_bound(ids.first); it != leases.begin() && !is_leased;) {
    --it;
    is_leased = it->second >= ids.limit;
  }
  if (!is_leased) {
    return Fail("not leased: " + machine + " claimed " + tag + " " + Text(ids) +
                ", which no committed lease of host " + host + " has");
  }
  for (const std::string& drained_scope : {tag, std::string()}) {
    const auto drained = drained_.find({machine, drained_scope});
    if (drained != drained_.end() && drained->second < began && !is_forged) {
      return Fail("drained: " + machine + " claimed " + tag + " " + Text(ids) +
                  " after an operator had drained it");
    }
  }
  if (ids.first < above && !is_forged) {
    Fail("out of order: " + machine + " claimed " + tag + " " + Text(ids) +
         " after a claim below " + std::to_string(above) + " had returned");
  }
  for (const std::string& order : {scope, std::string()}) {
    std::uint64_t& newest = newest_[{order, tag}];
    newest = std::max(newest, ids.limit);
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

void Oracle::OnLeafTook(const std::string& tag, shm::IdRange ids) {
  Ranges& ranges = handed_out_[tag];
  if (const auto* const shared = FindShared(ranges, ids)) {
    return Fail("twice: a Leaf server took " + tag + " " + Text(ids) + ", and " +
                shared->second.second + " had " + Text({shared->first, shared->second.first}));
  }
  ranges[ids.first] = {ids.limit, "leaf"};
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
      if (range.second == "leaf" || IsForged(range.second, tag)) continue;
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

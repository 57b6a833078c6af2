// SPDX-License-Identifier: Apache-2.0
#include "leasing/ceilings.h"

#include <algorithm>
#include <string_view>

#include "idd/shm/abi.h"

namespace idd::daemon {
namespace {

// A ceiling is raised by this many leases of the size asked for, plus kLeasesAheadForEach for each
// live member: after a host has gone silent, all leases until fence_after has passed must fit below
// it.
constexpr std::uint64_t kLeasesAhead = 8;
constexpr std::uint64_t kLeasesAheadForEach = 4;
// A raise takes at most 1/kMaxShareOfTheRest of the ids that the tag has left.
constexpr std::uint64_t kMaxShareOfTheRest = 64;
// A raise is at most so many times the last one of this host: a tag that was lifted to its ceiling
// by another host looks like a fast one until that host has pushed, and each raise is a gap if the
// data set is replaced.
constexpr std::uint64_t kMaxGrowth = 8;
// How long a raised ceiling lasts at the present rate, in units of the silence that is waited for.
constexpr double kAheadOfSilence = 1.5;
// The next raise comes when one part in so many of the last one is left.
constexpr std::uint64_t kPartLeft = 3;

std::uint64_t SaturatingAdd(std::uint64_t a, std::uint64_t b) {
  return std::min(a, shm::kMaxLimit) + std::min(b, shm::kMaxLimit - std::min(a, shm::kMaxLimit));
}

}  // namespace

void Ceilings::Forget() {
  wanted_.clear();
  asked_.clear();
  pending_.clear();
  active_.clear();
  // The rates are still the best guess, but this data set is lifted before it is leased from.
  for (auto& [tag, growth] : growth_) growth.at_ms = 0;
}

void Ceilings::Note(const FenceView& view) {
  for (const Ceiling& ceiling : view.ceilings) {
    wanted_[ceiling.tag] = {
        .ceiling = ceiling.wanted, .epoch = view.epoch, .pushed = ceiling.pushed};
  }
}

Ceilings::Growth Ceilings::Grown(const Need& need, Growth growth, const Horizon& horizon) const {
  const auto known = wanted_.find(need.tag);
  // A host that pushed the ceiling has lifted the tag to it. The ids below were skipped, not
  // leased.
  const std::uint64_t from =
      std::max(growth.base, known == wanted_.end() ? 0 : known->second.pushed);
  if (growth.at_ms != 0 && need.base > from) {
    const double seconds = std::max(static_cast<double>(horizon.now_ms - growth.at_ms) / 1000, 0.1);
    growth.rate = static_cast<double>(need.base - from) / seconds;
  }
  growth.base = need.base;
  growth.at_ms = horizon.now_ms;
  const std::uint64_t least =
      need.count * (kLeasesAhead + kLeasesAheadForEach * (1 + horizon.others));
  const double lasting = kAheadOfSilence * static_cast<double>(horizon.silence.count());
  const auto at_rate = static_cast<std::uint64_t>(std::min(growth.rate * lasting, 1e15));
  const std::uint64_t rest = need.last - std::min(need.last, need.base) + 1;
  const std::uint64_t ahead = std::max(least, std::min(at_rate, growth.ahead * kMaxGrowth));
  growth.ahead = std::max(std::min(ahead, rest / kMaxShareOfTheRest), need.count);
  return growth;
}

std::optional<CeilingRaise> Ceilings::RaiseFor(const Need& need, const Horizon& horizon) {
  const std::uint64_t end = SaturatingAdd(need.last, 1);
  if (need.ceiling >= end) return std::nullopt;
  Growth& growth = growth_[need.tag];
  if (growth.at_ms == 0) {
    // Before the first raise it is as if there had been the smallest one.
    const std::uint64_t ahead = growth.ahead;
    growth = Grown(need, growth, horizon);
    if (ahead != 0) growth.ahead = ahead;
  }
  const std::uint64_t after = SaturatingAdd(need.base, need.count);
  const std::uint64_t least = std::min(SaturatingAdd(after, growth.ahead / kPartLeft), end);
  if (need.ceiling >= least) return std::nullopt;
  const auto known = wanted_.find(need.tag);
  const std::uint64_t wanted = known == wanted_.end() ? 0 : known->second.ceiling;
  if (wanted > need.ceiling) pending_.insert(need.tag);
  if (wanted >= least) return std::nullopt;
  const Growth& grown = asked_[need.tag] = Grown(need, growth, horizon);
  return CeilingRaise{.tag = need.tag,
                      .wanted = std::max(std::min(SaturatingAdd(after, grown.ahead), end), least),
                      .least = least};
}

void Ceilings::Await(const CeilingRaise& raise) {
  if (const auto asked = asked_.extract(raise.tag)) growth_[raise.tag] = asked.mapped();
  // A row that the look did not show is lost; the next need raises it again.
  if (wanted_.contains(raise.tag)) pending_.insert(raise.tag);
}

std::vector<std::string> Ceilings::Activatable(const OtherHosts& others) const {
  std::vector<std::string> tags;
  for (const std::string& tag : pending_) {
    if (others.AllHaveNoted(wanted_.find(tag)->second.epoch)) tags.push_back(tag);
  }
  return tags;
}

void Ceilings::TakeActive(const std::vector<std::string>& tags, const std::vector<Ceiling>& rows) {
  std::map<std::string_view, const Ceiling*> found;
  for (const Ceiling& ceiling : rows) found[ceiling.tag] = &ceiling;
  active_.clear();
  for (const std::string& tag : tags) {
    const auto known = wanted_.find(tag);
    const auto row = found.find(tag);
    if (row != found.end()) active_[tag] = row->second->active;
    const bool is_lost = row == found.end() || row->second->wanted < known->second.ceiling;
    if (is_lost || row->second->active >= known->second.ceiling) pending_.erase(tag);
    if (is_lost) wanted_.erase(known);  // the next need raises it again
  }
}

std::uint64_t Ceilings::Active(const std::string& tag) const {
  const auto it = active_.find(tag);
  return it == active_.end() ? 0 : it->second;
}

}  // namespace idd::daemon

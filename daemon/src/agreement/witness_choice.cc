// SPDX-License-Identifier: Apache-2.0
#include "agreement/witness_choice.h"

#include <algorithm>

namespace idd::daemon {
namespace {

// The first host that is not a witness. A host whose disk was exchanged takes its own place.
std::optional<std::string> FirstOther(const std::vector<std::string>& names,
                                      const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    const bool is_there = std::any_of(names.begin(), names.end(), [&host](const auto& name) {
      return HostOfWitness(name) == HostOfWitness(host);
    });
    if (!is_there) return host;
  }
  return std::nullopt;
}

std::vector<std::string> Sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

void CandidateWatch::Note(const std::vector<Candidate>& candidates, std::int64_t now_ms) {
  std::map<std::string, std::int64_t> since;
  for (const Candidate& candidate : candidates) {
    if (candidate.silent_s >= kSilentS) continue;
    const auto known = since_.find(candidate.name);
    since[candidate.name] = known == since_.end() ? now_ms : known->second;
  }
  since_ = std::move(since);
}

std::vector<std::string> CandidateWatch::Steady(std::int64_t now_ms) const {
  std::vector<std::string> names;
  for (const auto& [name, since_ms] : since_) {
    if (now_ms - since_ms >= kCandidateMs) names.push_back(name);
  }
  return names;
}

std::vector<std::string> CandidateWatch::There() const {
  std::vector<std::string> names;
  names.reserve(since_.size());
  for (const auto& [name, since_ms] : since_) names.push_back(name);
  return names;
}

std::optional<std::vector<std::string>> ChooseNext(const WitnessList& active,
                                                   const std::vector<WitnessRow>& rows,
                                                   const std::vector<std::string>& steady) {
  for (const std::string& name : active.names) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&name](const WitnessRow& one) { return one.name == name; });
    if (row == rows.end() || row->silent_s < kWitnessSilentS) continue;
    std::vector<std::string> others = active.names;
    std::erase(others, name);
    const std::optional<std::string> other = FirstOther(others, steady);
    if (!other.has_value()) continue;
    others.push_back(*other);
    return Sorted(std::move(others));
  }
  if (active.names.size() >= kChosenWitnesses) return std::nullopt;
  std::vector<std::string> names = active.names;
  while (names.size() < kChosenWitnesses) {
    const std::optional<std::string> other = FirstOther(names, steady);
    if (!other.has_value()) return std::nullopt;
    names.push_back(*other);
  }
  return Sorted(std::move(names));
}

std::optional<std::vector<std::string>> ChooseWithout(const WitnessList& active,
                                                      const std::string& leaving,
                                                      const std::vector<std::string>& there) {
  const std::optional<std::string> other = FirstOther(active.names, there);
  if (!other.has_value()) return std::nullopt;
  std::vector<std::string> names = active.names;
  std::erase(names, leaving);
  names.push_back(*other);
  return Sorted(std::move(names));
}

}  // namespace idd::daemon

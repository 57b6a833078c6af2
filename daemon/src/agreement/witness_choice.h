// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_AGREEMENT_WITNESS_CHOICE_H_
#define IDD_DAEMON_AGREEMENT_WITNESS_CHOICE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/term_store.h"

namespace idd::daemon {

// How long a witness may be silent before the others put another host in its place, and how long
// that host must have been there. No promise depends on these times.
inline constexpr std::uint64_t kWitnessSilentS = 600;
inline constexpr std::int64_t kCandidateMs = 60'000;
// A host or witness that has not been seen for so long counts as silent.
inline constexpr std::uint64_t kSilentS = 60;
// So many witnesses are chosen as soon as there are as many hosts; an operator may name more.
inline constexpr std::size_t kChosenWitnesses = 3;

// Since when other hosts have been there, as this host has seen it. Pure. Thread safety: none.
class CandidateWatch {
 public:
  void Note(const std::vector<Candidate>& candidates, std::int64_t now_ms);
  void Clear() { since_.clear(); }
  // Those that have been there for kCandidateMs, by name.
  [[nodiscard]] std::vector<std::string> Steady(std::int64_t now_ms) const;
  // Those that are there now.
  [[nodiscard]] std::vector<std::string> There() const;

 private:
  std::map<std::string, std::int64_t> since_;
};

// The names of the list that should follow `active`: more witnesses if there are too few of them,
// another host for one that is silent. Nothing: the list is good, or no host is there to make it
// better.
[[nodiscard]] std::optional<std::vector<std::string>> ChooseNext(
    const WitnessList& active, const std::vector<WitnessRow>& rows,
    const std::vector<std::string>& steady);
// The same, without the witness `leaving`, which stops.
[[nodiscard]] std::optional<std::vector<std::string>> ChooseWithout(
    const WitnessList& active, const std::string& leaving, const std::vector<std::string>& there);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_AGREEMENT_WITNESS_CHOICE_H_

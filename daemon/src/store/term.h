// SPDX-License-Identifier: Apache-2.0
//
// Terms and lists of witnesses: what hosts agree on about a data set (docs/adr/0029).
#ifndef IDD_DAEMON_STORE_TERM_H_
#define IDD_DAEMON_STORE_TERM_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace idd::daemon {

// A continuous life of the data set: its number, and the witness that began it. Terms only rise.
struct Term {
  std::uint64_t number = 0;  // 0: none was begun
  std::string witness{};
  friend auto operator<=>(const Term&, const Term&) = default;

  [[nodiscard]] std::string Text() const;  // "17 host-a.1f2e3d4c"; empty: none
};
[[nodiscard]] std::optional<Term> ParseTerm(std::string_view text);

// The hosts whose disks keep the ceilings. Of two lists, the one with the higher version is newer,
// and of the same version the one that was asked for in the later term.
struct WitnessList {
  std::uint64_t version = 0;  // 0: there is no list
  Term asked_in{};
  std::vector<std::string> names{};  // sorted

  friend bool operator==(const WitnessList&, const WitnessList&) = default;
  [[nodiscard]] bool IsNewerThan(const WitnessList& other) const {
    return version != other.version ? version > other.version : asked_in > other.asked_in;
  }
  [[nodiscard]] bool Has(std::string_view name) const;
  [[nodiscard]] std::size_t majority() const { return names.size() / 2 + 1; }

  // "3 17 host-a.1f2e3d4c host-a.1f2e3d4c host-b.5a6b7c8d": version, term, names; empty: no list.
  [[nodiscard]] std::string Text() const;
};
[[nodiscard]] std::optional<WitnessList> ParseWitnessList(std::string_view text);

inline constexpr std::size_t kMostWitnesses = 5;
inline constexpr std::size_t kDiskIdSize = 8;

// A witness is a host with the disk that it has: with another disk it is another witness.
[[nodiscard]] std::string WitnessName(std::string_view host, std::string_view disk);
// The host of a witness's name.
[[nodiscard]] std::string HostOfWitness(std::string_view name);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_TERM_H_

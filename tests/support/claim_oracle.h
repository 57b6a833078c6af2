// SPDX-License-Identifier: Apache-2.0
//
// The oracle: what the logs of all claimers and the lease journal must show together.
//
// Method
//  1. unique    a bitmap over every id of every log; a bit that is set already is a duplicate.
//  2. rising    in one claimer's log every id is above the one before, and its clock never ran
//  back.
//  3. ordered   a sweep over time: claims by their begin, against the highest id of all claims that
//               had ended strictly before; a claim that is not above it breaks promise 3.
//  4. leased    the ids that the journal grants, lease by lease, are disjoint, and every claimed id
//               is in one of them.
//  5. adds up   `idctl audit` reports ok, its sum is right, and it counts at least the logged ids.
//
// claim_oracle_test.cc feeds each check a log that breaks it.
#ifndef IDD_TESTS_SUPPORT_CLAIM_ORACLE_H_
#define IDD_TESTS_SUPPORT_CLAIM_ORACLE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "support/claim_log.h"

namespace idd::harness {

// One thread of one process; its claims follow one another.
struct Claimer {
  std::string name;
  std::span<const ClaimRecord> records;  // those with count 0 are always skipped
};

// A row of `idctl --json lease list`.
struct JournalLease {
  std::string token;
  std::string tag;
  std::string host;
  std::uint64_t base = 0;
  std::uint64_t limit = 0;
  std::string state;
  std::uint64_t claimed = 0;
  std::uint64_t returned = 0;
  std::uint64_t abandoned = 0;
};
// Throws HarnessError if the document differs from docs/socket-protocol.md.
[[nodiscard]] std::vector<JournalLease> ParseLeases(const nlohmann::json& lease_list,
                                                    const std::string& tag);

// A tag's row of `idctl --json audit`.
struct AuditRow {
  bool ok = false;
  std::uint64_t leased = 0;
  std::uint64_t claimed = 0;
  std::uint64_t available = 0;
  std::uint64_t returned = 0;
  std::uint64_t abandoned = 0;
};
[[nodiscard]] AuditRow ParseAudit(const nlohmann::json& audit, const std::string& tag);

// The messages; empty if all is well. At most ten of each kind, then their number.
using Violations = std::vector<std::string>;

[[nodiscard]] Violations CheckUnique(std::span<const Claimer> claimers);
[[nodiscard]] Violations CheckRising(std::span<const Claimer> claimers);
// Precondition: CheckRising() found nothing.
[[nodiscard]] Violations CheckOrder(std::span<const Claimer> claimers);
[[nodiscard]] Violations CheckLeased(std::span<const Claimer> claimers,
                                     std::span<const JournalLease> leases);
[[nodiscard]] Violations CheckAudit(const AuditRow& audit, std::uint64_t claimed_ids,
                                    std::uint64_t most_lost_ids);

[[nodiscard]] std::uint64_t CountIds(std::span<const Claimer> claimers);

// All messages as one text, for an EXPECT_EQ with "".
[[nodiscard]] std::string Join(const Violations& violations);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_CLAIM_ORACLE_H_

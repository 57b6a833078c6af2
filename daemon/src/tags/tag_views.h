// SPDX-License-Identifier: Apache-2.0
//
// What others are shown of a tag. Pure: facts in, a view out. Observers read theirs in the ring
// itself; documents are made of snapshots, metrics of samples.
#ifndef IDD_DAEMON_TAGS_TAG_VIEWS_H_
#define IDD_DAEMON_TAGS_TAG_VIEWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/shm/ring_stats.h"
#include "metrics/metrics_sample.h"
#include "refill/claim_history.h"
#include "refill/refill_settings.h"
#include "store/lease.h"
#include "store/tag_record.h"
#include "tags/tag_ring.h"

namespace idd::daemon {

enum class TagState { kOk, kDry, kQuarantined, kDrained };
[[nodiscard]] const char* TagStateName(TagState state) noexcept;  // "ok", ...

// What `status` and `audit` show of a tag that this daemon has served.
struct TagSnapshot {
  std::string tag;
  std::string mode;
  std::uint64_t step = 0;
  RefillSettings refill;
  TagState state = TagState::kOk;
  std::uint64_t claimed = 0;
  std::vector<LeaseUse> leases;  // in the ring, oldest first
  double rate_per_s = 0;
  double reckoned_per_s = 0;                // what the refill policy reckons with
  double promised_ids = 0;                  // that are to be held by now: PromisedIds()
  std::optional<double> exhausted_in_days;  // at rate_per_s; nothing while nothing is claimed
  std::uint64_t fallbacks = 0;
  std::uint64_t leases_taken = 0;
  std::string last_error;
};

// A tag at one moment.
struct TagFacts {
  const std::string& tag;
  const TagRecord& record;
  const ClaimHistory& history;
  const std::string& last_error;
  bool is_drained = false;
  bool is_refused = false;  // by the store, at the last try
  bool has_ring = false;
  bool is_freshly_quarantined = false;
  MonotonicTime quarantined_at{};
  std::uint64_t quarantines = 0;
  std::uint64_t closed_claimed = 0;  // of leases that have left the ring
  std::uint64_t claimed_by_ring = 0;
  std::uint64_t claimed_by_socket = 0;
  std::uint64_t leases_taken = 0;
  std::uint64_t fallbacks = 0;
  double rate_per_s = 0;
  double reckoned_per_s = 0;
  std::optional<double> exhausted_in_days{};
};

[[nodiscard]] TagState StateOf(const TagFacts& facts, std::uint64_t available) noexcept;
[[nodiscard]] TagSnapshot SnapshotOf(const TagFacts& facts, std::vector<LeaseUse> in_ring);
[[nodiscard]] TagSample SampleOf(const TagFacts& facts, std::uint64_t available);
// For observers; without the time.
[[nodiscard]] shm::TagNumbers NumbersOf(const TagFacts& facts);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAG_VIEWS_H_

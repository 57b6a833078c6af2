// SPDX-License-Identifier: Apache-2.0
//
// The views of a tag. Pure: facts in, a view out. Observers read theirs in the ring itself;
// documents are made of snapshots, metrics of samples.
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

// The facts about a served tag that `status` and `doctor` show.
struct TagSnapshot {
  std::string tag;
  TagMode mode = TagMode::kSegment;
  std::uint64_t step = 0;
  std::optional<SnowflakeLayout> snowflake{};  // in mode snowflake
  RefillSettings refill;
  TagState state = TagState::kOk;
  std::uint64_t claimed = 0;
  std::vector<LeaseUse> leases;  // in the ring, oldest first
  TagOrder order = TagOrder::kHost;
  std::optional<LaneLevel> lanes{};  // of a ring of order cpu
  double rate_per_s = 0;
  double planning_rate_per_s = 0;           // what the refill policy reckons with
  std::uint64_t promised_ids = 0;           // ids that should be held by now: PromisedIds()
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
  bool was_quarantined_recently = false;
  MonotonicTime quarantined_at{};
  std::uint64_t quarantines = 0;
  std::uint64_t closed_claimed = 0;  // from leases that have left the ring
  std::uint64_t claimed_by_ring = 0;
  std::uint64_t claimed_by_socket = 0;
  std::uint64_t leases_taken = 0;
  std::uint64_t fallbacks = 0;
  double rate_per_s = 0;
  double planning_rate_per_s = 0;
  std::optional<double> exhausted_in_days{};
  std::optional<LaneLevel> lanes{};
};

[[nodiscard]] TagState StateOf(const TagFacts& facts, std::uint64_t available) noexcept;
[[nodiscard]] TagSnapshot SnapshotOf(const TagFacts& facts, std::vector<LeaseUse> in_ring);
[[nodiscard]] TagSample SampleOf(const TagFacts& facts, std::uint64_t available);
// The numbers for observers, without the time.
[[nodiscard]] shm::TagNumbers NumbersOf(const TagFacts& facts);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAG_VIEWS_H_

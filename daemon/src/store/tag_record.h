// SPDX-License-Identifier: Apache-2.0
//
// A tag as the allocator knows it, and the changes that can be made to it.
#ifndef IDD_DAEMON_STORE_TAG_RECORD_H_
#define IDD_DAEMON_STORE_TAG_RECORD_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idd/base/status.h"
#include "refill/refill_settings.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {

// How clients claim from a tag: from its ring in shared memory, or only by requests on the socket,
// so that they cannot write into memory that others claim from.
enum class TagAccess { kRing, kSocket };
[[nodiscard]] const char* TagAccessName(TagAccess access) noexcept;  // "ring", "socket"
[[nodiscard]] std::optional<TagAccess> ParseTagAccess(std::string_view name) noexcept;

// How the ids of a tag are made. kSnowflake: of time, worker and sequence; see SnowflakeLayout.
// kTicket: each claim is a transaction at the allocator, so that ids rise over all hosts; claims
// that wait together share one.
enum class TagMode { kSegment, kSnowflake, kTicket };
[[nodiscard]] const char* TagModeName(TagMode mode) noexcept;  // "segment", ...
[[nodiscard]] std::optional<TagMode> ParseTagMode(std::string_view name) noexcept;

// In which order the ids of a tag in mode segment come on a host. kHost: they rise over all
// processes. kCpu: they rise within a lane, of which each CPU has one.
enum class TagOrder { kHost, kCpu };
[[nodiscard]] const char* TagOrderName(TagOrder order) noexcept;  // "host", "cpu"
[[nodiscard]] std::optional<TagOrder> ParseTagOrder(std::string_view name) noexcept;

// One row of leaf_alloc with idd's own policy row beside it. Already validated: step in
// [1, kMaxStep], 0 <= next_id <= kMaxLimit, mode, access and refill known and within their bounds.
struct TagRecord {
  std::string tag;
  TagMode mode = TagMode::kSegment;
  std::uint64_t next_id = 1;  // leaf_alloc.max_id: where the next lease begins
  std::uint64_t step = 0;     // ids per lease
  std::uint64_t max_id = 0;   // ids stay at or below it; kMaxLimit - 1 unless set
  std::string description;
  std::string update_time;  // UTC, "YYYY-MM-DD HH:MM:SS"
  TagAccess access = TagAccess::kRing;
  TagOrder order = TagOrder::kHost;
  std::uint64_t lane_block = 0;                // ids of a lane's block; 0: idd chooses
  RefillSettings refill;                       // refill.step is step
  std::optional<SnowflakeLayout> snowflake{};  // in mode snowflake
  // The end of used ids, as far as it is known beside max_id: in a store with terms, by the
  // journal, the returned ranges, a tombstone and what witnesses have pushed; of a file, by its
  // witness.
  std::uint64_t used_limit = 0;
  // No lease may end above it (agreement/agreement.h); nothing: the store has no terms.
  std::optional<std::uint64_t> ceiling{};
  std::uint64_t wanted_ceiling = 0;
};

// New values of a tag's refill settings; nothing: unchanged, or the default.
struct RefillChange {
  std::optional<RefillRule> rule{};
  std::optional<std::uint64_t> max_step{};
  std::optional<std::uint64_t> max_prefetch{};
  std::optional<std::chrono::seconds> outage_tolerance{};
  friend bool operator==(const RefillChange&, const RefillChange&) = default;
};

struct NewTag {
  std::string tag;
  TagMode mode = TagMode::kSegment;
  std::uint64_t step = kDefaultStep;
  std::optional<std::uint64_t>
      start;  // first id; default 1, or above the ids of a deleted namesake
  std::optional<std::uint64_t> max_id;
  std::string description;
  TagAccess access = TagAccess::kRing;
  RefillChange refill{};
  std::optional<SnowflakeLayout> snowflake{};  // in mode snowflake
  TagOrder order = TagOrder::kHost;
  std::uint64_t lane_block = 0;
};

struct TagChange {
  std::string tag;
  std::optional<std::uint64_t> step{};
  std::optional<std::uint64_t> max_id{};
  std::optional<std::string> description{};
  std::optional<TagAccess> access{};
  RefillChange refill{};
  std::optional<TagOrder> order{};
  std::optional<std::uint64_t> lane_block{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_TAG_RECORD_H_

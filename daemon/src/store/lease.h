// SPDX-License-Identifier: Apache-2.0
//
// A lease: its request, its row in the journal, and its end.
#ifndef IDD_DAEMON_STORE_LEASE_H_
#define IDD_DAEMON_STORE_LEASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idd/shm/ring_protocol.h"

namespace idd::daemon {

// A leased segment, durably committed.
struct Lease {
  std::string token;  // random, 32 hex digits; the journal's key
  // The row of leaf_alloc that counts its ids. It has the tag's name, or, in mode snowflake, that
  // of a worker of the tag: ServedName() tells.
  std::string tag;
  shm::IdRange ids;
  // This host's high-water mark before the lease; filled in by the caller of TakeLeases().
  std::uint64_t previous_mark = 0;
  bool from_returned = false;  // an own tail taken back, not a new advance of max_id
  // The earlier max_id, if it stood below this host's high-water mark, the request's floor or an
  // end of used ids in the journal or a tombstone, and was lifted.
  std::optional<std::uint64_t> lifted_from{};
};

// A lease, and how far it was claimed.
struct LeaseUse {
  Lease lease;
  std::uint64_t claimed = 0;  // ids from lease.ids.first on

  [[nodiscard]] std::uint64_t available() const noexcept { return lease.ids.size() - claimed; }
};

struct LeaseRequest {
  std::string tag;
  std::uint64_t count = 0;  // ids wanted, 1 or more; a returned range is taken whole instead
  // Every id that this host ever handed out lies below it (high_water.h); 0: none. Nothing below it
  // is leased, not even a returned range, which a restored backup could list a second time.
  std::uint64_t high_water_mark = 0;
  // The running daemon has already handed out ids up to here; nothing below it is leased.
  std::uint64_t floor = 0;
  std::string token;  // made by the caller, so that an unknown outcome can be looked up
  // Only ids above every earlier lease of the tag: no returned range.
  bool rises = false;
  // `tag` is the counter of a snowflake worker, and this host must be the worker's owner.
  bool is_of_worker = false;
};

enum class LeaseState { kActive, kExhausted, kReturned, kAbandoned };
[[nodiscard]] const char* LeaseStateName(LeaseState state) noexcept;  // "active", ...
[[nodiscard]] std::optional<LeaseState> ParseLeaseState(std::string_view name) noexcept;

// A row of the journal. Once it is not active: claimed + returned + abandoned == ids.size().
struct LeaseRecord {
  std::string token;
  std::string tag;
  std::string host;
  shm::IdRange ids;
  LeaseState state = LeaseState::kActive;
  std::uint64_t claimed = 0;
  std::uint64_t returned = 0;
  std::uint64_t abandoned = 0;
  std::string leased_at;  // UTC
  std::string closed_at;  // UTC, empty while active
  std::uint64_t seq = 0;  // its place in the journal
};

// The end of a lease's ids that may have been handed out; 0: none of them was.
[[nodiscard]] std::uint64_t UsedLimitOf(const LeaseRecord& lease) noexcept;

struct LeaseFilter {
  std::optional<std::string> tag{};
  std::optional<std::string> host{};
  std::optional<LeaseState> state{};
  std::optional<std::uint64_t> containing{};  // leases with this id; needs `tag`
  std::uint64_t newest = 0;  // how many, of the newest, in the journal's order; 0: all
  std::optional<std::vector<std::string>> among{};  // only these tags
  std::optional<std::uint64_t> before{};            // leases at an earlier place of the journal
  std::optional<std::string> since{};  // leased then or later: "2026-11-26 05:30:00", UTC
};

// How a lease ended. `claimed` is counted from ids.first. The rest goes back (kReturned), is given
// up (kAbandoned) or is empty (kExhausted).
struct LeaseClosure {
  std::string token;
  std::string tag;
  LeaseState state = LeaseState::kExhausted;
  std::uint64_t claimed = 0;
};

// Every id of the tag that this host ever handed out, or may be handing out, lies below it.
struct TagMark {
  std::string tag;
  std::uint64_t mark = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_LEASE_H_

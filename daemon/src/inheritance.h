// SPDX-License-Identifier: Apache-2.0
//
// What an earlier idd has left with the service manager, made ready for this one.
#ifndef IDD_DAEMON_INHERITANCE_H_
#define IDD_DAEMON_INHERITANCE_H_

#include <memory>
#include <string>
#include <vector>

#include "held_leases.h"
#include "idd/base/status.h"
#include "idd/shm/left_ring.h"
#include "service_manager.h"
#include "store/store.h"
#include "tag_ring.h"

namespace idd::daemon {

// The names under which descriptors are left.
inline constexpr const char* kHeldLeasesName = "held";
[[nodiscard]] std::string TableName(std::uint64_t ring_id);
[[nodiscard]] std::string CursorsName(std::uint64_t ring_id);

// A tag that an earlier idd served, and what is left of its leases: oldest first, none used up, no
// more than a ring takes.
struct InheritedTag {
  TagRecord record;
  std::vector<LeaseUse> leases;
};

// A ring that clients may still have, all of its cursors closed.
struct InheritedRing {
  std::string tag;
  std::vector<std::string> tokens;  // of the leases that were published in it
  std::unique_ptr<shm::LeftRing> ring;
};

struct Inheritance {
  std::unique_ptr<HeldLeases> held;  // never null
  bool held_is_kept = false;         // by the service manager already
  std::vector<InheritedTag> tags;
  std::vector<LeaseUse> closing;    // ended; nobody gets what is not claimed
  std::vector<LeaseUse> returning;  // what is not claimed goes back to the allocator
  AskedLeases asked;                // for which the earlier idd had no answer
  std::vector<InheritedRing> rings;
  std::vector<std::string> names;  // of descriptors that nobody needs any more
};

// Takes its part of `passed` and leaves the rest there. Closes every ring it finds, so that no id
// of it is claimed from here on, and notes how far each lease was claimed; it may be killed between
// any two of its steps, and be called again. What cannot be read is logged, and its leases are
// closing, as after a crash without a descriptor store. kSystem: no memory for the list of leases.
//
// `list_id`: of the list that the last run of this host kept; any other is of an earlier one.
[[nodiscard]] Result<Inheritance> Inherit(std::vector<PassedDescriptor>& passed,
                                          const std::string& host_id, const std::string& list_id);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_INHERITANCE_H_

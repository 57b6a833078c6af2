// SPDX-License-Identifier: Apache-2.0
//
// Takes over what an earlier idd left with the service manager: Inherit() finds it, then each tag
// is taken over in turn, so that a tag's claims pause only during its own turn.
#ifndef IDD_DAEMON_RESTART_INHERITANCE_H_
#define IDD_DAEMON_RESTART_INHERITANCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "idd/shm/left_ring.h"
#include "platform/service_manager.h"
#include "restart/held_leases.h"
#include "store/lease.h"
#include "store/tag_record.h"

namespace idd::daemon {

// A ring that clients may still have and claim from, until it is closed.
struct LeftTagRing {
  std::unique_ptr<shm::LeftRing> ring;
  std::vector<std::string> names;  // names of its descriptors
};

// A tag that an earlier idd served: its leases, as far as they are known, and their rings, still
// open.
struct LeftTag {
  std::string tag;
  std::vector<HeldLease> leases;  // all of them kHeld
  std::vector<LeftTagRing> rings;

  // The lowest id of the leases.
  [[nodiscard]] std::uint64_t first_id() const;
  // As they came with the newest lease; null: there is no lease.
  [[nodiscard]] const TagRecord* settings() const;
};

struct Inheritance {
  std::unique_ptr<HeldLeases> held;  // never null
  bool held_is_kept = false;         // the service manager has it already
  std::vector<LeftTag> tags;         // for CloseOldRings()
  std::vector<LeaseUse> closing;     // ended; the unclaimed ids are given up
  std::vector<LeaseUse> returning;   // the unclaimed ids go back to the allocator
  AskedLeases asked;                 // leases for which the earlier idd got no answer
  std::vector<std::string> names;    // of descriptors that are not needed now
};

// Removes the descriptors of an earlier idd from `passed` and leaves the others there. Closes no
// ring, so claims continue. Logs what cannot be read and treats its leases as closing, as after a
// crash without a descriptor store. kSystem: no memory for the list of leases.
//
// `list_id`: the id of the list that the last run of this host kept; a list with another id is from
// an earlier run.
[[nodiscard]] Result<Inheritance> Inherit(std::vector<PassedDescriptor>& passed,
                                          const std::string& host_id, const std::string& list_id);

// A closed old ring: all of its cursors are closed.
struct InheritedRing {
  std::string tag;
  std::vector<std::string> tokens;  // leases that were published in it
  std::unique_ptr<shm::LeftRing> ring;
};

// The rest of a tag's leases once its old rings are closed.
struct InheritedTag {
  TagRecord record;
  std::vector<LeaseUse> leases;  // oldest first, none used up, no more than a ring takes
  std::vector<LeaseUse> closing;
  std::vector<LeaseUse> returning;
  std::vector<InheritedRing> rings;
  std::vector<std::string> names;  // of the old rings' descriptors
};

// Closes the tag's old rings, so that no id of them is claimed from here on, and records in `held`
// how far each lease was claimed. The process may be killed between any two steps: the next one
// inherits what was recorded.
[[nodiscard]] InheritedTag CloseOldRings(LeftTag left, HeldLeases& held);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_RESTART_INHERITANCE_H_

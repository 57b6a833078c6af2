// SPDX-License-Identifier: Apache-2.0
//
// What an earlier idd has left with the service manager, made ready for this one: found by
// Inherit(), then taken over tag by tag, so that the claims of each pause only while it is its
// turn.
#ifndef IDD_DAEMON_RESTART_INHERITANCE_H_
#define IDD_DAEMON_RESTART_INHERITANCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "idd/shm/left_ring.h"
#include "platform/service_manager.h"
#include "restart/held_leases.h"
#include "store/lease.h"
#include "store/tag_record.h"

namespace idd::daemon {

// A ring that clients may still have, and claim from until it is closed.
struct LeftTagRing {
  std::unique_ptr<shm::LeftRing> ring;
  std::vector<std::string> names;  // of its descriptors
};

// A tag that an earlier idd served: what is known of its leases, and their rings, still open.
struct LeftTag {
  std::string tag;
  std::vector<HeldLease> leases;  // all of them kHeld
  std::vector<LeftTagRing> rings;

  // No id of the leases lies below it.
  [[nodiscard]] std::uint64_t first_id() const;
};

struct Inheritance {
  std::unique_ptr<HeldLeases> held;  // never null
  bool held_is_kept = false;         // by the service manager already
  std::vector<LeftTag> tags;         // for TakeOver()
  std::vector<LeaseUse> closing;     // ended; what is not claimed is given up
  std::vector<LeaseUse> returning;   // what is not claimed goes back to the allocator
  AskedLeases asked;                 // for which the earlier idd had no answer
  std::vector<std::string> names;    // of descriptors that are not needed now
};

// Takes its part of `passed` and leaves the rest there. No ring is closed by it: claims go on. What
// cannot be read is logged, and its leases are closing, as after a crash without a descriptor
// store. kSystem: no memory for the list of leases.
//
// `list_id`: of the list that the last run of this host kept; any other is of an earlier one.
[[nodiscard]] Result<Inheritance> Inherit(std::vector<PassedDescriptor>& passed,
                                          const std::string& host_id, const std::string& list_id);

// An old ring after its end: all of its cursors are closed.
struct InheritedRing {
  std::string tag;
  std::vector<std::string> tokens;  // of the leases that were published in it
  std::unique_ptr<shm::LeftRing> ring;
};

// What is left of a tag's leases once its old rings are closed.
struct InheritedTag {
  TagRecord record;
  std::vector<LeaseUse> leases;  // oldest first, none used up, no more than a ring takes
  std::vector<LeaseUse> closing;
  std::vector<LeaseUse> returning;
  std::vector<InheritedRing> rings;
  std::vector<std::string> names;  // of the old rings' descriptors
};

// Closes the tag's old rings, so that no id of them is claimed from here on, and notes in `held`
// how far each lease was claimed. The process may be killed between any two of its steps: the next
// one inherits what was noted.
[[nodiscard]] InheritedTag TakeOver(LeftTag left, HeldLeases& held);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_RESTART_INHERITANCE_H_

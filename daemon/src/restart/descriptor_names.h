// SPDX-License-Identifier: Apache-2.0
//
// The names under which idd leaves descriptors with the service manager.
#ifndef IDD_DAEMON_RESTART_DESCRIPTOR_NAMES_H_
#define IDD_DAEMON_RESTART_DESCRIPTOR_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/service_manager.h"

namespace idd::daemon {

inline constexpr const char* kHeldLeasesName = "held";

// A ring's names have four characters each, because the names of thousands of rings are in one
// environment variable of the next idd, which has room for at most 128 KiB. So they do not have
// room for the id of the ring, only for its last digits, a number that no other ring of this idd
// has. The next idd reads the whole id in the ring.

// A random id of which the number is not in use.
[[nodiscard]] std::uint64_t NewRingId(DescriptorStore& descriptors);
// There is no such ring after all.
void FreeRingId(DescriptorStore& descriptors, std::uint64_t ring_id);
[[nodiscard]] std::string TableName(std::uint64_t ring_id);
[[nodiscard]] std::string CursorsName(std::uint64_t ring_id);

// Nothing is kept of the ring any more, and its number may be used again.
void DropRing(DescriptorStore& descriptors, std::uint64_t ring_id);
// The same for one name of what an earlier idd left. Any other name may be given, too.
void DropInherited(DescriptorStore& descriptors, const std::string& name);
// To be called for the names of a ring of an earlier idd, before a new ring is made.
void ReserveInherited(DescriptorStore& descriptors, const std::string& name);

// The ring and the descriptor that a name stands for.
struct RingPart {
  std::string ring;  // the name without its first character: RingKey() of the ring, or a longer one
  bool is_table = false;
};

// Nothing if it is not the name of a ring's descriptor. An earlier idd's names may be longer: they
// have the whole id.
[[nodiscard]] std::optional<RingPart> ParseRingName(std::string_view name);
// The part of a ring's names that is the same in both, of this idd and of an earlier one.
[[nodiscard]] std::string RingKey(std::uint64_t ring_id);
[[nodiscard]] std::string LongRingKey(std::uint64_t ring_id);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_RESTART_DESCRIPTOR_NAMES_H_

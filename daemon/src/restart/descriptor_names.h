// SPDX-License-Identifier: Apache-2.0
//
// The names under which idd leaves descriptors with the service manager.
#ifndef IDD_DAEMON_RESTART_DESCRIPTOR_NAMES_H_
#define IDD_DAEMON_RESTART_DESCRIPTOR_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace idd::daemon {

inline constexpr const char* kHeldLeasesName = "held";
[[nodiscard]] std::string TableName(std::uint64_t ring_id);
[[nodiscard]] std::string CursorsName(std::uint64_t ring_id);

// The ring and the descriptor that a name stands for.
struct RingPart {
  std::uint64_t ring_id = 0;
  bool is_table = false;
};

// Nothing if it is not the name of a ring's descriptor.
[[nodiscard]] std::optional<RingPart> ParseRingName(std::string_view name);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_RESTART_DESCRIPTOR_NAMES_H_

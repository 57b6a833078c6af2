// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_POSSIBLE_CPUS_H_
#define IDD_DAEMON_PLATFORM_POSSIBLE_CPUS_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace idd::daemon {

// How many numbers the kernel may give to CPUs while it runs, also to those that are offline or
// come later: the greatest possible number and one. At most shm::kMaxLanes; CPUs beyond have no
// lane. A cpuset or a container changes nothing: rseq shows the kernel's numbers.
[[nodiscard]] std::uint32_t PossibleCpus();

// From the text of /sys/devices/system/cpu/possible, "0-127" or "0-3,8"; nothing: it is no list.
[[nodiscard]] std::optional<std::uint32_t> ParsePossibleCpus(std::string_view text);

// Tests: as if the kernel had so many; 0: as it has.
void SetPossibleCpusForTest(std::uint32_t count);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_POSSIBLE_CPUS_H_

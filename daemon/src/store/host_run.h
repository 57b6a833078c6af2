// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_HOST_RUN_H_
#define IDD_DAEMON_STORE_HOST_RUN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace idd::daemon {

// Names a run of idd: its number, which rises with each run on a state directory, so that the row
// of an earlier run can be told from that of a later one; the rest is random.
inline constexpr std::size_t kRunNumberSize = 16;  // the number comes first, and sorts as text
[[nodiscard]] std::string MakeRun(std::uint64_t number);
// Whether the number of `run` is below that of `other`.
[[nodiscard]] bool IsOlderRun(std::string_view run, std::string_view other) noexcept;

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_HOST_RUN_H_

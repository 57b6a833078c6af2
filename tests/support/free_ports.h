// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_FREE_PORTS_H_
#define IDD_TESTS_SUPPORT_FREE_PORTS_H_

#include <cstdint>
#include <vector>

namespace idd::harness {

// Loopback ports without a listener; all different. The kernel assigns none of them to a
// connection, or to a program that asks for any port, in the meantime.
[[nodiscard]] std::vector<std::uint16_t> FreePorts(int count);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_FREE_PORTS_H_

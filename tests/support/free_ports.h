// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_FREE_PORTS_H_
#define IDD_TESTS_SUPPORT_FREE_PORTS_H_

#include <cstdint>
#include <vector>

namespace idd::harness {

// Ports of loopback that no process listens at now; all different. None that the kernel gives to a
// connection, or to another program that asks for any, before it is listened at.
[[nodiscard]] std::vector<std::uint16_t> FreePorts(int count);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_FREE_PORTS_H_

// SPDX-License-Identifier: Apache-2.0
//
// Leases of a tag "orders", distinguished by a digit.
#ifndef IDD_TESTS_UNIT_SUPPORT_LEASES_H_
#define IDD_TESTS_UNIT_SUPPORT_LEASES_H_

#include <cstdint>
#include <string>

#include "store/store.h"

namespace idd::daemon {

[[nodiscard]] inline std::string Token(char digit) { return std::string(32, digit); }

[[nodiscard]] inline Lease LeaseOf(char digit, std::uint64_t first, std::uint64_t limit) {
  return {.token = Token(digit), .tag = "orders", .ids = {first, limit}, .previous_mark = first};
}

}  // namespace idd::daemon

#endif  // IDD_TESTS_UNIT_SUPPORT_LEASES_H_

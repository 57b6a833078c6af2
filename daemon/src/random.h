// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_RANDOM_H_
#define IDD_DAEMON_RANDOM_H_

#include <array>
#include <cstdint>
#include <random>
#include <string>

namespace idd::daemon {

// Not 0, which means "none" wherever such ids are used.
[[nodiscard]] inline std::uint64_t RandomId() {
  std::random_device device;
  std::uint64_t id = 0;
  while (id == 0) id = (static_cast<std::uint64_t>(device()) << 32) | device();
  return id;
}

// 128 random bits as 32 hex digits: a lease token.
[[nodiscard]] inline std::string RandomToken() {
  static constexpr std::array<char, 17> kDigits{"0123456789abcdef"};
  std::string token;
  for (const std::uint64_t half : {RandomId(), RandomId()}) {
    for (unsigned shift = 0; shift < 64; shift += 4) token += kDigits[(half >> shift) & 0xf];
  }
  return token;
}

}  // namespace idd::daemon

#endif  // IDD_DAEMON_RANDOM_H_

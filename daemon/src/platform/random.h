// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_RANDOM_H_
#define IDD_DAEMON_PLATFORM_RANDOM_H_

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace idd::daemon {

// Never 0, which means "none" wherever such ids are used. The number comes from the kernel, because
// std::random_device uses the processor's source, which takes some 20 us per number in a virtual
// machine.
[[nodiscard]] inline std::uint64_t RandomId() {
  std::uint64_t id = 0;
  while (id == 0) {
    if (::getentropy(&id, sizeof id) != 0) {
      throw std::system_error(errno, std::generic_category(), "getentropy");
    }
  }
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

// Whether `text` has the form of a token. Tokens that cannot be bound are embedded into statements.
[[nodiscard]] inline bool IsToken(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace idd::daemon

#endif  // IDD_DAEMON_PLATFORM_RANDOM_H_

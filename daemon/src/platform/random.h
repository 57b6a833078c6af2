// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_PLATFORM_RANDOM_H_
#define IDD_DAEMON_PLATFORM_RANDOM_H_

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace idd::daemon {

// 64 random bits from the kernel, or a test's.
class RandomBits {
 public:
  using Source = std::uint64_t (*)();

  // From the kernel, because std::random_device uses the processor's source, which takes some 20 us
  // per number in a virtual machine.
  [[nodiscard]] static std::uint64_t Next() {
    // Relaxed: a source is set before the threads that ask are started.
    const Source source = TheSource().load(std::memory_order_relaxed);  // J3
    if (source != nullptr) return source();
    std::uint64_t bits = 0;
    if (::getentropy(&bits, sizeof bits) != 0) {
      throw std::system_error(errno, std::generic_category(), "getentropy");
    }
    return bits;
  }

  // For tests and the simulator, before anything asks for a number. Null: the kernel's.
  static void SetSource(Source source) noexcept {
    TheSource().store(source, std::memory_order_relaxed);  // J4
  }

 private:
  [[nodiscard]] static std::atomic<Source>& TheSource() noexcept {
    static constinit std::atomic<Source> source{nullptr};
    return source;
  }
};

// Never 0, which means "none" wherever such ids are used.
[[nodiscard]] inline std::uint64_t RandomId() {
  std::uint64_t id = 0;
  while (id == 0) id = RandomBits::Next();
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

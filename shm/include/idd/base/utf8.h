// SPDX-License-Identifier: Apache-2.0
//
// UTF-8 text, and the characters in it that must not reach a terminal or a name as they are.
#ifndef IDD_BASE_UTF8_H_
#define IDD_BASE_UTF8_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace idd {

// A character of UTF-8 text; bytes == 0 if the bytes are not one.
struct Utf8Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;
};

// The length that a first byte announces; 0 if no character begins with it.
[[nodiscard]] constexpr std::size_t AnnouncedUtf8Bytes(std::uint32_t first) noexcept {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  if (first >= 0xf0 && first < 0xf5) return 4;
  return 0;
}

// The first character of `text`, which is not empty. Refuses what is longer than need be,
// surrogates and numbers beyond Unicode (Unicode 15, table 3-7).
[[nodiscard]] constexpr Utf8Character FirstUtf8Character(std::string_view text) noexcept {
  constexpr std::array<std::uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  constexpr std::array<std::uint32_t, 5> kFirstByteBits = {0, 0x7f, 0x1f, 0x0f, 0x07};
  const auto byte = [text](std::size_t i) -> std::uint32_t {
    return static_cast<unsigned char>(text[i]);
  };
  const std::size_t bytes = AnnouncedUtf8Bytes(byte(0));
  if (bytes == 0 || bytes > text.size()) return {};
  std::uint32_t code = byte(0) & kFirstByteBits[bytes];
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return {};
    code = (code << 6) | (byte(i) & 0x3fU);
  }
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kSmallest[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {.code = code, .bytes = bytes};
}

// C0, DEL and C1.
[[nodiscard]] constexpr bool IsControl(std::uint32_t code) noexcept {
  return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

// Spaces other than U+0020, and characters that join, hide or reverse text: with them two names can
// look alike.
[[nodiscard]] constexpr bool IsDeceptive(std::uint32_t code) noexcept {
  return code == 0xa0 || code == 0xad || code == 0x61c || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200f) || (code >= 0x2028 && code <= 0x202f) ||
         (code >= 0x205f && code <= 0x206f) || code == 0x3000 || code == 0xfeff;
}

}  // namespace idd

#endif  // IDD_BASE_UTF8_H_

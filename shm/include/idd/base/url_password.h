// SPDX-License-Identifier: Apache-2.0
//
// Finds and hides the passwords of mysql:// URLs in texts and on the command line.
#ifndef IDD_BASE_URL_PASSWORD_H_
#define IDD_BASE_URL_PASSWORD_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace idd {

inline constexpr std::string_view kMysqlScheme = "mysql://";

// The position of the password in a text that may contain a mysql:// URL; size 0 if there is none.
// The password is found even in a URL that cannot be parsed.
struct PasswordPlace {
  std::size_t begin = 0;
  std::size_t size = 0;
};
[[nodiscard]] inline PasswordPlace FindPassword(std::string_view text) noexcept {
  const std::size_t scheme = text.find(kMysqlScheme);
  if (scheme == std::string_view::npos) return {};
  const std::size_t user = scheme + kMysqlScheme.size();
  std::size_t at = text.substr(0, text.find('?')).rfind('@');
  if (at == std::string_view::npos || at < user) at = text.rfind('@');  // a '?' in the password
  const std::size_t colon = text.find(':', user);
  if (at == std::string_view::npos || colon == std::string_view::npos || colon > at) return {};
  return {.begin = colon + 1, .size = at - colon - 1};
}

[[nodiscard]] inline std::string WithoutPassword(std::string text) {
  const PasswordPlace place = FindPassword(text);
  return text.replace(place.begin, place.size, place.size, '*');
}

// Overwrites passwords in main's `argv`, so that ps does not show them. The caller must have copied
// the arguments before.
inline void HidePasswords(int argc, char** argv) noexcept {
  for (int i = 1; i < argc; ++i) {
    const PasswordPlace place = FindPassword(argv[i]);
    std::fill_n(argv[i] + place.begin, place.size, '*');
  }
}

}  // namespace idd

#endif  // IDD_BASE_URL_PASSWORD_H_

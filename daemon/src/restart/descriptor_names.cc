// SPDX-License-Identifier: Apache-2.0
#include "restart/descriptor_names.h"

#include <cstddef>

namespace idd::daemon {
namespace {

// Names are short because all of them are in one environment variable of the next idd, which has
// room for at most 128 KiB.
constexpr char kTablePrefix = 't';
constexpr char kCursorsPrefix = 'c';
constexpr std::size_t kIdDigits = 11;  // of base 64
constexpr std::string_view kRingIdAlphabet =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
std::string RingName(char prefix, std::uint64_t ring_id) {
  std::string name(kIdDigits + 1, prefix);
  for (std::size_t i = kIdDigits; i > 0; --i, ring_id /= kRingIdAlphabet.size()) {
    name[i] = kRingIdAlphabet[ring_id % kRingIdAlphabet.size()];
  }
  return name;
}

}  // namespace

std::optional<RingPart> ParseRingName(std::string_view name) {
  if (name.size() != kIdDigits + 1) return std::nullopt;
  if (name[0] != kTablePrefix && name[0] != kCursorsPrefix) return std::nullopt;
  RingPart part{.is_table = name[0] == kTablePrefix};
  for (const char digit : name.substr(1)) {
    const std::size_t value = kRingIdAlphabet.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    part.ring_id = part.ring_id * kRingIdAlphabet.size() + value;
  }
  return part;
}

std::string TableName(std::uint64_t ring_id) { return RingName(kTablePrefix, ring_id); }
std::string CursorsName(std::uint64_t ring_id) { return RingName(kCursorsPrefix, ring_id); }

}  // namespace idd::daemon

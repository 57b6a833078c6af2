// SPDX-License-Identifier: Apache-2.0
#include "terminal/suggestion.h"

#include <algorithm>
#include <array>
#include <utility>

namespace idd::tools {
namespace {

constexpr std::size_t kMaxComparedBytes = 256;

// How much of a word may be wrong.
std::size_t MostEdits(std::size_t bytes) {
  return bytes < 2 ? 0 : std::max(bytes / 3, std::size_t{1});
}

}  // namespace

std::size_t EditDistance(std::string_view a, std::string_view b) {
  if (std::max(a.size(), b.size()) > kMaxComparedBytes) return std::max(a.size(), b.size());
  // The rows of the usual table for the last two prefixes of `a`, and for this one.
  std::array<std::array<std::size_t, kMaxComparedBytes + 1>, 3> rows{};
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& last = rows[(i - 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swapped) row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& known) {
  std::optional<std::string> nearest;
  std::size_t least = MostEdits(word.size()) + 1;
  for (const std::string& other : known) {
    const std::size_t distance = EditDistance(word, other);
    if (distance == 0 || distance >= least) continue;
    least = distance;
    nearest = other;
  }
  return nearest;
}

}  // namespace idd::tools

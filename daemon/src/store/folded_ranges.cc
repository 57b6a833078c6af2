// SPDX-License-Identifier: Apache-2.0
#include "store/folded_ranges.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

namespace idd::daemon {
namespace {

constexpr std::string_view kInexact = "~ ";

// Takes a number off the front of the text.
bool TakeNumber(std::string_view& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool Take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Result<FoldedRanges> FoldedRanges::Parse(std::string_view text) {
  const Status bad(Code::kInvalid, "idd_total.ranges is not a list of ranges");
  FoldedRanges ranges;
  ranges.is_exact_ = !Take(text, kInexact);
  std::uint64_t end = 0;
  while (!text.empty()) {
    std::uint64_t gap = 0;
    std::uint64_t length = 0;
    if (!TakeNumber(text, gap) || !Take(text, "+") || !TakeNumber(text, length)) return bad;
    const bool is_last = text.empty();
    if (!is_last && (!Take(text, " ") || text.empty())) return bad;
    const bool fits = length > 0 && gap <= shm::kMaxLimit - end &&
                      length <= shm::kMaxLimit - end - gap && (gap > 0 || ranges.empty());
    if (!fits) return bad;
    ranges.limits_.emplace_hint(ranges.limits_.end(), end + gap, end + gap + length);
    end += gap + length;
  }
  return ranges;
}

std::string FoldedRanges::Text() const {
  std::string text(is_exact_ ? "" : kInexact);
  std::uint64_t end = 0;
  for (const auto& [first, limit] : limits_) {
    if (end > 0) text += ' ';
    text.append(std::to_string(first - end)).append("+").append(std::to_string(limit - first));
    end = limit;
  }
  return text;
}

void FoldedRanges::Add(shm::IdRange ids) {
  if (ids.empty()) return;
  auto next = limits_.upper_bound(ids.first);
  if (next != limits_.begin() && std::prev(next)->second >= ids.first) {
    --next;
    ids.first = next->first;
  }
  while (next != limits_.end() && next->first <= ids.limit) {
    ids.limit = std::max(ids.limit, next->second);
    next = limits_.erase(next);
  }
  limits_.emplace_hint(next, ids.first, ids.limit);
}

void FoldedRanges::Reduce(std::size_t count) {
  if (limits_.size() <= count) return;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps;  // length, end of the range before
  for (auto it = limits_.begin(); std::next(it) != limits_.end(); ++it) {
    gaps.emplace_back(std::next(it)->first - it->second, it->second);
  }
  const auto closed = static_cast<std::ptrdiff_t>(limits_.size() - count);
  std::nth_element(gaps.begin(), gaps.begin() + closed - 1, gaps.end());
  for (auto gap = gaps.begin(); gap != gaps.begin() + closed; ++gap) {
    Add({gap->second, gap->second + gap->first});
  }
  is_exact_ = false;
}

bool FoldedRanges::Contains(std::uint64_t id) const noexcept {
  const auto next = limits_.upper_bound(id);
  return next != limits_.begin() && id < std::prev(next)->second;
}

}  // namespace idd::daemon

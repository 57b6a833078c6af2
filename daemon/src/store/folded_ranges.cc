// SPDX-License-Identifier: Apache-2.0
#include "store/folded_ranges.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
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

void AddNumber(std::string& text, std::uint64_t number) {
  std::array<char, std::numeric_limits<std::uint64_t>::digits10 + 1> digits{};
  char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
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
    ranges.ranges_.push_back({end + gap, end + gap + length});
    end += gap + length;
  }
  return ranges;
}

std::string FoldedRanges::Text() const {
  std::string text(is_exact_ ? "" : kInexact);
  std::uint64_t end = 0;
  for (const shm::IdRange& range : ranges_) {
    if (end > 0) text += ' ';
    AddNumber(text, range.first - end);
    text += '+';
    AddNumber(text, range.size());
    end = range.limit;
  }
  return text;
}

void FoldedRanges::Add(shm::IdRange ids) {
  if (ids.empty()) return;
  // The ranges that touch it.
  const auto first = std::lower_bound(
      ranges_.begin(), ranges_.end(), ids.first,
      [](const shm::IdRange& range, std::uint64_t id) { return range.limit < id; });
  auto end = first;
  while (end != ranges_.end() && end->first <= ids.limit) {
    ids = {std::min(ids.first, end->first), std::max(ids.limit, end->limit)};
    ++end;
  }
  if (first == end) {
    ranges_.insert(first, ids);
  } else {
    *first = ids;
    ranges_.erase(std::next(first), end);
  }
}

void FoldedRanges::Reduce(std::size_t count) {
  if (ranges_.size() <= count) return;
  using Gap = std::pair<std::uint64_t, std::uint64_t>;  // its length, and where it begins
  const auto gap_before = [this](std::size_t i) {
    const std::uint64_t end = ranges_[i - 1].limit;
    return Gap{ranges_[i].first - end, end};
  };
  std::vector<Gap> gaps;
  gaps.reserve(ranges_.size() - 1);
  for (std::size_t i = 1; i < ranges_.size(); ++i) gaps.push_back(gap_before(i));
  const auto last = gaps.begin() + static_cast<std::ptrdiff_t>(ranges_.size() - count - 1);
  std::nth_element(gaps.begin(), last, gaps.end());
  std::vector<shm::IdRange> reduced{ranges_.front()};
  reduced.reserve(count);
  for (std::size_t i = 1; i < ranges_.size(); ++i) {
    if (gap_before(i) <= *last) {
      reduced.back().limit = ranges_[i].limit;
    } else {
      reduced.push_back(ranges_[i]);
    }
  }
  ranges_ = std::move(reduced);
  is_exact_ = false;
}

bool FoldedRanges::Contains(std::uint64_t id) const noexcept {
  const auto next = std::upper_bound(
      ranges_.begin(), ranges_.end(), id,
      [](std::uint64_t wanted, const shm::IdRange& range) { return wanted < range.first; });
  return next != ranges_.begin() && id < std::prev(next)->limit;
}

}  // namespace idd::daemon

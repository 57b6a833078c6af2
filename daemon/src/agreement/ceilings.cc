// SPDX-License-Identifier: Apache-2.0
#include "agreement/ceilings.h"

#include <algorithm>

#include "idd/shm/abi.h"

namespace idd::daemon {
namespace {

constexpr double kAheadSeconds = 3600;
// At least so many leases of the size asked for.
constexpr std::uint64_t kLeasesAhead = 16;
constexpr std::uint64_t kWindowsAhead = 4;
// At most this share of the ids that the tag has left.
constexpr std::uint64_t kMaxShareOfTheRest = 64;
// A raise is at most so many times the last one: a burst is not a rate.
constexpr std::uint64_t kMaxGrowth = 8;
// The next raise comes when one part in so many of the last one is left.
constexpr std::uint64_t kPartLeft = 3;

std::uint64_t Add(std::uint64_t a, std::uint64_t b) {
  a = std::min(a, shm::kMaxLimit);
  return a + std::min(b, shm::kMaxLimit - a);
}

}  // namespace

std::optional<CeilingRaise> Ceilings::RaiseFor(const CeilingNeed& need, std::int64_t now_ms) {
  const std::uint64_t end = Add(need.last, 1);
  if (need.wanted >= end || need.base > need.last) return std::nullopt;
  const std::uint64_t rest = need.last - need.base + 1;
  const std::uint64_t most = std::max(rest / kMaxShareOfTheRest, need.count);
  const std::uint64_t least_ahead =
      std::min(need.count * (need.is_window ? kWindowsAhead : kLeasesAhead), most);
  const auto [it, is_first] = growth_.try_emplace(
      need.tag, Growth{.base = need.base, .at_ms = now_ms, .ahead = least_ahead});
  Growth& growth = it->second;
  const std::uint64_t after = Add(need.base, need.count);
  const std::uint64_t least = std::min(Add(after, growth.ahead / kPartLeft), end);
  if (need.wanted >= least) return std::nullopt;
  if (!is_first && need.base > growth.base) {
    const double seconds = std::max(static_cast<double>(now_ms - growth.at_ms) / 1000, 0.1);
    const double rate = static_cast<double>(need.base - growth.base) / seconds;
    const auto lasting =
        static_cast<std::uint64_t>(need.is_window ? 0 : std::min(rate * kAheadSeconds, 1e18));
    growth.ahead = std::clamp(std::min(lasting, growth.ahead * kMaxGrowth), least_ahead, most);
  }
  growth.base = need.base;
  growth.at_ms = now_ms;
  return CeilingRaise{
      .tag = need.tag, .wanted = std::clamp(Add(after, growth.ahead), least, end), .least = least};
}

}  // namespace idd::daemon

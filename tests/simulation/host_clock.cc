// SPDX-License-Identifier: Apache-2.0
#include "host_clock.h"

#include <algorithm>
#include <cstddef>

#include "world.h"

namespace idd::simulation {
namespace {

std::int64_t UnixMs(Nanos time) noexcept { return kWorldBeganMs + time / kMillisecond; }

}  // namespace

Nanos HostClock::Now() noexcept { return World::Get().now(); }

std::int64_t HostClock::wall_ms() const noexcept { return UnixMs(Now() + steps_.back().second); }

std::int64_t HostClock::greatest_ms() const noexcept {
  Nanos greatest = Now() + steps_.back().second;
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    greatest = std::max(greatest, steps_[i].first + steps_[i - 1].second);
  }
  return UnixMs(greatest);
}

std::int64_t HostClock::LeastSince(Nanos moment) const noexcept {
  Nanos least = Now() + steps_.back().second;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const bool is_over = i + 1 < steps_.size() && steps_[i + 1].first < moment;
    if (!is_over) least = std::min(least, std::max(steps_[i].first, moment) + steps_[i].second);
  }
  return UnixMs(least);
}

}  // namespace idd::simulation

// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/ring_stats.h"

#include <atomic>

namespace idd::shm {
namespace {

// T2: an observer that sees the new word also sees T1, so O3 shows that the words may be mixed.
void StoreWord(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
  word.store(value, std::memory_order_release);  // T2, pairs with O2
}

std::uint64_t Read(const std::atomic<std::uint64_t>& word) noexcept {
  return word.load(std::memory_order_acquire);  // O2, pairs with T2
}

TagCondition ConditionOf(std::uint32_t word) noexcept {
  switch (static_cast<TagCondition>(word)) {
    case TagCondition::kQuarantined:
      return TagCondition::kQuarantined;
    case TagCondition::kDrained:
      return TagCondition::kDrained;
    case TagCondition::kServed:
      break;
  }
  return TagCondition::kServed;
}

}  // namespace

void PublishStats(RingStats& stats, const TagNumbers& numbers) noexcept {
  const std::uint64_t version = stats.version.load(std::memory_order_relaxed);  // T0: our own store
  stats.version.store(version + 1, std::memory_order_relaxed);                  // T1: T2 orders it
  StoreWord(stats.written_at_ns, numbers.written_at_ns);
  StoreWord(stats.claimed_before, numbers.claimed_before);
  StoreWord(stats.counted_from, numbers.counted_from);
  StoreWord(stats.leases, numbers.leases);
  StoreWord(stats.fallbacks, numbers.fallbacks);
  StoreWord(stats.step, numbers.step);
  StoreWord(stats.outage_tolerance_s, numbers.outage_tolerance_s);
  StoreWord(stats.max_prefetch, numbers.max_prefetch);
  StoreWord(stats.reckoned_per_1000_s, numbers.reckoned_per_1000_s);
  StoreWord(stats.quarantined_until_ns, numbers.quarantined_until_ns);
  StoreWord(stats.promised_ids, numbers.promised_ids);
  stats.condition.store(static_cast<std::uint32_t>(numbers.condition),
                        std::memory_order_release);             // T2, pairs with O2
  stats.version.store(version + 2, std::memory_order_release);  // T3, pairs with O1
}

std::optional<TagNumbers> ReadNumbers(const RingStats& stats) noexcept {
  const std::uint64_t version = stats.version.load(std::memory_order_acquire);  // O1, pairs with T3
  if (version == 0 || version % 2 != 0) return std::nullopt;
  TagNumbers numbers;
  numbers.written_at_ns = Read(stats.written_at_ns);
  numbers.claimed_before = Read(stats.claimed_before);
  numbers.counted_from = Read(stats.counted_from);
  numbers.leases = Read(stats.leases);
  numbers.fallbacks = Read(stats.fallbacks);
  numbers.step = Read(stats.step);
  numbers.outage_tolerance_s = Read(stats.outage_tolerance_s);
  numbers.max_prefetch = Read(stats.max_prefetch);
  numbers.reckoned_per_1000_s = Read(stats.reckoned_per_1000_s);
  numbers.quarantined_until_ns = Read(stats.quarantined_until_ns);
  numbers.promised_ids = Read(stats.promised_ids);
  numbers.condition =
      ConditionOf(stats.condition.load(std::memory_order_acquire));  // O2, pairs with T2
  // After every O2: a word of a later write comes with its T1, so the version differs.
  if (stats.version.load(std::memory_order_relaxed) != version) return std::nullopt;  // O3
  return numbers;
}

}  // namespace idd::shm

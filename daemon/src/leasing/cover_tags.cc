// SPDX-License-Identifier: Apache-2.0
#include "leasing/cover_tags.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "idd/base/clock.h"
#include "leasing/ceilings.h"
#include "refill/snowflake_policy.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

// The next lease of a tag that leases ranges of ids.
Result<Ceilings::Need> NeedOf(const TagRecord& record, HighWaterMarks& marks) {
  const Result<std::uint64_t> mark = marks.Get(record.tag);
  if (!mark.ok()) return mark.status();
  return Ceilings::Need{.tag = record.tag,
                        .base = std::max({record.next_id, record.used_limit, mark.value()}),
                        .count = record.mode == TagMode::kTicket ? 1 : record.refill.step,
                        .last = record.max_id,
                        .ceiling = record.ceiling.value_or(0)};
}

// The first windows of the worker ids that hosts take first.
void AddWindows(const TagRecord& record, std::size_t hosts, std::vector<Ceilings::Need>& needs) {
  const SnowflakeLayout& layout = *record.snowflake;
  const std::int64_t now_ms = WallClock::now_ms();
  if (now_ms < layout.epoch_ms || layout.TimeAt(now_ms) >= layout.time_limit()) return;
  const auto length = static_cast<std::uint64_t>(WindowLength(record.refill).count());
  const std::uint64_t units = std::max<std::uint64_t>(length / layout.unit_ms, 2);
  const std::uint64_t workers = std::min<std::uint64_t>(hosts, layout.workers());
  for (std::uint64_t worker = 0; worker < workers; ++worker) {
    needs.push_back({.tag = CounterName(record.tag, static_cast<std::uint32_t>(worker)),
                     .base = layout.FirstOf(layout.TimeAt(now_ms)),
                     .count = std::min(layout.FirstOf(units), kMaxStep),
                     .last = layout.number_limit() - 1,
                     .ceiling = 0});
  }
}

Coverage AllWait(const std::vector<std::string>& tags, std::string reason) {
  return {.waiting = tags, .reason = std::move(reason), .waits = {}};
}

}  // namespace

Result<Coverage> CoverTags(const std::vector<std::string>& tags, Store& store,
                           HighWaterMarks& marks, StoreSession& session) {
  if (MonotonicClock::now() < session.lease_from) {
    return AllWait(tags, "the database has just started, or was replaced or set back");
  }
  FenceStore* const fence = store.fence();
  if (fence == nullptr) return Coverage();
  Coverage coverage;
  if (!session.fence.may_lease()) {
    coverage = AllWait(tags, session.fence.Reason());
    coverage.waits = session.fence.Report().waits;
    return coverage;
  }
  const Result<Store::TagResults> records = store.FindTagsCached(tags);
  if (!records.ok()) return records.status();
  std::vector<Ceilings::Need> needs;
  for (const Result<TagRecord>& record : records.value()) {
    if (!record.ok()) continue;
    if (record.value().mode == TagMode::kSnowflake) {
      AddWindows(record.value(), session.fence.live_members(), needs);
      continue;
    }
    Result<Ceilings::Need> need = NeedOf(record.value(), marks);
    if (!need.ok()) return need.status();
    needs.push_back(std::move(need).value());
  }
  if (Status status = session.fence.Cover(*fence, marks, needs); !status.ok()) return status;
  std::set<std::string> waiting;
  for (const Ceilings::Need& need : needs) {
    if (need.ceiling <= need.base && need.base <= need.last) waiting.insert(ServedName(need.tag));
  }
  if (waiting.empty()) return coverage;
  coverage.waiting.assign(waiting.begin(), waiting.end());
  coverage.reason = session.fence.Reason();
  coverage.waits = session.fence.Report().waits;
  return coverage;
}

}  // namespace idd::daemon

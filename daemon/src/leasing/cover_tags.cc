// SPDX-License-Identifier: Apache-2.0
#include "leasing/cover_tags.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "idd/base/clock.h"
#include "refill/snowflake_policy.h"
#include "store/snowflake_layout.h"
#include "store/term_store.h"

namespace idd::daemon {
namespace {

// The next lease of a tag that leases ranges of ids.
Result<CeilingNeed> NeedOf(const TagRecord& record, HighWaterMarks& marks) {
  const Result<std::uint64_t> mark = marks.Get(record.tag);
  if (!mark.ok()) return mark.status();
  return CeilingNeed{.tag = record.tag,
                     .base = std::max({record.next_id, record.used_limit, mark.value()}),
                     .count = record.mode == TagMode::kTicket ? 1 : record.refill.step,
                     .last = record.max_id,
                     .ceiling = record.ceiling.value_or(0),
                     .wanted = record.wanted_ceiling};
}

// The first windows of the worker ids that hosts take first.
void AddWindows(const TagRecord& record, std::size_t hosts, std::vector<CeilingNeed>& needs) {
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
                     .is_window = true});
  }
}

Coverage AllWait(const std::vector<std::string>& tags, std::string reason) {
  return {.waiting = tags, .reason = std::move(reason), .waits = {}};
}

// Hosts that run, as far as the store knows.
Result<std::size_t> CountHosts(Store& store) {
  const Result<std::vector<HostRecord>> hosts = store.ListHosts();
  if (!hosts.ok()) return hosts.status();
  const auto count =
      std::count_if(hosts.value().begin(), hosts.value().end(),
                    [](const HostRecord& host) { return !host.has_stopped && !host.is_forgotten; });
  return std::max<std::size_t>(static_cast<std::size_t>(count), 1);
}

Result<std::vector<CeilingNeed>> NeedsOf(const Store::TagResults& records, Store& store,
                                         HighWaterMarks& marks) {
  std::vector<CeilingNeed> needs;
  std::optional<std::size_t> hosts;
  for (const Result<TagRecord>& record : records) {
    if (!record.ok()) continue;
    if (record.value().mode != TagMode::kSnowflake) {
      Result<CeilingNeed> need = NeedOf(record.value(), marks);
      if (!need.ok()) return need.status();
      needs.push_back(std::move(need).value());
      continue;
    }
    if (!hosts.has_value()) {
      const Result<std::size_t> counted = CountHosts(store);
      if (!counted.ok()) return counted.status();
      hosts = counted.value();
    }
    AddWindows(record.value(), *hosts, needs);
  }
  return needs;
}

// The counters of worker ids that no host has taken yet have ceilings and no rows.
Status ReadCeilings(TermStore& terms, std::vector<CeilingNeed>& needs) {
  std::vector<std::string> counters;
  for (const CeilingNeed& need : needs) {
    if (need.is_window) counters.push_back(need.tag);
  }
  if (counters.empty()) return Status::Ok();
  const Result<std::vector<Ceiling>> ceilings = terms.ReadCeilings(counters);
  if (!ceilings.ok()) return ceilings.status();
  for (CeilingNeed& need : needs) {
    for (const Ceiling& ceiling : ceilings.value()) {
      if (ceiling.tag != need.tag) continue;
      need.ceiling = ceiling.active;
      need.wanted = ceiling.wanted;
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Coverage> CoverTags(const std::vector<std::string>& tags, Store& store,
                           HighWaterMarks& marks, StoreSession& session) {
  if (MonotonicClock::now() < session.lease_from) {
    return AllWait(tags, "the database has just started, or was replaced or set back");
  }
  TermStore* const terms = store.terms();
  if (terms == nullptr) return Coverage();
  Coverage coverage;
  if (!session.agreement.may_lease()) {
    coverage = AllWait(tags, session.agreement.Reason());
    coverage.waits = session.agreement.Missing();
    return coverage;
  }
  const Result<Store::TagResults> records = store.FindTagsCached(tags);
  if (!records.ok()) return records.status();
  Result<std::vector<CeilingNeed>> needs = NeedsOf(records.value(), store, marks);
  if (!needs.ok()) return needs.status();
  if (Status status = ReadCeilings(*terms, needs.value()); !status.ok()) return status;
  Status status = session.agreement.Cover(*terms, marks, needs.value());
  if (!status.ok()) return status;
  std::set<std::string> waiting;
  for (const CeilingNeed& need : needs.value()) {
    if (need.Waits()) waiting.insert(ServedName(need.tag));
  }
  if (waiting.empty()) return coverage;
  coverage.waiting.assign(waiting.begin(), waiting.end());
  coverage.reason = session.agreement.Reason();
  coverage.waits = session.agreement.Missing();
  return coverage;
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "support/claim_oracle.h"

#include <algorithm>
#include <array>
#include <memory>
#include <queue>
#include <unordered_map>
#include <utility>

#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr std::size_t kMaxSentences = 10;

// Collects messages; beyond a limit it only counts them.
class Report {
 public:
  explicit Report(std::string kind) : kind_(std::move(kind)) {}
  void Add(const std::string& sentence) {
    if (++count_ <= kMaxSentences) sentences_.push_back(kind_ + ": " + sentence);
  }
  [[nodiscard]] Violations Take() {
    if (count_ > kMaxSentences) {
      sentences_.push_back(kind_ + ": " + std::to_string(count_) + " in all");
    }
    return std::move(sentences_);
  }

 private:
  std::string kind_;
  std::size_t count_ = 0;
  Violations sentences_;
};

std::string RangeText(std::uint64_t first, std::uint64_t limit) {
  return "[" + std::to_string(first) + ", " + std::to_string(limit) + ")";
}

std::string RecordText(const ClaimRecord& record) {
  return RangeText(record.first, record.first + record.count) + " claimed " +
         std::to_string(record.before_ns) + ".." + std::to_string(record.after_ns) + " ns";
}

// A set of ids: pages of bits, allocated on demand.
class IdSet {
 public:
  // False if it was already there.
  [[nodiscard]] bool Insert(std::uint64_t id) {
    const std::uint64_t page = id / kPageIds;
    if (page != page_number_ || page_ == nullptr) {
      std::unique_ptr<Page>& slot = pages_[page];
      if (slot == nullptr) slot = std::make_unique<Page>();
      page_ = slot.get();
      page_number_ = page;
    }
    std::uint64_t& word = (*page_)[id % kPageIds / 64];
    const std::uint64_t bit = std::uint64_t{1} << (id % 64);
    const bool is_new = (word & bit) == 0;
    word |= bit;
    return is_new;
  }

 private:
  static constexpr std::uint64_t kPageIds = std::uint64_t{1} << 20;
  using Page = std::array<std::uint64_t, kPageIds / 64>;

  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  Page* page_ = nullptr;
  std::uint64_t page_number_ = 0;
};

// Every claimer that has `id`, for the message about a duplicate.
std::string Holders(std::span<const Claimer> claimers, std::uint64_t id) {
  std::string text;
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) {
      if (id < record.first || id - record.first >= record.count) continue;
      text += (text.empty() ? "" : " and ") + claimer.name + " in " + RecordText(record);
    }
  }
  return text;
}

// All claimers' records, sorted by one of their times.
class TimeMerge {
 public:
  TimeMerge(std::span<const Claimer> claimers, std::uint64_t ClaimRecord::*time)
      : claimers_(claimers), time_(time), positions_(claimers.size(), 0) {
    for (std::size_t i = 0; i < claimers_.size(); ++i) Push(i);
  }

  struct Item {
    const Claimer* claimer;
    const ClaimRecord* record;
  };
  [[nodiscard]] bool empty() const { return heads_.empty(); }
  [[nodiscard]] std::uint64_t next_time() const { return heads_.top().first; }
  [[nodiscard]] Item Pop() {
    const std::size_t index = heads_.top().second;
    heads_.pop();
    const Item item{&claimers_[index], &claimers_[index].records[positions_[index]]};
    ++positions_[index];
    Push(index);
    return item;
  }

 private:
  void Push(std::size_t index) {
    const std::span<const ClaimRecord> records = claimers_[index].records;
    std::size_t& position = positions_[index];
    while (position < records.size() && records[position].count == 0) ++position;
    if (position < records.size()) heads_.emplace(records[position].*time_, index);
  }

  using Head = std::pair<std::uint64_t, std::size_t>;
  std::span<const Claimer> claimers_;
  std::uint64_t ClaimRecord::*time_;
  std::vector<std::size_t> positions_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
};

struct Granted {
  std::uint64_t first;
  std::uint64_t limit;
  const JournalLease* lease;
};

// The ids that may come from a lease: all of it, except for a tail that was handed back, which
// another lease grants again.
std::vector<Granted> GrantedRanges(std::span<const JournalLease> leases) {
  std::vector<Granted> ranges;
  for (const JournalLease& lease : leases) {
    const bool gave_back = lease.state == "returned";
    const std::uint64_t limit = gave_back ? lease.base + lease.claimed : lease.limit;
    if (lease.base < limit) ranges.push_back({lease.base, limit, &lease});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Granted& a, const Granted& b) { return a.first < b.first; });
  return ranges;
}

void CheckDisjoint(const std::vector<Granted>& ranges, Report& report) {
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first >= ranges[i - 1].limit) continue;
    report.Add("leases " + ranges[i - 1].lease->token + " " +
               RangeText(ranges[i - 1].first, ranges[i - 1].limit) + " and " +
               ranges[i].lease->token + " " + RangeText(ranges[i].first, ranges[i].limit) +
               " grant the same ids");
  }
}

// Adjacent ranges are joined, because one claim_many may span two leases.
std::vector<std::pair<std::uint64_t, std::uint64_t>> JoinRanges(
    const std::vector<Granted>& ranges) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> joined;
  for (const Granted& range : ranges) {
    if (!joined.empty() && range.first <= joined.back().second) {
      joined.back().second = std::max(joined.back().second, range.limit);
    } else {
      joined.emplace_back(range.first, range.limit);
    }
  }
  return joined;
}

std::uint64_t Number(const nlohmann::json& object, const char* key) {
  Require(object.contains(key) && object[key].is_number_unsigned(),
          std::string("no unsigned \"") + key + "\" in " + object.dump());
  return object[key].get<std::uint64_t>();
}

std::string Text(const nlohmann::json& object, const char* key) {
  Require(object.contains(key) && object[key].is_string(),
          std::string("no text \"") + key + "\" in " + object.dump());
  return object[key].get<std::string>();
}

}  // namespace

std::vector<JournalLease> ParseLeases(const nlohmann::json& lease_list, const std::string& tag) {
  Require(lease_list.contains("leases") && lease_list["leases"].is_array(),
          "no \"leases\" in " + lease_list.dump());
  std::vector<JournalLease> leases;
  for (const nlohmann::json& row : lease_list["leases"]) {
    if (Text(row, "tag") != tag) continue;
    leases.push_back({Text(row, "token"), tag, Text(row, "host"), Number(row, "base"),
                      Number(row, "limit"), Text(row, "state"), Number(row, "claimed"),
                      Number(row, "returned"), Number(row, "abandoned")});
  }
  return leases;
}

AuditRow ParseAudit(const nlohmann::json& audit, const std::string& tag) {
  Require(audit.contains("ok") && audit["ok"].is_boolean() && audit.contains("tags"),
          "not an audit: " + audit.dump());
  for (const nlohmann::json& row : audit["tags"]) {
    if (Text(row, "tag") != tag) continue;
    return {audit["ok"].get<bool>(),  Number(row, "leased"),   Number(row, "claimed"),
            Number(row, "available"), Number(row, "returned"), Number(row, "abandoned")};
  }
  throw HarnessError("no tag " + tag + " in " + audit.dump());
}

Violations CheckUnique(std::span<const Claimer> claimers) {
  Report report("duplicate");
  IdSet seen;
  std::size_t described = 0;
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) {
      for (std::uint64_t i = 0; i < record.count; ++i) {
        const std::uint64_t id = record.first + i;
        if (seen.Insert(id)) continue;
        // Finding the other claimer reads every log again, so do it only a few times.
        const bool describe = ++described <= kMaxSentences;
        report.Add("id " + std::to_string(id) + (describe ? ": " + Holders(claimers, id) : ""));
      }
    }
  }
  return report.Take();
}

Violations CheckRising(std::span<const Claimer> claimers) {
  Report report("not rising");
  for (const Claimer& claimer : claimers) {
    const ClaimRecord* previous = nullptr;
    for (const ClaimRecord& record : claimer.records) {
      if (record.count == 0) continue;
      const bool clock_ok = record.before_ns <= record.after_ns &&
                            (previous == nullptr || (previous->before_ns <= record.before_ns &&
                                                     previous->after_ns <= record.after_ns));
      if (!clock_ok) report.Add(claimer.name + ": the clock ran back at " + RecordText(record));
      if (previous != nullptr && record.first < previous->first + previous->count) {
        report.Add(claimer.name + ": " + RecordText(*previous) + ", then " + RecordText(record));
      }
      previous = &record;
    }
  }
  return report.Take();
}

Violations CheckOrder(std::span<const Claimer> claimers) {
  Report report("out of order");
  TimeMerge begun(claimers, &ClaimRecord::before_ns);
  TimeMerge ended(claimers, &ClaimRecord::after_ns);
  TimeMerge::Item highest{nullptr, nullptr};
  while (!begun.empty()) {
    const TimeMerge::Item claim = begun.Pop();
    while (!ended.empty() && ended.next_time() < claim.record->before_ns) {
      const TimeMerge::Item item = ended.Pop();
      if (highest.record == nullptr ||
          item.record->first + item.record->count > highest.record->first + highest.record->count) {
        highest = item;
      }
    }
    if (highest.record == nullptr ||
        claim.record->first >= highest.record->first + highest.record->count) {
      continue;
    }
    report.Add(claim.claimer->name + " " + RecordText(*claim.record) + " began after " +
               highest.claimer->name + " " + RecordText(*highest.record) + " had ended");
  }
  return report.Take();
}

Violations CheckLeased(std::span<const Claimer> claimers, std::span<const JournalLease> leases) {
  Report report("outside a lease");
  const std::vector<Granted> ranges = GrantedRanges(leases);
  CheckDisjoint(ranges, report);
  const auto joined = JoinRanges(ranges);
  for (const Claimer& claimer : claimers) {
    std::size_t index = 0;  // Ids rise, so the next is usually in the same range.
    for (const ClaimRecord& record : claimer.records) {
      if (record.count == 0) continue;
      if (index >= joined.size() || record.first < joined[index].first ||
          record.first >= joined[index].second) {
        const auto after =
            std::upper_bound(joined.begin(), joined.end(), record.first,
                             [](std::uint64_t id, const auto& range) { return id < range.first; });
        index = after == joined.begin() ? joined.size()
                                        : static_cast<std::size_t>(after - joined.begin()) - 1;
      }
      const bool inside = index < joined.size() && record.first >= joined[index].first &&
                          record.first + record.count <= joined[index].second;
      if (!inside) report.Add(claimer.name + " " + RecordText(record));
    }
  }
  return report.Take();
}

Violations CheckAudit(const AuditRow& audit, std::uint64_t claimed_ids,
                      std::uint64_t most_lost_ids) {
  Report report("audit");
  if (!audit.ok) report.Add("idctl says that it does not add up");
  const std::uint64_t sum = audit.claimed + audit.available + audit.returned + audit.abandoned;
  if (audit.leased != sum) {
    report.Add("leased " + std::to_string(audit.leased) + ", but the parts are " +
               std::to_string(sum));
  }
  if (audit.claimed < claimed_ids || audit.claimed - claimed_ids > most_lost_ids) {
    report.Add("claimed " + std::to_string(audit.claimed) + ", but the logs have " +
               std::to_string(claimed_ids) + " and at most " + std::to_string(most_lost_ids) +
               " can be lost");
  }
  return report.Take();
}

std::uint64_t CountIds(std::span<const Claimer> claimers) {
  std::uint64_t ids = 0;
  for (const Claimer& claimer : claimers) {
    for (const ClaimRecord& record : claimer.records) ids += record.count;
  }
  return ids;
}

std::string Join(const Violations& violations) {
  std::string text;
  for (const std::string& sentence : violations) text += sentence + "\n";
  return text;
}

}  // namespace idd::harness

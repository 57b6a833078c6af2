// SPDX-License-Identifier: Apache-2.0
#include "store/store.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "platform/logging.h"
#include "store/host_store.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {

Result<Lease> Store::TakeLease(const LeaseRequest& request) {
  Result<LeaseResults> leases = TakeLeases({request});
  if (!leases.ok()) return leases.status();
  return std::move(leases.value().front());
}

bool IsOfStore(const Status& status) noexcept {
  return status.code() == Code::kUnavailable || status.code() == Code::kSystem ||
         status.code() == Code::kIncompatible;
}

void LogInvalidRow(const Status& status) {
  log::Error("journal.row_refused",
             {{"error", status.message()}, {"action", "the lease stays active in the journal"}});
}

const char* HostCondition(const HostRecord& host) noexcept {
  if (host.is_forgotten) return "forgotten";
  if (host.has_stopped) return "stopped";
  const bool is_silent = host.silent_s > static_cast<std::uint64_t>(kHostSilentAfter.count());
  return is_silent ? "silent" : "live";
}

Result<std::string> FindHostId(const std::vector<HostRecord>& hosts,
                               const std::string& id_or_name) {
  std::string ids;
  std::string found = id_or_name;
  std::size_t count = 0;
  for (const HostRecord& host : hosts) {
    if (host.host == id_or_name) return id_or_name;
    if (host.name != id_or_name) continue;
    constexpr std::size_t kMostListed = 10;
    if (++count <= kMostListed) ids += (ids.empty() ? "" : ", ") + host.host;
    if (count == kMostListed + 1) ids += ", ...";
    found = host.host;
  }
  if (count <= 1) return found;
  return Status(Code::kInvalid, std::to_string(count) + " hosts have the name '" + id_or_name +
                                    "': " + ids + "; give the id of one of them");
}

Result<TagRecord> StoreReader::FindTag(const std::string& tag) {
  Result<TagResults> records = FindTags({tag});
  if (!records.ok()) return records.status();
  return std::move(records.value().front());
}

Result<std::vector<std::string>> StoreReader::RowsOf(const std::string& tag) {
  const Result<std::vector<WorkerRecord>> workers = ListWorkers(tag);
  if (!workers.ok()) return workers.status();
  std::vector<std::string> rows{tag};
  for (const WorkerRecord& worker : workers.value()) {
    rows.push_back(CounterName(tag, worker.worker));
  }
  return rows;
}

std::vector<LeaseSums> AddUp(const std::vector<LeaseRecord>& leases) {
  std::map<std::pair<std::string, std::string>, LeaseSums> by_name;
  for (const LeaseRecord& lease : leases) {
    LeaseSums& sums = by_name[{lease.tag, lease.host}];
    if (lease.state == LeaseState::kActive) {
      ++sums.active_leases;
      sums.active_ids += lease.ids.size();
      continue;
    }
    ++sums.ended.leases;
    sums.ended.leased += lease.ids.size();
    sums.ended.claimed += lease.claimed;
    sums.ended.returned += lease.returned;
    sums.ended.abandoned += lease.abandoned;
  }
  std::vector<LeaseSums> all;
  for (auto& [name, sums] : by_name) {
    std::tie(sums.tag, sums.host) = name;
    all.push_back(std::move(sums));
  }
  return all;
}

Result<std::vector<LeaseSums>> StoreReader::SumLeases(const std::optional<std::string>& tag) {
  const Result<std::vector<LeaseRecord>> leases =
      ListLeases({.tag = tag, .host = std::nullopt, .state = std::nullopt});
  if (!leases.ok()) return leases.status();
  return AddUp(leases.value());
}

Result<std::vector<LeaseRecord>> StoreReader::ListByIds(const std::string& tag, std::uint64_t below,
                                                        std::size_t most) {
  Result<std::vector<LeaseRecord>> leases =
      ListLeases({.tag = tag, .host = std::nullopt, .state = std::nullopt});
  if (!leases.ok()) return leases;
  std::vector<LeaseRecord>& rows = leases.value();
  std::erase_if(rows, [below](const LeaseRecord& lease) {
    return UsedLimitOf(lease) == 0 || UsedLimitOf(lease) > below;
  });
  std::stable_sort(rows.begin(), rows.end(), [](const LeaseRecord& a, const LeaseRecord& b) {
    return UsedLimitOf(a) > UsedLimitOf(b);
  });
  if (rows.size() > most) rows.resize(most);
  return leases;
}

Result<Ledger> StoreReader::ReadLists(const std::string& tag, std::size_t most) {
  Result<std::vector<LeaseRecord>> journal =
      ListLeases({.tag = tag, .host = std::nullopt, .state = LeaseState::kActive});
  if (!journal.ok()) return journal.status();
  Result<std::vector<LeaseRecord>> highest = ListByIds(tag, shm::kMaxLimit, most);
  if (!highest.ok()) return highest.status();
  for (LeaseRecord& lease : highest.value()) {
    if (lease.state != LeaseState::kActive) journal.value().push_back(std::move(lease));
  }
  std::stable_sort(journal.value().begin(), journal.value().end(),
                   [](const LeaseRecord& a, const LeaseRecord& b) { return a.seq < b.seq; });
  std::vector<TagRecord> tags;  // none if its row is invalid, which FindTag() reports
  Result<TagRecord> record = FindTag(tag);
  if (record.status().code() == Code::kUnavailable) return record.status();
  if (record.ok()) tags.push_back(std::move(record).value());
  Result<std::vector<ReturnedRange>> returned = ListReturned(tag);
  if (!returned.ok()) return returned.status();
  Result<std::vector<LeaseSums>> sums = SumLeases(tag);
  if (!sums.ok()) return sums.status();
  return Ledger{.journal = std::move(journal).value(),
                .tags = std::move(tags),
                .returned = std::move(returned).value(),
                .sums = std::move(sums).value()};
}

}  // namespace idd::daemon

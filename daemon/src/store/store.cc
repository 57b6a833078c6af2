// SPDX-License-Identifier: Apache-2.0
#include "store/store.h"

#include <utility>

#include "store/snowflake_layout.h"

namespace idd::daemon {

Result<Lease> Store::TakeLease(const LeaseRequest& request) {
  Result<LeaseResults> leases = TakeLeases({request});
  if (!leases.ok()) return leases.status();
  return std::move(leases.value().front());
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

Result<Ledger> StoreReader::ReadLists(const std::string& tag) {
  Result<std::vector<LeaseRecord>> journal =
      ListLeases({.tag = tag, .host = std::nullopt, .state = std::nullopt});
  if (!journal.ok()) return journal.status();
  std::vector<TagRecord> tags;  // none if its row is invalid, which FindTag() reports
  Result<TagRecord> record = FindTag(tag);
  if (record.status().code() == Code::kUnavailable) return record.status();
  if (record.ok()) tags.push_back(std::move(record).value());
  Result<std::vector<ReturnedRange>> returned = ListReturned(tag);
  if (!returned.ok()) return returned.status();
  return Ledger{.journal = std::move(journal).value(),
                .tags = std::move(tags),
                .returned = std::move(returned).value()};
}

}  // namespace idd::daemon

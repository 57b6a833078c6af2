// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_LEDGER_TABLE_H_
#define IDD_DAEMON_STORE_LEDGER_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sql/sql_session.h"
#include "store/store.h"

namespace idd::daemon {

// What the journal and its sums say of every host's leases (idd_lease, idd_ended, idd_total,
// idd_returned). Its methods are those of StoreReader.
//
// Thread safety: none.
class LedgerTable {
 public:
  explicit LedgerTable(SqlSession& session) : session_(session) {}

  [[nodiscard]] Result<std::vector<LeaseRecord>> ListLeases(const LeaseFilter& filter);
  [[nodiscard]] Result<std::vector<LeaseRecord>> ListByIds(const std::string& tag,
                                                           std::uint64_t below, std::size_t most);
  [[nodiscard]] Result<std::vector<ReturnedRange>> ListReturned(
      const std::optional<std::string>& tag);
  [[nodiscard]] Result<std::set<std::string>> Tags();
  [[nodiscard]] Result<std::vector<LeaseSums>> SumLeases(const std::optional<std::string>& tag);
  [[nodiscard]] Result<std::vector<FoldedOrigin>> FindFolded(const std::string& tag,
                                                             std::uint64_t id);
  [[nodiscard]] Result<std::vector<std::string>> CheckSums(const std::string& tag);

 private:
  // Leases, and the ids leased, claimed, returned and abandoned.
  using Sums = std::array<std::uint64_t, 5>;
  using SumsOfMonths = std::map<std::pair<std::string, std::string>, Sums>;  // host, month

  [[nodiscard]] Result<std::uint64_t> PlaceBefore(const std::string& since,
                                                  const std::string& table);
  [[nodiscard]] Result<SumsOfMonths> CountEnded(const std::string& tag);
  [[nodiscard]] Result<std::vector<std::string>> CompareSums(const std::string& tag);

  SqlSession& session_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_LEDGER_TABLE_H_

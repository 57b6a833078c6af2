// SPDX-License-Identifier: Apache-2.0
//
// What the stores of both dialects have in common: the tables whose SQL is written once.
#ifndef IDD_DAEMON_STORE_SQL_STORE_H_
#define IDD_DAEMON_STORE_SQL_STORE_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sql/sql_session.h"
#include "store/host_table.h"
#include "store/store.h"
#include "store/worker_table.h"

namespace idd::daemon {

class SqlStore : public Store, protected SqlSession {
 public:
  HostStore* hosts() override { return &hosts_; }

  Result<Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    Result<Ledger> ledger = Ledger();
    Status status = Snapshot([&] {
      ledger = ReadLists(tag, most);
      return ledger.status();
    });
    return status.ok() ? std::move(ledger) : Result<Ledger>(std::move(status));
  }
  Result<std::vector<HostRecord>> ListHosts() override { return hosts_.List(); }
  Result<std::vector<RecentLeases>> SumRecent(std::chrono::seconds window,
                                              const std::optional<std::string>& tag) override {
    return hosts_.SumRecent(window, tag);
  }
  Result<std::vector<WorkerRecord>> ListWorkers(const std::string& tag) override {
    return workers_.List(tag);
  }
  Result<bool> TakeWorker(const WorkerChoice& choice) override { return workers_.Take(choice); }

 protected:
  // `host` is the id of this host; `own_row` is HostTable's.
  SqlStore(Dialect dialect, const std::string& host, const std::string& own_row)
      : SqlSession(dialect), hosts_(*this, host, own_row), workers_(*this, *this, host) {}

  [[nodiscard]] WorkerTable& workers() { return workers_; }

 private:
  HostTable hosts_;
  WorkerTable workers_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQL_STORE_H_

// SPDX-License-Identifier: Apache-2.0
//
// What the stores of both dialects have in common: the tables that no lease depends on.
#ifndef IDD_DAEMON_STORE_SQL_STORE_H_
#define IDD_DAEMON_STORE_SQL_STORE_H_

#include <string>
#include <utility>

#include "sql/sql_session.h"
#include "store/store.h"

namespace idd::daemon {

class SqlStore : public Store, protected SqlSession {
 public:
  Result<Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    Result<Ledger> ledger = Ledger();
    Status status = Snapshot([&] {
      ledger = ReadLists(tag, most);
      return ledger.status();
    });
    return status.ok() ? std::move(ledger) : Result<Ledger>(std::move(status));
  }

 protected:
  explicit SqlStore(Dialect dialect) : SqlSession(dialect) {}
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_SQL_STORE_H_

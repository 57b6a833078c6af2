// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_WORKER_TABLE_H_
#define IDD_DAEMON_STORE_WORKER_TABLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sql/sql_session.h"
#include "store/store.h"

namespace idd::daemon {

// Snowflake tags: their layouts (idd_snowflake) and who owns their worker ids (idd_worker).
//
// Thread safety: none.
class WorkerTable {
 public:
  // `store` has the rows of leaf_alloc; `host` is the id of this host.
  WorkerTable(SqlSession& session, Store& store, std::string host)
      : session_(session), store_(store), host_(std::move(host)) {}

  // Of StoreReader and Store.
  [[nodiscard]] Result<std::vector<WorkerRecord>> List(const std::string& tag);
  [[nodiscard]] Result<bool> Take(const WorkerChoice& choice);

  // Whether this host leases from the counter of a worker id.
  [[nodiscard]] Result<bool> Owns(const std::string& counter);
  // Not Ok: an earlier tag of this name made its ids in another way. `used`: Store::UsedLimit().
  [[nodiscard]] Status CheckNew(const NewTag& tag, std::uint64_t used);

 private:
  // False: the choice is not what the store has.
  [[nodiscard]] Result<bool> MayTake(const WorkerChoice& choice);
  [[nodiscard]] Status TakeAsFound(const WorkerChoice& choice, bool& is_taken);

  SqlSession& session_;
  Store& store_;
  const std::string host_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_WORKER_TABLE_H_

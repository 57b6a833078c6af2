// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_LEASABLE_H_
#define IDD_TESTS_SUPPORT_LEASABLE_H_

#include <optional>
#include <string>

#include "idd/base/status.h"
#include "idd/shm/abi.h"
#include "store/mysql/mysql_store.h"
#include "store/term_store.h"
#include "support/db_server.h"
#include "support/test_environment.h"

namespace idd::daemon {

// Lets a store without a daemon, which would otherwise do this (Agreement), lease everything of all
// present and future tags: begins a term if the present one is not that of the data set, and makes
// all ceilings active in it. `root` may create triggers.
inline void MakeLeasable(MysqlStore& store, harness::DbSession& root) {
  Result<TermView> view = store.ReadTerm(std::nullopt);
  harness::Require(view.ok(), "the term cannot be read: " + view.status().message());
  const TermRow& found = view.value().row;
  if (!found.is_current) {
    const Term next = {.number = found.term.number + 1, .witness = "test.00000000"};
    const WitnessList list = {.version = 1, .asked_in = next, .names = {next.witness}};
    const Result<bool> begun = store.BeginTerm(found, next, list);
    harness::Require(begun.ok(), "no term can be begun: " + begun.status().message());
    // Another store may have been faster.
    view = store.ReadTerm(std::nullopt);
    harness::Require(view.ok() && view.value().row.is_current, "the term is not current");
  }
  const std::string most = std::to_string(shm::kMaxLimit);
  const std::string columns =
      " idd_ceiling(biz_tag, wanted, active, epoch, term_number, term_witness)";
  root.Execute(
      "CREATE TRIGGER IF NOT EXISTS lift_ceiling AFTER INSERT ON leaf_alloc FOR EACH ROW"
      " INSERT IGNORE INTO" +
      columns + " SELECT NEW.biz_tag, " + most + ", " + most +
      ", 0, number, witness FROM idd_term");
  root.Execute(
      "UPDATE idd_ceiling JOIN idd_term SET idd_ceiling.term_number = idd_term.number,"
      " idd_ceiling.term_witness = idd_term.witness");
  root.Execute("INSERT IGNORE INTO" + columns + " SELECT biz_tag, " + most + ", " + most +
               ", 0, number, witness FROM leaf_alloc JOIN idd_term");
}

inline void MakeLeasable(MysqlStore& store, const harness::DbServer& server) {
  harness::DbSession root = server.Session();
  MakeLeasable(store, root);
}

}  // namespace idd::daemon

#endif  // IDD_TESTS_SUPPORT_LEASABLE_H_

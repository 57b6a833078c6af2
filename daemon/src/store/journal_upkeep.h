// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_JOURNAL_UPKEEP_H_
#define IDD_DAEMON_STORE_JOURNAL_UPKEEP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sql/sql_session.h"
#include "store/folded_ranges.h"
#include "store/journal_store.h"
#include "store/lease.h"

namespace idd::daemon {

// Settles and folds leases that have ended, if this host is the journal's keeper.
//
// A batch finds its rows first. Each of its transactions then locks the keeper's row, so two hosts
// never change the journal at the same time, and changes nothing if that is not this host's.
//
// Thread safety: none.
class JournalUpkeep final : public JournalStore {
 public:
  JournalUpkeep(SqlSession& session, std::string host)
      : session_(session), host_(std::move(host)) {}

  Result<JournalOutcome> KeepJournal(const JournalOrder& order) override;

 private:
  // The sums of leases of one tag and host that ended in one month, and the ids that they kept.
  struct Group;

  [[nodiscard]] Status KeepBatch(const JournalOrder& order, JournalOutcome& done);
  [[nodiscard]] Result<bool> BecomeKeeper();
  [[nodiscard]] Result<std::vector<std::uint64_t>> FindDue(const JournalOrder& order,
                                                           JournalOutcome& done);
  [[nodiscard]] Status Settle(const JournalOrder& order, JournalOutcome& done);
  [[nodiscard]] Status Fold(const JournalOrder& order, JournalOutcome& done);
  [[nodiscard]] Result<std::vector<LeaseRecord>> FindFoldable(const JournalOrder& order,
                                                              JournalOutcome& done);
  [[nodiscard]] Result<FoldedRanges> ReadRanges(const Group& group, std::uint64_t& folded);
  [[nodiscard]] Status FoldGroup(const Group& group, JournalOutcome& done);
  // The first statement of a transaction, and the condition of the others; the host is ?1.
  [[nodiscard]] SqlStatement LockKeeper() const;
  [[nodiscard]] std::string IsKeeper() const;

  SqlSession& session_;
  const std::string host_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_JOURNAL_UPKEEP_H_

// SPDX-License-Identifier: Apache-2.0
//
// What becomes of leases that have ended (ADR 0028). First they are settled: moved from the table
// in which leases are taken, idd_lease, to idd_ended, and added to the sums of their tag, host and
// month in idd_total. After the retention they are folded: their rows are deleted. The sums stay,
// and so do the ranges of ids that they kept.
#ifndef IDD_DAEMON_STORE_JOURNAL_STORE_H_
#define IDD_DAEMON_STORE_JOURNAL_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "idd/base/status.h"

namespace idd::daemon {

// One batch of the journal's upkeep.
struct JournalOrder {
  std::chrono::seconds settle_after{600};           // since a lease ended, by the store's clock
  std::optional<std::chrono::seconds> retention{};  // the same; nothing: no lease is folded
  std::size_t rows = 64;                            // at most, in one transaction
  // Where the last batch of this round ended, as its outcome says.
  std::uint64_t settled_to = 0;
  std::uint64_t folded_to = 0;
};

struct JournalOutcome {
  bool is_keeper = false;  // one host at a time keeps the journal; it has not been another one
  bool is_done = false;    // this round: nothing is left to settle or to fold now
  std::uint64_t settled = 0;
  std::uint64_t folded = 0;
  std::uint64_t settled_to = 0;
  std::uint64_t folded_to = 0;
  std::chrono::nanoseconds took{};  // set by the caller that measures it
};

// Every batch is a transaction of its own, which grants no ids. If it is cut off anywhere, the
// tables are as before it or as after it, and the sums over idd_lease and idd_total are the same in
// both.
//
// Thread safety and errors: those of Store.
class JournalStore {
 public:
  JournalStore() = default;
  virtual ~JournalStore() = default;
  JournalStore(const JournalStore&) = delete;
  JournalStore& operator=(const JournalStore&) = delete;

  [[nodiscard]] virtual Result<JournalOutcome> KeepJournal(const JournalOrder& order) = 0;
};

// How long another host must have kept silent before this one becomes the journal's keeper. If two
// keep it, the sums are right nevertheless: each transaction checks the rows that it changes.
inline constexpr std::chrono::seconds kKeeperSilence(120);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_JOURNAL_STORE_H_

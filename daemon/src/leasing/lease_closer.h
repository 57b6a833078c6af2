// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_LEASE_CLOSER_H_
#define IDD_DAEMON_LEASING_LEASE_CLOSER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "leasing/lease_worker.h"
#include "restart/held_leases.h"
#include "store/store.h"

namespace idd::daemon {

// What is journalled of a lease that left its ring for good: exhausted, or abandoned.
[[nodiscard]] LeaseClosure Abandoned(const LeaseUse& use);

// Whether the store may take a tail yet that it did not take with this answer, or may have taken it
// unheard. Every other answer is the last.
[[nodiscard]] bool IsAway(const Status& status);

// The end of leases: journals how each ended, and hands tails back. What cannot be journalled now
// is kept and tried again.
//
// Ends go together, so that they take no commit from the leases of a busy host: those of a second,
// or as many as one transaction takes. What waits is noted (HeldLeases) and in Open().
//
// Thread safety: none; event loop. Store work goes through the LeaseWorker.
class LeaseCloser {
 public:
  // What the store said to a tail that was handed back; see IsAway().
  using OnAnswer = std::function<void(const LeaseUse& use, const Result<ReturnOutcome>& outcome)>;

  // `on_idle` whenever the last of what was under way has been answered.
  LeaseCloser(LeaseWorker& worker, HeldLeases& held, std::function<void()> on_idle,
              OnAnswer on_answer = {})
      : worker_(worker),
        held_(held),
        on_idle_(std::move(on_idle)),
        on_answer_(std::move(on_answer)) {}
  LeaseCloser(const LeaseCloser&) = delete;
  LeaseCloser& operator=(const LeaseCloser&) = delete;

  void Close(std::vector<LeaseClosure> closures);
  // Gives back the tail of a lease, from which no client can claim any more. While the store is
  // down it is tried again.
  void HandBack(const LeaseUse& use);
  // Gives those leases back whole that the allocator has under these tokens: an earlier idd asked
  // for them and ended before it knew the answer. Tries until the store has answered.
  void HandBackUnanswered(AskedLeases asked);
  // Journals what waits, and tries again what could not be journalled. To be called once a second.
  void Flush();
  // From now on nothing waits to go together with others.
  void Hurry() { is_hurried_ = true; }

  // It is known of every lease that an earlier idd asked for whether it was granted, and those are
  // on their way back. Before, nothing is to be leased: they are the newest.
  [[nodiscard]] bool knows_all() const noexcept { return unanswered_.empty(); }
  // Nothing of the tag is to be leased before its tails are back: they lie below.
  [[nodiscard]] bool HasUnreturned(const std::string& tag) const;
  // Ends of leases of the tag, or with kWholeHost of any, are not in the journal yet.
  [[nodiscard]] bool HasOpenEnds(const std::string& scope) const;
  // Nothing is under way to the store. What could not be journalled may be left.
  [[nodiscard]] bool idle() const noexcept {
    return returning_.empty() && !flushing_ && !looking_up_;
  }
  // Leases that the journal may still have as active, by token; those on their way back to the
  // store, and those that it has not taken yet, are active until it has them.
  [[nodiscard]] std::map<std::string, LeaseClosure, std::less<>> Open() const;

 private:
  void OnHandedBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome);
  [[nodiscard]] bool IsNews(const LeaseUse& use, const Result<ReturnOutcome>& outcome);
  void JournalAll();
  void JournalSome();
  void LookUpUnanswered();
  void ReturnAgain();

  LeaseWorker& worker_;
  HeldLeases& held_;
  const std::function<void()> on_idle_;
  const OnAnswer on_answer_;
  // Not yet closed in the journal, by token.
  std::map<std::string, LeaseClosure, std::less<>> closing_;
  // Whose tails are on their way back, by token.
  std::map<std::string, LeaseClosure, std::less<>> returning_;
  // Whose tails the store did not take.
  std::vector<LeaseUse> unreturned_;
  std::set<std::string, std::less<>> reported_unavailable_;  // of unreturned_, by token
  MonotonicTime journalled_at_{};                            // when ends were last on their way
  std::size_t due_ = 0;  // of closing_: how many wait for no others
  bool is_hurried_ = false;
  bool flushing_ = false;
  AskedLeases unanswered_;
  bool looking_up_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_LEASE_CLOSER_H_

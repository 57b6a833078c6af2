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

// The journal entry of a lease that has left its ring for good: exhausted or abandoned.
[[nodiscard]] LeaseClosure Abandoned(const LeaseUse& use);

// Whether to hand a tail back again after this answer: the store may take it later, or may have
// taken it and the answer was lost. After any other answer there is no further try.
[[nodiscard]] bool IsWorthRetrying(const Status& status);

// Ends leases: journals how each ended, and hands tails back. It keeps what cannot be journalled
// now and tries again.
//
// The ends that come within a second, or as many as fit one transaction, are journalled together,
// so that most commits of a busy host are for its leases. If the store refuses one of them, it has
// refused all; they are halved until the one is found, and only that one waits. Waiting ends are
// recorded in HeldLeases and listed by Open().
//
// It has more members than a class should: an end goes from one of its lists to the next, and a
// lease is in one of them at a time.
//
// Thread safety: none; event loop. Store work goes through the LeaseWorker.
class LeaseCloser {
 public:
  // The store's answer to a tail that was handed back; see IsWorthRetrying().
  using OnAnswer = std::function<void(const LeaseUse& use, const Result<ReturnOutcome>& outcome)>;

  // Calls `on_idle` whenever everything that was under way has been answered.
  LeaseCloser(LeaseWorker& worker, HeldLeases& held, std::function<void()> on_idle,
              OnAnswer on_answer = {});
  LeaseCloser(const LeaseCloser&) = delete;
  LeaseCloser& operator=(const LeaseCloser&) = delete;

  void Close(std::vector<LeaseClosure> closures);
  // Gives back the tail of a lease that no client can claim from any more. Tries again while the
  // store is down.
  void HandBack(const LeaseUse& use);
  // Gives back, whole, the leases that the allocator has under these tokens: an earlier idd asked
  // for them and ended before it got the answer. Tries until the store has answered.
  void HandBackUnanswered(AskedLeases asked);
  // Journals the waiting ends and repeats failed tries. To be called once a second.
  void Flush();
  // From now on no end waits for others.
  void Hurry() { is_hurried_ = true; }

  // True once the store has answered for every lease that an earlier idd asked for; those that it
  // granted are on their way back. Until then nothing may be leased, because their ids are the
  // newest and would lie below those of a new lease.
  [[nodiscard]] bool knows_all() const noexcept { return unanswered_.empty(); }
  // While true, nothing may be leased for the tag: its tails are below the ids of a new lease.
  [[nodiscard]] bool HasUnreturned(const std::string& tag) const;
  // Whether ends of the tag's leases, or with kWholeHost of any lease, are not in the journal yet.
  [[nodiscard]] bool HasOpenEnds(const std::string& scope) const;
  // True if nothing is under way to the store. Ends that could not be journalled may be left.
  [[nodiscard]] bool idle() const noexcept {
    return returning_.empty() && !flushing_ && !looking_up_;
  }
  // Whether an end is not in the journal yet that no try under way is about to bring there.
  [[nodiscard]] bool HasFailed() const noexcept {
    return idle() && !(closing_.empty() && unreturned_.empty() && unanswered_.empty());
  }
  // Whether the store was open in the last try and refused a tail, while one is left of a tag of
  // which it has refused none: after a failure, the store counts as down for a moment.
  [[nodiscard]] bool HasUntried() const;
  // How many leases the store has ended so far.
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  // Leases that the journal may still have as active, by token. Leases on their way back to the
  // store, or not taken yet, stay active until the store has them.
  [[nodiscard]] std::map<std::string, LeaseClosure, std::less<>> Open() const;

 private:
  void OnHandedBack(const LeaseUse& use, const Result<ReturnOutcome>& outcome);
  [[nodiscard]] bool IsNews(const LeaseUse& use, const Result<ReturnOutcome>& outcome);
  void JournalAll();
  void JournalSome();
  [[nodiscard]] std::vector<LeaseClosure> NextEnds();
  void OnJournalled(const std::vector<LeaseClosure>& batch, const Status& status);
  void LookUpUnanswered();
  void ReturnAgain();

  LeaseWorker& worker_;
  HeldLeases& held_;
  const std::function<void()> on_idle_;
  const OnAnswer on_answer_;
  // Leases that are not closed in the journal yet, by token.
  std::map<std::string, LeaseClosure, std::less<>> closing_;
  // Leases whose tails are on their way back, by token.
  std::map<std::string, LeaseClosure, std::less<>> returning_;
  // Leases whose tails the store did not take.
  std::vector<LeaseUse> unreturned_;
  std::set<std::string, std::less<>> refused_;  // tags of those that it refused while it was open
  bool has_refused_ = false;                    // one in this try
  std::set<std::string, std::less<>> reported_unavailable_;  // of unreturned_, by token
  MonotonicTime journalled_at_{};                            // when ends were last sent
  std::size_t due_ = 0;  // how many of closing_ are journalled without a wait for others
  std::size_t most_at_once_;
  // Ends that the store refused alone, by token. One after the other is tried again, one a second.
  std::set<std::string, std::less<>> refused_ends_;
  std::string tried_last_;
  bool may_try_refused_ = false;
  std::uint64_t ended_ = 0;
  bool is_hurried_ = false;
  bool flushing_ = false;
  AskedLeases unanswered_;
  bool looking_up_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_LEASE_CLOSER_H_

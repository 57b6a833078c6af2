// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_JOURNAL_KEEPER_H_
#define IDD_DAEMON_LEASING_JOURNAL_KEEPER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "leasing/lease_worker.h"
#include "metrics/metric_families.h"
#include "platform/event_loop.h"
#include "store/journal_store.h"

namespace idd::daemon {

// Keeps the allocator's journal short, if no other host does: in rounds, and each round in batches
// with pauses. JournalStore says what a batch does. It has a connection and a thread of its own, so
// that no lease waits for a batch. A SQLite file has one writer at a time; there the lease worker
// does it, in smaller batches with longer pauses.
//
// Thread safety: none; event loop.
class JournalKeeper {
 public:
  // Opens a separate connection, on the keeper's thread. Null: the lease worker's store is used.
  using OpenStore = std::function<Result<std::unique_ptr<Store>>()>;

  JournalKeeper(EventLoop& loop, LeaseWorker& worker,
                std::optional<std::chrono::seconds> retention);
  JournalKeeper(const JournalKeeper&) = delete;
  JournalKeeper& operator=(const JournalKeeper&) = delete;

  void Start();
  void Stop();
  // Count from the next batch on. Without a function that opens a connection, the lease worker's
  // store is used.
  void SetRetention(std::optional<std::chrono::seconds> retention) { retention_ = retention; }
  void SetOpenStore(OpenStore open);
  [[nodiscard]] bool is_keeper() const noexcept { return is_keeper_; }
  void AddFamilies(FamilyBuilder& families) const;

 private:
  // On the thread.
  struct Connection {
    std::unique_ptr<Store> store;
    std::uint64_t number = 0;  // of the function that opened it
  };

  void RunBatch();
  void RunOnWorker();
  void RunOnThread();
  void OnBatch(const Result<JournalOutcome>& outcome);
  void EndRound(std::chrono::seconds pause);
  [[nodiscard]] std::chrono::seconds BetweenRounds() const;

  EventLoop& loop_;
  LeaseWorker& worker_;
  OpenStore open_;
  std::uint64_t open_number_ = 0;
  std::optional<std::chrono::seconds> retention_;
  Timer timer_;
  bool is_stopped_ = false;
  bool is_keeper_ = false;
  bool has_connection_ = false;  // of its own
  std::uint64_t settled_ = 0;
  std::uint64_t folded_ = 0;
  // The present round.
  JournalOrder order_;
  MonotonicTime settles_since_{};
  std::chrono::seconds next_try_{0};  // the pause after the last failure; 0: a round went well
  std::uint64_t folded_now_ = 0;

  Connection connection_;               // the thread's
  std::unique_ptr<WorkThread> thread_;  // last: it ends before the rest goes
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_JOURNAL_KEEPER_H_

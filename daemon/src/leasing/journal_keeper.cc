// SPDX-License-Identifier: Apache-2.0
#include "leasing/journal_keeper.h"

#include <algorithm>
#include <utility>

#include "metrics/metric_definitions.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

// Leases that have ended are looked at in the table that they were taken in for so long.
constexpr std::chrono::seconds kSettleAfter(600);
constexpr std::chrono::seconds kBetweenRounds(60);
constexpr std::chrono::seconds kBeforeFirstRound(1);
// After a batch that failed, as before the store is open. It doubles with each such batch until a
// round ends well.
constexpr std::chrono::seconds kBeforeNextTry(1);
// A batch is never followed at once by the next.
constexpr std::chrono::milliseconds kLeastPause(5);

// Of a connection of its own, and of the lease worker.
constexpr std::size_t kRows = 200;
constexpr std::size_t kRowsOfWorker = 32;
// The pause after a batch, in times of what it took. Beside a connection of its own, a lease is
// slower because the server is busy; beside the worker's, it waits for the batch.
constexpr int kPauses = 3;
constexpr int kPausesOfWorker = 9;

Result<JournalOutcome> Keep(Store& store, const JournalOrder& order) {
  JournalStore* const journal = store.journal();
  if (journal == nullptr) return JournalOutcome{.is_done = true};
  const MonotonicTime began = MonotonicClock::now();
  Result<JournalOutcome> outcome = journal->KeepJournal(order);
  if (outcome.ok()) outcome.value().took = MonotonicClock::now() - began;
  return outcome;
}

}  // namespace

JournalKeeper::JournalKeeper(EventLoop& loop, LeaseWorker& worker,
                             std::optional<std::chrono::seconds> retention)
    : loop_(loop), worker_(worker), retention_(retention), timer_(loop) {}

void JournalKeeper::Start() {
  timer_.After(kBeforeFirstRound, [this] { RunBatch(); });
}

void JournalKeeper::Stop() {
  is_stopped_ = true;
  timer_.Cancel();
}

void JournalKeeper::SetOpenStore(OpenStore open) {
  open_ = std::move(open);
  ++open_number_;
}

// A short retention is for trying it out.
std::chrono::seconds JournalKeeper::BetweenRounds() const {
  return std::clamp(retention_.value_or(kBetweenRounds), std::chrono::seconds(1), kBetweenRounds);
}

void JournalKeeper::RunBatch() {
  order_.retention = retention_;
  order_.settle_after = std::min(kSettleAfter, retention_.value_or(kSettleAfter));
  if (open_) return RunOnThread();
  has_connection_ = false;
  RunOnWorker();
}

void JournalKeeper::RunOnWorker() {
  order_.rows = kRowsOfWorker;
  worker_.Submit<JournalOutcome>(
      [order = order_](Store& store, HighWaterMarks&) { return Keep(store, order); },
      [this](const Result<JournalOutcome>& outcome) { OnBatch(outcome); });
}

void JournalKeeper::RunOnThread() {
  order_.rows = kRows;
  if (thread_ == nullptr) thread_ = std::make_unique<WorkThread>();
  thread_->Post([this, open = open_, number = open_number_, order = order_] {
    if (connection_.number != number) connection_ = {};
    if (connection_.store == nullptr) {
      Result<std::unique_ptr<Store>> opened = open();
      if (!opened.ok()) {
        return loop_.Post([this, status = opened.status()] { OnBatch(status); });
      }
      connection_ = {.store = std::move(opened).value(), .number = number};
    }
    if (connection_.store == nullptr) {
      return loop_.Post([this] {
        has_connection_ = false;
        if (!is_stopped_) RunOnWorker();
      });
    }
    Result<JournalOutcome> outcome = Keep(*connection_.store, order);
    if (!outcome.ok()) connection_ = {};
    loop_.Post([this, outcome = std::move(outcome)] {
      has_connection_ = true;
      OnBatch(outcome);
    });
  });
}

void JournalKeeper::OnBatch(const Result<JournalOutcome>& outcome) {
  if (is_stopped_) return;
  if (!outcome.ok()) {
    is_keeper_ = false;
    // That the store is down is logged where it is noticed.
    if (outcome.status().code() != Code::kUnavailable) {
      log::Warning("journal.not_kept", {{"error", outcome.status().message()}});
    }
    next_try_ = std::min(std::max(kBeforeNextTry, 2 * next_try_), BetweenRounds());
    return EndRound(next_try_);
  }
  is_keeper_ = outcome.value().is_keeper;
  settled_ += outcome.value().settled;
  folded_ += outcome.value().folded;
  folded_now_ += outcome.value().folded;
  if (!is_keeper_ || outcome.value().is_done) {
    next_try_ = {};
    return EndRound(BetweenRounds());
  }
  order_.settled_to = outcome.value().settled_to;
  order_.folded_to = outcome.value().folded_to;
  // A round that folds much may take hours.
  if (MonotonicClock::now() - settles_since_ >= BetweenRounds()) {
    order_.settled_to = 0;
    settles_since_ = MonotonicClock::now();
  }
  const int pauses = has_connection_ ? kPauses : kPausesOfWorker;
  timer_.After(std::max<std::chrono::nanoseconds>(kLeastPause, outcome.value().took * pauses),
               [this] { RunBatch(); });
}

void JournalKeeper::EndRound(std::chrono::seconds pause) {
  if (folded_now_ > 0) log::Info("journal.folded", {{"leases", folded_now_}});
  folded_now_ = 0;
  order_ = {};
  settles_since_ = MonotonicClock::now() + pause;
  timer_.After(pause, [this] { RunBatch(); });
}

void JournalKeeper::AddFamilies(FamilyBuilder& families) const {
  families.Add(metric::kJournalKeeper, is_keeper_ ? 1 : 0);
  families.Add(metric::kJournalSettled, static_cast<double>(settled_));
  families.Add(metric::kJournalFolded, static_cast<double>(folded_));
}

}  // namespace idd::daemon

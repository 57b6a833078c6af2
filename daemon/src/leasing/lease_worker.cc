// SPDX-License-Identifier: Apache-2.0
#include "leasing/lease_worker.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "store/host_store.h"
#include "store/term_store.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause(50);
constexpr milliseconds kLongestPause(1000);
// A generation that no store has.
constexpr std::uint64_t kNoGeneration = std::numeric_limits<std::uint64_t>::max();

// Whether a missing or empty database may be created. A host that knows of granted ids must not:
// the new database would grant them again. Nor may a host that has used this URL before, because
// its database may be missing only for a moment.
Result<bool> MayCreate(HighWaterMarks& marks, const std::string& url) {
  const Result<std::string> known = marks.Incarnation();
  if (!known.ok()) return known.status();
  if (known.value().empty()) return true;
  const Result<std::string> database = marks.Database();
  if (!database.ok()) return database.status();
  if (database.value() == url) return false;
  const Result<std::vector<TagMark>> granted = marks.All();
  if (!granted.ok()) return granted.status();
  const Result<std::vector<TagMark>> noted = marks.Ceilings();
  if (!noted.ok()) return noted.status();
  return granted.value().empty() && noted.value().empty();
}

// Whatever keeps the store from being opened is a failure of the store.
Status AsFailureOfStore(Status status) {
  if (status.ok() || IsOfStore(status)) return status;
  return {Code::kUnavailable, status.message()};
}

}  // namespace

LeaseWorker::LeaseWorker(std::unique_ptr<Store> store, std::unique_ptr<HighWaterMarks> marks,
                         Post post)
    : post_(std::move(post)), store_(std::move(store)), marks_(std::move(marks)) {
  session_.meter = &meter_;
}

LeaseWorker::~LeaseWorker() { Stop(); }

void LeaseWorker::Assume(StoreSession session) {
  session_ = std::move(session);
  session_.meter = &meter_;
}

void LeaseWorker::Start(Recovery recovery, HealthChange on_health) {
  recovery_ = std::move(recovery);
  on_health_ = std::move(on_health);
  health_.since = MonotonicClock::now();
  const std::lock_guard lock(mutex_);
  thread_ = std::make_unique<WorkThread>();
  for (std::size_t i = 0; i < jobs_.size(); ++i) thread_->Post([this] { RunNext(); });
}

void LeaseWorker::Stop() {
  if (thread_ == nullptr) return;
  thread_->Post([this] { LeaveStore(); });
  thread_->Finish();
}

void LeaseWorker::DropQueued() {
  const std::lock_guard lock(mutex_);
  jobs_.clear();
}

void LeaseWorker::CheckStore() {
  {
    const std::lock_guard lock(mutex_);
    if (!jobs_.empty()) return;
  }
  Enqueue([this] { Observe(Prepare()); });
}

void LeaseWorker::Replace(std::unique_ptr<Store> store) {
  // A std::function must be copyable, and a unique_ptr is not.
  Enqueue([this, handed = std::make_shared<std::unique_ptr<Store>>(std::move(store))] {
    LeaveStore();
    session_.agreement.Reset();
    store_ = std::move(*handed);
    opened_ = false;
    failures_ = 0;  // the other store's failures do not count for this one
    session_.generation = kNoGeneration;
    Observe(Prepare());
  });
}

void LeaseWorker::MakeDatabase(std::function<void(Result<bool>)> done) {
  Enqueue([this, done = std::move(done)] {
    const Result<bool> made = OpenOrMake();
    Observe(made.status());
    post_([done, made] { done(made); });
  });
}

void LeaseWorker::Enqueue(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  if (thread_ != nullptr) thread_->Post([this] { RunNext(); });
}

void LeaseWorker::RunNext() {
  std::function<void()> job;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return;  // dropped
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  job();
}

// By now this host's leases are handed back.
void LeaseWorker::LeaveStore() {
  if (!opened_) return;
  if (TermStore* const terms = store_->terms()) session_.agreement.Leave(*terms, *marks_);
  if (HostStore* const hosts = store_->hosts()) static_cast<void>(hosts->NoteStop());
}

Status LeaseWorker::Prepare() { return AsFailureOfStore(OpenAndRecover()); }

Status LeaseWorker::OpenAndRecover() {
  if (!health_.up && failures_ > 0 && MonotonicClock::now() < health_.next_try) {
    // The error is another job's, perhaps about that job's tag.
    return {Code::kUnavailable, "the store is down; last error: " + health_.last_error};
  }
  if (opened_ && store_->CheckCurrent().ok()) {
    const Result<bool> looked = LookAtTerm();
    if (looked.ok() && looked.value()) return Status::Ok();
    if (looked.ok()) return recovery_(*store_, *marks_, session_);
  }
  opened_ = false;
  const Result<bool> may_create = MayCreate(*marks_, store_->DisplayUrl());
  if (!may_create.ok()) return may_create.status();
  if (!may_create.value()) store_->RequireExisting();
  return OpenStore();
}

Status LeaseWorker::OpenStore() {
  if (Status status = store_->Open(); !status.ok()) return status;
  if (Status status = recovery_(*store_, *marks_, session_); !status.ok()) return status;
  opened_ = true;
  return Status::Ok();
}

// A database that is there is used as it is. The first try also rules out that another endpoint has
// one.
Result<bool> LeaseWorker::OpenOrMake() {
  health_.next_try = {};
  if (Prepare().ok()) return false;
  store_->AllowNew();
  Status status = AsFailureOfStore(OpenStore());
  return status.ok() ? Result<bool>(true) : Result<bool>(std::move(status));
}

// Whether the store may be used as it is.
Result<bool> LeaseWorker::LookAtTerm() {
  TermStore* const terms = store_->terms();
  if (terms == nullptr) return true;
  Result<bool> looked = session_.agreement.Look(*terms, *marks_);
  AgreementReport report = session_.agreement.Report();
  if (report != health_.agreement) {
    health_.agreement = std::move(report);
    if (health_.up) Publish();
  }
  return looked;
}

void LeaseWorker::Observe(const Status& status) {
  const MonotonicTime now = MonotonicClock::now();
  if (!IsOfStore(status)) {
    failures_ = 0;
    if (health_.up) return;
    health_ = {.up = true,
               .since = now,
               .last_error = "",
               .next_try = now,
               .agreement = session_.agreement.Report()};
    Publish();
    return;
  }
  if (!health_.up && failures_ > 0 && now < health_.next_try) return;  // not tried
  if (health_.up || failures_ == 0) health_.since = now;
  ++failures_;
  meter_.failures.Increment();
  opened_ = false;
  health_.up = false;
  health_.last_error = status.message();
  health_.next_try = now + NextPause();
  Publish();  // after each failure: waiting tags plan their next try by next_try
}

void LeaseWorker::Publish() {
  post_([this, health = health_] { on_health_(health); });
}

milliseconds LeaseWorker::NextPause() {
  const int doublings = std::min(failures_ - 1, 10);
  const milliseconds pause = std::min(kFirstPause * (1 << doublings), kLongestPause);
  // A random time from half the pause to all of it, so that the hosts of a store that comes back do
  // not all call at once.
  std::uniform_int_distribution<std::int64_t> spread(pause.count() / 2, pause.count());
  return milliseconds(spread(jitter_));
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "worker_id_hosts.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "forwarding_store.h"
#include "refill/snowflake_policy.h"
#include "support/store_case.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

constexpr std::int64_t kMostSkewMs = 300;
constexpr std::int64_t kSetBackMs = 10'000;
constexpr std::int64_t kLiftMs = 300'000;

bool Contains(const Status& status, const char* text) {
  return status.message().find(text) != std::string::npos;
}

}  // namespace

// Reports the changes of owner, which the planner decides on.
class WorkerIdHost::WatchedStore : public ForwardingStore {
 public:
  WatchedStore(std::unique_ptr<Store> store, const WorkerIdHost& host)
      : ForwardingStore(std::move(store)), host_(host) {}

  Result<bool> TakeWorker(const WorkerChoice& choice) override {
    WorkerIdRun& run = host_.run_;
    WorkerTake take{.worker = choice.worker,
                    .host = host_.name_,
                    .owner = choice.owner,
                    .now = host_.NumberAt(host_.NowMs()),
                    .begin = run.oracle.Tick()};
    Result<bool> taken = ForwardingStore::TakeWorker(choice);
    take.end = run.oracle.Tick();
    take.is_certain = taken.ok();
    if (taken.ok() && !taken.value()) {
      ++run.tally.lost;
      return taken;
    }
    run.oracle.Add(take);
    ++run.tally.takes;
    if (taken.ok() && choice.owner.has_value() && *choice.owner != host_.name_) {
      ++run.tally.changes;
    }
    return taken;
  }
  // The store's clock is as right as the hosts' that have no skew.
  Result<std::optional<StoreFacts::Clock>> CompareClocks() override {
    Result<std::optional<StoreFacts::Clock>> clock = ForwardingStore::CompareClocks();
    if (clock.ok() && clock.value().has_value()) clock.value()->store_ms = host_.run_.clock_ms;
    return clock;
  }

 private:
  const WorkerIdHost& host_;
};

WorkerIdHost::WorkerIdHost(WorkerIdRun& run, std::string name, std::uint64_t seed)
    : run_(run), name_(std::move(name)), random_(seed), marks_(std::make_unique<FakeMarks>()) {}

WorkerIdHost::~WorkerIdHost() = default;

std::uint64_t WorkerIdHost::Between(std::uint64_t least, std::uint64_t most) {
  return std::uniform_int_distribution<std::uint64_t>(least, most)(random_);
}

std::uint64_t WorkerIdHost::NumberAt(std::int64_t unix_ms) const {
  const SnowflakeLayout& layout = *run_.tag.snowflake;
  return layout.FirstOf(layout.TimeAt(unix_ms));
}

void WorkerIdHost::OnError(const Status& status, const char* what) {
  if (status.code() == Code::kUnavailable || status.code() == Code::kTimeout) {
    ++run_.tally.unknown;
  } else {
    run_.oracle.Fail(name_ + " cannot " + what + ": " + status.message());
  }
}

bool WorkerIdHost::Open() {
  if (store_ != nullptr && store_->CheckCurrent().ok()) return true;
  if (store_ == nullptr) {
    store_ = std::make_unique<WatchedStore>(run_.make_store(name_), *this);
    was_open_ = false;
  }
  Status status;
  const bool is_over = harness::WaitUntil(harness::Patience(std::chrono::minutes(2)), [&] {
    status = store_->Open();
    if (status.ok()) status = Recover();
    if (status.code() != Code::kUnavailable && status.code() != Code::kTimeout) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return run_.oracle.has_failed();
  });
  if (!status.ok()) {
    run_.oracle.Fail(name_ + " cannot open its store" + (is_over ? ": " : " in time: ") +
                     status.message());
    return false;
  }
  if (std::exchange(was_open_, true)) ++run_.tally.reopened;
  return true;
}

// As leasing/recovery.h, but without a witness's notes: the server forgets nothing.
Status WorkerIdHost::Recover() {
  if (Status status = ArriveAtTerm(); !status.ok()) return status;
  HostMemory memory;
  memory.marks = marks_->All().value();
  std::vector<std::string> held;
  for (const Lease& lease : held_) {
    memory.held.push_back(lease);
    held.push_back(lease.token);
  }
  const Result<Reconciliation> reconciled = store_->Reconcile(memory);
  if (!reconciled.ok()) return reconciled.status();
  if (!reconciled.value().restored.empty() || !reconciled.value().lifted.empty()) {
    run_.oracle.Fail(name_ + " found that the store had forgotten leases");
  }
  return store_->AbandonActive(held).status();
}

// Begins a term if the present one is not that of the data set, as after a restart of the server.
Status WorkerIdHost::ArriveAtTerm() {
  TermStore* const terms = store_->terms();
  if (terms == nullptr) return Status::Ok();
  opened_.clear();
  for (;;) {
    Result<TermView> view = terms->ReadTerm(std::nullopt);
    if (!view.ok()) return view.status();
    term_ = view.value().row;
    if (term_.is_current) {
      return terms->Activate(term_, 0, view.value().epoch).status();
    }
    const Term next = {.number = term_.term.number + 1, .witness = name_ + ".00000000"};
    const WitnessList list = {.version = 1, .asked_in = next, .names = {next.witness}};
    const Status begun = terms->BeginTerm(term_, next, list).status();
    if (!begun.ok()) return begun;
  }
}

// Lets all ids of the counter be leased: witness_test.cc is about ceilings.
Status WorkerIdHost::OpenCounter(const std::string& counter) {
  TermStore* const terms = store_->terms();
  if (terms == nullptr || opened_.contains(counter)) return Status::Ok();
  const Result<std::uint64_t> epoch =
      terms->Raise({{.tag = counter, .wanted = shm::kMaxLimit, .least = shm::kMaxLimit}});
  if (!epoch.ok()) return epoch.status();
  if (const Status active = terms->Activate(term_, 0, epoch.value()).status(); !active.ok()) {
    return active;
  }
  opened_.insert(counter);
  return Status::Ok();
}

void WorkerIdHost::Step() {
  ++run_.tally.steps;
  run_.clock_ms +=
      static_cast<std::int64_t>(Between(0, static_cast<std::uint64_t>(2 * run_.step_ms)));
  if (!Open()) return;
  PassTime();
  const std::uint64_t dice = Between(1, 200);
  if (dice <= 140) {
    LeaseAWindow();
  } else if (dice <= 180) {
    Stop();
  } else if (dice <= 199) {
    Crash();
  } else {
    Lift();
  }
}

void WorkerIdHost::PassTime() {
  if (IsOneOf(20)) {
    skew_ms_ = static_cast<std::int64_t>(Between(0, 2 * kMostSkewMs)) - kMostSkewMs;
    if (IsOneOf(10)) skew_ms_ -= kSetBackMs;
  }
  CloseOver();
}

// Closes windows that are over, as far as the clock has passed them.
void WorkerIdHost::CloseOver() {
  std::vector<LeaseClosure> closures;
  while (!held_.empty() && held_.front().ids.limit <= NumberAt(NowMs())) {
    const Lease& lease = held_.front();
    closures.push_back({.token = lease.token,
                        .tag = lease.tag,
                        .state = LeaseState::kExhausted,
                        .claimed = lease.ids.size()});
    held_.pop_front();
  }
  if (closures.empty()) return;
  if (const Status status = store_->CloseLeases(closures); !status.ok()) OnError(status, "close");
}

bool WorkerIdHost::HoldsEnough() const {
  const SnowflakeLayout& layout = *run_.tag.snowflake;
  const auto length = static_cast<std::uint64_t>(WindowLength(run_.tag.refill).count());
  const std::uint64_t now = NumberAt(NowMs());
  return floor_ > now + layout.FirstOf((length - length / 4) / layout.unit_ms);
}

void WorkerIdHost::LeaseAWindow() {
  for (int plans = 0; plans < 2 && !HoldsEnough(); ++plans) {
    std::optional<WindowPlan> plan = Plan();
    if (!plan.has_value()) return;
    if (plan->request.has_value()) {
      Take(*plan->request);
      return;
    }
    if (plan->counter.empty()) {
      ++run_.tally.waits;
      return;
    }
    HandBack();
    counter_ = std::move(plan->counter);
    if (IsOneOf(5)) return;  // it owns a worker id and has no window, perhaps for long
  }
}

std::optional<WindowPlan> WorkerIdHost::Plan() {
  const WindowOrder order{
      .tag = run_.tag.tag, .counter = counter_, .token = TestToken(++run_.tokens), .floor = floor_};
  Result<WindowPlan> plan = PlanWindow(order, run_.tag, NowMs(), *store_, *marks_);
  if (plan.ok()) return std::move(plan).value();
  if (Contains(plan.status(), "worker ids are in use")) {
    ++run_.tally.all_in_use;
  } else if (!Contains(plan.status(), "other hosts take worker ids at the same time")) {
    OnError(plan.status(), "plan");
  }
  return std::nullopt;
}

bool WorkerIdHost::Take(const LeaseRequest& request) {
  if (const Status opened = OpenCounter(request.tag); !opened.ok()) {
    OnError(opened, "raise a ceiling");
    return false;
  }
  WorkerGrant grant{.worker = ParseCounterName(request.tag)->worker,
                    .host = name_,
                    .token = request.token,
                    .begin = run_.oracle.Tick()};
  Result<Store::LeaseResults> leases = store_->TakeLeases({request});
  grant.end = run_.oracle.Tick();
  const Status status = leases.ok() ? leases.value().front().status() : leases.status();
  if (Contains(status, "does not own")) {
    ++run_.tally.not_owner;
    return false;
  }
  if (!status.ok()) {
    OnError(status, "lease");
    return false;
  }
  Lease lease = std::move(leases.value().front()).value();
  grant.ids = lease.ids;
  run_.oracle.Add(grant);
  ++run_.tally.leases;
  if (lease.ids.first < std::max(floor_, request.floor)) {
    run_.oracle.Fail(name_ + " was given numbers below those that it has used");
  }
  static_cast<void>(marks_->Raise(lease.tag, lease.ids.limit));
  floor_ = lease.ids.limit;
  held_.push_back(std::move(lease));
  return true;
}

void WorkerIdHost::HandBack() {
  // Bursts may have used numbers that are ahead of the clock.
  const SnowflakeLayout& layout = *run_.tag.snowflake;
  std::uint64_t used = NumberAt(NowMs()) + Between(0, layout.FirstOf(layout.max_ahead_units()));
  if (IsOneOf(4)) used = 0;  // nothing was claimed
  std::uint64_t end = 0;
  for (; !held_.empty(); held_.pop_back()) {
    const Lease& lease = held_.back();
    end = std::max(end, std::clamp(used, lease.ids.first, lease.ids.limit));
    if (!HandBackOne(lease, used)) break;
  }
  if (end != 0) floor_ = end;
  held_.clear();
}

bool WorkerIdHost::HandBackOne(const Lease& lease, std::uint64_t used) {
  const std::uint64_t end = std::clamp(used, lease.ids.first, lease.ids.limit);
  LeaseClosure closure{.token = lease.token,
                       .tag = lease.tag,
                       .state = LeaseState::kReturned,
                       .claimed = end - lease.ids.first};
  if (end == lease.ids.limit) {
    closure.state = LeaseState::kExhausted;
    const Status closed = store_->CloseLeases({closure});
    if (!closed.ok()) OnError(closed, "close");
    return closed.ok();
  }
  run_.oracle.Trim(lease.token, end);
  static_cast<void>(marks_->Lower(lease.tag, end));
  const Result<ReturnOutcome> returned = store_->ReturnTail(closure);
  if (returned.status().code() == Code::kNoSuchTag) return true;  // it was lifted: given up
  if (!returned.ok()) {
    OnError(returned.status(), "hand back");
    return false;
  }
  if (returned.value() == ReturnOutcome::kStale || returned.value() == ReturnOutcome::kAbandoned) {
    run_.oracle.Fail(name_ + ": the store does not know a lease that is held");
  }
  ++run_.tally.returns;
  return true;
}

void WorkerIdHost::Stop() {
  if (counter_.empty()) return;
  HandBack();
  counter_.clear();
  floor_ = 0;
}

void WorkerIdHost::Crash() {
  ++run_.tally.crashes;
  store_.reset();
  held_.clear();
  counter_.clear();
  floor_ = 0;
  if (IsOneOf(5)) marks_ = std::make_unique<FakeMarks>();  // its state dir was lost
  if (IsOneOf(10)) {                                       // another machine takes its place
    name_ += "+";
    marks_ = std::make_unique<FakeMarks>();
  }
}

// As a failover does.
void WorkerIdHost::Lift() {
  if (counter_.empty()) return;
  const Result<TagRecord> lifted = store_->LiftTag(counter_, NumberAt(NowMs() + kLiftMs));
  if (lifted.ok()) {
    ++run_.tally.lifts;
  } else {
    OnError(lifted.status(), "lift");
  }
}

std::size_t WorkerIdHost::TakeEveryWorkerId() {
  if (!Open()) return 0;
  const Result<std::vector<WorkerRecord>> workers = store_->ListWorkers(run_.tag.tag);
  if (!workers.ok()) return 0;
  const SnowflakeLayout& layout = *run_.tag.snowflake;
  WorkerChoice choice{.tag = run_.tag.tag, .last_number = layout.number_limit() - 1};
  choice.at_most = NumberAt(NowMs());
  auto next = workers.value().begin();
  std::size_t taken = 0;
  for (std::uint32_t worker = 0; worker < layout.workers(); ++worker) {
    choice.worker = worker;
    choice.owner.reset();
    if (next != workers.value().end() && next->worker == worker) choice.owner = next++->host;
    const Result<bool> took = store_->TakeWorker(choice);
    if (!took.ok() || !took.value()) continue;
    ++taken;
    if (worker % 16 != 0) continue;
    counter_ = CounterName(run_.tag.tag, worker);
    floor_ = 0;
    const std::optional<WindowPlan> plan = Plan();
    const bool is_leased = plan.has_value() && plan->request.has_value() && Take(*plan->request);
    if (!is_leased) run_.oracle.Fail("no window of " + counter_ + " can be leased at the end");
  }
  return taken;
}

}  // namespace idd::daemon

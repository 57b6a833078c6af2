// SPDX-License-Identifier: Apache-2.0
#include "capacity_simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>
#include <random>
#include <utility>

#include "capacity_tag.h"

namespace idd::capacity {
namespace {

// As in the daemon: MysqlStore's heartbeats, LeaseScheduler's batches, TagService's warm-up and
// Daemon's patience with it, LeaseWorker's pauses while the store is unavailable.
constexpr double kBeatS = 20;
// The first hosts are the witnesses (Agreement), and how often a host looks at the term.
constexpr std::uint32_t kWitnesses = 3;
double LookEveryS(std::uint32_t host) { return host < kWitnesses ? 1 : 2; }
constexpr std::size_t kMaxAtOnce = 64;
constexpr std::uint32_t kWarmedAtOnce = 4;
constexpr double kPatienceS = 2.5;
constexpr double kFirstPauseS = 0.05;
constexpr double kLongestPauseS = 1;
// Read round trips of a new connection: the server's identity, the schema, the host's record.
constexpr std::uint32_t kOpenReads = 10;
enum class What : std::uint8_t {
  kStart,      // a host's daemon starts
  kPatience,   // it stops waiting for the warm-up
  kLost,       // a host notices that the store is unavailable
  kRetry,      // a host tries to connect
  kAnswer,     // a host's job was answered
  kBudget,     // a host may lease again
  kBeat,       // a host sends its heartbeat
  kLook,       // a host looks at the term
  kExhausted,  // a host finds a segment of a tag used up
  kDue,        // a tag wants a lease
};

struct Event {
  double at;
  std::uint32_t who;  // a host, or a tag
  What what;

  // Orders by time; the tie-break makes every run the same.
  friend bool operator<(const Event& a, const Event& b) {
    if (a.at != b.at) return a.at > b.at;
    if (a.what != b.what) return a.what > b.what;
    return a.who > b.who;
  }
};

struct Order {
  std::uint32_t tag;
  std::uint64_t ids;
  double asked_at;
};

enum class JobKind : std::uint8_t { kOpen, kLookUp, kLeases, kCloses, kBeat, kLook, kNote };

// A job of a host's lease worker at the store; one at a time.
struct Job {
  JobKind kind;
  std::uint32_t rows = 1;     // journal rows
  std::uint32_t tag = 0;      // kLookUp
  std::vector<Order> orders;  // kLeases
};

struct Host {
  explicit Host(std::uint32_t leases_per_s) : rate(daemon::LeaseRate(leases_per_s)) {}

  daemon::RateBucket::Rate rate;
  daemon::RateBucket budget;
  std::deque<std::uint32_t> turns;  // tags that want a lease, in request order
  bool waits_for_budget = false;
  std::deque<Order> orders;  // waiting in the lease scheduler
  std::size_t most = kMaxAtOnce;
  bool leasing = false;
  std::deque<Job> jobs;  // while busy, the first is at the store
  bool busy = false;
  double service_ends = 0;
  std::uint32_t to_close = 0;
  bool closing = false;
  bool looking = false;
  std::uint32_t to_warm = 0;  // the host's next tag to warm up
  std::uint32_t warming = 0;
  bool ready = true;
  double started_at = 0;
  bool up = true;
  double lease_from = 0;
  double pause_s = 0;
};

struct TagState {
  bool due = false;      // waits for a lease ...
  double due_since = 0;  // ... since then
  bool warming = false;
  bool leased = false;  // since the start
};

class Simulation {
 public:
  explicit Simulation(const Cluster& cluster)
      : cluster_(cluster), random_(cluster.seed), processors_(cluster.store.processors, 0) {}

  Outcome Run();

 private:
  void MakeHosts();
  void MakeTag(std::uint32_t tag, double now);
  void Handle(const Event& event);

  void Push(double at, What what, std::uint32_t who) {
    if (at < cluster_.duration_s) events_.push({at, who, what});
  }
  // 0 to 1.
  [[nodiscard]] double Draw() { return static_cast<double>(random_() >> 11U) * 0x1p-53; }
  [[nodiscard]] double DrawRate();
  [[nodiscard]] std::uint32_t HostOf(std::uint32_t tag) const {
    return tag / cluster_.tags_per_host;
  }
  [[nodiscard]] std::uint32_t FirstTag(std::uint32_t host) const {
    return host * cluster_.tags_per_host;
  }
  [[nodiscard]] bool IsDown(double at) const {
    return at >= cluster_.outage.begin_s && at < cluster_.outage.end_s;
  }
  [[nodiscard]] bool Counts() const { return now_ >= cluster_.settle_s; }
  void SetDue(std::uint32_t tag, bool due);
  void Keep(std::uint32_t tag, bool is_end);

  void Submit(std::uint32_t host, Job job);
  void RunNext(std::uint32_t host);
  [[nodiscard]] double ServiceOf(const Job& job) const;
  [[nodiscard]] double OnDisk(double commits_at);
  void Answer(std::uint32_t host);
  void Finish(std::uint32_t host, Job& job);
  void Count(const Job& job);

  void Ask(std::uint32_t tag);
  void Serve(std::uint32_t host);
  void SendLeases(std::uint32_t host);
  void FinishLeases(std::uint32_t host, const std::vector<Order>& orders);
  void Plan(std::uint32_t tag);
  void Close(std::uint32_t host);

  void WarmNext(std::uint32_t host);
  void BecomeReady(std::uint32_t host);
  void GoDown(std::uint32_t host);
  void Retry(std::uint32_t host);
  void Opened(std::uint32_t host);

  const Cluster cluster_;
  std::mt19937_64 random_;
  std::vector<double> processors_;  // when each becomes free
  double write_begins_ = -1;        // the newest synchronous write
  std::vector<Host> hosts_;
  std::vector<TagModel> tags_;
  std::vector<TagState> states_;
  std::priority_queue<Event> events_;
  Outcome outcome_;
  double now_ = 0;
};

Outcome Simulation::Run() {
  const auto seconds = static_cast<std::size_t>(std::ceil(cluster_.duration_s));
  outcome_.leases.resize(seconds);
  outcome_.commits.resize(seconds);
  MakeHosts();
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    Handle(event);
  }
  for (const TagModel& tag : tags_) {
    outcome_.load.claims += tag.ids_per_s() * (cluster_.duration_s - cluster_.settle_s);
    outcome_.load.dry_claims += tag.Waiting(cluster_.duration_s);
    outcome_.formula_leases_per_s += LeasesPerSecond(tag.ids_per_s(), cluster_.refill);
  }
  return outcome_;
}

double Simulation::DrawRate() {
  const double mean =
      cluster_.ids_per_s / (static_cast<double>(cluster_.hosts) * cluster_.tags_per_host);
  if (mean <= 0) return 0;
  const double sigma = cluster_.spread;
  std::normal_distribution<double> normal(-sigma * sigma / 2, sigma);
  return mean * (sigma > 0 ? std::exp(normal(random_)) : 1);
}

void Simulation::MakeHosts() {
  const std::size_t tags = std::size_t{cluster_.hosts} * cluster_.tags_per_host;
  tags_.reserve(tags);
  states_.resize(tags);
  for (std::uint32_t host = 0; host < cluster_.hosts; ++host) {
    hosts_.emplace_back(cluster_.leases_per_s);
    const double phase = Draw();
    for (std::uint32_t i = 0; i < cluster_.tags_per_host; ++i) MakeTag(FirstTag(host) + i, phase);
    if (cluster_.start == Start::kFresh) {
      hosts_.back().ready = false;
      Push(cluster_.starts_over_s * host / cluster_.hosts, What::kStart, host);
      continue;
    }
    Push(phase + kBeatS * Draw(), What::kBeat, host);
    if (cluster_.hosts_look) Push(LookEveryS(host) * Draw(), What::kLook, host);
    if (cluster_.outage.end_s > 0) Push(cluster_.outage.begin_s + phase, What::kLost, host);
  }
}

void Simulation::MakeTag(std::uint32_t tag, double now) {
  tags_.emplace_back(cluster_.refill, DrawRate(), cluster_.looks);
  if (cluster_.start == Start::kFresh) return;
  TagModel& model = tags_.back();
  model.BeginRunning(now, Draw());
  for (std::size_t i = 0; i < model.open_segments(); ++i) {
    Push(model.FoundExhausted(i), What::kExhausted, tag);
  }
  Push(model.NextDue(cluster_.duration_s), What::kDue, tag);
}

void Simulation::Handle(const Event& event) {
  switch (event.what) {
    case What::kStart:
      hosts_[event.who].started_at = now_;
      for (std::uint32_t i = 0; i < cluster_.tags_per_host; ++i)
        SetDue(FirstTag(event.who) + i, true);
      Submit(event.who, {.kind = JobKind::kOpen, .orders = {}});
      return Push(now_ + kPatienceS, What::kPatience, event.who);
    case What::kPatience:
      return BecomeReady(event.who);
    case What::kLost:
      // A job that is at the store finds out by itself, within a second or two.
      if (!IsDown(now_)) return;
      if (hosts_[event.who].busy) return Push(now_ + 1, What::kLost, event.who);
      return hosts_[event.who].up ? GoDown(event.who) : void();
    case What::kRetry:
      return Retry(event.who);
    case What::kAnswer:
      return Answer(event.who);
    case What::kBudget:
      hosts_[event.who].waits_for_budget = false;
      return Serve(event.who);
    case What::kBeat:
      if (hosts_[event.who].up) Submit(event.who, {.kind = JobKind::kBeat, .orders = {}});
      return Push(now_ + kBeatS, What::kBeat, event.who);
    case What::kLook:
      if (hosts_[event.who].up && !std::exchange(hosts_[event.who].looking, true)) {
        Submit(event.who, {.kind = JobKind::kLook, .orders = {}});
        if (event.who < kWitnesses) Submit(event.who, {.kind = JobKind::kNote, .orders = {}});
      }
      return Push(now_ + LookEveryS(event.who), What::kLook, event.who);
    case What::kExhausted:
      Keep(event.who, true);
      ++hosts_[HostOf(event.who)].to_close;
      return Close(HostOf(event.who));
    case What::kDue:
      Keep(event.who, false);
      return Ask(event.who);
  }
}

void Simulation::SetDue(std::uint32_t tag, bool due) {
  TagState& state = states_[tag];
  if (state.due == due) return;
  state.due = due;
  if (due) {
    state.due_since = now_;
    return;
  }
  const double end = cluster_.outage.end_s;
  const bool is_first = cluster_.start == Start::kFresh && !std::exchange(state.leased, true);
  if (!is_first && (state.due_since > end || now_ < end)) return;
  outcome_.covered_s = std::max(outcome_.covered_s, now_ - std::max(state.due_since, end));
}

void Simulation::Keep(std::uint32_t tag, bool is_end) {
  if (!cluster_.keeps_requests || !Counts()) return;
  const std::uint32_t host = HostOf(tag);
  outcome_.requests.push_back(
      {.at = now_, .host = host, .tag = tag - FirstTag(host), .is_end = is_end});
}

// The store.

double Simulation::ServiceOf(const Job& job) const {
  const StoreModel& store = cluster_.store;
  switch (job.kind) {
    case JobKind::kOpen:
      return store.transaction_s + kOpenReads * store.read_s;
    case JobKind::kLookUp:
      return store.read_s;
    case JobKind::kLeases:
    case JobKind::kCloses:
    case JobKind::kBeat:
    case JobKind::kNote:
      return store.transaction_s + (job.rows - 1) * store.more_s;
    case JobKind::kLook:
      return store.look_s;
  }
  return 0;
}

double RoundTrips(JobKind kind) {
  switch (kind) {
    case JobKind::kOpen:
      return kOpenReads + 1;
    case JobKind::kLeases:
    case JobKind::kCloses:
      return 2;
    case JobKind::kLookUp:
    case JobKind::kBeat:
    case JobKind::kLook:
    case JobKind::kNote:
      return 1;
  }
  return 0;
}

bool Commits(JobKind kind) { return kind != JobKind::kLookUp && kind != JobKind::kLook; }

// When a COMMIT of that time is on the disk.
double Simulation::OnDisk(double commits_at) {
  const double sync = cluster_.store.sync_s;
  if (commits_at > write_begins_) {
    write_begins_ = std::max(commits_at, write_begins_ + sync);
  }
  return write_begins_ + sync;
}

void Simulation::Submit(std::uint32_t host, Job job) {
  hosts_[host].jobs.push_back(std::move(job));
  if (!hosts_[host].busy) RunNext(host);
}

void Simulation::RunNext(std::uint32_t host) {
  Host& own = hosts_[host];
  own.busy = true;
  const double comes = now_ + cluster_.store.answer_s / 2;
  double& processor = *std::min_element(processors_.begin(), processors_.end());
  const JobKind kind = own.jobs.front().kind;
  const double service = ServiceOf(own.jobs.front());
  if (IsDown(comes)) {
    own.service_ends = comes;
  } else {
    processor = std::max(processor, comes) + service;
    own.service_ends = Commits(kind) ? OnDisk(processor) : processor;
    if (Counts()) outcome_.load.store_busy_s += service;
  }
  const double answer = own.service_ends + (RoundTrips(kind) - 0.5) * cluster_.store.answer_s;
  if (Counts()) {
    outcome_.load.longest_answer_s = std::max(outcome_.load.longest_answer_s, answer - now_);
  }
  Push(answer, What::kAnswer, host);
}

void Simulation::Answer(std::uint32_t host) {
  Host& own = hosts_[host];
  if (IsDown(own.service_ends)) {
    own.busy = false;
    return GoDown(host);
  }
  Job job = std::move(own.jobs.front());
  own.jobs.pop_front();
  own.busy = false;
  if (!own.jobs.empty()) RunNext(host);
  Count(job);
  Finish(host, job);
}

void Simulation::Count(const Job& job) {
  const auto second = static_cast<std::size_t>(now_);
  if (Commits(job.kind)) ++outcome_.commits[second];
  if (job.kind == JobKind::kLeases) outcome_.leases[second] += job.rows;
  if (!Counts()) return;
  Load& load = outcome_.load;
  switch (job.kind) {
    case JobKind::kOpen:
      ++load.opens;
      load.reads += kOpenReads;
      return;
    case JobKind::kLookUp:
      ++load.reads;
      return;
    case JobKind::kLeases:
      ++load.lease_transactions;
      ++load.reads;
      load.leases += job.rows;
      load.largest_batch = std::max(load.largest_batch, job.rows);
      return;
    case JobKind::kCloses:
      ++load.close_transactions;
      ++load.reads;
      load.closed += job.rows;
      return;
    case JobKind::kBeat:
      ++load.beats;
      return;
    case JobKind::kLook:
      ++load.looks;
      return;
    case JobKind::kNote:
      ++load.notes;
      return;
  }
}

void Simulation::Finish(std::uint32_t host, Job& job) {
  Host& own = hosts_[host];
  switch (job.kind) {
    case JobKind::kOpen:
      return Opened(host);
    case JobKind::kLookUp:
      return Ask(job.tag);
    case JobKind::kLeases:
      return FinishLeases(host, job.orders);
    case JobKind::kCloses:
      own.closing = false;
      return Close(host);
    case JobKind::kBeat:
    case JobKind::kNote:
      return;
    case JobKind::kLook:
      own.looking = false;
      return;
  }
}

// Leasing.

void Simulation::Ask(std::uint32_t tag) {
  SetDue(tag, true);
  hosts_[HostOf(tag)].turns.push_back(tag);
  Serve(HostOf(tag));
}

// As LeaseScheduler: the first tags, as many as the budget allows.
void Simulation::Serve(std::uint32_t host) {
  Host& own = hosts_[host];
  while (!own.turns.empty() && own.up && now_ >= own.lease_from) {
    const std::uint32_t tag = own.turns.front();
    tags_[tag].CatchUp(now_);
    const std::uint64_t wanted = tags_[tag].Wanted(now_);
    const MonotonicTime ready = own.budget.ReadyAt(1, own.rate, At(now_));
    if (wanted != 0 && ready > At(now_)) {
      const std::chrono::duration<double> wait = ready - At(now_);
      if (!std::exchange(own.waits_for_budget, true))
        Push(now_ + wait.count(), What::kBudget, host);
      return;
    }
    own.turns.pop_front();
    if (wanted == 0) {
      Plan(tag);
      continue;
    }
    own.budget.Take(1, own.rate, At(now_));
    own.orders.push_back({.tag = tag, .ids = wanted, .asked_at = now_});
    SendLeases(host);
  }
}

// As LeaseScheduler: requests that come while the worker is busy go together.
void Simulation::SendLeases(std::uint32_t host) {
  Host& own = hosts_[host];
  if (own.leasing || own.orders.empty()) return;
  own.leasing = true;
  const std::size_t count = std::min(own.orders.size(), own.most);
  const auto end = own.orders.begin() + static_cast<std::ptrdiff_t>(count);
  Job job{.kind = JobKind::kLeases,
          .rows = static_cast<std::uint32_t>(count),
          .orders = {own.orders.begin(), end}};
  own.orders.erase(own.orders.begin(), end);
  Submit(host, std::move(job));
}

void Simulation::FinishLeases(std::uint32_t host, const std::vector<Order>& orders) {
  hosts_[host].leasing = false;
  hosts_[host].most = std::min(hosts_[host].most * 2, kMaxAtOnce);
  SendLeases(host);
  if (!hosts_[host].ready) outcome_.leases_before_ready += static_cast<double>(orders.size());
  for (const Order& order : orders) {
    TagModel& tag = tags_[order.tag];
    if (cluster_.keeps_requests && Counts()) {
      outcome_.waits_s.push_back(now_ - states_[order.tag].due_since);
    }
    const double waited = tag.Publish(now_, order.ids, order.asked_at);
    if (Counts()) outcome_.load.dry_claims += waited;
    Push(std::max(tag.FoundNewestExhausted(), now_), What::kExhausted, order.tag);
    Plan(order.tag);
    if (!std::exchange(states_[order.tag].warming, false)) continue;
    --hosts_[host].warming;
    WarmNext(host);
  }
}

// The tag has the lease it wanted: plans when it wants the next one.
void Simulation::Plan(std::uint32_t tag) {
  if (tags_[tag].Wanted(now_) != 0) return Ask(tag);
  SetDue(tag, false);
  Push(tags_[tag].NextDue(cluster_.duration_s), What::kDue, tag);
}

// As LeaseCloser: the first close at once; closes that come meanwhile go together, up to this many.
constexpr std::uint32_t kClosesAtOnce = 100;
void Simulation::Close(std::uint32_t host) {
  Host& own = hosts_[host];
  if (own.to_close == 0 || own.closing || !own.up) return;
  own.closing = true;
  const std::uint32_t rows = std::min(own.to_close, kClosesAtOnce);
  own.to_close -= rows;
  Submit(host, {.kind = JobKind::kCloses, .rows = rows, .orders = {}});
}

// Starting.

void Simulation::WarmNext(std::uint32_t host) {
  Host& own = hosts_[host];
  while (!own.ready && own.warming < kWarmedAtOnce && own.to_warm < cluster_.tags_per_host) {
    const std::uint32_t tag = FirstTag(host) + own.to_warm++;
    ++own.warming;
    states_[tag].warming = true;
    Submit(host, {.kind = JobKind::kLookUp, .tag = tag, .orders = {}});
  }
  if (own.warming == 0) BecomeReady(host);
}

// Programs attach, and from then on claim from every tag.
void Simulation::BecomeReady(std::uint32_t host) {
  Host& own = hosts_[host];
  if (std::exchange(own.ready, true)) return;
  outcome_.ready_s = std::max(outcome_.ready_s, now_ - own.started_at);
  for (std::uint32_t i = 0; i < cluster_.tags_per_host; ++i) {
    const std::uint32_t tag = FirstTag(host) + i;
    TagModel& model = tags_[tag];
    model.Begin(now_);
    for (std::size_t n = 0; n < model.open_segments(); ++n) {
      Push(model.FoundExhausted(n), What::kExhausted, tag);
    }
    if (i >= own.to_warm) {
      Submit(host, {.kind = JobKind::kLookUp, .tag = tag, .orders = {}});
    } else if (!states_[tag].due) {
      Plan(tag);
    }
  }
}

// Outages.

// Requests in flight are repeated when the store is back.
void Simulation::GoDown(std::uint32_t host) {
  Host& own = hosts_[host];
  own.up = own.leasing = own.closing = own.looking = false;
  own.most = 1;
  for (const Job& job : own.jobs) {
    if (job.kind == JobKind::kCloses) own.to_close += job.rows;
    for (const Order& order : job.orders) own.turns.push_back(order.tag);
  }
  own.jobs.clear();
  for (const Order& order : own.orders) own.turns.push_back(order.tag);
  own.orders.clear();
  own.pause_s = kFirstPauseS;
  Push(now_ + own.pause_s * (1 + Draw()) / 2, What::kRetry, host);
}

void Simulation::Retry(std::uint32_t host) {
  Host& own = hosts_[host];
  if (!IsDown(now_)) return Submit(host, {.kind = JobKind::kOpen, .orders = {}});
  if (Counts()) ++outcome_.load.refused_connects;
  own.pause_s = std::min(own.pause_s * 2, kLongestPauseS);
  Push(now_ + own.pause_s * (1 + Draw()) / 2, What::kRetry, host);
}

void Simulation::Opened(std::uint32_t host) {
  Host& own = hosts_[host];
  own.up = true;
  if (!own.ready) {
    Push(now_ + kBeatS, What::kBeat, host);
    if (cluster_.hosts_look) Push(now_ + LookEveryS(host), What::kLook, host);
    return WarmNext(host);
  }
  own.lease_from = now_ + cluster_.outage.grace_s;
  Close(host);
  Push(own.lease_from, What::kBudget, host);
}

}  // namespace

double LeasesPerSecond(double ids_per_s, const daemon::RefillSettings& refill) {
  const auto step = static_cast<double>(refill.step);
  if (refill.rule == daemon::RefillRule::kLeaf) return ids_per_s / step;
  constexpr double kGrowth = 1.1;
  constexpr double kFillUp = 1.5;
  const auto most = static_cast<double>(refill.max_prefetch);
  const double tolerance_s = std::chrono::duration<double>(refill.outage_tolerance).count();
  const double reserve = ids_per_s * tolerance_s * kGrowth;
  const double low = std::min(std::max(reserve, 0.9 * step), 0.75 * most);
  const double filled = std::min(reserve * kFillUp, most);
  return ids_per_s / std::clamp(filled - low, step, static_cast<double>(refill.max_step));
}

Outcome Simulate(const Cluster& cluster) { return Simulation(cluster).Run(); }

}  // namespace idd::capacity

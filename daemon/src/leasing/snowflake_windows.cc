// SPDX-License-Identifier: Apache-2.0
#include "leasing/snowflake_windows.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "platform/random.h"
#include "refill/snowflake_policy.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// A clock may always be ahead of the store's by this much.
constexpr std::int64_t kLeastAheadMs = 1000;
// A tag whose window is nearly over looks again after at most this long.
constexpr milliseconds kLongestWait(1000);
// Other hosts may take the same worker ids at the same time.
constexpr int kTries = 16;

// Plans one window. It has its own class because every step needs the same numbers.
class WindowPlanner {
 public:
  WindowPlanner(const WindowOrder& order, const TagRecord& tag, std::int64_t unix_ms, Store& store,
                HighWaterMarks& marks)
      : order_(order),
        tag_(tag),
        layout_(*tag.snowflake),
        unix_ms_(unix_ms),
        now_(layout_.FirstOf(layout_.TimeAt(unix_ms))),
        first_(std::max(now_, layout_.RoundUp(order.floor))),
        ahead_(layout_.FirstOf(layout_.max_ahead_units())),
        store_(store),
        marks_(marks) {}

  Result<WindowPlan> Plan() {
    if (Status status = CheckOwnClock(); !status.ok()) return status;
    Result<std::vector<WorkerRecord>> workers = store_.ListWorkers(order_.tag);
    if (!workers.ok()) return workers.status();
    if (!order_.counter.empty()) {
      Result<std::optional<WindowPlan>> plan = GoOn(workers.value());
      if (!plan.ok()) return plan.status();
      if (plan.value().has_value()) return std::move(*plan.value());
    }
    // What is left of the present window is claimed first: another worker id has a ring of its own.
    if (layout_.RoundUp(order_.floor) > now_ + ahead_ && !order_.counter.empty()) return Wait();
    if (Status status = CheckStoreClock(); !status.ok()) return status;
    for (int tries = 0; tries < kTries; ++tries) {
      Result<std::optional<WindowPlan>> plan = TakeWorker(workers.value());
      if (!plan.ok()) return plan.status();
      if (plan.value().has_value()) return std::move(*plan.value());
      workers = store_.ListWorkers(order_.tag);
      if (!workers.ok()) return workers.status();
    }
    return Status(Code::kUnavailable, Name() +
                                          "other hosts take worker ids at the same time; "
                                          "it is tried again");
  }

 private:
  [[nodiscard]] std::string Name() const { return "tag '" + order_.tag + "': "; }
  [[nodiscard]] std::string TextOf(std::uint64_t number) const {
    return UtcText(layout_.UnixMsOf(number >> layout_.sequence_bits));
  }

  [[nodiscard]] Status CheckOwnClock() const {
    if (unix_ms_ < layout_.epoch_ms) {
      return {Code::kUnavailable, Name() + "this host's clock, " + UtcText(unix_ms_) +
                                      ", is before the tag's epoch, " + UtcText(layout_.epoch_ms)};
    }
    if (layout_.TimeAt(unix_ms_) < layout_.time_limit()) return Status::Ok();
    return {Code::kOutOfIds, Name() + "its time bits were used up at " + UtcText(layout_.end_ms())};
  }

  // A window in the far future would make its worker id useless until then. What is compared is the
  // time that the window is planned for: by now, this host's clock may have been set.
  [[nodiscard]] Status CheckStoreClock() {
    const Result<std::optional<StoreFacts::Clock>> clock = store_.CompareClocks();
    if (!clock.ok()) return clock.status();
    if (!clock.value().has_value()) return Status::Ok();
    const std::int64_t ahead = unix_ms_ - clock.value()->store_ms;
    const std::int64_t most = std::max<std::int64_t>(layout_.max_ahead_ms, kLeastAheadMs);
    if (ahead <= most) return Status::Ok();
    return {Code::kUnavailable, Name() + "this host's clock is " + std::to_string(ahead) +
                                    " ms ahead of the store's, and may be " + std::to_string(most) +
                                    " ms ahead; set the clock"};
  }

  // The next window of the worker id that the host has; nothing if it cannot keep it.
  Result<std::optional<WindowPlan>> GoOn(const std::vector<WorkerRecord>& workers) {
    const bool is_mine =
        std::any_of(workers.begin(), workers.end(), [this](const WorkerRecord& worker) {
          return worker.is_mine && CounterName(order_.tag, worker.worker) == order_.counter;
        });
    if (!is_mine) return std::optional<WindowPlan>();
    Result<TagRecord> row = store_.FindTag(order_.counter);
    if (!row.ok()) return row.status();
    const Result<std::uint64_t> mark = marks_.Get(order_.counter);
    if (!mark.ok()) return mark.status();
    const std::uint64_t begin = layout_.RoundUp(
        std::max({row.value().next_id, row.value().used_limit, mark.value(), first_}));
    if (begin > first_ + ahead_) return std::optional<WindowPlan>();
    // The window does not continue the last one, but begins where the clock is.
    if (begin == now_) {
      if (Status status = CheckStoreClock(); !status.ok()) return status;
    }
    WindowPlan plan;
    plan.row = std::move(row).value();
    plan.request = LeaseRequest{.tag = order_.counter,
                                .count = CountFrom(begin),
                                .high_water_mark = mark.value(),
                                .floor = begin,
                                .token = order_.token,
                                .rises = true,
                                .is_of_worker = true};
    return std::optional<WindowPlan>(std::move(plan));
  }

  // Whole units, so that the next window begins with another time.
  [[nodiscard]] std::uint64_t CountFrom(std::uint64_t begin) const {
    const auto length = static_cast<std::uint64_t>(WindowLength(tag_.refill).count());
    const std::uint64_t units = std::max<std::uint64_t>(length / layout_.unit_ms, 2);
    const std::uint64_t least = layout_.FirstOf(std::max<std::uint64_t>(units / 4, 1));
    const std::uint64_t end = now_ + layout_.FirstOf(units);
    const std::uint64_t most = kMaxStep & ~(layout_.ids_per_unit() - 1);
    return std::min(std::max(least, end - std::min(end, begin)), most);
  }

  [[nodiscard]] WindowPlan Wait() const {
    const std::uint64_t units =
        (layout_.RoundUp(order_.floor) - now_ - ahead_) >> layout_.sequence_bits;
    const auto left = milliseconds(static_cast<std::int64_t>(
        std::min<std::uint64_t>(units, static_cast<std::uint64_t>(kLongestWait.count())) *
        layout_.unit_ms));
    WindowPlan plan;
    plan.not_before = MonotonicClock::now() + std::clamp(left, milliseconds(1), kLongestWait);
    plan.reason =
        "the worker id's counter was moved far ahead; the host takes another one when its "
        "present window is over, at " +
        TextOf(order_.floor);
    return plan;
  }

  // Where the next lease of a worker id would begin, as far as store and host know.
  Result<std::uint64_t> NextOf(std::uint32_t worker, std::uint64_t next_number) {
    const Result<std::uint64_t> mark = marks_.Get(CounterName(order_.tag, worker));
    if (!mark.ok()) return mark;
    return std::max(next_number, mark.value());
  }

  // The choice among the worker ids as they are now; nothing: all are in use.
  Result<std::optional<WorkerChoice>> Choose(const std::vector<WorkerRecord>& workers) {
    const WorkerRecord* mine = nullptr;
    std::vector<const WorkerRecord*> over;
    std::uint64_t unused = 0;  // `workers` is in the order of their numbers
    for (const WorkerRecord& worker : workers) {
      if (worker.worker == unused) ++unused;
      if (refused_.contains(worker.worker)) continue;
      const Result<std::uint64_t> next = NextOf(worker.worker, worker.next_number);
      if (!next.ok()) return next.status();
      if (worker.is_mine && next.value() <= first_ + ahead_) {
        if (mine == nullptr || worker.next_number > mine->next_number) mine = &worker;
      } else if (!worker.is_mine && next.value() <= now_) {
        over.push_back(&worker);
      }
    }
    for (; unused < layout_.workers(); ++unused) {
      const auto worker = static_cast<std::uint32_t>(unused);
      const Result<std::uint64_t> next = NextOf(worker, 0);
      if (!next.ok()) return next.status();
      const bool is_listed = std::any_of(workers.begin(), workers.end(), [worker](const auto& one) {
        return one.worker == worker;
      });
      if (!is_listed && !refused_.contains(worker) && next.value() <= now_) break;
    }
    WorkerChoice choice{.tag = order_.tag, .last_number = layout_.number_limit() - 1};
    choice.at_most = now_;
    if (mine != nullptr) {
      choice.worker = mine->worker;
      choice.owner = mine->host;
      choice.at_most = first_ + ahead_;
    } else if (unused < layout_.workers()) {
      choice.worker = static_cast<std::uint32_t>(unused);
    } else if (!over.empty()) {
      // Not always the same: another host that looks now would take it before the first lease.
      const WorkerRecord& any = *over[RandomBits::Next() % over.size()];
      choice.worker = any.worker;
      choice.owner = any.host;
    } else {
      return std::optional<WorkerChoice>();
    }
    return std::optional(choice);
  }

  Result<std::optional<WindowPlan>> TakeWorker(const std::vector<WorkerRecord>& workers) {
    const Result<std::optional<WorkerChoice>> choice = Choose(workers);
    if (!choice.ok()) return choice.status();
    if (!choice.value().has_value()) return AllInUse(workers);
    const Result<bool> taken = store_.TakeWorker(*choice.value());
    if (!taken.ok()) return taken.status();
    if (!taken.value()) {
      refused_.insert(choice.value()->worker);
      return std::optional<WindowPlan>();
    }
    WindowPlan plan;
    plan.counter = CounterName(order_.tag, choice.value()->worker);
    return std::optional<WindowPlan>(std::move(plan));
  }

  [[nodiscard]] Status AllInUse(const std::vector<WorkerRecord>& workers) const {
    std::uint64_t next = layout_.number_limit();
    for (const WorkerRecord& worker : workers) next = std::min(next, worker.next_number);
    return {Code::kUnavailable, Name() + "all " + std::to_string(layout_.workers()) +
                                    " worker ids are in use; the first is free at " + TextOf(next) +
                                    ", this host's clock is at " + UtcText(unix_ms_)};
  }

  const WindowOrder& order_;
  const TagRecord& tag_;
  const SnowflakeLayout& layout_;
  const std::int64_t unix_ms_;
  const std::uint64_t now_;    // the first number of the clock's time
  const std::uint64_t first_;  // where a window may begin
  const std::uint64_t ahead_;  // max_ahead, in numbers
  Store& store_;
  HighWaterMarks& marks_;
  std::set<std::uint32_t> refused_;  // the store knows more of these than the list shows
};

}  // namespace

Result<WindowPlan> PlanWindow(const WindowOrder& order, const TagRecord& tag, std::int64_t unix_ms,
                              Store& store, HighWaterMarks& marks) {
  return WindowPlanner(order, tag, unix_ms, store, marks).Plan();
}

}  // namespace idd::daemon

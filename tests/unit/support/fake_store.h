// SPDX-License-Identifier: Apache-2.0
//
// An in-memory Store that keeps the contract of store.h, and fails, lies or stalls on a test's
// request.
#ifndef IDD_TESTS_UNIT_SUPPORT_FAKE_STORE_H_
#define IDD_TESTS_UNIT_SUPPORT_FAKE_STORE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "idd/base/status.h"
#include "idd/shm/abi.h"
#include "script.h"
#include "store/store.h"

namespace idd::daemon {

// Leases of one step each, one ahead, so that tests of everything but the policy can predict them.
inline RefillSettings FixedStep(std::uint64_t step) {
  return {.rule = RefillRule::kLeaf, .step = step, .max_step = step, .max_prefetch = kMaxStep};
}

// Thread safety: all. Callers are the worker's thread, a FakeReader's, and the test.
class FakeStore final : public Store {
 public:
  static constexpr const char* kHost = "this-host";

  Script script;

  void AddTag(const std::string& tag, std::uint64_t step, std::uint64_t next_id = 1,
              std::uint64_t max_id = shm::kMaxLimit - 1) {
    const std::lock_guard lock(mutex_);
    TagRecord& record = tags_[tag];
    record.tag = tag;
    record.next_id = next_id;
    record.step = step;
    record.refill = FixedStep(step);
    record.max_id = max_id;
  }
  void SetMode(const std::string& tag, TagMode mode) {
    const std::lock_guard lock(mutex_);
    tags_[tag].mode = mode;
  }
  void AddSnowflake(const std::string& tag, const SnowflakeLayout& layout) {
    AddTag(tag, 1);
    const std::lock_guard lock(mutex_);
    tags_[tag].mode = TagMode::kSnowflake;
    tags_[tag].snowflake = layout;
    tags_[tag].refill = RefillSettings{};
  }
  // Another host's worker id, whose windows end at `next_number`; also this host's, as kHost.
  void OwnWorker(const std::string& tag, std::uint32_t worker, const std::string& host,
                 std::uint64_t next_number) {
    AddTag(CounterName(tag, worker), 1, next_number);
    const std::lock_guard lock(mutex_);
    workers_[tag][worker] = host;
  }
  // The worker id cannot be had, although the list does not show why.
  void RefuseWorker(std::uint32_t worker) {
    const std::lock_guard lock(mutex_);
    refused_workers_.insert(worker);
  }
  // The database refuses the ends of these leases.
  void RefuseEnds(std::set<std::string> tokens) {
    const std::lock_guard lock(mutex_);
    refused_ends_ = std::move(tokens);
  }
  // The store's clock is that far ahead of this host's.
  void SetClock(std::optional<StoreFacts::Clock> clock) {
    const std::lock_guard lock(mutex_);
    clock_ = clock;
  }
  void SetAccess(const std::string& tag, TagAccess access) {
    const std::lock_guard lock(mutex_);
    tags_[tag].access = access;
  }
  void SetStep(const std::string& tag, std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    tags_[tag].step = step;
    tags_[tag].refill = FixedStep(step);
  }
  void SetMaxId(const std::string& tag, std::uint64_t max_id) {
    const std::lock_guard lock(mutex_);
    tags_[tag].max_id = max_id;
  }
  void RemoveTag(const std::string& tag) {
    const std::lock_guard lock(mutex_);
    tags_.erase(tag);
  }
  // The effect of a lease of `ids` ids by another host.
  void LeaseElsewhere(const std::string& tag, std::uint64_t ids) {
    const std::lock_guard lock(mutex_);
    tags_[tag].next_id += ids;
  }
  // The next lease is [first, limit), whatever the request says.
  void LieOnce(shm::IdRange ids) {
    const std::lock_guard lock(mutex_);
    lie_ = ids;
  }

  [[nodiscard]] std::vector<LeaseRecord> leases() const {
    const std::lock_guard lock(mutex_);
    return journal_;
  }
  [[nodiscard]] LeaseFilter last_listed() const {
    const std::lock_guard lock(mutex_);
    return last_listed_;
  }
  [[nodiscard]] std::vector<LeaseRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  [[nodiscard]] std::vector<LeaseClosure> returned_tails() const {
    const std::lock_guard lock(mutex_);
    return returned_tails_;
  }
  [[nodiscard]] std::vector<ReturnedRange> returned_ranges() const {
    const std::lock_guard lock(mutex_);
    return returned_;
  }
  [[nodiscard]] std::uint64_t next_id(const std::string& tag) const {
    const std::lock_guard lock(mutex_);
    return tags_.at(tag).next_id;
  }

  // Replaces the open file with an older copy, or with another data set. The test itself removes
  // leases and tags from the journal.
  void Replace(const std::string& incarnation) {
    const std::lock_guard lock(mutex_);
    incarnation_ = incarnation;
    current_ = false;
  }
  void ForgetLeases() {
    const std::lock_guard lock(mutex_);
    journal_.clear();
  }
  void ReopenLease(const std::string& token) {
    const std::lock_guard lock(mutex_);
    for (LeaseRecord& lease : journal_) {
      if (lease.token != token) continue;
      lease.state = LeaseState::kActive;
      lease.claimed = lease.returned = lease.abandoned = 0;
    }
  }
  [[nodiscard]] bool may_create() const {
    const std::lock_guard lock(mutex_);
    return may_create_;
  }

  Status Open() override {
    if (Status status = script.Enter("Open"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    if (!current_ || generation_ == 0) ++generation_;
    current_ = true;
    return Status::Ok();
  }
  void RequireExisting() override {
    const std::lock_guard lock(mutex_);
    may_create_ = false;
  }
  void AllowNew() override {
    const std::lock_guard lock(mutex_);
    may_create_ = true;
  }
  Status CheckCurrent() override {
    const std::lock_guard lock(mutex_);
    return current_ ? Status::Ok() : Status(Code::kUnavailable, "replaced");
  }
  std::uint64_t generation() const override {
    const std::lock_guard lock(mutex_);
    return generation_;
  }
  Result<std::string> Incarnation() override {
    if (Status status = script.Enter("Incarnation"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    return incarnation_;
  }

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override {
    LeaseResults leases;
    if (Status status = script.Enter("TakeLeases"); !status.ok()) return status;
    for (const LeaseRequest& request : requests) {
      Status status = script.Enter("TakeLease");
      const bool is_store = status.code() == Code::kUnavailable || status.code() == Code::kSystem ||
                            status.code() == Code::kIncompatible;
      if (is_store) return status;
      leases.push_back(status.ok() ? TakeOne(request) : Result<Lease>(std::move(status)));
    }
    return leases;
  }

  Result<Lease> TakeOne(const LeaseRequest& request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    const auto it = tags_.find(request.tag);
    if (it == tags_.end()) return NoSuchTag(request.tag);
    if (request.is_of_worker) {
      const std::optional<CounterOf> counter = ParseCounterName(request.tag);
      if (!counter || workers_[counter->tag][counter->worker] != kHost) {
        return Status(Code::kUnavailable, "this host does not own the worker id");
      }
    }
    TagRecord& tag = it->second;
    Lease lease;
    lease.token = request.token;
    lease.tag = request.tag;
    const std::uint64_t lowest = std::max(request.high_water_mark, request.floor);
    const auto own = std::find_if(returned_.begin(), returned_.end(), [&](const auto& range) {
      return !request.rises && range.tag == request.tag && range.ids.first >= lowest;
    });
    if (lie_.has_value()) {
      lease.ids = *std::exchange(lie_, std::nullopt);
    } else if (own != returned_.end()) {
      lease.ids = own->ids;
      lease.from_returned = true;
      returned_.erase(own);
    } else {
      if (tag.next_id < lowest) lease.lifted_from = tag.next_id;
      const std::uint64_t first = std::max(tag.next_id, lowest);
      if (first > tag.max_id) return Status(Code::kOutOfIds, "tag '" + tag.tag + "' is used up");
      lease.ids = {first, std::min(first + request.count, tag.max_id + 1)};
      tag.next_id = lease.ids.limit;
    }
    LeaseRecord& row = journal_.emplace_back();
    row.token = request.token;
    row.tag = request.tag;
    row.host = kHost;
    row.ids = lease.ids;
    return lease;
  }

  Status CloseLeases(const std::vector<LeaseClosure>& closures) override {
    if (Status status = script.Enter("CloseLeases"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    for (const LeaseClosure& closure : closures) {
      if (refused_ends_.contains(closure.token)) return {Code::kInvalid, "this end is refused"};
    }
    for (const LeaseClosure& closure : closures) {
      LeaseRecord* lease = Active(closure.token);
      if (lease == nullptr) continue;
      const bool all = closure.claimed == lease->ids.size();
      if (closure.state == LeaseState::kReturned || closure.claimed > lease->ids.size() ||
          (closure.state == LeaseState::kExhausted && !all)) {
        return {Code::kInvalid, "a closure that does not fit its lease"};
      }
      lease->state = closure.state;
      lease->claimed = closure.claimed;
      lease->abandoned = lease->ids.size() - closure.claimed;
    }
    return Status::Ok();
  }

  Result<ReturnOutcome> ReturnTail(const LeaseClosure& closure) override {
    if (Status status = script.Enter("ReturnTail"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    returned_tails_.push_back(closure);
    LeaseRecord* lease = Active(closure.token);
    if (lease == nullptr) return ReturnOutcome::kStale;
    if (closure.claimed >= lease->ids.size()) return Status(Code::kInvalid, "an empty tail");
    lease->claimed = closure.claimed;
    const auto it = tags_.find(lease->tag);
    if (it == tags_.end()) {
      lease->state = LeaseState::kAbandoned;
      lease->abandoned = lease->ids.size() - closure.claimed;
      return NoSuchTag(lease->tag);
    }
    lease->state = LeaseState::kReturned;
    lease->returned = lease->ids.size() - closure.claimed;
    const std::uint64_t first = lease->ids.first + closure.claimed;
    if (it->second.next_id == lease->ids.limit) {
      it->second.next_id = first;
      return ReturnOutcome::kLowered;
    }
    returned_.push_back({.tag = lease->tag, .host = kHost, .ids = {first, lease->ids.limit}});
    return ReturnOutcome::kListed;
  }

  Result<std::vector<LeaseRecord>> AbandonActive(
      const std::vector<std::string>& except_tokens) override {
    if (Status status = script.Enter("AbandonActive"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    std::vector<LeaseRecord> marked;
    for (LeaseRecord& lease : journal_) {
      const bool except =
          std::find(except_tokens.begin(), except_tokens.end(), lease.token) != except_tokens.end();
      if (lease.state != LeaseState::kActive || except) continue;
      lease.state = LeaseState::kAbandoned;
      lease.abandoned = lease.ids.size();
      marked.push_back(lease);
    }
    return marked;
  }

  Result<Reconciliation> Reconcile(const HostMemory& memory) override {
    if (Status status = script.Enter("Reconcile"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    Reconciliation reconciliation;
    for (const TagMark& mark : memory.marks) {
      const auto it = tags_.find(mark.tag);
      if (it == tags_.end() || it->second.next_id >= mark.mark) continue;
      reconciliation.lifted.push_back(
          {.tag = mark.tag, .from = it->second.next_id, .to = mark.mark});
      it->second.next_id = mark.mark;
    }
    for (const Lease& lease : memory.held) {
      const auto known = std::find_if(journal_.begin(), journal_.end(),
                                      [&](const auto& row) { return row.token == lease.token; });
      if (known != journal_.end()) continue;
      LeaseRecord& row = journal_.emplace_back();
      row.token = lease.token;
      row.tag = lease.tag;
      row.host = kHost;
      row.ids = lease.ids;
      reconciliation.restored.push_back(lease);
      reconciliation.forgot_leases = true;
    }
    return reconciliation;
  }

  Result<std::vector<TagRecord>> ListTags() override {
    if (Status status = script.Enter("ListTags"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    std::vector<TagRecord> all;
    for (const auto& [name, tag] : tags_) all.push_back(tag);
    return all;
  }
  Result<TagResults> FindTags(const std::vector<std::string>& tags) override {
    TagResults records;
    for (const std::string& tag : tags) {
      if (Status status = script.Enter("FindTag"); !status.ok()) return status;
      const std::lock_guard lock(mutex_);
      const auto it = tags_.find(tag);
      records.push_back(it == tags_.end() ? Result<TagRecord>(NoSuchTag(tag))
                                          : Result<TagRecord>(it->second));
    }
    return records;
  }
  Result<std::vector<WorkerRecord>> ListWorkers(const std::string& tag) override {
    if (Status status = script.Enter("ListWorkers"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    std::vector<WorkerRecord> workers;
    for (const auto& [worker, host] : workers_[tag]) {
      workers.push_back({.worker = worker,
                         .host = host,
                         .is_mine = host == kHost,
                         .next_number = tags_[CounterName(tag, worker)].next_id});
    }
    return workers;
  }
  Result<bool> TakeWorker(const WorkerChoice& choice) override {
    if (Status status = script.Enter("TakeWorker"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    auto& owners = workers_[choice.tag];
    const auto owner = owners.find(choice.worker);
    const bool is_as_seen = choice.owner.has_value()
                                ? owner != owners.end() && owner->second == *choice.owner
                                : owner == owners.end();
    const std::string counter = CounterName(choice.tag, choice.worker);
    if (!tags_.contains(counter)) {
      TagRecord& record = tags_[counter];
      record.tag = counter;
      record.next_id = 1;
      record.step = 1;
      record.max_id = choice.last_number;
    }
    if (refused_workers_.contains(choice.worker)) return false;
    if (!is_as_seen || tags_[counter].next_id > choice.at_most) return false;
    owners[choice.worker] = kHost;
    return true;
  }
  Result<std::optional<StoreFacts::Clock>> CompareClocks() override {
    if (Status status = script.Enter("CompareClocks"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    return clock_;
  }
  Result<TagRecord> CreateTag(const NewTag& tag) override {
    if (Status status = script.Enter("CreateTag"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    if (tags_.contains(tag.tag)) return Status(Code::kInvalid, "it exists");
    if (tag.step == 0 || tag.step > kMaxStep) return Status(Code::kInvalid, "a bad step");
    return tags_[tag.tag] = {.tag = tag.tag,
                             .mode = tag.mode,
                             .next_id = tag.start.value_or(1),
                             .step = tag.step,
                             .max_id = tag.max_id.value_or(shm::kMaxLimit - 1),
                             .description = tag.description,
                             .update_time = "",
                             .access = tag.access,
                             .refill = FixedStep(tag.step)};
  }
  Result<TagRecord> ChangeTag(const TagChange& change) override {
    if (Status status = script.Enter("ChangeTag"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    const auto it = tags_.find(change.tag);
    if (it == tags_.end()) return NoSuchTag(change.tag);
    it->second.step = change.step.value_or(it->second.step);
    it->second.refill = FixedStep(it->second.step);
    it->second.max_id = change.max_id.value_or(it->second.max_id);
    it->second.description = change.description.value_or(it->second.description);
    it->second.access = change.access.value_or(it->second.access);
    return it->second;
  }
  Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) override {
    if (Status status = script.Enter("LiftTag"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    const auto it = tags_.find(tag);
    if (it == tags_.end()) return NoSuchTag(tag);
    it->second.next_id = std::max(it->second.next_id, to);
    std::erase_if(returned_,
                  [&](const auto& range) { return range.tag == tag && range.ids.first < to; });
    return it->second;
  }
  Result<std::uint64_t> UsedLimit(const std::string& tag) override {
    if (Status status = script.Enter("UsedLimit"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    std::uint64_t used = 0;
    for (const LeaseRecord& lease : journal_) {
      if (lease.tag == tag) used = std::max(used, lease.ids.limit);
    }
    return used;
  }
  Status DeleteTag(const std::string& tag) override {
    if (Status status = script.Enter("DeleteTag"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    return tags_.erase(tag) == 1 ? Status::Ok() : NoSuchTag(tag);
  }

  Result<std::vector<LeaseRecord>> ListLeases(const LeaseFilter& filter) override {
    if (Status status = script.Enter("ListLeases"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    last_listed_ = filter;
    std::vector<LeaseRecord> found;
    for (const LeaseRecord& lease : journal_) {
      if (filter.tag.has_value() && lease.tag != *filter.tag) continue;
      if (filter.host.has_value() && lease.host != *filter.host) continue;
      if (filter.state.has_value() && lease.state != *filter.state) continue;
      if (filter.containing.has_value() &&
          (*filter.containing < lease.ids.first || *filter.containing >= lease.ids.limit)) {
        continue;
      }
      if (filter.among.has_value() &&
          std::find(filter.among->begin(), filter.among->end(), lease.tag) == filter.among->end()) {
        continue;
      }
      found.push_back(lease);
    }
    if (filter.newest != 0 && found.size() > filter.newest) {
      found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(filter.newest));
    }
    return found;
  }
  Result<std::vector<ReturnedRange>> ListReturned(const std::optional<std::string>& tag) override {
    if (Status status = script.Enter("ListReturned"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    std::vector<ReturnedRange> found = returned_;
    if (tag.has_value()) std::erase_if(found, [&](const auto& range) { return range.tag != *tag; });
    return found;
  }
  Result<std::vector<HostRecord>> ListHosts() override {
    if (Status status = script.Enter("ListHosts"); !status.ok()) return status;
    return std::vector<HostRecord>{{.host = kHost, .first_seen = "", .last_seen = ""}};
  }
  Result<std::set<std::string>> LedgerTags() override {
    if (Status status = script.Enter("LedgerTags"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    std::set<std::string> tags;
    for (const auto& [name, row] : tags_) tags.insert(name);
    for (const LeaseRecord& lease : journal_) tags.insert(lease.tag);
    return tags;
  }
  Result<Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    return ReadLists(tag, most);
  }
  Result<StoreFacts> Inspect() override {
    if (Status status = script.Enter("Inspect"); !status.ok()) return status;
    StoreFacts facts;
    facts.version = "fake 1";
    return facts;
  }
  std::string DisplayUrl() const override { return "fake:"; }

 private:
  static Status NoSuchTag(const std::string& tag) {
    return {Code::kNoSuchTag, "no such tag: '" + tag + "'"};
  }
  LeaseRecord* Active(const std::string& token) {
    const auto it = std::find_if(journal_.begin(), journal_.end(), [&](const LeaseRecord& lease) {
      return lease.token == token && lease.state == LeaseState::kActive;
    });
    return it == journal_.end() ? nullptr : &*it;
  }

  mutable std::mutex mutex_;
  std::map<std::string, TagRecord, std::less<>> tags_;
  std::vector<LeaseRecord> journal_;
  std::map<std::string, std::map<std::uint32_t, std::string>, std::less<>> workers_;
  std::set<std::uint32_t> refused_workers_;
  std::set<std::string> refused_ends_;
  std::optional<StoreFacts::Clock> clock_;
  std::vector<ReturnedRange> returned_;
  std::vector<LeaseRequest> requests_;
  LeaseFilter last_listed_;
  std::vector<LeaseClosure> returned_tails_;
  std::optional<shm::IdRange> lie_;
  std::string incarnation_ = "0123456789abcdef";
  bool current_ = true;
  bool may_create_ = true;
  std::uint64_t generation_ = 0;
};

// Another connection to a FakeStore, which must outlive it.
class FakeReader final : public StoreReader {
 public:
  explicit FakeReader(FakeStore& store) : store_(store) {}

  Result<TagResults> FindTags(const std::vector<std::string>& tags) override {
    return store_.FindTags(tags);
  }
  Result<std::vector<LeaseRecord>> ListLeases(const LeaseFilter& filter) override {
    return store_.ListLeases(filter);
  }
  Result<std::vector<ReturnedRange>> ListReturned(const std::optional<std::string>& tag) override {
    return store_.ListReturned(tag);
  }
  Result<std::vector<HostRecord>> ListHosts() override { return store_.ListHosts(); }
  Result<std::set<std::string>> LedgerTags() override { return store_.LedgerTags(); }
  Result<Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    return store_.ReadLedger(tag, most);
  }
  Result<std::vector<WorkerRecord>> ListWorkers(const std::string& tag) override {
    return store_.ListWorkers(tag);
  }

 private:
  FakeStore& store_;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_UNIT_SUPPORT_FAKE_STORE_H_

// SPDX-License-Identifier: Apache-2.0
//
// A Store of one host on the model of the tables (tests/simulation), which fails, lies or stalls on
// a test's request.
#ifndef IDD_TESTS_UNIT_SUPPORT_FAKE_STORE_H_
#define IDD_TESTS_UNIT_SUPPORT_FAKE_STORE_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data_set.h"
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
    TagRecord& record = data_.tags[tag];
    record.tag = tag;
    record.next_id = next_id;
    record.step = step;
    record.refill = FixedStep(step);
    record.max_id = max_id;
  }
  void SetMode(const std::string& tag, TagMode mode) {
    const std::lock_guard lock(mutex_);
    data_.tags[tag].mode = mode;
  }
  void AddSnowflake(const std::string& tag, const SnowflakeLayout& layout) {
    AddTag(tag, 1);
    const std::lock_guard lock(mutex_);
    data_.tags[tag].mode = TagMode::kSnowflake;
    data_.tags[tag].snowflake = layout;
    data_.tags[tag].refill = RefillSettings{};
  }
  // Another host's worker id, whose windows end at `next_number`; also this host's, as kHost.
  void OwnWorker(const std::string& tag, std::uint32_t worker, const std::string& host,
                 std::uint64_t next_number) {
    AddTag(CounterName(tag, worker), 1, next_number);
    const std::lock_guard lock(mutex_);
    data_.workers[tag][worker] = host;
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
    data_.tags[tag].access = access;
  }
  void SetStep(const std::string& tag, std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    data_.tags[tag].step = step;
    data_.tags[tag].refill = FixedStep(step);
  }
  void SetMaxId(const std::string& tag, std::uint64_t max_id) {
    const std::lock_guard lock(mutex_);
    data_.tags[tag].max_id = max_id;
  }
  void RemoveTag(const std::string& tag) {
    const std::lock_guard lock(mutex_);
    data_.tags.erase(tag);
  }
  // The effect of a lease of `ids` ids by another host.
  void LeaseElsewhere(const std::string& tag, std::uint64_t ids) {
    const std::lock_guard lock(mutex_);
    data_.tags[tag].next_id += ids;
  }
  // The next lease is [first, limit), whatever the request says.
  void LieOnce(shm::IdRange ids) {
    const std::lock_guard lock(mutex_);
    lie_ = ids;
  }

  [[nodiscard]] std::vector<LeaseRecord> leases() const {
    const std::lock_guard lock(mutex_);
    return data_.journal;
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
  [[nodiscard]] std::vector<simulation::ReturnedRow> returned_ranges() const {
    const std::lock_guard lock(mutex_);
    return data_.returned;
  }
  [[nodiscard]] simulation::DataSet data() const {
    const std::lock_guard lock(mutex_);
    return data_;
  }
  [[nodiscard]] std::uint64_t next_id(const std::string& tag) const {
    const std::lock_guard lock(mutex_);
    return data_.tags.at(tag).next_id;
  }

  // The open file is replaced: by an older copy, or by another data set.
  void Replace(const std::string& incarnation) {
    const std::lock_guard lock(mutex_);
    data_.incarnation = incarnation;
    current_ = false;
  }
  void Replace(const simulation::DataSet& copy) {
    const std::lock_guard lock(mutex_);
    data_ = copy;
    current_ = false;
  }
  void ForgetLeases() {
    const std::lock_guard lock(mutex_);
    simulation::DataSet kept = NewData();
    kept.tags = data_.tags;
    kept.workers = data_.workers;
    data_ = kept;
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
    return Call("Incarnation", [&] { return Result<std::string>(data_.incarnation); });
  }

  Result<LeaseResults> TakeLeases(const std::vector<LeaseRequest>& requests) override {
    LeaseResults leases;
    if (Status status = script.Enter("TakeLeases"); !status.ok()) return status;
    for (const LeaseRequest& request : requests) {
      Result<Lease> lease = Call("TakeLease", [&] { return TakeOne(request); });
      const Code code = lease.status().code();
      const bool is_store =
          code == Code::kUnavailable || code == Code::kSystem || code == Code::kIncompatible;
      if (is_store) return lease.status();
      leases.push_back(std::move(lease));
    }
    return leases;
  }
  Status CloseLeases(const std::vector<LeaseClosure>& closures) override {
    return Call("CloseLeases", [&] {
      for (const LeaseClosure& closure : closures) {
        if (refused_ends_.contains(closure.token)) {
          return Status(Code::kInvalid, "this end is refused");
        }
      }
      return data_.CloseLeases(closures, kHost);
    });
  }
  Result<ReturnOutcome> ReturnTail(const LeaseClosure& closure) override {
    return Call("ReturnTail", [&] {
      returned_tails_.push_back(closure);
      return data_.ReturnTail(closure, kHost, false);
    });
  }
  Result<std::vector<LeaseRecord>> AbandonActive(
      const std::vector<std::string>& except_tokens) override {
    return Call("AbandonActive", [&] {
      return Result(data_.AbandonActive({except_tokens.begin(), except_tokens.end()}, kHost));
    });
  }
  Result<Reconciliation> Reconcile(const HostMemory& memory) override {
    return Call("Reconcile", [&] { return Result(data_.Reconcile(memory, kHost)); });
  }

  Result<std::vector<TagRecord>> ListTags() override {
    return Call("ListTags", [&] {
      std::vector<TagRecord> all;
      for (const auto& [name, tag] : data_.tags) all.push_back(tag);
      return Result(std::move(all));
    });
  }
  Result<TagResults> FindTags(const std::vector<std::string>& tags) override {
    TagResults records;
    for (const std::string& tag : tags) {
      if (Status status = script.Enter("FindTag"); !status.ok()) return status;
      const std::lock_guard lock(mutex_);
      records.push_back(data_.FindTag(tag, false));
    }
    return records;
  }
  Result<std::vector<WorkerRecord>> ListWorkers(const std::string& tag) override {
    return Call("ListWorkers", [&] { return Result(data_.ListWorkers(tag, kHost)); });
  }
  Result<bool> TakeWorker(const WorkerChoice& choice) override {
    return Call("TakeWorker", [&] {
      const bool is_refused = refused_workers_.contains(choice.worker);
      return is_refused ? Result(false) : data_.TakeWorker(choice, kHost);
    });
  }
  Result<std::optional<StoreFacts::Clock>> CompareClocks() override {
    return Call("CompareClocks", [&] { return Result(clock_); });
  }
  Result<TagRecord> CreateTag(const NewTag& tag) override {
    return Call("CreateTag", [&] { return WithFixedStep(data_.CreateTag(tag)); });
  }
  Result<TagRecord> ChangeTag(const TagChange& change) override {
    return Call("ChangeTag", [&] { return WithFixedStep(data_.ChangeTag(change)); });
  }
  Result<TagRecord> LiftTag(const std::string& tag, std::uint64_t to) override {
    return Call("LiftTag", [&] { return data_.LiftTag(tag, to); });
  }
  Result<std::uint64_t> UsedLimit(const std::string& tag) override {
    return Call("UsedLimit", [&] { return Result(data_.UsedLimit(tag)); });
  }
  Status DeleteTag(const std::string& tag) override {
    return Call("DeleteTag", [&] { return data_.DeleteTag(tag); });
  }

  Result<std::vector<LeaseRecord>> ListLeases(const LeaseFilter& filter) override {
    if (Status status = script.Enter("ListLeases"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    last_listed_ = filter;
    std::vector<LeaseRecord> found;
    for (const LeaseRecord& lease : data_.journal) {
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
    return Call("ListReturned", [&] {
      std::vector<ReturnedRange> found;
      for (const simulation::ReturnedRow& row : data_.returned) {
        if (tag.has_value() && row.tag != *tag) continue;
        found.push_back({.tag = row.tag, .host = row.host, .ids = row.ids});
      }
      return Result(std::move(found));
    });
  }
  Result<std::vector<HostRecord>> ListHosts() override {
    return Call("ListHosts", [] {
      return Result(std::vector<HostRecord>{{.host = kHost, .first_seen = "", .last_seen = ""}});
    });
  }
  Result<std::set<std::string>> LedgerTags() override {
    return Call("LedgerTags", [&] {
      std::set<std::string> tags;
      for (const auto& [name, row] : data_.tags) tags.insert(name);
      for (const LeaseRecord& lease : data_.journal) tags.insert(lease.tag);
      return Result(std::move(tags));
    });
  }
  Result<Ledger> ReadLedger(const std::string& tag, std::size_t most) override {
    return ReadLists(tag, most);
  }
  Result<StoreFacts> Inspect() override {
    return Call("Inspect", [] {
      StoreFacts facts;
      facts.version = "fake 1";
      return Result(std::move(facts));
    });
  }
  std::string DisplayUrl() const override { return "fake:"; }

 private:
  static simulation::DataSet NewData() {
    simulation::DataSet data;
    data.incarnation = "0123456789abcdef";
    return data;
  }
  // A call that the script may fail or hold; `body` runs with the data locked.
  template <typename Body>
  std::invoke_result_t<Body> Call(const char* name, const Body& body) {
    if (Status status = script.Enter(name); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    return body();
  }
  Result<Lease> TakeOne(const LeaseRequest& request) {
    requests_.push_back(request);
    if (!lie_.has_value()) return data_.TakeLease(request, kHost, false);
    Lease lease{
        .token = request.token, .tag = request.tag, .ids = *std::exchange(lie_, std::nullopt)};
    static_cast<void>(
        data_.Reconcile({.marks = {}, .held = {lease}, .from_other_data_set = true}, kHost));
    return lease;
  }
  Result<TagRecord> WithFixedStep(Result<TagRecord> record) {
    if (!record.ok()) return record;
    TagRecord& row = data_.tags[record.value().tag];
    row.refill = FixedStep(row.step);
    return row;
  }

  mutable std::mutex mutex_;
  simulation::DataSet data_ = NewData();
  std::set<std::uint32_t> refused_workers_;
  std::set<std::string> refused_ends_;
  std::optional<StoreFacts::Clock> clock_;
  std::vector<LeaseRequest> requests_;
  LeaseFilter last_listed_;
  std::vector<LeaseClosure> returned_tails_;
  std::optional<shm::IdRange> lie_;
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

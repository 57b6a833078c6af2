// SPDX-License-Identifier: Apache-2.0
//
// In-memory HighWaterMarks that keep the contract of high_water.h, and fail on a test's request.
#ifndef IDD_TESTS_UNIT_SUPPORT_FAKE_MARKS_H_
#define IDD_TESTS_UNIT_SUPPORT_FAKE_MARKS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "script.h"

namespace idd::daemon {

// Thread safety: all.
class FakeMarks final : public HighWaterMarks {
 public:
  Script script;
  bool is_full = false;  // the disk: nothing can be written
  // What a witness keeps, so that a test can restore it from a backup, or lose it.
  struct Disk {
    std::map<std::string, std::uint64_t> ceilings{};
    WitnessState witness{};
  };
  [[nodiscard]] Disk disk() const { return {.ceilings = ceilings_, .witness = witness_}; }
  void SetDisk(const Disk& disk) {
    ceilings_ = disk.ceilings;
    witness_ = disk.witness;
  }

  [[nodiscard]] std::uint64_t mark(const std::string& tag) const {
    const std::lock_guard lock(mutex_);
    const auto it = marks_.find(tag);
    return it == marks_.end() ? 0 : it->second;
  }

  Result<std::uint64_t> Get(const std::string& tag) override {
    if (Status status = script.Enter("Get"); !status.ok()) return status;
    return mark(tag);
  }
  Result<std::vector<TagMark>> All() override {
    if (Status status = script.Enter("All"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    std::vector<TagMark> all;
    for (const auto& [tag, mark] : marks_) all.push_back({.tag = tag, .mark = mark});
    return all;
  }
  Status RaiseAll(const std::vector<TagMark>& marks) override {
    if (Status status = EnterWrite("Raise"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    for (const TagMark& mark : marks) marks_[mark.tag] = std::max(marks_[mark.tag], mark.mark);
    return Status::Ok();
  }
  Status Lower(const std::string& tag, std::uint64_t mark) override {
    if (Status status = EnterWrite("Lower"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    marks_[tag] = std::min(marks_[tag], mark);
    return Status::Ok();
  }
  Result<std::string> Database() override {
    const std::lock_guard lock(mutex_);
    return database_;
  }
  Status SetDatabase(const std::string& display_url) override {
    const std::lock_guard lock(mutex_);
    database_ = display_url;
    return Status::Ok();
  }
  Result<std::string> Incarnation() override {
    if (Status status = script.Enter("Incarnation"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    return incarnation_;
  }
  Result<std::vector<std::string>> Drained() override {
    if (Status status = script.Enter("Drained"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    return std::vector<std::string>(drained_.begin(), drained_.end());
  }
  Status SetDrained(const std::string& scope, bool is_drained) override {
    if (Status status = EnterWrite("SetDrained"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    if (is_drained) {
      drained_.insert(scope);
    } else {
      drained_.erase(scope);
    }
    return Status::Ok();
  }
  Result<std::string> HeldList() override { return held_list_; }
  Status SetHeldList(const std::string& id) override {
    held_list_ = id;
    return Status::Ok();
  }
  Status SetIncarnation(const std::string& incarnation) override {
    if (Status status = EnterWrite("SetIncarnation"); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    incarnation_ = incarnation;
    return Status::Ok();
  }
  Result<std::vector<TagMark>> Ceilings() override {
    if (Status status = script.Enter("Ceilings"); !status.ok()) return status;
    std::vector<TagMark> all;
    for (const auto& [tag, ceiling] : ceilings_) all.push_back({.tag = tag, .mark = ceiling});
    return all;
  }
  Status NoteCeilings(const std::vector<TagMark>& ceilings) override {
    if (Status status = EnterWrite("NoteCeilings"); !status.ok()) return status;
    for (const TagMark& ceiling : ceilings) {
      ceilings_[ceiling.tag] = std::max(ceilings_[ceiling.tag], ceiling.mark);
    }
    return Status::Ok();
  }
  Result<WitnessState> GetWitnessState() override {
    if (Status status = script.Enter("GetWitnessState"); !status.ok()) return status;
    return witness_;
  }
  Status SetWitnessState(const WitnessState& state) override {
    if (Status status = EnterWrite("SetWitnessState"); !status.ok()) return status;
    witness_ = state;
    return Status::Ok();
  }
  Result<std::uint64_t> NextRunNumber() override {
    if (Status status = EnterWrite("NextRunNumber"); !status.ok()) return status;
    return ++run_number_;
  }
  Result<std::string> FallbackHostId() override { return std::string("fallback"); }

 private:
  [[nodiscard]] Status EnterWrite(const char* call) {
    if (is_full) return {Code::kUnavailable, "the disk is full"};
    return script.Enter(call);
  }

  std::string held_list_;
  std::set<std::string> drained_;
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> marks_;
  std::string database_;
  std::string incarnation_;
  std::map<std::string, std::uint64_t> ceilings_;
  WitnessState witness_{.disk = "d15c0001"};
  std::uint64_t run_number_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_UNIT_SUPPORT_FAKE_MARKS_H_

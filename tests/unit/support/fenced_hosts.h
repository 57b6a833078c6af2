// SPDX-License-Identifier: Apache-2.0
//
// Hosts with the real Fence on a data set that can be copied, replaced and set back.
#ifndef IDD_TESTS_UNIT_SUPPORT_FENCED_HOSTS_H_
#define IDD_TESTS_UNIT_SUPPORT_FENCED_HOSTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fake_marks.h"
#include "idd/shm/abi.h"
#include "leasing/fence.h"
#include "store/fence_store.h"

namespace idd::daemon::fenced {

inline constexpr const char* kTag = "orders";
inline constexpr const char* kIncarnation = "0123456789abcdef";
inline constexpr std::chrono::seconds kSilence(20);

// The contents of a server. A copy stands for a replica, a dump or a backup.
struct DataSet {
  struct CeilingRow {
    Ceiling ceiling;
    std::uint64_t epoch = 0;
  };
  std::map<std::string, FenceMember> members;
  std::map<std::string, CeilingRow> ceilings;
  std::uint64_t epochs = 0;
  std::uint64_t max_id = 1;
  bool is_raising = false;  // a host that is not simulated holds the counter
};

// The servers: the one in use, and its clock.
struct World {
  std::shared_ptr<DataSet> data = std::make_shared<DataSet>();
  std::string server = "server-1";
  std::int64_t started_ms = 0;
  std::int64_t now_ms = 1'000'000;

  // Another server, or the same one set back, takes over with `copy`.
  void FailOver(const DataSet& copy, const std::string& name) {
    data = std::make_shared<DataSet>(copy);
    server = name;
    started_ms = now_ms;
  }
  // The tables are dropped and created again under the running server. The server's name reflects
  // their creation times.
  void SetBack(const DataSet& copy) {
    data = std::make_shared<DataSet>(copy);
    server += "'";
  }
};

// A host's connection. It is lost when its data set is no longer in use.
class FakeFenceStore final : public FenceStore {
 public:
  FakeFenceStore(World& world, std::string host) : world_(world), host_(std::move(host)) {}

  [[nodiscard]] bool IsOpen() const {
    if (!is_reachable || opened_on_ != world_.data) return false;
    const auto own = world_.data->members.find(host_);
    return own != world_.data->members.end() && own->second.run == own_run_;
  }
  // False if it was open on another data set before.
  bool Open() {
    const bool is_same = opened_on_ == world_.data;
    if (!is_same) ++data_sets_;
    opened_on_ = world_.data;
    found_.reset();
    FenceMember& row = Own();
    if (row.beat != 0) found_ = row;
    row.host = host_;
    row.run = own_run_ = RunOfConnection(row.run);
    row.server.clear();
    ++row.beat;
    return is_same;
  }

  Result<FenceView> ReadFence(std::uint64_t noted) override {
    if (!IsOpen() || std::exchange(loses_look, false)) return Lost();
    ++Own().beat;
    FenceView view;
    view.server = world_.server;
    view.epoch = std::max(noted, data().epochs);
    for (const auto& [host, member] : data().members) view.members.push_back(member);
    for (const auto& [tag, row] : data().ceilings) {
      if (row.epoch > noted) view.ceilings.push_back(row.ceiling);
    }
    return view;
  }
  [[nodiscard]] std::uint64_t data_set() const override { return data_sets_; }
  [[nodiscard]] bool is_new() const override { return is_new_data_set; }
  [[nodiscard]] std::optional<std::chrono::seconds> uptime() const override {
    return std::chrono::seconds((world_.now_ms - world_.started_ms) / 1000);
  }
  [[nodiscard]] const std::optional<FenceMember>& found() const override { return found_; }
  [[nodiscard]] std::uint64_t beat() const override { return opened_on_->members.at(host_).beat; }
  Status SetState(MemberState state, std::chrono::seconds silence, std::uint64_t number) override {
    if (!IsOpen()) return Lost();
    FenceMember& row = Own();
    ++row.beat;
    row.noted = 0;
    row.server.clear();
    row.state = state;
    row.silence = silence;
    row.run = own_run_ = MakeRun(number);
    return Status::Ok();
  }
  Status SetNoted(std::uint64_t epoch) override {
    if (!IsOpen()) return Lost();
    ++Own().beat;
    Own().noted = epoch;
    return Status::Ok();
  }
  Status Confirm() override {
    if (!IsOpen()) return Lost();
    ++Own().beat;
    Own().server = world_.server;
    return Status::Ok();
  }
  Status Admit(const std::vector<FenceMember>& members) override {
    if (!IsOpen()) return Lost();
    for (FenceMember member : members) {
      member.state = MemberState::kLive;
      member.beat = 1;
      FenceMember& row = data().members.try_emplace(member.host, member).first->second;
      if (row.state == MemberState::kLive || !IsOlderRun(row.run, member.run)) continue;
      row.run = member.run;
      row.state = MemberState::kLive;
      row.noted = 0;
      row.server.clear();
    }
    return Status::Ok();
  }
  Status Raise(const std::vector<CeilingRaise>& raises) override {
    if (!IsOpen()) return Lost();
    std::uint64_t noted = 0;
    for (const auto& [host, member] : data().members) noted = std::max(noted, member.noted);
    data().epochs = std::max(data().epochs, noted) + 1;
    for (const CeilingRaise& raise : raises) {
      DataSet::CeilingRow& row = data().ceilings[raise.tag];
      row.ceiling.tag = raise.tag;
      const bool is_short = row.ceiling.wanted < raise.least;
      if (is_short || row.ceiling.pushed < raise.pushed) row.epoch = data().epochs;
      if (is_short) row.ceiling.wanted = raise.wanted;
      row.ceiling.pushed = std::max(row.ceiling.pushed, raise.pushed);
    }
    return Status::Ok();
  }
  Result<bool> TryRaise(const std::vector<CeilingRaise>& raises) override {
    if (data().is_raising) return false;
    Status status = Raise(raises);
    return status.ok() ? Result<bool>(true) : Result<bool>(std::move(status));
  }
  Result<std::vector<Ceiling>> Activate(const std::vector<std::string>& tags) override {
    if (!IsOpen()) return Lost();
    std::optional<std::uint64_t> least;
    for (const auto& [host, member] : data().members) {
      if (member.state != MemberState::kLive) continue;
      least = std::min(least.value_or(member.noted), member.noted);
    }
    std::vector<Ceiling> ceilings;
    for (const std::string& tag : tags) {
      DataSet::CeilingRow& row = data().ceilings[tag];
      if (least.has_value() && row.epoch <= *least) row.ceiling.active = row.ceiling.wanted;
      ceilings.push_back(row.ceiling);
    }
    return ceilings;
  }
  Result<bool> PutOut(const FenceMember& member) override {
    if (!IsOpen()) return Lost();
    FenceMember& row = data().members[member.host];
    if (row.run != member.run || row.beat != member.beat) return false;
    row.state = MemberState::kOut;
    return true;
  }

  bool is_reachable = true;
  bool loses_look = false;  // the next look fails
  bool is_new_data_set = false;

 private:
  [[nodiscard]] DataSet& data() { return *world_.data; }
  [[nodiscard]] FenceMember& Own() { return data().members[host_]; }
  [[nodiscard]] static Status Lost() { return {Code::kUnavailable, "the connection is lost"}; }

  World& world_;
  const std::string host_;
  std::string own_run_;  // as this connection left it in its row
  std::shared_ptr<DataSet> opened_on_;
  std::optional<FenceMember> found_;
  std::uint64_t data_sets_ = 0;
};

// All ids granted to any host, ever, in any data set.
class Grants {
 public:
  // False if one of them was granted before.
  [[nodiscard]] bool Add(std::uint64_t first, std::uint64_t limit) {
    const auto after = ranges_.lower_bound(first);
    if (after != ranges_.end() && after->first < limit) return false;
    if (after != ranges_.begin() && std::prev(after)->second > first) return false;
    ranges_[first] = limit;
    return true;
  }
  [[nodiscard]] std::size_t size() const { return ranges_.size(); }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

// A host across the restarts of its idd: its marks persist.
class FenceHost {
 public:
  FenceHost(World& world, std::string name) : world_(world), name_(std::move(name)) { Start(); }

  void Start() {
    store = std::make_unique<FakeFenceStore>(world_, name_);
    fence = Fence(
        {.host = name_, .boot_id = std::to_string(boots_), .silence = kSilence, .now_ms = [this] {
           return world_.now_ms;
         }});
    is_open_ = false;
    is_running = true;
  }
  void Kill() { is_running = false; }
  void Reboot() {
    ++boots_;
    Start();
  }
  void Stop() {
    if (is_open_ && store->IsOpen()) fence.Leave(*store, marks);
    is_running = false;
  }

  // As the lease worker does before each job.
  bool Prepare() {
    if (!is_running || !store->is_reachable) return false;
    if (is_open_ && store->IsOpen()) {
      const Result<bool> looked = fence.Refresh(*store, marks);
      if (looked.ok()) return looked.value() || Recover(false);
    }
    is_open_ = false;
    const bool is_first = !was_opened_;
    const bool is_same = store->Open();
    is_open_ = Recover(!is_first && !is_same);
    was_opened_ = is_open_;
    return is_open_;
  }
  // The granted ids; empty if the host has to wait.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> Lease(std::uint64_t count) {
    if (!Prepare() || !fence.may_lease()) return {};
    DataSet& data = *world_.data;
    const Ceiling& row = data.ceilings[kTag].ceiling;
    const std::uint64_t base = std::max({data.max_id, row.pushed, marks.mark(kTag)});
    std::vector<Ceilings::Need> needs = {{.tag = kTag,
                                          .base = base,
                                          .count = count,
                                          .last = shm::kMaxLimit - 2,
                                          .ceiling = row.active}};
    if (!fence.Cover(*store, marks, needs).ok()) return {};
    const std::uint64_t limit = std::min(base + count, data.ceilings[kTag].ceiling.active);
    if (limit <= base) return {};
    data.max_id = limit;
    if (!marks.Raise(kTag, limit).ok()) return {};
    return {base, limit};
  }

  std::unique_ptr<FakeFenceStore> store;
  FakeMarks marks;
  Fence fence;
  bool is_running = true;

 private:
  bool Recover(bool is_replaced) {
    const Result<Fence::Arrival> arrival = fence.Arrive(*store, marks, kIncarnation, is_replaced);
    if (!arrival.ok()) return false;
    world_.data->max_id = std::max(world_.data->max_id, marks.mark(kTag));
    return fence.Settle(*store, marks, arrival.value()).ok();
  }

  World& world_;
  const std::string name_;
  int boots_ = 1;
  bool is_open_ = false;
  bool was_opened_ = false;
};

}  // namespace idd::daemon::fenced

#endif  // IDD_TESTS_UNIT_SUPPORT_FENCED_HOSTS_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_STEPPED_MARKS_H_
#define IDD_TESTS_SIMULATION_STEPPED_MARKS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "leasing/high_water.h"
#include "world.h"

namespace idd::simulation {

// A disk as the marks meet it.
struct Disk {
  bool is_full = false;
  Nanos sync = 300 * kMicrosecond;
};

// The real marks, on a disk that takes time and can be full. Time passes before and after each
// write, so that a process can be killed before the write, or between the write and what follows.
class SteppedMarks final : public daemon::HighWaterMarks {
 public:
  // `on_step`: called right before and right after each write.
  SteppedMarks(std::unique_ptr<daemon::HighWaterMarks> marks, Disk& disk,
               std::function<void()> on_step)
      : marks_(std::move(marks)), disk_(disk), on_step_(std::move(on_step)) {}

  Result<std::uint64_t> Get(const std::string& tag) override { return marks_->Get(tag); }
  Result<std::vector<daemon::TagMark>> All() override { return marks_->All(); }
  Status RaiseAll(const std::vector<daemon::TagMark>& raised) override {
    return Write([&] { return marks_->RaiseAll(raised); });
  }
  Status Lower(const std::string& tag, std::uint64_t mark) override {
    return Write([&] { return marks_->Lower(tag, mark); });
  }
  Result<std::string> Incarnation() override { return marks_->Incarnation(); }
  Status SetIncarnation(const std::string& incarnation) override {
    return Write([&] { return marks_->SetIncarnation(incarnation); });
  }
  Result<std::string> Database() override { return marks_->Database(); }
  Status SetDatabase(const std::string& url) override {
    return Write([&] { return marks_->SetDatabase(url); });
  }
  Result<std::vector<daemon::TagMark>> Ceilings() override { return marks_->Ceilings(); }
  Status NoteCeilings(const std::vector<daemon::TagMark>& ceilings) override {
    return Write([&] { return marks_->NoteCeilings(ceilings); });
  }
  Result<daemon::WitnessState> GetWitnessState() override { return marks_->GetWitnessState(); }
  Status SetWitnessState(const daemon::WitnessState& state) override {
    return Write([&] { return marks_->SetWitnessState(state); });
  }
  Result<std::uint64_t> NextRunNumber() override {
    Result<std::uint64_t> number(0);
    Status status = Write([&] {
      number = marks_->NextRunNumber();
      return number.status();
    });
    return status.ok() ? number : status;
  }
  Result<std::string> HeldList() override { return marks_->HeldList(); }
  Status SetHeldList(const std::string& id) override {
    return Write([&] { return marks_->SetHeldList(id); });
  }
  Result<std::vector<std::string>> Drained() override { return marks_->Drained(); }
  Status SetDrained(const std::string& scope, bool is_drained) override {
    return Write([&] { return marks_->SetDrained(scope, is_drained); });
  }
  Result<std::string> FallbackHostId() override { return marks_->FallbackHostId(); }

 private:
  template <typename Call>
  Status Write(Call call) {
    Pause();
    if (disk_.is_full) return {Code::kSystem, "the disk is full"};
    on_step_();
    Status status = call();
    on_step_();
    Pause();
    return status;
  }
  void Pause() const { Thread::Current()->Sleep(World::Get().random().Between(1, disk_.sync)); }

  std::unique_ptr<daemon::HighWaterMarks> marks_;
  Disk& disk_;
  const std::function<void()> on_step_;
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_STEPPED_MARKS_H_

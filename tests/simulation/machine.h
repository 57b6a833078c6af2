// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SIMULATION_MACHINE_H_
#define IDD_TESTS_SIMULATION_MACHINE_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine.h"
#include "idd/base/scoped_fd.h"
#include "platform/event_loop.h"
#include "platform/service_manager.h"
#include "restart/inheritance.h"
#include "servers.h"
#include "stepped_marks.h"
#include "world.h"

namespace idd::simulation {

// One machine: its disk, its service manager and the idd that runs on it.
class Machine {
 public:
  struct Settings {
    std::string host_id;
    bool has_manager = true;  // that keeps descriptors
    std::uint32_t leases_per_s = 1000;
  };
  Machine(std::string name, Settings settings,
          std::function<std::unique_ptr<daemon::Store>(Machine&, daemon::HostIdentity)> make_store,
          std::filesystem::path dir);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& host_id() const noexcept { return settings_.host_id; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] const std::filesystem::path& dir() const noexcept { return dir_; }
  [[nodiscard]] Link& link() noexcept { return link_; }
  [[nodiscard]] Disk& disk() noexcept { return disk_; }
  [[nodiscard]] HostClock& clock() noexcept { return clock_; }
  // When idd last knew nothing of what had been handed out of the tag: it inherited no lease of it
  // that still had ids, or its leases went back in a drain.
  [[nodiscard]] Nanos forgot_at(const std::string& tag) const;
  // An operator drains the tag, or every tag if that is empty. The drain may take effect even if
  // idd is killed before it answers.
  void StepClock(Nanos by);
  void SetClockRight();
  void NoteDrain(const std::string& tag) { drains_.try_emplace(tag); }
  void NoteResume(const std::string& tag);
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }
  // Whether all programs claim from the rings of one idd, also after it was killed.
  [[nodiscard]] bool keeps_rings() const noexcept {
    return settings_.has_manager && !has_old_rings_;
  }
  // Whether each idd knew the leases of the one before.
  [[nodiscard]] bool has_kept_its_list() const noexcept {
    return settings_.has_manager && !is_list_lost_;
  }
  // Whether programs may still claim from rings that no idd can close.
  [[nodiscard]] bool has_old_rings() const noexcept { return has_old_rings_; }
  // Rises with every boot; programs of an earlier one are gone.
  [[nodiscard]] std::uint64_t boots() const noexcept { return boots_; }

  // --- idd
  [[nodiscard]] bool idd_runs() const noexcept { return idd_ != nullptr; }
  [[nodiscard]] bool idd_is_suspended() const noexcept {
    return idd_ != nullptr && idd_->is_suspended();
  }
  void StartIdd();
  // systemctl stop.
  void StopIdd();
  // systemctl restart: with a manager that keeps descriptors, the rings stay open.
  void RestartIdd();
  // kill -9. The manager starts it again.
  void KillIdd();
  // kill -9 when idd takes its n-th step from now: right before or after it sends a message to a
  // program, leaves a descriptor with the manager, writes a mark or calls the store.
  void KillIddAtStep(std::uint64_t n) noexcept { steps_to_live_ = n; }
  // Such a step. Called by idd's threads.
  void Step();
  // An operator kills it and starts another one by hand. The manager does not pass that one the
  // descriptors.
  void RunIddByHand();
  void SuspendIdd();
  void ContinueIdd();
  // Starts it now, or as soon as the one that is stopping has ended.
  void KeepIddRunning();

  // --- the machine
  // Power off: all processes end, what was not on the disk is gone.
  void PowerOff();
  void PowerOn();
  // Another machine begins with a copy of this one's disk.
  void CopyDiskFrom(const Machine& other);

  // --- for programs on the machine
  // Whether a program can connect now; connections end with the run.
  [[nodiscard]] bool listens() const noexcept { return runs_ != nullptr && listens_; }
  [[nodiscard]] std::uint64_t run() const noexcept { return run_; }
  // Whether idd runs and its store answers, as far as it knows.
  [[nodiscard]] bool store_is_up() const;
  // Calls `request` on the loop of the idd that runs now, if it still runs then.
  void Post(std::function<void(daemon::TagService&)> request);
  // An operator's request, in JSON. `done` gets the document, in the world.
  void Administer(const std::string& request, std::function<void(bool, std::string)> done);

 private:
  struct Running;
  class Descriptors;

  void Main();
  void EndIdd();
  void NoteClockBack();
  [[nodiscard]] Nanos BeganWithout(const std::string& tag) const;
  void NoteInherited(const daemon::TagService& tags);
  void LoseProcess();
  void CopyDisk();
  void StartAgainLater();
  [[nodiscard]] std::int64_t BootTimeMs() const;

  const std::string name_;
  const Settings settings_;
  const std::function<std::unique_ptr<daemon::Store>(Machine&, daemon::HostIdentity)> make_store_;
  const std::filesystem::path dir_;
  HostClock clock_;
  Link link_;
  Disk disk_;
  bool is_on_ = true;
  std::uint64_t boots_ = 1;
  Nanos booted_at_ = 0;
  Nanos run_began_ = 0;
  std::map<std::string, Nanos> remembers_since_;  // forgot_at() of the tags that it inherited
  Nanos clock_ahead_at_ = 0;                      // the wall clock was last set far ahead
  Nanos suspended_at_ = 0;                        // idd was last suspended
  Nanos unseen_time_at_ = 0;  // the wall clock was last set back from a time that idd may not know
  std::map<std::string, Nanos> drains_;  // by tag or empty, the last resume
  std::string boot_id_;
  std::uint64_t disk_version_ = 0;  // a kill copies the state dir
  std::map<std::string, ScopedFd> kept_;
  std::unique_ptr<Process> idd_;
  Running* runs_ = nullptr;
  std::uint64_t run_ = 0;
  bool listens_ = false;
  bool starts_again_ = false;  // as soon as it has ended
  bool has_old_rings_ = false;
  bool is_by_hand_ = false;  // the run that is next or now
  bool is_list_lost_ = false;
  std::uint64_t steps_to_live_ = 0;  // 0: it lives on
};

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_MACHINE_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_CLAIM_WORKER_PROCESS_H_
#define IDD_TESTS_SUPPORT_CLAIM_WORKER_PROCESS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/claim_log.h"
#include "support/claim_oracle.h"
#include "support/temp_dir.h"

namespace idd::harness {

struct WorkerPlan {
  std::string socket;
  std::string tag;
  std::string name;           // unique in the test's directory; names the logs
  std::uint64_t ids = 0;      // for each claimer; 0: until Stop()
  std::uint64_t batch = 1;    // 1: single claims only; more: mixed, up to this many ids
  std::uint64_t pace_us = 0;  // sleep between two claims
  std::uint64_t threads = 1;
  std::uint64_t children = 0;
  std::uint64_t timeout_ms = 120'000;
  bool retry = false;                    // TIMEOUT and UNAVAILABLE are logged and tried again
  bool awaits_tag = false;               // with retry: also NO_SUCH_TAG, as during a restore
  bool tally = false;                    // single claims at full speed, summed up, not recorded
  std::string bitmap{};                  // claims at full speed, marked in this IdBitmap
  std::uint64_t block = 0;               // ids of a thread's block; 0: none
  std::uint64_t log_capacity = 1 << 20;  // records for each claimer
  std::uint64_t seed = 1;
  std::vector<std::string> environment{};  // "NAME=value"
  std::optional<Identity> identity{};      // run as; needs root, and a directory that it may enter
};

// A running idd_claim_worker and the logs of its claimers.
class ClaimWorkerProcess {
 public:
  // Starts it; it opens the tag and waits for Go().
  ClaimWorkerProcess(const TempDir& dir, const WorkerPlan& plan);

  [[nodiscard]] ChildProcess& process() noexcept { return process_; }
  [[nodiscard]] const std::vector<ClaimLog>& logs() const noexcept { return logs_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Waits until the tag is open in every thread; otherwise throws HarnessError with the worker's
  // message. Does not wait for forked children, which may be forked after Go().
  void WaitReady(std::chrono::milliseconds timeout);
  void Go() noexcept;
  void Stop() noexcept;
  // The exit status, 0 if all claimers completed their work. Kills the worker at the timeout.
  [[nodiscard]] int Finish(std::chrono::milliseconds timeout);

  [[nodiscard]] std::uint64_t ids() const noexcept;     // claimed and logged so far
  [[nodiscard]] std::uint64_t errors() const noexcept;  // TIMEOUT or UNAVAILABLE, tried again
  // All known reasons of a failure; empty if there was none.
  [[nodiscard]] std::string Failure() const;
  // Views of the logs, valid as long as this object.
  void AddClaimers(std::vector<Claimer>& claimers) const;

 private:
  std::string name_;
  std::uint64_t threads_;
  std::vector<ClaimLog> logs_;
  ChildProcess process_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_CLAIM_WORKER_PROCESS_H_

// SPDX-License-Identifier: Apache-2.0
#include "support/claim_worker_process.h"

#include <unistd.h>

#include "support/test_environment.h"

namespace idd::harness {
namespace {

std::vector<ClaimLog> CreateLogs(const TempDir& dir, const WorkerPlan& plan) {
  std::vector<ClaimLog> logs;
  for (std::uint64_t i = 0; i < plan.threads + plan.children; ++i) {
    const std::string path = dir.File(plan.name + "." + std::to_string(i));
    logs.push_back(ClaimLog::Create(path, plan.log_capacity));
    if (!plan.identity.has_value()) continue;
    RequireErrno(::chown(path.c_str(), plan.identity->uid, plan.identity->gid) == 0, "chown");
  }
  return logs;
}

ChildOptions WorkerCommand(const TempDir& dir, const WorkerPlan& plan) {
  ChildOptions options;
  options.identity = plan.identity;
  options.environment = plan.environment;
  options.argv = {IDD_TEST_CLAIM_WORKER_BINARY,
                  "--socket",
                  plan.socket,
                  "--tag",
                  plan.tag,
                  "--log",
                  dir.File(plan.name),
                  "--batch",
                  std::to_string(plan.batch),
                  "--pace-us",
                  std::to_string(plan.pace_us),
                  "--threads",
                  std::to_string(plan.threads),
                  "--children",
                  std::to_string(plan.children),
                  "--timeout-ms",
                  std::to_string(plan.timeout_ms),
                  "--seed",
                  std::to_string(plan.seed)};
  if (plan.ids != 0) options.argv.insert(options.argv.end(), {"--ids", std::to_string(plan.ids)});
  if (plan.retry) options.argv.emplace_back("--retry");
  if (plan.awaits_tag) options.argv.emplace_back("--await-tag");
  if (plan.tally) options.argv.emplace_back("--tally");
  if (!plan.bitmap.empty()) options.argv.insert(options.argv.end(), {"--bitmap", plan.bitmap});
  if (plan.block != 0) {
    options.argv.insert(options.argv.end(), {"--block", std::to_string(plan.block)});
  }
  return options;
}

}  // namespace

ClaimWorkerProcess::ClaimWorkerProcess(const TempDir& dir, const WorkerPlan& plan)
    : name_(plan.name),
      threads_(plan.threads),
      logs_(CreateLogs(dir, plan)),
      process_(WorkerCommand(dir, plan)) {}

void ClaimWorkerProcess::WaitReady(std::chrono::milliseconds timeout) {
  // Thread 0 forks the children before it is ready, so the other threads must claim by then.
  const bool ready = WaitUntil(timeout, [this] {
    if (!process_.Running()) return true;
    for (std::uint64_t i = threads_ > 1 ? 1 : 0; i < threads_; ++i) {
      if (logs_[i].state() == ClaimerState::kStarting) return false;
    }
    return true;
  });
  Require(ready && process_.Running(), name_ + " did not get ready: " + Failure());
}

void ClaimWorkerProcess::Go() noexcept {
  for (const ClaimLog& log : logs_) log.header().go.store(1, std::memory_order_release);
}

void ClaimWorkerProcess::Stop() noexcept {
  for (const ClaimLog& log : logs_) log.header().stop.store(1, std::memory_order_release);
}

int ClaimWorkerProcess::Finish(std::chrono::milliseconds timeout) {
  const std::optional<int> status = process_.WaitFor(timeout);
  if (status.has_value()) return *status;
  process_.Kill();
  return -1;
}

std::uint64_t ClaimWorkerProcess::ids() const noexcept {
  std::uint64_t ids = 0;
  for (const ClaimLog& log : logs_) ids += log.header().ids.load(std::memory_order_relaxed);
  return ids;
}

std::uint64_t ClaimWorkerProcess::errors() const noexcept {
  std::uint64_t errors = 0;
  for (const ClaimLog& log : logs_) errors += log.header().errors.load(std::memory_order_relaxed);
  return errors;
}

std::string ClaimWorkerProcess::Failure() const {
  std::string text = process_.stderr_text();
  for (std::size_t i = 0; i < logs_.size(); ++i) {
    if (logs_[i].state() != ClaimerState::kFailed) continue;
    text += name_ + "." + std::to_string(i) + ": " + logs_[i].message() + "\n";
  }
  return text;
}

void ClaimWorkerProcess::AddClaimers(std::vector<Claimer>& claimers) const {
  for (std::size_t i = 0; i < logs_.size(); ++i) {
    claimers.push_back({name_ + "." + std::to_string(i), logs_[i].records()});
  }
}

}  // namespace idd::harness

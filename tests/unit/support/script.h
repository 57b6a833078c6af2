// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_UNIT_SUPPORT_SCRIPT_H_
#define IDD_TESTS_UNIT_SUPPORT_SCRIPT_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idd/base/status.h"

namespace idd::daemon {

// Which calls were made, which ones fail, and which ones wait at a gate. Thread safety: all.
class Script {
 public:
  // The next `times` calls of `call` return `status`.
  void Fail(const std::string& call, const Status& status, int times = 1) {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < times; ++i) failures_[call].push_back(status);
  }
  // No call of `call` fails any more.
  void Recover(const std::string& call) {
    const std::lock_guard lock(mutex_);
    failures_.erase(call);
  }
  // Every call returns `status` until an ok status is set.
  void FailAll(const Status& status) {
    const std::lock_guard lock(mutex_);
    down_ = status;
  }
  // The next call of `call` waits until Release(), at most a minute.
  void Hold(const std::string& call) {
    const std::lock_guard lock(mutex_);
    held_ = call;
  }
  void Release() {
    {
      const std::lock_guard lock(mutex_);
      held_.clear();
    }
    changed_.notify_all();
  }

  [[nodiscard]] std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  [[nodiscard]] int Count(std::string_view call) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::count(calls_.begin(), calls_.end(), call));
  }

  // The first statement of every scripted call.
  [[nodiscard]] Status Enter(const std::string& call) {
    std::unique_lock lock(mutex_);
    calls_.push_back(call);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] { return held_ != call; });
    if (!down_.ok()) return down_;
    std::deque<Status>& failures = failures_[call];
    if (failures.empty()) return Status::Ok();
    Status status = std::move(failures.front());
    failures.pop_front();
    return status;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string held_;
  Status down_;
  std::map<std::string, std::deque<Status>> failures_;
  std::vector<std::string> calls_;
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_UNIT_SUPPORT_SCRIPT_H_

// SPDX-License-Identifier: Apache-2.0
#include "terminal/progress_ticker.h"

#include <utility>

namespace idd::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Work that ends sooner shows no progress.
constexpr std::chrono::seconds kSilence(1);
constexpr std::chrono::milliseconds kInterval(500);

}  // namespace

ProgressTicker::ProgressTicker(int fd, Text text) : text_(std::move(text)), line_(fd) {
  if (line_.is_shown()) thread_ = std::thread([this] { Run(); });
}

ProgressTicker::~ProgressTicker() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ProgressTicker::Run() {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  Clock::time_point next = begin + kSilence;
  while (!wake_.wait_until(lock, next, [this] { return is_over_; })) {
    next += kInterval;
    lock.unlock();
    const auto passed = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin);
    line_.Show(text_(passed));
    lock.lock();
  }
}

}  // namespace idd::tools

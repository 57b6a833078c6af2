// SPDX-License-Identifier: Apache-2.0
#include "tags/warm_up.h"

#include <cstddef>

namespace idd::daemon {
namespace {

constexpr std::size_t kMaxAtOnce = 4;

}  // namespace

void WarmUp::Release() {
  is_held_ = false;
  Next();
}

void WarmUp::Begin(const std::vector<std::string>& tags, std::function<void()> done) {
  to_start_.assign(tags.begin(), tags.end());
  done_ = std::move(done);
  Next();
}

void WarmUp::Next() {
  if (is_held_) return;
  while (!to_start_.empty() && started_.size() < kMaxAtOnce) {
    const std::string tag = std::move(to_start_.front());
    to_start_.pop_front();
    if (start_(tag)) started_.insert(tag);
  }
  if (started_.empty() && done_) std::exchange(done_, nullptr)();
}

void WarmUp::OnSettled(const std::string& tag) {
  if (started_.erase(tag) != 0) Next();
}

void WarmUp::Recheck(const std::function<bool(const std::string& tag)>& waits) {
  std::erase_if(started_, [&waits](const std::string& tag) { return !waits(tag); });
  Next();
}

}  // namespace idd::daemon

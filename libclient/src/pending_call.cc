// SPDX-License-Identifier: Apache-2.0
#include "pending_call.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

namespace idd::client {
namespace {

// At most one thread sleeps on a word. If the word is already gone, the wake reaches no thread, or
// a thread that then checks its own word again.
void Wake(const std::atomic<std::uint32_t>* word) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

timespec ToTimespec(idd::MonotonicTime at) noexcept {
  const auto since = at.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  return {.tv_sec = seconds.count(),
          .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count()};
}

}  // namespace

void PendingCall::Finish(idd::Result<idd::wire::Message> reply) noexcept {
  reply_ = std::move(reply);
  const std::atomic<std::uint32_t>* const word = &state_;
  state_.store(kFinished, std::memory_order_release);  // Q2, pairs with Q1 in finished()
  Wake(word);
}

void PendingCall::AskToLead() noexcept {
  state_.store(kLead, std::memory_order_relaxed);  // Q3: the mutex orders the rest
  Wake(&state_);
}

void PendingCall::DeclineToLead() noexcept {
  state_.store(kWaiting, std::memory_order_relaxed);  // Q3: under the mutex
}

void PendingCall::Sleep(idd::Deadline deadline) const noexcept {
  // The kernel looks at the word again before it puts the thread to sleep.
  const timespec until = ToTimespec(deadline.at());  // CLOCK_MONOTONIC, absolute
  ::syscall(SYS_futex, &state_, FUTEX_WAIT_BITSET_PRIVATE, kWaiting, &until, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

}  // namespace idd::client

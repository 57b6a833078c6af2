// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_PENDING_CALL_H_
#define IDCLIENT_SRC_PENDING_CALL_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/wire/channel.h"

namespace idd::client {

// A request under way. It lives on its thread's stack, and that thread sleeps in it until another
// thread brings the reply. Each call has its own futex, so that when many are served at once, no
// thread wakes only to wait for a mutex that another one holds.
//
// Thread safety: Finish and AskToLead by one thread at a time (under the connection's mutex), the
// rest by the thread that made it. Finish ends the other threads' use of it: the object may be gone
// before Finish returns.
class PendingCall {
 public:
  explicit PendingCall(std::uint64_t request_id) noexcept : request_id_(request_id) {}
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  [[nodiscard]] std::uint64_t request_id() const noexcept { return request_id_; }

  void Finish(idd::Result<idd::wire::Message> reply) noexcept;
  // Wakes the thread without a reply, to become the leader.
  void AskToLead() noexcept;

  [[nodiscard]] bool finished() const noexcept {
    return state_.load(std::memory_order_acquire) == kFinished;  // Q1, pairs with Q2 in Finish()
  }
  // Sleeps until the call is finished, or its thread was asked to lead since the last
  // DeclineToLead(), or the deadline has passed. May return earlier.
  void Sleep(idd::Deadline deadline) const noexcept;
  // Called under the connection's mutex, while another thread leads.
  void DeclineToLead() noexcept;

  // Precondition: finished(); once.
  [[nodiscard]] idd::Result<idd::wire::Message> TakeReply() noexcept { return *std::move(reply_); }

 private:
  enum State : std::uint32_t { kWaiting, kLead, kFinished };

  const std::uint64_t request_id_;
  std::atomic<std::uint32_t> state_{kWaiting};
  std::optional<idd::Result<idd::wire::Message>> reply_;
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_PENDING_CALL_H_

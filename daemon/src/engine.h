// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ENGINE_H_
#define IDD_DAEMON_ENGINE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "leasing/journal_keeper.h"
#include "leasing/lease_worker.h"
#include "platform/event_loop.h"
#include "platform/host_id.h"
#include "platform/service_manager.h"
#include "restart/inheritance.h"
#include "store/store.h"
#include "tags/tag_service.h"

namespace idd::daemon {

// Takes what an earlier idd left out of the descriptors that the service manager has passed; the
// others are closed and logged. Precondition: the locks are held, so that no other idd uses what is
// inherited. kSystem, kIncompatible, kUnavailable.
[[nodiscard]] Result<Inheritance> TakeInheritance(std::vector<PassedDescriptor> passed,
                                                  const std::string& host_id,
                                                  HighWaterMarks& marks);

// idd without its socket, its signals and its reports: one host's tags, their leases, and the steps
// of a start, a restart and a stop. Daemon adds the rest; the simulator runs many engines in one
// thread.
//
// A start has two parts that go on at the same time. The engine takes over what an earlier idd
// left. It also waits for the store, and then takes leases for the tags that this host has served
// before. It is ready when both parts have ended.
//
// Thread safety: none; event loop.
class Engine {
 public:
  struct Settings {
    std::uint32_t leases_per_s = 0;
    std::size_t most_tags_to_warm = 0;
    std::optional<std::chrono::seconds> journal_retention{};  // nothing: indefinitely
    std::function<std::int64_t()> boot_time_ms{};             // none: the kernel's
  };
  struct Parts {
    std::unique_ptr<Store> store;
    std::unique_ptr<HighWaterMarks> marks;
    HostIdentity host;
    std::vector<std::string> drained;  // HighWaterMarks::Drained()
    Inheritance inheritance;
  };
  struct Events {
    // From here on clients may need the socket. False: there is none, and the start ends. May be
    // called more than once.
    std::function<bool()> listen;
    std::function<void()> on_ready;
    // The start has failed, and an operator must act.
    std::function<void(const Status&)> on_failed;
    // Once a second after the engine is ready. `lateness` is how late the loop made this call.
    std::function<void(std::chrono::nanoseconds lateness)> on_poll;
  };
  // `loop` and `descriptors` outlive the engine.
  Engine(EventLoop& loop, DescriptorStore& descriptors, Settings settings, Parts parts,
         Events events);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] TagService& tags() noexcept { return tags_; }
  [[nodiscard]] LeaseWorker& worker() noexcept { return worker_; }
  [[nodiscard]] JournalKeeper& journal() noexcept { return journal_; }
  [[nodiscard]] const HostIdentity& host() const noexcept { return host_; }
  [[nodiscard]] bool is_ready() const noexcept { return is_ready_; }
  [[nodiscard]] bool is_stopping() const noexcept { return is_stopping_; }

  void Start();
  // Another idd follows at once and inherits the rings; meanwhile claims continue in them. The
  // worker's queued jobs are dropped.
  void Leave();
  // Refuses the waiters, drains the rings and hands the tails back, and then calls `done`.
  // `is_clean` is false if the store took nothing more for ten seconds, or not all of the tails in
  // 45 seconds.
  void Stop(std::function<void(bool is_clean)> done);

 private:
  void Inherit();
  void OnFirstContact(const Status& status);
  void WarmUp(const Result<std::vector<TagMark>>& marks);
  void Settle();
  void BecomeReady();
  void SchedulePoll();
  // Ends the stop when the store has taken nothing for too long.
  struct StopProgress {
    std::uint64_t ended = 0;
    MonotonicTime at{};  // when it was last seen to rise
    MonotonicTime until{};
  };
  void LimitStop(StopProgress progress, std::function<void(bool is_clean)> done);

  const HostIdentity host_;
  const Settings settings_;
  const Events events_;
  DescriptorStore& descriptors_;
  Inheritance inheritance_;
  LeaseWorker worker_;
  TagService tags_;
  JournalKeeper journal_;
  Timer poll_timer_;
  Timer patience_;
  bool has_taken_over_ = false;  // what an earlier idd left
  bool has_settled_ = false;     // the store has answered, or had its time to
  bool is_ready_ = false;
  bool is_stopping_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ENGINE_H_

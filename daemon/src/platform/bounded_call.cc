// SPDX-License-Identifier: Apache-2.0
#include "platform/bounded_call.h"

#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

namespace idd::daemon {
namespace {

// The calls that were given up and go on. It is never destroyed, because their threads may outlive
// the statics.
struct GivenUp {
  std::mutex mutex;
  std::multiset<std::string> calls;

  static GivenUp& Here() {
    static auto* const here = new GivenUp;
    return *here;
  }
};

// One call, as its thread and its caller see it.
struct DetachedCall {
  std::string what;
  std::function<void()> run;
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  bool is_given_up = false;

  void Run() {
    run();
    run = nullptr;  // what it owns ends before its end is known
    const std::lock_guard lock(mutex);
    has_ended = true;
    ended.notify_one();
    if (!is_given_up) return;
    GivenUp& given_up = GivenUp::Here();
    const std::lock_guard others(given_up.mutex);
    given_up.calls.erase(given_up.calls.find(what));
  }
};

}  // namespace

Status RunWithin(std::chrono::milliseconds limit, const std::string& what,
                 std::function<void()> call) {
  GivenUp& given_up = GivenUp::Here();
  {
    const std::lock_guard lock(given_up.mutex);
    if (given_up.calls.contains(what)) {
      return {Code::kUnavailable, what + " began earlier and has not ended"};
    }
  }
  const auto shared = std::make_shared<DetachedCall>();
  shared->what = what;
  shared->run = std::move(call);
  try {
    std::thread([shared] { shared->Run(); }).detach();
  } catch (const std::system_error& error) {
    return {Code::kSystem, what + " needs a thread: " + error.what()};
  }
  std::unique_lock lock(shared->mutex);
  if (shared->ended.wait_for(lock, limit, [&shared] { return shared->has_ended; })) {
    return Status::Ok();
  }
  shared->is_given_up = true;
  const std::lock_guard others(given_up.mutex);
  given_up.calls.insert(what);
  return {Code::kUnavailable,
          what + " has not ended within " + std::to_string(limit.count()) + " ms"};
}

void EndProcessWithin(std::chrono::milliseconds limit, int exit_status) {
  try {
    std::thread([limit, exit_status] {
      std::this_thread::sleep_for(limit);
      ::_exit(exit_status);
    }).detach();
  } catch (const std::system_error&) {
    // Without a thread, the process ends when its threads do.
  }
}

}  // namespace idd::daemon

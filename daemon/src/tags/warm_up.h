// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_WARM_UP_H_
#define IDD_DAEMON_TAGS_WARM_UP_H_

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace idd::daemon {

// Leases for tags before they are asked for, a few at a time, so that a tag that is asked for now
// waits for only a few others.
//
// Thread safety: none; event loop.
class WarmUp {
 public:
  // Asks the store for what the tag needs to have ids. Returns whether the tag waits for the store
  // now.
  using Start = std::function<bool(const std::string& tag)>;

  explicit WarmUp(Start start) : start_(std::move(start)) {}
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  // Nothing begins before Release().
  void Hold() { is_held_ = true; }
  void Release();
  // Calls `done` when each tag has ids or cannot get them now.
  void Begin(const std::vector<std::string>& tags, std::function<void()> done);
  // Adds a tag, which Next() starts.
  void Add(const std::string& tag) { to_start_.push_back(tag); }
  void Next();
  // Starts no more of them.
  void Stop() { to_start_.clear(); }
  // The tag has ids, or cannot get them now.
  void OnSettled(const std::string& tag);
  // Settles the tags that have silently stopped waiting.
  void Recheck(const std::function<bool(const std::string& tag)>& waits);

 private:
  const Start start_;
  bool is_held_ = false;
  std::deque<std::string> to_start_;
  std::set<std::string, std::less<>> started_;
  std::function<void()> done_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_WARM_UP_H_

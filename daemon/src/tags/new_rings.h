// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_NEW_RINGS_H_
#define IDD_DAEMON_TAGS_NEW_RINGS_H_

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "platform/service_manager.h"

namespace idd::daemon {

// Puts the rings that requests need in order: one is made at a time, and the next one when the
// service manager has the descriptors of the last. The manager takes milliseconds for each while it
// keeps thousands, and the loop would block once its queue is full. So programs that open thousands
// of tags wait for each other, and requests for tags that have rings do not.
//
// Thread safety: none; event loop. It must live as long as the loop runs.
class NewRings {
 public:
  using Serve = std::function<void(const std::string& tag)>;

  // `serve` is called when a ring of a tag that had to wait may be made.
  NewRings(DescriptorStore& descriptors, Serve serve)
      : descriptors_(descriptors), serve_(std::move(serve)) {}
  NewRings(const NewRings&) = delete;
  NewRings& operator=(const NewRings&) = delete;

  // Whether a ring may be made now. If not, the tag waits for its turn; further calls for it change
  // nothing.
  [[nodiscard]] bool MayMake(const std::string& tag);
  [[nodiscard]] bool Awaits(const std::string& tag) const { return is_waiting_.contains(tag); }
  // A ring was made.
  void OnMade();

 private:
  void Next();

  DescriptorStore& descriptors_;
  const Serve serve_;
  bool is_free_ = true;  // the service manager has what it was given
  std::deque<std::string> waiting_;
  std::set<std::string, std::less<>> is_waiting_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_NEW_RINGS_H_

// SPDX-License-Identifier: Apache-2.0
#include "tags/new_rings.h"

#include <utility>

namespace idd::daemon {

bool NewRings::MayMake(const std::string& tag) {
  if (is_free_) return true;
  if (is_waiting_.insert(tag).second) waiting_.push_back(tag);
  return false;
}

void NewRings::OnMade() {
  is_free_ = false;
  descriptors_.WhenHandled([this] { Next(); });
}

// A tag whose turn comes may need no ring any more.
void NewRings::Next() {
  is_free_ = true;
  while (is_free_ && !waiting_.empty()) {
    const std::string tag = std::move(waiting_.front());
    waiting_.pop_front();
    is_waiting_.erase(tag);
    serve_(tag);
  }
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_SHARED_SNAPSHOTS_H_
#define IDD_DAEMON_ADMIN_SHARED_SNAPSHOTS_H_

#include <functional>
#include <string>
#include <vector>

#include "platform/event_loop.h"
#include "tags/tag_views.h"

namespace idd::daemon {

// Looks at the tag after `at`: TagService::SnapshotNext() and the like.
using NextSnapshot = std::function<bool(std::string& at, std::vector<TagSnapshot>& snapshots)>;

// Takes snapshots of tags in turns of the loop, each tag's at a slightly later time than the one
// before it. Then calls `done` once: in this call or later on the loop.
void TakeSnapshots(EventLoop& loop, NextSnapshot next,
                   std::function<void(std::vector<TagSnapshot>)> done);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_SNAPSHOTS_H_

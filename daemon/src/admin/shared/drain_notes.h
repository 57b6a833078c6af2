// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_SHARED_DRAIN_NOTES_H_
#define IDD_DAEMON_ADMIN_SHARED_DRAIN_NOTES_H_

#include <functional>
#include <set>
#include <string>

#include "idd/base/status.h"
#include "leasing/lease_worker.h"
#include "tags/tag_service.h"

namespace idd::daemon {

// Records in the marks which scopes are drained; the next idd starts with that. Drains, resumes and
// deletions of tags may be under way at once. So each note is written unless the marks certainly
// have it already, and no note is made for a tag that is being deleted, because a later tag of its
// name would get it.
//
// Thread safety: none; event loop.
class DrainNotes {
 public:
  using Then = std::function<void(const Status& status)>;

  DrainNotes(LeaseWorker& worker, TagService& tags) : worker_(worker), tags_(tags) {}
  DrainNotes(const DrainNotes&) = delete;
  DrainNotes& operator=(const DrainNotes&) = delete;

  // Calls `then` when the scope of a drain or resume is known to exist.
  void FindScope(const std::string& scope, Then then);
  // Calls `then` when the note is durable.
  void SetDrained(const std::string& scope, bool is_drained, Then then);
  // Deletes the tag in the store, and its note.
  void DeleteTag(const std::string& tag, Then then);

 private:
  // The marks may differ from what is known here: a change is under way, or the last change failed
  // but may have been written.
  [[nodiscard]] bool IsUnsure(const std::string& scope) const {
    return changes_ != 0 || unsure_.contains(scope);
  }

  LeaseWorker& worker_;
  TagService& tags_;
  int changes_ = 0;                      // that are on their way to the marks
  std::set<std::string> unsure_;         // scopes whose last change failed
  std::multiset<std::string> deleting_;  // tags whose deletion is on its way to the store
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_DRAIN_NOTES_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_SHARED_CLUSTER_READER_H_
#define IDD_DAEMON_ADMIN_SHARED_CLUSTER_READER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "admin/shared/cluster_view.h"
#include "admin/shared/report_queue.h"
#include "idd/base/status.h"

namespace idd::daemon {

// Reads the cluster for all callers at the same time, and keeps the view for a moment: however many
// operators watch it, the store is read once a second at most, and by one report at a time.
//
// Thread safety: none; event loop. A view may be read on any thread.
class ClusterReader {
 public:
  // Shared, because each reply is made of it on another thread.
  using View = std::shared_ptr<const ClusterView>;
  using Done = std::function<void(const Result<View>& view)>;
  // Reads a view of the database in use, as ReportQueue::Read() does.
  using Read = std::function<void(std::function<void(Result<ClusterView>)> done)>;

  ClusterReader(ReportQueue& reports, Read read) : reports_(reports), read_(std::move(read)) {}
  ClusterReader(const ClusterReader&) = delete;
  ClusterReader& operator=(const ClusterReader&) = delete;

  // Calls `done` with a view that is hardly older than this call or the read that it began.
  void Get(Done done);
  // The next view is read from the store: another database is in use, or this host has changed
  // something.
  void Forget() { view_.reset(); }

 private:
  void Begin();
  void OnRead(Result<ClusterView> view);

  ReportQueue& reports_;
  const Read read_;
  View view_;                  // null: none yet
  std::vector<Done> waiting_;  // at most as many as there may be requests under way
  bool is_reading_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_CLUSTER_READER_H_

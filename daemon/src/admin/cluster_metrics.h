// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_CLUSTER_METRICS_H_
#define IDD_DAEMON_ADMIN_CLUSTER_METRICS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "admin/shared/cluster_reader.h"
#include "idd/base/clock.h"
#include "metrics/metric_families.h"
#include "metrics/metrics_sample.h"
#include "platform/event_loop.h"

namespace idd::daemon {

// The metrics of the whole store. One host has them at a time, the keeper of the journal, so that
// no sum over hosts counts them twice. It reads the store once a minute, as a report.
//
// Thread safety: none; event loop. The samples may be read on any thread.
class ClusterMetrics {
 public:
  // Shared with every sample of the metrics that is being written.
  using Tags = std::shared_ptr<const std::vector<ClusterTagSample>>;

  ClusterMetrics(EventLoop& loop, ClusterReader& cluster, std::function<bool()> is_keeper)
      : cluster_(cluster), is_keeper_(std::move(is_keeper)), timer_(loop) {}
  ClusterMetrics(const ClusterMetrics&) = delete;
  ClusterMetrics& operator=(const ClusterMetrics&) = delete;

  void Start();
  // Of the host; nothing while another host is the keeper.
  void AddFamilies(FamilyBuilder& families) const;
  // Null while another host is the keeper.
  [[nodiscard]] Tags tags() const noexcept { return tags_; }

 private:
  void Look();
  void OnRead(const ClusterReader::View& view);

  ClusterReader& cluster_;
  const std::function<bool()> is_keeper_;  // none: never
  Tags tags_;
  std::map<std::string, double, std::less<>> hosts_;  // by condition
  double sampled_at_ = 0;                             // Unix time; 0: never
  MonotonicTime next_sample_{};
  Timer timer_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_CLUSTER_METRICS_H_

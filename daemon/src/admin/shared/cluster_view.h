// SPDX-License-Identifier: Apache-2.0
//
// All hosts and tags of a store at a glance, from the store alone.
#ifndef IDD_DAEMON_ADMIN_SHARED_CLUSTER_VIEW_H_
#define IDD_DAEMON_ADMIN_SHARED_CLUSTER_VIEW_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "store/store.h"

namespace idd::daemon {

// The rate of a tag is that of the leases of this time: the ids that all hosts leased in it, less
// those that they handed back in it.
inline constexpr std::chrono::seconds kClusterRateWindow(300);

// A host, with its leases of the tags in the view. The ids of snowflake tags are numbers of time,
// so they are not counted.
struct ClusterHost {
  HostRecord record;
  std::uint64_t active_leases = 0;
  std::uint64_t held_ids = 0;     // of active leases, claimed or not
  std::uint64_t served_tags = 0;  // as the host reports
  std::uint64_t short_tags = 0;   // whose promise it does not keep; the same
};

struct ClusterTag {
  std::string tag;
  std::optional<TagRecord> record{};  // nothing: it was deleted, or its row is invalid
  std::uint64_t active_leases = 0;
  std::uint64_t held_ids = 0;
  std::uint64_t hosts = 0;  // with active leases
  LeaseSums::Ended ended{};
  double rate_per_s = 0;
  std::uint64_t short_hosts = 0;  // that do not keep the promise

  [[nodiscard]] bool is_snowflake() const noexcept {
    return record.has_value() && record->mode == TagMode::kSnowflake;
  }
  // Nothing while no ids are leased, and for a snowflake tag.
  [[nodiscard]] std::optional<double> ExhaustedInDays() const;
};

struct ClusterView {
  MonotonicTime read_at{};  // when the read began: the view is no older
  std::vector<ClusterHost> hosts;
  std::map<std::string, ClusterTag, std::less<>> tags;
};

// Reads the whole store or, with `tag`, what concerns one tag. Each tag's sums are from one moment.
// In memory there are the hosts, the tags, and the sums of one tag for each host.
[[nodiscard]] Result<ClusterView> ReadCluster(StoreReader& store,
                                              const std::optional<std::string>& tag);

// What is shown of a view.
struct ClusterScope {
  std::function<bool(const std::string& tag)> shows{};
  bool shows_all = false;    // all tags: only then the hosts' sums are shown
  std::uint64_t limit = 20;  // of the hosts, and of the tags
};
// The document of `cluster`: hosts and tags that need attention come first.
[[nodiscard]] nlohmann::ordered_json ClusterJson(const ClusterView& view,
                                                 const ClusterScope& scope);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_CLUSTER_VIEW_H_

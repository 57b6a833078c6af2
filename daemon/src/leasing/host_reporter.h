// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_LEASING_HOST_REPORTER_H_
#define IDD_DAEMON_LEASING_HOST_REPORTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "leasing/lease_worker.h"
#include "metrics/metrics_sample.h"
#include "platform/event_loop.h"
#include "store/host_store.h"

namespace idd::daemon {

// Tells the allocator who this host is, and which of its tags hold fewer ids than promised: once
// idd is ready, within seconds of a change, and now and then as a sign of life. It looks at the
// tags some at a time, so that thousands of them delay no claim. Each time is a job of its own for
// the lease worker, of one short transaction beside those of the leases.
//
// Thread safety: none; event loop.
class HostReporter {
 public:
  // Adds samples of up to `most` tags after `after`, as TagService::SampleTags() does.
  using SampleTags = std::function<std::optional<std::string>(
      const std::string& after, std::size_t most, std::vector<TagSample>& samples)>;

  HostReporter(EventLoop& loop, LeaseWorker& worker, HostInfo info, SampleTags sample_tags)
      : worker_(worker),
        info_(std::move(info)),
        sample_tags_(std::move(sample_tags)),
        timer_(loop) {}
  HostReporter(const HostReporter&) = delete;
  HostReporter& operator=(const HostReporter&) = delete;

  void Start();
  void Stop();
  void SetAddress(std::string address) { info_.address = std::move(address); }
  // Another store is in use, which may know nothing of this host.
  void Renew() { written_.reset(); }

 private:
  // One look at all tags.
  struct Round {
    std::string last_tag;
    std::uint64_t served = 0;
    std::set<std::string> short_tags;  // that hold fewer ids than promised
  };

  void Look();
  void TakeTurn();
  [[nodiscard]] std::string Report() const;
  void WriteIfDue();
  void OnWritten(const HostInfo& info, const Result<bool>& was_forgotten);

  LeaseWorker& worker_;
  HostInfo info_;
  const SampleTags sample_tags_;
  Round round_;
  std::set<std::string> short_before_;  // in the last round
  std::optional<HostInfo> written_{};   // as the store has it
  MonotonicTime written_at_{};
  bool is_writing_ = false;
  bool is_stopped_ = false;
  bool is_failure_logged_ = false;
  Timer timer_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_HOST_REPORTER_H_

// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/cluster_reader.h"

#include <chrono>
#include <utility>

#include "idd/base/clock.h"

namespace idd::daemon {
namespace {

constexpr std::chrono::seconds kViewLasts(1);

}  // namespace

void ClusterReader::Get(Done done) {
  if (view_ != nullptr && MonotonicClock::now() - view_->read_at < kViewLasts) return done(view_);
  waiting_.push_back(std::move(done));
  if (!is_reading_) Begin();
}

void ClusterReader::Begin() {
  is_reading_ = true;
  reports_.Begin([this] {
    read_([this](Result<ClusterView> view) {
      reports_.Finish();
      OnRead(std::move(view));
    });
  });
}

// Callers that came while it was read get it, too: it began a moment before them at most, unless
// the store is so large that a read takes long.
void ClusterReader::OnRead(Result<ClusterView> view) {
  is_reading_ = false;
  if (view.ok()) view_ = std::make_shared<const ClusterView>(std::move(view).value());
  const Result<View> shared = view.ok() ? Result<View>(view_) : Result<View>(view.status());
  for (const Done& done : std::exchange(waiting_, {})) done(shared);
}

}  // namespace idd::daemon

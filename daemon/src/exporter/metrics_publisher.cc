// SPDX-License-Identifier: Apache-2.0
#include "exporter/metrics_publisher.h"

#include <utility>

namespace idd::daemon {
namespace {

// Prometheus' scrape interval is usually this long or longer.
constexpr std::chrono::seconds kTextfileInterval(15);

}  // namespace

MetricsPublisher::MetricsPublisher(EventLoop& loop, MetricsCollector& collector,
                                   MetricsServer* server)
    : loop_(loop), collector_(collector), server_(server), timer_(loop) {
  collector_.AddSource([this](FamilyBuilder& families) { AddFamilies(families); });
  loop_.WatchTurns([this](std::chrono::nanoseconds time) { loop_turn_.Observe(Seconds(time)); });
  if (server_ == nullptr) return;
  server_->Serve([this](MetricsCollector::Done done) {
    loop_.Post([this, done = std::move(done)]() mutable { collector_.Collect(std::move(done)); });
  });
}

MetricsPublisher::~MetricsPublisher() {
  loop_.WatchTurns(nullptr);
  if (server_ != nullptr) server_->StopServing();
}

void MetricsPublisher::AddFamilies(FamilyBuilder& families) const {
  families.Add(metric::kLoopDelay, loop_delay_);
  families.Add(metric::kLoopTurn, loop_turn_);
}

void MetricsPublisher::KeepIn(const std::string& textfile) {
  if (textfile == path_) return;
  path_ = textfile;
  if (textfile_ == nullptr) textfile_ = std::make_unique<MetricsTextfile>();
  textfile_->MoveTo(path_);
  timer_.Cancel();
  if (!path_.empty()) WriteTextfile();
}

void MetricsPublisher::WriteTextfile() {
  collector_.Collect([this](const MetricsCollector::Sample& sample) { textfile_->Write(sample); });
  timer_.After(kTextfileInterval, [this] { WriteTextfile(); });
}

}  // namespace idd::daemon

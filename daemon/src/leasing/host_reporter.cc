// SPDX-License-Identifier: Apache-2.0
#include "leasing/host_reporter.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>

#include "idd/shm/ring_stats.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

// So a change is in the store within this time, and no sooner after the last one.
constexpr std::chrono::seconds kLookEvery(2);
constexpr std::size_t kTagsOfATurn = 100;
constexpr std::chrono::milliseconds kBetweenTurns(1);
// Names in a report.
constexpr std::uint64_t kMostReportedTags = 20;

}  // namespace

void HostReporter::Start() { Look(); }

void HostReporter::Stop() {
  is_stopped_ = true;
  timer_.Cancel();
}

void HostReporter::Look() {
  round_ = {};
  TakeTurn();
}

void HostReporter::TakeTurn() {
  std::vector<TagSample> samples;
  const std::optional<std::string> reached = sample_tags_(round_.last_tag, kTagsOfATurn, samples);
  for (const TagSample& tag : samples) {
    ++round_.served;
    const bool is_drained = std::string_view(tag.state) == "drained";
    const bool is_short = !shm::IsPromiseKept(tag.available, tag.promised_ids);
    if (is_short && !is_drained) round_.short_tags.insert(tag.tag);
  }
  if (reached.has_value()) {
    round_.last_tag = *reached;
    timer_.After(kBetweenTurns, [this] { TakeTurn(); });
    return;
  }
  info_.report = Report();
  short_before_ = std::move(round_.short_tags);
  WriteIfDue();
  timer_.After(kLookEvery, [this] { Look(); });
}

// A tag counts from its second look on, as any tag is short for a moment before a refill.
std::string HostReporter::Report() const {
  std::uint64_t count = 0;
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const std::string& tag : round_.short_tags) {
    if (!short_before_.contains(tag)) continue;
    if (++count <= kMostReportedTags) names.push_back(tag);
  }
  const nlohmann::ordered_json report = {
      {"served", round_.served}, {"short", count}, {"tags", std::move(names)}};
  return report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void HostReporter::WriteIfDue() {
  const bool is_due = written_ != info_ || MonotonicClock::now() - written_at_ >= kHostSeenEvery;
  if (is_writing_ || !is_due) return;
  is_writing_ = true;
  worker_.Submit<bool>(
      [info = info_](Store& store, HighWaterMarks&) -> Result<bool> {
        HostStore* const hosts = store.hosts();
        return hosts == nullptr ? Result<bool>(false) : hosts->Introduce(info);
      },
      [this, info = info_](const Result<bool>& was_forgotten) { OnWritten(info, was_forgotten); });
}

void HostReporter::OnWritten(const HostInfo& info, const Result<bool>& was_forgotten) {
  is_writing_ = false;
  if (is_stopped_) return;
  if (!was_forgotten.ok()) {
    // That the store is down is logged where it is noticed.
    const bool is_news = was_forgotten.status().code() != Code::kUnavailable && !is_failure_logged_;
    if (is_news) log::Warning("host.not_written", {{"error", was_forgotten.status().message()}});
    is_failure_logged_ = is_failure_logged_ || is_news;
    return;
  }
  is_failure_logged_ = false;
  written_ = info;
  written_at_ = MonotonicClock::now();
  if (!was_forgotten.value()) return;
  log::Warning("host.was_forgotten",
               {{"action",
                 "this host is known again; the leases that it held are journalled as abandoned, "
                 "and the ids of its rings remain its own"}});
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// Admin: the operation `metrics`, and what it tells of idd itself.
#include <nlohmann/json.hpp>
#include <utility>

#include "admin/admin.h"
#include "admin/admin_fields.h"
#include "metrics/metrics_page.h"
#include "platform/logging.h"

namespace idd::daemon {
namespace {

constexpr const char* kTextFormat = "prometheus";

std::string DocumentOf(const MetricsSample& sample, const PeerRights& rights, bool as_text) {
  const ShowsTag shows = [&rights](const std::string& tag) { return rights.MaySee(tag); };
  if (!as_text) return Dump(MetricsJson(sample, shows));
  return Dump({{"format", kTextFormat}, {"text", MetricsText(sample, shows)}});
}

}  // namespace

// The document takes longer than the sample, so it is made on a thread of its own.
void Admin::ShowMetrics(const Request& request, const PeerRights& rights, Done done) {
  const auto format = TextField(request, "format");
  if (!format.ok()) return Fail(done, format.status());
  const bool as_text = format.value().has_value();
  if (as_text && *format.value() != kTextFormat) {
    return Fail(done, {Code::kInvalid, "'format' is 'prometheus' or left out"});
  }
  metrics_.Collect([this, rights, as_text,
                    done = std::move(done)](const MetricsCollector::Sample& sample) {
    metrics_thread_.Post([this, rights, as_text, done, sample] {
      loop_.Post([text = DocumentOf(*sample, rights, as_text), done] { done(Status::Ok(), text); });
    });
  });
}

void Admin::AddFamilies(FamilyBuilder& families) const {
  families.Add(metric::kBuildInfo, 1, {{"version", info_.version}});
  families.Add(metric::kStartTime, started_at_);
  for (const auto& [operation, entry] : Operations()) {
    const auto it = requests_.find(operation);
    families.Add(metric::kAdminRequests,
                 it == requests_.end() ? 0 : static_cast<double>(it->second),
                 {{"operation", operation}});
  }
  const auto unknown = requests_.find("");
  families.Add(metric::kAdminRequests,
               unknown == requests_.end() ? 0 : static_cast<double>(unknown->second),
               {{"operation", "unknown"}});
  families.Declare(metric::kLogEvents);
  for (const log::EventCount& counted : log::Counts()) {
    const char* const level = counted.level == log::Level::kError ? "error" : "warning";
    families.Add(metric::kLogEvents, static_cast<double>(counted.count),
                 {{"event", counted.event}, {"level", level}});
  }
  families.Add(metric::kLogSuppressed, static_cast<double>(log::SuppressedLines()));
}

}  // namespace idd::daemon

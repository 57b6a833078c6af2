// SPDX-License-Identifier: Apache-2.0
//
// `metrics`.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "metrics/metrics_page.h"

namespace idd::daemon {
namespace {

constexpr const char* kTextFormat = "prometheus";

std::string DocumentOf(const MetricsSample& sample, const PeerRights& rights, bool as_text) {
  const ShowsTag shows = [&rights](const std::string& tag) { return rights.MaySee(tag); };
  if (!as_text) return Dump(MetricsJson(sample, shows));
  return Dump({{"format", kTextFormat}, {"text", MetricsText(sample, shows)}});
}

}  // namespace

// Making the document takes longer than taking the sample, so another thread makes it.
void ShowMetrics(AdminContext& context, const AdminRequest& request, const PeerRights& rights,
                 AdminDone done) {
  const auto format = TextField(request, "format");
  if (!format.ok()) return Fail(done, format.status());
  const bool as_text = format.value().has_value();
  if (as_text && *format.value() != kTextFormat) {
    return Fail(done, {Code::kInvalid, "'format' is 'prometheus' or left out"});
  }
  context.metrics.Collect(
      [&context, rights, as_text, done = std::move(done)](const MetricsCollector::Sample& sample) {
        context.documents.Post([&context, rights, as_text, done, sample] {
          context.loop.Post([text = DocumentOf(*sample, rights, as_text), done]() mutable {
            done(Status::Ok(), std::move(text));
          });
        });
      });
}

}  // namespace idd::daemon

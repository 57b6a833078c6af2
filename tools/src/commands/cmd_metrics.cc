// SPDX-License-Identifier: Apache-2.0
//
// idctl metrics: what Prometheus would scrape, limited to the tags that the caller may use.
#include "commands/commands.h"

namespace idd::tools {
namespace {

// The text that Prometheus reads, or with --json the same as a document.
Outcome ShowMetrics(const GlobalOptions& global, Output& out) {
  AdminCall call("metrics", "metrics");
  if (!global.as_json) call.request.Set("format", "prometheus");
  call.render = [as_json = global.as_json](const Json& document) -> Result<std::string> {
    return as_json ? Result<std::string>(std::string()) : RenderMetrics(document);
  };
  return RunAdminCall(global, call, out);
}

}  // namespace

// Unescaped: Prometheus' format has its own escapes for label values.
Result<std::string> RenderMetrics(const Json& document) {
  Status error;
  const Fields reply(document, "reply", &error);
  std::string text = reply.Text("text");
  if (!error.ok()) return error;
  return text;
}

void RegisterMetricsCommand(Command root, Invocation& invocation) {
  Command metrics = root.AddCommand("metrics", "Print Prometheus metrics", "idctl metrics");
  SetAction(metrics, invocation,
            [&invocation](Output& out) { return ShowMetrics(invocation.global, out); });
}

}  // namespace idd::tools

// SPDX-License-Identifier: Apache-2.0
//
// idctl's commands. Each Register function adds a group to the command line; each Render function
// turns a reply into text for people, or reports a malformed field (kIncompatible). All
// are pure but for the actions they register.
#ifndef IDD_TOOLS_COMMANDS_COMMANDS_H_
#define IDD_TOOLS_COMMANDS_COMMANDS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "client/json_fields.h"
#include "commands/cli.h"
#include "idclient/idclient.h"
#include "idd/base/status.h"
#include "terminal/exit_status.h"
#include "terminal/output.h"
#include "terminal/terminal.h"

namespace idd::tools {

// Renders a table for the width of the screen that shows `out`.
using RenderTable = Result<std::string> (*)(const Json& document, std::size_t columns);
[[nodiscard]] inline auto ForScreen(const Output& out, RenderTable render) {
  return [render, columns = ProbeScreen(out.fd()).columns](const Json& document) {
    return render(document, columns);
  };
}

void RegisterTagCommands(Command root, Invocation& invocation);
void RegisterStoreCommands(Command root, Invocation& invocation);
void RegisterTagExport(Command tag, Invocation& invocation);
void RegisterApplyCommand(Command root, Invocation& invocation);
void RegisterClaimCommand(Command root, Invocation& invocation);
void RegisterBenchCommand(Command root, Invocation& invocation);
void RegisterTopCommand(Command root, Invocation& invocation);
void RegisterStatusCommand(Command root, Invocation& invocation);
void RegisterLeaseCommands(Command root, Invocation& invocation);
void RegisterWitnessCommands(Command root, Invocation& invocation);
void RegisterAuditCommand(Command root, Invocation& invocation);
void RegisterWhoIsCommand(Command root, Invocation& invocation);
void RegisterDecodeCommand(Command root, Invocation& invocation);
void RegisterDoctorCommand(Command root, Invocation& invocation);
void RegisterImportCommand(Command root, Invocation& invocation);
void RegisterMetricsCommand(Command root, Invocation& invocation);
void RegisterDrainCommands(Command root, Invocation& invocation);
void RegisterClientCommands(Command root, Invocation& invocation);
void RegisterConfigCommands(Command root, Invocation& invocation);

// --- tag
[[nodiscard]] Result<std::string> RenderTag(const Json& document);
// One line; for a snowflake tag its layout follows, in words.
[[nodiscard]] Result<std::string> RenderTagLine(const Json& document, std::string_view verb);
[[nodiscard]] Result<std::string> RenderCreatedTag(const Json& document);
[[nodiscard]] Result<std::string> RenderTagList(const Json& document, std::size_t columns = 0);
[[nodiscard]] Result<std::string> RenderDeletedTag(const Json& document);

// --- status: `tag` is the requested tag, or empty. kNoSuchTag if the reply does not contain it.
[[nodiscard]] Result<std::string> RenderStatus(const Json& document, const std::string& tag,
                                               const Screen& screen = {});

// --- status and top with --all-hosts
[[nodiscard]] Result<std::string> RenderCluster(const Json& document, const Screen& screen = {});

// --- lease, host
[[nodiscard]] Result<std::string> RenderLeases(const Json& document, std::size_t columns = 0);
// `asked`: the host as the user named it.
[[nodiscard]] Result<std::string> RenderForgotten(const Json& document, const std::string& asked);
[[nodiscard]] Result<std::string> RenderHosts(const Json& document, std::size_t columns = 0);

// --- witness
[[nodiscard]] Result<std::string> RenderWitnesses(const Json& document, std::size_t columns = 0);

// --- audit
[[nodiscard]] Result<std::string> RenderAudit(const Json& document, std::size_t columns = 0);
// kSystem if the daemon found a discrepancy, or if its numbers do not add up.
[[nodiscard]] Status AuditVerdict(const Json& document);

// --- whois
[[nodiscard]] Result<std::string> RenderWhoIs(const Json& document, std::size_t columns = 0);
// kSystem, with the daemon's reason, if no lease contains the id.
[[nodiscard]] Status WhoIsVerdict(const Json& document);

// --- decode
[[nodiscard]] Result<std::string> RenderDecode(const Json& document, std::size_t columns = 0);
// kSystem if an id does not fit the tag's layout.
[[nodiscard]] Status DecodeVerdict(const Json& document);

// --- import
[[nodiscard]] Result<std::string> RenderImport(const Json& document, std::size_t columns = 0);
// kSystem if rows were refused, or if ids are not safe yet.
[[nodiscard]] Status ImportVerdict(const Json& document);

// --- metrics: the text of the reply, for Prometheus.
[[nodiscard]] Result<std::string> RenderMetrics(const Json& document);
// --- drain, resume
[[nodiscard]] Result<std::string> RenderDrain(const Json& document);
// kSystem if ids are not back in the store, or never will be.
[[nodiscard]] Status DrainVerdict(const Json& document);
// "drained 12 of 2000 leases": the progress on a terminal; empty if there is none to show.
[[nodiscard]] std::string DrainProgressText(const Json& document);
[[nodiscard]] Result<std::string> RenderResume(const Json& document);

// --- store
[[nodiscard]] Result<std::string> RenderStoreInit(const Json& document);

// --- client
// For a document that AddProcessFacts() has extended.
// `columns`: the width of the screen; 0: no limit.
[[nodiscard]] Result<std::string> RenderClients(const Json& document, std::size_t columns = 0);

// --- config, log-level
// A table or, on a screen that is too narrow for it, three lines for each setting.
[[nodiscard]] Result<std::string> RenderConfig(const Json& document, std::size_t columns = 0);
[[nodiscard]] Result<std::string> RenderLogLevel(const Json& document);

// --- claim
// idclient_claim_many, or a fake: claims up to `count` ids and stores the number claimed.
using ClaimSource =
    std::function<idclient_status(std::uint64_t* ids, std::size_t count, std::size_t* claimed)>;
struct ClaimRun {
  std::string tag;
  std::uint64_t count = 1;
  bool as_json = false;
  bool has_text_integers = false;
};
// Claims and prints in chunks, in constant memory. Ids claimed before an error are printed; if
// there are any, the JSON document is still complete. `last_error` returns the source's message for
// the error.
[[nodiscard]] Outcome ClaimAndPrint(const ClaimRun& run, const ClaimSource& source,
                                    const std::function<std::string()>& last_error, Output& out);

}  // namespace idd::tools

#endif  // IDD_TOOLS_COMMANDS_COMMANDS_H_

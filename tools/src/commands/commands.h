// SPDX-License-Identifier: Apache-2.0
//
// idctl's commands. Each Register function adds a group to the command line; each Render function
// turns a reply into text for people, or says which field of it is malformed (kIncompatible). All
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

// Of a table: as wide as the screen that `out` is seen on.
using RenderTable = Result<std::string> (*)(const Json& document, std::size_t columns);
[[nodiscard]] inline auto ForScreen(const Output& out, RenderTable render) {
  return [render, columns = ProbeScreen(out.fd()).columns](const Json& document) {
    return render(document, columns);
  };
}

void RegisterTagCommands(Command root, Invocation& invocation);
void RegisterClaimCommand(Command root, Invocation& invocation);
void RegisterBenchCommand(Command root, Invocation& invocation);
void RegisterTopCommand(Command root, Invocation& invocation);
void RegisterStatusCommand(Command root, Invocation& invocation);
void RegisterLeaseCommands(Command root, Invocation& invocation);
void RegisterAuditCommand(Command root, Invocation& invocation);
void RegisterWhoIsCommand(Command root, Invocation& invocation);
void RegisterDoctorCommand(Command root, Invocation& invocation);
void RegisterImportCommand(Command root, Invocation& invocation);
void RegisterMetricsCommand(Command root, Invocation& invocation);
void RegisterDrainCommands(Command root, Invocation& invocation);
void RegisterClientCommands(Command root, Invocation& invocation);

// --- tag
[[nodiscard]] Result<std::string> RenderTag(const Json& document);
[[nodiscard]] Result<std::string> RenderTagLine(const Json& document, std::string_view verb);
[[nodiscard]] Result<std::string> RenderCreatedTag(const Json& document);
[[nodiscard]] Result<std::string> RenderTagList(const Json& document, std::size_t columns = 0);
[[nodiscard]] Result<std::string> RenderDeletedTag(const Json& document);

// --- status: `tag` is the one that was asked for, or empty. kNoSuchTag when it is not in the
// reply.
[[nodiscard]] Result<std::string> RenderStatus(const Json& document, const std::string& tag,
                                               const Screen& screen = {});

// --- lease, host
[[nodiscard]] Result<std::string> RenderLeases(const Json& document, std::size_t columns = 0);
[[nodiscard]] Result<std::string> RenderHosts(const Json& document, std::size_t columns = 0);

// --- audit
[[nodiscard]] Result<std::string> RenderAudit(const Json& document, std::size_t columns = 0);
// kSystem when the daemon found something, or when its own numbers do not add up.
[[nodiscard]] Status AuditVerdict(const Json& document);

// --- whois
[[nodiscard]] Result<std::string> RenderWhoIs(const Json& document, std::size_t columns = 0);
// kSystem with the daemon's reason when no lease has the id.
[[nodiscard]] Status WhoIsVerdict(const Json& document);

// --- import
[[nodiscard]] Result<std::string> RenderImport(const Json& document, std::size_t columns = 0);
// kSystem when rows were refused, or ids are not safe yet.
[[nodiscard]] Status ImportVerdict(const Json& document);

// --- metrics: the text of the reply, for Prometheus.
[[nodiscard]] Result<std::string> RenderMetrics(const Json& document);
// --- drain, resume
[[nodiscard]] Result<std::string> RenderDrain(const Json& document);
// kSystem when ids are not back with the store, or never will be.
[[nodiscard]] Status DrainVerdict(const Json& document);
// "drained 12 of 2000 leases": what a terminal shows meanwhile; empty when there is nothing to
// tell.
[[nodiscard]] std::string DrainProgressText(const Json& document);
[[nodiscard]] Result<std::string> RenderResume(const Json& document);

// --- client
// Of a document that AddProcessFacts() has been through.
// `columns`: of the screen, 0: no limit.
[[nodiscard]] Result<std::string> RenderClients(const Json& document, std::size_t columns = 0);

// --- claim
// idclient_claim_many, or a fake: claims up to `count` ids and writes how many.
using ClaimSource =
    std::function<idclient_status(std::uint64_t* ids, std::size_t count, std::size_t* claimed)>;
struct ClaimRun {
  std::string tag;
  std::uint64_t count = 1;
  bool as_json = false;
};
// Claims and prints in chunks, in constant memory. What was claimed before an error is printed, and
// in a complete JSON document if there is any. `last_error` gives the source's sentence for it.
[[nodiscard]] Outcome ClaimAndPrint(const ClaimRun& run, const ClaimSource& source,
                                    const std::function<std::string()>& last_error, Output& out);

}  // namespace idd::tools

#endif  // IDD_TOOLS_COMMANDS_COMMANDS_H_

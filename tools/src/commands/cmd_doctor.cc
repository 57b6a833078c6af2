// SPDX-License-Identifier: Apache-2.0
//
// idctl doctor: checks the set-up from this host to the store, and proposes a fix for each finding.
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>

#include "client/admin_client.h"
#include "commands/commands.h"
#include "doctor/doctor_checks.h"
#include "doctor/doctor_host.h"
#include "idd/base/clock.h"
#include "idd/shm/abi.h"
#include "idd/shm/lane_claimer.h"
#include "terminal/terminal.h"

namespace idd::tools {
namespace {

constexpr std::chrono::milliseconds kSlowAnswer(2500);  // idd itself waits 2 s for its store

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

DoctorSelf ThisIdctl() {
  return {.version = IDD_VERSION,
          .abi_major = shm::kAbiMajor,
          .abi_minor = shm::kAbiMinor,
          .has_rseq = shm::RseqOffset().has_value()};
}

// Reports what can be checked without the daemon, and why the rest cannot. A missing or
// inaccessible socket already has a finding, which also explains the daemon's silence.
void CheckWithoutDaemon(const std::string& path, const Status& status, Diagnosis& diagnosis) {
  NoAnswer failed{.status = status,
                  .listener = ProbeListener(path),
                  .socket = ProbeFile(path),
                  .service = AskServiceManager()};
  if (failed.socket.IsUsableSocket()) {
    diagnosis.findings.push_back(ExplainNoAnswer(failed));
  } else {
    diagnosis.findings.front().found += ServiceText(failed.service);
  }
  diagnosis.left_out.emplace_back("all that the daemon knows: the store, the tags, its set-up");
}

// The daemon's part of the checks. A daemon older than this operation refuses it by name.
Status CheckDaemon(AdminClient& client, Deadline deadline, Diagnosis& diagnosis) {
  const MonotonicTime asked = MonotonicClock::now();
  const Result<JsonDocument> facts = client.Request(AdminRequest("doctor"), deadline);
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(MonotonicClock::now() - asked);
  if (facts.status().code() == Code::kInvalid) {
    diagnosis.findings.push_back({"versions", Health::kProblem,
                                  "this idd is older than idctl and has no doctor operation",
                                  "systemctl restart idd, so that what is installed runs"});
    return Status::Ok();
  }
  if (!facts.ok()) return facts.status();
  const bool is_slow = took > kSlowAnswer;
  diagnosis.findings.push_back({"daemon", is_slow ? Health::kWarning : Health::kOk,
                                std::string("idd answers") +
                                    (is_slow ? " slowly, after " : ", after ") +
                                    std::to_string(took.count()) + " ms",
                                is_slow ? "look at the load of this host and of the store" : ""});
  Result<Diagnosis> checked = CheckFacts(facts.value().json(), ThisIdctl());
  if (!checked.ok()) return checked.status();
  for (Finding& finding : checked.value().findings) {
    diagnosis.findings.push_back(std::move(finding));
  }
  diagnosis.left_out = std::move(checked.value().left_out);
  return Status::Ok();
}

// The exit status: the daemon could not be asked (4, 6), or else there is a problem (1).
Outcome Verdict(const Diagnosis& diagnosis, const Status& status) {
  if (!status.ok()) return FailureFrom(status, "doctor");
  const std::size_t problems = CountOf(diagnosis, Health::kProblem);
  if (problems == 0) return std::nullopt;
  return Failure{ExitStatus::kFailed, "doctor", Counted(problems, "problem"),
                 "do what each says after 'next'"};
}

Outcome RunDoctor(const GlobalOptions& global, bool shows_all, Output& out) {
  const auto timeout_ms = global.timeout_ms.value_or(kAdminTimeoutMs);
  const Deadline deadline = Deadline::After(std::chrono::milliseconds(timeout_ms));
  const std::string& path = global.socket_path;
  Diagnosis diagnosis;
  diagnosis.findings.push_back(
      CheckSocket(ProbeFile(path), ProbeFile(FolderOf(path)), ::geteuid()));
  Result<AdminClient> client = AdminClient::Connect(path, deadline);
  const Status status =
      client.ok() ? CheckDaemon(client.value(), deadline, diagnosis) : client.status();
  if (!status.ok()) CheckWithoutDaemon(path, status, diagnosis);
  out.Write(global.as_json ? JsonText(global, DiagnosisJson(diagnosis))
                           : RenderDiagnosis(diagnosis, shows_all, ProbeScreen(out.fd())));
  return Verdict(diagnosis, status);
}

}  // namespace

void RegisterDoctorCommand(Command root, Invocation& invocation) {
  Command doctor =
      root.AddCommand("doctor", "Check the installation and suggest fixes", "idctl doctor --all");
  doctor.AddFlag("--all", "Show the ok checks too", &invocation.doctor.shows_all);
  SetAction(doctor, invocation, [&invocation](Output& out) {
    return RunDoctor(invocation.global, invocation.doctor.shows_all, out);
  });
}

}  // namespace idd::tools

// SPDX-License-Identifier: Apache-2.0
#include "support/idctl.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "support/child_process.h"
#include "support/daemon_process.h"
#include "support/pseudo_terminal.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

std::string Describe(const std::vector<std::string>& arguments, const IdctlResult& result) {
  std::string text = "idctl";
  for (const std::string& argument : arguments) text += " " + argument;
  return text + ": exit status " + std::to_string(result.exit_status) + "\n" + result.out +
         result.err;
}

// For commands that must succeed: the store's latency on a busy machine is not under test.
std::vector<std::string> Patiently(std::vector<std::string> arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--timeout") == arguments.end()) {
    arguments.insert(arguments.begin(), {"--timeout", "300000"});
  }
  return arguments;
}

std::vector<std::string> WithJson(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = Patiently(arguments);
  all.insert(all.begin(), "--json");
  return all;
}

}  // namespace

IdctlResult Idctl::Run(const std::vector<std::string>& arguments) const {
  ChildOptions child;
  child.identity = identity_;
  child.argv = {IdctlBinary(), "--socket", socket_};
  child.argv.insert(child.argv.end(), arguments.begin(), arguments.end());
  const std::uint64_t begin_ns = MonotonicNs();
  ChildProcess process(child);
  IdctlResult result;
  // idctl has its own deadlines; exceeding this limit is a failure of the test.
  result.exit_status = process.WaitFor(Patience(std::chrono::seconds(400))).value_or(-1);
  process.Kill();
  result.duration = std::chrono::milliseconds((MonotonicNs() - begin_ns) / 1'000'000);
  result.out = process.stdout_text();
  result.err = process.stderr_text();
  return result;
}

std::string Idctl::OnTerminal(const std::vector<std::string>& arguments, unsigned short columns,
                              const std::vector<std::string>& environment) const {
  PseudoTerminal terminal(columns, 24);
  ChildOptions child;
  child.identity = identity_;
  child.argv = {"/usr/bin/env"};
  child.argv.insert(child.argv.end(), environment.begin(), environment.end());
  child.argv.insert(child.argv.end(), {IdctlBinary(), "--socket", socket_});
  child.argv.insert(child.argv.end(), arguments.begin(), arguments.end());
  child.stdout_fd = terminal.fd();
  child.stderr_fd = terminal.fd();
  ChildProcess process(child);
  const int status = process.WaitFor(Patience(std::chrono::seconds(30))).value_or(-1);
  const std::string shown = terminal.Finish();
  Require(status == 0, "exit status " + std::to_string(status) + ": " + shown);
  return shown;
}

nlohmann::json Idctl::Json(const std::vector<std::string>& arguments) const {
  const std::vector<std::string> all = WithJson(arguments);
  const IdctlResult result = Run(all);
  Require(result.exit_status == 0, Describe(all, result));
  nlohmann::json document = nlohmann::json::parse(result.out, nullptr, false);
  Require(!document.is_discarded(), "not one JSON document: " + Describe(all, result));
  return document;
}

void Idctl::Do(const std::vector<std::string>& arguments) const {
  IdctlResult result;
  // The daemon gives up a store that a busy machine has slowed down, and resumes it later.
  static_cast<void>(WaitUntil(Patience(std::chrono::seconds(120)), [&] {
    result = Run(Patiently(arguments));
    return result.exit_status == 0 ||
           result.err.find("the store is not available") == std::string::npos;
  }));
  Require(result.exit_status == 0, Describe(arguments, result));
}

void Idctl::CreateTag(const std::string& tag, std::uint64_t step) const {
  // Leases of one step each, one ahead, so that tests can predict them.
  const std::string step_text = std::to_string(step);
  Do({"tag", "create", tag, "--step", step_text, "--refill", "leaf", "--max-step", step_text});
}

std::vector<std::uint64_t> Idctl::Claim(const std::string& tag, std::uint64_t count) const {
  const std::vector<std::string> arguments = Patiently({"claim", tag, "-n", std::to_string(count)});
  const IdctlResult result = Run(arguments);
  Require(result.exit_status == 0, Describe(arguments, result));
  std::vector<std::uint64_t> ids = ParseIds(result.out);
  Require(ids.size() == count,
          "not " + std::to_string(count) + " ids: " + Describe(arguments, result));
  return ids;
}

std::vector<JournalLease> Idctl::Leases(const std::string& tag) const {
  return ParseLeases(Json({"lease", "list", "--tag", tag, "--limit", "1000000"}), tag);
}

AuditRow Idctl::Audit(const std::string& tag) const {
  // An audit that does not add up exits 1 but still prints its document.
  const IdctlResult result = Run(WithJson({"audit", tag}));
  const nlohmann::json document = nlohmann::json::parse(result.out, nullptr, false);
  Require(!document.is_discarded(), Describe({"audit", tag}, result));
  AuditRow row = ParseAudit(document, tag);
  row.ok = row.ok && result.exit_status == 0;
  return row;
}

std::vector<std::uint64_t> ParseIds(const std::string& out) {
  std::vector<std::uint64_t> ids;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    std::uint64_t id = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), id);
    Require(error == std::errc() && end == line.data() + line.size(), "not an id: " + line);
    ids.push_back(id);
  }
  return ids;
}

}  // namespace idd::harness

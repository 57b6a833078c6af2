// SPDX-License-Identifier: Apache-2.0
#include "client/process_facts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>

#include "client/json_document.h"

namespace idd::tools {
namespace {

// More than any of these files holds: an endless line is cut here.
constexpr std::size_t kMaxProcBytes = 16384;
// Tolerance between a process's start and its connection: both times are rounded.
constexpr double kSlackSeconds = 2;

std::optional<std::string> ReadSmallFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kMaxProcBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Whether one of the process's user ids is `uid`. The process may have changed its effective uid
// since it connected.
bool HasUid(const std::string& status, std::uint64_t uid) {
  std::istringstream lines(status);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("Uid:")) continue;
    std::istringstream numbers(line.substr(4));
    for (std::uint64_t number = 0; numbers >> number;) {
      if (number == uid) return true;
    }
  }
  return false;
}

// Seconds since the process began. The name in the line may contain anything, including blanks and
// brackets.
std::optional<double> AgeOf(const std::string& stat, const std::string& uptime) {
  constexpr int kFieldsBefore = 19;  // between the name and the start time
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  double ticks = 0;
  double up_s = 0;
  std::istringstream clock(uptime);
  if (!(fields >> ticks) || !(clock >> up_s)) return std::nullopt;
  return up_s - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

bool IsUnit(std::string_view name) {
  constexpr std::array<std::string_view, 5> kSuffixes = {".service", ".scope", ".socket", ".mount",
                                                         ".swap"};
  return std::any_of(kSuffixes.begin(), kSuffixes.end(), [name](std::string_view suffix) {
    return name.size() > suffix.size() && name.ends_with(suffix);
  });
}

bool IsSamePidNamespace(const Json& document, const std::string& proc) {
  struct stat info {};
  Status error;
  const std::uint64_t told = Fields(document, "reply", &error).Count("pid_namespace");
  return error.ok() && ::stat((proc + "/self/ns/pid").c_str(), &info) == 0 && told == info.st_ino;
}

std::optional<std::string> KnownText(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

}  // namespace

std::string UnitOfControlGroup(const std::string& cgroup) {
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    const bool is_systemd =
        line.starts_with("0::") || line.find(":name=systemd:") != std::string::npos;
    if (!is_systemd) continue;
    // The innermost unit: a user's unit lies within that of the user's manager.
    std::string_view rest(line);
    while (true) {
      const std::size_t slash = rest.rfind('/');
      if (slash == std::string_view::npos) break;
      if (IsUnit(rest.substr(slash + 1))) return std::string(rest.substr(slash + 1));
      rest = rest.substr(0, slash);
    }
  }
  return {};
}

ProcessFacts ProbeProcess(const std::string& proc, const KnownProcess& process) {
  if (process.pid == 0) return {};  // in a pid namespace invisible to the daemon
  const std::string folder = proc + "/" + std::to_string(process.pid);
  const auto status = ReadSmallFile(folder + "/status");
  const auto stat = ReadSmallFile(folder + "/stat");
  const auto uptime = ReadSmallFile(proc + "/uptime");
  if (!status || !stat || !uptime || !HasUid(*status, process.uid)) return {};
  const std::optional<double> age_s = AgeOf(*stat, *uptime);
  if (!age_s || *age_s + kSlackSeconds < process.connected_s) return {};
  ProcessFacts facts;
  facts.unit = UnitOfControlGroup(ReadSmallFile(folder + "/cgroup").value_or(""));
  facts.command = ReadSmallFile(folder + "/comm").value_or("");
  if (facts.command.ends_with('\n')) facts.command.pop_back();
  return facts;
}

void AddProcessFacts(Json& document, const std::string& proc) {
  const bool is_known = IsSamePidNamespace(document, proc);
  ForEachObject(document, "clients", [&proc, is_known](Json& client) {
    Status error;
    const Fields fields(client, "client", &error);
    const KnownProcess process{.pid = fields.Count("pid"),
                               .uid = fields.Count("uid"),
                               .connected_s = fields.Number("connected_s")};
    const ProcessFacts facts =
        is_known && error.ok() ? ProbeProcess(proc, process) : ProcessFacts{};
    SetText(client, "unit", KnownText(facts.unit));
    SetText(client, "command", KnownText(facts.command));
  });
}

}  // namespace idd::tools

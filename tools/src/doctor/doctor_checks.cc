// SPDX-License-Identifier: Apache-2.0
//
// idctl doctor: versions, the store and the host under the daemon. Tags are in doctor_tags.cc.
#include "doctor/doctor_checks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "client/json_fields.h"
#include "doctor/doctor_tags.h"
#include "terminal/output.h"

namespace idd::tools {
namespace {

using Findings = std::vector<Finding>;

constexpr double kNearly = 0.8;  // as a fraction of a limit
constexpr std::uint64_t kMiB = std::uint64_t{1024} * 1024;
constexpr std::uint64_t kNoRoomBytes = 8 * kMiB;
constexpr std::uint64_t kLittleRoomBytes = 256 * kMiB;
constexpr std::uint64_t kFewFiles = 16;
constexpr std::uint64_t kLargeLogBytes = 64 * kMiB;  // idd keeps it at a quarter of this
// Clock offsets: a machine without NTP soon has the first; the second misleads readers of times.
constexpr std::uint64_t kClockWarningMs = 1000;
constexpr std::uint64_t kClockProblemMs = 30'000;

// --- versions

using Version = std::array<std::uint32_t, 3>;

// Parses "1.2.3" and nothing else.
std::optional<Version> ParseVersion(std::string_view text) {
  Version version{};
  for (std::size_t i = 0; i < version.size(); ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version[i]);
    if (error != std::errc() || end == text.data()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    const bool is_last = i + 1 == version.size();
    if (is_last ? !text.empty() : !text.starts_with('.')) return std::nullopt;
    if (!is_last) text.remove_prefix(1);
  }
  return version;
}

std::string AbiText(std::uint64_t major, std::uint64_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

void CheckVersions(const Fields& daemon, const DoctorSelf& self, Findings& findings) {
  const std::string theirs = daemon.Text("version");
  const Fields abi = daemon.Object("abi");
  const std::string their_abi = AbiText(abi.Count("major"), abi.Count("minor"));
  const std::string our_abi = AbiText(self.abi_major, self.abi_minor);
  if (theirs == self.version && their_abi == our_abi) {
    findings.push_back(
        {"versions", Health::kOk, "idctl and idd are " + self.version + ", ABI " + our_abi, ""});
    return;
  }
  const auto our_version = ParseVersion(self.version);
  const auto their_version = ParseVersion(theirs);
  const bool is_daemon_older = our_version && their_version && *their_version < *our_version;
  findings.push_back({"versions", Health::kWarning,
                      "idd is " + theirs + " (ABI " + their_abi + "), idctl is " + self.version +
                          " (ABI " + our_abi + ")",
                      is_daemon_older
                          ? "systemctl restart idd, so that what is installed runs; no id is lost"
                          : "use the idctl that came with idd, or upgrade this one"});
}

void CheckClients(const Fields& peers, const Fields& daemon, Findings& findings) {
  const auto current = ParseVersion(daemon.Text("version"));
  const Fields abi = daemon.Object("abi");
  const std::pair current_abi(abi.Count("major"), abi.Count("minor"));
  std::vector<std::string> old;
  for (const Fields& client : peers.Objects("clients")) {
    const std::string version = client.Text("version");
    const auto parsed = ParseVersion(version);
    const Fields their = client.Object("abi");
    const std::pair their_abi(their.Count("major"), their.Count("minor"));
    const std::uint64_t count = client.Count("connections");
    std::string text = parsed ? version : "one that calls itself " + Quote(version);
    text += " (ABI " + AbiText(their_abi.first, their_abi.second) + ") in " +
            Counted(count, "connection");
    text += ", as pid " + client.CountText("pid") + " of uid " + client.CountText("uid");
    if (parsed && current && *parsed >= *current && their_abi >= current_abi) continue;
    old.push_back(std::move(text));
  }
  const std::uint64_t not_listed = peers.Count("not_listed");
  if (not_listed > 0) old.push_back("others in " + Counted(not_listed, "connection"));
  if (!old.empty()) {
    findings.push_back(
        {"clients", Health::kWarning, "old clients, " + ListSome(old, "version"),
         "they are served; restart these programs when it suits, so that they load the installed "
         "libidclient"});
  }
  AddOkUnlessFound(
      findings, "clients",
      peers.CountText("connections") + " connected, none with an older version than idd's");
}

// --- the store

struct Trouble {
  const char* name;
  const char* title;
  const char* next;
};
constexpr std::array kTroubles = {
    Trouble{"password", "the store refuses the password",
            "correct user and password where idd has them: in its database URL, then systemctl "
            "reload idd; in the file that password_file names, which idd reads at its next try; in "
            "a systemd credential, then systemctl restart idd"},
    Trouble{"rights", "idd's user lacks a right in the store",
            "grant what the error names (for MySQL: GRANT SELECT, INSERT, UPDATE, DELETE, CREATE "
            "ON its database), or make the file and its folder writable for idd's user"},
    Trouble{
        "database", "the database is not there",
        "correct its name in idd's database URL, or create it (CREATE DATABASE ... CHARACTER SET "
        "utf8mb4); restore it if it was lost"},
    Trouble{"read_only", "the store is read-only",
            "if it is a replica, start its primary, or promote it once the old primary can no "
            "longer be written; else make it writable (SET GLOBAL read_only = OFF, or mount it rw "
            "and let idd's user write the file)"},
    Trouble{"descriptors", "idd is out of descriptors",
            "raise LimitNOFILE= (systemctl edit idd), then systemctl restart idd"},
    Trouble{"host_name", "another host has this host's name",
            "give one of the two another name (--host-id, host_id in idd.toml) and restart idd "
            "there; idctl host list shows the names in use"},
    Trouble{"full", "the store's disk is full",
            "free space on the file system of the database; idd goes on by itself"},
    Trouble{"state_dir", "idd cannot write its marks",
            "look at disk and permissions of the state dir; nothing is leased until the marks can "
            "be kept"},
    Trouble{"lock", "a lock is held in the store",
            "find the session or process that holds it (SHOW PROCESSLIST, fuser), and end it"},
    Trouble{"away", "the store cannot be reached",
            "start the database server, or correct its address in idd's database URL; idd connects "
            "by itself"},
};

const char* NextFor(std::string_view trouble) {
  for (const Trouble& known : kTroubles) {
    if (trouble == known.name) return known.next;
  }
  return "";
}

// An error, and the advice that it ends with, if it has any.
std::pair<std::string, std::string> SplitAdvice(const std::string& error) {
  const std::size_t at = error.rfind("; ");
  if (at == std::string::npos) return {error, ""};
  return {error.substr(0, at), error.substr(at + 2)};
}

// The advice for a wrong password depends on where idd has it from, if this user may know that.
std::string PasswordAdvice(const Fields& store, const std::string& otherwise) {
  const std::string source = store.OptionalText("password_source").value_or("");
  const std::string path = store.OptionalText("password_path").value_or("");
  if (source == "url") {
    return "correct user and password in idd's database URL, then systemctl reload idd";
  }
  if (source == "file") {
    return "correct the password in " + Quote(path) +
           ", or the user in idd's database URL; idd reads the file at its next try, without a "
           "reload";
  }
  if (source == "credential") {
    return "correct the password in " + Quote("/etc/credstore/" + path) +
           ", then systemctl restart idd, as systemd passes credentials at a start only; no id is "
           "lost";
  }
  return otherwise;
}

// What one endpoint's error means. The error's own advice is shown only as what to do next.
Finding StoreTrouble(const Fields& store, const Fields& error) {
  const auto [what, advice] = SplitAdvice(error.Text("error"));
  const std::string trouble = error.Text("trouble");
  const std::string since = FormatDuration(store.OptionalNumber("since_s").value_or(0));
  for (const Trouble& known : kTroubles) {
    if (trouble != known.name) continue;
    const bool is_password = trouble == "password";
    return {"store", Health::kProblem, std::string(known.title) + ", for " + since + ": " + what,
            is_password ? PasswordAdvice(store, known.next) : known.next};
  }
  return {"store", Health::kProblem,
          store.Text("url") + " has been down for " + since + ": " + what,
          advice.empty() ? "look at the database and at idd's log" : advice};
}

void CheckStoreState(const Fields& store, Findings& findings) {
  const std::string state = store.Text("state");
  const std::string url = store.Text("url");
  const std::string since = FormatDuration(store.OptionalNumber("since_s").value_or(0));
  const std::optional<std::string> look_error = store.OptionalText("look_error");
  const std::vector<Fields> errors = store.Objects("errors");
  if (state == "up" && !look_error) {
    findings.push_back({"store", Health::kOk, url + " has answered for " + since, ""});
    return;
  }
  if (state == "up") {
    findings.push_back({"store", Health::kProblem,
                        url + " is slow or returned an invalid answer: " + *look_error,
                        "look at the load and the locks of the database, and at idd's log"});
    return;
  }
  if (errors.empty()) {
    findings.push_back(
        {"store", Health::kProblem, url + " has not answered yet", "look again in some seconds"});
  }
  for (std::size_t i = 0; i < errors.size(); ++i) {
    Finding finding = StoreTrouble(store, errors[i]);
    if (errors.size() > 1) {
      finding.found = "endpoint " + std::to_string(i + 1) + " of " + std::to_string(errors.size()) +
                      ": " + finding.found;
    }
    findings.push_back(std::move(finding));
  }
}

void CheckWritable(const Fields& look, Findings& findings) {
  if (!look.Flag("read_only")) {
    findings.push_back({"writable", Health::kOk, "the store is writable", ""});
    return;
  }
  findings.push_back({"writable", Health::kProblem,
                      "the store (" + look.Text("version") + ") is read-only: the next lease fails",
                      NextFor("read_only")});
}

void CheckDurability(const Fields& look, Findings& findings) {
  for (const Fields& setting : look.Objects("settings")) {
    const std::string name = setting.Text("name");
    const std::string value = setting.Text("value");
    const std::string wanted = setting.Text("wanted");
    const std::string risk = setting.Text("risk");
    const bool is_file = look.Text("version").starts_with("SQLite");
    if (value == wanted) continue;
    std::string found = name;
    for (const auto& part : {std::string(" is "), value, std::string(": "), risk}) found += part;
    std::string next = "SET GLOBAL " + name;
    next += " = " + wanted + ", and the same in the server's configuration";
    if (is_file) next = "restart idd, which sets it; check which other programs open the file";
    findings.push_back({"durability", Health::kWarning, std::move(found), std::move(next)});
  }
}

void CheckClock(const Fields& look, Findings& findings) {
  const std::optional<Fields> clock = look.OptionalObject("clock");
  if (!clock) {
    findings.push_back({"clock", Health::kOk, "the store uses this machine's clock", ""});
    return;
  }
  const std::uint64_t off_ms = clock->Count("off_ms");
  const std::uint64_t uncertain_ms = clock->Count("uncertain_ms");
  const std::string way = clock->Flag("is_ahead") ? " ahead of" : " behind";
  const std::uint64_t surely_ms = off_ms - std::min(off_ms, uncertain_ms);
  if (surely_ms < kClockWarningMs) {
    findings.push_back({"clock", Health::kOk,
                        "the store's clock agrees with this host's within " +
                            std::to_string(std::max(off_ms, uncertain_ms)) + " ms",
                        ""});
    return;
  }
  findings.push_back({"clock", surely_ms < kClockProblemMs ? Health::kWarning : Health::kProblem,
                      "the store's clock is " + std::to_string(off_ms) + " ms" + way +
                          " this host's: the times shown for leases and hosts are misleading",
                      "set both by NTP: timedatectl status here and on the database server"});
}

void CheckHostName(const Fields& look, const Fields& daemon, Findings& findings) {
  const std::uint64_t lost = look.Count("lost_leases");
  const std::uint64_t strange = look.Count("strange_leases");
  const std::string host = daemon.Text("host_id");
  if (lost == 0 && strange == 0) {
    findings.push_back({"host", Health::kOk, "only this host leases as " + Quote(host), ""});
    return;
  }
  findings.push_back(
      {"host", Health::kProblem,
       "another idd leases as " + Quote(host) + ": it abandoned " + std::to_string(lost) +
           " of this one's leases and holds " + std::to_string(strange) + " of its own",
       "give one of the two another name (--host-id, host_id in idd.toml) and restart it; idctl "
       "host list shows the names in use"});
}

// --- the witnesses

// "web-2 has been silent for 2m".
std::string MissingText(const Fields& witness) {
  const double silent_s = witness.Number("silent_s");
  const std::string host = witness.Text("host");
  return silent_s > 0 ? host + " has been silent for " + FormatDuration(silent_s)
                      : host + " has not come to the present term";
}

// Of two hosts, one is the only witness: its loss needs an operator. A third one joins the list a
// minute after it has come.
void CheckOnlyWitness(const std::string& witness, std::uint64_t live_hosts, Findings& findings) {
  if (live_hosts == 2) {
    findings.push_back(
        {"witnesses", Health::kWarning,
         witness + " is the only witness of two hosts: if it is lost, the other one leases only up "
                   "to the present ceilings, until an operator names a witness",
         "run idd on a third host, which needs no tags: then all three are witnesses"});
  }
  AddOkUnlessFound(findings, "witnesses", witness + " is the only witness, and is there");
}

void CheckWitnesses(const Fields& store, Findings& findings) {
  const std::optional<Fields> agreement =
      store.Has("agreement") ? store.OptionalObject("agreement") : std::optional<Fields>();
  // A SQLite file, an older idd, or a look from before the store went down.
  if (!agreement || store.Text("state") != "up") return;
  const std::vector<Fields> witnesses = agreement->Objects("witnesses");
  std::string missing;
  for (const Fields& witness : witnesses) {
    if (!witness.Flag("is_there")) missing += (missing.empty() ? "" : ", ") + MissingText(witness);
  }
  const std::string all = std::to_string(witnesses.size());
  if (!agreement->Flag("has_majority")) {
    findings.push_back({"witnesses", Health::kProblem,
                        "no majority of the " + all + " witnesses is there: " + missing +
                            "; leasing ends at the present ceilings, and at once if the database "
                            "changes",
                        "start idd on these hosts; if they will not return: idctl witness set "
                        "--force HOST..., with 1, 3 or 5 hosts that run"});
  } else if (!missing.empty()) {
    findings.push_back({"witnesses", Health::kWarning,
                        missing + "; the other witnesses of " + all + " suffice meanwhile",
                        "start idd there; after ten minutes of silence another host takes its "
                        "place, if there is one"});
  }
  const std::optional<Fields> look = store.OptionalObject("look");
  if (witnesses.size() == 1 && look && look->Has("live_hosts")) {
    return CheckOnlyWitness(witnesses.front().Text("host"), look->Count("live_hosts"), findings);
  }
  AddOkUnlessFound(findings, "witnesses", all + " of " + all + " witnesses are there");
}

// --- the host under idd

std::string SizeText(std::uint64_t bytes) {
  if (bytes < 10 * kMiB) return std::to_string(bytes / 1024) + " KiB";
  if (bytes < 10240 * kMiB) return std::to_string(bytes / kMiB) + " MiB";
  return std::to_string(bytes / (1024 * kMiB)) + " GiB";
}

std::string OctalText(std::uint64_t mode) {
  std::string text;
  for (; mode != 0; mode /= 8) text.insert(text.begin(), static_cast<char>('0' + mode % 8));
  return "0" + text;
}

struct Place {
  std::string what;
  std::string path;
  std::optional<std::string> error;
  std::uint64_t owner = 0;
  std::uint64_t mode = 0;
  std::string file_system;
  bool is_read_only = false;
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::optional<std::uint64_t> free_files;

  [[nodiscard]] std::string Name() const { return "the folder of the " + what + ", " + path; }
};

std::vector<Place> ReadPlaces(const Fields& facts) {
  std::vector<Place> places;
  for (const Fields& place : facts.Objects("places")) {
    places.push_back({.what = place.Text("what"),
                      .path = place.Text("path"),
                      .error = place.OptionalText("error"),
                      .owner = place.Count("owner"),
                      .mode = place.Count("mode"),
                      .file_system = place.Text("file_system"),
                      .is_read_only = place.Flag("read_only"),
                      .free_bytes = place.Count("free_bytes"),
                      .total_bytes = place.Count("total_bytes"),
                      .free_files = place.OptionalCount("free_files")});
  }
  return places;
}

bool IsOneOf(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* one) { return name == one; });
}

// All places on one file system make one finding.
void CheckDisk(const std::vector<Place>& places, Findings& findings) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (const Place& place : places) {
    // idd writes to the socket's folder once, at its start; the folder needs no free space.
    if (place.error || place.what == "socket") continue;
    const std::pair disk(place.free_bytes, place.total_bytes);
    if (std::find(seen.begin(), seen.end(), disk) != seen.end()) continue;
    seen.push_back(disk);
    if (place.is_read_only) {
      findings.push_back({"disk", Health::kProblem, place.Name() + ", is mounted read-only",
                          "find out why in the kernel log (dmesg), as a disk with errors stays "
                          "read-only; then mount -o remount,rw"});
      continue;
    }
    const bool is_out_of_files = place.free_files && *place.free_files < kFewFiles;
    const bool is_full = place.free_bytes < kNoRoomBytes || is_out_of_files;
    const bool is_small = place.free_bytes < kLittleRoomBytes &&
                          static_cast<double>(place.free_bytes) <
                              static_cast<double>(place.total_bytes) * (1 - kNearly);
    if (!is_full && !is_small) continue;
    findings.push_back({"disk", is_full ? Health::kProblem : Health::kWarning,
                        place.Name() + ", has " + SizeText(place.free_bytes) + " of " +
                            SizeText(place.total_bytes) + " left" +
                            (is_out_of_files ? ", and no room for files" : ""),
                        "free space there, or move it: without room nothing is leased"});
  }
  AddOkUnlessFound(findings, "disk", "there is room where idd writes");
}

// A reader's view of the file is in the log, so SQLite cannot empty the log before the reader ends.
void CheckLog(const Fields& look, Findings& findings) {
  const std::uint64_t bytes = look.Count("log_bytes");
  if (bytes < kLargeLogBytes) return;
  findings.push_back({"disk", Health::kWarning,
                      "the -wal beside the SQLite file has " + SizeText(bytes) +
                          " and grows with every lease: another program keeps a transaction open",
                      "find it (fuser -v on the SQLite file) and end it: a backup, a shell, a "
                      "report"});
}

// Places whose contents idd needs but would lose on a reboot or on another machine.
void CheckFileSystems(const std::vector<Place>& places, Findings& findings) {
  for (const Place& place : places) {
    if (place.error || place.what == "socket") continue;
    const bool is_store = place.what == "database";
    const bool is_memory = IsOneOf(place.file_system, {"tmpfs", "ramfs"});
    const bool is_remote = IsOneOf(place.file_system, {"nfs", "cifs", "smb", "smb2", "ceph", "9p",
                                                       "afs", "gfs2", "ocfs2", "lustre"});
    if (is_memory) {
      findings.push_back({"durability", is_store ? Health::kProblem : Health::kWarning,
                          place.Name() + ", is in memory (" + place.file_system +
                              "): a reboot forgets what was handed out",
                          "keep it on a disk: --database, --state-dir"});
    } else if (is_remote && is_store) {
      findings.push_back({"durability", Health::kProblem,
                          place.Name() + ", is on a network file system (" + place.file_system +
                              "), where SQLite's locks and logs are not safe",
                          "keep it on a local disk, or use MySQL or MariaDB for several hosts"});
    }
  }
}

void CheckPlace(const Place& place, std::uint64_t idd_uid, Findings& findings) {
  const auto add = [&](Health state, const std::string& found, const std::string& next) {
    findings.push_back({"permissions", state, place.Name() + ", " + found, next});
  };
  const std::string path = ShellWord(place.path);
  if (place.error) {
    return add(Health::kProblem, "cannot be examined by idd: " + *place.error,
               "let idd's user reach it, or correct the option that names it");
  }
  constexpr std::uint64_t kOthersWrite = 0002;
  constexpr std::uint64_t kGroupWrites = 0020;
  constexpr std::uint64_t kSticky = 01000;
  if (place.owner != idd_uid && place.owner != 0) {
    return add(Health::kProblem,
               "belongs to uid " + std::to_string(place.owner) +
                   ", who can put something else in its place",
               "chown it to the user of idd: uid " + std::to_string(idd_uid));
  }
  // CheckSocket has already checked the mode of the socket's folder.
  if (place.what == "socket") return;
  // A folder such as /tmp is open to all users, and must stay so.
  if ((place.mode & kOthersWrite) != 0 && (place.mode & kSticky) != 0) {
    return add(Health::kProblem,
               "is open to all users (mode " + OctalText(place.mode) +
                   "): any of them can create the files before idd does",
               "keep it in a folder of idd's own: --database, --state-dir");
  }
  if ((place.mode & kOthersWrite) != 0) {
    return add(Health::kProblem,
               "has mode " + OctalText(place.mode) + ": any user can replace what is in it",
               "chmod 0700 " + path);
  }
  if ((place.mode & kGroupWrites) != 0) {
    add(Health::kWarning, "has mode " + OctalText(place.mode) + ": its group can replace it",
        "chmod 0700 " + path);
  }
}

void CheckPlaces(const Fields& facts, const Fields& process, Findings& findings) {
  const std::vector<Place> places = ReadPlaces(facts);
  CheckFileSystems(places, findings);
  CheckDisk(places, findings);
  for (const Place& place : places) CheckPlace(place, process.Count("uid"), findings);
  AddOkUnlessFound(findings, "permissions", "idd's folders are its own");
}

void CheckLimit(const std::string& what, double used, double most, Findings& findings) {
  if (most <= 0 || used < most * kNearly) return;
  const bool is_hit = used >= most * 0.97;
  findings.push_back({"limits", is_hit ? Health::kProblem : Health::kWarning,
                      what + ": " + std::to_string(static_cast<std::uint64_t>(used)) + " of " +
                          std::to_string(static_cast<std::uint64_t>(most)),
                      what.starts_with("uid ")
                          ? "check whether its programs leave connections open; if not, raise "
                            "connections_per_uid in idd.toml, then systemctl reload idd"
                          : "raise LimitNOFILE= of idd.service, then systemctl restart idd"});
}

// Of a limit so low that idd has no room for another ring long before four fifths are in use.
void CheckDescriptors(const Fields& process, Findings& findings) {
  constexpr double kOfRingAndReserve = 18;  // a ring, and what idd keeps for connections
  const double used = process.Number("descriptors");
  const double most = process.Number("most_descriptors");
  if (most <= 0 || used + kOfRingAndReserve <= most) {
    return CheckLimit("descriptors", used, most, findings);
  }
  findings.push_back({"limits", Health::kProblem,
                      process.CountText("descriptors") + " of " +
                          process.CountText("most_descriptors") +
                          " descriptors are in use, which leaves no room for another tag's ring",
                      "raise LimitNOFILE= of idd.service, then systemctl restart idd"});
}

void CheckLimits(const Fields& peers, const Fields& process, Findings& findings) {
  CheckLimit("connections", peers.Number("connections"), peers.Number("most_connections"),
             findings);
  CheckDescriptors(process, findings);
  if (const auto busiest = peers.OptionalObject("busiest"); busiest) {
    CheckLimit("uid " + busiest->CountText("uid") + "'s connections",
               busiest->Number("connections"), peers.Number("connections_per_uid"), findings);
  }
  AddOkUnlessFound(findings, "limits",
                   peers.CountText("connections") + " of " + peers.CountText("most_connections") +
                       " connections, " + process.CountText("descriptors") + " of " +
                       process.CountText("most_descriptors") + " descriptors");
}

void CheckHardening(const Fields& process, Findings& findings) {
  constexpr std::uint64_t kFilter = 2;
  std::vector<std::string> lacks;
  if (process.Count("uid") == 0) lacks.emplace_back("runs as root");
  if (process.Count("seccomp_mode") != kFilter) lacks.emplace_back("has no system call filter");
  if (!process.Flag("no_new_privileges")) lacks.emplace_back("may gain privileges");
  if (process.Text("capabilities").find_first_not_of('0') != std::string::npos) {
    lacks.emplace_back("has capabilities");
  }
  if (!lacks.empty()) {
    std::string found = "idd ";
    for (std::size_t i = 0; i < lacks.size(); ++i) found += (i == 0 ? "" : ", ") + lacks[i];
    findings.push_back({"hardening", Health::kWarning, found,
                        "run it as the unit idd.service of the package does (systemctl cat idd), "
                        "without drop-ins that remove restrictions"});
  }
  AddOkUnlessFound(findings, "hardening",
                   "a user of its own, no capabilities, a system call filter");
}

void CheckRestarts(const Fields& service, Findings& findings) {
  const std::optional<double> watchdog_s = service.OptionalNumber("watchdog_s");
  if (!service.Flag("manager")) {
    findings.push_back({"restarts", Health::kWarning,
                        "no service manager keeps the rings: what they hold is lost (a gap) when "
                        "idd is killed",
                        "run it as the unit idd.service (systemctl enable --now idd)"});
  } else if (!watchdog_s) {
    findings.push_back({"restarts", Health::kWarning, "no watchdog notices if idd hangs",
                        "set WatchdogSec=30s in the unit (systemctl edit idd)"});
  }
  AddOkUnlessFound(findings, "restarts",
                   "the service manager keeps the rings and watches idd every " +
                       FormatDuration(watchdog_s.value_or(0)));
}

// The store's version; empty while it is unknown.
std::string CheckStore(const Fields& store, const Fields& daemon, Diagnosis& diagnosis) {
  Findings& findings = diagnosis.findings;
  CheckStoreState(store, findings);
  CheckWitnesses(store, findings);
  const std::optional<Fields> look = store.OptionalObject("look");
  if (!look) {
    diagnosis.left_out.emplace_back(
        "writable, durability, clock, host, marks, waste: the store does not answer");
    return "";
  }
  CheckWritable(*look, findings);
  CheckClock(*look, findings);
  CheckHostName(*look, daemon, findings);
  CheckStoredTags(*look, findings);
  CheckDurability(*look, findings);
  CheckLog(*look, findings);
  return look->Text("version");
}

}  // namespace

Result<Diagnosis> CheckFacts(const Json& facts, const DoctorSelf& self) {
  Status error;
  Diagnosis diagnosis;
  const Fields reply(facts, "reply", &error);
  const Fields daemon = reply.Object("daemon");
  CheckVersions(daemon, self, diagnosis.findings);
  const std::string store = CheckStore(reply.Object("store"), daemon, diagnosis);
  CheckTags(reply, self.has_rseq, diagnosis.findings);
  const std::optional<Fields> peers = reply.OptionalObject("peers");
  if (peers) {
    const Fields process = reply.Object("process");
    CheckClients(*peers, daemon, diagnosis.findings);
    CheckLimits(*peers, process, diagnosis.findings);
    CheckPlaces(reply, process, diagnosis.findings);
    CheckHardening(process, diagnosis.findings);
    CheckRestarts(reply.Object("service"), diagnosis.findings);
  } else {
    diagnosis.left_out.emplace_back(
        "clients, limits, disk, permissions, hardening, restarts, and tags of others: only users "
        "who administer idd can read them");
  }
  if (!store.empty()) {
    AddOkUnlessFound(diagnosis.findings, "durability", store + " keeps what it has committed");
  }
  if (!error.ok()) return error;
  return diagnosis;
}

}  // namespace idd::tools

// SPDX-License-Identifier: Apache-2.0
#include "admin/operations/doctor_facts.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

namespace idd::daemon {
namespace {

constexpr std::uint64_t kNewestLeases = 1000;
constexpr std::size_t kTagsAtOnce = 500;

std::uint64_t CountDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (folder == nullptr) return 0;
  std::uint64_t count = 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread has this stream
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count - std::min<std::uint64_t>(count, 1);  // without the one that reads the folder
}

struct FileSystem {
  std::uint64_t magic;
  const char* name;
};
// statfs(2)
constexpr std::array kFileSystems = {
    FileSystem{0xef53, "ext4"},       FileSystem{0x58465342, "xfs"},
    FileSystem{0x9123683e, "btrfs"},  FileSystem{0xf2f52010, "f2fs"},
    FileSystem{0x2fc12fc1, "zfs"},    FileSystem{0x794c7630, "overlay"},
    FileSystem{0x01021994, "tmpfs"},  FileSystem{0x858458f6, "ramfs"},
    FileSystem{0x6969, "nfs"},        FileSystem{0xff534d42, "cifs"},
    FileSystem{0xfe534d42, "smb2"},   FileSystem{0x517b, "smb"},
    FileSystem{0x00c36400, "ceph"},   FileSystem{0x01021997, "9p"},
    FileSystem{0x5346414f, "afs"},    FileSystem{0x01161970, "gfs2"},
    FileSystem{0x7461636f, "ocfs2"},  FileSystem{0x65735546, "fuse"},
    FileSystem{0x0bd00bd0, "lustre"}, FileSystem{0x9fa0, "proc"}};

// Compares the leases that this run holds with those that the journal has as active.
void CompareLeases(const std::vector<LeaseRecord>& active, const StoreSession& session,
                   StoreReport& report) {
  std::uint64_t found = 0;
  for (const LeaseRecord& lease : active) {
    const bool is_held = session.held.contains(lease.token);
    if (is_held) ++found;
    if (!is_held && !session.unanswered.contains(lease.token)) ++report.strange_leases;
  }
  report.lost_leases = session.held.size() - found;
}

Status FindBehind(Store& store, const std::vector<TagMark>& marks, StoreReport& report) {
  for (std::size_t begin = 0; begin < marks.size(); begin += kTagsAtOnce) {
    const std::size_t end = std::min(begin + kTagsAtOnce, marks.size());
    std::vector<std::string> tags;
    for (std::size_t i = begin; i < end; ++i) tags.push_back(marks[i].tag);
    const Result<Store::TagResults> records = store.FindTags(tags);
    if (!records.ok()) return records.status();
    for (std::size_t i = begin; i < end; ++i) {
      const Result<TagRecord>& record = records.value()[i - begin];
      if (!record.ok() || record.value().next_id >= marks[i].mark) continue;
      report.behind.push_back(
          {.tag = marks[i].tag, .mark = marks[i].mark, .next_id = record.value().next_id});
    }
  }
  return Status::Ok();
}

std::vector<TagWaste> SumWaste(const std::vector<LeaseRecord>& leases) {
  std::map<std::string, TagWaste, std::less<>> tags;
  for (const LeaseRecord& lease : leases) {
    if (lease.state == LeaseState::kActive) continue;
    if (ParseCounterName(lease.tag).has_value()) continue;  // time that passed is no waste
    TagWaste& waste = tags[lease.tag];
    waste.tag = lease.tag;
    waste.ids += lease.ids.size();
    waste.abandoned += lease.abandoned;
  }
  std::vector<TagWaste> sums;
  sums.reserve(tags.size());
  for (auto& [tag, waste] : tags) sums.push_back(std::move(waste));
  return sums;
}

Status ReadStore(Store& store, HighWaterMarks& marks, const StoreSession& session,
                 const std::string& host, StoreReport& report) {
  Result<StoreFacts> facts = store.Inspect();
  if (!facts.ok()) return facts.status();
  report.facts = std::move(facts).value();
  Result<std::vector<TagRecord>> tags = store.ListTags();
  if (!tags.ok()) return tags.status();
  report.tags = std::move(tags).value();
  std::erase_if(report.tags,
                [](const TagRecord& tag) { return ParseCounterName(tag.tag).has_value(); });
  const Result<std::vector<TagMark>> all = marks.All();
  if (!all.ok()) return all.status();
  if (Status status = FindBehind(store, all.value(), report); !status.ok()) return status;
  const Result<std::vector<LeaseRecord>> active =
      store.ListLeases({.tag = std::nullopt, .host = host, .state = LeaseState::kActive});
  if (!active.ok()) return active.status();
  CompareLeases(active.value(), session, report);
  // Not limited to this host: an index finds the newest leases of all hosts, whereas reading a long
  // journal would hold up leases.
  const Result<std::vector<LeaseRecord>> newest = store.ListLeases(
      {.tag = std::nullopt, .host = std::nullopt, .state = std::nullopt, .newest = kNewestLeases});
  if (!newest.ok()) return newest.status();
  report.waste = SumWaste(newest.value());
  const Result<std::vector<HostRecord>> hosts = store.ListHosts();
  if (!hosts.ok()) return hosts.status();
  for (const HostRecord& one : hosts.value()) {
    if (std::string_view(HostCondition(one)) == "live") ++report.live_hosts;
  }
  return Status::Ok();
}

// The number that follows `before` in `text`, as in "(error 1045)".
std::optional<int> NumberBehind(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(at + before.size());
  int number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || end == rest.data()) return std::nullopt;
  return number;
}

struct Trouble {
  int number;
  const char* name;
};
constexpr std::array kServerTroubles = {
    Trouble{1045, "password"}, Trouble{1698, "password"},  Trouble{1044, "rights"},
    Trouble{1142, "rights"},   Trouble{1143, "rights"},    Trouble{1227, "rights"},
    Trouble{1049, "database"}, Trouble{1792, "read_only"}, Trouble{1836, "read_only"},
    Trouble{1021, "full"},     Trouble{1114, "full"},      Trouble{1205, "lock"},
    Trouble{2002, "away"},     Trouble{2003, "away"},      Trouble{2005, "away"},
    Trouble{2006, "away"},     Trouble{2013, "away"},      Trouble{2055, "away"},
    Trouble{1053, "away"},     Trouble{1047, "away"},      Trouble{1927, "away"}};
// SQLite's primary codes: the low byte of the code that a message has.
constexpr std::array kFileTroubles = {Trouble{5, "lock"},      Trouble{6, "lock"},
                                      Trouble{8, "read_only"}, Trouble{3, "rights"},
                                      Trouble{13, "full"},     Trouble{14, "rights"}};

struct Words {
  const char* words;
  const char* name;
};
constexpr std::array kWordTroubles = {
    Words{"raise the limit of descriptors", "descriptors"},
    Words{"another host uses the name", "host_name"},
    Words{"high-water.db", "state_dir"},
    Words{"password cannot be read", "password"},
    Words{"names a credential", "password"},
    Words{"is read-only", "read_only"},
    Words{"the look-up of host '", "away"},
    Words{"is not found: ", "away"},
};

template <std::size_t kCount>
const char* NameOf(const std::array<Trouble, kCount>& troubles, int number) {
  for (const Trouble& trouble : troubles) {
    if (trouble.number == number) return trouble.name;
  }
  return nullptr;
}

}  // namespace

ProcessFacts ProbeProcess() {
  ProcessFacts facts;
  facts.uid = ::geteuid();
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const std::size_t colon = line.find(":\t");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, colon);
    const std::string value = line.substr(colon + 2);
    if (key == "Seccomp") facts.seccomp_mode = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "NoNewPrivs") facts.no_new_privileges = value == "1";
    if (key == "CapEff") facts.capabilities = value;
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.most_descriptors = limit.rlim_cur;
  facts.descriptors = CountDescriptors();
  return facts;
}

std::string FileSystemName(std::uint64_t magic) {
  for (const FileSystem& known : kFileSystems) {
    if (known.magic == magic) return known.name;
  }
  std::array<char, 20> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), magic, 16);
  return "0x" + std::string(digits.data(), error == std::errc() ? end : digits.data());
}

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

PlaceFacts ProbePlace(std::string what, std::string path) {
  PlaceFacts place;
  place.what = std::move(what);
  place.path = std::move(path);
  struct stat info {};
  struct statfs file_system {};
  struct statvfs room {};
  if (::stat(place.path.c_str(), &info) != 0 || ::statfs(place.path.c_str(), &file_system) != 0 ||
      ::statvfs(place.path.c_str(), &room) != 0) {
    place.error = Status::FromErrno(errno, "looking at it").message();
    return place;
  }
  place.owner = info.st_uid;
  place.mode = info.st_mode & 07777U;
  place.file_system = FileSystemName(static_cast<std::uint32_t>(file_system.f_type));
  place.is_read_only = (room.f_flag & ST_RDONLY) != 0;
  place.free_bytes = std::uint64_t{room.f_bavail} * room.f_frsize;
  place.total_bytes = std::uint64_t{room.f_blocks} * room.f_frsize;
  if (room.f_files != 0) place.free_files = room.f_favail;
  return place;
}

Result<StoreReport> InspectStore(Store& store, HighWaterMarks& marks, const StoreSession& session,
                                 const std::string& host) {
  StoreReport report;
  const Status status = ReadStore(store, marks, session, host, report);
  if (status.ok()) return report;
  if (status.code() == Code::kUnavailable) return status;
  return Status(Code::kInvalid, status.message());
}

const char* TroubleOf(std::string_view error) {
  for (const Words& known : kWordTroubles) {
    if (error.find(known.words) != std::string_view::npos) return known.name;
  }
  const char* name = nullptr;
  if (const auto number = NumberBehind(error, "(error "); number.has_value()) {
    name = NameOf(kServerTroubles, *number);
  } else if (const auto code = NumberBehind(error, "(SQLite code "); code.has_value()) {
    name = NameOf(kFileTroubles, *code & 0xff);
  }
  return name == nullptr ? "other" : name;
}

}  // namespace idd::daemon

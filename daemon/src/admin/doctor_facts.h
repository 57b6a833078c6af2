// SPDX-License-Identifier: Apache-2.0
//
// What idd tells `idctl doctor` of itself: facts alone, what they mean is idctl's to say.
#ifndef IDD_DAEMON_ADMIN_DOCTOR_FACTS_H_
#define IDD_DAEMON_ADMIN_DOCTOR_FACTS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/status.h"
#include "leasing/lease_worker.h"
#include "store/store.h"

namespace idd::daemon {

// This process, as the kernel sees it.
struct ProcessFacts {
  uid_t uid = 0;
  std::uint64_t seccomp_mode = 0;  // 2: a filter
  bool no_new_privileges = false;
  std::string capabilities;  // effective, hexadecimal
  std::uint64_t descriptors = 0;
  std::uint64_t most_descriptors = 0;
};
[[nodiscard]] ProcessFacts ProbeProcess();

// A folder that idd lives in, and the file system below it.
struct PlaceFacts {
  std::string what;  // "state dir", "database", "socket"
  std::string path;
  std::string error;  // why nothing else is known; else empty
  uid_t owner = 0;
  mode_t mode = 0;  // permissions alone
  std::string file_system;
  bool is_read_only = false;
  std::uint64_t free_bytes = 0;  // for idd's user
  std::uint64_t total_bytes = 0;
  std::optional<std::uint64_t> free_files{};  // where they are counted
};
// May wait for a disk or a network.
[[nodiscard]] PlaceFacts ProbePlace(std::string what, std::string path);
// "ext4", "tmpfs", "nfs"; a hexadecimal number for what is not known.
[[nodiscard]] std::string FileSystemName(std::uint64_t magic);
// The folder of a file; "." for a bare name.
[[nodiscard]] std::string FolderOf(const std::string& path);

// Connections that say the same of themselves.
struct ClientGroup {
  std::string version;  // untrusted
  std::uint32_t abi_version = 0;
  std::uint64_t connections = 0;
  pid_t pid = 0;  // of one of them
  uid_t uid = 0;
};
inline constexpr std::size_t kMaxClientGroups = 64;

struct PeerFacts {
  std::uint64_t connections = 0;
  std::uint64_t most_connections = 0;
  std::uint64_t connections_per_uid = 0;  // the limit
  // Of the uid that has the most, and is limited; nothing: no such uid is connected.
  struct Busiest {
    uid_t uid = 0;
    std::uint64_t connections = 0;
  };
  std::optional<Busiest> busiest;
  std::vector<ClientGroup> clients;  // at most kMaxClientGroups; the rest is not listed
  std::uint64_t not_listed = 0;      // connections
};

// What becomes of the ids of the newest leases of a tag, of whatever host.
struct TagWaste {
  std::string tag;
  std::uint64_t ids = 0;
  std::uint64_t abandoned = 0;
};
// A tag whose next lease would begin below what this host was granted.
struct TagBehind {
  std::string tag;
  std::uint64_t mark = 0;
  std::uint64_t next_id = 0;
};

// What a look into the store has shown.
struct StoreReport {
  StoreFacts facts;
  std::vector<TagRecord> tags;
  std::vector<TagBehind> behind;
  std::vector<TagWaste> waste;
  // Of leases under this host's name: held by this run and not active in the journal; active there
  // and unknown to this run. Each is another idd's doing.
  std::uint64_t lost_leases = 0;
  std::uint64_t strange_leases = 0;
};
// On the lease worker's thread. An odd answer of the store is kInvalid: it is no reason to take the
// store for one that is down.
[[nodiscard]] Result<StoreReport> InspectStore(Store& store, HighWaterMarks& marks,
                                               const StoreSession& session,
                                               const std::string& host);

// What kind of trouble an error of the store is: "password", "rights", "database", "read_only",
// "host_name", "full", "state_dir", "lock", "away", or "other".
[[nodiscard]] const char* TroubleOf(std::string_view error);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_DOCTOR_FACTS_H_

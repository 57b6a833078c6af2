// SPDX-License-Identifier: Apache-2.0
//
// The facts that idd gives `idctl doctor`; idctl decides what they mean.
#ifndef IDD_DAEMON_ADMIN_OPERATIONS_DOCTOR_FACTS_H_
#define IDD_DAEMON_ADMIN_OPERATIONS_DOCTOR_FACTS_H_

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

// A directory that idd uses, and its file system.
struct PlaceFacts {
  std::string what;  // "state dir", "database", "socket"
  std::string path;
  std::string error;  // why the rest is unknown; else empty
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
// "ext4", "tmpfs", "nfs"; a hexadecimal number if unknown.
[[nodiscard]] std::string FileSystemName(std::uint64_t magic);
// The folder of a file; "." for a bare name.
[[nodiscard]] std::string FolderOf(const std::string& path);

// How many ids of a tag's newest leases, of all hosts, were abandoned.
struct TagWaste {
  std::string tag;
  std::uint64_t ids = 0;
  std::uint64_t abandoned = 0;
};
// A tag whose next lease would begin below what this host was granted.
struct TagBelowMark {
  std::string tag;
  std::uint64_t mark = 0;
  std::uint64_t next_id = 0;
};

// The result of InspectStore().
struct StoreReport {
  StoreFacts facts;
  std::vector<TagRecord> tags;
  std::vector<TagBelowMark> behind;
  std::vector<TagWaste> waste;
  // Leases under this host's name: held by this run but not active in the journal (lost), or active
  // there but unknown to this run (strange). Either means that another idd uses the name.
  std::uint64_t lost_leases = 0;
  std::uint64_t strange_leases = 0;
  std::uint64_t live_hosts = 0;  // with this one
};
// To be called on the lease worker's thread. An invalid answer of the store is kInvalid, so that
// the store does not count as down because of it.
[[nodiscard]] Result<StoreReport> InspectStore(Store& store, HighWaterMarks& marks,
                                               const StoreSession& session,
                                               const std::string& host);

// The kind of trouble that an error of the store means: "password", "rights", "database",
// "read_only", "host_name", "full", "state_dir", "lock", "away", or "other".
[[nodiscard]] const char* TroubleOf(std::string_view error);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_OPERATIONS_DOCTOR_FACTS_H_

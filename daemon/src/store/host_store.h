// SPDX-License-Identifier: Apache-2.0
//
// What the allocator keeps about hosts for people: who a host is, whether it is alive, and what it
// reports. Leases depend on none of it, except that on a server a host that has stopped, or was not
// seen lately, may lose its name to another machine (mysql/host_row.h).
#ifndef IDD_DAEMON_STORE_HOST_STORE_H_
#define IDD_DAEMON_STORE_HOST_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "idd/base/status.h"

namespace idd::daemon {

// What a host says about itself.
struct HostInfo {
  std::string name;     // of the machine: gethostname()
  std::string address;  // host_address; may be empty
  std::string version;  // of its idd
  std::string boot_id;  // of its kernel
  // JSON: {"served": tags, "short": those that hold fewer ids than promised, "tags": the names of
  // some of these}. Empty: none yet.
  std::string report;
  friend bool operator==(const HostInfo&, const HostInfo&) = default;
};

// A running host renews its row this often ...
inline constexpr std::chrono::seconds kHostSeenEvery(20);
// ... and counts as silent after this long without a renewal.
inline constexpr std::chrono::seconds kHostSilentAfter(60);

// One batch of the leases of a host that is gone for good.
struct ForgetOrder {
  std::string host;        // its id; not this host's
  bool is_forced = false;  // also if it was seen lately
  bool is_first = true;    // of the batches for this host
  std::size_t rows = 200;  // at most, of leases and of returned ranges each
};

struct ForgetOutcome {
  bool is_done = false;
  std::uint64_t leases = 0;        // that were active
  std::uint64_t ids = 0;           // of them
  std::uint64_t returned_ids = 0;  // that were listed for the host
};

// Thread safety and errors: those of Store.
class HostStore {
 public:
  HostStore() = default;
  virtual ~HostStore() = default;
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Writes the row of this host, as seen now, in a transaction of its own. True: this host had been
  // forgotten. It is known again.
  [[nodiscard]] virtual Result<bool> Introduce(const HostInfo& info) = 0;
  // Forgets a host, in one transaction: journals active leases as abandoned, gives up ranges that
  // are listed as returned for it, and notes that it is forgotten. None of these ids is leased
  // again. Rows that the host's next run needs stay. kInvalid: the host is not known, is alive, or
  // has come back since the first batch.
  [[nodiscard]] virtual Result<ForgetOutcome> Forget(const ForgetOrder& order) = 0;
  // This host stops.
  [[nodiscard]] virtual Status NoteStop() = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_HOST_STORE_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_RESTART_HELD_LEASES_H_
#define IDD_DAEMON_RESTART_HELD_LEASES_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/shm/memfd.h"
#include "store/lease.h"
#include "store/tag_record.h"

namespace idd::daemon {

// The state of a lease of this host, for the next daemon.
enum class HeldState : std::uint64_t {
  kFree = 0,
  kAsked = 1,      // the allocator may have it under this token; none of its ids was used
  kHeld = 2,       // ids below `next` were claimed or given out; its ring may show more
  kClosing = 3,    // its end, claimed below `next`, is being journalled; the rest is given up
  kReturning = 4,  // the rest from `next` on is on its way back to the allocator, or is there
};

// One recorded lease. Only token and tag are known of one in state kAsked.
struct HeldLease {
  HeldState state = HeldState::kFree;
  Lease lease;
  std::uint64_t next = 0;     // lease.ids.first <= next <= lease.ids.limit
  std::uint64_t ring_id = 0;  // the ring it is or is about to be published in; 0: none
  TagRecord record;           // the tag's settings at the time of the lease
};

// The tags, by token, of leases that the allocator may have granted.
using AskedLeases = std::map<std::string, std::string, std::less<>>;

// All leases of this host, in a memfd of idd's own that outlives the process in the service
// manager's descriptor store. Each step is recorded before it is done: a process may be killed
// between any two stores, and the next one finds what was stored.
//
// The list is never on a disk, so it cannot be older than the rings that clients claim from. It is
// never passed to a client.
//
// Thread safety: none; event loop.
//
// Invariant: an entry's words are complete before its state says so, and its state says "free"
// before they are used for another lease. No other thread reads them: the release orders of E1, E3
// and E5 keep the stores in this order for the next process, and the relaxed loads E4 and E6 read
// what this process, or one that has ended, has written.
class HeldLeases {
 public:
  ~HeldLeases();
  HeldLeases(const HeldLeases&) = delete;
  HeldLeases& operator=(const HeldLeases&) = delete;

  // `host_id`: the host that holds the leases. kSystem.
  [[nodiscard]] static Result<std::unique_ptr<HeldLeases>> Create(const std::string& host_id);
  // Adopts the list that an earlier daemon of the same host left. kIncompatible if it is anything
  // else, or has another layout. The caller compares its id.
  [[nodiscard]] static Result<std::unique_ptr<HeldLeases>> Adopt(ScopedFd fd,
                                                                 const std::string& host_id);

  // Random, one for each list ever made.
  [[nodiscard]] std::string id() const;
  // The host that holds the leases.
  [[nodiscard]] std::string host_id() const;
  // The descriptor to leave with the service manager.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // All valid entries that are in use. Invalid ones are freed.
  [[nodiscard]] std::vector<HeldLease> All();

  // To be called before the allocator is asked.
  void RecordAsked(const std::string& token, const std::string& tag);
  // To be called as soon as the allocator is known to have granted it.
  void RecordGranted(const Lease& lease, const TagRecord& record);
  // To be called before any id below `next` is handed out, and before a ring has the rest.
  void RecordUsed(const std::string& token, std::uint64_t next, std::uint64_t ring_id);
  // The word that holds `next` of a lease. It is the witness of the lease's segment
  // (shm::RingWriter::Publish), so the ring raises it with every look and claim; a ring that shows
  // less later was forged. Null if the lease is not recorded; valid until Forget().
  [[nodiscard]] std::atomic<std::uint64_t>* NextOf(const std::string& token) const;
  // To be called before the lease's end is sent to the allocator.
  void RecordClosing(const std::string& token, std::uint64_t claimed);
  void RecordReturning(const std::string& token, std::uint64_t claimed);
  // The journal has the lease's end, or never had the lease.
  void Forget(const std::string& token);

  // How many leases found no room in the list; a restart does not keep them.
  [[nodiscard]] std::uint64_t unnoted() const noexcept { return unnoted_; }

 private:
  struct Header;
  struct Entry;
  struct Layout;
  HeldLeases(ScopedFd fd, shm::MappedMemory memory);

  [[nodiscard]] Layout& layout() const noexcept;
  [[nodiscard]] Entry* Find(const std::string& token) const;
  void RecordEnd(const std::string& token, std::uint64_t claimed, HeldState state);
  [[nodiscard]] static bool MakesSense(const Entry& entry);
  [[nodiscard]] static HeldLease Read(const Entry& entry);

  ScopedFd fd_;
  shm::MappedMemory memory_;
  std::map<std::string, std::uint32_t, std::less<>> by_token_;
  std::set<std::uint32_t> free_;  // entries below the header's `used`; the lowest is taken first
  std::uint64_t unnoted_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_RESTART_HELD_LEASES_H_

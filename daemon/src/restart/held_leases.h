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

// What a lease of this host is at, for the daemon that comes next.
enum class HeldState : std::uint64_t {
  kFree = 0,
  kAsked = 1,      // the allocator may have it under this token or not; none of its ids was used
  kHeld = 2,       // ids below `next` were claimed or given away; what a ring has of it, it says
  kClosing = 3,    // its end, claimed below `next`, is being journalled; the rest is given up
  kReturning = 4,  // the rest from `next` on is on its way back to the allocator, or is there
};

// One lease as it was noted. Of an asked one only token and tag are known.
struct HeldLease {
  HeldState state = HeldState::kFree;
  Lease lease;
  std::uint64_t next = 0;     // lease.ids.first <= next <= lease.ids.limit
  std::uint64_t ring_id = 0;  // the ring it is or is about to be published in; 0: none
  TagRecord record;           // what serving the tag takes, as of the lease
};

// Leases that the allocator may have granted: the tag of each, by token.
using AskedLeases = std::map<std::string, std::string, std::less<>>;

// All leases of this host, in a memfd of idd's own that outlives the process in the service
// manager's descriptor store. It is noted before it is done: a process may be killed between any
// two stores, and the next one finds what was stored.
//
// Nothing of it was ever on a disk, so it cannot be of an earlier time than the rings that clients
// claim from. It is never passed to a client.
//
// Thread safety: none; event loop.
//
// Invariant: an entry's words are complete before its state says so, and its state says "free"
// before they are used for another lease.
class HeldLeases {
 public:
  ~HeldLeases();
  HeldLeases(const HeldLeases&) = delete;
  HeldLeases& operator=(const HeldLeases&) = delete;

  // `host_id`: whose leases they are. kSystem.
  [[nodiscard]] static Result<std::unique_ptr<HeldLeases>> Create(const std::string& host_id);
  // What an earlier daemon of the same host left. kIncompatible when it is anything else, or of
  // another layout. The caller compares its id.
  [[nodiscard]] static Result<std::unique_ptr<HeldLeases>> Adopt(ScopedFd fd,
                                                                 const std::string& host_id);

  // Random, one for each list ever made.
  [[nodiscard]] std::string id() const;
  // Whose leases they are.
  [[nodiscard]] std::string host_id() const;
  // The descriptor to leave with the service manager.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Of every entry that is in use and makes sense; those that do not are freed.
  [[nodiscard]] std::vector<HeldLease> All();

  // Before the allocator is asked.
  void RecordAsked(const std::string& token, const std::string& tag);
  // As soon as it is known that the allocator has granted it.
  void RecordGranted(const Lease& lease, const TagRecord& record);
  // Before any id below `next` is answered, and before a ring has the rest.
  void RecordUsed(const std::string& token, std::uint64_t next, std::uint64_t ring_id);
  // The word that keeps `next` of a lease: the witness of the segment it is published as, which the
  // ring raises with every look and claim (shm::RingWriter::Publish). A ring that shows less later
  // was forged. Null if the lease is not noted; valid until Forget().
  [[nodiscard]] std::atomic<std::uint64_t>* NextOf(const std::string& token) const;
  // Before its end is on its way to the allocator.
  void RecordClosing(const std::string& token, std::uint64_t claimed);
  void RecordReturning(const std::string& token, std::uint64_t claimed);
  // The journal has its end, or never had it.
  void Forget(const std::string& token);

  // Leases that found no room are not kept over a restart.
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
  std::set<std::uint32_t> free_;  // below the header's `used`: the lowest is taken first
  std::uint64_t unnoted_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_RESTART_HELD_LEASES_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAG_SERVICE_H_
#define IDD_DAEMON_TAG_SERVICE_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/shm/ring_protocol.h"
#include "lease_worker.h"
#include "store/store.h"
#include "tag_ring.h"

namespace idd::daemon {

// What a client needs to map a ring; nothing for a tag whose ids are claimed by requests alone. The
// descriptors stay the service's; they are valid until the event loop runs another handler.
struct AttachGrant {
  std::uint64_t ring_id = 0;
  int table_fd = -1;
  int cursors_fd = -1;
};

struct ClaimGrant {
  shm::IdRange ids;
  bool attach_again = false;  // an attach would not answer the ring that the client named
};

// A request that may have to wait. `owner` is the connection it came by.
struct RequestContext {
  std::uint64_t owner = 0;
  Deadline deadline;
};

// What `status` and `audit` show of a tag that this daemon has served.
struct TagSnapshot {
  std::string tag;
  std::string mode;
  std::uint64_t step = 0;
  std::string state;  // "ok", "dry", "quarantined"
  std::uint64_t claimed = 0;
  std::vector<LeaseUse> leases;  // in the ring, oldest first
  double rate_per_s = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t leases_taken = 0;
  std::string last_error;
};

// All tags of this host: their rings, waiters and refills.
//
// A claim that finds the ring dry waits in its tag's queue; what the next lease brings goes to the
// queue first, in order, before the rest is published. A waiter leaves with ids, with a reason, or
// with its deadline.
//
// Thread safety: none; everything runs on the event loop. Store work goes through the LeaseWorker.
class TagService {
 public:
  TagService(boost::asio::io_context& loop, LeaseWorker& worker);
  ~TagService();
  TagService(const TagService&) = delete;
  TagService& operator=(const TagService&) = delete;

  using AttachDone = std::function<void(Result<AttachGrant>)>;
  using ClaimDone = std::function<void(Result<ClaimGrant>)>;

  // Each `done` is called once: now, later on the loop, or never if DropOwner comes first.
  void Attach(const std::string& tag, RequestContext context, AttachDone done);
  void Claim(const std::string& tag, std::uint64_t ring_id, std::uint64_t count,
             RequestContext context, ClaimDone done);
  // A claimer passed the refill mark.
  void Refill(const std::string& tag);
  // The connection is gone: nobody waits there any more.
  void DropOwner(std::uint64_t owner);

  void OnStoreHealth(const StoreHealth& health);
  [[nodiscard]] const StoreHealth& store_health() const noexcept { return health_; }

  // An administrator changed or deleted the tag in the store. After a deletion the ring is drained
  // and its leases are closed as abandoned.
  void OnTagChanged(const TagRecord& record);
  void OnTagDeleted(const std::string& tag);

  // Looks at every ring: what a claimer that died before its wake-up left undone, and the rates.
  void Poll();

  [[nodiscard]] std::vector<TagSnapshot> Snapshot() const;
  // The leases that the journal may still have as active, by token: those in a ring (kActive) and
  // those on their way to being closed.
  [[nodiscard]] std::map<std::string, LeaseClosure, std::less<>> LiveLeases() const;

  // Refuses new requests, fails the waiters, drains every ring and hands the tails back; `done`
  // when the store has answered for all of them.
  void Shutdown(std::function<void()> done);

 private:
  struct Waiter;
  struct Tag;
  struct LeaseOutcome;
  using TagPtr = std::unique_ptr<Tag>;

  [[nodiscard]] Tag& GetTag(const std::string& name);
  void Enqueue(Tag& tag, Waiter waiter);
  void Serve(Tag& tag);
  void ServeAttaches(Tag& tag);
  void FailWaiters(Tag& tag, const Status& status);
  void ExpireWaiters(Tag& tag);
  void ArmDeadline(Tag& tag);
  void ForgetIfUnused(const std::string& name);

  void LookUp(Tag& tag);
  void OnLookUp(const std::string& name, Result<TagRecord> record);
  void MaybeLease(Tag& tag);
  void StartLease(Tag& tag);
  void OnLease(const std::string& name, Result<LeaseOutcome> outcome);
  void PublishLease(Tag& tag, const Lease& lease);
  void OnNotLeased(Tag& tag, const LeaseOutcome& outcome);
  void OnStoreFailure(Tag& tag, const Status& status);
  void Refuse(Tag& tag, const Status& status);
  void RetryLater(Tag& tag, MonotonicTime when);
  [[nodiscard]] Status EnsureRing(Tag& tag);
  void EnforceAccess(Tag& tag);
  void CloseExhausted(Tag& tag);
  void Quarantine(Tag& tag, std::vector<LeaseUse> drained = {});
  [[nodiscard]] const char* StateOf(const Tag& tag, std::uint64_t available) const;
  void Close(std::vector<LeaseClosure> closures);
  void FlushClosing();
  void HandBack(const LeaseUse& use);
  void HandBackTails(Tag& tag);
  [[nodiscard]] std::string WaitReason(const Tag& tag) const;
  void FinishShutdownIfIdle();

  boost::asio::io_context& loop_;
  LeaseWorker& worker_;
  StoreHealth health_;
  std::map<std::string, TagPtr, std::less<>> tags_;
  // Leases that left their ring and are not yet closed in the journal, by token.
  std::map<std::string, LeaseClosure, std::less<>> closing_;
  // Leases whose tails are on their way back to the store, by token.
  std::map<std::string, LeaseClosure, std::less<>> returning_;
  bool flushing_ = false;
  bool stopping_ = false;
  std::function<void()> shutdown_done_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAG_SERVICE_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_WAIT_QUEUE_H_
#define IDD_DAEMON_TAGS_WAIT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/shm/ring_protocol.h"

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
  bool more_follow = false;   // the next answer to the same connection comes right behind it
};

// A request that may have to wait. `owner` is the connection it came by.
struct RequestContext {
  std::uint64_t owner = 0;
  Deadline deadline;
  bool by_socket = false;  // the peer has no ring, whether or not the tag has
};

using AttachDone = std::function<void(Result<AttachGrant>)>;
using ClaimDone = std::function<void(Result<ClaimGrant>)>;

// What one request may ask a lease for: a client that wants more asks again.
inline constexpr std::uint64_t kMaxForOneWaiter = 1'000'000;

// The requests that wait for one tag, first come, first served. Each is answered once: it is taken
// out before its callback runs, so that a callback may use the queue.
//
// Thread safety: none; event loop.
class WaitQueue {
 public:
  void PushAttach(RequestContext context, AttachDone done);
  void PushClaim(RequestContext context, std::uint64_t ring_id, std::uint64_t count,
                 ClaimDone done);

  [[nodiscard]] bool empty() const noexcept { return waiters_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return waiters_.size(); }
  // That the claims in it wait for, of each kMaxForOneWaiter at most.
  [[nodiscard]] std::uint64_t IdsWanted() const;
  // Of the one that ends first. Precondition: not empty.
  [[nodiscard]] MonotonicTime FirstDeadline() const;

  // Answers every ATTACH; whether there was one.
  bool AnswerAttaches(const AttachGrant& grant);

  // Ids for claims of one connection, not yet sent: what asks the ring next must not overtake them.
  class Answers {
   public:
    [[nodiscard]] bool empty() const noexcept { return claims_.empty(); }
    // `ring_id`: what an ATTACH would be answered.
    void Send(std::uint64_t ring_id);

   private:
    friend class WaitQueue;
    struct Answer {
      ClaimDone done;
      std::uint64_t ring_id = 0;  // that the client named
      shm::IdRange ids;
    };
    std::vector<Answer> claims_;
  };
  // For the claims of the connection whose claim has waited longest. `take` gives up to so many
  // ids, or none: then the claim and those behind it go on waiting. One connection at a time, so
  // that its answers go in one message, and before another's ids are taken: what was taken and
  // not sent is lost if idd is killed. Precondition: no ATTACH waits.
  using Take = std::function<shm::IdRange(std::uint64_t count)>;
  [[nodiscard]] Answers ServeOldest(const Take& take);

  void FailAll(const Status& status);
  // Those whose deadline has passed.
  void FailExpired(const std::function<Status()>& reason);
  // Its requests do not wait any more; no callback.
  void Drop(std::uint64_t owner);

 private:
  // Exactly one of the two callbacks is set.
  struct Waiter {
    RequestContext context;
    std::uint64_t ring_id = 0;
    std::uint64_t count = 0;
    AttachDone attach_done;
    ClaimDone claim_done;

    void Fail(const Status& status) const;
  };

  std::list<Waiter> waiters_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_WAIT_QUEUE_H_

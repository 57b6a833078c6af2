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

// The descriptors with which a client maps a ring; none for a tag that is claimed only over the
// socket. The service owns them; they are valid until the event loop runs another handler.
struct AttachGrant {
  std::uint64_t ring_id = 0;
  int table_fd = -1;
  int cursors_fd = -1;
  std::uint32_t cursors_bytes = 0;
  const char* mode = "";  // TagModeName()
};

struct ClaimGrant {
  shm::IdRange ids;
  bool attach_again = false;  // an ATTACH would not return the ring that the client named
  bool more_follow = false;   // the next answer to the same connection comes right after it
  bool has_waited = false;    // for the store, or for claims before it
};

// A request that may have to wait. `owner` is the connection that it came from.
struct RequestContext {
  std::uint64_t owner = 0;
  Deadline deadline;
  bool by_socket = false;  // the peer has no ring, whether or not the tag has
};

using AttachDone = std::function<void(Result<AttachGrant>)>;
using ClaimDone = std::function<void(Result<ClaimGrant>)>;

// How many ids one request may get from a lease; a client that wants more asks again.
inline constexpr std::uint64_t kMaxForOneWaiter = 1'000'000;

// The requests that wait for one tag, first come, first served. Each is answered once, and is
// removed before its callback runs, so that a callback may use the queue.
//
// Thread safety: none; event loop.
class WaitQueue {
 public:
  void PushAttach(RequestContext context, AttachDone done);
  void PushClaim(RequestContext context, std::uint64_t ring_id, std::uint64_t count,
                 ClaimDone done);
  // Ends a turn of the event loop. A request that is still in the queue has waited.
  void EndTurn() noexcept { ++turn_; }

  [[nodiscard]] bool empty() const noexcept { return waiters_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return waiters_.size(); }
  // The number of the newest request; they rise in the order of arrival.
  [[nodiscard]] std::uint64_t newest() const noexcept { return newest_; }
  // How many ids the queued claims wait for, at most kMaxForOneWaiter each.
  [[nodiscard]] std::uint64_t IdsWanted() const;
  // The earliest deadline. Precondition: not empty.
  [[nodiscard]] MonotonicTime FirstDeadline() const;

  // Answers every ATTACH. Returns whether there was one.
  bool AnswerAttaches(const AttachGrant& grant);

  // Ids for claims of one connection, not yet sent. They must be sent before the ring serves
  // another claim.
  class Answers {
   public:
    [[nodiscard]] bool empty() const noexcept { return claims_.empty(); }
    // `ring_id`: the ring that an ATTACH would return.
    void Send(std::uint64_t ring_id);

   private:
    friend class WaitQueue;
    struct Answer {
      ClaimDone done;
      std::uint64_t ring_id = 0;  // the ring that the client named
      shm::IdRange ids;
      bool has_waited = false;
    };
    std::vector<Answer> claims_;
  };
  // Serves the claims of the connection whose claim has waited longest. `take` returns up to
  // `count` ids; if it returns none, that claim and those after it continue to wait. One connection
  // is served at a time, so that its answers go in one message and are sent before ids for another
  // connection are taken: ids that were taken and not sent are lost if idd is killed. Precondition:
  // no ATTACH waits.
  using Take = std::function<shm::IdRange(std::uint64_t count)>;
  [[nodiscard]] Answers ServeOldest(const Take& take) { return ServeOldest(take, newest_); }
  // The same for the requests up to number `last`.
  [[nodiscard]] Answers ServeOldest(const Take& take, std::uint64_t last);

  void FailAll(const Status& status) { FailUpTo(newest_, status); }
  // Fails the requests up to number `last`.
  void FailUpTo(std::uint64_t last, const Status& status);
  // Fails the requests whose deadline has passed.
  void FailExpired(const std::function<Status()>& reason);
  // Removes the owner's requests without calling back.
  void Drop(std::uint64_t owner);

 private:
  // Exactly one of the two callbacks is set.
  struct Waiter {
    RequestContext context;
    std::uint64_t ring_id = 0;
    std::uint64_t count = 0;
    std::uint64_t number = 0;
    std::uint64_t turn = 0;  // in which it came
    AttachDone attach_done;
    ClaimDone claim_done;

    void Fail(const Status& status) const;
  };

  std::list<Waiter> waiters_;
  std::uint64_t newest_ = 0;
  std::uint64_t turn_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_WAIT_QUEUE_H_

// SPDX-License-Identifier: Apache-2.0
//
// A tag as TagService keeps it; for its source files.
#ifndef IDD_DAEMON_TAGS_SERVED_TAG_H_
#define IDD_DAEMON_TAGS_SERVED_TAG_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "idd/base/status.h"
#include "platform/event_loop.h"
#include "platform/random.h"
#include "refill/claim_history.h"
#include "refill/refill_policy.h"
#include "refill/usage_meter.h"
#include "store/store.h"
#include "tags/tag_ring.h"
#include "tags/tag_service.h"
#include "tags/wait_queue.h"

namespace idd::daemon {

// How long a replaced ring is told in `status`; the log has it for ever.
inline constexpr std::chrono::seconds kQuarantineShown(60);

// What requests are answered once Shutdown() was called.
[[nodiscard]] inline Status Stopping() { return {Code::kUnavailable, "idd is stopping"}; }

struct TagService::Tag {
  Tag(EventLoop& loop, std::string tag_name)
      : name(std::move(tag_name)), instance(RandomId()), deadline_timer(loop), retry_timer(loop) {}

  const std::string name;
  const std::uint64_t instance;  // tells a re-created tag's callbacks from its namesake's
  std::optional<TagRecord> record;
  std::unique_ptr<RefillPolicy> policy;  // as soon as the record is known
  ClaimHistory history;
  std::unique_ptr<TagRing> ring;
  WaitQueue waiters;
  std::vector<LeaseUse> tails;  // stopping or drained: what goes back, oldest first
  Timer deadline_timer;
  Timer retry_timer;
  bool store_busy = false;         // a look-up or a lease is under way
  MonotonicTime store_asked_at{};  // since then
  bool hands_back = false;         // the lease under way does: the tag was drained meanwhile
  bool retry_armed = false;        // the next try waits for retry_timer
  Status refusal;  // until then: what the store said to the last try, not ok if it refused
  std::string last_error;
  std::uint64_t floor = 0;  // where a ring that replaces a quarantined one begins
  std::uint64_t quarantines = 0;
  MonotonicTime quarantined_at{};
  std::uint64_t closed_claimed = 0;     // of leases that left the ring
  std::uint64_t inherited_claimed = 0;  // of what is claimed, before this idd
  std::uint64_t socket_claimed = 0;     // answered to requests
  std::uint64_t ring_claimed = 0;       // by everybody else, as the metrics last told it
  std::uint64_t leases_taken = 0;
  std::uint64_t data_set = 0;  // StoreSession::data_set of the newest lease
  std::uint64_t fallbacks = 0;
  UsageMeter usage;
  unsigned idle_polls = 0;      // in a row that saw nothing new
  std::uint64_t leased_to = 0;  // the limit of the newest lease
  std::optional<double> exhausted_in_days;
  MonotonicTime warned_at{};

  // Precondition: the record is known.
  [[nodiscard]] bool ClaimsBySocket() const { return record->access == TagAccess::kSocket; }
  // What an ATTACH is answered. Precondition: there is a ring.
  [[nodiscard]] std::uint64_t AttachedRing() const {
    return ClaimsBySocket() ? 0 : ring->ring_id();
  }
  [[nodiscard]] bool IsDry() const { return ring == nullptr || ring->IsDry(); }

  // Precondition: there is a ring.
  [[nodiscard]] RefillView View() const {
    const RingLevel level = ring->Level();
    const MonotonicTime now = MonotonicClock::now();
    return {.now = now,
            .claimed = closed_claimed + level.claimed,
            .available = level.available,
            .open_segments = level.open_segments,
            .newest_size = level.newest_size,
            .waiting = waiters.IdsWanted(),
            .earned = history.Most(now)};
  }
  // View(), with `served` more ids claimed of what is not published yet; the history sees it.
  [[nodiscard]] RefillView NoteView(std::uint64_t served = 0) {
    const MonotonicTime before = MonotonicClock::now();
    RefillView view = View();
    view.claimed += served;
    history.Observe(before, view.now, view.claimed);
    view.earned = history.Most(view.now);
    return view;
  }
  // Has the policy look at the ring. Preconditions: there is a ring, and the record is known.
  void Look() { policy->Observe(NoteView()); }
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_SERVED_TAG_H_

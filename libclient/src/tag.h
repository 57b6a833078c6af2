// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_TAG_H_
#define IDCLIENT_SRC_TAG_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "idclient/idclient.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/shm/claim_point.h"
#include "idd/shm/lane_claimer.h"
#include "idd/shm/ring_claimer.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/snowflake_claimer.h"
#include "idd/wire/channel.h"
#include "idd/wire/frames.h"
#include "thread_blocks.h"

namespace idd::client {

class Client;

// idclient_tag_info without its size.
struct TagInfo {
  idclient_tag_mode mode = IDCLIENT_MODE_UNKNOWN;
  idclient_tag_order order = IDCLIENT_ORDER_HOST;
  idclient_tag_state state = IDCLIENT_STATE_NO_RING;
  std::uint64_t step = 0;
  std::uint64_t available = 0;
  std::uint64_t cover_ms = IDCLIENT_UNKNOWN;
};

// One tag of one client.
//
// Thread safety: all methods, also in a forked child. A claim that the ring serves takes no lock: a
// thread that is stopped in it delays no other.
//
// Invariants: attachments form a list from the newest to the oldest and are freed with the tag
// only, because a thread may be stopped inside any of them. A new one comes with a restart of the
// daemon, a replaced ring, or a changed policy of the tag. The newest two have their rings mapped;
// the older ones are blank, and each takes about 1 KiB.
class Tag {
 public:
  // With `blocks` and a size of 2 or more, each thread claims that many ids at once and hands them
  // out.
  Tag(Client& client, std::string name, std::uint64_t block_size = 0,
      std::optional<BlockOwner> blocks = std::nullopt);
  ~Tag();
  Tag(const Tag&) = delete;
  Tag& operator=(const Tag&) = delete;

  // Claims up to `count` (>= 1) contiguous ids. `deadline` is made when it is first needed and kept
  // for the caller's next call, so that a batch has one deadline in all. `goes_on`: the ids must be
  // above those of the caller's last call.
  [[nodiscard]] idd::Result<idd::shm::IdRange> Claim(std::uint64_t count,
                                                     std::optional<idd::Deadline>& deadline,
                                                     bool goes_on = false) {
    if (idd::shm::SnowflakeClaimer* const timed = snowflake(); timed != nullptr) [[unlikely]] {
      const idd::shm::SnowflakeClaim claim = timed->Claim(Clamp(count));
      return claim.ids.empty() || claim.is_early ? FinishTimed(*timed, claim, count, deadline)
                                                 : claim.ids;
    }
    const idd::shm::IdRange ids = ClaimFromRing(count, goes_on);
    if (!ids.empty()) [[likely]]
      return ids;
    return ClaimSlow(count, deadline);
  }

  // Claims from the ring only; empty when it is dry. Makes no system call except one wake-up per
  // segment. `goes_on`: as above.
  [[nodiscard]] idd::shm::IdRange ClaimFromRing(std::uint64_t count,
                                                bool goes_on = false) noexcept {
    const std::uint64_t n = Clamp(count);
    if (idd::shm::LaneClaimer* const claimer = lanes(); claimer != nullptr) [[unlikely]]
      return WakeFor(goes_on ? claimer->ClaimAboveLanes(n) : claimer->Claim(n));
    const idd::shm::IdRange ids = ClaimAtView(n);
    return ids.empty() ? ClaimFromNextSegment(n) : ids;
  }
  // The claimer of the lanes of a ring of order cpu; null: the present ring has none, or this
  // process has no restartable sequences.
  [[nodiscard]] idd::shm::LaneClaimer* lanes() const noexcept {
    return lanes_.load(std::memory_order_acquire);  // A5, pairs with A6
  }
  // What is left to do for a claim of one id that found nothing in its lane.
  [[nodiscard]] idd::shm::IdRange FinishInRing(idd::shm::LaneClaimer& claimer,
                                               const idd::shm::LaneGrant& grant) noexcept {
    return WakeFor(claimer.FinishOne(grant));
  }
  // Which way claims of one id go.
  enum class Way : std::uint32_t { kRing, kBlock, kLane, kSnowflake };
  [[nodiscard]] Way way() const noexcept {
    return way_.load(std::memory_order_acquire);  // A5, pairs with A6
  }
  // The claimer of the present ring of a snowflake tag, whose view stays dry; null: the tag has
  // another mode, or no ring.
  [[nodiscard]] idd::shm::SnowflakeClaimer* snowflake() const noexcept {
    return snowflake_.load(std::memory_order_acquire);  // A5, pairs with A6
  }
  // What is left to do for a claim of a snowflake ring that got no ids, or ids that are early.
  [[nodiscard]] idd::Result<idd::shm::IdRange> FinishTimed(idd::shm::SnowflakeClaimer& claimer,
                                                           const idd::shm::SnowflakeClaim& claim,
                                                           std::uint64_t count,
                                                           std::optional<idd::Deadline>& deadline);
  // Claims from the ring's current segment only; `count` is 1 to kMaxClaim.
  [[nodiscard]] idd::shm::IdRange ClaimAtView(std::uint64_t count) noexcept {
    return WakeFor(idd::shm::ClaimAtPoint(view_, count));
  }

  // One id of this thread's block; claims a new block when none is left. For tags with blocks.
  [[nodiscard]] idd::Result<std::uint64_t> ClaimFromBlock(std::optional<idd::Deadline>& deadline);
  // Whose blocks threads have. serial 0: no blocks.
  [[nodiscard]] const BlockOwner& block_owner() const noexcept { return block_owner_; }
  [[nodiscard]] std::uint64_t block_size() const noexcept { return block_size_; }

  // For claims that are inlined into the program.
  [[nodiscard]] const idd::shm::ClaimView& view() const noexcept { return view_; }
  // Refuses every claim while the ring has no lanes.
  [[nodiscard]] const idd::shm::LaneViewPointer& lane_view() const noexcept { return lane_view_; }
  // Sends the one wake-up per segment; without waiting, so it may be lost.
  void WakeDaemon() noexcept;

  // The same without a request, and without a wait for the daemon or the clock. kTimeout: nothing.
  [[nodiscard]] idd::Result<idd::shm::IdRange> ClaimNow(std::uint64_t count);
  [[nodiscard]] idd::Result<std::uint64_t> ClaimFromBlockNow();

  // Asks the daemon for the tag's ring and makes it current. If the daemon grants clients no ring,
  // the current attachment is one without a ring.
  [[nodiscard]] idd::Status Attach(idd::Deadline deadline);
  // The same, unless it was attached before. Waits for a daemon that is not there.
  [[nodiscard]] idd::Status AttachFirst(idd::Deadline deadline);

  // What the ring shows: idclient_tag_get_info.
  [[nodiscard]] TagInfo Info() const noexcept;
  [[nodiscard]] Client& client() const noexcept { return client_; }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Client's, under its lock:
  Tag* next = nullptr;
  std::uint64_t opens = 0;

 private:
  struct Attachment {
    // No ring: every claim is a request. The reason of the daemon's answer names the mode.
    explicit Attachment(idclient_tag_mode tag_mode) : mode(tag_mode) {}
    Attachment(std::unique_ptr<idd::shm::RingMemory> ring, std::vector<std::byte> notice,
               idd::shm::ClaimView& view)
        : memory(std::move(ring)), refill_notice(std::move(notice)) {
      if (memory->is_snowflake()) {
        timed.emplace(memory->table(), memory->cursors());
        return;
      }
      claimer.emplace(memory->table(), memory->cursors(), view);
      const std::optional<std::ptrdiff_t> rseq = idd::shm::RseqOffset();
      if (!memory->lanes().empty() && rseq.has_value())
        lanes.emplace(memory->table(), memory->lanes().data(), *claimer, *rseq);
    }
    // Precondition: there is a ring.
    [[nodiscard]] idd::shm::RingState state() const noexcept {
      return timed.has_value() ? timed->state() : claimer->state();
    }
    [[nodiscard]] std::uint64_t ring_id() const noexcept {
      return memory == nullptr ? 0 : memory->ring_id();
    }
    const idclient_tag_mode mode = IDCLIENT_MODE_UNKNOWN;  // only if there is no ring
    const std::unique_ptr<idd::shm::RingMemory> memory;
    std::optional<idd::shm::RingClaimer> claimer;     // either is set if memory is
    std::optional<idd::shm::SnowflakeClaimer> timed;  // in mode snowflake
    std::optional<idd::shm::LaneClaimer> lanes;    // in a ring of order cpu; `claimer` is set too
    const std::vector<std::byte> refill_notice{};  // made beforehand: a claim allocates nothing
    Attachment* older = nullptr;
    std::atomic_flag is_blank{};
  };

  [[nodiscard]] static std::uint64_t Clamp(std::uint64_t count) noexcept {
    return count < idd::shm::kMaxClaim ? count : idd::shm::kMaxClaim;
  }
  // Claims from the present ring, and waits for the clock if it is one of a snowflake tag. Empty:
  // only the daemon can help.
  [[nodiscard]] idd::Result<idd::shm::IdRange> ClaimAttached(std::uint64_t count,
                                                             idd::Deadline deadline);
  [[nodiscard]] idd::Result<idd::shm::IdRange> WaitForTime(idd::shm::SnowflakeClaimer& claimer,
                                                           idd::shm::SnowflakeClaim claim,
                                                           std::uint64_t count,
                                                           idd::Deadline deadline);
  [[nodiscard]] idd::shm::IdRange WakeFor(const idd::shm::SlotClaim& claim) noexcept {
    if (claim.wakes_daemon) [[unlikely]]
      WakeDaemon();
    return claim.ids;
  }
  void AskForIds() noexcept;
  // `is_answered`: the daemon refused it, and would again.
  [[nodiscard]] idd::Status Attach(idd::Deadline deadline, bool& is_answered);
  // Makes snowflake() and lanes() those of the current attachment.
  void FollowCurrent() noexcept;
  [[nodiscard]] idd::shm::IdRange ClaimFromNextSegment(std::uint64_t count) noexcept;
  [[nodiscard]] idd::Result<idd::shm::IdRange> ClaimSlow(std::uint64_t count,
                                                         std::optional<idd::Deadline>& deadline);
  // One request to the daemon. An empty range: look at the ring again. `is_final`: the daemon says
  // that asking again would not help.
  [[nodiscard]] idd::Result<idd::shm::IdRange> AskDaemon(std::uint64_t count,
                                                         idd::Deadline deadline, bool& is_final);
  [[nodiscard]] bool NeedsAttach() const noexcept;
  [[nodiscard]] bool IsDrained() const noexcept;
  // Makes the attachment of an answered ATTACH, with the ring of `message`, or without one if
  // `reply` has none.
  [[nodiscard]] idd::Result<std::unique_ptr<Attachment>> MakeAttachment(
      const idd::wire::AttachReply& reply, const std::string& reason,
      const idd::wire::Message& message);
  void RestView() noexcept;
  static void BlankFrom(Attachment* attachment) noexcept;

  // The first cache line holds what a claim reads.
  idd::shm::ClaimView view_{idd::shm::DryPoint()};
  std::atomic<Way> way_;
  std::atomic<idd::shm::SnowflakeClaimer*> snowflake_{nullptr};
  std::atomic<idd::shm::LaneClaimer*> lanes_{nullptr};
  idd::shm::LaneViewPointer lane_view_{idd::shm::NoLanes()};
  const std::uint64_t block_size_;  // 0: no blocks
  const BlockOwner block_owner_;
  Client& client_;
  const std::string name_;
  std::atomic<Attachment*> current_{nullptr};
  std::atomic<std::int64_t> asked_at_{0};  // by a claim that does not wait, on the monotonic clock
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_TAG_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_TAG_H_
#define IDCLIENT_SRC_TAG_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/shm/ring_claimer.h"
#include "idd/shm/ring_memory.h"

namespace idd::client {

class Client;

// One tag of one client.
//
// Thread safety: all methods, and in a forked child. There is no lock: a thread that is stopped
// anywhere in here delays no other.
//
// Invariants: attachments form a list from the newest to the oldest and are freed with the tag
// only, because a thread may be stopped inside any of them. A new one comes with a restart of the
// daemon or a replaced ring, two pages each.
class Tag {
 public:
  Tag(Client& client, std::string name);
  ~Tag();
  Tag(const Tag&) = delete;
  Tag& operator=(const Tag&) = delete;

  // Claims up to `count` (>= 1) contiguous ids. `deadline` is made when it is first needed and kept
  // for the caller's next call, so that a batch has one deadline in all.
  [[nodiscard]] idd::Result<idd::shm::IdRange> Claim(std::uint64_t count,
                                                     std::optional<idd::Deadline>& deadline) {
    const idd::shm::IdRange ids = ClaimFromRing(count);
    if (!ids.empty()) [[likely]]
      return ids;
    return ClaimSlow(count, deadline);
  }

  // The ring alone: empty when it is dry. No system call but the one wake-up per segment.
  [[nodiscard]] idd::shm::IdRange ClaimFromRing(std::uint64_t count) noexcept {
    Attachment* attachment = current_.load(std::memory_order_acquire);  // T1, pairs with T2
    if (attachment == nullptr) return {};
    const idd::shm::SlotClaim claim = attachment->claimer.Claim(count);
    if (claim.wakes_daemon) [[unlikely]]
      SendRefillNotice(*attachment);
    return claim.ids;
  }

  // Gets the ring's descriptors from the daemon and makes it current.
  [[nodiscard]] idd::Status Attach(idd::Deadline deadline);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  Tag* next = nullptr;  // Client's list; written before the tag is published in it

 private:
  struct Attachment {
    Attachment(std::unique_ptr<idd::shm::RingMemory> ring, std::vector<std::byte> notice)
        : memory(std::move(ring)),
          claimer(memory->table(), memory->cursors()),
          refill_notice(std::move(notice)) {}
    std::unique_ptr<idd::shm::RingMemory> memory;
    idd::shm::RingClaimer claimer;
    const std::vector<std::byte> refill_notice;  // made beforehand: a claim allocates nothing
    Attachment* older = nullptr;
  };

  [[nodiscard]] idd::Result<idd::shm::IdRange> ClaimSlow(std::uint64_t count,
                                                         std::optional<idd::Deadline>& deadline);
  // One request to the daemon. An empty range: look at the ring again.
  [[nodiscard]] idd::Result<idd::shm::IdRange> AskDaemon(std::uint64_t count,
                                                         idd::Deadline deadline);
  [[nodiscard]] bool NeedsAttach() const noexcept;
  void SendRefillNotice(const Attachment& attachment) noexcept;

  Client& client_;
  const std::string name_;
  std::atomic<Attachment*> current_{nullptr};
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_TAG_H_

// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/ring_writer.h"

#include <algorithm>
#include <atomic>

#include "idd/base/check.h"

namespace idd::shm {

std::uint64_t RingWriter::Publish(IdRange ids, std::uint64_t taken, std::uint64_t refill_mark,
                                  std::atomic<std::uint64_t>* witness) noexcept {
  IDD_CHECK(CanPublish());
  IDD_CHECK(!ids.empty() && ids.first >= floor_ && ids.limit <= kMaxLimit);
  // A closed cursor must lie above the limit, and an open one below where closing begins.
  IDD_CHECK(ids.size() <= kClosingStep / 2);
  IDD_CHECK(taken <= ids.size());
  const std::uint64_t number = ++tail_;
  floor_ = ids.limit;
  const std::size_t slot = number % kSlotCount;
  seen_[slot] = ids.first + taken;
  witnesses_[slot] = witness;
  ForgetEnd(table_.slots[slot]);
  ends_[slot] = End::kNone;
  PublishSegment(table_.live, table_.slots[slot], cursors_.slots[slot],
                 {.segment = number, .ids = ids, .taken = taken, .refill_mark = refill_mark});
  return number;
}

SlotClaim RingWriter::Claim(std::uint64_t count) noexcept {
  const std::uint64_t added = std::min(count, kMaxClaim);
  for (std::uint64_t number = head_; number <= tail_ && !forged_; ++number) {
    const std::size_t slot = number % kSlotCount;
    // Look before the add, as every claimer does.
    const Segment segment = LookAt(number);
    if (forged_) break;
    if (segment.available() == 0) continue;
    // C2 to C5 ask what only this thread writes: the segment is open.
    const std::uint64_t first =
        cursors_.slots[slot].next.fetch_add(added, std::memory_order_acquire);  // C1
    // The word that the add found is a look too, the only one that this claim may rest on: a client
    // may have written the cursor back since the one above.
    static_cast<void>(Believe(slot, first));
    if (forged_) break;
    if (first >= segment.ids.limit) continue;
    const IdRange ids{first, first + std::min(added, segment.ids.limit - first)};
    RaiseSeen(slot, ids.limit);
    const std::uint64_t mark =
        table_.slots[slot].refill_mark.load(std::memory_order_relaxed);  // P2: our own store
    return {.ids = ids, .wakes_daemon = mark - first < ids.size()};
  }
  return {};
}

std::vector<RingWriter::Segment> RingWriter::RetireExhausted() {
  std::vector<Segment> retired;
  std::uint64_t head = head_;
  for (; head <= tail_; ++head) {
    const Segment segment = LookAt(head);
    if (segment.available() != 0) break;
    TellEnd(table_.slots[head % kSlotCount], head, segment.ids.limit);
    WithdrawSegment(table_.slots[head % kSlotCount]);
    ends_[head % kSlotCount] = End::kTold;
    witnesses_[head % kSlotCount] = nullptr;
    retired.push_back(segment);
  }
  MoveHead(head);
  return retired;
}

std::vector<RingWriter::Segment> RingWriter::Look() const {
  std::vector<Segment> segments;
  for (std::uint64_t number = head_; number <= tail_; ++number) segments.push_back(LookAt(number));
  return segments;
}

std::uint64_t RingWriter::Available() const noexcept {
  std::uint64_t available = 0;
  for (std::uint64_t number = head_; number <= tail_; ++number) {
    available += LookAt(number).available();
  }
  return available;
}

std::vector<RingWriter::Segment> RingWriter::DrainAll() {
  std::vector<Segment> drained;
  // The newest first. A claimer that finds a segment withdrawn goes on to the next; it must get
  // none of that one while others may still add to the segment before, and keep what they get (C6).
  for (std::uint64_t number = tail_; number >= head_; --number) {
    const std::size_t slot = number % kSlotCount;
    Segment segment = LookAt(number);
    std::uint64_t raw_cursor = 0;
    static_cast<void>(DrainSlot(table_.slots[slot], cursors_.slots[slot], raw_cursor));
    segment.next = Believe(slot, raw_cursor);
    // Nothing of a forged ring goes back, and where it ends is not known.
    if (!forged_) TellEnd(table_.slots[slot], number, segment.next);
    ends_[slot] = End::kTold;
    witnesses_[slot] = nullptr;
    drained.push_back(segment);
  }
  std::reverse(drained.begin(), drained.end());
  MoveHead(tail_ + 1);
  return drained;
}

void RingWriter::ForgetOldEnds() noexcept {
  for (std::size_t slot = 0; slot < kSlotCount; ++slot) {
    if (ends_[slot] == End::kOld) ForgetEnd(table_.slots[slot]);
    ends_[slot] = ends_[slot] == End::kTold ? End::kOld : End::kNone;
  }
}

void RingWriter::Tell(TagNumbers numbers) noexcept {
  numbers.counted_from = head_;
  TellNumbers(table_.stats, numbers);
}

void RingWriter::SetState(RingState state) noexcept {
  state_ = state;
  table_.live.state.store(static_cast<std::uint32_t>(state),
                          std::memory_order_release);                // S1, pairs with S2
  table_.live.publications.fetch_add(1, std::memory_order_release);  // P7: waiters look again
}

RingWriter::Segment RingWriter::LookAt(std::uint64_t number) const noexcept {
  const std::size_t slot = number % kSlotCount;
  const SlotDescriptor& descriptor = table_.slots[slot];
  const std::uint64_t raw_cursor =
      cursors_.slots[slot].next.load(std::memory_order_relaxed);  // L1: a look
  return {.number = number,
          .ids = {descriptor.base.load(std::memory_order_relaxed),    // P2: our own store
                  descriptor.limit.load(std::memory_order_relaxed)},  // P4: our own store
          .next = Believe(slot, raw_cursor)};
}

std::uint64_t RingWriter::Believe(std::size_t slot, std::uint64_t raw_cursor) const noexcept {
  const std::uint64_t base = table_.slots[slot].base.load(std::memory_order_relaxed);    // P2: ours
  const std::uint64_t limit = table_.slots[slot].limit.load(std::memory_order_relaxed);  // P4: ours
  // Adds to an exhausted cursor are honest; so many of them, 2^30 claims of the largest size, are
  // not. Nor has anything but us closed it.
  if (raw_cursor < seen_[slot] || raw_cursor >= base + kClosingStep) forged_ = true;
  RaiseSeen(slot, std::min(raw_cursor, limit));
  return seen_[slot];
}

void RingWriter::RaiseSeen(std::size_t slot, std::uint64_t next) const noexcept {
  if (next <= seen_[slot]) return;
  seen_[slot] = next;
  if (witnesses_[slot] == nullptr) return;
  // W1: read when this process is dead; before whatever it does with what it has seen.
  witnesses_[slot]->store(next, std::memory_order_release);
}

void RingWriter::MoveHead(std::uint64_t head) noexcept {
  head_ = head;
  // A claimer that starts at head has every claim of an older segment behind it: the look that
  // found the segment exhausted is ordered before this store.
  table_.live.head_segment.store(head, std::memory_order_release);  // H1, pairs with H2
}

}  // namespace idd::shm

// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/ring_writer.h"

#include <algorithm>
#include <atomic>

#include "idd/base/check.h"

namespace idd::shm {

std::uint64_t RingWriter::Publish(IdRange ids, std::uint64_t taken, std::uint64_t refill_mark,
                                  std::atomic<std::uint64_t>* witness,
                                  const IdLayout& layout) noexcept {
  IDD_CHECK(CanPublish());
  IDD_CHECK(!ids.empty() && ids.first >= floor_ && ids.limit <= kMaxLimit);
  // A closed cursor must lie above the limit, and an open one below base + kClosingStep.
  IDD_CHECK(ids.size() <= kClosingStep / 2);
  IDD_CHECK(taken <= ids.size());
  const std::uint64_t number = ++tail_;
  floor_ = ids.limit;
  const std::size_t slot = number % kSlotCount;
  seen_[slot] = ids.first + taken;
  witnesses_[slot] = witness;
  ClearEnd(table_.slots[slot]);
  ends_[slot] = End::kNone;
  WriteLayout(table_.slots[slot], layout);
  PublishSegment(table_.live, table_.slots[slot], cursors_.slots[slot],
                 {.segment = number, .ids = ids, .taken = taken, .refill_mark = refill_mark});
  return number;
}

SlotClaim RingWriter::Claim(std::uint64_t count) noexcept {
  const std::uint64_t added = std::min(count, kMaxClaim);
  for (std::uint64_t number = head_; number <= tail_ && !forged_; ++number) {
    const std::size_t slot = number % kSlotCount;
    // This look finds a forged cursor before the add; nothing is added to an exhausted segment.
    const Segment segment = ReadSegment(number);
    if (forged_) break;
    if (segment.available() == 0) continue;
    // C2 to C5 are not needed: only this thread writes what they check, and the segment is open.
    const std::uint64_t first =
        cursors_.slots[slot].next.fetch_add(added, std::memory_order_acquire);  // C1
    // The result of the add is a look too, and the only one that this claim may rely on: a client
    // may have written the cursor back since the look above.
    static_cast<void>(ClampCursor(slot, first));
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

void RingWriter::MoveWithTime(std::uint64_t now) noexcept {
  for (std::uint64_t number = head_; number <= tail_ && !forged_; ++number) {
    const std::size_t slot = number % kSlotCount;
    // A cursor that was set back is found here, or not moved and found by the look afterwards.
    const Segment segment = ReadSegment(number);
    if (forged_) return;
    static_cast<void>(ClampCursor(slot, RaiseCursor(cursors_.slots[slot], segment.next, seen_[slot],
                                                    std::min(now, segment.ids.limit))));
  }
}

void RingWriter::SetFrontier(std::uint64_t frontier) noexcept {
  table_.live.frontier.store(frontier, std::memory_order_release);  // U5, pairs with U6
}

std::optional<RingWriter::Segment> RingWriter::NextOpen() const noexcept {
  for (std::uint64_t number = head_; number <= tail_ && !forged_; ++number) {
    const Segment segment = ReadSegment(number);
    if (segment.available() != 0) return segment;
  }
  return std::nullopt;
}

std::vector<RingWriter::Segment> RingWriter::RetireExhausted() {
  std::vector<Segment> retired;
  std::uint64_t head = head_;
  for (; head <= tail_; ++head) {
    const Segment segment = ReadSegment(head);
    if (segment.available() != 0) break;
    RecordEnd(table_.slots[head % kSlotCount], head, segment.ids.limit);
    WithdrawSegment(table_.slots[head % kSlotCount]);
    ends_[head % kSlotCount] = End::kPublished;
    witnesses_[head % kSlotCount] = nullptr;
    retired.push_back(segment);
  }
  MoveHead(head);
  return retired;
}

std::vector<RingWriter::Segment> RingWriter::Snapshot() const {
  std::vector<Segment> segments;
  for (std::uint64_t number = head_; number <= tail_; ++number)
    segments.push_back(ReadSegment(number));
  return segments;
}

std::uint64_t RingWriter::Available() const noexcept {
  std::uint64_t available = 0;
  for (std::uint64_t number = head_; number <= tail_; ++number) {
    available += ReadSegment(number).available();
  }
  return available;
}

std::vector<RingWriter::Segment> RingWriter::DrainAll() {
  std::vector<Segment> drained;
  // Drains the newest first. A claimer that finds a segment withdrawn goes on to the next one. It
  // must get no ids there while other claimers may still add to the earlier segment and keep what
  // they get (C6).
  for (std::uint64_t number = tail_; number >= head_; --number) {
    const std::size_t slot = number % kSlotCount;
    Segment segment = ReadSegment(number);
    std::uint64_t raw_cursor = 0;
    static_cast<void>(DrainSlot(table_.slots[slot], cursors_.slots[slot], raw_cursor));
    segment.next = ClampCursor(slot, raw_cursor);
    // No ids of a forged ring go back, and the end of its claims is unknown.
    if (!forged_) RecordEnd(table_.slots[slot], number, segment.next);
    ends_[slot] = End::kPublished;
    witnesses_[slot] = nullptr;
    drained.push_back(segment);
  }
  std::reverse(drained.begin(), drained.end());
  MoveHead(tail_ + 1);
  return drained;
}

void RingWriter::ClearOldEnds() noexcept {
  for (std::size_t slot = 0; slot < kSlotCount; ++slot) {
    if (ends_[slot] == End::kOld) ClearEnd(table_.slots[slot]);
    ends_[slot] = ends_[slot] == End::kPublished ? End::kOld : End::kNone;
  }
}

void RingWriter::PublishStats(TagNumbers numbers) noexcept {
  numbers.counted_from = head_;
  shm::PublishStats(table_.stats, numbers);
}

void RingWriter::SetState(RingState state) noexcept {
  state_ = state;
  table_.live.state.store(static_cast<std::uint32_t>(state),
                          std::memory_order_release);                // S1, pairs with S2
  table_.live.publications.fetch_add(1, std::memory_order_release);  // P7: waiters look again
}

RingWriter::Segment RingWriter::ReadSegment(std::uint64_t number) const noexcept {
  const std::size_t slot = number % kSlotCount;
  const SlotDescriptor& descriptor = table_.slots[slot];
  const std::uint64_t raw_cursor =
      cursors_.slots[slot].next.load(std::memory_order_relaxed);  // L1: a look
  return {.number = number,
          .ids = {descriptor.base.load(std::memory_order_relaxed),    // P2: our own store
                  descriptor.limit.load(std::memory_order_relaxed)},  // P4: our own store
          .next = ClampCursor(slot, raw_cursor)};
}

std::uint64_t RingWriter::ClampCursor(std::size_t slot, std::uint64_t raw_cursor) const noexcept {
  const std::uint64_t base = table_.slots[slot].base.load(std::memory_order_relaxed);    // P2: ours
  const std::uint64_t limit = table_.slots[slot].limit.load(std::memory_order_relaxed);  // P4: ours
  // Honest claimers may add to an exhausted cursor, but not 2^29 claims of the largest size. And
  // only this daemon closes a cursor.
  if (raw_cursor < seen_[slot] || raw_cursor >= base + kClosingStep) forged_ = true;
  RaiseSeen(slot, std::min(raw_cursor, limit));
  return seen_[slot];
}

void RingWriter::RaiseSeen(std::size_t slot, std::uint64_t next) const noexcept {
  if (next <= seen_[slot]) return;
  seen_[slot] = next;
  if (witnesses_[slot] == nullptr) return;
  // W1: the next daemon reads this after this process has died, so it is stored before this process
  // acts on what it has seen.
  witnesses_[slot]->store(next, std::memory_order_release);
}

void RingWriter::MoveHead(std::uint64_t head) noexcept {
  head_ = head;
  // For a claimer that starts at head, every claim of an older segment is in the past: the look
  // that found the segment exhausted is ordered before this store.
  table_.live.head_segment.store(head, std::memory_order_release);  // H1, pairs with H2
}

}  // namespace idd::shm

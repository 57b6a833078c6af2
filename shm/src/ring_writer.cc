// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/ring_writer.h"

#include <algorithm>
#include <atomic>

#include "idd/base/check.h"

namespace idd::shm {

RingWriter::RingWriter(Table& table, Cursors& cursors, std::uint64_t floor, std::span<Lane> lanes)
    : table_(table), cursors_(cursors), lanes_(lanes), lane_floors_(lanes.size()), floor_(floor) {
  lane_ids_.reserve(lanes.size());
}

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

RingWriter::NextMark RingWriter::FindNextMark() const noexcept {
  std::uint64_t before = 0;
  for (std::uint64_t number = head_; number <= tail_; ++number) {
    const Segment segment = ReadSegment(number);
    const std::uint64_t mark = table_.slots[number % kSlotCount].refill_mark.load(
        std::memory_order_relaxed);  // P2, P8: our own store
    if (mark != kNoMark && mark >= segment.next) return {number, before + (mark - segment.next)};
    before += segment.available();
  }
  return {};
}

std::optional<std::uint64_t> RingWriter::ToNextMark() const noexcept {
  const NextMark next = FindNextMark();
  return next.number == 0 ? std::nullopt : std::optional(next.distance);
}

void RingWriter::ClearNextMark() noexcept {
  const NextMark next = FindNextMark();
  if (next.number == 0) return;
  table_.slots[next.number % kSlotCount].refill_mark.store(kNoMark,
                                                           std::memory_order_relaxed);  // P8
}

std::vector<RingWriter::Segment> RingWriter::RetireExhausted() {
  std::vector<Segment> retired;
  std::uint64_t head = head_;
  for (; head <= tail_; ++head) {
    const Segment segment = ReadSegment(head);
    if (segment.available() != 0) break;
    const std::size_t slot = head % kSlotCount;
    witnesses_[slot] = nullptr;
    retired.push_back(segment);
    // Claims of a lane's ids are refused from the withdrawal on.
    if (lanes_.empty()) {
      EndSegment(slot);
    } else {
      ends_[slot] = End::kInLanes;
    }
  }
  MoveHead(head);
  return retired;
}

void RingWriter::EndSegment(std::size_t slot) noexcept {
  SlotDescriptor& descriptor = table_.slots[slot];
  RecordEnd(descriptor, NumberIn(slot),
            descriptor.limit.load(std::memory_order_relaxed));  // P4: our own store
  WithdrawSegment(descriptor);
  ends_[slot] = End::kPublished;
}

std::uint64_t RingWriter::NumberIn(std::size_t slot) const noexcept {
  const std::uint64_t back = (tail_ + kSlotCount - slot) % kSlotCount;
  return back < tail_ ? tail_ - back : 0;
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
  for (std::size_t slot = 0; slot < kSlotCount; ++slot) {
    if (ends_[slot] == End::kInLanes || ends_[slot] == End::kLeftLanes) EndSegment(slot);
  }
  std::reverse(drained.begin(), drained.end());
  MoveHead(tail_ + 1);
  // All cursors are closed, so lanes get no more ids than these.
  CheckLanes();
  return drained;
}

void RingWriter::ClearOldEnds() noexcept {
  const std::uint32_t in_lanes = lanes_.empty() ? 0 : CheckLanes();
  for (std::size_t slot = 0; slot < kSlotCount; ++slot) {
    // Two looks, because a claimer may have taken ids from the slot (Y2) that it has yet to give to
    // a lane (Y3).
    if (ends_[slot] == End::kInLanes || ends_[slot] == End::kLeftLanes) {
      const bool has_ids = (in_lanes & (1U << slot)) != 0;
      if (!has_ids && ends_[slot] == End::kLeftLanes) {
        EndSegment(slot);
      } else {
        ends_[slot] = has_ids ? End::kInLanes : End::kLeftLanes;
      }
      continue;
    }
    if (ends_[slot] == End::kOld) ClearEnd(table_.slots[slot]);
    ends_[slot] = ends_[slot] == End::kPublished ? End::kOld : End::kNone;
  }
}

void RingWriter::SetLaneBlock(std::uint64_t ids) noexcept {
  IDD_CHECK(ids >= 1 && ids <= kMaxLaneBlock);
  table_.live.lane_block.store(ids, std::memory_order_relaxed);  // Y5
}

std::uint64_t RingWriter::lane_block() const noexcept {
  return table_.live.lane_block.load(std::memory_order_relaxed);  // Y5: our own store
}

std::uint32_t RingWriter::CheckLanes() noexcept {
  lane_ids_.clear();
  std::uint32_t slots = 0;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) slots |= CheckLane(lane);
  std::sort(lane_ids_.begin(), lane_ids_.end(),
            [](const IdRange& a, const IdRange& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < lane_ids_.size(); ++i) {
    if (lane_ids_[i].first < lane_ids_[i - 1].limit) forged_ = true;
  }
  return slots;
}

std::uint32_t RingWriter::CheckLane(std::size_t lane) noexcept {
  const std::optional<LaneLook> look = LookAtLane(lanes_[lane]);
  if (!look.has_value()) return 0;
  // The lesser of both never falls, also while a sequence stores one after the other.
  const std::uint64_t floor = std::min(look->next, look->limit);
  if (floor < lane_floors_[lane]) forged_ = true;
  lane_floors_[lane] = std::max(floor, lane_floors_[lane]);
  const IdRange left = look->left();
  if (left.empty()) return 0;
  if (left.size() > kMaxLaneBlock || look->segment == 0 || look->segment > tail_) forged_ = true;
  const std::size_t slot = look->segment % kSlotCount;
  // Of a segment whose slot has another one since: its claims are refused.
  if (look->segment != NumberIn(slot)) return 0;
  // The lane was looked at first: the cursor has passed the block before the lane got it.
  const std::uint64_t claimed_to =
      look->segment >= head_ ? ReadSegment(look->segment).next : seen_[slot];
  const std::uint64_t base = table_.slots[slot].base.load(std::memory_order_relaxed);  // P2: ours
  if (left.first < base || left.limit > claimed_to) forged_ = true;
  lane_ids_.push_back(left);
  return 1U << slot;
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

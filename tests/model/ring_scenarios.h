// SPDX-License-Identifier: Apache-2.0
//
// The scenarios of interleavings_test.cc: a few threads each, on the shipped templates, under
// Relacy.
#ifndef IDD_TESTS_MODEL_RING_SCENARIOS_H_
#define IDD_TESTS_MODEL_RING_SCENARIOS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "relacy_ring.h"

namespace idd::shm {

// A ring of two slots, and an account of every id. Ids are below 32.
template <typename Derived, rl::thread_id_t kThreads>
class Scenario : public rl::test_suite<Derived, kThreads> {
 protected:
  static constexpr std::size_t kSlots = 2;

  Slot& slot(std::uint64_t segment) { return slots_[segment % kSlots]; }
  CursorWord& cursor(std::uint64_t segment) { return cursors_[segment % kSlots]; }

  void Publish(std::uint64_t segment, IdRange ids, std::uint64_t mark = kNoMark) {
    published_ |= Bits(ids);
    PublishSegment(live_, slot(segment), cursor(segment),
                   {.segment = segment, .ids = ids, .refill_mark = mark});
  }
  // One add to a segment that is known to be published.
  IdRange Claim(std::uint64_t segment, std::uint64_t count) {
    ReadEnd() = 0;
    const SlotClaim claim = ClaimFromSlot(slot(segment), cursor(segment), segment, count);
    Keep(claim.ids);
    if (claim.wakes_daemon) ++wake_ups_;
    return claim.ids;
  }
  // A claim that exhausts a published segment.
  void Exhaust(std::uint64_t segment, std::uint64_t count) {
    RL_ASSERT(Claim(segment, count).size() == count);
  }
  void Retire(std::uint64_t segment) {
    RecordEnd(slot(segment), segment, slot(segment).limit.load(std::memory_order_relaxed));
    WithdrawSegment(slot(segment));
  }
  // As RingWriter::Publish.
  void Recycle(std::uint64_t segment, IdRange ids, std::uint64_t mark = kNoMark) {
    ClearEnd(slot(segment));
    Publish(segment, ids, mark);
  }
  // Whether this thread's last claim has found the end of its segment.
  static bool FoundEnd(std::uint64_t segment) { return ReadEnd() == segment; }
  bool Exhausted(std::uint64_t segment) {
    return NextUnclaimed(slot(segment), cursor(segment)) >=
           slot(segment).limit.load(std::memory_order_relaxed);  // the daemon's own store
  }
  void Keep(IdRange ids) {
    if (ids.empty()) return;
    RL_ASSERT((Bits(ids) & ~published_) == 0);                        // inside a published segment
    RL_ASSERT((Bits(ids) & (accepted_ | drained_ | skipped_)) == 0);  // once
    accepted_ |= Bits(ids);
  }
  void Drain(std::uint64_t segment) {
    std::uint64_t raw_cursor = 0;
    const IdRange rest = DrainSlot(slot(segment), cursor(segment), raw_cursor);
    Take(rest);
    RecordEnd(slot(segment), segment, rest.first);
  }
  void Take(IdRange rest) {
    RL_ASSERT((Bits(rest) & (accepted_ | skipped_)) == 0);
    drained_ |= Bits(rest);
  }
  // The time moves on. What is skipped is used.
  void Move(std::uint64_t segment, std::uint64_t now) {
    Skipped() = {};
    MoveWithTime(slot(segment), cursor(segment), now);
    const std::uint32_t skipped = Bits(Skipped());
    RL_ASSERT((skipped & ~published_) == 0);
    RL_ASSERT((skipped & (accepted_ | drained_ | skipped_)) == 0);
    skipped_ |= skipped;
  }
  static std::uint32_t Bits(IdRange ids) {
    std::uint32_t bits = 0;
    const std::uint64_t limit = std::min<std::uint64_t>(ids.limit, 32);
    for (std::uint64_t id = ids.first; id < limit; ++id) bits |= std::uint32_t{1} << id;
    return bits;
  }

  std::array<Slot, kSlots> slots_;
  std::array<CursorWord, kSlots> cursors_;
  Live live_;
  std::uint32_t published_ = 0;
  std::uint32_t accepted_ = 0;
  std::uint32_t drained_ = 0;
  std::uint32_t skipped_ = 0;
  int wake_ups_ = 0;
};

// A claimer that knows segment 1 sleeps while its slot is recycled, and adds to whichever cursor it
// finds. Segment 1 is [10, 12), exhausted; segment 3 follows it in the slot, [12, 16). The
// sleeper's add to the old cursor returns an id that segment 3 hands out.
struct SleeperMeetsRecycledSlot : Scenario<SleeperMeetsRecycledSlot, 2> {
  void before() {
    Publish(1, {10, 12});
    Exhaust(1, 2);
  }
  void thread(unsigned index) {
    if (index == 0) {
      Retire(1);
      Recycle(3, {12, 16});
      Claim(3, 1);
    } else {
      RL_ASSERT(Claim(1, 1).empty());
    }
  }
};

// The same with a batch, which looks before it adds.
struct BatchMeetsRecycledSlot : Scenario<BatchMeetsRecycledSlot, 2> {
  void before() {
    Publish(1, {10, 12});
    Exhaust(1, 2);
    RecordEnd(slot(1), 1, 12);  // recorded here, because the search is long
  }
  void thread(unsigned index) {
    if (index == 0) {
      WithdrawSegment(slot(1));
      Recycle(3, {12, 16});
      Claim(3, 2);
    } else if (HoldsSegment(slot(1), 1)) {
      RL_ASSERT(Claim(1, 3).empty());
    }
  }
};

// A claimer that has seen a segment published gets its ids: no data of the slot's earlier segment
// interferes.
struct PublishedSegmentHasItsIds : Scenario<PublishedSegmentHasItsIds, 2> {
  void before() {
    Publish(1, {10, 12});
    Exhaust(1, 2);
    Retire(1);
  }
  void thread(unsigned index) {
    if (index == 0) {
      Recycle(3, {12, 16}, 13);
      Claim(3, 1);
    } else if (HoldsSegment(slot(3), 3)) {
      RL_ASSERT(Claim(3, 2).size() == 2);
    }
  }
  void after() {
    // Exactly the claim that covers the mark wakes the daemon.
    RL_ASSERT(wake_ups_ == ((accepted_ >> 13) & 1 ? 1 : 0));
  }
};

// A drain against one claimer of single ids and one of batches.
struct DrainLeavesWhatNobodyClaimed : Scenario<DrainLeavesWhatNobodyClaimed, 3> {
  void before() { Publish(1, {10, 14}); }
  void thread(unsigned index) {
    if (index == 0) {
      Drain(1);
    } else {
      Claim(1, index);
    }
  }
  void after() {
    // Both adds came before the drain, or one, or none: the rest belongs to the daemon. An id that
    // belongs to neither was added before the drain and checked after it.
    RL_ASSERT((accepted_ & drained_) == 0);
    const int lost = std::popcount(published_ & ~(accepted_ | drained_));
    RL_ASSERT(std::popcount(drained_) >= 1 && lost <= 3);
  }
};

// A hostile client sees that a segment is withdrawn and resets its cursor: no later add may be
// accepted.
struct WithdrawnSegmentStaysClosed : Scenario<WithdrawnSegmentStaysClosed, 3> {
  void before() { Publish(1, {10, 14}); }
  void thread(unsigned index) {
    if (index == 0) {
      Drain(1);
    } else if (index == 1) {
      if (slot(1).segment.load(std::memory_order_relaxed) == 0) {
        rl::atomic_thread_fence(rl::mo_acquire, $);
        cursor(1).next.store(11, std::memory_order_release);
      }
    } else {
      Claim(1, 1);
    }
  }
};

// A drain or the end of the segment overtakes claimers of the last ids: what they added before
// belongs to them if they find the end at all.
template <typename Derived>
class Overtaken : public Scenario<Derived, 2> {
 protected:
  void ClaimAndKeep(std::uint64_t count) {
    const IdRange ids = this->Claim(1, count);
    // After the drain's add there is nothing to keep, and the end is not looked for.
    RL_ASSERT(!ids.empty() || !this->FoundEnd(1));
  }
};

struct DrainOvertakesClaimer : Overtaken<DrainOvertakesClaimer> {
  void before() { Publish(1, {10, 13}); }
  void thread(unsigned index) {
    if (index == 0) {
      Drain(1);
    } else {
      ClaimAndKeep(1);
      ClaimAndKeep(3);
    }
  }
};

struct EndOvertakesClaimer : Overtaken<EndOvertakesClaimer> {
  void before() {
    Publish(1, {10, 12});
    Exhaust(1, 1);
  }
  void thread(unsigned index) {
    if (index == 0) {
      for (int i = 0; i < 2; ++i) {
        if (!Exhausted(1)) continue;
        Retire(1);
        return;
      }
    } else {
      ClaimAndKeep(1);
    }
  }
};

// A hostile client sees the cursor closed and resets it to an id that the drain took. The claimer
// that gets this id looks for the end of segment 1 while the slot is recycled: it must not use the
// end of segment 3.
struct EndOfRecycledSlotIsNotBelieved : Scenario<EndOfRecycledSlotIsNotBelieved, 2> {
  void before() { Publish(1, {10, 14}); }
  void thread(unsigned index) {
    if (index == 0) {
      Drain(1);
      Recycle(3, {14, 16});
      Drain(3);
    } else if (cursor(1).next.load(std::memory_order_acquire) >= kClosingStep) {
      cursor(1).next.store(12, std::memory_order_relaxed);
      Claim(1, 1);
    }
  }
};

// Two claimers race for the end of segment 1 while the daemon waits for it and recycles the slot;
// then both claim from segment 3.
struct RaceToTheEndAndRecycle : Scenario<RaceToTheEndAndRecycle, 3> {
  void before() { Publish(1, {10, 12}, 11); }
  void thread(unsigned index) {
    if (index == 0) {
      for (int i = 0; i < 3; ++i) {
        if (!Exhausted(1)) continue;
        Retire(1);
        Recycle(3, {12, 15}, 13);
        return;
      }
    } else {
      Claim(1, index);
      for (int i = 0; i < 2; ++i) {
        if (live_.tail_segment.load(std::memory_order_acquire) < 3) {
          Claim(1, 1);  // still on the old segment: an overshoot
        } else if (HoldsSegment(slot(3), 3)) {
          Claim(3, 3 - index);
        }
      }
    }
  }
  void after() { RL_ASSERT(wake_ups_ <= 2); }
};

// Order: a claim that begins after another has returned gets greater ids. "After" is defined by a
// release of the one and an acquire of the other. Claimers look for their segment as RingClaimer
// does.
template <typename Derived, rl::thread_id_t kThreads>
class Ordered : public Scenario<Derived, kThreads> {
 protected:
  // False if the ring was dry.
  bool ClaimInOrder(std::uint64_t& position) {
    const std::uint64_t news = news_.load(std::memory_order_acquire);
    for (int round = 0; round < 3; ++round) {
      if (position != 0) {
        const IdRange ids = this->Claim(position, 1);
        if (!ids.empty()) {
          RL_ASSERT((news >> ids.first) == 0);
          news_.fetch_or(std::uint64_t{1} << ids.first, std::memory_order_release);
          return true;
        }
      }
      if (!Advance(position)) return false;
    }
    return false;
  }

 private:
  // As RingClaimer::Advance, which is written for the table itself.
  bool Advance(std::uint64_t& position) {
    const std::uint64_t tail = this->live_.tail_segment.load(std::memory_order_acquire);
    const std::uint64_t head = this->live_.head_segment.load(std::memory_order_acquire);
    std::uint64_t segment = std::max(position, head);
    if (tail >= this->kSlots) segment = std::max(segment, tail - this->kSlots + 1);
    for (; segment <= tail; ++segment) {
      const auto& slot = this->slot(segment);
      if (!HoldsSegment(slot, segment)) continue;
      const std::uint64_t limit = slot.limit.load(std::memory_order_acquire);
      if (NextUnclaimed(slot, this->cursor(segment)) >= limit) continue;
      position = segment;
      return true;
    }
    return false;
  }

  Atomic<Word::kNews> news_;
};

// Two claimers go through four segments while the daemon recycles both slots.
struct LaterClaimsGetGreaterIds : Ordered<LaterClaimsGetGreaterIds, 3> {
  void before() {
    Publish(1, {10, 11});
    Publish(2, {11, 12});
    live_.head_segment.store(1, std::memory_order_release);
  }
  void thread(unsigned index) {
    if (index == 0) {
      std::uint64_t head = 1;
      for (std::uint64_t next = 3, tries = 0; tries < 4 && next <= 4; ++tries) {
        if (!Exhausted(head)) continue;
        Retire(head);
        live_.head_segment.store(++head, std::memory_order_release);
        Recycle(next, {next + 9, next + 10});
        ++next;
      }
    } else {
      std::uint64_t position = 0;
      for (int i = 0; i < 2; ++i) ClaimInOrder(position);
    }
  }
};

// Two segments at once: a claimer takes from the second only if it has seen the first. The thread
// acts as two claimers, one after the other.
struct NoSegmentIsSkipped : Ordered<NoSegmentIsSkipped, 2> {
  void before() { live_.head_segment.store(1, std::memory_order_release); }
  void thread(unsigned index) {
    if (index == 0) {
      Publish(1, {10, 11});
      Publish(2, {11, 12});
    } else {
      std::uint64_t position = 0;
      for (int tries = 0; tries < 6 && !ClaimInOrder(position); ++tries) {
      }
      position = 0;
      ClaimInOrder(position);
    }
  }
};

// A claimer that knows segment 1 moves its cursor with the time, and claims, while the slot is
// recycled.
struct MoveMeetsRecycledSlot : Scenario<MoveMeetsRecycledSlot, 2> {
  void before() { Publish(1, {10, 12}); }
  void thread(unsigned index) {
    if (index == 0) {
      Claim(1, 2);  // the segment ends, by this add or by the move before it
      Retire(1);
      Recycle(3, {12, 16});
      Claim(3, 2);
      Claim(3, 2);
    } else {
      for (int i = 0; i < 2; ++i) {
        Move(1, 13);
        Claim(1, 1);
      }
    }
  }
};

// Two claimers whose clocks differ, and the daemon's, while the ring is drained.
struct DrainMeetsMoves : Scenario<DrainMeetsMoves, 3> {
  void before() { Publish(1, {10, 16}); }
  void thread(unsigned index) {
    if (index == 0) {
      Move(1, 11);
      Drain(1);
    } else {
      Move(1, 11 + index);
      Claim(1, index);
    }
  }
  void after() { Move(1, 15); }  // a closed cursor
};

// The next daemon closes the cursor of a killed one, whose segment is still published. A claimer's
// clock shows a number that looks like a closed cursor.
struct NextDaemonMeetsMove : Scenario<NextDaemonMeetsMove, 2> {
  void before() { Publish(1, {10, 14}); }
  void thread(unsigned index) {
    if (index == 0) {
      // As the next daemon does it, which cannot write the table.
      std::uint64_t raw = cursor(1).next.load(std::memory_order_relaxed);
      if (raw >= 10 + kClosingStep) {
        raw -= kClosingStep;
      } else {
        raw = cursor(1).next.fetch_add(kClosingStep, std::memory_order_acq_rel);
      }
      Take({raw, 14});
    } else {
      Claim(1, 2);
      Move(1, kClosingStep + 11);
      Claim(1, 1);
    }
  }
};

// A hostile client sees a cursor closed and resets it, and the clock moves it before the claim: the
// claimer must still see that the segment is withdrawn.
struct WithdrawnSegmentIsNotReopened : Scenario<WithdrawnSegmentIsNotReopened, 3> {
  void before() { Publish(1, {10, 14}); }
  void thread(unsigned index) {
    if (index == 0) {
      Drain(1);
    } else if (index == 1) {
      if (cursor(1).next.load(std::memory_order_relaxed) >= kClosingStep) {
        rl::atomic_thread_fence(rl::mo_acquire, $);
        cursor(1).next.store(11, std::memory_order_release);
      }
    } else {
      MoveWithTime(slot(1), cursor(1), 12);
      Claim(1, 1);
    }
  }
};

// LaterClaimsGetGreaterIds with a move before each claim.
struct MovedClaimsKeepTheirOrder : Ordered<MovedClaimsKeepTheirOrder, 3> {
  void before() {
    Publish(1, {10, 12});
    Publish(2, {12, 14});
    live_.head_segment.store(1, std::memory_order_release);
  }
  void thread(unsigned index) {
    if (index == 0) {
      std::uint64_t head = 1;
      for (std::uint64_t next = 3, tries = 0; tries < 4 && next <= 4; ++tries) {
        Move(head, 9 + 2 * head);
        if (!Exhausted(head)) continue;
        Retire(head);
        live_.head_segment.store(++head, std::memory_order_release);
        Recycle(next, {8 + 2 * next, 10 + 2 * next});
        ++next;
      }
    } else {
      std::uint64_t position = 0;
      for (std::uint64_t now = 11; now <= 15; now += 2) {
        if (position != 0) Move(position, now + index);
        ClaimInOrder(position);
      }
    }
  }
};

}  // namespace idd::shm

#endif  // IDD_TESTS_MODEL_RING_SCENARIOS_H_

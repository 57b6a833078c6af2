// SPDX-License-Identifier: Apache-2.0
//
// The words of a ring as Relacy's atomics: every access gets the label of its memory order, so that
// a run can weaken one of them.
#ifndef IDD_TESTS_MODEL_RELACY_RING_H_
#define IDD_TESTS_MODEL_RELACY_RING_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "idd/shm/abi.h"
#include "idd/shm/ring_protocol.h"
#include "idd/shm/snowflake.h"

// Relacy last: it redefines new, assert and the names of the memory orders.
#include <relacy/relacy.hpp>
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst

namespace idd::shm {

// The place of a memory order, by the labels of abi.h.
enum class Label {
  kNone,
  kP4,
  kP5,
  kP6,
  kP7,
  kC0,
  kC1,
  kC2,
  kC6,
  kC7,
  kD1,
  kD2,
  kD3,
  kD4,
  kH1,
  kH2,
  kTail,     // C0 on tail_segment
  kD2AsTwo,  // D2 as a load and a store
  // Faults in the move of a cursor with the time.
  kU2AsTwo,    // U2 as a load and a store
  kU2AsStore,  // U2 compares nothing
  kU2Blind,    // a U2 that failed is repeated although the cursor may be higher
  kU2NoLimit,  // the target is `now` even above the limit
  kOther,      // relaxed already
};

inline constexpr struct {
  Label label;
  std::string_view name;
} kLabels[] = {
    {Label::kNone, "as it is"},
    {Label::kP4, "P4"},
    {Label::kP5, "P5"},
    {Label::kP6, "P6"},
    {Label::kP7, "P7"},
    {Label::kC0, "C0"},
    {Label::kC1, "C1"},
    {Label::kC2, "C2"},
    {Label::kC6, "C6"},
    {Label::kC7, "C7"},
    {Label::kD1, "D1"},
    {Label::kD2, "D2"},
    {Label::kD3, "D3"},
    {Label::kD4, "D4"},
    {Label::kH1, "H1"},
    {Label::kH2, "H2"},
    {Label::kTail, "C0 tail"},
    {Label::kD2AsTwo, "D2 as load, store"},
    {Label::kU2AsTwo, "U2 as load, store"},
    {Label::kU2AsStore, "U2 as store"},
    {Label::kU2Blind, "U2 again blindly"},
    {Label::kU2NoLimit, "U2 without C2"},
};

// The order that is relaxed in this run.
inline Label weakened = Label::kNone;

inline rl::memory_order OrderOf(Label label, std::memory_order order) {
  if (label == weakened) return rl::mo_relaxed;
  switch (order) {
    case std::memory_order_relaxed:
      return rl::mo_relaxed;
    case std::memory_order_consume:
      return rl::mo_consume;
    case std::memory_order_acquire:
      return rl::mo_acquire;
    case std::memory_order_release:
      return rl::mo_release;
    case std::memory_order_acq_rel:
      return rl::mo_acq_rel;
    case std::memory_order_seq_cst:
      break;
  }
  return rl::mo_seq_cst;
}

// The kind of a word, which determines the label of an access to it.
enum class Word {
  kSegment,
  kBase,
  kMark,
  kLimit,
  kEndedSegment,
  kEndedAt,
  kCursor,
  kTail,
  kHead,
  kPublications,
  kNews,
};

// The value that each thread's last C6 has read.
inline std::array<std::uint64_t, 3> read_ends{};
inline std::uint64_t& ReadEnd() {
  return read_ends[static_cast<std::size_t>(rl::ctx().current_thread())];
}

// What each thread's last successful U2 has skipped.
inline std::array<IdRange, 3> skipped_ranges{};
inline IdRange& Skipped() {
  return skipped_ranges[static_cast<std::size_t>(rl::ctx().current_thread())];
}
// Whether each thread's last access was a look at a cursor: the next one is C2 of MoveWithTime().
inline std::array<bool, 3> looks_at_cursor{};
inline bool& LooksAtCursor() {
  return looks_at_cursor[static_cast<std::size_t>(rl::ctx().current_thread())];
}

// A std::atomic for the templates, an rl::atomic for Relacy.
template <Word kWord>
class Atomic {
 public:
  [[nodiscard]] std::uint64_t load(std::memory_order order) const {
    const std::uint64_t value = word_.load(OrderOf(LoadLabel(order), order), $);
    if (LoadLabel(order) == Label::kC6) ReadEnd() = value;
    const bool is_move = LooksAtCursor();
    LooksAtCursor() = kWord == Word::kCursor;
    const bool is_forgotten = is_move && kWord == Word::kLimit && weakened == Label::kU2NoLimit;
    return is_forgotten ? ~std::uint64_t{0} : value;
  }
  void store(std::uint64_t value, std::memory_order order) {
    word_.store(value, OrderOf(StoreLabel(value, order), order), $);
  }
  std::uint64_t fetch_add(std::uint64_t value, std::memory_order order) {
    if (kWord != Word::kCursor) return word_.fetch_add(value, OrderOf(Label::kP7, order), $);
    if (value != kClosingStep) return word_.fetch_add(value, OrderOf(Label::kC1, order), $);
    if (weakened != Label::kD2AsTwo) return word_.fetch_add(value, OrderOf(Label::kD2, order), $);
    const std::uint64_t old = word_.load(rl::mo_acquire, $);
    word_.store(old + value, rl::mo_release, $);
    return old;
  }
  // U2, which has no spurious failures here: they would only repeat a step.
  bool compare_exchange_weak(std::uint64_t& expected, std::uint64_t desired,
                             std::memory_order success, std::memory_order failure) {
    bool is_done = weakened == Label::kU2AsStore;
    if (weakened == Label::kU2AsTwo) {
      const std::uint64_t seen = word_.load(rl::mo_relaxed, $);
      is_done = seen == expected;
      if (!is_done) expected = seen;
    }
    if (is_done) {
      word_.store(desired, rl::mo_relaxed, $);
    } else if (weakened != Label::kU2AsTwo) {
      is_done = Exchange(expected, desired, success, failure);
      if (!is_done && weakened == Label::kU2Blind) {
        is_done = Exchange(expected, desired, success, failure);
      }
    }
    if (is_done) Skipped() = {expected, desired};
    return is_done;
  }
  std::uint64_t fetch_or(std::uint64_t value, std::memory_order order) {
    return word_.fetch_or(value, OrderOf(Label::kOther, order), $);
  }

 private:
  bool Exchange(std::uint64_t& expected, std::uint64_t desired, std::memory_order success,
                std::memory_order failure) {
    return word_.compare_exchange_strong(expected, desired, OrderOf(Label::kOther, success), $,
                                         OrderOf(Label::kOther, failure), $);
  }
  static Label LoadLabel(std::memory_order order) {
    if (order == std::memory_order_relaxed) return Label::kOther;
    switch (kWord) {
      case Word::kSegment:
        return Label::kC0;
      case Word::kLimit:
        return Label::kC2;
      case Word::kEndedSegment:
        return Label::kC6;
      case Word::kEndedAt:
        return Label::kC7;
      case Word::kTail:
        return Label::kTail;
      case Word::kHead:
        return Label::kH2;
      default:
        return Label::kOther;
    }
  }
  static Label StoreLabel(std::uint64_t value, std::memory_order order) {
    if (order == std::memory_order_relaxed) return Label::kOther;
    switch (kWord) {
      case Word::kSegment:
        return value == 0 ? Label::kD1 : Label::kP5;
      case Word::kLimit:
        return Label::kP4;
      case Word::kEndedSegment:
        return Label::kD4;
      case Word::kEndedAt:
        return Label::kD3;
      case Word::kTail:
        return Label::kP6;
      case Word::kHead:
        return Label::kH1;
      default:
        return Label::kOther;
    }
  }

  rl::atomic<std::uint64_t> word_{0};
};

struct Slot {
  Atomic<Word::kSegment> segment;
  Atomic<Word::kBase> base;
  Atomic<Word::kLimit> limit;
  Atomic<Word::kMark> refill_mark;
  Atomic<Word::kEndedSegment> ended_segment;
  Atomic<Word::kEndedAt> ended_at;
};

// One look is enough: a further one could only find what the first one missed.
template <>
inline constexpr int kLooksForEnd<Slot> = 1;

struct CursorWord {
  Atomic<Word::kCursor> next;
};
// A second try shows what later ones would.
template <>
inline constexpr int kTriesToMove<CursorWord> = 2;

struct Live {
  Atomic<Word::kTail> tail_segment;
  Atomic<Word::kHead> head_segment;
  Atomic<Word::kPublications> publications;
};

}  // namespace idd::shm

#endif  // IDD_TESTS_MODEL_RELACY_RING_H_

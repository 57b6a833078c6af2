// SPDX-License-Identifier: Apache-2.0
//
// The restartable sequences on a ring's lanes (abi.h, Order cpu): all code that writes a lane.
//
// This is an ABI between libidclient.so and programs compiled with idclient.hpp: their inlined
// claims follow a LaneView of the library. A change to LaneView or to abi.h's structs needs a new
// kLaneViewVersion.
//
// A sequence is a stretch of code that ends with one store, the commit. Before its first
// instruction the thread tells the kernel where the stretch begins and ends (struct rseq_cs). If
// the thread is interrupted in it, the kernel continues at the abort handler instead. So the stores
// before the commit must do no harm alone, and nothing in a sequence may call a function.
#ifndef IDD_SHM_LANE_SEQUENCES_H_
#define IDD_SHM_LANE_SEQUENCES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "idd/shm/abi.h"

namespace idd::shm {

inline constexpr std::uint32_t kLaneViewVersion = (kAbiMajor << 16) | 1;

// The lanes of one mapped ring, as one process sees them. Its words lie in the first line of a
// block, so that they never share their low 12 address bits with a lane's.
struct alignas(kWriterBlockBytes) LaneView {
  Lane* lanes = nullptr;
  const SlotDescriptor* slots = nullptr;
  std::uint64_t lane_count = 0;    // 0: no lanes, every claim is refused
  std::ptrdiff_t rseq_offset = 0;  // of the thread's struct rseq, from the thread pointer
};

// The lanes that claims of a tag start from. Never null.
using LaneViewPointer = std::atomic<const LaneView*>;

[[nodiscard]] inline const LaneView& ViewAt(const LaneViewPointer& pointer) noexcept {
  return *pointer.load(std::memory_order_acquire);  // N1, pairs with N2
}

static_assert(offsetof(LaneView, lanes) == 0);
static_assert(offsetof(LaneView, slots) == sizeof(void*));
static_assert(offsetof(LaneView, lane_count) == 2 * sizeof(void*));
static_assert(offsetof(LaneView, rseq_offset) == 2 * sizeof(void*) + 8);

// What a claim (Y1) found in the lane. Its ids begin at `first`.
struct LaneGrant {
  std::uint64_t first = 0;
  std::uint64_t limit = 0;    // of the lane; at or below `first`: nothing was claimed
  std::uint64_t segment = 0;  // of which the lane has ids

  [[nodiscard]] constexpr bool empty() const noexcept { return first >= limit; }
};

// Ids that are about to become a lane's.
struct LaneBlock {
  std::uint64_t first = 0;
  std::uint64_t kept = 0;  // leading ids that the claimer keeps
  std::uint64_t limit = 0;
  std::uint64_t segment = 0;
};

// How an installation (Y3) ended.
enum class LaneInstall : std::uint32_t {
  kInstalled = 0,
  kAborted = 1,  // interrupted: try again
  kTaken = 2,    // the lane has ids, or has had later ones
  kNoLane = 3,   // this CPU has no lane, or this thread no rseq
};

#if defined(__x86_64__) || defined(__aarch64__)
inline constexpr bool kHasLaneSequences = true;
#else
inline constexpr bool kHasLaneSequences = false;
#endif

// The byte offsets of Lane's words, of a lane's size and of struct rseq's fields appear in the
// assembler text as numbers.
static_assert(sizeof(Lane) == 1 << 7);
static_assert(offsetof(Lane, next) == 64 && offsetof(Lane, limit) == 72 &&
              offsetof(Lane, segment) == 80);

#if defined(__x86_64__)

// Labels: 1 begin, 2 end, 3 the rseq_cs, 4 the abort handler. `?` puts the sections into the group
// of the function, so that the linker discards them together with its copies.
#define IDD_SEQUENCE_BEGIN                                  \
  ".pushsection __rseq_cs, \"aw?\"\n\t"                     \
  ".balign 32\n\t"                                          \
  "3:\n\t"                                                  \
  ".long 0, 0\n\t"                                          \
  ".quad 1f, (2f - 1f), 4f\n\t"                             \
  ".popsection\n\t"                                         \
  "leaq 3b(%%rip), %[scratch]\n\t"                          \
  "movq %[scratch], %%fs:8(%[rseq])\n\t" /* rseq.rseq_cs */ \
  "1:\n\t"
// The lane of this CPU in `lane`; without one, to the end.
#define IDD_SEQUENCE_LANE                                \
  "movl %%fs:4(%[rseq]), %k[lane]\n\t" /* rseq.cpu_id */ \
  "cmpq %[count], %[lane]\n\t"                           \
  "jae 2f\n\t"                                           \
  "shlq $7, %[lane]\n\t"                                 \
  "addq %[lanes], %[lane]\n\t"
// The signature before the handler is the one that the C library has registered.
#define IDD_SEQUENCE_END(on_abort)           \
  "2:\n\t"                                   \
  ".pushsection __rseq_failure, \"ax?\"\n\t" \
  ".byte 0x0f, 0xb9, 0x3d\n\t"               \
  ".long 0x53053053\n\t"                     \
  "4:\n\t" on_abort                          \
  "jmp 2b\n\t"                               \
  ".popsection\n\t"

// Y1: claims one id. Empty: the lane is used up, the thread was interrupted, or it has no lane.
[[nodiscard, gnu::always_inline]] inline LaneGrant ClaimOneInLane(const LaneView& view) noexcept {
  std::uint64_t lane;
  std::uint64_t scratch;
  std::uint64_t first;
  std::uint64_t limit = 0;
  std::uint64_t segment;
  __asm__ __volatile__(
      IDD_SEQUENCE_BEGIN IDD_SEQUENCE_LANE
      "movq 64(%[lane]), %[first]\n\t"
      "movq 72(%[lane]), %[limit]\n\t"
      "movq 80(%[lane]), %[segment]\n\t"
      "cmpq %[limit], %[first]\n\t"
      "jae 2f\n\t"
      "leaq 1(%[first]), %[scratch]\n\t"
      "movq %[scratch], 64(%[lane])\n\t" IDD_SEQUENCE_END("xorl %k[first], %k[first]\n\t"
                                                          "xorl %k[limit], %k[limit]\n\t")
      : [lane] "=&r"(lane), [scratch] "=&r"(scratch), [first] "=&r"(first), [limit] "+&r"(limit),
        [segment] "=&r"(segment)
      : [rseq] "r"(view.rseq_offset), [lanes] "r"(view.lanes), [count] "rm"(view.lane_count)
      : "memory", "cc");
  return {first, limit, segment};
}

// Y1: claims up to `count` (>= 1) ids: `taken` of them, all that the lane has left if it has fewer.
[[nodiscard]] inline LaneGrant ClaimManyInLane(const LaneView& view, std::uint64_t count,
                                               std::uint64_t& taken) noexcept {
  std::uint64_t lane;
  std::uint64_t scratch;
  LaneGrant grant;
  taken = count;
  __asm__ __volatile__(
      IDD_SEQUENCE_BEGIN IDD_SEQUENCE_LANE
      "movq 64(%[lane]), %[first]\n\t"
      "movq 72(%[lane]), %[limit]\n\t"
      "movq 80(%[lane]), %[segment]\n\t"
      "movq %[limit], %[scratch]\n\t"
      "subq %[first], %[scratch]\n\t"
      "jbe 2f\n\t"
      "cmpq %[taken], %[scratch]\n\t"
      "cmovbq %[scratch], %[taken]\n\t"
      "leaq (%[first], %[taken]), %[scratch]\n\t"
      "movq %[scratch], 64(%[lane])\n\t" IDD_SEQUENCE_END("xorl %k[first], %k[first]\n\t"
                                                          "xorl %k[limit], %k[limit]\n\t")
      : [lane] "=&r"(lane), [scratch] "=&r"(scratch), [first] "+&r"(grant.first),
        [limit] "+&r"(grant.limit), [segment] "+&r"(grant.segment), [taken] "+&r"(taken)
      : [rseq] "r"(view.rseq_offset), [lanes] "m"(view.lanes), [count] "m"(view.lane_count)
      : "memory", "cc");
  return grant;
}

// Y3: makes the block the lane's, if the lane is used up and has had no later ids.
[[nodiscard]] inline LaneInstall InstallInLane(const LaneView& view,
                                               const LaneBlock& block) noexcept {
  std::uint64_t lane;
  std::uint64_t scratch;
  auto result = static_cast<std::uint32_t>(LaneInstall::kNoLane);
  __asm__ __volatile__(
      IDD_SEQUENCE_BEGIN IDD_SEQUENCE_LANE
      "movl $2, %[result]\n\t"
      "movq 72(%[lane]), %[scratch]\n\t"
      "cmpq %[scratch], 64(%[lane])\n\t"
      "jb 2f\n\t"
      "cmpq %[scratch], %[first]\n\t"
      "jb 2f\n\t"
      "movl $0, %[result]\n\t"
      "movq %[segment], 80(%[lane])\n\t"
      "movq %[next], 64(%[lane])\n\t"
      "movq %[limit], 72(%[lane])\n\t" IDD_SEQUENCE_END("movl $1, %[result]\n\t")
      : [lane] "=&r"(lane), [scratch] "=&r"(scratch), [result] "+&r"(result)
      : [rseq] "r"(view.rseq_offset), [lanes] "m"(view.lanes), [count] "m"(view.lane_count),
        [first] "r"(block.first), [next] "r"(block.first + block.kept), [limit] "r"(block.limit),
        [segment] "r"(block.segment)
      : "memory", "cc");
  return static_cast<LaneInstall>(result);
}

// Y4: gives up what the lane has left of the block that `grant` came from. Returns whether it was
// not interrupted; `given_up` is then the number of ids.
[[nodiscard]] inline bool GiveUpInLane(const LaneView& view, const LaneGrant& grant,
                                       std::uint64_t& given_up) noexcept {
  std::uint64_t lane;
  std::uint64_t scratch;
  std::uint64_t next = grant.limit;
  std::uint32_t is_whole = 1;
  __asm__ __volatile__(
      IDD_SEQUENCE_BEGIN IDD_SEQUENCE_LANE
      "cmpq %[limit], 72(%[lane])\n\t"
      "jne 2f\n\t"
      "cmpq %[segment], 80(%[lane])\n\t"
      "jne 2f\n\t"
      "movq 64(%[lane]), %[next]\n\t"
      "movq %[next], 72(%[lane])\n\t" IDD_SEQUENCE_END("movl $0, %[whole]\n\t")
      : [lane] "=&r"(lane), [scratch] "=&r"(scratch), [next] "+&r"(next), [whole] "+&r"(is_whole)
      : [rseq] "r"(view.rseq_offset), [lanes] "m"(view.lanes), [count] "m"(view.lane_count),
        [limit] "r"(grant.limit), [segment] "r"(grant.segment)
      : "memory", "cc");
  given_up = next < grant.limit ? grant.limit - next : 0;
  return is_whole != 0;
}

#undef IDD_SEQUENCE_BEGIN
#undef IDD_SEQUENCE_LANE
#undef IDD_SEQUENCE_END

#elif defined(__aarch64__)

#define IDD_SEQUENCE_BEGIN                               \
  ".pushsection __rseq_cs, \"aw?\"\n\t"                  \
  ".balign 32\n\t"                                       \
  "3:\n\t"                                               \
  ".long 0, 0\n\t"                                       \
  ".quad 1f, (2f - 1f), 4f\n\t"                          \
  ".popsection\n\t"                                      \
  "adrp %[scratch], 3b\n\t"                              \
  "add %[scratch], %[scratch], :lo12:3b\n\t"             \
  "str %[scratch], [%[rseq], #8]\n\t" /* rseq.rseq_cs */ \
  "1:\n\t"
#define IDD_SEQUENCE_LANE                             \
  "ldr %w[lane], [%[rseq], #4]\n\t" /* rseq.cpu_id */ \
  "cmp %[lane], %[count]\n\t"                         \
  "b.hs 2f\n\t"                                       \
  "add %[lane], %[lanes], %[lane], lsl #7\n\t"
#define IDD_SEQUENCE_END(on_abort)           \
  "2:\n\t"                                   \
  ".pushsection __rseq_failure, \"ax?\"\n\t" \
  ".inst 0xd428bc00\n\t"                     \
  "4:\n\t" on_abort                          \
  "b 2b\n\t"                                 \
  ".popsection\n\t"

[[nodiscard, gnu::always_inline]] inline char* ThreadArea(const LaneView& view) noexcept {
  return static_cast<char*>(__builtin_thread_pointer()) + view.rseq_offset;
}

// As above. The loads are plain, because the words' writers run on the same CPU. The barrier orders
// the look at the slot (C2, C5) after them: a hostile writer may run elsewhere.
[[nodiscard, gnu::always_inline]] inline LaneGrant ClaimOneInLane(const LaneView& view) noexcept {
  std::uint64_t lane;
  std::uint64_t scratch;
  LaneGrant grant;
  __asm__ __volatile__(
      IDD_SEQUENCE_BEGIN IDD_SEQUENCE_LANE
      "ldp %[first], %[limit], [%[lane], #64]\n\t"
      "ldr %[segment], [%[lane], #80]\n\t"
      "cmp %[first], %[limit]\n\t"
      "b.hs 2f\n\t"
      "add %[scratch], %[first], #1\n\t"
      "str %[scratch], [%[lane], #64]\n\t" IDD_SEQUENCE_END("mov %[first], #0\n\t"
                                                            "mov %[limit], #0\n\t")
      : [lane] "=&r"(lane), [scratch] "=&r"(scratch), [first] "+&r"(grant.first),
        [limit] "+&r"(grant.limit), [segment] "+&r"(grant.segment)
      : [rseq] "r"(ThreadArea(view)), [lanes] "r"(view.lanes), [count] "r"(view.lane_count)
      : "memory", "cc");
  __asm__ __volatile__("dmb ishld" : : : "memory");
  return grant;
}

[[nodiscard]] inline LaneGrant ClaimManyInLane(const LaneView& view, std::uint64_t count,
                                               std::uint64_t& taken) noexcept {
  std::uint64_t lane;
  std::uint64_t scratch;
  LaneGrant grant;
  taken = count;
  __asm__ __volatile__(
      IDD_SEQUENCE_BEGIN IDD_SEQUENCE_LANE
      "ldp %[first], %[limit], [%[lane], #64]\n\t"
      "ldr %[segment], [%[lane], #80]\n\t"
      "subs %[scratch], %[limit], %[first]\n\t"
      "b.ls 2f\n\t"
      "cmp %[scratch], %[taken]\n\t"
      "csel %[taken], %[scratch], %[taken], lo\n\t"
      "add %[scratch], %[first], %[taken]\n\t"
      "str %[scratch], [%[lane], #64]\n\t" IDD_SEQUENCE_END("mov %[first], #0\n\t"
                                                            "mov %[limit], #0\n\t")
      : [lane] "=&r"(lane), [scratch] "=&r"(scratch), [first] "+&r"(grant.first),
        [limit] "+&r"(grant.limit), [segment] "+&r"(grant.segment), [taken] "+&r"(taken)
      : [rseq] "r"(ThreadArea(view)), [lanes] "r"(view.lanes), [count] "r"(view.lane_count)
      : "memory", "cc");
  __asm__ __volatile__("dmb ishld" : : : "memory");
  return grant;
}

[[nodiscard]] inline LaneInstall InstallInLane(const LaneView& view,
                                               const LaneBlock& block) noexcept {
  std::uint64_t lane;
  std::uint64_t scratch;
  std::uint64_t next;
  auto result = static_cast<std::uint32_t>(LaneInstall::kNoLane);
  __asm__ __volatile__(
      IDD_SEQUENCE_BEGIN IDD_SEQUENCE_LANE
      "mov %w[result], #2\n\t"
      "ldp %[next], %[scratch], [%[lane], #64]\n\t"
      "cmp %[next], %[scratch]\n\t"
      "b.lo 2f\n\t"
      "cmp %[first], %[scratch]\n\t"
      "b.lo 2f\n\t"
      "mov %w[result], #0\n\t"
      "add %[next], %[first], %[kept]\n\t"
      "str %[segment], [%[lane], #80]\n\t"
      "str %[next], [%[lane], #64]\n\t"
      "add %[scratch], %[lane], #72\n\t"
      "stlr %[limit], [%[scratch]]\n\t" IDD_SEQUENCE_END("mov %w[result], #1\n\t")
      : [lane] "=&r"(lane), [scratch] "=&r"(scratch), [next] "=&r"(next), [result] "+&r"(result)
      : [rseq] "r"(ThreadArea(view)), [lanes] "r"(view.lanes), [count] "r"(view.lane_count),
        [first] "r"(block.first), [kept] "r"(block.kept), [limit] "r"(block.limit),
        [segment] "r"(block.segment)
      : "memory", "cc");
  return static_cast<LaneInstall>(result);
}

[[nodiscard]] inline bool GiveUpInLane(const LaneView& view, const LaneGrant& grant,
                                       std::uint64_t& given_up) noexcept {
  std::uint64_t lane;
  std::uint64_t scratch;
  std::uint64_t next = grant.limit;
  std::uint32_t is_whole = 1;
  __asm__ __volatile__(
      IDD_SEQUENCE_BEGIN IDD_SEQUENCE_LANE
      "ldr %[scratch], [%[lane], #72]\n\t"
      "cmp %[scratch], %[limit]\n\t"
      "b.ne 2f\n\t"
      "ldr %[scratch], [%[lane], #80]\n\t"
      "cmp %[scratch], %[segment]\n\t"
      "b.ne 2f\n\t"
      "ldr %[next], [%[lane], #64]\n\t"
      "str %[next], [%[lane], #72]\n\t" IDD_SEQUENCE_END("mov %w[whole], #0\n\t")
      : [lane] "=&r"(lane), [scratch] "=&r"(scratch), [next] "+&r"(next), [whole] "+&r"(is_whole)
      : [rseq] "r"(ThreadArea(view)), [lanes] "r"(view.lanes), [count] "r"(view.lane_count),
        [limit] "r"(grant.limit), [segment] "r"(grant.segment)
      : "memory", "cc");
  given_up = next < grant.limit ? grant.limit - next : 0;
  return is_whole != 0;
}

#undef IDD_SEQUENCE_BEGIN
#undef IDD_SEQUENCE_LANE
#undef IDD_SEQUENCE_END

#else  // other processors claim from the slots

[[nodiscard]] inline LaneGrant ClaimOneInLane(const LaneView& /*view*/) noexcept { return {}; }
[[nodiscard]] inline LaneGrant ClaimManyInLane(const LaneView& /*view*/, std::uint64_t /*count*/,
                                               std::uint64_t& /*taken*/) noexcept {
  return {};
}
[[nodiscard]] inline LaneInstall InstallInLane(const LaneView& /*view*/,
                                               const LaneBlock& /*block*/) noexcept {
  return LaneInstall::kNoLane;
}
[[nodiscard]] inline bool GiveUpInLane(const LaneView& /*view*/, const LaneGrant& /*grant*/,
                                       std::uint64_t& given_up) noexcept {
  given_up = 0;
  return true;
}

#endif

// Whether the CPU that this thread runs on has a lane. It may run on another one at any moment.
[[nodiscard]] inline bool HasLane(const LaneView& view) noexcept {
  if constexpr (!kHasLaneSequences) return false;
  const char* const rseq = static_cast<const char*>(__builtin_thread_pointer()) + view.rseq_offset;
  return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(rseq + 4), __ATOMIC_RELAXED) <
         view.lane_count;
}

// Is `first` of a segment that is published? `segment` is what the lane says, so it is input.
[[nodiscard, gnu::always_inline]] inline bool IsPublished(const LaneView& view,
                                                          const LaneGrant& grant) noexcept {
  const SlotDescriptor& slot = view.slots[grant.segment % kSlotCount];
  const std::uint64_t limit = slot.limit.load(std::memory_order_acquire);  // C2, pairs with P4
  const std::uint64_t base = slot.base.load(std::memory_order_relaxed);    // C3, ordered by C2
  if (grant.first < base || grant.first >= limit) [[unlikely]]
    return false;
  if (grant.segment == 0) [[unlikely]]
    return false;
  return slot.segment.load(std::memory_order_relaxed) == grant.segment;  // C5, ordered by C2
}

}  // namespace idd::shm

#endif  // IDD_SHM_LANE_SEQUENCES_H_

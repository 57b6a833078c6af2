// SPDX-License-Identifier: Apache-2.0
//
// clang-format off
// THE ABI: the layout of a tag's shared memory and the protocol on it.
//
// Purpose and stability
// ---------------------
// This file alone is enough to write a client in another language. A tag's ring is two sealed memfds
// that the daemon passes over its socket (docs/socket-protocol.md). Filling a `reserved` field is a
// minor version; moving a field or changing its meaning is a major one. Both sides refuse another
// major version and name both. Bytes are in the host's order: the memory never leaves the host.
//
// Picture
// -------
//   table memfd, 4096 bytes                        cursors memfd, 4096 bytes or more
//   sealed SHRINK|GROW|FUTURE_WRITE|SEAL           sealed SHRINK|GROW|SEAL
//   daemon writes, clients read                    clients and daemon write
//   +--------------------------------+ 0           +---------------------------+ 0
//   | TableHeader                    |             | Cursor of slot 0          |
//   |   identity (fixed at creation) |             +---------------------------+ 128
//   |   RingLive (moves)             | 256         | Cursor of slot 1          |
//   +--------------------------------+ 512         |  ...                      |
//   | SlotDescriptor 0               |             | Cursor of slot 15         |
//   +--------------------------------+ 640         +---------------------------+ 2048
//   | SlotDescriptor 1 ...15         |             | reserved, zero            |
//   +--------------------------------+ 2560        +---------------------------+ 4096
//   | RingStats                      |             | order cpu only: Lane 0,   |
//   +--------------------------------+ 2816        | Lane 1, ... one for each  |
//   | reserved, zero                 |             | CPU, 128 bytes each, then |
//   +--------------------------------+ 4096        | zeros to a whole page     |
//                                                  +---------------------------+ cursors_bytes
//
//   segment number s = 1, 2, 3, ...  is published in slot  s % 16.  Number 0 means "none".
//
// Roles
// -----
//   daemon    one thread of one process: the only writer of the table; publishes, drains, recycles
//   claimer   any thread of any process with both descriptors: adds to cursors
//   observer  any process with the table and a descriptor of the cursors that was opened for reading
//
// Protocol (protocol "absolute cursor, ascending bases"; ADR 0001 has the argument, and the
// interleavings that rule the other orders out). A cursor holds the next id itself, not an offset.
//
//   field                     writer    order, label                         invariant
//   ------------------------  --------  -----------------------------------  -------------------------
//   SlotDescriptor.segment    daemon    P1 store 0 relaxed,                  the number of the segment
//                                       P5 store s release,                  in it; 0 while rewritten and
//                                       D1 store 0 release                   once exhausted or drained
//   SlotDescriptor.ended_at   daemon    D3 store release                     where the claims of segment
//                                                                            ended_segment end
//   SlotDescriptor.ended_     daemon    D4 store s release,                  the segment that was here
//     segment                           D5 store 0 relaxed                   last; 0: no claimer keeps ids of it
//   SlotDescriptor.base       daemon    P2 store relaxed                     >= every earlier limit in
//                                                                            the life of the ring
//   SlotDescriptor.refill_    daemon    P2 store relaxed                     base <= mark < limit, or
//     mark                              P8 store kNoMark relaxed             kNoMark
//   SlotDescriptor.worker_    daemon    P2 store relaxed                     the same in all segments of
//     bits, sequence_bits,                                                   the ring: read them in slot
//     time_shift                                                             1, after C0
//   Cursor.next               daemon    P3 store relaxed (publish)           never moves backwards while
//                                       D2 fetch_add kClosingStep acq_rel    its segment is open
//                             claimer   C1 fetch_add acquire
//                             both      U2 compare_exchange relaxed          not above limit
//   SlotDescriptor.limit      daemon    P4 store release                     base < limit <= kMaxLimit,
//                                                                            at most kClosingStep / 2
//                                                                            ids
//   RingLive.tail_segment     daemon    P6 store release                     newest published segment
//   RingLive.head_segment     daemon    H1 store release                     every segment below it was
//                                                                            seen exhausted or drained
//   RingLive.publications     daemon    P7 fetch_add release, futex word     changes at every publish
//   RingLive.state            daemon    S1 store release                     see RingState
//   RingLive.frontier         daemon    U5 store release                     see Mode snowflake
//   RingLive.lane_block       daemon    Y5 store relaxed                     1 to kMaxLaneBlock; see
//                                                                            Order cpu
//   Lane.next, limit,         claimer   Y1, Y3, Y4, in sequences             see Order cpu
//     segment                 daemon    Y6 store 0 relaxed, limit only
//   Lane.dropped              claimer   Y7 fetch_add relaxed                 for observers only
//   RingStats.version         daemon    T1 store odd relaxed,                odd while the rest is
//                                       T3 store even release                written; 0: never yet
//   RingStats, the rest       daemon    T2 store release                     see RingStats
//   TableHeader.abi_version   daemon    V1 store release, last of all        0 until the table is whole
//
//   Publish s into slot i = s % 16, which holds no open segment:   P1 P2 P3 P4 P5 P6 P7
//   Claim n ids, knowing that s was published (C0: s was read with acquire from P5 or P6):
//     C1  first   = cursor.next.fetch_add(n, acquire)   orders the loads below after it
//     C2  limit   = slot.limit.load(acquire)            pairs with P4: base and P1 are seen with it
//     C3  base    = slot.base.load(relaxed)
//     C4  mark    = slot.refill_mark.load(relaxed), to know whether to send the wake-up
//     C5  segment = slot.segment.load(relaxed)          != s: recycled or withdrawn, look again
//     accept [first, min(first + n, limit)) iff segment == s and base <= first < limit
//     otherwise s is exhausted, drained or recycled: go on with s + 1; never add to s again.
//   A claimer that D1 overtakes between C1 and C5 keeps what lies below the end:
//     C6  iff base <= first < limit, and segment == 0 instead of s: a bounded number of looks for
//         slot.ended_segment.load(acquire) == s, pairs with D4
//     C7  end = slot.ended_at.load(acquire), pairs with D3
//     C8  slot.ended_segment.load(relaxed) == s still: end is of s
//     accept [first, min(first + n, end)) iff first < end
//   Ids that are not accepted are a gap. A batch repeats C0 before it adds, to keep gaps small.
//   Drain:    D1 D2 D3 D4, the newest segment first; [min(old, limit), limit) belongs to the daemon
//             alone, indefinitely.
//   Retire:   D3 D4 D1, once the cursor was seen at or above limit.
//   D5 follows one or two seconds later, and in any case before the slot is used again. It comes
//   earlier if the daemon discards the ring.
//   Publish stats (the daemon's numbers of the tag, for observers only):  T1 T2... T3
//   Observe:  O1 version.load(acquire), even and not 0;  O2 loads of the rest, acquire;
//             O3 version.load(relaxed) is still the same.  A bounded number of tries.
//   Wake-up:  the claimer whose accepted range covers refill_mark sends one REFILL frame.
//
// Mode snowflake. Cursor, base and limit are numbers: time << sequence_bits | sequence, where time
// counts units of unit_ms since epoch_ms. A segment is a window of time that the host has leased for
// one worker; all segments of a ring have the same worker_bits, sequence_bits and time_shift.
//   id = (number >> sequence_bits) << time_shift | worker_bits | (number & (2^sequence_bits - 1))
//   clock 1:  the claimer reads CLOCK_REALTIME. now = that time << sequence_bits, and
//             frontier = (that time + max_ahead + 1) << sequence_bits
//   clock 2:  the daemon moves the cursors; now = 0, frontier = RingLive.frontier (U6, acquire)
//   Before C1:
//     U1  next  = cursor.next.load(relaxed)
//     C2  limit = slot.limit.load(acquire)
//     C3  base  = slot.base.load(relaxed)
//     U2  while base <= next < min(now, limit), and a bounded number of times:
//         cursor.next.compare_exchange(next, min(now, limit), relaxed)
//     frontier <= next < limit, and then slot.segment.load(acquire) == s (C0): the time is used up:
//         add nothing. Clock 1: wait while state is kActive, until the caller's deadline. Clock 2:
//         send CLAIM; the daemon then moves the ring. Once the tag is idle, frontier is 0.
//   n of C1 is at most 2^sequence_bits. Of what C1 to C8 accept, keep the numbers of the time of
//   the first one. first < now: give them up and begin again. first >= frontier: they are yours,
//   but wait until the clock brings the frontier above them before you use them.
//
// Order cpu. Beside the slots' cursors, the ring has lane_count lanes. A lane holds ids that one
// claim has taken from a slot for all threads that run on one CPU. Only restartable sequences (rseq)
// of claimers write its words: if the thread loses its CPU, moves to another or gets a signal before
// the last store of the sequence, the kernel lets it begin again. Each sequence reads the CPU number
// (rseq.cpu_id, never mm_cid) within itself. A number at or above lane_count is no lane: that is
// also the case when the thread has no rseq.
//   Y1  one id:  next, limit and segment of the lane; iff next < limit: store next + 1 (commit)
//       n ids:   k = min(n, limit - next); iff next < limit: store next + k (commit)
//       Accept iff slot (segment % 16) has base <= id < limit, and its segment is the lane's and not
//       0: C2, C3, C5. Otherwise do Y4.
//   Y2  if the lane is used up: claim lane_block ids from the slots (C0 to C8): [first, end)
//   Y3  iff next >= limit and first >= limit: store segment, store next = first + the ids that the
//       claimer keeps, store limit = end with release (commit).
//       If another thread was faster, keep the ids that you need; the rest of [first, end) is a gap.
//   Y4  iff limit and segment of the lane are still those that Y1 saw: store limit = next (commit).
//   Claims of lane_block ids or more, and all claims of threads without a lane, go to the slots.
//   At every moment next >= limit means "used up", also between two stores of Y3: blocks rise.
//   The daemon takes no ids out of a lane. It keeps an exhausted segment published while a lane has
//   ids of it and its slot is not needed. After D1 the lanes' claims are refused, so what is left in
//   lanes is a gap. A later daemon, which cannot write the table, stores 0 in each limit (Y6).
//   Ids of a ring of order cpu rise within a lane. Across lanes nothing is promised.
//
// Every value read here is input: a hostile client can write anything into the cursors and lanes, at
// any time. An accepted id is therefore always checked against base and limit, which only the daemon
// writes.
// clang-format on
#ifndef IDD_SHM_ABI_H_
#define IDD_SHM_ABI_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace idd::shm {

// "IDDTABLE" read as eight bytes in memory order on a little-endian host.
inline constexpr std::uint64_t kTableMagic = 0x454c424154444449ULL;
inline constexpr std::uint32_t kAbiMajor = 1;
// 1: ended_segment, ended_at; 2: RingStats; 3: mode snowflake; 4: order cpu; 5: promised_ids
inline constexpr std::uint32_t kAbiMinor = 5;
inline constexpr std::uint32_t kAbiVersion = (kAbiMajor << 16) | kAbiMinor;

// Literals, not std::hardware_destructive_interference_size: that one follows compiler flags.
inline constexpr std::size_t kCacheLineBytes = 64;
// Two lines, because the adjacent-line prefetcher makes pairs of them travel together.
inline constexpr std::size_t kWriterBlockBytes = 128;

inline constexpr std::uint32_t kSlotCount = 16;
inline constexpr std::uint32_t kTableBytes = 4096;
inline constexpr std::uint32_t kCursorsBytes = 4096;
inline constexpr std::uint32_t kMaxTagBytes = 128;
inline constexpr std::uint32_t kMaxLanes = 8192;  // more than Linux has CPUs
inline constexpr std::uint32_t kLaneBytes = 128;
inline constexpr std::uint32_t kLanesOffsetBytes = kCursorsBytes;  // of lane 0 in the cursors memfd
inline constexpr std::uint64_t kMaxLaneBlock = 65'536;             // ids

// Ids are 0 .. 2^63-2, so that limit, an exclusive bound, fits BIGINT and every signed language.
inline constexpr std::uint64_t kMaxLimit = 0x7fffffffffffffffULL;
// Closing a cursor adds this to it. No segment has so many ids, so every later claim starts above
// the limit. If this daemon is killed, the next one subtracts the step to get the cursor's earlier
// value. A quarter of the number space lies above a closed cursor, so no overshoot wraps it round
// to an id.
inline constexpr std::uint64_t kClosingStep = 0x4000000000000000ULL;
inline constexpr std::uint64_t kNoMark = 0xffffffffffffffffULL;
// The largest n of one fetch_add. A closed cursor wraps round only after 2^30 adds of it.
inline constexpr std::uint64_t kMaxClaim = 0x100000000ULL;

// What clients should do with the ring. Values outside the list count as kRetired.
enum class RingState : std::uint32_t {
  kActive = 1,       // claim
  kDrained = 2,      // nothing to claim until an operator resumes; then kRetired
  kRetired = 3,      // never used again: attach again
  kQuarantined = 4,  // spoiled by a client: attach again
};

// How a claimed number becomes an id. Values outside the list: refuse to attach.
enum class TagMode : std::uint32_t {
  kSegment = 1,    // the number is the id
  kSnowflake = 2,  // see Mode snowflake above
};

// Who moves a snowflake tag's cursors with the time. Values outside the list: refuse to attach.
enum class TagClock : std::uint32_t {
  kNone = 0,     // not a snowflake tag
  kClaimer = 1,  // each claimer reads the clock
  kDaemon = 2,   // the daemon, while the tag is in use
};

// The condition of a tag, as far as its ring does not show it. Values outside the list count as
// kServed.
enum class TagCondition : std::uint32_t {
  kServed = 1,       // dry or not: the slots show which
  kQuarantined = 2,  // its last ring was quarantined; shown until RingStats.quarantined_until_ns
  kDrained = 3,      // an operator has drained the tag
};

// In which order ids come. Values outside the list: refuse to attach.
enum class TagOrder : std::uint32_t {
  kHost = 1,  // ids rise over all processes of the host
  kCpu = 2,   // ids rise within a lane; see Order cpu above. Only in TagMode::kSegment.
};

// Written once, before the table is sealed and passed on.
struct alignas(kWriterBlockBytes) TableHeader {
  std::uint64_t magic;
  std::atomic<std::uint32_t> abi_version;  // V1: stored last (release), read first (acquire)
  std::uint32_t table_bytes;
  std::uint32_t cursors_bytes;
  std::uint32_t slot_count;
  std::uint32_t slots_offset_bytes;   // of SlotDescriptor 0 in the table
  std::uint32_t slot_stride_bytes;    // from one SlotDescriptor to the next
  std::uint32_t cursor_stride_bytes;  // from one slot's Cursor to the next slot's
  std::uint32_t lane_count;           // 1 for order `host`, which has no Lane
  std::uint32_t lane_stride_bytes;    // from one Lane to the next
  std::uint32_t mode;                 // TagMode
  std::uint32_t order;                // TagOrder
  std::uint32_t tag_bytes;            // length of `tag`, 1..128
  std::uint64_t ring_id;  // random, one for each ring ever made; identifies it on the socket
  // The rest is zero in TagMode::kSegment.
  std::int64_t epoch_ms;    // where time 0 begins, in ms of Unix time
  std::uint32_t unit_ms;    // length of a unit of time
  std::uint32_t clock;      // TagClock
  std::uint64_t max_ahead;  // units of time that an id may be ahead of the clock
  std::uint64_t reserved0[5];
  char tag[kMaxTagBytes];  // not terminated when 128 bytes long; the rest is zero
};

// The ring's moving words; the daemon writes them, at most a few times a segment.
struct alignas(kWriterBlockBytes) RingLive {
  std::atomic<std::uint64_t> head_segment;  // H1: start looking here; a hint that is never too high
  std::atomic<std::uint64_t> tail_segment;  // P6: newest published; 0 before the first
  std::atomic<std::uint32_t> state;         // S1: RingState
  std::atomic<std::uint32_t> publications;  // P7: wraps; FUTEX_WAIT on it needs no write access
  std::atomic<std::uint64_t> frontier;      // U5: numbers from it on must wait; TagClock::kDaemon
  std::atomic<std::uint64_t> lane_block;    // Y5: ids to claim for a lane; 0 for order `host`
  std::uint64_t reserved0[11];
  std::uint64_t reserved1[16];
};

// One published segment, [base, limit).
struct alignas(kWriterBlockBytes) SlotDescriptor {
  std::atomic<std::uint64_t> segment;      // P1, P5
  std::atomic<std::uint64_t> base;         // P2
  std::atomic<std::uint64_t> limit;        // P4
  std::atomic<std::uint64_t> refill_mark;  // P2: the id whose claimer wakes the daemon
  // For TagMode::kSnowflake, the same in all segments of a ring; zero in TagMode::kSegment.
  std::atomic<std::uint64_t> worker_bits;  // already shifted into place
  std::atomic<std::uint32_t> sequence_bits;
  std::atomic<std::uint32_t> time_shift;
  // Where the claims of the last withdrawn segment end, for claimers that the withdrawal overtook.
  std::atomic<std::uint64_t> ended_segment;  // D4, D5; 0: none
  std::atomic<std::uint64_t> ended_at;       // D3; base <= ended_at <= limit
  std::uint64_t reserved0[8];
};

// The word that claimers advance, alone in its block.
struct alignas(kWriterBlockBytes) Cursor {
  std::atomic<std::uint64_t> next;  // P3, C1, D2
  std::uint64_t reserved0[15];
};

// The ids [next, limit) that threads on one CPU may claim without the others. The words begin at
// 64, so that no lane shares its low 12 address bits with the slot that a claim reads after its
// store.
struct alignas(kWriterBlockBytes) Lane {
  std::uint64_t reserved0[8];
  std::atomic<std::uint64_t> next;     // Y1, Y3; at or above limit: used up
  std::atomic<std::uint64_t> limit;    // Y3, Y4, Y6
  std::atomic<std::uint64_t> segment;  // Y3
  std::atomic<std::uint64_t> dropped;  // Y7: ids that claimers gave up
  std::uint64_t reserved1[4];
};

// Numbers of the tag that the slots do not show. Only observers read them; claimers never do. The
// daemon writes them when one has changed, at most a few times a second. Times are CLOCK_MONOTONIC.
struct alignas(kWriterBlockBytes) RingStats {
  std::atomic<std::uint64_t> version;        // T1, T3: odd while the rest is written; 0: never yet
  std::atomic<std::uint64_t> written_at_ns;  // T2, as all below
  // Ids of the tag claimed since the daemon began, except those of this ring's segments
  // counted_from and later, which the slots show.
  std::atomic<std::uint64_t> claimed_before;
  std::atomic<std::uint64_t> counted_from;          // a segment number; 0 when never written
  std::atomic<std::uint64_t> leases;                // taken since the daemon began
  std::atomic<std::uint64_t> fallbacks;             // claims that found the ring dry
  std::atomic<std::uint64_t> step;                  // least ids of a lease
  std::atomic<std::uint64_t> outage_tolerance_s;    // of the promise
  std::atomic<std::uint64_t> max_prefetch;          // ids, of the promise
  std::atomic<std::uint64_t> reckoned_per_1000_s;   // ids: the rate on which the promise is based
  std::atomic<std::uint64_t> quarantined_until_ns;  // end of showing kQuarantined; 0: not shown
  std::atomic<std::uint32_t> condition;             // TagCondition
  std::uint32_t reserved0;
  std::atomic<std::uint64_t> promised_ids;  // that should be held by now
  std::uint64_t reserved1[19];
};

struct Table {
  TableHeader header;
  RingLive live;
  SlotDescriptor slots[kSlotCount];
  RingStats stats;
  std::uint64_t reserved0[(kTableBytes - 768 - kSlotCount * kWriterBlockBytes) / 8];
};

struct Cursors {
  Cursor slots[kSlotCount];
  std::uint64_t reserved0[(kCursorsBytes - kSlotCount * kWriterBlockBytes) / 8];
};

// A type that processes may share has one layout for every compiler, and no hidden padding.
template <typename T>
inline constexpr bool kIsSharable = std::is_standard_layout_v<T>&&
    std::is_trivially_destructible_v<T>&& std::has_unique_object_representations_v<T>;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<std::uint64_t>) == 8 && alignof(std::atomic<std::uint64_t>) == 8);
static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && alignof(std::atomic<std::uint32_t>) == 4);

static_assert(kIsSharable<TableHeader>);
static_assert(sizeof(TableHeader) == 256 && alignof(TableHeader) == 128);
static_assert(offsetof(TableHeader, magic) == 0);
static_assert(offsetof(TableHeader, abi_version) == 8);
static_assert(offsetof(TableHeader, table_bytes) == 12);
static_assert(offsetof(TableHeader, cursors_bytes) == 16);
static_assert(offsetof(TableHeader, slot_count) == 20);
static_assert(offsetof(TableHeader, slots_offset_bytes) == 24);
static_assert(offsetof(TableHeader, slot_stride_bytes) == 28);
static_assert(offsetof(TableHeader, cursor_stride_bytes) == 32);
static_assert(offsetof(TableHeader, lane_count) == 36);
static_assert(offsetof(TableHeader, lane_stride_bytes) == 40);
static_assert(offsetof(TableHeader, mode) == 44);
static_assert(offsetof(TableHeader, order) == 48);
static_assert(offsetof(TableHeader, tag_bytes) == 52);
static_assert(offsetof(TableHeader, ring_id) == 56);
static_assert(offsetof(TableHeader, epoch_ms) == 64);
static_assert(offsetof(TableHeader, unit_ms) == 72);
static_assert(offsetof(TableHeader, clock) == 76);
static_assert(offsetof(TableHeader, max_ahead) == 80);
static_assert(offsetof(TableHeader, reserved0) == 88);
static_assert(offsetof(TableHeader, tag) == 128);

static_assert(kIsSharable<RingLive>);
static_assert(sizeof(RingLive) == 256 && alignof(RingLive) == 128);
static_assert(offsetof(RingLive, head_segment) == 0);
static_assert(offsetof(RingLive, tail_segment) == 8);
static_assert(offsetof(RingLive, state) == 16);
static_assert(offsetof(RingLive, publications) == 20);
static_assert(offsetof(RingLive, frontier) == 24);
static_assert(offsetof(RingLive, lane_block) == 32);
static_assert(offsetof(RingLive, reserved0) == 40);
static_assert(offsetof(RingLive, reserved1) == 128);

static_assert(kIsSharable<SlotDescriptor>);
static_assert(sizeof(SlotDescriptor) == 128);
static_assert(alignof(SlotDescriptor) == 128);
static_assert(offsetof(SlotDescriptor, segment) == 0);
static_assert(offsetof(SlotDescriptor, base) == 8);
static_assert(offsetof(SlotDescriptor, limit) == 16);
static_assert(offsetof(SlotDescriptor, refill_mark) == 24);
static_assert(offsetof(SlotDescriptor, worker_bits) == 32);
static_assert(offsetof(SlotDescriptor, sequence_bits) == 40);
static_assert(offsetof(SlotDescriptor, time_shift) == 44);
static_assert(offsetof(SlotDescriptor, ended_segment) == 48);
static_assert(offsetof(SlotDescriptor, ended_at) == 56);
static_assert(offsetof(SlotDescriptor, reserved0) == 64);

static_assert(kIsSharable<Cursor>);
static_assert(sizeof(Cursor) == 128);
static_assert(alignof(Cursor) == 128);
static_assert(offsetof(Cursor, next) == 0);
static_assert(offsetof(Cursor, reserved0) == 8);

static_assert(kIsSharable<Lane>);
static_assert(sizeof(Lane) == kLaneBytes && alignof(Lane) == 128);
static_assert(offsetof(Lane, next) == 64);
static_assert(offsetof(Lane, limit) == 72);
static_assert(offsetof(Lane, segment) == 80);
static_assert(offsetof(Lane, dropped) == 88);
static_assert(offsetof(Lane, reserved1) == 96);

static_assert(kIsSharable<RingStats>);
static_assert(sizeof(RingStats) == 256 && alignof(RingStats) == 128);
static_assert(offsetof(RingStats, version) == 0);
static_assert(offsetof(RingStats, written_at_ns) == 8);
static_assert(offsetof(RingStats, claimed_before) == 16);
static_assert(offsetof(RingStats, counted_from) == 24);
static_assert(offsetof(RingStats, leases) == 32);
static_assert(offsetof(RingStats, fallbacks) == 40);
static_assert(offsetof(RingStats, step) == 48);
static_assert(offsetof(RingStats, outage_tolerance_s) == 56);
static_assert(offsetof(RingStats, max_prefetch) == 64);
static_assert(offsetof(RingStats, reckoned_per_1000_s) == 72);
static_assert(offsetof(RingStats, quarantined_until_ns) == 80);
static_assert(offsetof(RingStats, condition) == 88);
static_assert(offsetof(RingStats, reserved0) == 92);
static_assert(offsetof(RingStats, promised_ids) == 96);
static_assert(offsetof(RingStats, reserved1) == 104);

static_assert(kIsSharable<Table>);
static_assert(sizeof(Table) == kTableBytes);
static_assert(offsetof(Table, header) == 0);
static_assert(offsetof(Table, live) == 256);
static_assert(offsetof(Table, slots) == 512);
static_assert(offsetof(Table, stats) == 2560);
static_assert(offsetof(Table, reserved0) == 2816);

static_assert(kIsSharable<Cursors>);
static_assert(sizeof(Cursors) == kCursorsBytes);
static_assert(offsetof(Cursors, slots) == 0);
static_assert(offsetof(Cursors, reserved0) == 2048);

}  // namespace idd::shm

#endif  // IDD_SHM_ABI_H_

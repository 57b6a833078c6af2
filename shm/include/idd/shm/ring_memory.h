// SPDX-License-Identifier: Apache-2.0
//
// Making, checking and mapping the two memfds of a ring.
#ifndef IDD_SHM_RING_MEMORY_H_
#define IDD_SHM_RING_MEMORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "idd/shm/abi.h"

namespace idd::shm {

// The outcome of an attach. After any but kOk, nothing is mapped.
enum class AttachOutcome {
  kOk,
  kNotMemfd,    // the descriptor takes no seals: not a memfd that we would map
  kWrongSeals,  // it could shrink or be written under us
  kWrongSize,   // not the size that this ABI fixes
  kMapFailed,
  kBadMagic,
  kNotReady,         // abi_version is still 0
  kOtherMajor,       // another ABI major version; the message names both
  kBadGeometry,      // offsets, strides or counts that this ABI does not have
  kBadTag,           // tag missing, too long, or not the one asked for
  kUnsupportedMode,  // a mode or order this build cannot claim from
};
// A short constant ("wrong seals"); never null.
[[nodiscard]] const char* AttachOutcomeName(AttachOutcome outcome) noexcept;

// The time of a snowflake ring (abi.h, TableHeader).
struct RingTime {
  std::int64_t epoch_ms = 0;
  std::uint32_t unit_ms = 1;
  TagClock clock = TagClock::kClaimer;
  std::uint64_t max_ahead = 0;  // units
};

struct RingOptions {
  std::string_view tag;  // 1..kMaxTagBytes bytes
  std::uint64_t ring_id = 0;
  std::optional<RingTime> time{};  // set: mode snowflake; otherwise mode segment
  // 0: order host. Otherwise order cpu with so many lanes, 1..kMaxLanes; only in mode segment.
  std::uint32_t lane_count = 0;
};

// Of the cursors memfd of a ring with so many lanes; 0: order host.
[[nodiscard]] std::uint32_t CursorsBytes(std::uint32_t lane_count) noexcept;

// Both mappings of one ring. Move-only through unique_ptr; unmaps on destruction, so it must
// outlive every thread that claims from it.
class RingMemory {
 public:
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  // Daemon: makes both memfds (mode 0600, close-on-exec), maps them, writes the header, seals them.
  // Fails with kSystem.
  [[nodiscard]] static Result<std::unique_ptr<RingMemory>> Create(const RingOptions& options);

  // Claimer: checks seals and sizes before it maps, the header before it returns. The table is
  // mapped read-only. The descriptors are not kept: a mapping needs none. `expected_tag` must be
  // the header's. Fails with kIncompatible, the message naming the outcome, or kSystem.
  [[nodiscard]] static Result<std::unique_ptr<RingMemory>> Attach(const ScopedFd& table_fd,
                                                                  const ScopedFd& cursors_fd,
                                                                  std::string_view expected_tag);
  // Observer: both mapped read-only, with the same checks; cursors() must not be called. The second
  // descriptor may be one that was opened for reading only.
  [[nodiscard]] static Result<std::unique_ptr<RingMemory>> AttachForReading(
      const ScopedFd& table_fd, const ScopedFd& cursors_fd, std::string_view expected_tag);
  // The table alone; neither cursors() nor read_cursors() may be called.
  [[nodiscard]] static Result<std::unique_ptr<RingMemory>> AttachTable(
      const ScopedFd& table_fd, std::string_view expected_tag);

  // Writable in the daemon only; a claimer gets a const view of read-only pages.
  [[nodiscard]] const Table& table() const noexcept;
  [[nodiscard]] Table& writable_table() noexcept;
  [[nodiscard]] Cursors& cursors() noexcept;
  [[nodiscard]] const Cursors& read_cursors() const noexcept;
  // The ring's lanes, as many as the header says; empty with order host. Const: as read_cursors().
  [[nodiscard]] std::span<Lane> lanes() noexcept;
  [[nodiscard]] std::span<const Lane> read_lanes() const noexcept;
  [[nodiscard]] std::uint32_t cursors_bytes() const noexcept { return CursorsBytes(lane_count_); }
  [[nodiscard]] std::uint64_t ring_id() const noexcept { return table().header.ring_id; }
  [[nodiscard]] bool is_snowflake() const noexcept {
    return table().header.mode == static_cast<std::uint32_t>(TagMode::kSnowflake);
  }

  // Claimer: gives the ring's memory back although a thread may be stopped inside a claim. Zeros
  // take its place, in the table first: every add of that thread to the blank cursor is followed by
  // its look at a limit of 0 (C2), and a claim that looked at the limit while the table was not yet
  // blank finds no segment (C5), so it accepts no id. What such a thread had added is lost.
  // ring_id() is 0 from now on.
  void Blank() noexcept;

  // The daemon's descriptors, to be passed to clients; -1 on an attached ring.
  [[nodiscard]] int table_fd() const noexcept { return table_fd_.get(); }
  [[nodiscard]] int cursors_fd() const noexcept { return cursors_fd_.get(); }

 private:
  struct Mapping;  // of the two memfds; defined in ring_memory.cc
  explicit RingMemory(std::unique_ptr<Mapping> mapping);

  std::unique_ptr<Mapping> mapping_;
  std::uint32_t lane_count_ = 0;  // as RingOptions::lane_count
  ScopedFd table_fd_;
  ScopedFd cursors_fd_;
};

// The header of a mapped table as untrusted input. Exposed for the fuzzer.
[[nodiscard]] AttachOutcome CheckHeader(const Table& table, std::string_view expected_tag) noexcept;

}  // namespace idd::shm

#endif  // IDD_SHM_RING_MEMORY_H_

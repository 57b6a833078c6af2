// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/ring_memory.h"

#include <algorithm>
#include <new>
#include <string>

#include "idd/base/check.h"
#include "idd/shm/memfd.h"

namespace idd::shm {
namespace {

AttachOutcome OutcomeOf(MemfdOutcome outcome) noexcept {
  switch (outcome) {
    case MemfdOutcome::kOk:
      return AttachOutcome::kOk;
    case MemfdOutcome::kNotMemfd:
      return AttachOutcome::kNotMemfd;
    case MemfdOutcome::kWrongSeals:
      return AttachOutcome::kWrongSeals;
    case MemfdOutcome::kWrongSize:
      break;
  }
  return AttachOutcome::kWrongSize;
}

Status Refuse(AttachOutcome outcome, const char* which) {
  return {Code::kIncompatible,
          std::string("refusing the ring's ") + which + ": " + AttachOutcomeName(outcome)};
}

void WriteHeader(Table& table, const RingOptions& options) {
  TableHeader& header = table.header;
  header.magic = kTableMagic;
  header.table_bytes = kTableBytes;
  header.cursors_bytes = CursorsBytes(options.lane_count);
  header.slot_count = kSlotCount;
  header.slots_offset_bytes = offsetof(Table, slots);
  header.slot_stride_bytes = sizeof(SlotDescriptor);
  header.cursor_stride_bytes = sizeof(Cursor);
  header.lane_count = std::max(options.lane_count, 1U);
  header.lane_stride_bytes = kLaneBytes;
  header.mode = static_cast<std::uint32_t>(options.time.has_value() ? TagMode::kSnowflake
                                                                    : TagMode::kSegment);
  header.order =
      static_cast<std::uint32_t>(options.lane_count == 0 ? TagOrder::kHost : TagOrder::kCpu);
  header.tag_bytes = static_cast<std::uint32_t>(options.tag.size());
  header.ring_id = options.ring_id;
  if (options.time.has_value()) {
    header.epoch_ms = options.time->epoch_ms;
    header.unit_ms = options.time->unit_ms;
    header.clock = static_cast<std::uint32_t>(options.time->clock);
    header.max_ahead = options.time->max_ahead;
  }
  std::copy(options.tag.begin(), options.tag.end(), header.tag);
  table.live.head_segment.store(1, std::memory_order_relaxed);  // H1: V1 below orders it
  table.live.state.store(static_cast<std::uint32_t>(RingState::kActive),
                         std::memory_order_relaxed);                 // S1: V1 below orders it
  header.abi_version.store(kAbiVersion, std::memory_order_release);  // V1, pairs with V2
}

Result<MappedMemory> MapCursors(const ScopedFd& cursors_fd, MapAccess access, std::uint32_t bytes) {
  const AttachOutcome outcome = OutcomeOf(CheckMemfd(cursors_fd.get(), MemfdSeals::kFixed, bytes));
  if (outcome != AttachOutcome::kOk) return Refuse(outcome, "cursors");
  return MappedMemory::Map(cursors_fd.get(), access, bytes);
}

bool IsOrderCpu(const TableHeader& header) noexcept {
  return header.order == static_cast<std::uint32_t>(TagOrder::kCpu);
}

// As RingOptions::lane_count. Precondition: the geometry fits.
std::uint32_t LanesOf(const TableHeader& header) noexcept {
  return IsOrderCpu(header) ? header.lane_count : 0;
}

bool GeometryFits(const TableHeader& header) noexcept {
  const std::uint32_t most_lanes = IsOrderCpu(header) ? kMaxLanes : 1;
  return header.table_bytes == kTableBytes && header.slot_count == kSlotCount &&
         header.slots_offset_bytes == offsetof(Table, slots) &&
         header.slot_stride_bytes == sizeof(SlotDescriptor) &&
         header.cursor_stride_bytes == sizeof(Cursor) && header.lane_count >= 1 &&
         header.lane_count <= most_lanes && header.lane_stride_bytes == kLaneBytes &&
         header.cursors_bytes == CursorsBytes(LanesOf(header));
}

bool IsSnowflake(const TableHeader& header) noexcept {
  return header.mode == static_cast<std::uint32_t>(TagMode::kSnowflake) && header.unit_ms != 0 &&
         (header.clock == static_cast<std::uint32_t>(TagClock::kClaimer) ||
          header.clock == static_cast<std::uint32_t>(TagClock::kDaemon));
}

}  // namespace

struct RingMemory::Mapping {
  MappedMemory table;
  MappedMemory cursors;
};

std::uint32_t CursorsBytes(std::uint32_t lane_count) noexcept {
  constexpr std::uint32_t kPage = kCursorsBytes;
  const std::uint32_t lane_bytes = lane_count * kLaneBytes;
  return kLanesOffsetBytes + (lane_bytes + kPage - 1) / kPage * kPage;
}

const char* AttachOutcomeName(AttachOutcome outcome) noexcept {
  switch (outcome) {
    case AttachOutcome::kOk:
      return "ok";
    case AttachOutcome::kNotMemfd:
      return "not a memfd";
    case AttachOutcome::kWrongSeals:
      return "wrong seals";
    case AttachOutcome::kWrongSize:
      return "wrong size";
    case AttachOutcome::kMapFailed:
      return "cannot be mapped";
    case AttachOutcome::kBadMagic:
      return "bad magic";
    case AttachOutcome::kNotReady:
      return "not ready";
    case AttachOutcome::kOtherMajor:
      return "another ABI major version";
    case AttachOutcome::kBadGeometry:
      return "bad geometry";
    case AttachOutcome::kBadTag:
      return "not the tag asked for";
    case AttachOutcome::kUnsupportedMode:
      return "a mode or order that this build cannot claim from";
  }
  return "unknown outcome";
}

AttachOutcome CheckHeader(const Table& table, std::string_view expected_tag) noexcept {
  const TableHeader& header = table.header;
  const std::uint32_t version = header.abi_version.load(std::memory_order_acquire);  // V2, with V1
  if (header.magic != kTableMagic) return AttachOutcome::kBadMagic;
  if (version == 0) return AttachOutcome::kNotReady;
  if (version >> 16 != kAbiMajor) return AttachOutcome::kOtherMajor;
  if (!GeometryFits(header)) return AttachOutcome::kBadGeometry;
  if (header.tag_bytes == 0 || header.tag_bytes > kMaxTagBytes) return AttachOutcome::kBadTag;
  if (std::string_view(header.tag, header.tag_bytes) != expected_tag) return AttachOutcome::kBadTag;
  const bool is_segment = header.mode == static_cast<std::uint32_t>(TagMode::kSegment);
  const bool is_order_host = header.order == static_cast<std::uint32_t>(TagOrder::kHost);
  if (!(is_segment || (IsSnowflake(header) && is_order_host)) ||
      !(is_order_host || IsOrderCpu(header))) {
    return AttachOutcome::kUnsupportedMode;
  }
  return AttachOutcome::kOk;
}

RingMemory::RingMemory(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
RingMemory::~RingMemory() = default;

Result<std::unique_ptr<RingMemory>> RingMemory::Create(const RingOptions& options) {
  IDD_CHECK(!options.tag.empty() && options.tag.size() <= kMaxTagBytes);
  IDD_CHECK(options.lane_count <= kMaxLanes);
  IDD_CHECK(options.lane_count == 0 || !options.time.has_value());
  const std::uint32_t cursors_bytes = CursorsBytes(options.lane_count);
  Result<ScopedFd> table_fd = MakeMemfd("idd-table", kTableBytes);
  if (!table_fd.ok()) return table_fd.status();
  Result<ScopedFd> cursors_fd = MakeMemfd("idd-cursors", cursors_bytes);
  if (!cursors_fd.ok()) return cursors_fd.status();
  // Mapped before it is sealed: the seal forbids every later writable mapping, ours too.
  Result<MappedMemory> table =
      MappedMemory::Map(table_fd.value().get(), MapAccess::kReadWrite, kTableBytes);
  if (!table.ok()) return table.status();
  Result<MappedMemory> cursors =
      MappedMemory::Map(cursors_fd.value().get(), MapAccess::kReadWrite, cursors_bytes);
  if (!cursors.ok()) return cursors.status();
  Status status = SealMemfd(table_fd.value().get(), MemfdSeals::kWrittenByMapper);
  if (status.ok()) status = SealMemfd(cursors_fd.value().get(), MemfdSeals::kFixed);
  if (!status.ok()) return status;

  auto mapping = std::make_unique<Mapping>();
  mapping->table = std::move(table).value();
  mapping->cursors = std::move(cursors).value();
  // Begins the lifetime of the objects; the pages are zero, which is each word's "free".
  WriteHeader(*new (mapping->table.address()) Table{}, options);
  new (mapping->cursors.address()) Cursors{};
  std::unique_ptr<RingMemory> memory(new RingMemory(std::move(mapping)));
  memory->lane_count_ = options.lane_count;
  for (Lane& lane : memory->lanes()) new (&lane) Lane{};
  memory->table_fd_ = std::move(table_fd).value();
  memory->cursors_fd_ = std::move(cursors_fd).value();
  return memory;
}

Result<std::unique_ptr<RingMemory>> RingMemory::AttachTable(const ScopedFd& table_fd,
                                                            std::string_view expected_tag) {
  const AttachOutcome fd_outcome =
      OutcomeOf(CheckMemfd(table_fd.get(), MemfdSeals::kWrittenByMapper, kTableBytes));
  if (fd_outcome != AttachOutcome::kOk) return Refuse(fd_outcome, "table");
  Result<MappedMemory> table = MappedMemory::Map(table_fd.get(), MapAccess::kRead, kTableBytes);
  if (!table.ok()) return table.status();
  auto mapping = std::make_unique<Mapping>();
  mapping->table = std::move(table).value();
  std::unique_ptr<RingMemory> memory(new RingMemory(std::move(mapping)));
  const AttachOutcome outcome = CheckHeader(memory->table(), expected_tag);
  if (outcome == AttachOutcome::kOtherMajor) {
    const std::uint32_t version =
        memory->table().header.abi_version.load(std::memory_order_acquire);  // V2, with V1
    return Status(Code::kIncompatible,
                  "the daemon's ring has ABI " + std::to_string(version >> 16) + "." +
                      std::to_string(version & 0xffff) + ", this library has " +
                      std::to_string(kAbiMajor) + "." + std::to_string(kAbiMinor));
  }
  if (outcome != AttachOutcome::kOk) return Refuse(outcome, "table");
  memory->lane_count_ = LanesOf(memory->table().header);
  return memory;
}

Result<std::unique_ptr<RingMemory>> RingMemory::Attach(const ScopedFd& table_fd,
                                                       const ScopedFd& cursors_fd,
                                                       std::string_view expected_tag) {
  Result<std::unique_ptr<RingMemory>> memory = AttachTable(table_fd, expected_tag);
  if (!memory.ok()) return memory;
  Result<MappedMemory> cursors =
      MapCursors(cursors_fd, MapAccess::kReadWrite, memory.value()->cursors_bytes());
  if (!cursors.ok()) return cursors.status();
  memory.value()->mapping_->cursors = std::move(cursors).value();
  return memory;
}

Result<std::unique_ptr<RingMemory>> RingMemory::AttachForReading(const ScopedFd& table_fd,
                                                                 const ScopedFd& cursors_fd,
                                                                 std::string_view expected_tag) {
  Result<std::unique_ptr<RingMemory>> memory = AttachTable(table_fd, expected_tag);
  if (!memory.ok()) return memory;
  Result<MappedMemory> cursors =
      MapCursors(cursors_fd, MapAccess::kRead, memory.value()->cursors_bytes());
  if (!cursors.ok()) return cursors.status();
  memory.value()->mapping_->cursors = std::move(cursors).value();
  return memory;
}

void RingMemory::Blank() noexcept {
  if (mapping_->table.Blank()) static_cast<void>(mapping_->cursors.Blank());
}

const Table& RingMemory::table() const noexcept {
  return *static_cast<const Table*>(mapping_->table.address());
}

Table& RingMemory::writable_table() noexcept {
  IDD_CHECK(table_fd_.valid());
  return *static_cast<Table*>(mapping_->table.address());
}

Cursors& RingMemory::cursors() noexcept {
  IDD_CHECK(mapping_->cursors.address() != nullptr);
  return *static_cast<Cursors*>(mapping_->cursors.address());
}

std::span<Lane> RingMemory::lanes() noexcept {
  IDD_CHECK(mapping_->cursors.address() != nullptr);
  auto* const begin = static_cast<char*>(mapping_->cursors.address()) + kLanesOffsetBytes;
  return {reinterpret_cast<Lane*>(begin), lane_count_};
}

std::span<const Lane> RingMemory::read_lanes() const noexcept {
  IDD_CHECK(mapping_->cursors.address() != nullptr);
  const auto* const begin =
      static_cast<const char*>(mapping_->cursors.address()) + kLanesOffsetBytes;
  return {reinterpret_cast<const Lane*>(begin), lane_count_};
}

const Cursors& RingMemory::read_cursors() const noexcept {
  IDD_CHECK(mapping_->cursors.address() != nullptr);
  return *static_cast<const Cursors*>(mapping_->cursors.address());
}

}  // namespace idd::shm

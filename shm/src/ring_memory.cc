// SPDX-License-Identifier: Apache-2.0
//
// The one file that includes Boost.Interprocess; its exceptions end here.
#include "idd/shm/ring_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "idd/base/check.h"

namespace idd::shm {
namespace {

namespace ipc = boost::interprocess;

constexpr int kTableSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
constexpr int kCursorSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// Linux 6.3 and later may add it by system-wide policy; it takes nothing away.
constexpr int kSealExec = 0x20;
constexpr mode_t kOwnerOnly = 0600;

// What mapped_region wants of a memory source: a handle.
class MappableFd {
 public:
  explicit MappableFd(int fd) noexcept : fd_(fd) {}
  [[nodiscard]] ipc::mapping_handle_t get_mapping_handle() const noexcept { return {fd_, false}; }

 private:
  int fd_;
};

Result<ipc::mapped_region> Map(int fd, ipc::mode_t mode, std::size_t bytes) {
  try {
    return ipc::mapped_region(MappableFd(fd), mode, 0, bytes);
  } catch (const ipc::interprocess_exception& error) {
    return Status(Code::kSystem, std::string("cannot map the ring: ") + error.what());
  }
}

Result<ScopedFd> MakeMemfd(const char* name, std::size_t bytes) {
  ScopedFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::FromErrno(errno, "memfd_create");
  // A memfd is born 0777: whoever holds a read-only descriptor could reopen it through /proc.
  if (::fchmod(fd.get(), kOwnerOnly) != 0) return Status::FromErrno(errno, "fchmod of a memfd");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::FromErrno(errno, "ftruncate of a memfd");
  }
  return fd;
}

Status Seal(int fd, int seals) {
  if (::fcntl(fd, F_ADD_SEALS, seals) != 0) return Status::FromErrno(errno, "sealing a memfd");
  return Status::Ok();
}

// Seals before size: a file that cannot shrink keeps the size that is read after.
AttachOutcome CheckFd(int fd, int seals, std::size_t bytes) {
  const int found = ::fcntl(fd, F_GET_SEALS);
  if (found < 0) return AttachOutcome::kNotMemfd;
  if ((found & ~kSealExec) != seals) return AttachOutcome::kWrongSeals;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return AttachOutcome::kNotMemfd;
  if (info.st_size != static_cast<off_t>(bytes)) return AttachOutcome::kWrongSize;
  return AttachOutcome::kOk;
}

Status Refuse(AttachOutcome outcome, const char* which) {
  return {Code::kIncompatible,
          std::string("refusing the ring's ") + which + ": " + AttachOutcomeName(outcome)};
}

void WriteHeader(Table& table, const RingOptions& options) {
  TableHeader& header = table.header;
  header.magic = kTableMagic;
  header.table_bytes = kTableBytes;
  header.cursors_bytes = kCursorsBytes;
  header.slot_count = kSlotCount;
  header.slots_offset_bytes = offsetof(Table, slots);
  header.slot_stride_bytes = sizeof(SlotDescriptor);
  header.cursor_stride_bytes = sizeof(Cursor);
  header.lane_count = 1;
  header.lane_stride_bytes = sizeof(Cursor);
  header.mode = static_cast<std::uint32_t>(options.mode);
  header.order = static_cast<std::uint32_t>(options.order);
  header.tag_bytes = static_cast<std::uint32_t>(options.tag.size());
  header.ring_id = options.ring_id;
  std::copy(options.tag.begin(), options.tag.end(), header.tag);
  table.live.head_segment.store(1, std::memory_order_relaxed);  // H1: V1 below orders it
  table.live.state.store(static_cast<std::uint32_t>(RingState::kActive),
                         std::memory_order_relaxed);                 // S1: V1 below orders it
  header.abi_version.store(kAbiVersion, std::memory_order_release);  // V1, pairs with V2
}

bool GeometryFits(const TableHeader& header) noexcept {
  return header.table_bytes == kTableBytes && header.cursors_bytes == kCursorsBytes &&
         header.slot_count == kSlotCount && header.slots_offset_bytes == offsetof(Table, slots) &&
         header.slot_stride_bytes == sizeof(SlotDescriptor) &&
         header.cursor_stride_bytes == sizeof(Cursor) && header.lane_count == 1 &&
         header.lane_stride_bytes == sizeof(Cursor);
}

}  // namespace

struct RingMemory::Mapping {
  ipc::mapped_region table;
  ipc::mapped_region cursors;
};

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
  if (header.mode != static_cast<std::uint32_t>(TagMode::kSegment) ||
      header.order != static_cast<std::uint32_t>(TagOrder::kHost)) {
    return AttachOutcome::kUnsupportedMode;
  }
  return AttachOutcome::kOk;
}

RingMemory::RingMemory(std::unique_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}
RingMemory::~RingMemory() = default;

Result<std::unique_ptr<RingMemory>> RingMemory::Create(const RingOptions& options) {
  IDD_CHECK(!options.tag.empty() && options.tag.size() <= kMaxTagBytes);
  Result<ScopedFd> table_fd = MakeMemfd("idd-table", kTableBytes);
  if (!table_fd.ok()) return table_fd.status();
  Result<ScopedFd> cursors_fd = MakeMemfd("idd-cursors", kCursorsBytes);
  if (!cursors_fd.ok()) return cursors_fd.status();
  // Mapped before it is sealed: FUTURE_WRITE forbids every later writable mapping, ours too.
  Result<ipc::mapped_region> table = Map(table_fd.value().get(), ipc::read_write, kTableBytes);
  if (!table.ok()) return table.status();
  Result<ipc::mapped_region> cursors =
      Map(cursors_fd.value().get(), ipc::read_write, kCursorsBytes);
  if (!cursors.ok()) return cursors.status();
  if (Status status = Seal(table_fd.value().get(), kTableSeals); !status.ok()) return status;
  if (Status status = Seal(cursors_fd.value().get(), kCursorSeals); !status.ok()) return status;

  auto mapping = std::make_unique<Mapping>();
  mapping->table = std::move(table).value();
  mapping->cursors = std::move(cursors).value();
  // Begins the lifetime of the objects; the pages are zero, which is each word's "free".
  WriteHeader(*new (mapping->table.get_address()) Table{}, options);
  new (mapping->cursors.get_address()) Cursors{};
  std::unique_ptr<RingMemory> memory(new RingMemory(std::move(mapping)));
  memory->table_fd_ = std::move(table_fd).value();
  memory->cursors_fd_ = std::move(cursors_fd).value();
  return memory;
}

Result<std::unique_ptr<RingMemory>> RingMemory::AttachTable(const ScopedFd& table_fd,
                                                            std::string_view expected_tag) {
  const AttachOutcome fd_outcome = CheckFd(table_fd.get(), kTableSeals, kTableBytes);
  if (fd_outcome != AttachOutcome::kOk) return Refuse(fd_outcome, "table");
  Result<ipc::mapped_region> table = Map(table_fd.get(), ipc::read_only, kTableBytes);
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
  return memory;
}

Result<std::unique_ptr<RingMemory>> RingMemory::Attach(const ScopedFd& table_fd,
                                                       const ScopedFd& cursors_fd,
                                                       std::string_view expected_tag) {
  Result<std::unique_ptr<RingMemory>> memory = AttachTable(table_fd, expected_tag);
  if (!memory.ok()) return memory;
  const AttachOutcome fd_outcome = CheckFd(cursors_fd.get(), kCursorSeals, kCursorsBytes);
  if (fd_outcome != AttachOutcome::kOk) return Refuse(fd_outcome, "cursors");
  Result<ipc::mapped_region> cursors = Map(cursors_fd.get(), ipc::read_write, kCursorsBytes);
  if (!cursors.ok()) return cursors.status();
  memory.value()->mapping_->cursors = std::move(cursors).value();
  return memory;
}

const Table& RingMemory::table() const noexcept {
  return *static_cast<const Table*>(mapping_->table.get_address());
}

Table& RingMemory::writable_table() noexcept {
  IDD_CHECK(table_fd_.valid());
  return *static_cast<Table*>(mapping_->table.get_address());
}

Cursors& RingMemory::cursors() noexcept {
  IDD_CHECK(mapping_->cursors.get_address() != nullptr);
  return *static_cast<Cursors*>(mapping_->cursors.get_address());
}

}  // namespace idd::shm

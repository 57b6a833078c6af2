// SPDX-License-Identifier: Apache-2.0
//
// A claimer on untrusted memory: it claims from any memory that passes CheckHeader. It never
// accepts an id outside base..limit of a published slot, and every call ends.
//
// The input is a list of steps on a good ring: overwrites of words, in the table before the attach
// and in both memories between claims, and claims.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "fuzz_target.h"
#include "idd/base/check.h"
#include "idd/shm/abi.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_writer.h"
#include "support/own_view_claimer.h"

namespace {

using namespace idd::shm;  // NOLINT(google-build-using-namespace): all of it is under test.

constexpr std::string_view kTag = "orders";
constexpr int kMaxSteps = 512;

// Takes numbers off the input; returns zero at its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  template <typename T>
  T Take() {
    T value{};
    const std::size_t bytes = std::min(sizeof(T), size_);
    if (bytes != 0) std::memcpy(&value, data_, bytes);
    data_ += bytes;
    size_ -= bytes;
    return value;
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

struct Memory {
  Table table{};
  Cursors cursors{};
};

void MakeGoodRing(Memory& memory) {
  TableHeader& header = memory.table.header;
  header.magic = kTableMagic;
  header.table_bytes = kTableBytes;
  header.cursors_bytes = kCursorsBytes;
  header.slot_count = kSlotCount;
  header.slots_offset_bytes = offsetof(Table, slots);
  header.slot_stride_bytes = sizeof(SlotDescriptor);
  header.cursor_stride_bytes = sizeof(Cursor);
  header.lane_count = 1;
  header.lane_stride_bytes = sizeof(Cursor);
  header.mode = static_cast<std::uint32_t>(TagMode::kSegment);
  header.order = static_cast<std::uint32_t>(TagOrder::kHost);
  header.tag_bytes = kTag.size();
  std::copy(kTag.begin(), kTag.end(), header.tag);
  header.abi_version = kAbiVersion;
  memory.table.live.head_segment = 1;
  memory.table.live.state = static_cast<std::uint32_t>(RingState::kActive);
  RingWriter writer(memory.table, memory.cursors);
  for (std::uint64_t i = 1; i <= 3; ++i)
    writer.Publish({i * 1000, i * 1000 + 100}, 0, i * 1000 + 10);
}

// Overwrites eight bytes at a chosen place.
template <typename T>
void Patch(T& memory, Input& input) {
  const std::size_t offset = input.Take<std::uint16_t>() % (sizeof(T) / 8) * 8;
  const auto value = input.Take<std::uint64_t>();
  std::memcpy(reinterpret_cast<unsigned char*>(&memory) + offset, &value, sizeof(value));
}

void CheckClaim(const Memory& memory, const SlotClaim& claim, std::uint64_t count) {
  if (claim.ids.empty()) return;
  IDD_CHECK(claim.ids.size() <= std::min(count, kMaxClaim));
  const auto covers = [&](const SlotDescriptor& slot) {
    return slot.segment != 0 && slot.base <= claim.ids.first && claim.ids.limit <= slot.limit;
  };
  IDD_CHECK(std::any_of(std::begin(memory.table.slots), std::end(memory.table.slots), covers));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const auto memory = std::make_unique<Memory>();
  MakeGoodRing(*memory);
  for (int patches = input.Take<std::uint8_t>() % 16; patches > 0; --patches) {
    Patch(memory->table, input);
  }
  if (CheckHeader(memory->table, kTag) != AttachOutcome::kOk) return 0;
  OwnViewClaimer claimer(memory->table, memory->cursors);
  for (int step = 0; step < kMaxSteps && !input.empty(); ++step) {
    switch (input.Take<std::uint8_t>() % 4) {
      case 0:
        Patch(memory->cursors, input);
        break;
      case 1:
        Patch(memory->table, input);
        break;
      case 2:
        static_cast<void>(claimer.HasIds());
        break;
      default: {
        const auto count = std::max<std::uint64_t>(input.Take<std::uint64_t>(), 1);
        CheckClaim(*memory, claimer.Claim(count), count);
      }
    }
  }
  return 0;
}

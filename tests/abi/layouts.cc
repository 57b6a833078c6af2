// SPDX-License-Identifier: Apache-2.0
#include "layouts.h"

#include <sstream>

#include "idclient/idclient.h"
#include "idd/base/status.h"
#include "idd/shm/abi.h"
#include "idd/wire/frames.h"

// The line of a field and the head of a struct. sizeof of a member needs no object.
#define IDD_FIELD(type, field) \
  FieldLayout { #field, offsetof(type, field), sizeof(type::field) }
#define IDD_STRUCT(type, ...)                           \
  StructLayout {                                        \
#type, sizeof(type), alignof(type), { __VA_ARGS__ } \
  }

namespace idd::abi {

std::vector<StructLayout> SharedMemoryLayouts() {
  using namespace idd::shm;  // NOLINT(google-build-using-namespace): the names are printed as they
                             // are.
  return {
      IDD_STRUCT(TableHeader, IDD_FIELD(TableHeader, magic), IDD_FIELD(TableHeader, abi_version),
                 IDD_FIELD(TableHeader, table_bytes), IDD_FIELD(TableHeader, cursors_bytes),
                 IDD_FIELD(TableHeader, slot_count), IDD_FIELD(TableHeader, slots_offset_bytes),
                 IDD_FIELD(TableHeader, slot_stride_bytes),
                 IDD_FIELD(TableHeader, cursor_stride_bytes), IDD_FIELD(TableHeader, lane_count),
                 IDD_FIELD(TableHeader, lane_stride_bytes), IDD_FIELD(TableHeader, mode),
                 IDD_FIELD(TableHeader, order), IDD_FIELD(TableHeader, tag_bytes),
                 IDD_FIELD(TableHeader, ring_id), IDD_FIELD(TableHeader, epoch_ms),
                 IDD_FIELD(TableHeader, unit_ms), IDD_FIELD(TableHeader, clock),
                 IDD_FIELD(TableHeader, max_ahead), IDD_FIELD(TableHeader, reserved0),
                 IDD_FIELD(TableHeader, tag)),
      IDD_STRUCT(RingLive, IDD_FIELD(RingLive, head_segment), IDD_FIELD(RingLive, tail_segment),
                 IDD_FIELD(RingLive, state), IDD_FIELD(RingLive, publications),
                 IDD_FIELD(RingLive, frontier), IDD_FIELD(RingLive, lane_block),
                 IDD_FIELD(RingLive, reserved0), IDD_FIELD(RingLive, reserved1)),
      IDD_STRUCT(SlotDescriptor, IDD_FIELD(SlotDescriptor, segment),
                 IDD_FIELD(SlotDescriptor, base), IDD_FIELD(SlotDescriptor, limit),
                 IDD_FIELD(SlotDescriptor, refill_mark), IDD_FIELD(SlotDescriptor, worker_bits),
                 IDD_FIELD(SlotDescriptor, sequence_bits), IDD_FIELD(SlotDescriptor, time_shift),
                 IDD_FIELD(SlotDescriptor, ended_segment), IDD_FIELD(SlotDescriptor, ended_at),
                 IDD_FIELD(SlotDescriptor, reserved0)),
      IDD_STRUCT(Cursor, IDD_FIELD(Cursor, next), IDD_FIELD(Cursor, reserved0)),
      IDD_STRUCT(Lane, IDD_FIELD(Lane, reserved0), IDD_FIELD(Lane, next), IDD_FIELD(Lane, limit),
                 IDD_FIELD(Lane, segment), IDD_FIELD(Lane, dropped), IDD_FIELD(Lane, reserved1)),
      IDD_STRUCT(RingStats, IDD_FIELD(RingStats, version), IDD_FIELD(RingStats, written_at_ns),
                 IDD_FIELD(RingStats, claimed_before), IDD_FIELD(RingStats, counted_from),
                 IDD_FIELD(RingStats, leases), IDD_FIELD(RingStats, fallbacks),
                 IDD_FIELD(RingStats, step), IDD_FIELD(RingStats, outage_tolerance_s),
                 IDD_FIELD(RingStats, max_prefetch), IDD_FIELD(RingStats, reckoned_per_1000_s),
                 IDD_FIELD(RingStats, quarantined_until_ns), IDD_FIELD(RingStats, condition),
                 IDD_FIELD(RingStats, reserved0), IDD_FIELD(RingStats, promised_ids),
                 IDD_FIELD(RingStats, reserved1)),
      IDD_STRUCT(Table, IDD_FIELD(Table, header), IDD_FIELD(Table, live), IDD_FIELD(Table, slots),
                 IDD_FIELD(Table, stats), IDD_FIELD(Table, reserved0)),
      IDD_STRUCT(Cursors, IDD_FIELD(Cursors, slots), IDD_FIELD(Cursors, reserved0)),
  };
}

std::vector<StructLayout> FrameLayouts() {
  using namespace idd::wire;  // NOLINT(google-build-using-namespace): the names are printed as they
                              // are.
  return {
      IDD_STRUCT(FrameHeader, IDD_FIELD(FrameHeader, magic), IDD_FIELD(FrameHeader, version),
                 IDD_FIELD(FrameHeader, type), IDD_FIELD(FrameHeader, frame_bytes),
                 IDD_FIELD(FrameHeader, reserved), IDD_FIELD(FrameHeader, request_id)),
      IDD_STRUCT(TagName, IDD_FIELD(TagName, bytes), IDD_FIELD(TagName, text),
                 IDD_FIELD(TagName, reserved)),
      IDD_STRUCT(HelloRequest, IDD_FIELD(HelloRequest, abi_version),
                 IDD_FIELD(HelloRequest, reserved), IDD_FIELD(HelloRequest, client_version)),
      IDD_STRUCT(HelloReply, IDD_FIELD(HelloReply, status), IDD_FIELD(HelloReply, abi_version),
                 IDD_FIELD(HelloReply, daemon_id), IDD_FIELD(HelloReply, daemon_version)),
      IDD_STRUCT(AttachRequest, IDD_FIELD(AttachRequest, tag), IDD_FIELD(AttachRequest, timeout_ms),
                 IDD_FIELD(AttachRequest, reserved)),
      IDD_STRUCT(AttachReply, IDD_FIELD(AttachReply, status), IDD_FIELD(AttachReply, abi_version),
                 IDD_FIELD(AttachReply, ring_id), IDD_FIELD(AttachReply, table_bytes),
                 IDD_FIELD(AttachReply, cursors_bytes)),
      IDD_STRUCT(ObserveRequest, IDD_FIELD(ObserveRequest, tag)),
      IDD_STRUCT(ClaimRequest, IDD_FIELD(ClaimRequest, tag), IDD_FIELD(ClaimRequest, ring_id),
                 IDD_FIELD(ClaimRequest, count), IDD_FIELD(ClaimRequest, timeout_ms),
                 IDD_FIELD(ClaimRequest, reserved)),
      IDD_STRUCT(ClaimReply, IDD_FIELD(ClaimReply, status), IDD_FIELD(ClaimReply, attach_again),
                 IDD_FIELD(ClaimReply, is_final), IDD_FIELD(ClaimReply, first),
                 IDD_FIELD(ClaimReply, count)),
      IDD_STRUCT(RefillNotice, IDD_FIELD(RefillNotice, tag), IDD_FIELD(RefillNotice, ring_id)),
      IDD_STRUCT(StatusReply, IDD_FIELD(StatusReply, status), IDD_FIELD(StatusReply, reserved)),
      IDD_STRUCT(AdminReply, IDD_FIELD(AdminReply, status), IDD_FIELD(AdminReply, reserved),
                 IDD_FIELD(AdminReply, document_bytes)),
  };
}

StructLayout OptionsLayout() {
  return IDD_STRUCT(idclient_options, IDD_FIELD(idclient_options, struct_size),
                    IDD_FIELD(idclient_options, socket_path),
                    IDD_FIELD(idclient_options, timeout_ms), IDD_FIELD(idclient_options, flags),
                    IDD_FIELD(idclient_options, trusted_uid), IDD_FIELD(idclient_options, reserved),
                    IDD_FIELD(idclient_options, log), IDD_FIELD(idclient_options, log_context));
}

std::vector<StructLayout> ClientLayouts() {
  return {
      OptionsLayout(),
      IDD_STRUCT(idclient_tag_options, IDD_FIELD(idclient_tag_options, struct_size),
                 IDD_FIELD(idclient_tag_options, block_size),
                 IDD_FIELD(idclient_tag_options, reserved)),
      IDD_STRUCT(idclient_tag_info, IDD_FIELD(idclient_tag_info, struct_size),
                 IDD_FIELD(idclient_tag_info, mode), IDD_FIELD(idclient_tag_info, order),
                 IDD_FIELD(idclient_tag_info, state), IDD_FIELD(idclient_tag_info, reserved),
                 IDD_FIELD(idclient_tag_info, step), IDD_FIELD(idclient_tag_info, available),
                 IDD_FIELD(idclient_tag_info, cover_ms)),
  };
}

namespace {

void Print(std::ostream& out, const StructLayout& layout) {
  out << "struct " << layout.name << " size " << layout.size << " alignment " << layout.alignment
      << "\n";
  for (const FieldLayout& field : layout.fields) {
    out << "  " << field.offset << " " << field.size << " " << field.name << "\n";
  }
}

void PrintConstants(std::ostream& out) {
  out << std::hex << "shm.magic 0x" << shm::kTableMagic << "\n"
      << "shm.kMaxLimit 0x" << shm::kMaxLimit << "\n"
      << "shm.kClosingStep 0x" << shm::kClosingStep << "\n"
      << "shm.kNoMark 0x" << shm::kNoMark << "\n"
      << "shm.kMaxClaim 0x" << shm::kMaxClaim << "\n"
      << "wire.magic 0x" << wire::kFrameMagic << "\n"
      << "wire.kReplyBit 0x" << wire::kReplyBit << "\n"
      << std::dec << "shm.version " << shm::kAbiMajor << "." << shm::kAbiMinor << "\n"
      << "shm.kSlotCount " << shm::kSlotCount << "\n"
      << "shm.kTableBytes " << shm::kTableBytes << "\n"
      << "shm.kCursorsBytes " << shm::kCursorsBytes << "\n"
      << "shm.kMaxTagBytes " << shm::kMaxTagBytes << "\n"
      << "shm.kMaxLanes " << shm::kMaxLanes << "\n"
      << "shm.kLaneBytes " << shm::kLaneBytes << "\n"
      << "shm.kLanesOffsetBytes " << shm::kLanesOffsetBytes << "\n"
      << "shm.kMaxLaneBlock " << shm::kMaxLaneBlock << "\n"
      << "wire.version " << wire::kProtocolVersion << "\n"
      << "wire.kMaxFrameBytes " << wire::kMaxFrameBytes << "\n"
      << "wire.kMaxTagBytes " << wire::kMaxTagBytes << "\n"
      << "wire.kMaxReasonBytes " << wire::kMaxReasonBytes << "\n"
      << "wire.kMaxTimeoutMs " << wire::kMaxTimeoutMs << "\n";
}

template <typename Enum>
void PrintEnumerator(std::ostream& out, const char* name, Enum value) {
  out << name << " " << static_cast<std::uint32_t>(value) << "\n";
}

void PrintEnumerators(std::ostream& out) {
  PrintEnumerator(out, "RingState.kActive", shm::RingState::kActive);
  PrintEnumerator(out, "RingState.kDrained", shm::RingState::kDrained);
  PrintEnumerator(out, "RingState.kRetired", shm::RingState::kRetired);
  PrintEnumerator(out, "RingState.kQuarantined", shm::RingState::kQuarantined);
  PrintEnumerator(out, "TagCondition.kServed", shm::TagCondition::kServed);
  PrintEnumerator(out, "TagCondition.kQuarantined", shm::TagCondition::kQuarantined);
  PrintEnumerator(out, "TagCondition.kDrained", shm::TagCondition::kDrained);
  PrintEnumerator(out, "TagMode.kSegment", shm::TagMode::kSegment);
  PrintEnumerator(out, "TagMode.kSnowflake", shm::TagMode::kSnowflake);
  PrintEnumerator(out, "TagOrder.kHost", shm::TagOrder::kHost);
  PrintEnumerator(out, "TagOrder.kCpu", shm::TagOrder::kCpu);
  PrintEnumerator(out, "FrameType.kHello", wire::FrameType::kHello);
  PrintEnumerator(out, "FrameType.kAttach", wire::FrameType::kAttach);
  PrintEnumerator(out, "FrameType.kClaim", wire::FrameType::kClaim);
  PrintEnumerator(out, "FrameType.kRefill", wire::FrameType::kRefill);
  PrintEnumerator(out, "FrameType.kAdmin", wire::FrameType::kAdmin);
  PrintEnumerator(out, "FrameType.kError", wire::FrameType::kError);
  PrintEnumerator(out, "FrameType.kObserve", wire::FrameType::kObserve);
  for (std::uint32_t code = 0; code <= static_cast<std::uint32_t>(Code::kSystem); ++code) {
    out << "Code." << CodeName(static_cast<Code>(code)) << " " << code << "\n";
  }
}

}  // namespace

std::string Dump() {
  std::ostringstream out;
  PrintConstants(out);
  PrintEnumerators(out);
  for (const StructLayout& layout : SharedMemoryLayouts()) Print(out, layout);
  for (const StructLayout& layout : FrameLayouts()) Print(out, layout);
  for (const StructLayout& layout : ClientLayouts()) Print(out, layout);
  return out.str();
}

}  // namespace idd::abi

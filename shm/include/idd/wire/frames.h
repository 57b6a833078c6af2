// SPDX-License-Identifier: Apache-2.0
//
// The frames of idd's Unix socket (docs/socket-protocol.md says what each exchange means).
//
// The socket is SOCK_SEQPACKET: a message holds whole frames, so a half frame cannot exist. A
// client's message is one frame. A message of the daemon has several frames only while the client
// has several requests under way, and then no descriptors; frame_bytes leads from one frame to the
// next. A frame is a FrameHeader and the payload of its type, in the host's byte order. idd closes
// the connection on a frame whose size, magic, version or payload does not fit, and logs the
// reason.
#ifndef IDD_WIRE_FRAMES_H_
#define IDD_WIRE_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "idd/base/status.h"

namespace idd::wire {

inline constexpr std::uint32_t kFrameMagic = 0x31444449U;  // "IDD1"
inline constexpr std::uint16_t kProtocolVersion = 1;
// The limit holds for a message as well. No request has a longer payload; a reply's text is cut to
// fit. Documents of any length (admin replies) travel as a sealed memfd beside the frame.
inline constexpr std::size_t kMaxFrameBytes = 16384;
inline constexpr std::size_t kMaxTagBytes = 128;
inline constexpr std::size_t kMaxReasonBytes = 1024;
inline constexpr std::size_t kMaxAdminRequestBytes = kMaxFrameBytes - 64;
inline constexpr std::size_t kMaxAdminReplyBytes = std::size_t{256} << 20;
// A request may not ask to be kept waiting longer than this.
inline constexpr std::uint32_t kMaxTimeoutMs = 3'600'000;

enum class FrameType : std::uint16_t {
  kHello = 1,   // -> HelloRequest; <- HelloReply. First frame of a connection.
  kAttach = 2,  // -> AttachRequest; <- AttachReply, usually with two descriptors (table, cursors)
  kClaim = 3,   // -> ClaimRequest; <- ClaimReply, at the latest after timeout_ms
  kRefill = 4,  // -> RefillNotice; no reply
  kAdmin = 5,   // -> JSON text; <- AdminReply with one descriptor (the JSON document)
  kError = 6,   // <- StatusReply, then the daemon closes the connection
  // -> ObserveRequest; <- AttachReply, usually with two descriptors that cannot be written through
  kObserve = 7,
};
// A reply has the type of its request with this bit, and its request_id.
inline constexpr std::uint16_t kReplyBit = 0x8000;

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint16_t version = kProtocolVersion;
  std::uint16_t type = 0;         // FrameType, with kReplyBit in a reply
  std::uint32_t frame_bytes = 0;  // header and payload
  std::uint32_t reserved = 0;     // zero
  std::uint64_t request_id = 0;   // the client's choice, returned in the reply
};

struct TagName {
  std::uint16_t bytes = 0;  // 1..kMaxTagBytes
  char text[kMaxTagBytes] = {};
  std::uint8_t reserved[6] = {};
};

struct HelloRequest {
  std::uint32_t abi_version = 0;  // shm::kAbiVersion of the client
  std::uint32_t reserved = 0;
  char client_version[32] = {};  // for the log; zero-padded
};

struct HelloReply {
  std::uint32_t status = 0;  // Code
  std::uint32_t abi_version = 0;
  std::uint64_t daemon_id = 0;  // random, one for each run of the daemon
  char daemon_version[32] = {};
};

struct AttachRequest {
  TagName tag;
  std::uint32_t timeout_ms = 0;  // longest wait for the store's answer about an unknown tag
  std::uint32_t reserved = 0;
};

struct ObserveRequest {
  TagName tag;
};

// Followed by a reason of up to kMaxReasonBytes when status is not 0, and by the tag's mode when it
// is 0 and so is ring_id; descriptors only when status is 0 and ring_id is not.
struct AttachReply {
  std::uint32_t status = 0;
  std::uint32_t abi_version = 0;
  std::uint64_t ring_id = 0;  // 0: no ring, sizes of 0; the ids are claimed only with kClaim
  std::uint32_t table_bytes = 0;
  std::uint32_t cursors_bytes = 0;
};

struct ClaimRequest {
  TagName tag;
  std::uint64_t ring_id = 0;     // the ring the client has mapped; 0: none
  std::uint64_t count = 0;       // >= 1; the reply has at most this many, contiguous ids
  std::uint32_t timeout_ms = 0;  // 0: answer at once
  std::uint32_t reserved = 0;
};

// Followed by a reason when status is not 0.
struct ClaimReply {
  std::uint32_t status = 0;
  std::uint16_t attach_again = 0;  // 1: ATTACH would not return the request's ring_id now
  std::uint16_t is_final = 0;      // 1: asking again until the deadline would not help
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

struct RefillNotice {
  TagName tag;
  std::uint64_t ring_id = 0;
};

// Followed by a reason when status is not 0.
struct StatusReply {
  std::uint32_t status = 0;
  std::uint32_t reserved = 0;
};

// `status` is the operation's; the document, when there is one, is in the descriptor.
struct AdminReply {
  std::uint32_t status = 0;
  std::uint32_t reserved = 0;
  std::uint64_t document_bytes = 0;
};

static_assert(sizeof(FrameHeader) == 24 && sizeof(TagName) == 136);
static_assert(sizeof(HelloRequest) == 40 && sizeof(HelloReply) == 48);
static_assert(sizeof(AttachRequest) == 144 && sizeof(AttachReply) == 24);
static_assert(sizeof(ObserveRequest) == 136);
static_assert(sizeof(ClaimRequest) == 160 && sizeof(ClaimReply) == 24);
static_assert(sizeof(RefillNotice) == 144 && sizeof(StatusReply) == 8 && sizeof(AdminReply) == 16);

template <typename T>
inline constexpr bool kIsPayload = std::is_trivially_copyable_v<T>&& std::is_standard_layout_v<T>&&
    std::has_unique_object_representations_v<T>;
static_assert(kIsPayload<FrameHeader> && kIsPayload<HelloRequest> && kIsPayload<HelloReply> &&
              kIsPayload<AttachRequest> && kIsPayload<AttachReply> && kIsPayload<ObserveRequest> &&
              kIsPayload<ClaimRequest> && kIsPayload<ClaimReply> && kIsPayload<RefillNotice> &&
              kIsPayload<StatusReply> && kIsPayload<AdminReply>);

// Tags are 1..128 bytes of printable UTF-8: without control characters, so that no tag can forge a
// log line; without a space at either end and characters that join, hide or reverse text, because
// with these two tags can look alike. kInvalid says what is wrong.
[[nodiscard]] Status CheckTagName(std::string_view tag);

// Precondition: CheckTagName(tag).ok().
[[nodiscard]] TagName PackTag(std::string_view tag);
// The view lives as long as `tag`. kInvalid when the bytes are not a tag name.
[[nodiscard]] Result<std::string_view> UnpackTag(const TagName& tag);

// How much of a received message is its first frame; all of it if it does not begin with one.
[[nodiscard]] std::size_t LeadingFrameBytes(std::span<const std::byte> message) noexcept;

// A received frame, checked: header consistent with its length.
struct FrameView {
  FrameHeader header;
  std::span<const std::byte> payload;  // lives as long as the bytes it was parsed from
};
// kInvalid (too short, too long, wrong magic, length or reserved bits) or kIncompatible (version).
[[nodiscard]] Result<FrameView> ParseFrame(std::span<const std::byte> message);

// The fixed payload of a frame. kInvalid unless the sizes are equal.
template <typename T>
[[nodiscard]] Result<T> ParsePayload(const FrameView& frame);
// kInvalid unless the frame is the reply to a request of that type.
[[nodiscard]] Status CheckReplyType(const FrameView& frame, FrameType request);
// The fixed part of the reply to a request of that type, and the reason after it. kInvalid when it
// is another request's reply, the part is short or the reason too long.
template <typename T>
[[nodiscard]] Result<T> ParseReply(const FrameView& frame, FrameType request, std::string* reason);

// The Status in an ERROR frame; never ok.
[[nodiscard]] Status ParseError(const FrameView& frame);

// A complete frame. Precondition: it fits kMaxFrameBytes (a reason is cut to kMaxReasonBytes).
[[nodiscard]] std::vector<std::byte> BuildFrame(FrameType type, bool is_reply,
                                                std::uint64_t request_id,
                                                std::span<const std::byte> payload,
                                                std::string_view reason = {});

template <typename T>
[[nodiscard]] std::vector<std::byte> BuildRequest(FrameType type, std::uint64_t request_id,
                                                  const T& payload) {
  static_assert(kIsPayload<T>);
  return BuildFrame(type, false, request_id, std::as_bytes(std::span(&payload, 1)));
}
template <typename T>
[[nodiscard]] std::vector<std::byte> BuildReply(FrameType type, std::uint64_t request_id,
                                                const T& payload, std::string_view reason = {}) {
  static_assert(kIsPayload<T>);
  return BuildFrame(type, true, request_id, std::as_bytes(std::span(&payload, 1)), reason);
}

// Implementation of the templates.

namespace internal {
[[nodiscard]] Status CopyPayload(const FrameView& frame, std::span<std::byte> out, bool exact,
                                 std::string* reason);
}  // namespace internal

template <typename T>
Result<T> ParsePayload(const FrameView& frame) {
  static_assert(kIsPayload<T>);
  T out;
  Status status =
      internal::CopyPayload(frame, std::as_writable_bytes(std::span(&out, 1)), true, nullptr);
  if (!status.ok()) return status;
  return out;
}

template <typename T>
Result<T> ParseReply(const FrameView& frame, FrameType request, std::string* reason) {
  static_assert(kIsPayload<T>);
  if (Status status = CheckReplyType(frame, request); !status.ok()) return status;
  T out;
  Status status =
      internal::CopyPayload(frame, std::as_writable_bytes(std::span(&out, 1)), false, reason);
  if (!status.ok()) return status;
  return out;
}

}  // namespace idd::wire

#endif  // IDD_WIRE_FRAMES_H_

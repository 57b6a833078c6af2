// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "idd/base/check.h"
#include "idd/base/utf8.h"
#include "idd/wire/frames.h"

namespace idd::wire {
namespace {

bool AllZero(std::span<const std::uint8_t> bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace

Status CheckTagName(std::string_view tag) {
  if (tag.empty()) return {Code::kInvalid, "a tag needs a name of 1 to 128 bytes"};
  if (tag.size() > kMaxTagBytes) {
    return {Code::kInvalid,
            "the tag's name has " + std::to_string(tag.size()) + " bytes, at most 128 are allowed"};
  }
  if (tag.front() == ' ' || tag.back() == ' ') {
    return {Code::kInvalid, "a tag's name must not begin or end with a space"};
  }
  for (std::size_t i = 0; i < tag.size();) {
    const Utf8Character character = FirstUtf8Character(tag.substr(i));
    if (character.bytes == 0) return {Code::kInvalid, "the tag's name is not valid UTF-8"};
    if (IsControl(character.code)) {
      return {Code::kInvalid, "the tag's name contains a control character"};
    }
    if (IsDeceptive(character.code)) {
      return {Code::kInvalid,
              "the tag's name contains a character that looks like another one or is invisible"};
    }
    i += character.bytes;
  }
  return Status::Ok();
}

TagName PackTag(std::string_view tag) {
  IDD_CHECK(CheckTagName(tag).ok());
  TagName packed;
  packed.bytes = static_cast<std::uint16_t>(tag.size());
  std::copy(tag.begin(), tag.end(), packed.text);
  return packed;
}

Result<std::string_view> UnpackTag(const TagName& tag) {
  if (tag.bytes == 0 || tag.bytes > kMaxTagBytes || !AllZero(tag.reserved)) {
    return Status(Code::kInvalid, "the frame's tag has a wrong length or reserved bytes set");
  }
  const std::string_view name(tag.text, tag.bytes);
  if (Status status = CheckTagName(name); !status.ok()) return status;
  return name;
}

std::size_t LeadingFrameBytes(std::span<const std::byte> message) noexcept {
  FrameHeader header;
  if (message.size() < sizeof(header)) return message.size();
  std::memcpy(&header, message.data(), sizeof(header));
  const bool fits = header.frame_bytes >= sizeof(header) && header.frame_bytes <= message.size();
  return fits ? header.frame_bytes : message.size();
}

Result<FrameView> ParseFrame(std::span<const std::byte> message) {
  FrameView frame;
  if (message.size() < sizeof(FrameHeader)) {
    return Status(Code::kInvalid, "frame too short: " + std::to_string(message.size()) +
                                      " bytes, a header has " +
                                      std::to_string(sizeof(FrameHeader)));
  }
  if (message.size() > kMaxFrameBytes) {
    return Status(Code::kInvalid,
                  "frame too long: more than " + std::to_string(kMaxFrameBytes) + " bytes");
  }
  std::memcpy(&frame.header, message.data(), sizeof(FrameHeader));
  if (frame.header.magic != kFrameMagic) return Status(Code::kInvalid, "frame has a wrong magic");
  if (frame.header.version != kProtocolVersion) {
    return Status(Code::kIncompatible,
                  "frame has protocol version " + std::to_string(frame.header.version) +
                      ", this side speaks " + std::to_string(kProtocolVersion));
  }
  if (frame.header.frame_bytes != message.size() || frame.header.reserved != 0) {
    return Status(Code::kInvalid, "frame says it has " + std::to_string(frame.header.frame_bytes) +
                                      " bytes but has " + std::to_string(message.size()) +
                                      ", or reserved bits are set");
  }
  frame.payload = message.subspan(sizeof(FrameHeader));
  return frame;
}

Status CheckReplyType(const FrameView& frame, FrameType request) {
  const auto expected = static_cast<std::uint16_t>(static_cast<std::uint16_t>(request) | kReplyBit);
  if (frame.header.type == expected) return Status::Ok();
  return {Code::kInvalid, "idd answered with a frame of another type"};
}

Status ParseError(const FrameView& frame) {
  std::string reason;
  const Result<StatusReply> error = ParseReply<StatusReply>(frame, FrameType::kError, &reason);
  if (!error.ok()) return error.status();
  if (error.value().status == 0) return {Code::kInvalid, "idd sent an error frame that says OK"};
  return {CodeFromNumber(error.value().status), reason};
}

std::vector<std::byte> BuildFrame(FrameType type, bool is_reply, std::uint64_t request_id,
                                  std::span<const std::byte> payload, std::string_view reason) {
  const std::string_view text = reason.substr(0, kMaxReasonBytes);
  FrameHeader header;
  header.type = static_cast<std::uint16_t>(static_cast<std::uint16_t>(type) |
                                           (is_reply ? kReplyBit : std::uint16_t{0}));
  header.frame_bytes =
      static_cast<std::uint32_t>(sizeof(FrameHeader) + payload.size() + text.size());
  header.request_id = request_id;
  IDD_CHECK(header.frame_bytes <= kMaxFrameBytes);
  std::vector<std::byte> frame(header.frame_bytes);
  std::memcpy(frame.data(), &header, sizeof(header));
  std::copy(payload.begin(), payload.end(), frame.begin() + sizeof(header));
  const auto text_bytes = std::as_bytes(std::span(text));
  std::copy(text_bytes.begin(), text_bytes.end(),
            frame.end() - static_cast<std::ptrdiff_t>(text_bytes.size()));
  return frame;
}

namespace internal {

Status CopyPayload(const FrameView& frame, std::span<std::byte> out, bool exact,
                   std::string* reason) {
  if (frame.payload.size() < out.size() || (exact && frame.payload.size() != out.size()) ||
      frame.payload.size() > out.size() + kMaxReasonBytes) {
    return {Code::kInvalid, "frame of type " + std::to_string(frame.header.type & ~kReplyBit) +
                                " has a payload of " + std::to_string(frame.payload.size()) +
                                " bytes, expected " + std::to_string(out.size())};
  }
  std::copy_n(frame.payload.begin(), out.size(), out.begin());
  if (reason != nullptr) {
    const auto text = frame.payload.subspan(out.size());
    reason->resize(text.size());
    std::transform(text.begin(), text.end(), reason->begin(),
                   [](std::byte byte) { return static_cast<char>(byte); });
  }
  return Status::Ok();
}

}  // namespace internal
}  // namespace idd::wire

// SPDX-License-Identifier: Apache-2.0
//
// A message from the socket: parses the frame, its payload as every type, and the tag in it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_target.h"
#include "idd/base/check.h"
#include "idd/wire/frames.h"

namespace {

using namespace idd::wire;  // NOLINT(google-build-using-namespace): all of it is under test.

void ReadTag(const TagName& tag) {
  const idd::Result<std::string_view> name = UnpackTag(tag);
  if (!name.ok()) return;
  IDD_CHECK(!name.value().empty() && name.value().size() <= kMaxTagBytes);
  IDD_CHECK(CheckTagName(name.value()).ok());
  IDD_CHECK(name.value().find('\n') == std::string_view::npos);
  const TagName packed = PackTag(name.value());
  IDD_CHECK(UnpackTag(packed).value() == name.value());
}

template <typename T>
void ReadPayload(const FrameView& frame) {
  const idd::Result<T> payload = ParsePayload<T>(frame);
  IDD_CHECK(payload.ok() == (frame.payload.size() == sizeof(T)));
  std::string reason;
  // The reply to whatever request its type names.
  const auto request = static_cast<FrameType>(frame.header.type & ~kReplyBit);
  const idd::Result<T> reply = ParseReply<T>(frame, request, &reason);
  IDD_CHECK(!reply.ok() || (frame.header.type & kReplyBit) != 0);
  IDD_CHECK(!reply.ok() || sizeof(T) + reason.size() == frame.payload.size());
  IDD_CHECK(!reply.ok() || reason.size() <= kMaxReasonBytes);
  if constexpr (requires(T t) { t.tag; }) {
    if (payload.ok()) ReadTag(payload.value().tag);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that a sanitizer sees a read beyond it.
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::vector<std::byte> message(bytes.begin(), bytes.end());
  const idd::Result<FrameView> frame = ParseFrame(message);
  if (!frame.ok()) {
    IDD_CHECK(!frame.status().message().empty());
    static_cast<void>(
        CheckTagName(std::string_view(reinterpret_cast<const char*>(data), size)).ok());
    return 0;
  }
  IDD_CHECK(frame.value().header.frame_bytes == size && size <= kMaxFrameBytes);
  IDD_CHECK(frame.value().payload.size() + sizeof(FrameHeader) == size);
  ReadPayload<HelloRequest>(frame.value());
  ReadPayload<HelloReply>(frame.value());
  ReadPayload<AttachRequest>(frame.value());
  ReadPayload<AttachReply>(frame.value());
  ReadPayload<ClaimRequest>(frame.value());
  ReadPayload<ClaimReply>(frame.value());
  ReadPayload<RefillNotice>(frame.value());
  ReadPayload<StatusReply>(frame.value());
  ReadPayload<AdminReply>(frame.value());
  return 0;
}

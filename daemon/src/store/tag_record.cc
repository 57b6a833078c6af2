// SPDX-License-Identifier: Apache-2.0
#include "store/tag_record.h"

namespace idd::daemon {
namespace {

constexpr const char* kRing = "ring";
constexpr const char* kSocket = "socket";

}  // namespace

const char* TagAccessName(TagAccess access) noexcept {
  return access == TagAccess::kSocket ? kSocket : kRing;
}

std::optional<TagAccess> ParseTagAccess(std::string_view name) noexcept {
  if (name == kRing) return TagAccess::kRing;
  if (name == kSocket) return TagAccess::kSocket;
  return std::nullopt;
}

}  // namespace idd::daemon

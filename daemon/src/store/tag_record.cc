// SPDX-License-Identifier: Apache-2.0
#include "store/tag_record.h"

namespace idd::daemon {
namespace {

constexpr const char* kRing = "ring";
constexpr const char* kSocket = "socket";
constexpr const char* kSegment = "segment";
constexpr const char* kSnowflake = "snowflake";
constexpr const char* kTicket = "ticket";
constexpr const char* kHost = "host";
constexpr const char* kCpu = "cpu";

}  // namespace

const char* TagAccessName(TagAccess access) noexcept {
  return access == TagAccess::kSocket ? kSocket : kRing;
}

std::optional<TagAccess> ParseTagAccess(std::string_view name) noexcept {
  if (name == kRing) return TagAccess::kRing;
  if (name == kSocket) return TagAccess::kSocket;
  return std::nullopt;
}

const char* TagModeName(TagMode mode) noexcept {
  switch (mode) {
    case TagMode::kSegment:
      break;
    case TagMode::kSnowflake:
      return kSnowflake;
    case TagMode::kTicket:
      return kTicket;
  }
  return kSegment;
}

const char* TagOrderName(TagOrder order) noexcept { return order == TagOrder::kCpu ? kCpu : kHost; }

std::optional<TagOrder> ParseTagOrder(std::string_view name) noexcept {
  if (name == kHost) return TagOrder::kHost;
  if (name == kCpu) return TagOrder::kCpu;
  return std::nullopt;
}

std::optional<TagMode> ParseTagMode(std::string_view name) noexcept {
  if (name == kSegment) return TagMode::kSegment;
  if (name == kSnowflake) return TagMode::kSnowflake;
  if (name == kTicket) return TagMode::kTicket;
  return std::nullopt;
}

}  // namespace idd::daemon

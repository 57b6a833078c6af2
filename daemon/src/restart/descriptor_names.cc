// SPDX-License-Identifier: Apache-2.0
#include "restart/descriptor_names.h"

#include <cstddef>

#include "platform/random.h"

namespace idd::daemon {
namespace {

constexpr char kTablePrefix = 't';
constexpr char kCursorsPrefix = 'c';
constexpr std::size_t kDigits = 3;       // of base 64
constexpr std::size_t kLongDigits = 11;  // of a whole id
constexpr std::string_view kAlphabet =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
constexpr std::uint64_t kNumbers = DescriptorStore::kNumbers;
static_assert(kNumbers == 64UL * 64 * 64);

// The last digits of the id.
std::string Digits(std::uint64_t id, std::size_t count) {
  std::string digits(count, '0');
  for (std::size_t i = count; i > 0; --i, id /= kAlphabet.size()) {
    digits[i - 1] = kAlphabet[id % kAlphabet.size()];
  }
  return digits;
}

std::uint32_t NumberOf(std::uint64_t ring_id) {
  return static_cast<std::uint32_t>(ring_id % kNumbers);
}

// Nothing if the name is no name of a ring, or a longer one.
std::optional<std::uint32_t> NumberIn(std::string_view name) {
  const std::optional<RingPart> part = ParseRingName(name);
  if (!part.has_value() || part->ring.size() != kDigits) return std::nullopt;
  std::uint32_t number = 0;
  for (const char digit : part->ring) {
    number = number * static_cast<std::uint32_t>(kAlphabet.size()) +
             static_cast<std::uint32_t>(kAlphabet.find(digit));
  }
  return number;
}

}  // namespace

std::uint64_t NewRingId(DescriptorStore& descriptors) {
  // RandomId() is not 0, and neither are its upper bits in practice; an id of 0 means no ring.
  std::uint64_t upper = 0;
  while (upper == 0) upper = RandomId() / kNumbers;
  return upper * kNumbers + descriptors.TakeNumber();
}

void FreeRingId(DescriptorStore& descriptors, std::uint64_t ring_id) {
  descriptors.FreeNumber(NumberOf(ring_id));
}

std::string TableName(std::uint64_t ring_id) { return kTablePrefix + RingKey(ring_id); }
std::string CursorsName(std::uint64_t ring_id) { return kCursorsPrefix + RingKey(ring_id); }

void DropRing(DescriptorStore& descriptors, std::uint64_t ring_id) {
  descriptors.Drop(TableName(ring_id));
  descriptors.Drop(CursorsName(ring_id));
  FreeRingId(descriptors, ring_id);
}

void DropInherited(DescriptorStore& descriptors, const std::string& name) {
  descriptors.Drop(name);
  if (const auto number = NumberIn(name)) descriptors.FreeNumber(*number);
}

void ReserveInherited(DescriptorStore& descriptors, const std::string& name) {
  if (const auto number = NumberIn(name)) descriptors.ReserveNumber(*number);
}

std::optional<RingPart> ParseRingName(std::string_view name) {
  if (name.size() != kDigits + 1 && name.size() != kLongDigits + 1) return std::nullopt;
  if (name[0] != kTablePrefix && name[0] != kCursorsPrefix) return std::nullopt;
  if (name.find_first_not_of(kAlphabet, 1) != std::string_view::npos) return std::nullopt;
  return RingPart{.ring = std::string(name.substr(1)), .is_table = name[0] == kTablePrefix};
}

std::string RingKey(std::uint64_t ring_id) { return Digits(ring_id, kDigits); }
std::string LongRingKey(std::uint64_t ring_id) { return Digits(ring_id, kLongDigits); }

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "platform/possible_cpus.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

#include "idd/shm/abi.h"

namespace idd::daemon {
namespace {

std::uint32_t set_for_test = 0;

std::uint32_t AskKernel() {
  std::ifstream file("/sys/devices/system/cpu/possible");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::optional<std::uint32_t> count = ParsePossibleCpus(text);
  if (count.has_value()) return *count;
  const long configured = ::sysconf(_SC_NPROCESSORS_CONF);  // without /sys
  return static_cast<std::uint32_t>(std::clamp<long>(configured, 1, shm::kMaxLanes));
}

}  // namespace

std::uint32_t PossibleCpus() {
  static const std::uint32_t count = AskKernel();
  return set_for_test != 0 ? set_for_test : count;
}

std::optional<std::uint32_t> ParsePossibleCpus(std::string_view text) {
  std::optional<std::uint32_t> count;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end && *at != '\n') {
    std::uint32_t cpu = 0;
    const auto [after, error] = std::from_chars(at, end, cpu);
    if (error != std::errc()) return std::nullopt;
    count = std::max(count.value_or(0), std::min(cpu, shm::kMaxLanes - 1) + 1);
    at = after;
    if (at != end && (*at == '-' || *at == ',')) {
      if (++at == end) return std::nullopt;
    } else if (at != end && *at != '\n') {
      return std::nullopt;
    }
  }
  return count;
}

void SetPossibleCpusForTest(std::uint32_t count) { set_for_test = count; }

}  // namespace idd::daemon

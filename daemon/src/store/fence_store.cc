// SPDX-License-Identifier: Apache-2.0
#include "store/fence_store.h"

#include <array>
#include <charconv>

#include "platform/random.h"

namespace idd::daemon {
namespace {

struct MemberStateRow {
  MemberState state;
  const char* name;
};
constexpr std::array<MemberStateRow, 4> kMemberStates = {{{MemberState::kLive, "live"},
                                                          {MemberState::kWaiting, "waiting"},
                                                          {MemberState::kOut, "out"},
                                                          {MemberState::kLeft, "left"}}};

}  // namespace

std::string MakeRun(std::uint64_t number) {
  // Above all hexadecimal digits, with which the runs of an older idd begin.
  std::string run = "j";
  for (int shift = 4 * (static_cast<int>(kRunNumberSize) - 2); shift >= 0; shift -= 4) {
    run += "0123456789abcdef"[(number >> static_cast<unsigned>(shift)) & 0xfU];
  }
  return run + RandomToken().substr(kRunNumberSize);
}

std::string RunOfConnection(std::string_view found) {
  std::string run = MakeRun(0);
  if (found.size() >= kRunNumberSize) run.replace(0, kRunNumberSize, found, 0, kRunNumberSize);
  return run;
}

std::uint64_t NumberOfRun(std::string_view run) noexcept {
  std::uint64_t number = 0;
  if (run.size() < kRunNumberSize || run.front() != 'j') return 0;
  const char* const end = run.data() + kRunNumberSize;
  return std::from_chars(run.data() + 1, end, number, 16).ptr == end ? number : 0;
}

bool IsOlderRun(std::string_view run, std::string_view other) noexcept {
  return run.substr(0, kRunNumberSize) < other.substr(0, kRunNumberSize);
}

const char* MemberStateName(MemberState state) noexcept {
  for (const MemberStateRow& known : kMemberStates) {
    if (known.state == state) return known.name;
  }
  return "unknown";
}

std::optional<MemberState> ParseMemberState(std::string_view name) noexcept {
  for (const MemberStateRow& known : kMemberStates) {
    if (known.name == name) return known.state;
  }
  return std::nullopt;
}

}  // namespace idd::daemon

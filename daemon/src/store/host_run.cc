// SPDX-License-Identifier: Apache-2.0
#include "store/host_run.h"

#include "platform/random.h"

namespace idd::daemon {

std::string MakeRun(std::uint64_t number) {
  std::string run;
  for (int shift = 4 * (static_cast<int>(kRunNumberSize) - 1); shift >= 0; shift -= 4) {
    run += "0123456789abcdef"[(number >> static_cast<unsigned>(shift)) & 0xfU];
  }
  return run + RandomToken().substr(kRunNumberSize);
}

bool IsOlderRun(std::string_view run, std::string_view other) noexcept {
  return run.substr(0, kRunNumberSize) < other.substr(0, kRunNumberSize);
}

}  // namespace idd::daemon

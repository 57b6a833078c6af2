// SPDX-License-Identifier: Apache-2.0
#include "idd/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace idd::internal {

void CheckFailed(const char* file, int line, const char* condition) noexcept {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace idd::internal

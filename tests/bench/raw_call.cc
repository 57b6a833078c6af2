// SPDX-License-Identifier: Apache-2.0
#include "raw_call.h"

int raw_claim(raw_handle* handle, uint64_t* id) {
  *id = __atomic_fetch_add(handle->cursor, 1, __ATOMIC_RELAXED);
  return 0;
}

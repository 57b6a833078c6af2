/* SPDX-License-Identifier: Apache-2.0
 *
 * To be preloaded: madvise() as an emulator has it, which accepts every advice and follows none. */
#include <stddef.h>

int madvise(void* address, size_t bytes, int advice);
int madvise(void* address, size_t bytes, int advice) {
  (void)address;
  (void)bytes;
  (void)advice;
  return 0;
}

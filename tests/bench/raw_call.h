/* SPDX-License-Identifier: Apache-2.0
 *
 * The lower bound for a claim by a call: a function in a shared library, with idclient_claim's
 * signature, that follows one pointer from its handle and does a raw fetch_add. */
#ifndef IDD_TESTS_BENCH_RAW_CALL_H_
#define IDD_TESTS_BENCH_RAW_CALL_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct raw_handle {
  uint64_t* cursor;
} raw_handle;

__attribute__((visibility("default"))) int raw_claim(raw_handle* handle, uint64_t* id);

#ifdef __cplusplus
}
#endif

#endif /* IDD_TESTS_BENCH_RAW_CALL_H_ */

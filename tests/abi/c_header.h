/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IDD_TESTS_ABI_C_HEADER_H_
#define IDD_TESTS_ABI_C_HEADER_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

size_t c_options_size(void);
/* The offset of the field-th member. */
size_t c_options_offset(int field);
int c_initializer_is_complete(void);
/* 0, or the number of the call that failed. */
int c_calls_fail_politely(void);

#ifdef __cplusplus
}
#endif

#endif /* IDD_TESTS_ABI_C_HEADER_H_ */

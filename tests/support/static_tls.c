/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that takes 72 bytes of static thread-local storage, as many do that expect to be loaded
 * when the program starts. */
static __thread char storage[72] __attribute__((tls_model("initial-exec")));

char* idd_test_storage(void);
char* idd_test_storage(void) { return storage; }

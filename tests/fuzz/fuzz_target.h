// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_FUZZ_FUZZ_TARGET_H_
#define IDD_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>

// libFuzzer's entry point. Visible, because the fuzzer's runtime looks it up.
extern "C" __attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(
    const std::uint8_t* data, std::size_t size);

#endif  // IDD_TESTS_FUZZ_FUZZ_TARGET_H_

// SPDX-License-Identifier: Apache-2.0
//
// main() of the tests that mount file systems.
#include <gtest/gtest.h>

#include "support/mount_namespace.h"

int main(int argc, char** argv) {
  idd::harness::EnterMountNamespace(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

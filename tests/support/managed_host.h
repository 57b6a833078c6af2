// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_MANAGED_HOST_H_
#define IDD_TESTS_SUPPORT_MANAGED_HOST_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "support/host.h"
#include "support/service_manager_stand_in.h"
#include "support/temp_dir.h"

namespace idd::harness {

// A host with the tag `orders`, whose idd runs under a manager that keeps its descriptors.
class ManagedHostTest : public ::testing::Test {
 protected:
  ManagedHostTest() { host_.daemon.options().manager = &manager_; }

  void SetUp() override { host_.StartWithTag("orders", 1000); }
  // Claims `count` ids and expects that they follow the last one.
  void ExpectGoesOn(std::uint64_t count) {
    for (const std::uint64_t id : host_.idctl.Claim("orders", count)) ASSERT_EQ(id, ++last_);
  }

  const TempDir dir_;
  ServiceManagerStandIn manager_{dir_};
  Host host_{dir_};
  std::uint64_t last_ = 0;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_MANAGED_HOST_H_

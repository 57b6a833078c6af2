// SPDX-License-Identifier: Apache-2.0
//
// A resolver, or a server of users and groups, that does not answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "support/host.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

class HungNames : public ::testing::Test {
 protected:
  void SetUp() override {
    if (SlowdownFactor() != 1) GTEST_SKIP() << "a sanitizer's runtime must be loaded first";
    host_.daemon.options().environment = {std::string("LD_PRELOAD=") + IDD_TEST_HUNG_NAMES};
  }

  const TempDir dir_;
  Host host_{dir_};
};

// The look-up held the lease worker for as long as it took, and then the end of the process.
TEST_F(HungNames, OfTheDatabaseKeepNeitherTheReasonNorTheStopWaiting) {
  host_.daemon.options().database = "mysql://idd:secret@db1.test,db2.test:3307/idd";
  host_.daemon.Start();
  EXPECT_TRUE(host_.daemon.WaitForLogLine("store.down.*look-up of host 'db1.test'.*'db2.test'", 0,
                                          Patience(30s)))
      << host_.daemon.Log();
  host_.daemon.Stop();
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("idd.stopped"));
}

TEST_F(HungNames, OfAGroupAreAnErrorOfTheConfiguration) {
  WriteFile(host_.daemon.options().config,
            "[[access]]\ntags = [\"*\"]\ngroups = [\"billing\"]\naccess = \"shm\"\n");
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(30s)), 2);
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("look-up of group 'billing' has not ended"));
}

}  // namespace
}  // namespace idd::harness

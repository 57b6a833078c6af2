// SPDX-License-Identifier: Apache-2.0
//
// How idd divides its descriptors among its peers.
#include "access/admission_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

namespace idd::daemon {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kDaemonOperator = 0;
constexpr uid_t kAdministrator = 900;
constexpr uid_t kFirstUser = 1001;

class AdmissionControlTest : public ::testing::Test {
 protected:
  AdmissionControlTest() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rules_ = {{.tags = {"*"}, .users = {}, .groups = {5}, .access = Access::kShm, .ids_per_s = {}},
              {.tags = {"*"},
               .users = {kAdministrator},
               .groups = {},
               .access = Access::kAdmin,
               .ids_per_s = {}}};
  }
  ~AdmissionControlTest() override { ::setrlimit(RLIMIT_NOFILE, &before_); }

  void SetLimit(rlim_t descriptors) {
    const rlimit limit{descriptors, before_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    gate_.Configure(rules_, {.connections_per_uid = 1000, .requests_per_s_per_uid = 1000});
  }
  static Peer User(uid_t uid) { return {.pid = 1, .uid = uid, .gid = 5, .groups = {}}; }
  std::size_t AdmitAll(uid_t uid) {
    std::size_t admitted = 0;
    while (admitted < 30'000 && gate_.Admit(User(uid)).ok()) ++admitted;
    return admitted;
  }

  rlimit before_{};
  std::vector<AccessRule> rules_;
  AdmissionControl gate_;
};

TEST_F(AdmissionControlTest, EachUserGetsHalfOfWhatIsLeftAndOperatorsTheRest) {
  SetLimit(64);
  ASSERT_EQ(gate_.most_connections(), 24U) << "32 beside idd's own; a quarter of them is for rings";
  EXPECT_EQ(gate_.connections_per_uid(), 11U);
  EXPECT_EQ(AdmitAll(kFirstUser), 11U);
  EXPECT_THAT(gate_.Admit(User(kFirstUser)).message(), HasSubstr("LimitNOFILE="));
  EXPECT_EQ(AdmitAll(kFirstUser + 1), 5U);
  EXPECT_EQ(AdmitAll(kFirstUser + 2), 3U);
  std::size_t users = 3;
  while (AdmitAll(static_cast<uid_t>(kFirstUser + users)) > 0) ++users;
  EXPECT_THAT(gate_.Admit(User(2000)).message(), HasSubstr("too many connections"));
  EXPECT_TRUE(gate_.Admit(User(kAdministrator)).ok());
  EXPECT_TRUE(gate_.Admit(User(kDaemonOperator)).ok());
  EXPECT_TRUE(gate_.Admit(User(kDaemonOperator)).ok());
  EXPECT_FALSE(gate_.Admit(User(kDaemonOperator)).ok()) << "all 24 are taken";
  gate_.Release(User(kFirstUser));
  EXPECT_TRUE(gate_.Admit(User(kDaemonOperator)).ok());
}

TEST_F(AdmissionControlTest, RingsAndHeldDescriptorsCount) {
  SetLimit(64);
  gate_.Poll(MonotonicTime{}, 8);
  EXPECT_EQ(gate_.most_connections(), 16U);
  EXPECT_EQ(AdmitAll(kFirstUser), 7U);
  EXPECT_FALSE(gate_.HoldDescriptors(User(kFirstUser), 2));
  EXPECT_TRUE(gate_.HoldDescriptors(User(kFirstUser + 1), 2));
  EXPECT_TRUE(gate_.HoldDescriptors(User(kFirstUser + 1), 2));
  EXPECT_FALSE(gate_.Admit(User(kFirstUser + 1)).ok()) << "it holds four, three are free";
  gate_.ReleaseDescriptors(User(kFirstUser + 1), 4);
  EXPECT_TRUE(gate_.Admit(User(kFirstUser + 1)).ok());
}

TEST_F(AdmissionControlTest, DescriptorsUnderWayAreDividedLikeThoseThatAreHeld) {
  SetLimit(64);
  const auto pass_all = [this](uid_t uid) {
    std::size_t passed = 0;
    while (passed < 1000 && gate_.PassDescriptors(User(uid), 2)) passed += 2;
    return passed;
  };
  const std::size_t first = pass_all(kFirstUser);
  EXPECT_EQ(first, 22U);
  EXPECT_EQ(pass_all(kFirstUser + 1), 10U);
  EXPECT_GT(pass_all(kFirstUser + 2), 0U);
  EXPECT_GE(pass_all(kDaemonOperator), 14U);
  gate_.DescriptorsArrived(User(kFirstUser), first);
  EXPECT_TRUE(gate_.PassDescriptors(User(kFirstUser), 2));
}

TEST_F(AdmissionControlTest, LimitOfTheProcessIsReadAgainEachSecond) {
  SetLimit(1024);
  EXPECT_EQ(gate_.most_connections(), 744U);
  const rlimit lower{64, before_.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  gate_.Poll(MonotonicTime{}, 0);
  EXPECT_EQ(gate_.most_connections(), 24U);
}

TEST_F(AdmissionControlTest, ManyDescriptorsLeaveTheConfiguredLimits) {
  if (before_.rlim_max < 65536) GTEST_SKIP() << "this process may not have that many";
  SetLimit(65536);
  EXPECT_EQ(gate_.most_connections(), 20'000U);
  EXPECT_EQ(gate_.connections_per_uid(), 1000U);
  EXPECT_EQ(AdmitAll(kFirstUser), 1000U);
  EXPECT_THAT(gate_.Admit(User(kFirstUser)).message(), HasSubstr("connections_per_uid"));
}

}  // namespace
}  // namespace idd::daemon

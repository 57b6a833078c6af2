// SPDX-License-Identifier: Apache-2.0
//
// idd lifts a store that went backwards (a restored backup, an edited max_id) instead of believing
// it.
#include <gtest/gtest.h>

#include <csignal>

#include "support/host.h"
#include "support/scrape.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

class HighWater : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", 100); }

  // Expects a warning or error line with both numbers: the store's value and the one it was lifted
  // to.
  void ExpectAlarm(std::uint64_t store, std::uint64_t mark, std::size_t since) {
    const std::string low = "[= ]" + std::to_string(store) + "\\b.*[= ]" + std::to_string(mark);
    const std::string high = "[= ]" + std::to_string(mark) + "\\b.*[= ]" + std::to_string(store);
    EXPECT_TRUE(host_.daemon.WaitForLogLine("(warn|err).*(" + low + "|" + high + ")\\b", since,
                                            Patience(2s)))
        << "no alarm with " << store << " and " << mark << ":\n"
        << host_.daemon.LogSince(since);
  }
  [[nodiscard]] double AlarmsCounted() const {
    return Scrape(host_.idctl.Run({"metrics"}).out)
        .At("idd_store_alarms_total{kind=\"backwards\"}");
  }

  const TempDir dir_;
  CleanHost host_{dir_};
};

TEST_F(HighWater, LiftsAStoreThatWasSetBackWhileTheDaemonWasStopped) {
  const std::uint64_t last = host_.idctl.Claim("orders", 250).back();
  host_.daemon.Stop();
  const std::uint64_t mark = host_.Database().MaxId("orders");
  EXPECT_EQ(mark, last + 1);
  host_.Database().SetMaxId("orders", 7);
  const std::size_t since = host_.daemon.LogMark();
  host_.daemon.Start();
  EXPECT_GT(host_.idctl.Claim("orders").front(), last);
  ExpectAlarm(7, mark, since);
  EXPECT_EQ(AlarmsCounted(), 1);
  EXPECT_GT(host_.Database().MaxId("orders"), last);
}

TEST_F(HighWater, LiftsAStoreThatWasSetBackWhileTheDaemonRuns) {
  std::vector<std::uint64_t> ids = host_.idctl.Claim("orders", 150);
  // All leases for now are taken: one segment in use, one ahead.
  ASSERT_TRUE(WaitUntil(Patience(5s), [this] { return host_.Database().MaxId("orders") == 301; }));
  const std::size_t since = host_.daemon.LogMark();
  host_.Database().SetMaxId("orders", 3);
  for (const std::uint64_t id : host_.idctl.Claim("orders", 500)) {
    ASSERT_GT(id, ids.back());
    ids.push_back(id);
  }
  ExpectAlarm(3, 301, since);
}

TEST_F(HighWater, BelievesAStoreThatStandsHigher) {
  (void)host_.idctl.Claim("orders", 10);
  host_.daemon.Stop();
  host_.Database().SetMaxId("orders", 5000);
  const std::size_t since = host_.daemon.LogMark();
  host_.daemon.Start();
  EXPECT_EQ(host_.idctl.Claim("orders").front(), 5000U);
  EXPECT_FALSE(host_.daemon.WaitForLogLine("backwards", since, std::chrono::milliseconds(0)));
  EXPECT_EQ(AlarmsCounted(), 0);
}

}  // namespace
}  // namespace idd::harness

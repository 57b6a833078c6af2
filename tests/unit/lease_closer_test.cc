// SPDX-License-Identifier: Apache-2.0
#include "leasing/lease_closer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "support/service_harness.h"

namespace idd::daemon {
namespace {

class LeaseCloserTest : public ::testing::Test {
 protected:
  LeaseCloserTest() { h_.Start(); }

  [[nodiscard]] std::ptrdiff_t Calls(const std::string& name) const {
    const std::vector<std::string> calls = h_.store.script.calls();
    return std::count(calls.begin(), calls.end(), name);
  }

  WorkerHarness h_;
};

TEST_F(LeaseCloserTest, WhatAnOutageHasLeftLetsLeasesThrough) {
  LeaseCloser closer(h_.worker, *h_.held, [] {});
  std::vector<LeaseClosure> closures;
  for (int i = 0; i < 250; ++i) {
    closures.push_back({.token = "token-" + std::to_string(i), .tag = "orders"});
  }
  bool lease_answered = false;
  std::ptrdiff_t closed_before_lease = 0;
  closer.Close(std::move(closures));
  h_.worker.Submit<bool>(
      [&](Store&, HighWaterMarks&) -> Result<bool> {
        closed_before_lease = Calls("CloseLeases");
        return true;
      },
      [&](const Result<bool>&) { lease_answered = true; });
  ASSERT_TRUE(h_.RunUntil([&] { return lease_answered && closer.idle(); }));
  EXPECT_EQ(closed_before_lease, 1);
  EXPECT_EQ(Calls("CloseLeases"), 3);
  EXPECT_TRUE(closer.Open().empty());
}

TEST_F(LeaseCloserTest, EndsOfABusyHostGoTogether) {
  LeaseCloser closer(h_.worker, *h_.held, [] {});
  const auto close = [&closer](int number) {
    closer.Close({{.token = "token-" + std::to_string(number), .tag = "orders"}});
  };
  const MonotonicTime began = MonotonicClock::now();
  close(0);
  ASSERT_TRUE(h_.RunUntil([&] { return closer.Open().empty(); })) << "the first must not wait";
  for (int i = 1; i <= 20; ++i) close(i);
  if (MonotonicClock::now() - began < std::chrono::milliseconds(500)) {
    EXPECT_TRUE(closer.idle());
    EXPECT_EQ(closer.Open().size(), 20U);
    EXPECT_EQ(Calls("CloseLeases"), 1);
  }
  closer.Flush();
  ASSERT_TRUE(h_.RunUntil([&] { return closer.idle(); }));
  EXPECT_TRUE(closer.Open().empty());
  EXPECT_LE(Calls("CloseLeases"), 3);
}

TEST_F(LeaseCloserTest, EndsThatFillATransactionDoNotWait) {
  LeaseCloser closer(h_.worker, *h_.held, [] {});
  for (int i = 0; i < 101; ++i) {
    closer.Close({{.token = "token-" + std::to_string(i), .tag = "orders"}});
  }
  ASSERT_TRUE(h_.RunUntil([&] { return closer.Open().empty(); }));
  EXPECT_LE(Calls("CloseLeases"), 3);
}

TEST_F(LeaseCloserTest, EndsWaitForNoOthersOnceItIsHurried) {
  LeaseCloser closer(h_.worker, *h_.held, [] {});
  closer.Hurry();
  for (int i = 0; i < 5; ++i) {
    closer.Close({{.token = "token-" + std::to_string(i), .tag = "orders"}});
    EXPECT_FALSE(closer.idle());
    ASSERT_TRUE(h_.RunUntil([&] { return closer.idle(); }));
    EXPECT_TRUE(closer.Open().empty());
  }
}

// Regression: one row that the database refused kept the ends of all leases out of the journal.
TEST_F(LeaseCloserTest, EndThatIsRefusedKeepsNoOtherWaiting) {
  h_.store.RefuseEnds({"token-17", "token-60"});
  LeaseCloser closer(h_.worker, *h_.held, [] {});
  std::vector<LeaseClosure> closures;
  for (int i = 0; i < 100; ++i) {
    closures.push_back({.token = "token-" + std::to_string(i), .tag = "orders"});
  }
  closer.Close(std::move(closures));
  ASSERT_TRUE(h_.RunUntil([&] { return closer.idle(); }));
  EXPECT_EQ(closer.Open().size(), 2U);
  EXPECT_TRUE(closer.Open().contains("token-17") && closer.Open().contains("token-60"));
  EXPECT_LE(Calls("CloseLeases"), 60);
  closer.Close({{.token = "token-100", .tag = "orders"}});
  closer.Flush();
  ASSERT_TRUE(h_.RunUntil([&] { return closer.idle() && !closer.Open().contains("token-100"); }));
  h_.store.RefuseEnds({});
  for (int i = 0; i < 2; ++i) {
    closer.Flush();
    ASSERT_TRUE(h_.RunUntil([&] { return closer.idle(); }));
  }
  EXPECT_TRUE(closer.Open().empty()) << "each is tried again";
}

}  // namespace
}  // namespace idd::daemon

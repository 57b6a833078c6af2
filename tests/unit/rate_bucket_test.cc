// SPDX-License-Identifier: Apache-2.0
#include "platform/rate_bucket.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "leasing/lease_scheduler.h"

namespace idd::daemon {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;

bool TakeOne(RateBucket& bucket, RateBucket::Rate rate, MonotonicTime now) {
  if (bucket.ReadyAt(1, rate, now) > now) return false;
  bucket.Take(1, rate, now);
  return true;
}

TEST(RateBucketTest, BurstAtOnceAndThenItsRate) {
  const RateBucket::Rate rate = LeaseRate(100);
  RateBucket bucket;
  MonotonicTime now = MonotonicTime{} + 1h;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(TakeOne(bucket, rate, now)) << i;
  EXPECT_FALSE(TakeOne(bucket, rate, now));
  EXPECT_FALSE(TakeOne(bucket, rate, now + 9ms));
  EXPECT_TRUE(TakeOne(bucket, rate, now + 11ms));
  now += 1h;
  EXPECT_TRUE(bucket.IsFull(now));
  int taken = 0;
  while (TakeOne(bucket, rate, now)) ++taken;
  EXPECT_EQ(taken, 10) << "no more is saved up";
}

TEST(RateBucketTest, WaitUntilReadyAtIsLongEnough) {
  const RateBucket::Rate rate = LeaseRate(1000);
  RateBucket bucket;
  MonotonicTime now = MonotonicTime{} + 1h;
  while (TakeOne(bucket, rate, now)) {
  }
  for (int i = 0; i < 1000; ++i) {
    const MonotonicTime next = bucket.ReadyAt(1, rate, now);
    EXPECT_GT(next, now);
    EXPECT_LE(next - now, 2ms);
    now = next;
    EXPECT_TRUE(TakeOne(bucket, rate, now)) << i;
  }
}

TEST(RateBucketTest, WhatIsGivenBackIsThereAtOnce) {
  const RateBucket::Rate rate{.per_s = 10, .burst = 10};
  RateBucket bucket;
  const MonotonicTime now = MonotonicTime{} + 1h;
  bucket.Take(10, rate, now);
  EXPECT_EQ(bucket.ReadyAt(4, rate, now), now + 400ms);
  bucket.GiveBack(4, rate);
  EXPECT_EQ(bucket.ReadyAt(4, rate, now), now);
  EXPECT_EQ(bucket.ReadyAt(5, rate, now), now + 100ms);
}

TEST(RateBucketTest, LimitOfLeasesIsNeverNone) {
  for (const std::uint32_t per_s : {0U, 1U, 9U}) {
    EXPECT_GE(LeaseRate(per_s).per_s, 1U) << per_s;
    EXPECT_EQ(LeaseRate(per_s).burst, 1U) << per_s;
  }
}

}  // namespace
}  // namespace idd::daemon

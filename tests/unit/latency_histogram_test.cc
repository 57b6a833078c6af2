// SPDX-License-Identifier: Apache-2.0
#include "bench/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace idd::tools {
namespace {

class LatencyHistogramTest : public ::testing::Test {
 protected:
  // On the heap, because a histogram takes some 60 KiB.
  std::unique_ptr<LatencyHistogram> histogram_ = std::make_unique<LatencyHistogram>();
};

TEST_F(LatencyHistogramTest, EmptyOneAnswersZero) {
  EXPECT_EQ(histogram_->count(), 0U);
  EXPECT_EQ(histogram_->max(), 0U);
  EXPECT_EQ(histogram_->Percentile(0.5), 0U);
  EXPECT_EQ(histogram_->Percentile(1), 0U);
}

TEST_F(LatencyHistogramTest, SmallValuesAreExact) {
  for (std::uint64_t value = 1; value <= 50; ++value) histogram_->Add(value);
  EXPECT_EQ(histogram_->Percentile(0.02), 1U);
  EXPECT_EQ(histogram_->Percentile(0.5), 25U);
  EXPECT_EQ(histogram_->Percentile(0.9), 45U);
  EXPECT_EQ(histogram_->Percentile(1), 50U);
}

TEST_F(LatencyHistogramTest, EveryPowerOfTwoAndItsNeighboursAreReportedWithTwoDigits) {
  for (unsigned shift = 0; shift < 64; ++shift) {
    for (const std::uint64_t value :
         {(std::uint64_t{1} << shift) - 1, std::uint64_t{1} << shift,
          (std::uint64_t{1} << shift) + (std::uint64_t{1} << shift) / 3}) {
      const auto alone = std::make_unique<LatencyHistogram>();
      alone->Add(value);
      alone->Add(std::numeric_limits<std::uint64_t>::max());  // so that max() does not return it
      const std::uint64_t told = alone->Percentile(0.5);
      EXPECT_GE(told, value);
      EXPECT_LE(told - value, value / 128) << value;
    }
  }
}

TEST_F(LatencyHistogramTest, LargestNumberIsCounted) {
  histogram_->Add(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(histogram_->Percentile(0.99), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(histogram_->max(), std::numeric_limits<std::uint64_t>::max());
}

TEST_F(LatencyHistogramTest, PercentilesAreThoseOfTheSortedValues) {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> latencies(5, 2);
  std::vector<std::uint64_t> values(100'000);
  for (std::uint64_t& value : values) {
    value = static_cast<std::uint64_t>(latencies(random));
    histogram_->Add(value);
  }
  std::sort(values.begin(), values.end());
  for (const double part : {0.001, 0.5, 0.9, 0.99, 0.999, 0.9999}) {
    const std::uint64_t exact =
        values[static_cast<std::size_t>(part * static_cast<double>(values.size())) - 1];
    EXPECT_GE(histogram_->Percentile(part), exact) << part;
    EXPECT_LE(histogram_->Percentile(part), exact + exact / 128 + 1) << part;
  }
}

TEST_F(LatencyHistogramTest, SumOfTwoHoldsTheValuesOfBoth) {
  const auto other = std::make_unique<LatencyHistogram>();
  for (std::uint64_t value = 1; value <= 10; ++value) histogram_->Add(value);
  for (std::uint64_t value = 11; value <= 30; ++value) other->Add(value);
  histogram_->Add(*other);
  EXPECT_EQ(histogram_->count(), 30U);
  EXPECT_EQ(histogram_->max(), 30U);
  EXPECT_EQ(histogram_->Percentile(0.5), 15U);
}

// bench_run keeps histograms in zeroed pages that processes share.
TEST_F(LatencyHistogramTest, ZeroedMemoryIsAnEmptyOne) {
  static_assert(std::is_trivially_copyable_v<LatencyHistogram>);
  alignas(LatencyHistogram) static std::array<char, sizeof(LatencyHistogram)> memory{};
  auto* const in_pages = reinterpret_cast<LatencyHistogram*>(memory.data());
  EXPECT_EQ(in_pages->count(), 0U);
  in_pages->Add(7);
  EXPECT_EQ(in_pages->Percentile(0.5), 7U);
}

}  // namespace
}  // namespace idd::tools

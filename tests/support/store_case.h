// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_STORE_CASE_H_
#define IDD_TESTS_SUPPORT_STORE_CASE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "store/store.h"

namespace idd::daemon {

inline std::string TestToken(std::uint64_t number) {
  char text[33];
  std::snprintf(text, sizeof text, "%032llx", static_cast<unsigned long long>(number));
  return text;
}

inline LeaseRequest Request(std::uint64_t token, std::uint64_t mark = 0, std::uint64_t count = 1000,
                            const std::string& tag = "orders") {
  return {
      .tag = tag, .count = count, .high_water_mark = mark, .floor = 0, .token = TestToken(token)};
}

inline LeaseClosure Closure(std::uint64_t token, LeaseState state, std::uint64_t claimed) {
  return {.token = TestToken(token), .tag = "orders", .state = state, .claimed = claimed};
}

inline Lease Held(std::uint64_t token, shm::IdRange ids) {
  Lease lease;
  lease.token = TestToken(token);
  lease.tag = "orders";
  lease.ids = ids;
  return lease;
}

inline void ExpectDisjoint(std::vector<shm::IdRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    ASSERT_LE(ranges[i - 1].limit, ranges[i].first) << "ids were leased twice";
  }
}

// Steps of tests on an allocator, with the tag "orders" (first id 1, step 1000).
class StoreCase : public ::testing::Test {
 protected:
  static void CreateTag(Store& store, const std::string& name) {
    NewTag tag;
    tag.tag = name;
    const Result<TagRecord> created = store.CreateTag(tag);
    ASSERT_TRUE(created.ok()) << created.status().message();
  }
  static void CreateOrders(Store& store) { CreateTag(store, "orders"); }
  static shm::IdRange Take(Store& store, const LeaseRequest& request) {
    const Result<Lease> lease = store.TakeLease(request);
    EXPECT_TRUE(lease.ok()) << lease.status().message();
    return lease.ok() ? lease.value().ids : shm::IdRange{};
  }
  static void Return(Store& store, std::uint64_t token, std::uint64_t claimed,
                     ReturnOutcome expected) {
    const Result<ReturnOutcome> outcome =
        store.ReturnTail(Closure(token, LeaseState::kReturned, claimed));
    ASSERT_TRUE(outcome.ok()) << outcome.status().message();
    EXPECT_EQ(outcome.value(), expected);
  }
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_SUPPORT_STORE_CASE_H_

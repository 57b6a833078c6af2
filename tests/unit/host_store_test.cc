// SPDX-License-Identifier: Apache-2.0
//
// What the allocator keeps about hosts, and how it forgets one, in a SQLite file. MySQL:
// tests/integration/host_forget_test.cc.
#include "store/host_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sqlite_test_support.h"
#include "store/store.h"

namespace idd::daemon {
namespace {

HostRecord Named(const std::string& id, const std::string& name) {
  HostRecord host{.host = id, .first_seen = "", .last_seen = ""};
  host.name = name;
  return host;
}

TEST(HostConditionTest, IsLiveUntilTheHostIsSilentOrSaysThatItStops) {
  HostRecord host{.host = "h", .first_seen = "", .last_seen = ""};
  host.silent_s = 60;
  EXPECT_STREQ(HostCondition(host), "live");
  host.silent_s = 61;
  EXPECT_STREQ(HostCondition(host), "silent");
  host.has_stopped = true;
  EXPECT_STREQ(HostCondition(host), "stopped");
  host.is_forgotten = true;
  EXPECT_STREQ(HostCondition(host), "forgotten");
}

TEST(FindHostIdTest, AnIdGoesBeforeANameAndANameMustBeOneHosts) {
  std::vector<HostRecord> hosts = {Named("a", "web"), Named("b", "a"), Named("c", "db"),
                                   Named("d", "db")};
  EXPECT_EQ(FindHostId(hosts, "a").value(), "a");
  EXPECT_EQ(FindHostId(hosts, "web").value(), "a");
  EXPECT_EQ(FindHostId(hosts, "other").value(), "other");
  EXPECT_EQ(FindHostId(hosts, "db").status().message(),
            "2 hosts have the name 'db': c, d; give the id of one of them");
  for (int i = 0; i < 20; ++i) hosts.push_back(Named("host-" + std::to_string(i), "db"));
  const Status many = FindHostId(hosts, "db").status();
  EXPECT_EQ(many.code(), Code::kInvalid);
  EXPECT_EQ(many.message(),
            "22 hosts have the name 'db': c, d, host-0, host-1, host-2, host-3, host-4, host-5, "
            "host-6, host-7, ...; give the id of one of them");
}

class HostStoreTest : public SqliteStoreTest {
 protected:
  static constexpr const char* kGone = "gone";

  void SetUp() override {
    own_ = OpenWithOrders("own");
    const auto gone = OpenStore(kGone);
    ASSERT_TRUE(
        gone->hosts()
            ->Introduce(
                {.name = "web", .address = "", .version = "1", .boot_id = "b", .report = ""})
            .ok());
    for (int i = 0; i < 5; ++i) Lease(*gone);
  }
  void Lease(Store& store) {
    ASSERT_TRUE(store
                    .TakeLease({.tag = "orders",
                                .count = 100,
                                .high_water_mark = 0,
                                .token = std::string(31, '0') + std::to_string(next_++)})
                    .ok());
  }
  void LetItBeSilent() const {
    Execute("UPDATE idd_host SET last_seen = datetime('now', '-61 seconds') WHERE host = 'gone'");
  }
  [[nodiscard]] std::string Abandoned() const {
    return Sql(path_,
               "SELECT count(*) || ' ' || coalesce(SUM(abandoned), 0) FROM idd_lease"
               " WHERE host = 'gone' AND state = 'abandoned'");
  }
  [[nodiscard]] static ForgetOrder Order(std::size_t rows = 200) {
    return {.host = kGone, .is_forced = false, .is_first = true, .rows = rows};
  }

  std::unique_ptr<SqliteStore> own_;
  int next_ = 0;
};

TEST_F(HostStoreTest, AHostThatWasSeenLatelyIsNotForgotten) {
  EXPECT_EQ(own_->hosts()->Forget(Order()).status().code(), Code::kInvalid);
  EXPECT_EQ(Abandoned(), "0 0");
  ForgetOrder forced = Order();
  forced.is_forced = true;
  const Result<ForgetOutcome> done = own_->hosts()->Forget(forced);
  ASSERT_TRUE(done.ok()) << done.status().message();
  EXPECT_EQ(done.value().leases, 5U);
  EXPECT_EQ(own_->hosts()->Forget({.host = "nobody"}).status().code(), Code::kInvalid);
}

TEST_F(HostStoreTest, BatchesEndAllLeasesAndNoOther) {
  Lease(*own_);
  LetItBeSilent();
  ForgetOrder order = Order(2);
  std::uint64_t leases = 0;
  int batches = 0;
  while (true) {
    const Result<ForgetOutcome> done = own_->hosts()->Forget(order);
    ASSERT_TRUE(done.ok()) << done.status().message();
    leases += done.value().leases;
    ++batches;
    order.is_first = false;
    if (done.value().is_done) break;
    ASSERT_LT(batches, 10);
  }
  EXPECT_EQ(batches, 3);
  EXPECT_EQ(leases, 5U);
  EXPECT_EQ(Abandoned(), "5 500");
  EXPECT_EQ(Sql(path_, "SELECT count(*) FROM idd_lease WHERE host = 'own' AND state = 'active'"),
            "1");
}

TEST_F(HostStoreTest, AHostThatComesBackBetweenBatchesKeepsTheRest) {
  LetItBeSilent();
  ForgetOrder order = Order(2);
  ASSERT_TRUE(own_->hosts()->Forget(order).ok());
  const auto back = OpenStore(kGone);
  const HostInfo info{.name = "web", .address = "", .version = "1", .boot_id = "b", .report = ""};
  EXPECT_TRUE(back->hosts()->Introduce(info).value());   // it had been forgotten
  EXPECT_FALSE(back->hosts()->Introduce(info).value());  // and is known now
  order.is_first = false;
  const Status refused = own_->hosts()->Forget(order).status();
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_NE(refused.message().find("has come back"), std::string::npos) << refused.message();
  EXPECT_EQ(Abandoned(), "2 200");
}

// The host's own end of a lease that was abandoned under it changes nothing.
TEST_F(HostStoreTest, AnAbandonedLeaseIsNeitherClosedNorHandedBackAgain) {
  LetItBeSilent();
  ASSERT_TRUE(own_->hosts()->Forget(Order()).ok());
  const std::string max_id = MaxId();
  const auto back = OpenStore(kGone);
  const std::string token(31, '0');
  ASSERT_TRUE(back->CloseLeases({{.token = token + "0",
                                  .tag = "orders",
                                  .state = LeaseState::kExhausted,
                                  .claimed = 100}})
                  .ok());
  const Result<ReturnOutcome> returned = back->ReturnTail(
      {.token = token + "4", .tag = "orders", .state = LeaseState::kReturned, .claimed = 10});
  ASSERT_TRUE(returned.ok()) << returned.status().message();
  EXPECT_EQ(returned.value(), ReturnOutcome::kStale);
  EXPECT_EQ(Abandoned(), "5 500");
  EXPECT_EQ(MaxId(), max_id);
}

TEST_F(HostStoreTest, ACrashLeavesAllOfABatchOrNone) {
  LetItBeSilent();
  for (const bool is_committed : {false, true}) {
    const char* const at = is_committed ? "forget.committed" : "forget.journalled";
    EXPECT_EQ(InChild([&] {
                const auto store = OpenStore("own", [at](const char* point) {
                  if (std::string(point) == at) ::_exit(7);
                });
                return store->hosts()->Forget(Order()).ok() ? 0 : 1;
              }),
              7);
    EXPECT_EQ(Abandoned(), is_committed ? "5 500" : "0 0");
  }
}

TEST_F(HostStoreTest, RecentLeasesAreAddedUpByTag) {
  const std::chrono::seconds window(300);
  Result<std::vector<RecentLeases>> recent = own_->SumRecent(window, std::nullopt);
  ASSERT_TRUE(recent.ok()) << recent.status().message();
  ASSERT_EQ(recent.value().size(), 1U);
  EXPECT_EQ(recent.value()[0].tag, "orders");
  EXPECT_EQ(recent.value()[0].leased, 500U);
  EXPECT_EQ(recent.value()[0].returned, 0U);
  EXPECT_TRUE(own_->SumRecent(window, "other").value().empty());
  Execute("UPDATE idd_lease SET leased_at = datetime('now', '-301 seconds') WHERE seq <= 2");
  EXPECT_EQ(own_->SumRecent(window, "orders").value().at(0).leased, 300U);
  const auto gone = OpenStore(kGone);
  ASSERT_TRUE(gone->ReturnTail({.token = std::string(31, '0') + "4",
                                .tag = "orders",
                                .state = LeaseState::kReturned,
                                .claimed = 10})
                  .ok());
  EXPECT_EQ(own_->SumRecent(window, "orders").value().at(0).returned, 90U);
}

}  // namespace
}  // namespace idd::daemon

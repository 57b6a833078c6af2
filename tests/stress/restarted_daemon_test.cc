// SPDX-License-Identifier: Apache-2.0
//
// idd is ended two hundred times under load, by SIGTERM and by SIGKILL in turn, and started again
// by a service manager that keeps its descriptors.
//
// Method: in turns of a few restarts, four processes make single claims as fast as they can, from
// before the first end until after the last start. Each id is above the one before it in its
// process. All of them together have claimed exactly the ids from the last turn's last to theirs:
// their number, their sum and the sum of their squares (modulo 2^64) are those of that range, which
// no set with a duplicate or a gap has but by a chance of nothing; one or two that are missing can
// be told from them. No claim fails. In the end max_id stands at the first id that nobody has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/claim_worker_process.h"
#include "support/host.h"
#include "support/service_manager_stand_in.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

constexpr int kRestarts = 200;
constexpr int kClaimers = 4;
// So few that what is missing of their ids can be named.
constexpr int kRestartsOfTurn = 4;

// What a set of ids is summed up to.
struct Tally {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  std::uint64_t sum_of_squares = 0;
  friend bool operator==(const Tally&, const Tally&) = default;
};

// Of 1 to `last`, modulo 2^64: what is divided by is divided out first.
Tally TallyTo(std::uint64_t last) {
  std::uint64_t factors[] = {last, last + 1, 2 * last + 1};
  factors[last % 2] /= 2;
  Tally tally{.count = last, .sum = factors[0] * factors[1]};
  for (std::uint64_t& factor : factors) {
    if (factor % 3 != 0) continue;
    factor /= 3;
    break;
  }
  tally.sum_of_squares = factors[0] * factors[1] * factors[2];
  return tally;
}

Tally Difference(const Tally& all, const Tally& part) {
  return {.count = all.count - part.count,
          .sum = all.sum - part.sum,
          .sum_of_squares = all.sum_of_squares - part.sum_of_squares};
}

// The two ids with that sum and that sum of squares, below 2^31; nothing when there are none.
std::optional<std::pair<std::uint64_t, std::uint64_t>> TwoOf(const Tally& two) {
  const std::uint64_t square = 2 * two.sum_of_squares - two.sum * two.sum;
  const auto distance = static_cast<std::uint64_t>(std::llround(std::sqrt(square)));
  if (distance == 0 || distance > two.sum) return std::nullopt;
  const std::pair ids((two.sum - distance) / 2, (two.sum + distance) / 2);
  const std::uint64_t squares = ids.first * ids.first + ids.second * ids.second;
  if (ids.first + ids.second != two.sum || squares != two.sum_of_squares) return std::nullopt;
  return ids;
}

// How many of the ids (from, to] are missing. Two ways are left to lose one (ADR 0010): idd is
// killed between taking it for a waiting request and sending it, about a microsecond, which was one
// id in some 1,700 restarts; and a claimer that is off its processor for 50 ms in the midst of a
// claim finds that idd has stopped, which takes a machine that is busy with other things. What is
// missing must be just those one or two ids: no other came twice in their place.
std::uint64_t ExpectComplete(const Tally& claimed, std::uint64_t from, std::uint64_t to) {
  const Tally missing = Difference(Difference(TallyTo(to), TallyTo(from)), claimed);
  std::pair<std::uint64_t, std::uint64_t> ids;
  switch (missing.count) {
    case 0:
      EXPECT_EQ(missing, Tally{});
      return 0;
    case 1:
      ids = {missing.sum, missing.sum};
      EXPECT_EQ(missing.sum_of_squares, missing.sum * missing.sum);
      break;
    case 2: {
      const auto two = TwoOf(missing);
      EXPECT_TRUE(two.has_value()) << "another id came twice";
      ids = two.value_or(ids);
      break;
    }
    default:
      ADD_FAILURE() << static_cast<std::int64_t>(missing.count) << " ids are missing";
      return missing.count;
  }
  EXPECT_GT(ids.first, from);
  EXPECT_LE(ids.second, to);
  std::printf("missing: %llu to %llu\n", static_cast<unsigned long long>(ids.first),
              static_cast<unsigned long long>(ids.second));
  return missing.count;
}

class RestartedDaemon : public ::testing::Test {
 protected:
  RestartedDaemon() : random_(TestSeed()) { host_.daemon.options().manager = &manager_; }

  void SetUp() override {
    host_.daemon.Start();
    host_.idctl.CreateTag("orders", 1'000'000);
  }

  void StartWorkers() {
    for (int i = 0; i < kClaimers; ++i) {
      WorkerPlan plan;
      plan.socket = host_.daemon.socket();
      plan.tag = "orders";
      plan.name = "claimer" + std::to_string(started_++);
      plan.tally = true;
      plan.timeout_ms = static_cast<std::uint64_t>(Patience(20s).count());
      plan.log_capacity = 16;
      workers_.push_back(std::make_unique<ClaimWorkerProcess>(dir_, plan));
    }
    for (const auto& worker : workers_) worker->WaitReady(Patience(10s));
    for (const auto& worker : workers_) worker->Go();
  }

  // What they claimed in all; `last` becomes their highest id.
  [[nodiscard]] Tally FinishWorkers(std::uint64_t& last) {
    Tally all;
    for (const auto& worker : workers_) worker->Stop();
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->Finish(Patience(30s)), 0) << worker->Failure();
      const ClaimLogHeader& header = worker->logs()[0].header();
      all.count += header.ids;
      all.sum += header.sum;
      all.sum_of_squares += header.sum_of_squares;
      last = std::max<std::uint64_t>(last, header.last_id);
      slowest_ns_ = std::max<std::uint64_t>(slowest_ns_, header.slowest_ns);
    }
    workers_.clear();
    return all;
  }

  void RestartOnce(bool kill) {
    const std::uint64_t from_ns = MonotonicNs();
    if (kill) {
      host_.daemon.Kill();
    } else {
      host_.daemon.Stop();
    }
    host_.daemon.Start();
    longest_restart_ns_ = std::max(longest_restart_ns_, MonotonicNs() - from_ns);
  }

  void ExpectWorkersLive() {
    for (const auto& worker : workers_) {
      Require(worker->process().Running(), worker->name() + ": " + worker->Failure());
    }
  }

  const TempDir dir_;
  ServiceManagerStandIn manager_{dir_};
  Host host_{dir_};
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<ClaimWorkerProcess>> workers_;
  int started_ = 0;
  std::uint64_t longest_restart_ns_ = 0;
  std::uint64_t slowest_ns_ = 0;
};

// A claimer is stopped when its claim fails by its deadline. How long a restart stops a claim is
// measured by tests/bench/refill_benchmark.cc.
TEST_F(RestartedDaemon, LosesNoIdAndStopsNoClaimer) {
  const int restarts = static_cast<int>(std::max<std::uint64_t>(20, ScaledLoad(kRestarts)));
  std::uint64_t last = 0;
  std::uint64_t count = 0;
  std::uint64_t missing = 0;
  for (int i = 0; i < restarts; i += kRestartsOfTurn) {
    StartWorkers();
    for (int j = i; j < i + kRestartsOfTurn; ++j) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20 + random_() % 100));
      ExpectWorkersLive();
      RestartOnce(j % 2 == 0);
    }
    const std::uint64_t before = last;
    const Tally claimed = FinishWorkers(last);
    count += claimed.count;
    missing += ExpectComplete(claimed, before, last);
    ASSERT_FALSE(HasFailure()) << "between restart " << i << " and " << i + kRestartsOfTurn;
  }
  std::printf(
      "%d restarts, %llu ids, %llu missing, longest restart %llu ms, slowest claim %llu ms\n",
      restarts, static_cast<unsigned long long>(count), static_cast<unsigned long long>(missing),
      static_cast<unsigned long long>(longest_restart_ns_ / 1'000'000),
      static_cast<unsigned long long>(slowest_ns_ / 1'000'000));
  EXPECT_LE(missing, static_cast<std::uint64_t>(restarts) / 10 + 1);

  std::uint64_t held_to = 0;
  for (const JournalLease& lease : host_.idctl.Leases("orders")) {
    // What was handed back was taken out of it again.
    held_to = std::max(held_to, lease.state == "active" ? lease.limit : lease.base + lease.claimed);
  }
  EXPECT_EQ(host_.Database().MaxId("orders"), held_to) << "what was used and what is still held";
  const AuditRow audit = host_.idctl.Audit("orders");
  EXPECT_TRUE(audit.ok);
  EXPECT_EQ(audit.abandoned, 0U);
  EXPECT_EQ(audit.claimed, last) << "what idd took for others counts as claimed";
  host_.daemon.Stop();
  EXPECT_EQ(host_.Database().MaxId("orders"), last + 1);
}

}  // namespace
}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// Tags of order cpu, as an operator and a program see them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "idd/shm/lane_sequences.h"
#include "support/claim_worker_process.h"
#include "support/managed_host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

// Under a manager that keeps descriptors, so that a restart inherits the ring.
class LaneTags : public ManagedHostTest {
 protected:
  void SetUp() override {
    ManagedHostTest::SetUp();
    host_.idctl.Do({"tag", "create", "lanes", "--order", "cpu", "--lane-block", "10"});
    options_.socket_path = host_.daemon.socket();
    options_.timeout = Patience(5s);
  }

  [[nodiscard]] static bool HasLanes(const idclient::Tag& tag) {
    return idclient_tag_lanes(tag.get(), shm::kLaneViewVersion) != nullptr;
  }
  [[nodiscard]] nlohmann::json StatusOf(const std::string& tag) const {
    return host_.idctl.Json({"status", tag}).at("tags").at(0);
  }
  static void Claim(idclient::Tag& tag, std::size_t count, std::vector<std::uint64_t>& ids) {
    for (std::size_t i = 0; i < count; ++i) ids.push_back(tag.claim());
  }
  static void ExpectDistinct(std::vector<std::uint64_t> ids) {
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  }

  idclient::Options options_;
};

TEST_F(LaneTags, CreateShowAndSetSayWhatTheOrderIs) {
  const IdctlResult created = host_.idctl.Run({"tag", "create", "more", "--order", "cpu"});
  EXPECT_EQ(created.exit_status, 0);
  EXPECT_THAT(created.out, HasSubstr("order cpu"));
  EXPECT_THAT(created.out, HasSubstr("not across CPUs, threads or processes"));
  const std::string shown = host_.idctl.Run({"tag", "show", "lanes"}).out;
  EXPECT_THAT(shown, HasSubstr("order:             cpu: ids rise in a CPU's lane only"));
  EXPECT_THAT(shown, HasSubstr("lane block:        10"));
  EXPECT_THAT(host_.idctl.Run({"tag", "show", "more"}).out, HasSubstr("chosen by idd"));
  const nlohmann::json tag = host_.idctl.Json({"tag", "show", "lanes"}).at("tag");
  EXPECT_EQ(tag.at("order"), "cpu");
  EXPECT_EQ(tag.at("lane_block"), 10);
  const nlohmann::json plain = host_.idctl.Json({"tag", "show", "orders"}).at("tag");
  EXPECT_EQ(plain.at("order"), "host");
  EXPECT_EQ(plain.at("lane_block"), 0);
  EXPECT_THAT(host_.idctl.Run({"tag", "create", "plain"}).out, Not(HasSubstr("order")));
  host_.idctl.Do({"tag", "set", "lanes", "--lane-block", "0"});
  EXPECT_EQ(host_.idctl.Json({"tag", "show", "lanes"}).at("tag").at("lane_block"), 0);
}

TEST_F(LaneTags, ProgramsClaimFromLanesByCallAndInlined) {
  idclient::Client client(options_);
  idclient::Tag tag = client.tag("lanes");
  if (!HasLanes(tag)) GTEST_SKIP() << "no restartable sequences here";
  EXPECT_FALSE(HasLanes(client.tag("orders")));
  std::vector<std::uint64_t> ids;
  Claim(tag, 25, ids);
  std::uint64_t id = 0;
  for (int i = 0; i < 25; ++i) {
    ASSERT_EQ(idclient_claim(tag.get(), &id), IDCLIENT_OK);
    ids.push_back(id);
  }
  std::vector<std::uint64_t> many(100);
  tag.claim_many(many);
  EXPECT_TRUE(std::is_sorted(many.begin(), many.end())) << "the ids of one call rise";
  ids.insert(ids.end(), many.begin(), many.end());
  ExpectDistinct(ids);
  const nlohmann::json status = StatusOf("lanes");
  EXPECT_EQ(status.at("order"), "cpu");
  const nlohmann::json& lanes = status.at("lanes");
  EXPECT_EQ(lanes.at("block"), 10);
  EXPECT_GE(lanes.at("count"), 1);
  EXPECT_EQ(
      status.at("claimed").get<std::uint64_t>(),
      ids.size() + lanes.at("left").get<std::uint64_t>() + lanes.at("dropped").get<std::uint64_t>())
      << status.dump();
  EXPECT_TRUE(StatusOf("orders").at("lanes").is_null());
  const std::string text = host_.idctl.Run({"status", "lanes"}).out;
  EXPECT_THAT(text, HasSubstr("lanes with blocks of 10: "));
  const std::string metrics = host_.idctl.Run({"metrics"}).out;
  EXPECT_THAT(metrics, HasSubstr("idd_tag_lane_ids{tag=\"lanes\"}"));
  EXPECT_THAT(metrics, Not(HasSubstr("idd_tag_lane_ids{tag=\"orders\"}")));
}

TEST_F(LaneTags, ChangeOfTheOrderTakesEffectAndRepeatsNothing) {
  idclient::Client client(options_);
  idclient::Tag as_cpu = client.tag("lanes");
  std::vector<std::uint64_t> ids;
  Claim(as_cpu, 25, ids);
  host_.idctl.Do({"tag", "set", "lanes", "--order", "host"});
  Claim(as_cpu, 25, ids);
  EXPECT_TRUE(StatusOf("lanes").at("lanes").is_null());
  idclient::Tag as_host = client.tag("lanes");
  EXPECT_FALSE(HasLanes(as_host));
  Claim(as_host, 25, ids);
  host_.idctl.Do({"tag", "set", "lanes", "--order", "cpu"});
  Claim(as_host, 25, ids);
  Claim(as_cpu, 25, ids);
  ExpectDistinct(ids);
}

TEST_F(LaneTags, DrainEndsTheClaimsOfLanesAtOnce) {
  idclient::Client client(options_);
  idclient::Tag tag = client.tag("lanes");
  std::vector<std::uint64_t> ids;
  Claim(tag, 3, ids);
  host_.idctl.Do({"drain", "lanes"});
  EXPECT_EQ(tag.try_claim().error(), IDCLIENT_UNAVAILABLE);
  host_.idctl.Do({"resume", "lanes"});
  Claim(tag, 30, ids);
  ExpectDistinct(ids);
}

TEST_F(LaneTags, RestartsAndKillsGoOnWithoutADuplicate) {
  idclient::Client client(options_);
  idclient::Tag tag = client.tag("lanes");
  std::vector<std::uint64_t> ids;
  for (int round = 0; round < 6; ++round) {
    Claim(tag, 37, ids);
    if (round % 3 == 0) host_.daemon.Kill();
    if (round % 3 == 1) host_.daemon.Leave();
    if (round % 3 == 2) host_.daemon.Stop();
    host_.daemon.Start();
    EXPECT_EQ(StatusOf("lanes").at("order"), "cpu");
  }
  Claim(tag, 37, ids);
  ExpectDistinct(ids);
  const AuditRow audit = host_.idctl.Audit("lanes");
  EXPECT_TRUE(audit.ok);
  EXPECT_GE(audit.claimed, ids.size());
  EXPECT_LE(audit.claimed, ids.size() + 7 * 10 * std::max(1U, std::thread::hardware_concurrency()));
}

// The C library keeps no struct rseq for its threads then, as on a kernel without it.
TEST_F(LaneTags, ProgramWithoutRestartableSequencesClaimsFromTheRing) {
  int programs = 0;
  const auto claim = [&](const std::string& tunable) {
    WorkerPlan plan{.socket = host_.daemon.socket(),
                    .tag = "lanes",
                    .name = "program" + std::to_string(programs++)};
    plan.ids = 5;
    if (!tunable.empty()) plan.environment = {"GLIBC_TUNABLES=" + tunable};
    ClaimWorkerProcess worker(dir_, plan);
    worker.Go();
    EXPECT_EQ(worker.Finish(Patience(20s)), 0) << worker.Failure();
    std::vector<std::uint64_t> ids;
    for (const ClaimRecord& record : worker.logs()[0].records()) ids.push_back(record.first);
    return ids;
  };
  std::vector<std::uint64_t> ids = claim("glibc.pthread.rseq=0");
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(StatusOf("lanes").at("lanes").at("left"), 0) << "no block was taken";
  for (const char* tunable : {"", "glibc.pthread.rseq=0", ""}) {
    const std::vector<std::uint64_t> more = claim(tunable);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  EXPECT_EQ(ids.size(), 20U);
  ExpectDistinct(ids);
}

}  // namespace
}  // namespace idd::harness

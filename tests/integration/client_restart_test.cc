// SPDX-License-Identifier: Apache-2.0
//
// A client's handles across the end and the return of the daemon.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "idclient/idclient.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr std::uint32_t kHastyMs = 300;

class ClientRestart : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.StartWithTag("orders", 100);
    Open(static_cast<std::uint32_t>(Patience(60s).count()), &client_, &tag_);
    Open(kHastyMs, &hasty_client_, &hasty_);
  }
  void TearDown() override {
    idclient_close(client_);
    idclient_close(hasty_client_);
  }

  // On a busy machine opening may take longer than the timeout of a client's claims.
  void Open(std::uint32_t timeout_ms, idclient_client** client, idclient_tag** tag) {
    idclient_options options = IDCLIENT_OPTIONS_INIT;
    options.socket_path = host_.daemon.socket().c_str();
    options.timeout_ms = timeout_ms;
    ASSERT_TRUE(WaitUntil(Patience(30s), [&] {
      return idclient_open(&options, client) == IDCLIENT_OK;
    })) << idclient_last_error();
    ASSERT_TRUE(WaitUntil(Patience(30s), [&] {
      return idclient_tag_open(*client, "orders", tag) == IDCLIENT_OK;
    })) << idclient_last_error();
  }

  std::uint64_t Claim() {
    std::uint64_t id = 0;
    const idclient_status status = idclient_claim(tag_, &id);
    Require(status == IDCLIENT_OK,
            std::string(idclient_status_name(status)) + ": " + idclient_last_error());
    return id;
  }

  // A claim of the hasty client that must fail, in time and with a message.
  void ExpectNothingToClaim() {
    std::uint64_t id = 42;
    const std::uint64_t begin_ns = MonotonicNs();
    const idclient_status status = idclient_claim(hasty_, &id);
    const auto took = std::chrono::milliseconds((MonotonicNs() - begin_ns) / 1'000'000);
    EXPECT_TRUE(status == IDCLIENT_UNAVAILABLE || status == IDCLIENT_TIMEOUT)
        << idclient_status_name(status);
    EXPECT_STRNE(idclient_last_error(), "");
    EXPECT_EQ(id, 42U) << "outputs are written on success only";
    EXPECT_LT(took, 30s) << "it did not end at its deadline";
  }

  const TempDir dir_;
  CleanHost host_{dir_};
  idclient_client* client_ = nullptr;
  idclient_tag* tag_ = nullptr;
  idclient_client* hasty_client_ = nullptr;
  idclient_tag* hasty_ = nullptr;
};

TEST_F(ClientRestart, LearnsInTimeThatTheDaemonIsGoneAndFindsTheNextOne) {
  EXPECT_EQ(Claim(), 1U);
  host_.daemon.Stop();
  ExpectNothingToClaim();
  ExpectNothingToClaim();
  host_.daemon.Start();
  EXPECT_EQ(Claim(), 2U);
  std::uint64_t id = 0;
  EXPECT_TRUE(WaitUntil(Patience(30s), [&] { return idclient_claim(hasty_, &id) == IDCLIENT_OK; }))
      << idclient_last_error();
  EXPECT_GT(id, 2U);
}

TEST_F(ClientRestart, LivesOnTheRingOfAKilledDaemon) {
  const std::uint64_t first = Claim();
  // The segment after the first one is published, so the ring holds 200 ids.
  for (std::uint64_t i = 1; i < 20; ++i) EXPECT_EQ(Claim(), first + i);
  ASSERT_TRUE(WaitUntil(Patience(5s), [this] { return host_.idctl.Leases("orders").size() == 2; }));
  ASSERT_TRUE(WaitUntil(Patience(5s), [this] {
    return host_.idctl.Json({"status"}).at("tags").at(0).at("available") == 180;
  }));
  host_.daemon.Kill();
  for (std::uint64_t i = 20; i < 200; ++i) EXPECT_EQ(Claim(), first + i);
  ExpectNothingToClaim();
  host_.daemon.Start();
  EXPECT_GT(Claim(), first + 199);
}

// The old ring still has ids when the new daemon is up. Whether or not the client uses them up, no
// id comes twice and its own ids rise.
TEST_F(ClientRestart, OnAnOldRingBesideANewDaemonRepeatsNothing) {
  std::vector<ClaimRecord> mine;
  std::vector<ClaimRecord> others;
  const auto claim = [this, &mine](int count) {
    for (int i = 0; i < count; ++i) {
      const std::uint64_t before = MonotonicNs();
      const std::uint64_t id = Claim();
      mine.push_back({before, MonotonicNs(), id, 1});
    }
  };
  claim(5);
  host_.daemon.Kill();
  host_.daemon.Start();
  for (int round = 0; round < 20; ++round) {
    claim(20);
    const std::uint64_t before = MonotonicNs();
    for (const std::uint64_t id : host_.idctl.Claim("orders", 20)) {
      others.push_back({before, MonotonicNs(), id, 1});
    }
  }
  const std::vector<Claimer> claimers = {{"mine", mine}, {"others", others}};
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  EXPECT_EQ(Join(CheckRising(claimers)), "");
  EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("orders"))), "");
  // In the end the client is on the new ring.
  const std::vector<JournalLease> leases = host_.idctl.Leases("orders");
  EXPECT_TRUE(std::any_of(leases.begin(), leases.end(), [&mine](const JournalLease& lease) {
    return lease.state != "abandoned" && mine.back().first >= lease.base &&
           mine.back().first < lease.limit;
  }));
  EXPECT_TRUE(host_.idctl.Audit("orders").ok);
}

TEST_F(ClientRestart, ManyRestartsLeakNoDescriptors) {
  const auto open_files = [] {
    int count = 0;
    for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  (void)Claim();
  const int before = open_files();
  for (int i = 0; i < 5; ++i) {
    host_.daemon.Restart();
    (void)Claim();
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(ClientRestart, BatchThatMeetsTheEndOfTheDaemonReportsWhatItHas) {
  (void)Claim();
  ASSERT_TRUE(WaitUntil(Patience(5s), [this] {
    return host_.idctl.Json({"status"}).at("tags").at(0).at("available") == 99;
  }));
  host_.daemon.Kill();
  std::vector<std::uint64_t> ids(500);
  std::size_t claimed = 12345;
  const idclient_status status = idclient_claim_many(hasty_, ids.data(), ids.size(), &claimed);
  EXPECT_TRUE(status == IDCLIENT_UNAVAILABLE || status == IDCLIENT_TIMEOUT)
      << idclient_status_name(status);
  ASSERT_EQ(claimed, 99U);
  for (std::size_t i = 0; i < claimed; ++i) EXPECT_EQ(ids[i], i + 2);
}

}  // namespace
}  // namespace idd::harness

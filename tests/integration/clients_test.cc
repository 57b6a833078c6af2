// SPDX-License-Identifier: Apache-2.0
//
// idctl client list: which clients use which tags, counted exactly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>

#include "idclient/idclient.hpp"
#include "idd/wire/frames.h"
#include "support/host.h"
#include "support/raw_connection.h"
#include "support/test_environment.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

class Clients : public HostWithUsers {
 protected:
  void SetUp() override {
    HostWithUsers::SetUp();
    if (IsSkipped()) return;
    Configure(Rule("'orders'", kAlice.uid, "access = 'shm'") +
              Rule("'orders'", kBob.uid, "access = 'socket'"));
    host_.daemon.Start();
    for (const char* tag : {"orders", "secret"}) host_.idctl.CreateTag(tag, 1000);
  }
  // The connections of this process.
  [[nodiscard]] nlohmann::json Ours(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"client", "list"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    nlohmann::json ours = nlohmann::json::array();
    const nlohmann::json document = host_.idctl.Json(arguments);
    for (const auto& client : document.at("clients")) {
      if (client.at("pid") == ::getpid()) ours.push_back(client);
    }
    return ours;
  }
  [[nodiscard]] nlohmann::json Gone(const Idctl& asked, uid_t uid) const {
    const nlohmann::json document = asked.Json({"client", "list"});
    for (const auto& use : document.at("gone")) {
      if (use.at("uid") == uid && use.at("tag") == "orders") return use;
    }
    return nullptr;
  }
  // The number of ids that a raw CLAIM is granted.
  static std::uint64_t Claim(RawConnection& connection, std::uint64_t id, std::uint64_t count) {
    EXPECT_TRUE(connection.Send(MakeClaim("orders", id, count, 5000)));
    const auto reply = connection.Receive(Patience(10s));
    Require(reply.has_value(), "no answer to CLAIM");
    const auto claim = reply->As<wire::ClaimReply>();
    EXPECT_EQ(claim.status, 0U);
    return claim.count;
  }
};

TEST_F(Clients, CountsSocketClaimsExactly) {
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  std::uint64_t ids = 0;
  for (std::uint64_t i = 1; i <= 5; ++i) ids += Claim(connection, i, 10 * i);
  // Refused claims are not counted, and a tag that does not exist is not listed.
  ASSERT_TRUE(connection.Send(MakeClaim("not-there", 99, 1, 1000)));
  ASSERT_TRUE(connection.Receive(Patience(5s)).has_value());
  const nlohmann::json ours = Ours();
  ASSERT_EQ(ours.size(), 1U);
  EXPECT_EQ(ours[0].at("uid"), 0);
  EXPECT_GE(ours[0].at("connected_s"), 0);
  ASSERT_EQ(ours[0].at("tags").size(), 1U);
  const nlohmann::json& use = ours[0].at("tags")[0];
  EXPECT_EQ(use.at("tag"), "orders");
  EXPECT_EQ(use.at("requests"), 5);
  EXPECT_EQ(use.at("ids"), ids);
  EXPECT_EQ(use.at("dry_waits"), 1) << "the first claim found no ring with ids";
  EXPECT_EQ(use.at("attached_s"), nullptr);
}

TEST_F(Clients, ReportsAttachmentsVersionsAndProcess) {
  idclient::Options options;
  options.socket_path = host_.daemon.socket();
  options.timeout = std::chrono::milliseconds(Patience(5s));
  idclient::Client client(options);
  idclient::Tag tag = client.tag("orders");
  for (int i = 0; i < 100; ++i) (void)tag.claim();
  const nlohmann::json ours = Ours();
  ASSERT_EQ(ours.size(), 1U);
  EXPECT_EQ(ours[0].at("tags")[0].at("attachments"), 1);
  EXPECT_GE(ours[0].at("tags")[0].at("attached_s"), 0);
  EXPECT_LE(ours[0].at("tags")[0].at("requests"), 3) << "ring claims are not seen by idd";
  EXPECT_THAT(ours[0].at("abi_version").get<std::string>(), HasSubstr("1."));
  EXPECT_FALSE(ours[0].at("client_version").get<std::string>().empty());
  // The name of this process, as the kernel has it.
  std::ifstream comm("/proc/self/comm");
  std::string name;
  std::getline(comm, name);
  EXPECT_EQ(ours[0].at("command"), name);
  const std::string text = host_.idctl.Run({"client", "list"}).out;
  EXPECT_THAT(text, HasSubstr(std::to_string(::getpid())));
  EXPECT_THAT(text, HasSubstr(name));
}

TEST_F(Clients, KeepsTheSumsOfThoseWhoAreGone) {
  const std::size_t first = host_.idctl.As(kBob).Claim("orders", 30).size();
  const std::size_t second = host_.idctl.As(kBob).Claim("orders", 12).size();
  nlohmann::json gone;
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] {
    gone = Gone(host_.idctl, kBob.uid);
    return gone.is_object() && gone.at("connections") == 2;
  }));
  EXPECT_EQ(gone.at("ids"), first + second);
  EXPECT_EQ(gone.at("attachments"), 0) << "this user has access socket";
  EXPECT_THAT(host_.idctl.Run({"client", "list"}).out, HasSubstr("Closed connections:"));
}

TEST_F(Clients, UserSeesOnlyItsOwnProcesses) {
  RawConnection of_root(host_.daemon.socket());
  of_root.Hello();
  (void)Claim(of_root, 1, 5);
  (void)host_.idctl.As(kBob).Claim("orders", 30);
  (void)host_.idctl.As(kAlice).Claim("orders", 3);
  const Idctl alice = host_.idctl.As(kAlice);
  ASSERT_TRUE(WaitUntil(Patience(5s), [&] { return Gone(alice, kAlice.uid).is_object(); }));
  const nlohmann::json seen = alice.Json({"client", "list"});
  for (const auto& client : seen.at("clients")) EXPECT_EQ(client.at("uid"), kAlice.uid);
  for (const auto& use : seen.at("gone")) EXPECT_EQ(use.at("uid"), kAlice.uid);
  EXPECT_EQ(alice.Json({"client", "list", "--uid", "0"}).at("clients").size(), 0U);
  EXPECT_EQ(alice.Run({"client", "list", "--tag", "secret"}).exit_status, 6);
  EXPECT_THAT(host_.idctl.Json({"client", "list"}).dump(),
              HasSubstr("\"uid\":" + std::to_string(kBob.uid)));
  EXPECT_EQ(host_.idctl.As(kOutsider).Run({"client", "list"}).exit_status, 6);
}

TEST_F(Clients, FiltersByTagAndUid) {
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  (void)Claim(connection, 1, 5);
  EXPECT_EQ(Ours({"--tag", "orders"}).size(), 1U);
  EXPECT_EQ(Ours({"--tag", "secret"}).size(), 0U);
  EXPECT_EQ(Ours({"--uid", "0"}).size(), 1U);
  EXPECT_EQ(Ours({"--uid", "77"}).size(), 0U);
  EXPECT_EQ(host_.idctl.Run({"client", "list", "--uid", "x"}).exit_status, 2);
}

// The limit applies to the newest leases that Alice may see, however many other tags have leased
// since.
TEST_F(Clients, LeasesAreCutAfterTheRights) {
  (void)host_.idctl.Claim("orders", 2500);
  (void)host_.idctl.Claim("secret", 9500);
  const Idctl alice = host_.idctl.As(kAlice);
  const nlohmann::json all = alice.Json({"lease", "list"});
  ASSERT_GE(all.at("leases").size(), 3U);
  const nlohmann::json two = alice.Json({"lease", "list", "--limit", "2"});
  ASSERT_EQ(two.at("leases").size(), 2U);
  EXPECT_EQ(two.at("truncated"), true);
  EXPECT_EQ(two.at("leases")[1].at("token"), all.at("leases").back().at("token"));
  EXPECT_THAT(all.dump(), Not(HasSubstr("secret")));
  const std::size_t every = all.at("leases").size();
  EXPECT_EQ(alice.Json({"lease", "list", "--limit", std::to_string(every)}).at("truncated"), false);
}

}  // namespace
}  // namespace idd::harness

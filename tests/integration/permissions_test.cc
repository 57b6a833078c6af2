// SPDX-License-Identifier: Apache-2.0
//
// The rights of other users, identified by the kernel, under the file's rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "idd/wire/frames.h"
#include "support/child_exit.h"
#include "support/raw_connection.h"
#include "support/ring_request.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;
using ::testing::Not;

class Permissions : public HostWithUsers {
 protected:
  void SetUp() override {
    HostWithUsers::SetUp();
    if (IsSkipped()) return;
    Configure(Rule("'orders'", kAlice.uid, "access = 'shm'") +
              Rule("'users'", kAlice.uid, "access = 'socket'") +
              "[[access]]\ntags = ['billing.*']\ngroups = [12003]\naccess = 'admin'\n");
    host_.daemon.Start();
    for (const char* tag : {"orders", "users", "billing.eu"}) host_.idctl.CreateTag(tag, 100);
  }
  // idctl exits with 6 and names the user and the operation; so does the log.
  void ExpectDenied(const Identity& who, const std::vector<std::string>& arguments,
                    const std::string& what) {
    const std::size_t mark = host_.daemon.LogMark();
    const IdctlResult result = host_.idctl.As(who).Run(arguments);
    const std::string uid = std::to_string(who.uid);
    EXPECT_EQ(result.exit_status, 6) << arguments[0] << " " << result.err << result.out;
    EXPECT_EQ(result.out, "") << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("uid " + uid)) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("[[access]]")) << "the advice is missing";
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_TRUE(host_.daemon.WaitForLogLine("(access.denied|connection.refused).*uid=" + uid, mark,
                                            Patience(2s)))
        << arguments[0] << host_.daemon.LogSince(mark);
  }
};

TEST_F(Permissions, OutsiderIsRefusedAndLogged) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"claim", "orders"},
                                             {"claim", "no-rule-names-it"},
                                             {"status"},
                                             {"tag", "list"},
                                             {"tag", "show", "orders"},
                                             {"tag", "create", "mine"},
                                             {"lease", "list"},
                                             {"host", "list"},
                                             {"audit"},
                                             {"whois", "orders", "1"}}) {
    ExpectDenied(kOutsider, arguments, "may use no tag");
  }
  EXPECT_EQ(host_.idctl.Run({"tag", "show", "mine"}).exit_status, 3);
}

TEST_F(Permissions, UserOfOneTagCannotClaimSeeOrAdministerAnother) {
  static_cast<void>(host_.idctl.Claim("billing.eu", 7));
  EXPECT_EQ(host_.idctl.As(kAlice).Claim("orders", 250).size(), 250U);
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"claim", "billing.eu"},
                                             {"tag", "show", "billing.eu"},
                                             {"status", "billing.eu"},
                                             {"lease", "list", "--tag", "billing.eu"},
                                             {"whois", "billing.eu", "1"},
                                             {"audit", "billing.eu"},
                                             {"audit", "billing.eu", "--all-hosts"},
                                             {"tag", "create", "billing.us"},
                                             {"tag", "set", "billing.eu", "--step", "5"},
                                             {"tag", "delete", "billing.eu", "--force"}}) {
    ExpectDenied(kAlice, arguments, "billing.");
  }
  // Alice may use her own tags, but not administer them; tags that do not exist are denied in the
  // same way.
  ExpectDenied(kAlice, {"tag", "set", "orders", "--step", "5"}, "needs access admin");
  ExpectDenied(kAlice, {"tag", "delete", "orders", "--force"}, "has shm");
  ExpectDenied(kAlice, {"tag", "show", "billing.not-there"}, "needs access");
  const nlohmann::json tag = host_.idctl.Json({"tag", "show", "billing.eu"}).at("tag");
  EXPECT_EQ(tag.at("step"), 100);
  EXPECT_EQ(host_.idctl.Run({"tag", "show", "billing.us"}).exit_status, 3);
}

TEST_F(Permissions, ListsShowTheTagsThatTheUserMayUse) {
  for (const char* tag : {"orders", "users", "billing.eu"}) {
    static_cast<void>(host_.idctl.Claim(tag, 7));
  }
  const Idctl alice = host_.idctl.As(kAlice);
  for (const std::vector<std::string>& list : std::vector<std::vector<std::string>>{
           {"status"}, {"tag", "list"}, {"lease", "list"}, {"audit"}, {"audit", "--all-hosts"}}) {
    const std::string document = alice.Json(list).dump();
    EXPECT_THAT(document, HasSubstr("orders"));
    EXPECT_THAT(document, HasSubstr("users"));
    EXPECT_THAT(document, Not(HasSubstr("billing")));
    EXPECT_THAT(host_.idctl.Json(list).dump(), HasSubstr("billing")) << "root sees it";
  }
  EXPECT_EQ(alice.Run({"host", "list"}).exit_status, 0);
  EXPECT_EQ(alice.Run({"status", "orders"}).exit_status, 0);
  EXPECT_EQ(alice.Run({"whois", "users", "3"}).exit_status, 0);
}

TEST_F(Permissions, AdminOfAPatternAdministersItAndNothingElse) {
  const Idctl bob = host_.idctl.As(kBob);
  EXPECT_EQ(bob.Run({"tag", "create", "billing.us", "--step", "10"}).exit_status, 0);
  EXPECT_EQ(bob.Run({"tag", "set", "billing.us", "--step", "20"}).exit_status, 0);
  EXPECT_EQ(bob.Claim("billing.us", 3).size(), 3U);
  EXPECT_EQ(bob.Run({"tag", "delete", "billing.us", "--force"}).exit_status, 0);
  ExpectDenied(kBob, {"tag", "create", "billing"}, "'billing'");
  ExpectDenied(kBob, {"claim", "orders"}, "'orders'");
  ExpectDenied(kBob, {"import", "tinyid", "--from", "mysql://u@127.0.0.1/d"}, "'*'");
}

TEST_F(Permissions, MembersOfIddsGroupClaimFromTagsThatNoRuleNames) {
  host_.idctl.CreateTag("free", 100);
  const Identity member{.uid = 12347, .gid = 12347, .groups = {5, ::getegid()}};
  EXPECT_EQ(host_.idctl.As(member).Claim("free", 3).size(), 3U);
  ExpectDenied(member, {"tag", "set", "free", "--step", "5"}, "has shm");
  ExpectDenied(member, {"claim", "orders"}, "'orders'");
  ExpectDenied(kAlice, {"claim", "free"}, "'free'");
}

// Runs in a child that is root of its own user namespace, and sends HELLO to idd. 0: idd answers,
// 1: it does not, 2: this user may not make user namespaces.
int HelloAsRootOfANamespace(const Identity& who, const std::string& socket) {
  const pid_t child = ::fork();
  RequireErrno(child >= 0, "fork");
  if (child == 0) {
    const std::string map = "0 " + std::to_string(who.uid) + " 1";
    const ScopedIdentity identity(who);
    ::prctl(PR_SET_DUMPABLE, 1);  // else root owns /proc/self
    if (::unshare(CLONE_NEWUSER) != 0) ::_exit(2);
    std::ofstream("/proc/self/uid_map") << map << std::flush;
    if (::geteuid() != 0) ::_exit(2);
    ::_exit(RawConnection::AnswersHello(socket) ? 0 : 1);
  }
  return ExitOf(child);
}

TEST_F(Permissions, RootOfAUserNamespaceHasItsOutsideUid) {
  const int alice = HelloAsRootOfANamespace(kAlice, host_.daemon.socket());
  if (alice == 2) GTEST_SKIP() << "users may make no user namespaces here";
  EXPECT_EQ(alice, 0);
  const std::size_t mark = host_.daemon.LogMark();
  EXPECT_EQ(HelloAsRootOfANamespace(kOutsider, host_.daemon.socket()), 1);
  EXPECT_TRUE(host_.daemon.WaitForLogLine("connection.refused.*uid=12399", mark, Patience(2s)));
}

class RawAttach : public Permissions {
 protected:
  // The descriptors that came with the reply to ATTACH.
  struct Answer {
    std::uint32_t status = 0;
    std::uint64_t ring_id = 0;
    std::uint64_t bytes = 0;
    int descriptors = 0;
  };
  [[nodiscard]] Answer Attach(const Identity& who, const std::string& tag) const {
    const ScopedIdentity identity(who);
    const Deadline deadline = Deadline::After(Patience(5s));
    auto channel = ConnectAndGreet(host_.daemon.socket(), deadline);
    Require(channel.ok(), channel.status().message());
    auto reply = RequestRing(channel.value(), tag, deadline);
    Require(reply.ok(), reply.status().message());
    const auto frame = wire::ParseFrame(reply.value().bytes);
    std::string reason;
    const auto granted =
        wire::ParseReply<wire::AttachReply>(frame.value(), wire::FrameType::kAttach, &reason);
    int descriptors = 0;
    for (const ScopedFd& fd : reply.value().fds) descriptors += fd.valid() ? 1 : 0;
    const wire::AttachReply& told = granted.value();
    return {told.status, told.ring_id, told.table_bytes + std::uint64_t{told.cursors_bytes},
            descriptors};
  }
};

TEST_F(RawAttach, ClientWithSocketAccessGetsNoDescriptorAndClaims) {
  static_cast<void>(host_.idctl.Claim("users"));  // now there is a ring that could be passed
  const Answer own = Attach(kAlice, "orders");
  EXPECT_EQ(own.descriptors, 2);
  EXPECT_NE(own.ring_id, 0U);
  const Answer by_socket = Attach(kAlice, "users");
  EXPECT_EQ(by_socket.status, 0U);
  EXPECT_EQ(by_socket.descriptors, 0);
  EXPECT_EQ(by_socket.ring_id, 0U);
  const Answer denied = Attach(kAlice, "billing.eu");
  EXPECT_EQ(denied.status, static_cast<std::uint32_t>(Code::kDenied));
  EXPECT_EQ(denied.descriptors, 0);
  EXPECT_EQ(host_.idctl.As(kAlice).Claim("users", 500).size(), 500U);
  EXPECT_EQ(Attach({}, "users").descriptors, 2) << "for root, too";
  host_.idctl.Do({"tag", "set", "users", "--access", "socket"});
  for (int i = 0; i < 3; ++i) {
    const Answer nothing = Attach({}, "users");
    EXPECT_EQ(nothing.status, 0U);
    EXPECT_EQ(nothing.ring_id + nothing.bytes, 0U);
    EXPECT_EQ(nothing.descriptors, 0);
    static_cast<void>(host_.idctl.Claim("users", 10));
  }
}

TEST_F(RawAttach, ClientWithSocketAccessAttachesAgainOnlyWhenItNamesARing) {
  const ScopedIdentity alice(kAlice);
  RawConnection connection(host_.daemon.socket());
  connection.Hello();
  wire::ClaimRequest claim;
  claim.tag = MakeTag("users");
  claim.count = 5;
  claim.timeout_ms = 30'000;
  for (const std::uint64_t ring_id : {std::uint64_t{0}, std::uint64_t{77}}) {
    claim.ring_id = ring_id;
    ASSERT_TRUE(connection.Send(MakeRequest(wire::FrameType::kClaim, ring_id + 1, claim)));
    const std::optional<Reply> reply = connection.Receive(Patience(2s));
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->As<wire::ClaimReply>().status, 0U);
    EXPECT_EQ(reply->As<wire::ClaimReply>().count, 5U);
    EXPECT_EQ(reply->As<wire::ClaimReply>().attach_again, ring_id == 0 ? 0U : 1U);
  }
}

TEST_F(RawAttach, OutsiderGetsTheReasonBeforeTheClose) {
  const ScopedIdentity outsider(kOutsider);
  for (int i = 0; i < 50; ++i) {  // either the HELLO or the refusal is first
    RawConnection connection(host_.daemon.socket());
    static_cast<void>(connection.Send(MakeHello()));
    const std::optional<Reply> reply = connection.Receive(Patience(2s));
    ASSERT_TRUE(reply.has_value()) << i;
    ASSERT_EQ(reply->As<wire::StatusReply>().status, static_cast<std::uint32_t>(Code::kDenied));
    ASSERT_THAT(reply->Reason<wire::StatusReply>(), HasSubstr("uid 12399"));
    ASSERT_TRUE(connection.WaitClosed(Patience(2s)));
  }
}

// The example that is installed as the configuration.
class ShippedConfig : public ::testing::Test {
 protected:
  // The lines with settings, without their "#"; the text between them stays as it is.
  static std::string Uncommented(const std::string& text, int* settings) {
    std::istringstream lines(text);
    std::string out;
    for (std::string line; std::getline(lines, line); out += line + "\n") {
      if (line.size() < 2 || line[0] != '#' || line[1] == ' ') continue;
      line.erase(0, 1);
      ++*settings;
    }
    return out;
  }
  static int Check(const std::string& file) {
    ChildOptions options;
    options.argv = {IddBinary(), "--check-config", "--config", file};
    ChildProcess process(options);
    const int status = process.WaitFor(Patience(5s)).value_or(-1);
    EXPECT_EQ(process.stderr_text(), "");
    return status;
  }
  const TempDir dir_;
};

TEST_F(ShippedConfig, IsValidAsItIsAndWithEveryLineUncommented) {
  EXPECT_EQ(Check(IDD_TEST_CONFIG), 0);
  int settings = 0;
  WriteFile(dir_.File("all.toml"), Uncommented(ReadFile(IDD_TEST_CONFIG), &settings));
  EXPECT_EQ(settings, 20);
  EXPECT_EQ(Check(dir_.File("all.toml")), 0);
}

}  // namespace
}  // namespace idd::harness

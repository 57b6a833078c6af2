// SPDX-License-Identifier: Apache-2.0
//
// Another user's listener at the socket's path: before idd starts, and in its place while it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "support/raw_connection.h"
#include "support/users.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::HasSubstr;

class Squatters : public HostWithUsers {
 protected:
  void SetUp() override {
    HostWithUsers::SetUp();
    if (!IsSkipped()) RequireErrno(::chmod(dir_.File("").c_str(), 0777) == 0, "chmod");
  }
  [[nodiscard]] ino_t Inode() const {
    struct stat info {};
    RequireErrno(::lstat(host_.daemon.socket().c_str(), &info) == 0, "lstat");
    return info.st_ino;
  }
  [[nodiscard]] ScopedFd ListenAs(const Identity& who) const {
    const ScopedIdentity identity(who);
    ScopedFd listener = ListenAt(host_.daemon.socket(), SOCK_SEQPACKET);
    RequireErrno(::chmod(host_.daemon.socket().c_str(), 0666) == 0, "chmod");
    return listener;
  }
  // Clients do not trust the listener, and send nothing to it.
  void ExpectClientsRefuse(const ScopedFd& listener) {
    for (const Identity& who : {Identity{}, kBob}) {
      const IdctlResult result = host_.idctl.As(who).Run({"claim", "orders"});
      EXPECT_EQ(result.exit_status, 6) << result.err;
      EXPECT_THAT(result.err, HasSubstr("runs as uid 12345"));
    }
    const ScopedFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(accepted.valid());
    char byte = 0;
    EXPECT_EQ(::recv(accepted.get(), &byte, 1, MSG_DONTWAIT), 0) << "a client sent data";
  }
};

TEST_F(Squatters, ListenerOfAnotherUserIsNotTakenAndNotTrusted) {
  const ScopedFd listener = ListenAs(kAlice);
  const ino_t inode = Inode();
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(5s)), 1);
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("another process listens at"));
  EXPECT_EQ(Inode(), inode);
  ExpectClientsRefuse(listener);
}

TEST_F(Squatters, FileOfAnotherUserIsLeftAlone) {
  {
    const ScopedIdentity alice(kAlice);
    WriteFile(host_.daemon.socket(), "mine");
  }
  EXPECT_EQ(host_.daemon.LaunchAndWait(Patience(5s)), 1);
  EXPECT_THAT(host_.daemon.Log(), HasSubstr("is not a socket; it is left alone"));
  EXPECT_EQ(ReadFile(host_.daemon.socket()), "mine");
}

TEST_F(Squatters, SocketThatIsReplacedWhileIddRunsIsNotTrustedAndNotRemoved) {
  host_.StartWithTag("orders", 100);
  RawConnection early(host_.daemon.socket());
  early.Hello();
  {
    const ScopedIdentity alice(kAlice);  // this folder lets her, unlike a real one
    RequireErrno(::unlink(host_.daemon.socket().c_str()) == 0, "unlink");
  }
  const ScopedFd listener = ListenAs(kAlice);
  const ino_t inode = Inode();
  ExpectClientsRefuse(listener);
  // Clients that were connected before are still served, and idd ends without touching Alice's
  // socket.
  ASSERT_TRUE(early.Send(MakeClaim("orders", 1, 5, 1000)));
  const std::optional<Reply> reply = early.Receive(Patience(2s));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->As<wire::ClaimReply>().status, 0U);
  host_.daemon.Stop();
  EXPECT_EQ(Inode(), inode);
}

}  // namespace
}  // namespace idd::harness

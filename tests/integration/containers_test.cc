// SPDX-License-Identifier: Apache-2.0
//
// Programs in other pid, mount, ipc and user namespaces, as in a container. They share only the
// socket's folder with the host's idd, and claim through the memfds that it passes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

constexpr std::uint64_t kClaims = 20'000;
// The uid that a user namespace shows for a uid without a mapping.
constexpr const char* kUnmapped = "65534";

// In the test's folder $2 only the socket's folder $1 stays visible, read-only as /srv; a tmpfs
// with the program $3 and its library $4 covers the rest.
constexpr const char* kContainer = R"sh(set -e
mount --bind "$1" /srv
mount -o remount,bind,ro /srv
mount -t tmpfs tmpfs "$2"
test -z "$(ls "$2")"
cp "$3" "$2/program"
cp "$4" "$2/libidclient.so.0"
cd "$2"
shift 4
export LD_LIBRARY_PATH=.
exec "$@")sh";

// A user of the host who has another uid in the container. Its group is idd's group, so idd lets it
// claim.
const std::vector<std::string>& Stranger() {
  static const std::vector<std::string> words = {"setpriv", "--reuid",        "4242",    "--regid",
                                                 "0",       "--clear-groups", "unshare", "--user",
                                                 "--ipc",   "--map-user=1000"};
  return words;
}

const std::vector<std::string>& Root() {
  static const std::vector<std::string> words = {"unshare", "--user", "--ipc", "--map-root-user"};
  return words;
}

struct Outcome {
  int status = -1;
  std::string said;
};

class Containers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may make these namespaces";
    std::filesystem::create_directory(Run());
    const Outcome outcome = Contain({"unshare", "--user", "--ipc", "/bin/true"});
    if (outcome.status != 0) GTEST_SKIP() << "no namespaces may be made here: " << outcome.said;
    host_.daemon.options().socket = Run() + "/idd.sock";
    host_.daemon.Start();
    idctl_.CreateTag("orders", kClaims * 10);
  }

  [[nodiscard]] std::string Run() const { return dir_.File("run"); }

  [[nodiscard]] Outcome Contain(const std::vector<std::string>& inner) const {
    ChildOptions options;
    options.argv = {"/usr/bin/unshare", "--pid", "--mount", "--fork", "--kill-child"};
    for (const std::string& word :
         {std::string("--mount-proc"), std::string("/bin/sh"), std::string("-c"),
          std::string(kContainer), std::string("sh"), Run(), dir_.File(""),
          std::string(IDD_TEST_CLAIM_LOOP_BINARY), std::string(IDD_TEST_LIBRARY)}) {
      options.argv.push_back(word);
    }
    options.argv.insert(options.argv.end(), inner.begin(), inner.end());
    ChildProcess child(options);
    Outcome outcome;
    outcome.status = child.WaitFor(Patience(20s)).value_or(-1);
    child.Kill();
    outcome.said = child.stderr_text() + child.stdout_text();
    return outcome;
  }

  // `trusted`: the uid that the program trusts as the daemon's, if any.
  [[nodiscard]] Outcome Claim(std::vector<std::string> words,
                              const std::string& trusted = "") const {
    for (const char* word : {"./program", "/srv/idd.sock", "orders"}) words.emplace_back(word);
    words.push_back(std::to_string(kClaims));
    if (!trusted.empty()) words.push_back(trusted);
    return Contain(words);
  }

  [[nodiscard]] std::uint64_t Fallbacks() const {
    return idctl_.Json({"status", "orders"})["tags"][0]["fallbacks"].get<std::uint64_t>();
  }

  TempDir dir_;
  Host host_{dir_};
  Idctl idctl_{Run() + "/idd.sock"};
};

TEST_F(Containers, ClientWhoseRootIsTheHostsClaimsFromSharedMemory) {
  const Outcome outcome = Claim(Root());
  EXPECT_EQ(outcome.status, 0) << outcome.said;
  EXPECT_LE(Fallbacks(), 2U) << "claims went over the socket";
  EXPECT_GE(idctl_.Audit("orders").claimed, kClaims);
}

TEST_F(Containers, ClientRefusesADaemonWithoutAUidThereUnlessItTrustsIt) {
  const Outcome refused = Claim(Stranger());
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.said.find(kUnmapped), std::string::npos) << refused.said;
  const Outcome outcome = Claim(Stranger(), kUnmapped);
  EXPECT_EQ(outcome.status, 0) << outcome.said;
  EXPECT_LE(Fallbacks(), 2U) << "claims went over the socket";
}

TEST_F(Containers, ClientFindsTheNextDaemonsSocketInTheFolder) {
  host_.daemon.Restart();
  const Outcome outcome = Claim(Root());
  EXPECT_EQ(outcome.status, 0) << outcome.said;
}

}  // namespace
}  // namespace idd::harness

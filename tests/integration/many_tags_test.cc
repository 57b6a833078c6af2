// SPDX-License-Identifier: Apache-2.0
//
// Looks at 2,000 tags with a ring each. scripts/bench measures the cost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "idd/wire/frames.h"
#include "support/child_exit.h"
#include "support/child_process.h"
#include "support/host.h"
#include "support/raw_connection.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

constexpr int kTags = 2000;

class ManyTags : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.daemon.Start();
    {
      SqliteFile database = host_.Database();
      database.Execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
                       std::to_string(kTags) +
                       ") INSERT INTO leaf_alloc(biz_tag, max_id, step, description) "
                       "SELECT 'tag-' || i, 1, 1000, '' FROM n");
    }
    RawConnection connection(host_.daemon.socket());
    connection.Hello();
    for (int i = 1; i <= kTags; ++i) {
      const std::string tag = "tag-" + std::to_string(i);
      Require(connection.SendWithin(Patience(5s), MakeClaim(tag, 1, 1, 60'000)), "not sent");
      const std::optional<Reply> reply = connection.Receive(Patience(60s));
      Require(reply.has_value() && reply->As<wire::ClaimReply>().status == 0, "no id of " + tag);
    }
  }

  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(ManyTags, StatusHasThemAll) {
  for (const bool as_json : {false, true}) {
    const IdctlResult result =
        host_.idctl.Run(as_json ? std::vector<std::string>{"--json", "status"}
                                : std::vector<std::string>{"status"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    for (int i = 1; i <= kTags; ++i) {
      const std::string tag = "tag-" + std::to_string(i) + (as_json ? "\"" : " ");
      ASSERT_NE(result.out.find(tag), std::string::npos) << tag;
    }
  }
}

TEST_F(ManyTags, StopHandsAllTailsBack) {
  if (SlowdownFactor() != 1) GTEST_SKIP() << "a stop ends after 45 s";
  host_.daemon.Stop();
  SqliteFile database = host_.Database();
  EXPECT_EQ(database.QueryInteger("SELECT COUNT(*) FROM idd_lease WHERE state = 'active'"), 0);
  EXPECT_EQ(database.QueryInteger("SELECT COUNT(DISTINCT biz_tag) FROM idd_lease"
                                  " WHERE state = 'returned' AND claimed = 1"),
            kTags);
  EXPECT_EQ(database.QueryInteger("SELECT COUNT(*) FROM leaf_alloc WHERE max_id = 2"), kTags);
}

TEST_F(ManyTags, TopCountsThemAllAndEnds) {
  winsize size{};
  size.ws_col = 80;
  size.ws_row = 24;
  int master = -1;
  const pid_t top = ::forkpty(&master, nullptr, nullptr, &size);
  RequireErrno(top >= 0, "forkpty");
  if (top == 0) {
    ::setenv("TERM", "xterm-256color", 1);
    const std::string idctl = IdctlBinary();
    // The default timeout suits people, not a sanitizer build on a busy machine.
    ::execl(idctl.c_str(), "idctl", "--socket", host_.daemon.socket().c_str(), "--timeout", "60000",
            "top", nullptr);
    ::_exit(127);
  }
  const ScopedFd terminal(master);
  std::string drawn;
  bool is_open = true;
  // Reads the output as a terminal does, until the condition holds; false if it never does.
  const auto watch = [&](const auto& condition) {
    const Deadline deadline = Deadline::After(Patience(60s));
    while (is_open && !deadline.passed() && !condition()) {
      pollfd readable{.fd = terminal.get(), .events = POLLIN, .revents = 0};
      if (::poll(&readable, 1, static_cast<int>(deadline.remaining().count())) <= 0) continue;
      std::array<char, 65536> bytes{};
      const ssize_t got = ::read(terminal.get(), bytes.data(), bytes.size());
      is_open = got > 0;
      if (is_open) drawn.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return condition();
  };
  EXPECT_TRUE(watch([&] { return drawn.find("2000 tags") != std::string::npos; }))
      << drawn.substr(0, 2000);
  const std::size_t first = drawn.size();
  // A second look, a second later.
  EXPECT_TRUE(watch([&] { return drawn.size() > first; }));
  RequireErrno(::write(terminal.get(), "q", 1) == 1, "write");
  EXPECT_TRUE(watch([&] { return !is_open; }));
  ::kill(top, is_open ? SIGKILL : 0);
  EXPECT_EQ(ExitOf(top), 0);
}

}  // namespace
}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// The daemons of all tests run under the restrictions of idd.service; this test checks them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "support/child_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

class Restrictions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Sandbox().empty()) GTEST_SKIP() << "a build without libseccomp, or with a sanitizer";
  }

  // The exit status of a command in the sandbox.
  static int Try(const std::vector<std::string>& command) {
    ChildOptions options;
    options.argv = Sandbox();
    options.argv.insert(options.argv.end(), command.begin(), command.end());
    ChildProcess child(options);
    return child.WaitFor(Patience(10s)).value_or(-1);
  }
};

TEST_F(Restrictions, DaemonOfATestHasAFilterAndNoPrivileges) {
  TempDir dir;
  Host host(dir);
  host.daemon.Start();
  const std::string status = ReadFile("/proc/" + std::to_string(host.daemon.pid()) + "/status");
  for (const char* line : {"\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n", "\nCapEff:\t0000000000000000\n",
                           "\nCapPrm:\t0000000000000000\n"}) {
    EXPECT_NE(status.find(line), std::string::npos) << line << "is not in\n" << status;
  }
}

TEST_F(Restrictions, CallsOutsideTheFilterFailAndOthersDoNot) {
  EXPECT_EQ(Try({"/bin/true"}), 0);
  EXPECT_EQ(Try({"/bin/sh", "-c", "test $(umask) = 0077"}), 0);
  // Any user may set its own affinity; only the filter of @resources forbids it.
  EXPECT_EQ(Try({"/usr/bin/taskset", "--cpu-list", "0", "/bin/true"}), 1);
}

}  // namespace
}  // namespace idd::harness

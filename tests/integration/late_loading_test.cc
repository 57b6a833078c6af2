// SPDX-License-Identifier: Apache-2.0
//
// Interpreters load libidclient late, when their other libraries have taken most of the memory that
// a process has for thread-local storage, and may unload it again.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;

class LateLoading : public ::testing::Test {
 protected:
  void SetUp() override { host_.StartWithTag("orders", 1'000); }

  // Copies, because a library that is loaded twice is one library.
  [[nodiscard]] std::vector<std::string> Neighbours(std::size_t count) const {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < count; ++i) {
      paths.push_back(dir_.File("neighbour" + std::to_string(i) + ".so"));
      std::filesystem::copy_file(IDD_TEST_STATIC_TLS, paths.back());
    }
    return paths;
  }

  struct Outcome {
    std::optional<int> status;
    std::string output;
    std::string error;
  };
  [[nodiscard]] Outcome Load(std::uint64_t rounds,
                             const std::vector<std::string>& neighbours) const {
    ChildOptions options;
    options.argv = {IDD_TEST_LATE_LOADER, IDD_TEST_LIBRARY, host_.daemon.socket(), "orders",
                    std::to_string(rounds)};
    options.argv.insert(options.argv.end(), neighbours.begin(), neighbours.end());
    ChildProcess loader(options);
    Outcome outcome{.status = loader.WaitFor(Patience(120s)), .output = "", .error = ""};
    loader.Kill();
    outcome.output = loader.stdout_text();
    outcome.error = loader.stderr_text();
    return outcome;
  }

  const TempDir dir_;
  Host host_{dir_};
};

TEST_F(LateLoading, TwentyNeighboursWithStaticThreadLocalStorageLeaveEnough) {
  const Outcome outcome = Load(1, Neighbours(20));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
}

// Without this, the case above would prove nothing.
TEST_F(LateLoading, NeighboursRunOutOfStaticThreadLocalStorage) {
  const Outcome outcome = Load(1, Neighbours(200));
  EXPECT_EQ(outcome.status, 3) << "the loader says so";
  EXPECT_NE(outcome.error.find("static TLS"), std::string::npos) << outcome.error;
}

TEST_F(LateLoading, ThousandLoadsLeaveNothingBehind) {
  const Outcome outcome = Load(1'000, {});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  std::istringstream lines(outcome.output);
  std::set<std::string> ids;
  std::string line;
  for (int i = 0; i < 1'000; ++i) {
    std::getline(lines, line);
    EXPECT_TRUE(ids.insert(line).second) << line;
  }
  std::getline(lines, line);
  EXPECT_EQ(line, "descriptors 0 mappings 0");
}

}  // namespace
}  // namespace idd::harness

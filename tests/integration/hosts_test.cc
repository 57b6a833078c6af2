// SPDX-License-Identifier: Apache-2.0
//
// Hosts have names: what the allocator keeps about each host, and where idctl shows and takes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/pseudo_terminal.h"
#include "support/test_environment.h"
#include "support/two_hosts.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string NameOfThisMachine() {
  std::array<char, 256> name{};
  RequireErrno(::gethostname(name.data(), name.size() - 1) == 0, "gethostname");
  return name.data();
}

class Hosts : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    WriteFile(a_.daemon.options().config, "host_address = \"10.0.0.1, rack 7\"\n");
    a_.daemon.Start();
    b_.daemon.Start();
    WaitForInfo("host-a");
    WaitForInfo("host-b");
  }
  void WaitForInfo(const std::string& id) const {
    ASSERT_TRUE(WaitUntil(Patience(20s), [&] { return IsListedAsLive(id); })) << id;
  }
  // The host is another machine for people; its idd must not run, or it will set its name right.
  void Rename(const std::string& id, const std::string& name) {
    Execute("UPDATE idd_host SET name = '" + name + "' WHERE host = '" + id + "'");
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, Hosts, ::testing::Values("sqlite", "mysql"), StoreName);

TEST_P(Hosts, ListSaysWhichMachineEachHostIs) {
  std::string boot_id = ReadFile("/proc/sys/kernel/random/boot_id");
  boot_id.pop_back();
  const nlohmann::json a = Known("host-a");
  EXPECT_EQ(a.at("name"), NameOfThisMachine());
  EXPECT_EQ(a.at("address"), "10.0.0.1, rack 7");
  EXPECT_EQ(a.at("version"), IDD_TEST_VERSION);
  EXPECT_EQ(a.at("boot_id"), boot_id);
  EXPECT_EQ(a.at("condition"), "live");
  EXPECT_LE(a.at("silent_s").get<int>(), 60);
  EXPECT_LE(a.at("first_seen").get<std::string>(), a.at("last_seen").get<std::string>());
  EXPECT_TRUE(Known("host-b").at("address").is_null());
  const std::string text = a_.idctl.Run({"host", "list"}).out;
  EXPECT_THAT(text, ContainsRegex("HOST +NAME +ADDRESS +STATE +VERSION"));
  EXPECT_THAT(text, ContainsRegex("host-a +" + NameOfThisMachine() + " +10.0.0.1, rack 7 +live"));
  b_.daemon.Stop();
  EXPECT_EQ(Known("host-b").at("condition"), "stopped");
  EXPECT_THAT(a_.idctl.Run({"host", "list"}).out, ContainsRegex("host-b .* stopped "));
}

TEST_P(Hosts, AHostThatWasKilledIsSilentAfterAMinute) {
  b_.daemon.Kill();
  EXPECT_EQ(Known("host-b").at("condition"), "live");
  const std::string ago =
      is_mysql() ? "CURRENT_TIMESTAMP - INTERVAL 61 SECOND" : "datetime('now', '-61 seconds')";
  Execute("UPDATE idd_host SET last_seen = " + ago + " WHERE host = 'host-b'");
  EXPECT_EQ(Known("host-b").at("condition"), "silent");
  EXPECT_GE(Known("host-b").at("silent_s").get<int>(), 61);
}

TEST_P(Hosts, ReloadChangesTheAddress) {
  WriteFile(a_.daemon.options().config, "host_address = \"10.9.9.9\"\n");
  a_.daemon.Signal(SIGHUP);
  EXPECT_TRUE(WaitUntil(Patience(20s), [&] { return Known("host-a").at("address") == "10.9.9.9"; }))
      << a_.daemon.Log();
  EXPECT_EQ(a_.idctl.Json({"status"}).at("daemon").at("host_address"), "10.9.9.9");
  const std::size_t mark = a_.daemon.LogMark();
  WriteFile(a_.daemon.options().config, "host_address = \"\\u0007\"\n");
  a_.daemon.Signal(SIGHUP);
  EXPECT_TRUE(a_.daemon.WaitForLogLine("config.reload_failed.*host address", mark, Patience(10s)));
  EXPECT_EQ(a_.idctl.Json({"status"}).at("daemon").at("host_address"), "10.9.9.9");
}

TEST_P(Hosts, NamesStandBesideTheIdsOfLeases) {
  a_.idctl.CreateTag("orders", 100);
  const std::uint64_t id = a_.idctl.Claim("orders").front();
  const nlohmann::json lease = a_.idctl.Json({"lease", "list"}).at("leases").at(0);
  EXPECT_EQ(lease.at("host"), "host-a");
  EXPECT_EQ(lease.at("host_name"), NameOfThisMachine());
  const nlohmann::json origin = a_.idctl.Json({"whois", "orders", std::to_string(id)});
  EXPECT_EQ(origin.at("leases").at(0).at("host_name"), NameOfThisMachine());
  const nlohmann::json status = a_.idctl.Json({"status"}).at("daemon");
  EXPECT_EQ(status.at("host_name"), NameOfThisMachine());
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"lease", "list"}, {"whois", "orders", std::to_string(id)}}) {
    EXPECT_THAT(a_.idctl.Run(command).out,
                ContainsRegex("host-a .* " + NameOfThisMachine() + " +"));
  }
  EXPECT_THAT(a_.idctl.Run({"status"}).out,
              HasSubstr("host host-a (" + NameOfThisMachine() + ", 10.0.0.1, rack 7)"));
}

TEST_P(Hosts, ANameStandsForItsIdInAFilter) {
  a_.idctl.CreateTag("orders", 100);
  EXPECT_FALSE(a_.idctl.Claim("orders").empty());
  EXPECT_FALSE(b_.idctl.Claim("orders").empty());
  b_.daemon.Kill();
  Rename("host-b", "web-3");
  const nlohmann::json leases = a_.idctl.Json({"lease", "list", "--host", "web-3"}).at("leases");
  ASSERT_FALSE(leases.empty());
  for (const auto& lease : leases) EXPECT_EQ(lease.at("host"), "host-b");
  EXPECT_EQ(a_.idctl.Json({"lease", "list", "--host", "host-b"}).at("leases"), leases);
  EXPECT_TRUE(a_.idctl.Json({"lease", "list", "--host", "web-4"}).at("leases").empty());
  // An id goes before a name.
  Rename("host-b", "host-a");
  const nlohmann::json of_a = a_.idctl.Json({"lease", "list", "--host", "host-a"});
  ASSERT_FALSE(of_a.at("leases").empty());
  for (const auto& lease : of_a.at("leases")) EXPECT_EQ(lease.at("host"), "host-a");
}

TEST_P(Hosts, ANameOfSeveralHostsIsRefusedWithTheirIds) {
  const IdctlResult result = a_.idctl.Run({"lease", "list", "--host", NameOfThisMachine()});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("2 hosts have the name '" + NameOfThisMachine() +
                                    "': host-a, host-b; give the id of one of them"));
}

TEST_P(Hosts, ANarrowTerminalKeepsTheNameAndTheState) {
  b_.daemon.Kill();
  Rename("host-b", "web-3");
  for (const unsigned short columns : std::array<unsigned short, 3>{40, 60, 80}) {
    const std::string text = a_.idctl.OnTerminal({"host", "list"}, columns);
    EXPECT_THAT(text, ContainsRegex("web-3 .*live"));
    for (const std::string& line : ShownLines(text)) EXPECT_LE(line.size(), columns) << text;
  }
  EXPECT_THAT(a_.idctl.OnTerminal({"host", "list"}, 40), Not(HasSubstr("BOOT-ID")));
}

TEST_P(Hosts, AHostThatHasSaidNothingOfItselfStaysWithoutAName) {
  b_.daemon.Kill();
  Execute("UPDATE idd_host SET name = '', address = '', version = '' WHERE host = 'host-b'");
  const nlohmann::json b = Known("host-b");
  for (const char* const field : {"name", "address", "version"}) EXPECT_TRUE(b.at(field).is_null());
  EXPECT_EQ(b.at("condition"), "live");
  b_.daemon.Start();
  WaitForInfo("host-b");
}

}  // namespace
}  // namespace idd::harness

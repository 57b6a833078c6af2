// SPDX-License-Identifier: Apache-2.0
#include "platform/host_id.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>

namespace idd::daemon {
namespace {

TEST(HostIdTest, AcceptsLettersDigitsDotsDashesAndUnderscores) {
  for (const std::string& id : {std::string("a"), std::string("db-01.example_EU"),
                                std::string(64, 'x'), std::string("0")}) {
    EXPECT_TRUE(CheckHostId(id).ok()) << id;
  }
}

TEST(HostIdTest, RefusesEmptyLongAndOtherCharacters) {
  for (const std::string& id : {std::string(), std::string(65, 'x'), std::string("a b"),
                                std::string("a/b"), std::string("a'b"), std::string("a\n"),
                                std::string("h\xc3\xb6st"), std::string("a\0", 2)}) {
    const Status status = CheckHostId(id);
    EXPECT_EQ(status.code(), Code::kInvalid) << id;
    EXPECT_FALSE(status.message().empty());
  }
}

TEST(HostIdTest, AnAddressIsPrintableAndNotTooLong) {
  for (const std::string& address : {std::string(), std::string("10.0.0.1, rack 7 ~"),
                                     std::string("[2001:db8::1]"), std::string(253, 'x')}) {
    EXPECT_TRUE(CheckHostAddress(address).ok()) << address;
  }
  for (const std::string& address : {std::string(254, 'x'), std::string("a\n"), std::string("\x7f"),
                                     std::string("h\xc3\xb6st"), std::string("a\0", 2)}) {
    EXPECT_EQ(CheckHostAddress(address).code(), Code::kInvalid) << address;
  }
}

TEST(HostIdTest, TheMachinesNameIsPrintable) {
  std::string name;
  std::ifstream("/proc/sys/kernel/hostname") >> name;
  EXPECT_EQ(MachineName(), name);
}

TEST(HostIdTest, IdOfTheMachineIsValidStableAndNotTheMachineIdItself) {
  const std::optional<std::string> id = HostIdFromMachineId();
  std::string machine_id;
  std::ifstream("/etc/machine-id") >> machine_id;
  if (!id.has_value()) return;  // no machine id, or a build without libsystemd
  EXPECT_TRUE(CheckHostId(*id).ok()) << *id;
  EXPECT_EQ(HostIdFromMachineId(), id);
  EXPECT_NE(*id, machine_id);
}

}  // namespace
}  // namespace idd::daemon

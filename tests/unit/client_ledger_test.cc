// SPDX-License-Identifier: Apache-2.0
#include "access/client_ledger.h"

#include <gtest/gtest.h>

#include <string>

namespace idd::daemon {
namespace {

constexpr MonotonicTime kNow{};

Peer Somebody(pid_t pid, uid_t uid) { return {.pid = pid, .uid = uid, .gid = uid, .groups = {}}; }

TEST(ClientLedgerTest, CountsSocketClaimsExactlyPerConnectionAndTag) {
  ClientLedger ledger;
  ledger.Connected(1, Somebody(100, 5), kNow);
  ledger.Connected(2, Somebody(200, 5), kNow);
  ledger.Claimed(1, "orders", 10, 0);
  ledger.Claimed(1, "orders", 7, 1);
  ledger.Claimed(1, "users", 1, 0);
  ledger.Claimed(2, "orders", 3, 0);
  const ClientUse& use = ledger.clients().at(1).uses.at("orders");
  EXPECT_EQ(use.requests, 2U);
  EXPECT_EQ(use.ids, 17U);
  EXPECT_EQ(use.dry_waits, 1U);
  EXPECT_FALSE(use.attached_since.has_value());
  EXPECT_EQ(ledger.clients().at(1).uses.at("users").ids, 1U);
  EXPECT_EQ(ledger.clients().at(2).uses.at("orders").ids, 3U);
}

TEST(ClientLedgerTest, AttachmentsShowSinceWhen) {
  ClientLedger ledger;
  ledger.Connected(1, Somebody(100, 5), kNow);
  ledger.Greeted(1, "1.2", 0x10001);
  ledger.Attached(1, "orders", kNow + std::chrono::seconds(1));
  ledger.Attached(1, "orders", kNow + std::chrono::seconds(9));
  const ClientLedger::Client& client = ledger.clients().at(1);
  EXPECT_EQ(client.version, "1.2");
  EXPECT_EQ(client.abi_version, 0x10001U);
  EXPECT_EQ(client.uses.at("orders").attachments, 2U);
  EXPECT_EQ(client.uses.at("orders").attached_since, kNow + std::chrono::seconds(9));
}

TEST(ClientLedgerTest, WhatIsGoneIsSummedUpByUidAndTag) {
  ClientLedger ledger;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ledger.Connected(id, Somebody(100, id == 3 ? 6 : 5), kNow);
    ledger.Attached(id, "orders", kNow);
    ledger.Claimed(id, "orders", 10, 1);
    ledger.Gone(id);
  }
  EXPECT_TRUE(ledger.clients().empty());
  ASSERT_EQ(ledger.past().size(), 2U);
  const ClientLedger::Past& past = ledger.past().at({5, "orders"});
  EXPECT_EQ(past.connections, 2U);
  EXPECT_EQ(past.use.attachments, 2U);
  EXPECT_EQ(past.use.requests, 2U);
  EXPECT_EQ(past.use.ids, 20U);
  EXPECT_EQ(past.use.dry_waits, 2U);
  EXPECT_EQ(ledger.past().at({6, "orders"}).use.ids, 10U);
}

TEST(ClientLedgerTest, ConnectionThatUsedNothingLeavesNothing) {
  ClientLedger ledger;
  ledger.Connected(1, Somebody(100, 5), kNow);
  ledger.Gone(1);
  EXPECT_TRUE(ledger.past().empty());
}

TEST(ClientLedgerTest, StrangersAreIgnored) {
  ClientLedger ledger;
  ledger.Claimed(9, "orders", 1, 0);
  ledger.Attached(9, "orders", kNow);
  ledger.Greeted(9, "x", 1);
  ledger.Gone(9);
  EXPECT_TRUE(ledger.clients().empty());
  EXPECT_TRUE(ledger.past().empty());
}

TEST(ClientLedgerTest, ConnectionOfVeryManyTagsIsBoundedAndLosesNoCount) {
  ClientLedger ledger;
  ledger.Connected(1, Somebody(100, 5), kNow);
  constexpr std::size_t kTags = ClientLedger::kMaxTags + 50;
  for (std::size_t i = 0; i < kTags; ++i) ledger.Claimed(1, "tag" + std::to_string(i), 2, 0);
  const ClientLedger::Uses& uses = ledger.clients().at(1).uses;
  EXPECT_EQ(uses.size(), ClientLedger::kMaxTags + 1);
  EXPECT_EQ(uses.at(ClientLedger::kOtherTags).ids, 100U);
  ledger.Claimed(1, "tag0", 2, 0);
  EXPECT_EQ(uses.at("tag0").ids, 4U) << "a known tag must still have its own count";
}

TEST(ClientLedgerTest, PastIsBoundedAndLosesNoCount) {
  ClientLedger ledger;
  constexpr std::uint64_t kUsers = ClientLedger::kMaxPastEnd + 70;
  for (std::uint64_t id = 1; id <= kUsers; ++id) {
    ledger.Connected(id, Somebody(100, static_cast<uid_t>(id)), kNow);
    ledger.Claimed(id, "orders", 1, 0);
    ledger.Gone(id);
  }
  EXPECT_EQ(ledger.past().size(), ClientLedger::kMaxPastEnd + 1);
  std::uint64_t ids = 0;
  for (const auto& [key, past] : ledger.past()) ids += past.use.ids;
  EXPECT_EQ(ids, kUsers);
  EXPECT_EQ(ledger.past().at({ClientLedger::kOtherUsers, ClientLedger::kOtherTags}).connections,
            70U);
}

}  // namespace
}  // namespace idd::daemon

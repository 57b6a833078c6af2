// SPDX-License-Identifier: Apache-2.0
//
// TagService with the rings that an earlier idd left open: it closes each one when its tag's turn
// comes or a client needs it, and not before.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "idd/shm/abi.h"
#include "restart/descriptor_names.h"
#include "restart/inheritance.h"
#include "support/leases.h"
#include "support/service_harness.h"

namespace idd::daemon {
namespace {

constexpr std::uint64_t kLeased = 100;
constexpr std::uint64_t kClaimedBefore = 10;
constexpr const char* kTags[] = {"apples", "berries", "cherries"};

class TakeOverTest : public ::testing::Test {
 protected:
  TakeOverTest() {
    char digit = 'a';
    for (const char* tag : kTags) Leave(tag, Token(digit++));
    inheritance_ = Find();
    old_held_ = std::exchange(h_.held, std::move(inheritance_.held));
    service_ = std::make_unique<TagService>(h_.loop, h_.worker, h_.handover(), 1000);
    h_.Start([this](const StoreHealth& health) { service_->OnStoreHealth(health); });
    h_.Settle();
  }

  // An idd that has published a lease of the tag, of which some ids were claimed.
  void Leave(const std::string& tag, const std::string& token) {
    h_.store.AddTag(tag, 1000);
    const Lease lease = h_.store.TakeLease({.tag = tag, .count = kLeased, .token = token}).value();
    h_.held->RecordAsked(token, tag);
    h_.held->RecordGranted(lease, h_.store.FindTag(tag).value());
    std::unique_ptr<TagRing>& ring = old_[tag];
    ring = TagRing::Create(tag, 0, h_.descriptors).value();
    h_.held->RecordUsed(token, lease.ids.first, ring->ring_id());
    ring->Publish(lease, 0, shm::kNoMark, h_.held->NextOf(token));
    EXPECT_EQ(ring->Claim(kClaimedBefore).size(), kClaimedBefore);
  }
  Inheritance Find() {
    std::vector<PassedDescriptor> passed;
    passed.push_back({kHeldLeasesName, ScopedFd(::dup(h_.held->fd()))});
    for (const auto& [tag, ring] : old_) {
      passed.push_back({TableName(ring->ring_id()), ScopedFd(::dup(ring->table_fd()))});
      passed.push_back({CursorsName(ring->ring_id()), ScopedFd(::dup(ring->cursors_fd()))});
    }
    return Inherit(passed, "host-a", h_.held->id()).value();
  }
  // A claimer that still has the old ring.
  bool OldRingServes(const std::string& tag) { return !old_[tag]->Claim(1).empty(); }
  bool IsKept(const std::string& tag) {
    const std::uint64_t ring_id = old_[tag]->ring_id();
    return h_.descriptors.names.contains(TableName(ring_id)) &&
           h_.descriptors.names.contains(CursorsName(ring_id));
  }
  std::uint64_t NextId(const std::string& tag) { return h_.store.FindTag(tag).value().next_id; }

  WorkerHarness h_;
  std::unique_ptr<HeldLeases> old_held_;  // the earlier idd's mapping of the same list
  std::map<std::string, std::unique_ptr<TagRing>> old_;
  Inheritance inheritance_;
  std::unique_ptr<TagService> service_;
};

TEST_F(TakeOverTest, TagThatIsAskedForIsTakenOverBeforeItsTurn) {
  service_->Inherit(inheritance_);
  for (const char* tag : kTags) EXPECT_TRUE(OldRingServes(tag)) << tag;
  std::uint64_t ring_id = 0;
  service_->Attach("cherries", {.owner = 1, .deadline = Deadline::After(std::chrono::minutes(1))},
                   [&ring_id](const Result<AttachGrant>& grant) {
                     ring_id = grant.ok() ? grant.value().ring_id : 0;
                   });
  EXPECT_NE(ring_id, 0U) << "at once, without the store";
  EXPECT_NE(ring_id, old_["cherries"]->ring_id());
  EXPECT_FALSE(OldRingServes("cherries"));
  EXPECT_TRUE(OldRingServes("apples"));
  EXPECT_TRUE(OldRingServes("berries"));
}

TEST_F(TakeOverTest, RestOfEachLeaseGoesOnInOneNewRing) {
  bool is_done = false;
  service_->Inherit(inheritance_, [&is_done] { is_done = true; });
  EXPECT_FALSE(is_done);
  ASSERT_TRUE(h_.RunUntil([&is_done] { return is_done; }));
  for (const char* tag : kTags) {
    EXPECT_FALSE(OldRingServes(tag)) << tag;
    EXPECT_FALSE(IsKept(tag)) << tag;
  }
  EXPECT_EQ(h_.descriptors.names.size(), 2 * std::size(kTags)) << "those of the new rings";
  for (const TagSnapshot& tag : service_->Snapshot()) {
    ASSERT_EQ(tag.leases.size(), 1U);
    EXPECT_EQ(tag.leases[0].claimed, kClaimedBefore);
    EXPECT_EQ(tag.claimed, kClaimedBefore);
  }
  EXPECT_EQ(service_->Snapshot().size(), std::size(kTags));
}

// Otherwise its queue fills up, and the loop waits for it.
TEST_F(TakeOverTest, NextTagWaitsUntilTheManagerHasHandledTheOneBefore) {
  h_.descriptors.is_busy = true;
  service_->Inherit(inheritance_);
  for (std::size_t taken = 0; taken < std::size(kTags); ++taken) {
    ASSERT_TRUE(h_.descriptors.IsAwaited()) << taken;
    h_.Settle();
    EXPECT_TRUE(OldRingServes(kTags[taken])) << taken;
    h_.descriptors.TakeWaiting()();
    EXPECT_TRUE(h_.RunUntil([&] { return !OldRingServes(kTags[taken]); }));
  }
}

// One tag in a turn: other work runs in between.
TEST_F(TakeOverTest, TakesOneTagInATurnOfTheLoop) {
  service_->Inherit(inheritance_);
  const auto open = [this] {
    return std::count_if(std::begin(kTags), std::end(kTags),
                         [this](const char* tag) { return OldRingServes(tag); });
  };
  auto before = open();
  EXPECT_EQ(before, std::ssize(kTags));
  ASSERT_TRUE(h_.RunUntil([&] {
    const auto now = open();
    EXPECT_LE(before - now, 1);
    before = now;
    return now == 0;
  }));
}

TEST_F(TakeOverTest, StopBeforeAnyTurnHandsAllBack) {
  service_->Inherit(inheritance_);
  bool is_stopped = false;
  service_->Shutdown([&is_stopped] { is_stopped = true; });
  ASSERT_TRUE(h_.RunUntil([&is_stopped] { return is_stopped; }));
  for (const char* tag : kTags) {
    EXPECT_FALSE(OldRingServes(tag)) << tag;
    EXPECT_EQ(NextId(tag), 1 + kClaimedBefore) << tag;
  }
}

// An idd that leaves or dies before a tag's turn leaves the tag as it found it.
TEST_F(TakeOverTest, WhatWasNotTakenOverIsLeftToTheNext) {
  service_->Inherit(inheritance_);
  service_->Attach("berries", {.owner = 1, .deadline = Deadline::After(std::chrono::minutes(1))},
                   [](const Result<AttachGrant>&) {});
  service_.reset();
  for (const char* tag : {"apples", "cherries"}) {
    EXPECT_TRUE(IsKept(tag)) << tag;
    EXPECT_TRUE(OldRingServes(tag)) << tag;
  }
  EXPECT_FALSE(IsKept("berries")) << "that is another ring now";
  EXPECT_EQ(h_.descriptors.names.size(), 2 * std::size(kTags));
  for (const HeldLease& held : h_.held->All()) {
    EXPECT_EQ(held.state, HeldState::kHeld);
    EXPECT_TRUE(h_.descriptors.names.contains(TableName(held.ring_id))) << held.lease.tag;
  }
}

// Notices of many tags come together; each would take a tag over before the waiting clients are
// served.
TEST_F(TakeOverTest, RefillNoticeDoesNotTakeATagOver) {
  service_->Inherit(inheritance_);
  service_->Refill("berries");
  EXPECT_TRUE(OldRingServes("berries"));
}

TEST_F(TakeOverTest, DeletedTagHasNoRingLeft) {
  service_->Inherit(inheritance_);
  service_->OnTagDeleted("apples");
  EXPECT_FALSE(OldRingServes("apples"));
  EXPECT_TRUE(OldRingServes("berries"));
}

TEST_F(TakeOverTest, DrainTakesWhatIsLeft) {
  service_->Inherit(inheritance_);
  service_->Drain("apples");
  EXPECT_FALSE(OldRingServes("apples"));
  h_.Settle();
  EXPECT_EQ(NextId("apples"), 1 + kClaimedBefore);
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "leasing/ceilings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace idd::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Ceilings::Horizon kAlone = {.now_ms = 1000, .silence = std::chrono::seconds(600)};

Ceilings::Need NeedOf(std::uint64_t base, std::uint64_t ceiling) {
  return {.tag = "orders", .base = base, .count = 1000, .last = 1'000'000'000, .ceiling = ceiling};
}

FenceView ViewOf(std::uint64_t wanted, std::uint64_t epoch) {
  FenceView view;
  view.ceilings = {{.tag = "orders", .active = 0, .wanted = wanted}};
  view.epoch = epoch;
  return view;
}

// Another live host that has noted `epoch`.
OtherHosts HostThatNoted(std::uint64_t epoch) {
  FenceView view;
  FenceMember& member = view.members.emplace_back();
  member.host = "other";
  member.noted = epoch;
  member.state = MemberState::kLive;
  OtherHosts others;
  others.Track(view, "this", 0);
  return others;
}

TEST(Ceilings, TagWithoutACeilingIsRaisedForSeveralLeases) {
  Ceilings ceilings;
  const auto raise = ceilings.RaiseFor(NeedOf(1, 0), kAlone);
  ASSERT_TRUE(raise.has_value());
  EXPECT_EQ(raise->tag, "orders");
  EXPECT_EQ(raise->wanted, 1001 + 12 * 1000);
  EXPECT_EQ(raise->least, 1001 + 12 * 1000 / 3);
  EXPECT_EQ(ceilings.pending(), 0U) << "it is not committed yet";
}

// All hosts that start at the same time need the same tags.
TEST(Ceilings, WhatAnotherHostWantsAlreadyIsAwaitedInsteadOfRaised) {
  Ceilings ceilings;
  ceilings.Note(ViewOf(13'001, 4));
  EXPECT_FALSE(ceilings.RaiseFor(NeedOf(1, 0), kAlone).has_value());
  EXPECT_EQ(ceilings.pending(), 1U);
  EXPECT_THAT(ceilings.Activatable(HostThatNoted(3)), IsEmpty()) << "nothing can be activated";
  EXPECT_THAT(ceilings.Activatable(HostThatNoted(4)), ElementsAre("orders"));
  ceilings.TakeActive({"orders"}, {{.tag = "orders", .active = 13'001, .wanted = 13'001}});
  EXPECT_EQ(ceilings.Active("orders"), 13'001U);
  EXPECT_EQ(ceilings.pending(), 0U);
}

TEST(Ceilings, WhatAnotherHostWantsIsRaisedIfItIsTooLow) {
  Ceilings ceilings;
  ceilings.Note(ViewOf(1001, 4));
  const auto raise = ceilings.RaiseFor(NeedOf(1, 0), kAlone);
  ASSERT_TRUE(raise.has_value());
  EXPECT_GT(raise->least, 1001U);
  EXPECT_GE(raise->wanted, raise->least);
}

TEST(Ceilings, LaterRaiseOfAPendingTagIsAwaitedToo) {
  Ceilings ceilings;
  ceilings.Note(ViewOf(13'001, 4));
  EXPECT_FALSE(ceilings.RaiseFor(NeedOf(1, 0), kAlone).has_value());
  ceilings.Note(ViewOf(20'001, 6));
  EXPECT_THAT(ceilings.Activatable(HostThatNoted(4)), IsEmpty());
  EXPECT_THAT(ceilings.Activatable(HostThatNoted(6)), ElementsAre("orders"));
  // Not all have noted it in the store: a host has joined meanwhile.
  ceilings.TakeActive({"orders"}, {{.tag = "orders", .active = 0, .wanted = 20'001}});
  EXPECT_EQ(ceilings.pending(), 1U);
}

TEST(Ceilings, RowThatIsGoneOrWantsLessIsRaisedAgain) {
  for (const std::vector<Ceiling>& rows :
       {std::vector<Ceiling>(), {{.tag = "orders", .active = 0, .wanted = 9000}}}) {
    Ceilings ceilings;
    ceilings.Note(ViewOf(13'001, 4));
    EXPECT_FALSE(ceilings.RaiseFor(NeedOf(1, 0), kAlone).has_value());
    ceilings.TakeActive({"orders"}, rows);
    EXPECT_EQ(ceilings.pending(), 0U);
    EXPECT_TRUE(ceilings.RaiseFor(NeedOf(1, 0), kAlone).has_value());
  }
}

TEST(Ceilings, RaiseThatTheLookDidNotShowIsNotAwaited) {
  Ceilings ceilings;
  const auto raise = ceilings.RaiseFor(NeedOf(1, 0), kAlone);
  ceilings.Await(*raise);
  EXPECT_EQ(ceilings.pending(), 0U);
  ceilings.Note(ViewOf(raise->wanted, 5));
  ceilings.Await(*raise);
  EXPECT_EQ(ceilings.pending(), 1U);
}

TEST(Ceilings, AnotherDataSetIsAskedAgain) {
  Ceilings ceilings;
  ceilings.Note(ViewOf(13'001, 4));
  EXPECT_FALSE(ceilings.RaiseFor(NeedOf(1, 0), kAlone).has_value());
  ceilings.Forget();
  EXPECT_EQ(ceilings.pending(), 0U);
  EXPECT_TRUE(ceilings.RaiseFor(NeedOf(1, 0), kAlone).has_value());
}

TEST(Ceilings, ReachTheEndOfTheTagAndNoFurther) {
  Ceilings ceilings;
  Ceilings::Need need = NeedOf(999'999'900, 0);
  const auto raise = ceilings.RaiseFor(need, kAlone);
  ASSERT_TRUE(raise.has_value());
  EXPECT_EQ(raise->wanted, 1'000'000'001U);
  EXPECT_EQ(raise->least, 1'000'000'001U);
  need.ceiling = 1'000'000'001;
  EXPECT_FALSE(ceilings.RaiseFor(need, kAlone).has_value());
}

Ceilings::Horizon After(std::int64_t ms) {
  Ceilings::Horizon later = kAlone;
  later.now_ms += ms;
  return later;
}

// The ceiling that the tag is raised to; 0: none.
std::uint64_t Raise(Ceilings& ceilings, const Ceilings::Need& need,
                    const Ceilings::Horizon& horizon) {
  const auto raise = ceilings.RaiseFor(need, horizon);
  if (raise.has_value()) ceilings.Await(*raise);
  return raise.has_value() ? raise->wanted : 0;
}

TEST(Ceilings, FastTagIsRaisedForAsLongAsASilentHostIsAwaited) {
  Ceilings ceilings;
  Raise(ceilings, NeedOf(1, 0), kAlone);
  EXPECT_EQ(Raise(ceilings, NeedOf(1001, 1001), After(10'000)), 2001 + 90'000)
      << "100 ids/s for 1.5 times 600 s";
}

// What looks like a rate may be a lift.
TEST(Ceilings, RaiseIsAtMostEightTimesTheLastOne) {
  Ceilings ceilings;
  Raise(ceilings, NeedOf(1, 0), kAlone);
  std::uint64_t base = 100'001;
  std::int64_t ms = 0;
  for (const std::uint64_t ahead : {96'000U, 768'000U, 6'144'000U, 9'000'000U}) {
    EXPECT_EQ(Raise(ceilings, NeedOf(base, base), After(ms += 10'000)), base + 1000 + ahead)
        << "for 10,000 ids/s";
    base += 100'000;
  }
}

// Another host was raising. The next try is no larger for it, and has the rate since the last
// raise.
TEST(Ceilings, RaiseThatIsNotDoneIsNotTheLastOne) {
  Ceilings ceilings;
  Raise(ceilings, NeedOf(1, 0), kAlone);
  for (unsigned tries = 1; tries < 5; ++tries) {
    const std::uint64_t base = 1 + 100'000U * tries;
    const auto raise = ceilings.RaiseFor(NeedOf(base, base), After(10'000L * tries));
    ASSERT_TRUE(raise.has_value());
    EXPECT_EQ(raise->wanted, base + 1000 + 96'000);
  }
  EXPECT_EQ(Raise(ceilings, NeedOf(500'001, 500'001), After(5'000'000)), 501'001 + 90'000)
      << "500,000 ids in 5000 s";
}

// A host that comes to the data set lifts the tag to its ceiling, and pushes that. What a raise
// takes is skipped at the next lift: were it in proportion to the last lift, a few hosts that come
// again would use the tag up.
TEST(Ceilings, IdsThatALiftSkippedAreNoRate) {
  Ceilings ceilings;
  Raise(ceilings, NeedOf(1, 0), kAlone);
  FenceView view = ViewOf(500'001, 4);
  view.ceilings.front().pushed = 500'001;
  ceilings.Note(view);
  EXPECT_EQ(Raise(ceilings, NeedOf(500'001, 500'001), After(1'000)), 501'001 + 12'000);
  view.epoch = 5;
  ceilings.Note(view);
  EXPECT_EQ(Raise(ceilings, NeedOf(510'001, 513'001), After(101'000)), 511'001 + 90'000)
      << "10,000 ids were leased in 100 s";
}

TEST(Ceilings, AnotherDataSetIsRaisedAtTheRateOfTheLastOne) {
  Ceilings ceilings;
  Raise(ceilings, NeedOf(1, 0), kAlone);
  Raise(ceilings, NeedOf(1001, 1001), After(10'000));
  ceilings.Forget();
  EXPECT_EQ(Raise(ceilings, NeedOf(92'001, 0), After(11'000)), 93'001 + 90'000)
      << "the lift from 1001 to 92,001 is no rate";
}

TEST(Ceilings, RaiseForAnotherDataSetIsNotTheLastOne) {
  Ceilings ceilings;
  Raise(ceilings, NeedOf(1, 0), kAlone);
  const auto raise = ceilings.RaiseFor(NeedOf(100'001, 100'001), After(10'000));
  ASSERT_TRUE(raise.has_value());
  for (int sets = 1; sets < 5; ++sets) {
    ceilings.Forget();
    static_cast<void>(ceilings.RaiseFor(NeedOf(200'001, 0), After(20'000 * sets)));
  }
  EXPECT_EQ(Raise(ceilings, NeedOf(300'001, 0), After(110'000)), 301'001 + 96'000)
      << "eight times 12,000; 100,000 ids in 30 s would be more";
}

}  // namespace
}  // namespace idd::daemon

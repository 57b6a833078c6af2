// SPDX-License-Identifier: Apache-2.0
//
// The next idd inherits from a run that ended between any two of its steps.
#include "restart/inheritance.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "idd/shm/ring_memory.h"
#include "restart/descriptor_names.h"
#include "support/leases.h"
#include "support/service_harness.h"

namespace idd::daemon {
namespace {

constexpr const char* kHost = "host-a";

// An idd of which only the descriptors are left.
class InheritanceTest : public ::testing::Test {
 protected:
  void Hold(const Lease& lease) {
    TagRecord record;
    record.tag = lease.tag;
    record.step = 1000;
    record.max_id = shm::kMaxLimit - 1;
    held_->RecordAsked(lease.token, lease.tag);
    held_->RecordGranted(lease, record);
  }
  void Publish(const Lease& lease, std::uint64_t taken = 0) {
    held_->RecordUsed(lease.token, lease.ids.first + taken, ring_->ring_id());
    ring_->Publish(lease, taken, shm::kNoMark, held_->NextOf(lease.token));
  }
  void HoldInRing(const Lease& lease, std::uint64_t taken = 0) {
    Hold(lease);
    Publish(lease, taken);
  }
  std::uint64_t& Cursor(std::uint32_t slot) {
    return *reinterpret_cast<std::uint64_t*>(&Cursors().slots[slot].next);
  }
  // The cursors as a client maps them.
  shm::Cursors& Cursors() {
    if (client_ == nullptr) {
      client_ = shm::RingMemory::Attach(ScopedFd(::dup(ring_->table_fd())),
                                        ScopedFd(::dup(ring_->cursors_fd())), "orders")
                    .value();
    }
    return client_->cursors();
  }
  std::vector<PassedDescriptor> Left() {
    std::vector<PassedDescriptor> passed;
    passed.push_back({kHeldLeasesName, ScopedFd(::dup(held_->fd()))});
    passed.push_back({TableName(ring_->ring_id()), ScopedFd(::dup(ring_->table_fd()))});
    passed.push_back({CursorsName(ring_->ring_id()), ScopedFd(::dup(ring_->cursors_fd()))});
    return passed;
  }
  Inheritance Find() {
    std::vector<PassedDescriptor> passed = Left();
    Result<Inheritance> inheritance = Inherit(passed, kHost, held_->id());
    EXPECT_TRUE(inheritance.ok()) << inheritance.status().message();
    return std::move(inheritance).value();
  }
  // Everything that the old idd left, taken over.
  struct Taken {
    std::unique_ptr<HeldLeases> held;
    std::vector<InheritedTag> tags;  // those with a remaining lease
    std::vector<LeaseUse> closing;
    std::vector<LeaseUse> returning;
    AskedLeases asked;
    std::vector<InheritedRing> rings;
    std::vector<std::string> names;
  };
  Taken Take() { return Take(Left()); }
  Taken Take(std::vector<PassedDescriptor> passed) {
    const std::string list_id = held_->id();
    Result<Inheritance> found = Inherit(passed, kHost, list_id);
    EXPECT_TRUE(found.ok()) << found.status().message();
    Inheritance& inheritance = found.value();
    Taken taken{.held = std::move(inheritance.held),
                .tags = {},
                .closing = std::move(inheritance.closing),
                .returning = std::move(inheritance.returning),
                .asked = std::move(inheritance.asked),
                .rings = {},
                .names = std::move(inheritance.names)};
    for (LeftTag& left : inheritance.tags) {
      InheritedTag tag = CloseOldRings(std::move(left), *taken.held);
      Move(tag.closing, taken.closing);
      Move(tag.returning, taken.returning);
      Move(tag.rings, taken.rings);
      Move(tag.names, taken.names);
      if (!tag.leases.empty()) taken.tags.push_back(std::move(tag));
    }
    return taken;
  }
  template <typename T>
  static void Move(std::vector<T>& from, std::vector<T>& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }
  // The one lease that is published again.
  static LeaseUse Rest(const Taken& taken) {
    EXPECT_EQ(taken.tags.size(), 1U);
    if (taken.tags.size() != 1) return {};
    EXPECT_EQ(taken.tags[0].leases.size(), 1U);
    return taken.tags[0].leases.empty() ? LeaseUse{} : taken.tags[0].leases[0];
  }

  FakeDescriptorStore descriptors_;
  std::unique_ptr<HeldLeases> held_ = HeldLeases::Create(kHost).value();
  std::unique_ptr<TagRing> ring_ = TagRing::Create("orders", 0, descriptors_).value();
  std::unique_ptr<shm::RingMemory> client_;
};

TEST_F(InheritanceTest, WithoutAnythingLeftBegins) {
  const Taken inheritance = Take({});
  ASSERT_NE(inheritance.held, nullptr);
  EXPECT_TRUE(inheritance.tags.empty() && inheritance.names.empty() && inheritance.asked.empty());
}

TEST_F(InheritanceTest, LeaseThatWasAskedForIsAskedAbout) {
  held_->RecordAsked(Token('a'), "orders");
  EXPECT_EQ(Take().asked, (AskedLeases{{Token('a'), "orders"}}));
}

TEST_F(InheritanceTest, GrantedLeaseIsPublishedWhole) {
  Hold(LeaseOf('a', 1, 1001));
  EXPECT_EQ(Rest(Take()).claimed, 0U);
}

TEST_F(InheritanceTest, WhatWaitersWereGivenIsNotGivenAgain) {
  Hold(LeaseOf('a', 1, 1001));
  held_->RecordUsed(Token('a'), 8, 0);
  EXPECT_EQ(Rest(Take()).claimed, 7U);
}

// Killed between the record and the publication.
TEST_F(InheritanceTest, LeaseOfARingThatDoesNotHaveItIsPublished) {
  Hold(LeaseOf('a', 1, 1001));
  held_->RecordUsed(Token('a'), 8, ring_->ring_id());
  EXPECT_EQ(Rest(Take()).claimed, 7U);
}

TEST_F(InheritanceTest, RingIsClosedAndTheRestGoesOn) {
  HoldInRing(LeaseOf('a', 1, 1001), 3);
  ASSERT_EQ(ring_->Claim(10).size(), 10U);
  const Taken inheritance = Take();
  EXPECT_EQ(Rest(inheritance).claimed, 13U);
  EXPECT_EQ(inheritance.rings.size(), 1U);
  EXPECT_GE(Cursor(1), shm::kClosingStep) << "the old ring must be closed";
  EXPECT_TRUE(ring_->Claim(1).empty());
  EXPECT_EQ(inheritance.names.size(), 2U);
}

// A found ring is not closed yet: claims continue until its tag's turn, and all of them count.
TEST_F(InheritanceTest, RingStaysOpenUntilItIsTakenOver) {
  HoldInRing(LeaseOf('a', 1, 1001));
  ASSERT_EQ(ring_->Claim(10).size(), 10U);
  Inheritance found = Find();
  ASSERT_EQ(found.tags.size(), 1U);
  EXPECT_EQ(found.tags[0].first_id(), 1U);
  EXPECT_TRUE(found.names.empty()) << "its descriptors are needed";
  EXPECT_EQ(ring_->Claim(7).size(), 7U) << "it must still be open";
  const InheritedTag taken = CloseOldRings(std::move(found.tags[0]), *found.held);
  ASSERT_EQ(taken.leases.size(), 1U);
  EXPECT_EQ(taken.leases[0].claimed, 17U);
  EXPECT_TRUE(ring_->Claim(1).empty());
  EXPECT_EQ(taken.names.size(), 2U);
}

// As after an idd whose names had the whole id of a ring.
TEST_F(InheritanceTest, LongerNamesOfAnEarlierVersionAreKnown) {
  HoldInRing(LeaseOf('a', 1, 1001), 3);
  const std::string key = LongRingKey(ring_->ring_id());
  EXPECT_EQ(key.size(), 11U);
  std::vector<PassedDescriptor> passed = Left();
  passed[1].name = "t" + key;
  passed[2].name = "c" + key;
  const Taken taken = Take(std::move(passed));
  EXPECT_EQ(Rest(taken).claimed, 3U);
  EXPECT_EQ(taken.names.size(), 2U);
}

// If the manager has not dropped what it had under a name, nobody knows which cursors belong to the
// table: with the wrong ones, claimed ids would seem to be free.
TEST_F(InheritanceTest, SeveralDescriptorsOfOneNameAreNotInherited) {
  HoldInRing(LeaseOf('a', 1, 1001), 3);
  const std::unique_ptr<TagRing> other = TagRing::Create("users", 0, descriptors_).value();
  for (const bool is_first : {true, false}) {
    std::vector<PassedDescriptor> passed = Left();
    passed.insert(passed.begin() + (is_first ? 1 : 3),
                  {CursorsName(ring_->ring_id()), ScopedFd(::dup(other->cursors_fd()))});
    Inheritance found = Inherit(passed, kHost, held_->id()).value();
    EXPECT_TRUE(found.tags.empty());
    EXPECT_EQ(found.names.size(), 3U) << "all of them are dropped";
  }
}

// Names have room for a number only, so no two rings may have the same one at a time.
TEST_F(InheritanceTest, NamesOfRingsThatAreKeptDifferAndThoseOfDroppedOnesComeBack) {
  std::set<std::string> names;
  std::vector<std::uint64_t> ids;
  for (std::uint32_t i = 1; i < DescriptorStore::kNumbers; ++i) {  // ring_ has one
    ids.push_back(NewRingId(descriptors_));
    names.insert(TableName(ids.back()));
  }
  EXPECT_EQ(names.size(), ids.size());
  EXPECT_FALSE(names.contains(TableName(ring_->ring_id())));
  EXPECT_EQ(names.begin()->size(), 4U);
  DropRing(descriptors_, ids[77]);
  EXPECT_EQ(TableName(NewRingId(descriptors_)), TableName(ids[77]));
  DropInherited(descriptors_, CursorsName(ids[78]));
  ReserveInherited(descriptors_, TableName(ids[78]));
  DropInherited(descriptors_, "c" + LongRingKey(ids[79]));
  DropInherited(descriptors_, TableName(ids[80]));
  EXPECT_EQ(TableName(NewRingId(descriptors_)), TableName(ids[80]))
      << "only this one was dropped and not reserved";
}

// Killed when one tag is taken over and another is not: the third idd inherits both.
TEST_F(InheritanceTest, OneOfTwoTagsTakenOverIsInheritedLikeBoth) {
  std::unique_ptr<TagRing> users = TagRing::Create("users", 0, descriptors_).value();
  HoldInRing(LeaseOf('a', 1, 1001));
  Lease lease = LeaseOf('b', 1, 501);
  lease.tag = "users";
  Hold(lease);
  held_->RecordUsed(lease.token, 1, users->ring_id());
  users->Publish(lease, 0, shm::kNoMark, held_->NextOf(lease.token));
  ASSERT_EQ(ring_->Claim(10).size(), 10U);
  const auto left = [&] {
    std::vector<PassedDescriptor> passed = Left();
    passed.push_back({TableName(users->ring_id()), ScopedFd(::dup(users->table_fd()))});
    passed.push_back({CursorsName(users->ring_id()), ScopedFd(::dup(users->cursors_fd()))});
    return passed;
  };
  {
    std::vector<PassedDescriptor> passed = left();
    Inheritance second = Inherit(passed, kHost, held_->id()).value();
    ASSERT_EQ(second.tags.size(), 2U);
    ASSERT_EQ(second.tags[0].tag, "orders");
    ASSERT_EQ(CloseOldRings(std::move(second.tags[0]), *second.held).leases.size(), 1U);
  }
  EXPECT_EQ(users->Claim(5).size(), 5U) << "its turn has not come yet";
  const Taken third = Take(left());
  ASSERT_EQ(third.tags.size(), 2U);
  EXPECT_EQ(third.tags[0].leases.at(0).claimed, 10U);
  EXPECT_EQ(third.tags[1].leases.at(0).claimed, 5U);
}

// Killed in the middle of the takeover, any number of times.
TEST_F(InheritanceTest, MayBeBegunAgain) {
  HoldInRing(LeaseOf('a', 1, 1001));
  ASSERT_EQ(ring_->Claim(10).size(), 10U);
  for (int start = 0; start < 3; ++start) EXPECT_EQ(Rest(Take()).claimed, 10U) << start;
}

// The earlier idd closed the ring and was killed before it recorded how far the lease was claimed.
TEST_F(InheritanceTest, RingThatTheEarlierDaemonHadClosedIsRead) {
  HoldInRing(LeaseOf('a', 1, 1001));
  ASSERT_EQ(ring_->Claim(10).size(), 10U);
  ASSERT_EQ(ring_->Retire().size(), 1U);
  EXPECT_EQ(Rest(Take()).claimed, 10U);
}

TEST_F(InheritanceTest, UsedUpLeaseIsClosed) {
  HoldInRing(LeaseOf('a', 1, 11));
  ASSERT_EQ(ring_->Claim(10).size(), 10U);
  Taken inheritance = Take();
  EXPECT_TRUE(inheritance.tags.empty());
  ASSERT_EQ(inheritance.closing.size(), 1U);
  EXPECT_EQ(inheritance.closing[0].available(), 0U);
  EXPECT_EQ(inheritance.held->All().at(0).state, HeldState::kClosing);
}

TEST_F(InheritanceTest, EndsUnderWayGoOn) {
  Hold(LeaseOf('a', 1, 1001));
  held_->RecordClosing(Token('a'), 5);
  Hold(LeaseOf('b', 1001, 2001));
  held_->RecordReturning(Token('b'), 7);
  const Taken inheritance = Take();
  EXPECT_TRUE(inheritance.tags.empty()) << "other hosts may have leased the rest";
  ASSERT_EQ(inheritance.closing.size(), 1U);
  EXPECT_EQ(inheritance.closing[0].claimed, 5U);
  ASSERT_EQ(inheritance.returning.size(), 1U);
  EXPECT_EQ(inheritance.returning[0].claimed, 7U);
}

TEST_F(InheritanceTest, LeasesComeInTheOrderOfTheirIds) {
  Hold(LeaseOf('b', 1001, 2001));
  Hold(LeaseOf('a', 1, 1001));
  const Taken inheritance = Take();
  ASSERT_EQ(inheritance.tags.size(), 1U);
  ASSERT_EQ(inheritance.tags[0].leases.size(), 2U);
  EXPECT_EQ(inheritance.tags[0].leases[0].lease.token, Token('a'));
}

TEST_F(InheritanceTest, LeasesThatOverlapAreNotBothPublished) {
  Hold(LeaseOf('a', 1, 1001));
  Hold(LeaseOf('b', 500, 2001));
  const Taken inheritance = Take();
  EXPECT_EQ(Rest(inheritance).lease.token, Token('a'));
  ASSERT_EQ(inheritance.closing.size(), 1U);
  EXPECT_EQ(inheritance.closing[0].lease.token, Token('b'));
}

TEST_F(InheritanceTest, MoreThanARingTakesGoesBack) {
  for (std::uint64_t i = 0; i < 16; ++i) {
    Hold(LeaseOf("0123456789abcdef"[i], 1 + i * 10, 11 + i * 10));
  }
  Lease newest = LeaseOf('0', 161, 171);
  newest.token.back() = '1';
  Hold(newest);
  const Taken inheritance = Take();
  ASSERT_EQ(inheritance.tags.size(), 1U);
  EXPECT_EQ(inheritance.tags[0].leases.size(), shm::kSlotCount);
  ASSERT_EQ(inheritance.returning.size(), 1U);
  EXPECT_EQ(inheritance.returning[0].lease.ids.first, 161U);
}

// A forged cursor: below a value already seen, or beyond anything ever added.
TEST_F(InheritanceTest, ForgedRingIsAbandoned) {
  HoldInRing(LeaseOf('a', 1000, 2000));
  ASSERT_EQ(ring_->Claim(500).size(), 500U);
  for (const std::uint64_t forged : {std::uint64_t{0}, std::uint64_t{1499}, shm::kClosingStep,
                                     ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    Cursor(1) = forged;
    const Taken inheritance = Take();
    std::uint64_t least = 2000;
    for (const InheritedTag& tag : inheritance.tags) {
      for (const LeaseUse& use : tag.leases) least = use.lease.ids.first + use.claimed;
    }
    EXPECT_GE(least, 1500U) << forged << ": ids that were seen claimed are not published again";
    EXPECT_TRUE(ring_->Claim(1).empty());
    held_->Forget(Token('a'));
    Hold(LeaseOf('a', 1000, 2000));
    held_->RecordUsed(Token('a'), 1500, ring_->ring_id());
  }
}

// A client that has written into one cursor may have written into any other.
TEST_F(InheritanceTest, RingWithOneForgedCursorIsAbandonedWhole) {
  for (const std::uint64_t forged : {std::uint64_t{0}, std::uint64_t{999}, std::uint64_t{1100}}) {
    ring_ = TagRing::Create("orders", 0, descriptors_).value();
    client_ = nullptr;
    Hold(LeaseOf('a', 1000, 2000));
    Hold(LeaseOf('b', 2000, 3000));
    Publish(LeaseOf('a', 1000, 2000));
    Publish(LeaseOf('b', 2000, 3000));
    ASSERT_EQ(ring_->Claim(500).size(), 500U);
    Cursor(1) = forged;
    const Taken inheritance = Take();
    EXPECT_TRUE(inheritance.tags.empty()) << forged << ": something of it is published again";
    EXPECT_EQ(inheritance.closing.size(), 2U);
    for (const char token : {'a', 'b'}) held_->Forget(Token(token));
  }
}

TEST_F(InheritanceTest, RingWhoseDescriptorsAreMissingIsAbandoned) {
  HoldInRing(LeaseOf('a', 1, 1001));
  for (std::size_t missing : {1U, 2U}) {
    std::vector<PassedDescriptor> passed = Left();
    passed.erase(passed.begin() + static_cast<std::ptrdiff_t>(missing));
    const Taken inheritance = Take(std::move(passed));
    EXPECT_TRUE(inheritance.tags.empty());
    EXPECT_EQ(inheritance.closing.size(), 1U);
    held_->Forget(Token('a'));
    Hold(LeaseOf('a', 1, 1001));
    held_->RecordUsed(Token('a'), 1, ring_->ring_id());
  }
}

TEST_F(InheritanceTest, DescriptorsThatAreSomethingElseAreAbandoned) {
  HoldInRing(LeaseOf('a', 1, 1001));
  std::vector<PassedDescriptor> passed = Left();
  std::swap(passed[1].fd, passed[2].fd);
  passed.push_back({"t0123456789:", ScopedFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))});
  passed.push_back({"", ScopedFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))});
  const std::size_t before = passed.size();
  Result<Inheritance> inheritance = Inherit(passed, kHost, held_->id());
  ASSERT_TRUE(inheritance.ok());
  EXPECT_TRUE(inheritance.value().tags.empty());
  EXPECT_EQ(passed.size(), before - 3) << "foreign descriptors must be left alone";
}

TEST_F(InheritanceTest, ListOfAnotherHostIsNotTaken) {
  Hold(LeaseOf('a', 1, 1001));
  std::vector<PassedDescriptor> passed = Left();
  Result<Inheritance> inheritance = Inherit(passed, "host-b", held_->id());
  ASSERT_TRUE(inheritance.ok());
  EXPECT_TRUE(inheritance.value().tags.empty());
  EXPECT_TRUE(inheritance.value().held->All().empty());
}

TEST_F(InheritanceTest, ListThatAnotherRunHasOvertakenIsNotTaken) {
  Hold(LeaseOf('a', 1, 1001));
  std::vector<PassedDescriptor> passed = Left();
  Result<Inheritance> inheritance = Inherit(passed, kHost, Token('0'));
  ASSERT_TRUE(inheritance.ok());
  EXPECT_TRUE(inheritance.value().tags.empty());
  EXPECT_FALSE(inheritance.value().held_is_kept);
}

TEST_F(InheritanceTest, CursorThatIsWrittenBackIsNoticed) {
  HoldInRing(LeaseOf('a', 1, 1001));
  const Taken inheritance = Take();
  ASSERT_EQ(inheritance.rings.size(), 1U);
  EXPECT_TRUE(inheritance.rings[0].ring->StaysClosed());
  Cursor(1) = 17;
  EXPECT_FALSE(inheritance.rings[0].ring->StaysClosed());
  inheritance.rings[0].ring->Close();
  EXPECT_TRUE(inheritance.rings[0].ring->StaysClosed());
}

}  // namespace
}  // namespace idd::daemon

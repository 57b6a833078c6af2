// SPDX-License-Identifier: Apache-2.0
#include "restart/held_leases.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "support/leases.h"

namespace idd::daemon {
namespace {

TagRecord OrdersWithAccess() {
  TagRecord record;
  record.tag = "orders";
  record.step = 1000;
  record.max_id = shm::kMaxLimit - 1;
  record.refill.step = 1000;
  record.refill.outage_tolerance = std::chrono::seconds(77);
  record.access = TagAccess::kSocket;
  return record;
}

class HeldLeasesTest : public ::testing::Test {
 protected:
  // The list as the next idd finds it.
  Result<std::unique_ptr<HeldLeases>> Adopted(const std::string& host = "host-a") {
    return HeldLeases::Adopt(ScopedFd(::dup(held_->fd())), host);
  }
  std::vector<HeldLease> Next() { return Adopted().value()->All(); }
  HeldLease Only() {
    const std::vector<HeldLease> all = Next();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? HeldLease{} : all.front();
  }
  void Hold(const Lease& lease) {
    held_->RecordAsked(lease.token, lease.tag);
    held_->RecordGranted(lease, OrdersWithAccess());
  }

  std::unique_ptr<HeldLeases> held_ = HeldLeases::Create("host-a").value();
};

TEST_F(HeldLeasesTest, NextDaemonFindsEveryStepOfALease) {
  const Lease lease = LeaseOf('a', 1, 1001);
  EXPECT_TRUE(Next().empty());
  held_->RecordAsked(lease.token, lease.tag);
  EXPECT_EQ(Only().state, HeldState::kAsked);
  EXPECT_EQ(Only().lease.token, lease.token);
  held_->RecordGranted(lease, OrdersWithAccess());
  EXPECT_EQ(Only().state, HeldState::kHeld);
  EXPECT_EQ(Only().next, 1U);
  EXPECT_EQ(Only().ring_id, 0U);
  held_->RecordUsed(lease.token, 5, 4711);
  EXPECT_EQ(Only().next, 5U);
  EXPECT_EQ(Only().ring_id, 4711U);
  held_->NextOf(lease.token)->store(101);  // as the ring does
  EXPECT_EQ(Only().next, 101U);
  held_->RecordReturning(lease.token, 200);
  EXPECT_EQ(Only().state, HeldState::kReturning);
  EXPECT_EQ(Only().next, 201U);
  held_->Forget(lease.token);
  EXPECT_TRUE(Next().empty());
}

TEST_F(HeldLeasesTest, SettingsComeWithTheLease) {
  Hold(LeaseOf('a', 1, 1001));
  const HeldLease held = Only();
  EXPECT_EQ(held.lease.tag, "orders");
  EXPECT_EQ(held.lease.ids, (shm::IdRange{1, 1001}));
  EXPECT_EQ(held.lease.previous_mark, 1U);
  EXPECT_EQ(held.record.refill, OrdersWithAccess().refill);
  EXPECT_EQ(held.record.access, TagAccess::kSocket);
  EXPECT_EQ(held.record.max_id, shm::kMaxLimit - 1);
  EXPECT_EQ(held.record.step, 1000U);
}

TEST_F(HeldLeasesTest, LeasesThatWereNeverNotedChangeNothing) {
  held_->RecordUsed(Token('b'), 5, 1);
  held_->RecordClosing(Token('b'), 5);
  EXPECT_EQ(held_->NextOf(Token('b')), nullptr);
  held_->Forget(Token('b'));
  EXPECT_TRUE(Next().empty());
}

TEST_F(HeldLeasesTest, PlacesAreUsedAgain) {
  for (int round = 0; round < 1000; ++round) {
    Hold(LeaseOf('a', 1, 1001));
    held_->Forget(Token('a'));
  }
  Hold(LeaseOf('b', 1, 1001));
  // Also through the adopted list.
  auto next = Adopted().value();
  ASSERT_EQ(next->All().size(), 1U);
  next->RecordAsked(Token('c'), "users");
  EXPECT_EQ(Next().size(), 2U);
  next->Forget(Token('b'));
  EXPECT_EQ(Only().lease.tag, "users");
}

TEST_F(HeldLeasesTest, OnlyTheSameHostsListOfTheSameLayoutIsAdopted) {
  EXPECT_TRUE(Adopted().ok());
  EXPECT_EQ(Adopted("host-b").status().code(), Code::kIncompatible);

  const auto of_size = [](off_t bytes) {
    ScopedFd fd(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
    return fd;
  };
  EXPECT_EQ(HeldLeases::Adopt(of_size(4096), "host-a").status().code(), Code::kIncompatible);
  const off_t bytes = ::lseek(held_->fd(), 0, SEEK_END);
  EXPECT_EQ(HeldLeases::Adopt(of_size(bytes), "host-a").status().code(), Code::kIncompatible)
      << "it could be truncated under us";
  ScopedFd zeros = of_size(bytes);
  ASSERT_EQ(::fcntl(zeros.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(HeldLeases::Adopt(std::move(zeros), "host-a").status().code(), Code::kIncompatible);
  EXPECT_EQ(HeldLeases::Adopt(ScopedFd(::open("/dev/null", O_RDWR)), "host-a").status().code(),
            Code::kIncompatible);
}

// Whatever the list contains, no invalid lease comes out and nothing crashes.
TEST_F(HeldLeasesTest, GarbageIsLeftOut) {
  Hold(LeaseOf('a', 1, 1001));
  for (off_t at = 0; at < 1024; at += 4) {
    std::uint32_t word = 0;
    ASSERT_EQ(::pread(held_->fd(), &word, sizeof word, at), 4);
    for (const std::uint32_t garbage : {0U, 1U, 0xffffffffU, 0x80000000U}) {
      ASSERT_EQ(::pwrite(held_->fd(), &garbage, sizeof garbage, at), 4);
      auto adopted = Adopted();
      if (!adopted.ok()) continue;
      for (const HeldLease& held : adopted.value()->All()) {
        EXPECT_EQ(held.lease.token.size(), 32U);
        if (held.state == HeldState::kAsked) continue;
        EXPECT_LT(held.lease.ids.first, held.lease.ids.limit);
        EXPECT_LE(held.lease.ids.limit, shm::kMaxLimit);
        EXPECT_GE(held.next, held.lease.ids.first);
        EXPECT_LE(held.next, held.lease.ids.limit);
      }
    }
    ASSERT_EQ(::pwrite(held_->fd(), &word, sizeof word, at), 4);
    // Reading may free the entry, so record it again.
    held_->Forget(Token('a'));
    Hold(LeaseOf('a', 1, 1001));
  }
}

}  // namespace
}  // namespace idd::daemon

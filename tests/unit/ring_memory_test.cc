// SPDX-License-Identifier: Apache-2.0
//
// The access that a client's descriptors allow, and the memory that a client refuses to map.
#include "idd/shm/ring_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "idd/shm/ring_writer.h"
#include "support/child_exit.h"
#include "support/own_view_claimer.h"

namespace idd::shm {
namespace {

constexpr int kTableSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
constexpr int kCursorSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kSealExec = 0x20;
constexpr std::uint64_t kRingId = 0x1234567890abcdefULL;

std::unique_ptr<RingMemory> MakeRing(std::string_view tag = "orders") {
  Result<std::unique_ptr<RingMemory>> memory = RingMemory::Create({.tag = tag, .ring_id = kRingId});
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  return std::move(memory).value();
}

ScopedFd Duplicate(int fd) { return ScopedFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

using Image = std::array<unsigned char, kTableBytes>;

// The bytes of a valid table, to be corrupted.
Image GoodImage() {
  const std::unique_ptr<RingMemory> ring = MakeRing();
  Image image;
  EXPECT_EQ(::pread(ring->table_fd(), image.data(), image.size(), 0),
            static_cast<ssize_t>(image.size()));
  return image;
}

ScopedFd MakeMemfd(const void* bytes, std::size_t count, std::size_t size, int seals) {
  ScopedFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::pwrite(fd.get(), bytes, count, 0), static_cast<ssize_t>(count));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

ScopedFd TableFrom(const Image& image) {
  return MakeMemfd(image.data(), image.size(), kTableBytes, kTableSeals);
}

void Put(Image& image, std::size_t offset, std::uint32_t value) {
  std::memcpy(image.data() + offset, &value, sizeof(value));
}

void ExpectRefused(const Status& status, AttachOutcome outcome, const char* which) {
  EXPECT_EQ(status.code(), Code::kIncompatible) << status.message();
  EXPECT_NE(status.message().find(AttachOutcomeName(outcome)), std::string::npos)
      << status.message() << " does not contain: " << AttachOutcomeName(outcome);
  EXPECT_NE(status.message().find(which), std::string::npos) << status.message();
}

// Attaches the corrupted table with valid cursors.
Status AttachImage(const Image& image, std::string_view tag = "orders") {
  const std::unique_ptr<RingMemory> ring = MakeRing();
  return RingMemory::Attach(TableFrom(image), Duplicate(ring->cursors_fd()), tag).status();
}

class RingMemoryTest : public ::testing::Test {
 protected:
  // As a client that got both descriptors.
  [[nodiscard]] Result<std::unique_ptr<RingMemory>> Attach() const {
    return RingMemory::Attach(Duplicate(ring_->table_fd()), Duplicate(ring_->cursors_fd()),
                              "orders");
  }

  std::unique_ptr<RingMemory> ring_ = MakeRing();
};
using RingMemoryDeathTest = RingMemoryTest;

TEST_F(RingMemoryTest, CreateMakesAnEmptyActiveRingWithItsIdentity) {
  const TableHeader& header = ring_->table().header;
  EXPECT_EQ(header.magic, kTableMagic);
  EXPECT_EQ(header.abi_version, kAbiVersion);
  EXPECT_EQ(header.table_bytes, kTableBytes);
  EXPECT_EQ(header.cursors_bytes, kCursorsBytes);
  EXPECT_EQ(header.slot_count, kSlotCount);
  EXPECT_EQ(std::string_view(header.tag, header.tag_bytes), "orders");
  EXPECT_EQ(header.mode, static_cast<std::uint32_t>(TagMode::kSegment));
  EXPECT_EQ(header.order, static_cast<std::uint32_t>(TagOrder::kHost));
  EXPECT_EQ(ring_->ring_id(), kRingId);
  EXPECT_EQ(ring_->table().live.head_segment, 1U);
  EXPECT_EQ(ring_->table().live.tail_segment, 0U);
  EXPECT_EQ(ring_->table().live.state, static_cast<std::uint32_t>(RingState::kActive));
}

TEST_F(RingMemoryTest, LongestTagFitsWithoutATerminator) {
  const std::string tag(kMaxTagBytes, 'x');
  const std::unique_ptr<RingMemory> ring = MakeRing(tag);
  const auto attached =
      RingMemory::Attach(Duplicate(ring->table_fd()), Duplicate(ring->cursors_fd()), tag);
  EXPECT_TRUE(attached.ok()) << attached.status().message();
}

TEST_F(RingMemoryTest, BothDescriptorsCarryTheirSealsSizeModeAndCloseOnExec) {
  const std::array<std::pair<int, int>, 2> expected{
      {{ring_->table_fd(), kTableSeals}, {ring_->cursors_fd(), kCursorSeals}}};
  for (const auto& [fd, seals] : expected) {
    EXPECT_EQ(::fcntl(fd, F_GET_SEALS) & ~kSealExec, seals);
    struct stat info {};
    ASSERT_EQ(::fstat(fd, &info), 0);
    EXPECT_EQ(info.st_size, 4096);
    EXPECT_EQ(info.st_mode & 07777, 0600U) << "a new memfd has mode 0777";
    EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST_F(RingMemoryTest, NoClientCanMapTheTableWritable) {
  const int fd = ring_->table_fd();
  EXPECT_EQ(::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  void* pages = ::mmap(nullptr, kTableBytes, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(pages, MAP_FAILED);
  EXPECT_EQ(::mprotect(pages, kTableBytes, PROT_READ | PROT_WRITE), -1);
  EXPECT_TRUE(errno == EPERM || errno == EACCES) << errno;
  ::munmap(pages, kTableBytes);
}

TEST_F(RingMemoryTest, NoClientCanWriteTheTableThroughItsDescriptor) {
  const char byte = 'x';
  EXPECT_EQ(::pwrite(ring_->table_fd(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fallocate(ring_->table_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
            -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ring_->table().header.magic, kTableMagic);
}

TEST_F(RingMemoryTest, NoClientCanResizeEitherFileOrChangeItsSeals) {
  for (const int fd : {ring_->table_fd(), ring_->cursors_fd()}) {
    for (const off_t size : {0, 1, 4095, 4097, 8192}) {
      EXPECT_EQ(::ftruncate(fd, size), -1) << size;
      EXPECT_EQ(errno, EPERM);
    }
    for (const int seal : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL, F_SEAL_GROW}) {
      EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seal), -1) << seal;
      EXPECT_EQ(errno, EPERM);
    }
  }
}

TEST_F(RingMemoryTest, ReopeningTheTableThroughProcGivesNoWayToWrite) {
  const std::string path = "/proc/self/fd/" + std::to_string(ring_->table_fd());
  // The owner (and root) may open it again, but the seal still holds.
  const ScopedFd again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again.valid());
  EXPECT_EQ(::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0),
            MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  const char byte = 'x';
  EXPECT_EQ(::pwrite(again.get(), &byte, 1, 0), -1);
  EXPECT_EQ(::open(path.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC), -1);
  EXPECT_EQ(ring_->table().header.magic, kTableMagic);
}

TEST_F(RingMemoryTest, HolderOfAReadOnlyDescriptorCannotReopenItForWriting) {
  // Only root can act as another user; for the owner the mode check above has to do.
  const bool is_root = ::geteuid() == 0;
  for (const int fd : {ring_->table_fd(), ring_->cursors_fd()}) {
    const ScopedFd read_only(
        ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(read_only.valid());
    const pid_t child = ::fork();
    if (child == 0) {
      constexpr uid_t kNobody = 65534;
      const std::string path = "/proc/self/fd/" + std::to_string(read_only.get());
      if (!is_root) ::_exit(0);
      if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(2);
      // Otherwise /proc alone could explain the refusal.
      if (::prctl(PR_SET_DUMPABLE, 1) != 0) ::_exit(3);
      if (::access("/proc/self/fd", R_OK) != 0) ::_exit(4);
      const int reopened = ::open(path.c_str(), O_RDWR);
      ::_exit(reopened < 0 && errno == EACCES ? 0 : 1);
    }
    EXPECT_EQ(harness::ExitOf(child), 0);
  }
}

TEST_F(RingMemoryTest, AttachedClaimerSharesTheCreatorsRing) {
  auto attached = Attach();
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  EXPECT_EQ(attached.value()->ring_id(), kRingId);
  EXPECT_EQ(attached.value()->table_fd(), -1) << "a mapping needs no descriptor";
  RingWriter writer(ring_->writable_table(), ring_->cursors());
  writer.Publish({1, 101}, 0, kNoMark);
  OwnViewClaimer claimer(attached.value()->table(), attached.value()->cursors());
  EXPECT_EQ(claimer.Claim(10).ids, (IdRange{1, 11}));
  EXPECT_EQ(writer.Available(), 90U);
}

TEST_F(RingMemoryTest, AnotherProcessSharesTheRing) {
  RingWriter writer(ring_->writable_table(), ring_->cursors());
  writer.Publish({1, 101}, 0, kNoMark);
  const pid_t child = ::fork();
  if (child == 0) {
    auto attached = Attach();
    if (!attached.ok()) ::_exit(2);
    OwnViewClaimer claimer(attached.value()->table(), attached.value()->cursors());
    ::_exit(claimer.Claim(10).ids == IdRange{1, 11} ? 0 : 1);
  }
  EXPECT_EQ(harness::ExitOf(child), 0);
  EXPECT_EQ(writer.Claim(1).ids, (IdRange{11, 12}));
}

TEST_F(RingMemoryTest, MappingOutlivesTheCreator) {
  RingWriter(ring_->writable_table(), ring_->cursors()).Publish({1, 101}, 0, kNoMark);
  auto attached = Attach();
  ASSERT_TRUE(attached.ok());
  ring_.reset();
  OwnViewClaimer claimer(attached.value()->table(), attached.value()->cursors());
  EXPECT_EQ(claimer.Claim(100).ids, (IdRange{1, 101}));
}

TEST_F(RingMemoryTest, ObserverSeesTheTableAlone) {
  RingWriter(ring_->writable_table(), ring_->cursors()).Publish({7, 9}, 0, kNoMark);
  const auto observer = RingMemory::AttachTable(Duplicate(ring_->table_fd()), "orders");
  ASSERT_TRUE(observer.ok()) << observer.status().message();
  EXPECT_EQ(observer.value()->table().slots[1].base, 7U);
}

TEST_F(RingMemoryTest, NothingLeaksOverManyRings) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_files();
  for (int i = 0; i < 50; ++i) {
    const std::unique_ptr<RingMemory> ring = MakeRing();
    EXPECT_TRUE(
        RingMemory::Attach(Duplicate(ring->table_fd()), Duplicate(ring->cursors_fd()), "orders")
            .ok());
    EXPECT_FALSE(
        RingMemory::Attach(Duplicate(ring->table_fd()), Duplicate(ring->cursors_fd()), "other")
            .ok());
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(RingMemoryTest, AttachRefusesWhatIsNoMemfd) {
  const ScopedFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const ScopedFd read_end(ends[0]);
  const ScopedFd write_end(ends[1]);
  for (const ScopedFd* fd : {&null, &read_end}) {
    ExpectRefused(RingMemory::Attach(*fd, Duplicate(ring_->cursors_fd()), "orders").status(),
                  AttachOutcome::kNotMemfd, "table");
    ExpectRefused(RingMemory::Attach(Duplicate(ring_->table_fd()), *fd, "orders").status(),
                  AttachOutcome::kNotMemfd, "cursors");
  }
  ExpectRefused(RingMemory::Attach(ScopedFd(), ScopedFd(), "orders").status(),
                AttachOutcome::kNotMemfd, "table");
}

TEST_F(RingMemoryTest, AttachRefusesATableWithOtherSeals) {
  const Image image = GoodImage();
  for (const int seals : {0, kTableSeals & ~F_SEAL_SHRINK, kTableSeals & ~F_SEAL_GROW,
                          kTableSeals & ~F_SEAL_FUTURE_WRITE, kTableSeals & ~F_SEAL_SEAL,
                          kTableSeals | F_SEAL_WRITE, kCursorSeals}) {
    const ScopedFd table = MakeMemfd(image.data(), image.size(), kTableBytes, seals);
    ExpectRefused(RingMemory::Attach(table, Duplicate(ring_->cursors_fd()), "orders").status(),
                  AttachOutcome::kWrongSeals, "table");
  }
}

TEST_F(RingMemoryTest, AttachRefusesCursorsWithOtherSeals) {
  for (const int seals : {0, kCursorSeals & ~F_SEAL_SHRINK, kCursorSeals & ~F_SEAL_GROW,
                          kCursorSeals & ~F_SEAL_SEAL, kTableSeals, kCursorSeals | F_SEAL_WRITE}) {
    const ScopedFd cursors = MakeMemfd("", 1, kCursorsBytes, seals);
    ExpectRefused(RingMemory::Attach(Duplicate(ring_->table_fd()), cursors, "orders").status(),
                  AttachOutcome::kWrongSeals, "cursors");
  }
}

TEST_F(RingMemoryTest, AttachRefusesOtherSizes) {
  const Image image = GoodImage();
  for (const std::size_t size : {0U, 1U, 2048U, 4095U, 4097U, 8192U}) {
    const ScopedFd table = MakeMemfd(image.data(), std::min(size, image.size()), size, kTableSeals);
    ExpectRefused(RingMemory::Attach(table, Duplicate(ring_->cursors_fd()), "orders").status(),
                  AttachOutcome::kWrongSize, "table");
    const ScopedFd cursors = MakeMemfd("", 0, size, kCursorSeals);
    ExpectRefused(RingMemory::Attach(Duplicate(ring_->table_fd()), cursors, "orders").status(),
                  AttachOutcome::kWrongSize, "cursors");
  }
}

TEST_F(RingMemoryTest, GoodImageIsAccepted) {
  EXPECT_TRUE(AttachImage(GoodImage()).ok()) << "otherwise the refusals below would prove nothing";
}

TEST_F(RingMemoryTest, AttachRefusesAnotherMagic) {
  Image image = GoodImage();
  image[offsetof(TableHeader, magic)] ^= 1;
  ExpectRefused(AttachImage(image), AttachOutcome::kBadMagic, "table");
  ExpectRefused(AttachImage(Image{}), AttachOutcome::kBadMagic, "table");
}

TEST_F(RingMemoryTest, AttachRefusesATableThatIsNotWhole) {
  Image image = GoodImage();
  Put(image, offsetof(TableHeader, abi_version), 0);
  ExpectRefused(AttachImage(image), AttachOutcome::kNotReady, "table");
}

TEST_F(RingMemoryTest, AttachRefusesAnotherMajorVersionAndNamesBoth) {
  for (const std::uint32_t major : {kAbiMajor + 1, kAbiMajor - 1, 0xffffU}) {
    Image image = GoodImage();
    Put(image, offsetof(TableHeader, abi_version), (major << 16) | 7);
    const Status status = AttachImage(image);
    EXPECT_EQ(status.code(), Code::kIncompatible);
    EXPECT_NE(status.message().find(std::to_string(major) + ".7"), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(std::to_string(kAbiMajor) + "." + std::to_string(kAbiMinor)),
              std::string::npos)
        << status.message();
  }
}

TEST_F(RingMemoryTest, AttachAcceptsANewerMinorVersion) {
  Image image = GoodImage();
  Put(image, offsetof(TableHeader, abi_version), kAbiVersion + 3);
  EXPECT_TRUE(AttachImage(image).ok());
}

TEST_F(RingMemoryTest, AttachRefusesAnotherGeometry) {
  for (const std::size_t offset :
       {offsetof(TableHeader, table_bytes), offsetof(TableHeader, cursors_bytes),
        offsetof(TableHeader, slot_count), offsetof(TableHeader, slots_offset_bytes),
        offsetof(TableHeader, slot_stride_bytes), offsetof(TableHeader, cursor_stride_bytes),
        offsetof(TableHeader, lane_count)}) {
    for (const std::uint32_t value : {0U, 1U << 30, 0xffffffffU}) {
      Image image = GoodImage();
      Put(image, offset, value);
      ExpectRefused(AttachImage(image), AttachOutcome::kBadGeometry, "table");
    }
  }
}

TEST_F(RingMemoryTest, AttachRefusesAnotherTag) {
  EXPECT_TRUE(AttachImage(GoodImage(), "orders").ok());
  for (const char* tag : {"order", "orderss", "Orders", "", "x"}) {
    ExpectRefused(AttachImage(GoodImage(), tag), AttachOutcome::kBadTag, "table");
  }
  for (const std::uint32_t bytes : {0U, 5U, 7U, 129U, 0xffffffffU}) {
    Image image = GoodImage();
    Put(image, offsetof(TableHeader, tag_bytes), bytes);
    ExpectRefused(AttachImage(image), AttachOutcome::kBadTag, "table");
  }
}

TEST_F(RingMemoryTest, AttachRefusesAModeOrOrderThatItCannotClaimFrom) {
  for (const std::uint32_t value : {0U, 2U, 3U, 0xffffffffU}) {
    Image image = GoodImage();
    Put(image, offsetof(TableHeader, mode), value);
    ExpectRefused(AttachImage(image), AttachOutcome::kUnsupportedMode, "table");
    image = GoodImage();
    Put(image, offsetof(TableHeader, order), value);
    // Order cpu has lanes behind the cursors.
    const bool is_cpu = value == static_cast<std::uint32_t>(TagOrder::kCpu);
    ExpectRefused(AttachImage(image),
                  is_cpu ? AttachOutcome::kBadGeometry : AttachOutcome::kUnsupportedMode, "table");
  }
  Image image = GoodImage();
  Put(image, offsetof(TableHeader, order), static_cast<std::uint32_t>(TagOrder::kCpu));
  Put(image, offsetof(TableHeader, cursors_bytes), CursorsBytes(1));
  Put(image, offsetof(TableHeader, mode), static_cast<std::uint32_t>(TagMode::kSnowflake));
  Put(image, offsetof(TableHeader, unit_ms), 1U);
  Put(image, offsetof(TableHeader, clock), static_cast<std::uint32_t>(TagClock::kClaimer));
  ExpectRefused(AttachImage(image), AttachOutcome::kUnsupportedMode, "table");
}

TEST_F(RingMemoryTest, EveryOutcomeHasItsOwnName) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(AttachOutcome::kUnsupportedMode); ++i) {
    names.insert(AttachOutcomeName(static_cast<AttachOutcome>(i)));
  }
  EXPECT_EQ(names.size(), 11U);
  EXPECT_FALSE(names.contains("unknown outcome"));
  EXPECT_STREQ(AttachOutcomeName(static_cast<AttachOutcome>(99)), "unknown outcome");
}

TEST_F(RingMemoryDeathTest, ClaimersPagesOfTheTableAreReadOnly) {
  const auto attached = Attach();
  ASSERT_TRUE(attached.ok());
  // const_cast: a malicious client would do it too.
  auto& table = const_cast<Table&>(attached.value()->table());
  EXPECT_DEATH(table.slots[1].limit = 5, "");
}

TEST_F(RingMemoryDeathTest, MisuseEndsTheProcess) {
  const auto observer = RingMemory::AttachTable(Duplicate(ring_->table_fd()), "orders");
  ASSERT_TRUE(observer.ok());
  EXPECT_DEATH(static_cast<void>(observer.value()->cursors()), "check failed");
  EXPECT_DEATH(static_cast<void>(observer.value()->writable_table()), "check failed");
  EXPECT_DEATH(static_cast<void>(RingMemory::Create({.tag = ""})), "check failed");
  EXPECT_DEATH(static_cast<void>(RingMemory::Create({.tag = std::string(129, 'x')})),
               "check failed");
}

}  // namespace
}  // namespace idd::shm

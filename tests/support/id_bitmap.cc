// SPDX-License-Identifier: Apache-2.0
#include "support/id_bitmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr std::size_t kBytes = IdBitmap::kIds / 8;

}  // namespace

IdBitmap IdBitmap::Create(const std::string& path) {
  ScopedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  RequireErrno(fd.valid() && ::ftruncate(fd.get(), kBytes) == 0, path);
  return IdBitmap(std::move(fd));
}

IdBitmap IdBitmap::Open(const std::string& path) {
  ScopedFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  RequireErrno(fd.valid(), path);
  return IdBitmap(std::move(fd));
}

IdBitmap::IdBitmap(ScopedFd fd) : fd_(std::move(fd)) {
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  RequireErrno(memory != MAP_FAILED, "mmap of an id bitmap");
  words_ = {static_cast<std::atomic<std::uint64_t>*>(memory), kBytes / 8};
}

IdBitmap::~IdBitmap() {
  if (!words_.empty()) ::munmap(words_.data(), kBytes);
}

IdBitmap::IdBitmap(IdBitmap&& other) noexcept
    : fd_(std::move(other.fd_)), words_(std::exchange(other.words_, {})) {}

std::uint64_t IdBitmap::CountAll() const noexcept {
  std::uint64_t count = 0;
  off_t hole = 0;
  for (off_t data = ::lseek(fd_.get(), 0, SEEK_DATA); data >= 0;
       data = ::lseek(fd_.get(), hole, SEEK_DATA)) {
    hole = ::lseek(fd_.get(), data, SEEK_HOLE);
    count += CountIn({static_cast<std::uint64_t>(data) * 8, static_cast<std::uint64_t>(hole) * 8});
  }
  return count;
}

std::uint64_t IdBitmap::CountIn(shm::IdRange ids) const noexcept {
  std::uint64_t count = 0;
  for (std::uint64_t id = ids.first; id < ids.limit;) {
    const std::uint64_t skipped = id % 64;
    const std::uint64_t taken = std::min<std::uint64_t>(64 - skipped, ids.limit - id);
    const std::uint64_t mask = taken == 64 ? ~0ULL : ((1ULL << taken) - 1) << skipped;
    const std::uint64_t word = words_[id / 64].load(std::memory_order_relaxed);
    count += static_cast<std::uint64_t>(std::popcount(word & mask));
    id += taken;
  }
  return count;
}

}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
//
// The one file that includes Boost.Interprocess; its exceptions end here.
#include "idd/shm/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <string>
#include <utility>

namespace idd::shm {
namespace {

namespace ipc = boost::interprocess;

constexpr int kFixedSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kWrittenByMapperSeals = kFixedSeals | F_SEAL_FUTURE_WRITE;
// Linux 6.3 and later may add this seal by system-wide policy; it is harmless.
constexpr int kSealExec = 0x20;
constexpr mode_t kOwnerOnly = 0600;

int Bits(MemfdSeals seals) noexcept {
  return seals == MemfdSeals::kFixed ? kFixedSeals : kWrittenByMapperSeals;
}

// The interface that mapped_region needs of a memory source.
class MappableFd {
 public:
  explicit MappableFd(int fd) noexcept : fd_(fd) {}
  [[nodiscard]] ipc::mapping_handle_t get_mapping_handle() const noexcept { return {fd_, false}; }

 private:
  int fd_;
};

}  // namespace

Result<ScopedFd> MakeMemfd(const char* name, std::size_t bytes) {
  ScopedFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::FromErrno(errno, "memfd_create");
  // A new memfd has mode 0777: a holder of a read-only descriptor could reopen it through /proc.
  if (::fchmod(fd.get(), kOwnerOnly) != 0) return Status::FromErrno(errno, "fchmod of a memfd");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Status::FromErrno(errno, "ftruncate of a memfd");
  }
  return fd;
}

Status SealMemfd(int fd, MemfdSeals seals) {
  if (::fcntl(fd, F_ADD_SEALS, Bits(seals)) != 0) {
    return Status::FromErrno(errno, "sealing a memfd");
  }
  return Status::Ok();
}

// Checks the seals before the size: a file that cannot shrink keeps the size that is read
// afterwards.
MemfdOutcome CheckMemfd(int fd, MemfdSeals seals, std::size_t bytes) noexcept {
  const int found = ::fcntl(fd, F_GET_SEALS);
  if (found < 0) return MemfdOutcome::kNotMemfd;
  if ((found & ~kSealExec) != Bits(seals)) return MemfdOutcome::kWrongSeals;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return MemfdOutcome::kNotMemfd;
  if (info.st_size != static_cast<off_t>(bytes)) return MemfdOutcome::kWrongSize;
  return MemfdOutcome::kOk;
}

// A duplicate would share the access mode. Only the link in /proc opens the file again.
Result<ScopedFd> OpenForReading(int fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  ScopedFd opened(::open(link.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return Status::FromErrno(errno, "opening " + link + " for reading");
  return opened;
}

struct MappedMemory::Region {
  ipc::mapped_region pages;
};

MappedMemory::MappedMemory() = default;
MappedMemory::~MappedMemory() = default;
MappedMemory::MappedMemory(MappedMemory&& other) noexcept = default;
MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept = default;

Result<MappedMemory> MappedMemory::Map(int fd, MapAccess access, std::size_t bytes) {
  try {
    const ipc::mode_t mode = access == MapAccess::kRead ? ipc::read_only : ipc::read_write;
    MappedMemory memory;
    memory.region_ = std::make_unique<Region>(
        Region{.pages = ipc::mapped_region(MappableFd(fd), mode, 0, bytes)});
    return memory;
  } catch (const ipc::interprocess_exception& error) {
    return Status(Code::kSystem, std::string("cannot map shared memory: ") + error.what());
  }
}

void* MappedMemory::address() const noexcept {
  return region_ == nullptr ? nullptr : region_->pages.get_address();
}

bool MappedMemory::Blank() noexcept {
  if (region_ == nullptr) return true;
  return ::mmap(region_->pages.get_address(), region_->pages.get_size(), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace idd::shm

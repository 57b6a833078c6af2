// SPDX-License-Identifier: Apache-2.0
//
// Anonymous memory that travels as a descriptor: made, sealed, checked and mapped.
#ifndef IDD_SHM_MEMFD_H_
#define IDD_SHM_MEMFD_H_

#include <cstddef>
#include <memory>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"

namespace idd::shm {

// Which seals a memfd carries. kFixed: its size cannot be changed. kWrittenByMapper: the same, and
// only a process that mapped it writable before the sealing can ever write it.
enum class MemfdSeals { kFixed, kWrittenByMapper };

// The outcome of CheckMemfd().
enum class MemfdOutcome {
  kOk,
  kNotMemfd,    // it takes no seals
  kWrongSeals,  // it could shrink or be written under us
  kWrongSize,
};

// Makes a memfd of `bytes` zeros, mode 0600, close-on-exec, not sealed yet. kSystem.
[[nodiscard]] Result<ScopedFd> MakeMemfd(const char* name, std::size_t bytes);
[[nodiscard]] Status SealMemfd(int fd, MemfdSeals seals);
// Whether a descriptor from elsewhere carries exactly these seals and that size.
[[nodiscard]] MemfdOutcome CheckMemfd(int fd, MemfdSeals seals, std::size_t bytes) noexcept;

// Another descriptor of the same memory. No process that gets it can change the memory through it,
// with write(2), mmap(2) or ftruncate(2). Needs /proc. kSystem.
[[nodiscard]] Result<ScopedFd> OpenForReading(int fd);

enum class MapAccess { kRead, kReadWrite };

// A mapping of a descriptor's memory. Once mapped, it no longer needs the descriptor. Move-only;
// unmaps on destruction.
class MappedMemory {
 public:
  MappedMemory();
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  // Maps the memory, shared with every process that maps it. kSystem.
  [[nodiscard]] static Result<MappedMemory> Map(int fd, MapAccess access, std::size_t bytes);

  [[nodiscard]] void* address() const noexcept;  // null when nothing is mapped
  // Gives the memory back and leaves zeros at its address: private to this process, writable, and
  // without cost to the system until they are written. The kernel merges adjacent blank regions
  // into one mapping.
  // False: the memory stays mapped, because the kernel has refused.
  [[nodiscard]] bool Blank() noexcept;

 private:
  struct Region;  // of Boost.Interprocess, which stays in memfd.cc
  std::unique_ptr<Region> region_;
};

}  // namespace idd::shm

#endif  // IDD_SHM_MEMFD_H_

// SPDX-License-Identifier: Apache-2.0
#include "support/claim_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "idd/base/scoped_fd.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(ClaimLogHeader) <= kHeaderBytes && sizeof(ClaimRecord) == 32);

void* MapShared(const ScopedFd& fd, std::size_t bytes, const std::string& path) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  RequireErrno(address != MAP_FAILED, "mmap " + path);
  return address;
}

}  // namespace

ClaimLog::ClaimLog(void* address, std::size_t bytes) noexcept
    : header_(static_cast<ClaimLogHeader*>(address)),
      records_(static_cast<ClaimRecord*>(
          static_cast<void*>(static_cast<std::byte*>(address) + kHeaderBytes))),
      bytes_(bytes) {}

ClaimLog::ClaimLog(ClaimLog&& other) noexcept
    : header_(std::exchange(other.header_, nullptr)),
      records_(other.records_),
      bytes_(other.bytes_) {}

ClaimLog::~ClaimLog() {
  if (header_ != nullptr) ::munmap(header_, bytes_);
}

ClaimLog ClaimLog::Create(const std::string& path, std::uint64_t capacity) {
  const ScopedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  RequireErrno(fd.valid(), "open " + path);
  const std::size_t bytes = kHeaderBytes + capacity * sizeof(ClaimRecord);
  RequireErrno(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0, "ftruncate " + path);
  ClaimLog log(MapShared(fd, bytes, path), bytes);
  log.header_->capacity = capacity;
  return log;
}

ClaimLog ClaimLog::Open(const std::string& path) {
  const ScopedFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  RequireErrno(fd.valid(), "open " + path);
  struct stat info {};
  RequireErrno(::fstat(fd.get(), &info) == 0, "fstat " + path);
  const auto bytes = static_cast<std::size_t>(info.st_size);
  Require(bytes >= kHeaderBytes, path + " is no claim log");
  ClaimLog log(MapShared(fd, bytes, path), bytes);
  Require(bytes == kHeaderBytes + log.header_->capacity * sizeof(ClaimRecord),
          path + " is no claim log");
  return log;
}

std::span<const ClaimRecord> ClaimLog::records() const noexcept {
  return {records_, header_->records.load(std::memory_order_acquire)};
}

ClaimerState ClaimLog::state() const noexcept {
  return static_cast<ClaimerState>(header_->state.load(std::memory_order_acquire));
}

std::string ClaimLog::message() const { return header_->message; }

bool ClaimLog::Full() const noexcept {
  return header_->records.load(std::memory_order_relaxed) >= header_->capacity;
}

void ClaimLog::Append(const ClaimRecord& record) noexcept {
  const std::uint64_t index = header_->records.load(std::memory_order_relaxed);
  records_[index] = record;
  header_->records.store(index + 1, std::memory_order_release);
  // Plain loads and stores: there is one writer, and the log must cost less than a claim.
  if (record.count == 0) {
    header_->errors.store(header_->errors.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
    return;
  }
  header_->ids.store(header_->ids.load(std::memory_order_relaxed) + record.count,
                     std::memory_order_relaxed);
  header_->last_id.store(record.first + record.count - 1, std::memory_order_relaxed);
}

void ClaimLog::SetState(ClaimerState state) noexcept {
  header_->state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

void ClaimLog::Fail(std::string_view message) noexcept {
  const std::size_t bytes = std::min(message.size(), sizeof(header_->message) - 1);
  std::memcpy(header_->message, message.data(), bytes);
  header_->message[bytes] = '\0';
  SetState(ClaimerState::kFailed);
}

}  // namespace idd::harness

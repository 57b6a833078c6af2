// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_ID_BITMAP_H_
#define IDD_TESTS_SUPPORT_ID_BITMAP_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "idd/base/scoped_fd.h"
#include "idd/shm/ring_protocol.h"

namespace idd::harness {

// A file with a bit for each id, which the claimers of many processes map and set: the oracle for
// claims that are too fast for a log. The file is sparse.
class IdBitmap {
 public:
  // Ids are below this number.
  static constexpr std::uint64_t kIds = 1ULL << 35;

  [[nodiscard]] static IdBitmap Create(const std::string& path);
  [[nodiscard]] static IdBitmap Open(const std::string& path);
  ~IdBitmap();
  IdBitmap(IdBitmap&& other) noexcept;
  IdBitmap& operator=(IdBitmap&&) = delete;

  // False: the id was marked already. Precondition: id < kIds.
  [[nodiscard]] bool Mark(std::uint64_t id) noexcept {
    const std::uint64_t bit = 1ULL << (id % 64);
    return (words_[id / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }
  // How many ids of the range are marked.
  [[nodiscard]] std::uint64_t CountIn(shm::IdRange ids) const noexcept;
  // Of all ids. Skips the holes of the file.
  [[nodiscard]] std::uint64_t CountAll() const noexcept;

 private:
  explicit IdBitmap(ScopedFd fd);

  ScopedFd fd_;

  std::span<std::atomic<std::uint64_t>> words_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_ID_BITMAP_H_

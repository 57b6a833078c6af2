// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_TEMP_DIR_H_
#define IDD_TESTS_SUPPORT_TEMP_DIR_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace idd::harness {

// A new directory under $TMPDIR (or /var/tmp: /tmp may be in memory, as on Debian 13, which is no
// place for a database), removed with its contents. Its path is short enough for
// a socket's path to fit sockaddr_un.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string File(std::string_view name) const;

 private:
  std::string path_;
};

// Whole files; HarnessError if the system refuses.
[[nodiscard]] std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, std::string_view contents);
// Overwrites a part of an existing file without touching the rest.
void OverwriteFile(const std::string& path, std::uint64_t offset, std::string_view contents);
// Whether lstat(2) finds something.
[[nodiscard]] bool Exists(const std::string& path);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_TEMP_DIR_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_MOUNT_NAMESPACE_H_
#define IDD_TESTS_SUPPORT_MOUNT_NAMESPACE_H_

#include <cstddef>
#include <string>

namespace idd::harness {

// Puts this process and its children into a separate mount namespace, so that a test's mounts are
// invisible elsewhere and end with it. Root does so directly; for another user the program restarts
// itself through unshare(1), in a user namespace. Call it first in main().
void EnterMountNamespace(char** argv);

// A small tmpfs on a new directory, unmounted by the destructor.
class SmallTmpfs {
 public:
  SmallTmpfs(const std::string& path, std::size_t kilobytes);
  ~SmallTmpfs();
  SmallTmpfs(const SmallTmpfs&) = delete;
  SmallTmpfs& operator=(const SmallTmpfs&) = delete;

  [[nodiscard]] std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Throws HarnessError if a file is open for writing.
  void MakeReadOnly();
  void MakeWritable();
  // Writes a file until the disk is full; Free() removes it.
  void Fill();
  void Free();

 private:
  void Remount(unsigned long flags);

  std::string path_;
};

// While it lives, a file is read-only for every user, even root: it is bound over itself.
class ReadOnlyFile {
 public:
  explicit ReadOnlyFile(const std::string& path);
  ~ReadOnlyFile();
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;

 private:
  std::string path_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_MOUNT_NAMESPACE_H_

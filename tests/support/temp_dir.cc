// SPDX-License-Identifier: Apache-2.0
#include "support/temp_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "idd/base/scoped_fd.h"
#include "support/test_environment.h"

namespace idd::harness {

TempDir::TempDir() {
  const char* base = std::getenv("TMPDIR");
  path_ = std::string(base == nullptr ? "/var/tmp" : base) + "/idd-XXXXXX";
  RequireErrno(::mkdtemp(path_.data()) != nullptr, "mkdtemp " + path_);
}

TempDir::~TempDir() {
  std::error_code ignored;  // A leftover directory is no reason to fail a test.
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::File(std::string_view name) const { return path_ + "/" + std::string(name); }

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  RequireErrno(in.good(), "open " + path);
  std::ostringstream contents;
  contents << in.rdbuf();
  return std::move(contents).str();
}

void WriteFile(const std::string& path, std::string_view contents) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.flush();
  RequireErrno(out.good(), "write " + path);
}

void OverwriteFile(const std::string& path, std::uint64_t offset, std::string_view contents) {
  const ScopedFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  RequireErrno(fd.valid(), "open " + path);
  const ssize_t written =
      ::pwrite(fd.get(), contents.data(), contents.size(), static_cast<off_t>(offset));
  RequireErrno(written == static_cast<ssize_t>(contents.size()), "pwrite " + path);
}

bool Exists(const std::string& path) {
  struct stat ignored {};
  return ::lstat(path.c_str(), &ignored) == 0;
}

}  // namespace idd::harness

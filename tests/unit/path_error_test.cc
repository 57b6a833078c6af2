// SPDX-License-Identifier: Apache-2.0
#include "platform/path_error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "support/temp_dir.h"

namespace idd::daemon {
namespace {

TEST(PathErrorTest, MissingDirectoryIsNamedNotTheFile) {
  const harness::TempDir dir;
  EXPECT_EQ(
      PathError(dir.File("no/such/idd.db"), ENOENT),
      "directory '" + dir.File("no") + "' does not exist; create it, or mount its file system");
  EXPECT_EQ(PathError(dir.File("idd.db"), ENOENT), "No such file or directory");
}

TEST(PathErrorTest, FileInPlaceOfADirectoryIsNamed) {
  const harness::TempDir dir;
  std::ofstream(dir.File("file")) << "x";
  EXPECT_EQ(PathError(dir.File("file/idd.sock"), ENOTDIR),
            "'" + dir.File("file") + "' is not a directory; use another path");
}

TEST(PathErrorTest, RefusalAndReadOnlyFileSystemSayWhatToDo) {
  const harness::TempDir dir;
  const std::string refused = PathError(dir.File("idd.db"), EACCES);
  EXPECT_NE(refused.find("write into directory '" + dir.path() + "'"), std::string::npos)
      << refused;
  EXPECT_NE(PathError("/x/idd.sock", EROFS).find("ReadWritePaths="), std::string::npos);
}

TEST(PathErrorTest, DirectoryOfANameAloneIsTheCurrentOne) {
  EXPECT_EQ(DirectoryOf("idd.db"), ".");
  EXPECT_EQ(DirectoryOf("/idd.db"), "/");
  EXPECT_EQ(DirectoryOf("/a/b/c"), "/a/b");
}

}  // namespace
}  // namespace idd::daemon

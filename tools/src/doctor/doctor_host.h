// SPDX-License-Identifier: Apache-2.0
//
// What `idctl doctor` can see without the daemon.
#ifndef IDD_TOOLS_DOCTOR_DOCTOR_HOST_H_
#define IDD_TOOLS_DOCTOR_DOCTOR_HOST_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "doctor/doctor_checks.h"
#include "idd/base/status.h"

namespace idd::tools {

// A path as stat(2) and access(2) have it.
struct FileProbe {
  std::string path;
  int error = 0;  // errno; what is below is empty then
  uid_t owner = 0;
  mode_t mode = 0;  // with the type
  bool may_write = false;

  // A socket that this user may connect to, as far as its file tells.
  [[nodiscard]] bool IsUsableSocket() const noexcept {
    return error == 0 && S_ISSOCK(mode) && may_write;
  }
};
[[nodiscard]] FileProbe ProbeFile(const std::string& path);

// Who listens at a socket: 0, or the errno of connect(2), which does not wait; and who it is.
struct ListenerProbe {
  int error = 0;
  pid_t pid = 0;
  uid_t uid = 0;
};
[[nodiscard]] ListenerProbe ProbeListener(const std::string& path);

// "active", "failed", "inactive": what the service manager says of idd.service; nothing where there
// is no systemd, or none that answers within a second. `runtime_dir`: of systemd; `systemctl`: an
// absolute path.
[[nodiscard]] std::optional<std::string> AskServiceManager(
    const std::string& runtime_dir = "/run/systemd/system",
    const std::string& systemctl = "/usr/bin/systemctl");

// --- Pure.

// The socket file and its folder; `uid`: who asks.
[[nodiscard]] Finding CheckSocket(const FileProbe& socket, const FileProbe& folder, uid_t uid);
// Why the daemon cannot be talked to.
struct NoAnswer {
  Status status;  // of the attempt
  ListenerProbe listener;
  FileProbe socket;
  std::optional<std::string> service;  // AskServiceManager()
};
[[nodiscard]] Finding ExplainNoAnswer(const NoAnswer& failed);
// "; systemd says idd.service is failed", or nothing.
[[nodiscard]] std::string ServiceText(const std::optional<std::string>& service);

}  // namespace idd::tools

#endif  // IDD_TOOLS_DOCTOR_DOCTOR_HOST_H_

// SPDX-License-Identifier: Apache-2.0
//
// The checks of `idctl doctor` that need no daemon.
#ifndef IDD_TOOLS_DOCTOR_DOCTOR_HOST_H_
#define IDD_TOOLS_DOCTOR_DOCTOR_HOST_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "doctor/diagnosis.h"
#include "idd/base/status.h"

namespace idd::tools {

// A path as stat(2) and access(2) report it.
struct FileProbe {
  std::string path;
  int error = 0;  // errno; the fields below are then empty
  uid_t owner = 0;
  mode_t mode = 0;  // including the file type
  bool may_write = false;

  // Whether this is a socket that this user may connect to, judged by the file alone.
  [[nodiscard]] bool IsUsableSocket() const noexcept {
    return error == 0 && S_ISSOCK(mode) && may_write;
  }
};
[[nodiscard]] FileProbe ProbeFile(const std::string& path);

// The listener at a socket: 0 or the errno of connect(2), which does not wait, and the listener's
// identity.
struct ListenerProbe {
  int error = 0;
  pid_t pid = 0;
  uid_t uid = 0;
};
[[nodiscard]] ListenerProbe ProbeListener(const std::string& path);

// The state of idd.service according to the service manager: "active", "failed", "inactive";
// nothing without systemd, or if it does not answer within a second. `runtime_dir`: systemd's;
// `systemctl`: an absolute path.
[[nodiscard]] std::optional<std::string> AskServiceManager(
    const std::string& runtime_dir = "/run/systemd/system",
    const std::string& systemctl = "/usr/bin/systemctl");

// --- Pure.

// The socket file and its folder; `uid`: the asking user.
[[nodiscard]] Finding CheckSocket(const FileProbe& socket, const FileProbe& folder, uid_t uid);
// Why the daemon cannot be reached.
struct NoAnswer {
  Status status;  // of the connection attempt
  ListenerProbe listener;
  FileProbe socket;
  std::optional<std::string> service;  // AskServiceManager()
};
[[nodiscard]] Finding ExplainNoAnswer(const NoAnswer& failed);
// "; systemd says idd.service is failed", or empty.
[[nodiscard]] std::string ServiceText(const std::optional<std::string>& service);

}  // namespace idd::tools

#endif  // IDD_TOOLS_DOCTOR_DOCTOR_HOST_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_HOST_H_
#define IDD_TESTS_SUPPORT_HOST_H_

#include <cstdint>
#include <string>

#include "support/daemon_process.h"
#include "support/idctl.h"
#include "support/sqlite_file.h"
#include "support/temp_dir.h"

namespace idd::harness {

// One host of a test: an idd with its own state, and an idctl connected to it. Hosts made in
// one directory share its database.
struct Host {
  explicit Host(const TempDir& dir, const std::string& name = "host-a")
      : daemon(DaemonOptions::In(dir, name)), idctl(daemon.socket()) {}

  void StartWithTag(const std::string& tag, std::uint64_t step) {
    daemon.Start();
    idctl.CreateTag(tag, step);
  }
  // The database, past idd.
  [[nodiscard]] SqliteFile Database() const { return SqliteFile(daemon.options().database); }

  DaemonProcess daemon;
  Idctl idctl;
};

// A host whose idd must end cleanly when the test does, unless the test ended it before.
struct CleanHost : Host {
  using Host::Host;
  ~CleanHost() { daemon.StopIfRunning(); }
  CleanHost(const CleanHost&) = delete;
  CleanHost& operator=(const CleanHost&) = delete;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_HOST_H_

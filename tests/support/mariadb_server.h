// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_MARIADB_SERVER_H_
#define IDD_TESTS_SUPPORT_MARIADB_SERVER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/temp_dir.h"

struct st_mysql;

namespace idd::harness {

// A session at a server, as an operator's or as another program's. Thread safety: none.
class MariadbSession {
 public:
  // Throws HarnessError when nobody answers.
  MariadbSession(const std::string& socket, const std::string& user, const std::string& database);
  // Over TCP, as idd's user.
  explicit MariadbSession(std::uint16_t port);
  ~MariadbSession();
  MariadbSession(const MariadbSession&) = delete;
  MariadbSession& operator=(const MariadbSession&) = delete;

  // Throws HarnessError on an error.
  void Execute(const std::string& sql);
  // The first column of the rows, joined with ",".
  [[nodiscard]] std::string Query(const std::string& sql);
  // 0, or the server's error number.
  [[nodiscard]] unsigned Try(const std::string& sql);

 private:
  st_mysql* mysql_ = nullptr;
};

// A real mariadbd on a data directory of its own, not as root, with a Unix socket and, if it is
// told so, a port on loopback. It has the empty database `idd` and the user `idd` with the password
// `secret`; root has none.
class MariadbServer {
 public:
  struct Options {
    std::uint16_t port = 0;              // 0: no network
    std::vector<std::string> arguments;  // more of mariadbd's
  };

  MariadbServer(const TempDir& dir, const std::string& name, Options options);
  explicit MariadbServer(const TempDir& dir) : MariadbServer(dir, "db", {}) {}

  // Starts it and waits until it answers; throws HarnessError with its log otherwise.
  void Start(const std::vector<std::string>& once = {});  // `once`: arguments of this start alone
  // Runs it with --wsrep-recover, which ends by itself and writes into `log`.
  void Recover(const std::string& log);
  void Stop();  // SIGTERM, and waits
  void Kill();  // SIGKILL
  void Signal(int signal) { process_.value().Signal(signal); }
  [[nodiscard]] bool Running() { return process_.has_value() && process_->Running(); }

  // The data directory, to be copied or replaced while it does not run.
  [[nodiscard]] const std::string& data_dir() const noexcept { return data_dir_; }
  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }
  // For idd, by TCP.
  [[nodiscard]] std::string TcpUrl() const;
  // For idd, by the socket; with a short grace, as hosts of one machine notice at once.
  [[nodiscard]] std::string Url() const;
  [[nodiscard]] MariadbSession Session(const std::string& database = "idd") const {
    return MariadbSession(socket_, "root", database);
  }
  // Lets every host that has opened its store there lease all that a tag has, now and of tags that
  // are made later: for stores that are used without a daemon, which minds the fence.
  void OpenFence() const;
  [[nodiscard]] std::string Log() const { return ReadFile(log_); }

 private:
  void Install(const TempDir& dir);
  [[nodiscard]] std::vector<std::string> Command() const;

  std::string data_dir_;
  std::string socket_;
  std::string log_;
  Options options_;
  std::optional<ChildProcess> process_;
};

// Copies a directory with its owners.
void CopyTree(const std::string& from, const std::string& to);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_MARIADB_SERVER_H_

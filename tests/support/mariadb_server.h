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

// A session at a server, as an operator or another program would have. Thread safety: none.
class MariadbSession {
 public:
  // Throws HarnessError if no server answers.
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

// A real mariadbd with its own data directory, not run as root, with a Unix socket and optionally a
// port on loopback. It has the empty database `idd` and the user `idd` with the password `secret`;
// root has no password.
class MariadbServer {
 public:
  struct Options {
    std::uint16_t port = 0;              // 0: no network
    std::vector<std::string> arguments;  // further ones for mariadbd
  };

  MariadbServer(const TempDir& dir, const std::string& name, Options options);
  explicit MariadbServer(const TempDir& dir) : MariadbServer(dir, "db", {}) {}

  // Starts it and waits until it answers; otherwise throws HarnessError with its log.
  void Start(const std::vector<std::string>& once = {});  // `once`: for this start only
  // Runs it with --wsrep-recover, which ends by itself and writes to `log`.
  void Recover(const std::string& log);
  void Stop();  // sends SIGTERM and waits
  void Kill();  // SIGKILL
  void Signal(int signal) { process_.value().Signal(signal); }
  [[nodiscard]] pid_t pid() const { return process_.value().pid(); }
  [[nodiscard]] bool Running() { return process_.has_value() && process_->Running(); }

  // The data directory, which may be copied or replaced while the server is down.
  [[nodiscard]] const std::string& data_dir() const noexcept { return data_dir_; }
  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }
  // For idd, over TCP.
  [[nodiscard]] std::string TcpUrl() const;
  // For idd, over the socket.
  [[nodiscard]] std::string Url() const;
  [[nodiscard]] MariadbSession Session(const std::string& database = "idd") const {
    return MariadbSession(socket_, "root", database);
  }
  // Lets every host that has opened its store on this server lease everything of all present and
  // future tags. For stores without a daemon, which would otherwise maintain the fence.
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

// Copies a directory, keeping the owners.
void CopyTree(const std::string& from, const std::string& to);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_MARIADB_SERVER_H_

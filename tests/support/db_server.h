// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_DB_SERVER_H_
#define IDD_TESTS_SUPPORT_DB_SERVER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/temp_dir.h"

struct st_mysql;

namespace idd::harness {

// The server that the tests run on: IDD_TEST_SERVER is "mariadb", which is the default, or "mysql",
// which scripts/mysql-tree unpacks.
[[nodiscard]] bool IsMysql();
// The option for an InnoDB log of that size, as "96M".
[[nodiscard]] std::string RedoLog(const std::string& size);
// A table of the whole numbers from `first` to `last`, in the column `seq`.
[[nodiscard]] std::string Numbers(std::uint64_t first, std::uint64_t last);

// A session at a server, as an operator or another program would have. Thread safety: none.
class DbSession {
 public:
  // Throws HarnessError if no server answers.
  DbSession(const std::string& socket, const std::string& user, const std::string& database);
  // Over TCP, as idd's user.
  explicit DbSession(std::uint16_t port);
  ~DbSession();
  DbSession(const DbSession&) = delete;
  DbSession& operator=(const DbSession&) = delete;

  // Throws HarnessError on an error.
  void Execute(const std::string& sql);
  // The first column of the rows, joined with ",".
  [[nodiscard]] std::string Query(const std::string& sql);
  // The server's counters, by their names in lower case.
  [[nodiscard]] std::map<std::string, double> Counters();
  // 0, or the server's error number.
  [[nodiscard]] unsigned Try(const std::string& sql);

 private:
  st_mysql* mysql_ = nullptr;
};

// A real mariadbd or mysqld with its own data directory, not run as root, with a Unix socket and
// optionally a port on loopback. It has the empty database `idd` and the user `idd` with the
// password `secret`; root has no password.
class DbServer {
 public:
  struct Options {
    std::uint16_t port = 0;              // 0: no network
    std::vector<std::string> arguments;  // further ones for the server
  };

  DbServer(const TempDir& dir, const std::string& name, Options options);
  explicit DbServer(const TempDir& dir) : DbServer(dir, "db", {}) {}

  // Starts it and waits until it answers; otherwise throws HarnessError with its log.
  void Start(const std::vector<std::string>& once = {});  // `once`: for this start only
  // Runs mariadbd with --wsrep-recover, which ends by itself and writes to `log`.
  void Recover(const std::string& log);
  void Stop();  // sends SIGTERM and waits
  void Kill();  // SIGKILL
  void Signal(int signal) { process_.value().Signal(signal); }
  [[nodiscard]] pid_t pid() const { return process_.value().pid(); }
  [[nodiscard]] bool Running() { return process_.has_value() && process_->Running(); }

  // The data directory, which may be copied or replaced while the server is down.
  [[nodiscard]] const std::string& data_dir() const noexcept { return data_dir_; }
  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }
  // For idd, over TCP; with the others, as further endpoints.
  [[nodiscard]] std::string TcpUrl(const std::vector<const DbServer*>& others = {}) const;
  // For idd, over the socket.
  [[nodiscard]] std::string Url() const;
  [[nodiscard]] DbSession Session(const std::string& database = "idd") const {
    return DbSession(socket_, "root", database);
  }
  // Makes it a replica of `primary`, from the first commit on. Both need --server-id and
  // --log-bin=binlog, and `primary` a port.
  void Replicate(const DbServer& primary) const;
  void StopReplicating() const;
  // Ends all sessions of idd's user.
  void EndSessions() const;
  // Dumps the database as an operator would. Returns a command of the shell.
  [[nodiscard]] std::string DumpCommand() const;
  // Reads SQL from its standard input.
  [[nodiscard]] std::string ClientCommand() const;
  // MySQL Router with that configuration.
  [[nodiscard]] static std::vector<std::string> RouterCommand(const std::string& config);
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

#endif  // IDD_TESTS_SUPPORT_DB_SERVER_H_

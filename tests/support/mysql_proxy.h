// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_MYSQL_PROXY_H_
#define IDD_TESTS_SUPPORT_MYSQL_PROXY_H_

#include <atomic>
#include <list>
#include <string>
#include <thread>

#include "idd/base/scoped_fd.h"

namespace idd::harness {

// Between idd and a database server, on Unix sockets: passes everything on, but for what it is
// told. Thread safety: the setters and counters.
class MysqlProxy {
 public:
  // Listens at `path`, connects to `server`; throws HarnessError when it cannot listen.
  MysqlProxy(const std::string& path, std::string server);
  ~MysqlProxy();
  MysqlProxy(const MysqlProxy&) = delete;
  MysqlProxy& operator=(const MysqlProxy&) = delete;

  // Every n-th packet with a COMMIT in it is passed on, its answer is not: the connection is closed
  // once the server has answered. 0: none.
  void DropCommits(int every) { drop_every_.store(every); }
  // Accepts, and neither passes on nor answers anything.
  void Hang(bool hangs) { hangs_.store(hangs); }

  [[nodiscard]] int connections() const { return connections_.load(); }  // ever accepted
  [[nodiscard]] int dropped() const { return dropped_.load(); }

 private:
  void Accept();
  void Serve(ScopedFd client);

  const std::string server_;
  ScopedFd listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> hangs_{false};
  std::atomic<int> drop_every_{0};
  std::atomic<int> commits_{0};
  std::atomic<int> dropped_{0};
  std::atomic<int> connections_{0};
  std::list<std::thread> threads_;  // of the acceptor's
  std::thread acceptor_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_MYSQL_PROXY_H_

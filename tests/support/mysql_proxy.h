// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_MYSQL_PROXY_H_
#define IDD_TESTS_SUPPORT_MYSQL_PROXY_H_

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
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

  // Passes on what the server says byte by byte, so slowly that no answer ends, and never so slowly
  // that a read would.
  void Drip(bool drips) { drips_.store(drips); }

  // As a proxy that keeps its clients' sessions over a failover: each goes on at `server`, from the
  // client's next packet on. The proxy logs in there with the packet that the client logged in
  // with, so its user must have no password, and repeats its SET SESSION.
  void Repoint(const std::string& server);

  // As a balancer that leads new connections to another server and drops what the old ones say:
  // they hang from here on, for good.
  void Strand(const std::string& server);

  [[nodiscard]] int connections() const { return connections_.load(); }  // ever accepted
  [[nodiscard]] int dropped() const { return dropped_.load(); }
  [[nodiscard]] int repointed() const { return repointed_.load(); }  // sessions, so far

 private:
  void Accept();
  void Serve(ScopedFd client);
  [[nodiscard]] bool Answer(int client, std::string_view bytes) const;
  [[nodiscard]] std::string Server() const;

  mutable std::mutex mutex_;
  std::string server_;  // under mutex_
  ScopedFd listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> hangs_{false};
  std::atomic<bool> drips_{false};
  std::atomic<int> drop_every_{0};
  std::atomic<int> commits_{0};
  std::atomic<int> dropped_{0};
  std::atomic<int> connections_{0};
  std::atomic<int> repointed_{0};
  std::atomic<int> stranded_{0};    // how often
  std::list<std::thread> threads_;  // of the acceptor's
  std::thread acceptor_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_MYSQL_PROXY_H_

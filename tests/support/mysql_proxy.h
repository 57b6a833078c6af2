// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_MYSQL_PROXY_H_
#define IDD_TESTS_SUPPORT_MYSQL_PROXY_H_

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "idd/base/scoped_fd.h"

namespace idd::harness {

// Between idd and a database server, on Unix sockets: forwards everything, except for the
// configured faults. Thread safety: the setters and counters.
class MysqlProxy {
 public:
  // Listens at `path`, connects to `server`; throws HarnessError if it cannot listen.
  MysqlProxy(const std::string& path, std::string server);
  ~MysqlProxy();
  MysqlProxy(const MysqlProxy&) = delete;
  MysqlProxy& operator=(const MysqlProxy&) = delete;

  // Forwards one of n packets with a COMMIT, by no pattern, but not its answer: closes the
  // connection once the server has answered. 0: none.
  void DropCommits(int every) { drop_every_.store(every); }
  // Calls it before it forwards a packet with a COMMIT. To be set before a client connects.
  void BeforeCommits(std::function<void()> call) { before_commits_ = std::move(call); }
  // Accepts connections, but neither forwards nor answers anything.
  void Hang(bool hangs) { hangs_.store(hangs); }

  // Forwards the server's output byte by byte, so slowly that no answer completes, but fast enough
  // that no single read times out.
  void Drip(bool drips) { drips_.store(drips); }

  // Acts as a proxy that keeps its clients' sessions over a failover: each continues at `server`
  // from the client's next packet on. The proxy logs in there with the client's own login packet,
  // so the user must have no password, and repeats the client's SET SESSION.
  void Repoint(const std::string& server);

  // Acts as a balancer that sends new connections to another server and drops the output of the old
  // ones, which from then on hang.
  void Strand(const std::string& server);

  [[nodiscard]] int connections() const { return connections_.load(); }  // accepted so far
  [[nodiscard]] int dropped() const { return dropped_.load(); }
  [[nodiscard]] int repointed() const { return repointed_.load(); }  // sessions so far

 private:
  void Accept();
  void Serve(ScopedFd client);
  [[nodiscard]] bool Answer(int client, std::string_view bytes) const;
  [[nodiscard]] std::string Server() const;

  mutable std::mutex mutex_;
  std::string server_;  // guarded by mutex_
  std::function<void()> before_commits_;
  ScopedFd listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> hangs_{false};
  std::atomic<bool> drips_{false};
  std::atomic<int> drop_every_{0};
  std::atomic<int> commits_{0};
  std::atomic<int> dropped_{0};
  std::atomic<int> connections_{0};
  std::atomic<int> repointed_{0};
  std::atomic<int> stranded_{0};    // number of calls
  std::list<std::thread> threads_;  // used by the acceptor only
  std::thread acceptor_;
};

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_MYSQL_PROXY_H_

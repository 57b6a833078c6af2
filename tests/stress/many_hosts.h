// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_STRESS_MANY_HOSTS_H_
#define IDD_TESTS_STRESS_MANY_HOSTS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idd/base/clock.h"
#include "support/db_server.h"
#include "support/host.h"
#include "support/raw_connection.h"

namespace idd::harness {

// What a server has done since its start, by its own counters.
struct ServerCounters {
  std::uint64_t statements = 0;   // Questions
  std::uint64_t commits = 0;      // Com_commit: transactions with a lease, a raise or an end in it
  std::uint64_t updates = 0;      // Com_update: also the looks of witnesses
  std::uint64_t connections = 0;  // opened
  std::uint64_t rows_read = 0;    // Handler_read_*
  std::uint64_t running = 0;      // Threads_running now
  std::uint64_t leases = 0;       // rows of the journal
};

// Reads a server's counters a few times a second, while it answers. Thread safety: owner's thread.
class ServerWatch {
 public:
  struct Reading {
    MonotonicTime asked;
    MonotonicTime answered;
    ServerCounters counters;
  };

  explicit ServerWatch(const DbServer& server);
  ~ServerWatch();
  ServerWatch(const ServerWatch&) = delete;
  ServerWatch& operator=(const ServerWatch&) = delete;

  // Ends the watch. A restarted server counts from 0 again, so use one watch for each.
  [[nodiscard]] std::vector<Reading> Stop();

 private:
  void Loop();
  void Sample();
  [[nodiscard]] std::optional<ServerCounters> Read();

  const DbServer& server_;
  std::unique_ptr<DbSession> session_;
  std::vector<Reading> samples_;
  std::mutex mutex_;
  bool is_stopping_ = false;
  std::thread thread_;
};

// Growth a second between two samples, the highest of all pairs that are at least a second apart.
[[nodiscard]] double HighestRate(const std::vector<ServerWatch::Reading>& samples,
                                 const std::function<std::uint64_t(const ServerCounters&)>& count);

// Programs that claim from every tag of every host at once, over one connection to each idd.
// Thread safety: none.
class ClaimEverywhere {
 public:
  struct Plan {
    std::vector<std::string> sockets;  // of the hosts
    std::vector<std::string> tags;
    std::uint64_t count = 1;  // ids of each claim
    int rounds = 1;           // claims of each tag, one after the other
    std::uint32_t timeout_ms = 3'000'000;
  };
  struct Outcome {
    std::uint64_t answers = 0;
    std::map<std::string, std::uint64_t> failures;  // by reason
    std::map<std::size_t, MonotonicTime> served;    // hosts with the answer to their last claim
    std::vector<double> waits_s;                    // of every claim, sorted
    std::vector<std::pair<std::string, std::pair<std::uint64_t, std::uint64_t>>> ids;
  };

  explicit ClaimEverywhere(Plan plan);

  // Until every claim has its answer, or until the timeout. May be called again to go on.
  // Returns whether all claims are answered.
  bool Run(std::chrono::milliseconds timeout);
  // A wait is counted from here on if the claim was sent before.
  void CountFrom(MonotonicTime when) { from_ = when; }
  [[nodiscard]] const Outcome& outcome();

 private:
  struct Of {
    std::optional<RawConnection> connection;
    std::vector<std::size_t> to_send;  // tags, by number
    std::vector<int> rounds;           // claims answered, by tag
    std::vector<MonotonicTime> sent;   // by tag
    std::size_t answered = 0;
  };

  void Connect(Of& host);
  void Send(Of& host);
  // False once the daemon has closed.
  bool Receive(std::size_t number);
  void OnReply(std::size_t number, const Reply& reply);

  const Plan plan_;
  std::vector<Of> hosts_;
  Outcome outcome_;
  MonotonicTime from_{};
  std::size_t open_ = 0;  // claims without an answer, and those not made yet
};

// The names of the log's events at level error, with their number.
[[nodiscard]] std::map<std::string, int> ErrorsIn(const std::string& log);

}  // namespace idd::harness

#endif  // IDD_TESTS_STRESS_MANY_HOSTS_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_MYSQL_SERVER_IDENTITY_H_
#define IDD_DAEMON_STORE_MYSQL_SERVER_IDENTITY_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "idd/base/clock.h"

namespace idd::daemon {

// The facts that a server reports about itself on a new connection.
struct ServerFacts {
  std::string hostname{};
  std::uint64_t port = 0;
  std::uint64_t server_id = 0;
  std::string uid{};             // MariaDB's server_uid, or empty
  std::string uuid{};            // MySQL's server_uuid, or empty
  std::uint64_t connection = 0;  // its number: a server counts its connections
  std::chrono::seconds uptime{0};
  std::string cluster{};  // the cluster that it is a node of; empty: none
  MonotonicTime asked{};  // when the server was asked
};

// Knows which server is open, and whether it is the one that was open before and has been running
// ever since; any other server may lack data that the earlier one had. A cluster may have been
// bootstrapped with less data whenever this host was not connected, and its nodes do not show that.
//
// Pure. Thread safety: none.
class ServerIdentity {
 public:
  enum class Change {
    kNone,
    kInterrupted,  // the same name, but it may have stopped, or be a cluster's node
    kOther,
  };
  Change Recognise(const ServerFacts& facts);

  // The name of the server or cluster, which is the same on all hosts. Empty: none was open.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool is_cluster() const noexcept { return is_cluster_; }
  // An SQL condition: the statement runs on the connection and the server that were recognised.
  [[nodiscard]] const std::string& condition() const noexcept { return condition_; }
  // How long the server has been running, at least. Nothing for a cluster, where an uptime proves
  // nothing.
  [[nodiscard]] std::optional<std::chrono::seconds> Uptime(MonotonicTime now) const;

 private:
  std::string name_;
  bool is_cluster_ = false;
  std::string condition_;
  // The time on this host's clock since which the server must have been running.
  MonotonicTime first_seen_{};
  std::uint64_t last_connection_ = 0;
  std::chrono::seconds uptime_{0};  // at the last look
  MonotonicTime asked_{};
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_SERVER_IDENTITY_H_

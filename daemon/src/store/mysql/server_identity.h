// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_MYSQL_SERVER_IDENTITY_H_
#define IDD_DAEMON_STORE_MYSQL_SERVER_IDENTITY_H_

#include <cstdint>
#include <string>

namespace idd::daemon {

// The facts that a server reports about itself on a new connection.
struct ServerFacts {
  std::string hostname{};
  std::uint64_t port = 0;
  std::uint64_t server_id = 0;
  std::string uid{};             // MariaDB's server_uid, or empty
  std::string uuid{};            // MySQL's server_uuid, or empty
  std::uint64_t connection = 0;  // its number
  std::uint64_t started = 0;     // when its process started, Unix time in seconds, on its clock
  std::string cluster{};         // the cluster that it is a node of, and its life; empty: none
};

// Tells servers and their lives apart: after a restart a server may lack the last commits. Of a
// cluster, the life is that of the cluster (CheckCluster(), CheckGroup()).
//
// Pure. Thread safety: none.
class ServerIdentity {
 public:
  // True: another server, or another life of it, was open before, or none was.
  bool Recognise(const ServerFacts& facts);

  // The server or cluster and its life: the same on all hosts. Empty: none was open.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool is_cluster() const noexcept { return is_cluster_; }
  // An SQL condition: the statement runs on the connection and the server that were recognised.
  [[nodiscard]] const std::string& condition() const noexcept { return condition_; }

 private:
  std::string server_;
  std::string name_;
  bool is_cluster_ = false;
  std::string condition_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_SERVER_IDENTITY_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_CLIENT_H_
#define IDCLIENT_SRC_CLIENT_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "connection.h"
#include "idd/base/status.h"
#include "tag.h"

namespace idd::client {

struct ClientOptions {
  std::string socket_path;
  std::chrono::milliseconds timeout{500};
  std::optional<uid_t> trusted_uid;
};

// A connection to one daemon and the tags opened through it.
//
// Thread safety: all methods, also in a forked child: there is no lock that a fork could copy while
// it is held.
class Client {
 public:
  // Connects once, so that a wrong path or a missing daemon is reported at once.
  [[nodiscard]] static idd::Result<std::unique_ptr<Client>> Open(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The tag's handle. Calls with the same block size (0 or 1: no blocks) return the same one; it
  // lives as long as the client.
  [[nodiscard]] idd::Result<Tag*> OpenTag(std::string_view name, std::uint64_t block_size = 0);

  // This process's connection: a forked child gets one of its own on first use.
  [[nodiscard]] Connection& connection();
  // The same, but makes none: null in a forked child that has none yet.
  [[nodiscard]] Connection* own_connection() noexcept;
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }

 private:
  explicit Client(ClientOptions options);
  [[nodiscard]] Tag* FindTag(std::string_view name, std::uint64_t block_size) const noexcept;

  const ClientOptions options_;
  std::atomic<Connection*> connection_;
  std::atomic<Tag*> tags_{nullptr};  // a list that only grows
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_CLIENT_H_

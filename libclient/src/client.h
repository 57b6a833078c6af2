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
#include "log.h"
#include "process_lock.h"
#include "tag.h"

namespace idd::client {

struct ClientOptions {
  std::string socket_path;
  std::chrono::milliseconds timeout{500};
  std::optional<uid_t> trusted_uid;
  bool opens_once = false;  // without a wait for a daemon that is not there
  Log log;
};

// A connection to one daemon and the tags opened through it.
//
// Thread safety: all methods, also in a forked child: a lock that a fork copies while it is held is
// open in the child.
class Client {
 public:
  // Connects, so that a wrong path or a missing daemon is reported here. Waits for a daemon that is
  // not there yet.
  [[nodiscard]] static idd::Result<std::unique_ptr<Client>> Open(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // The tag's handle. Calls with the same block size (0 or 1: no blocks) return the same one; it
  // lives until CloseTag() was called as often, or as long as the client.
  [[nodiscard]] idd::Result<Tag*> OpenTag(std::string_view name, std::uint64_t block_size = 0);
  void CloseTag(Tag* tag) noexcept;

  // This process's connection: a forked child gets one of its own on first use.
  [[nodiscard]] Connection& connection();
  // The same, but makes none: null in a forked child that has none yet.
  [[nodiscard]] Connection* own_connection() noexcept;
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }
  [[nodiscard]] bool opens_once() const noexcept { return options_.opens_once; }
  [[nodiscard]] const Log& log() const noexcept { return options_.log; }

 private:
  explicit Client(ClientOptions options);
  // The tag with that name and block size, opened once more; null: there is none.
  [[nodiscard]] Tag* OpenAgain(std::string_view name, std::uint64_t block_size) noexcept;
  // Precondition: the lock is held.
  [[nodiscard]] Tag* FindTag(std::string_view name, std::uint64_t block_size) const noexcept;

  const ClientOptions options_;
  std::atomic<Connection*> connection_;
  ProcessLock tags_lock_;
  Tag* tags_ = nullptr;  // a list, under the lock
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_CLIENT_H_

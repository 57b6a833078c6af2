// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_CONNECTION_H_
#define IDCLIENT_SRC_CONNECTION_H_

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/wire/channel.h"
#include "log.h"
#include "pending_call.h"

namespace idd::client {

// One process's connection to the daemon, shared by all its threads: many calls may be under way at
// once, so that a thread that waits for one tag does not delay the calls for another.
//
// There is no reader thread. One of the threads that wait for a reply, the leader, reads the
// replies for all and hands each thread its own. When it leaves, it wakes another thread to lead.
//
// Thread safety: all methods. A forked child must not use its parent's object (its locks may be
// held by threads that do not exist there): see Client::connection().
//
// Invariants: channel_ is replaced or dropped only under mutex_ and while no thread leads. calls_
// has the unfinished calls: the thread that finishes one removes it.
class Connection {
 public:
  Connection(std::string socket_path, std::optional<uid_t> trusted_uid, Log log);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Connects if there is no connection: one try, with HELLO. kUnavailable, kDenied,
  // kIncompatible...
  [[nodiscard]] idd::Status EnsureConnected(idd::Deadline deadline);

  // Sends the request that `build` makes with the given request id and returns its reply. Connects
  // first if need be, one try. kUnavailable: the connection broke before the reply came.
  using RequestBuilder = std::function<std::vector<std::byte>(std::uint64_t request_id)>;
  [[nodiscard]] idd::Result<idd::wire::Message> Call(const RequestBuilder& build,
                                                     idd::Deadline deadline);

  // Sends a notice unless it would have to wait for the socket or for a lock. The notice may be
  // lost.
  void TryNotify(std::span<const std::byte> frame) noexcept;

  // For a forked child: closes the descriptor inherited from the parent, unless the child has
  // closed it and has another file under the number. Touches no lock.
  void AbandonInChild() noexcept;

  // The ProcessMark() of the process that made it.
  [[nodiscard]] std::uint64_t owner() const noexcept { return owner_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] idd::Status ConnectLocked(Lock& lock, idd::Deadline deadline);
  // Drops a connection that the peer has closed, unless another thread is reading: that one will
  // notice.
  void DropIfClosed();
  // The same, but only if the program has closed the descriptor: replies of a peer that has closed
  // can still be read.
  void DropIfTaken();
  // Fails the calls that are not finished. Precondition: no thread leads.
  void Drop(const idd::Status& reason);
  void SetChannel(idd::wire::Channel channel);
  // kUnavailable: the daemon has not received the frame and will not.
  [[nodiscard]] idd::Status SendLocked(Lock& lock, std::span<const std::byte> frame,
                                       idd::Deadline deadline);
  // Returns with the lock, or without it if another thread has finished the call.
  void WaitForReply(Lock& lock, PendingCall& call, idd::Deadline deadline);
  void LeadOnce(Lock& lock, idd::Deadline deadline);
  void Dispatch(idd::wire::Message message);
  void FailAll(const idd::Status& status);
  void WakeNextLeader();  // if no thread leads

  const std::string socket_path_;
  const std::optional<uid_t> trusted_uid_;
  const Log log_;
  const std::uint64_t owner_;

  std::mutex mutex_;
  std::condition_variable connected_or_failed_;
  std::optional<idd::wire::Channel> channel_;
  bool connecting_ = false;
  bool leading_ = false;
  std::string lost_;  // why the last connection ended; logged by the next try
  // Starts at a random number, so that a reply to another connection's request is not taken for one
  // of ours.
  std::uint64_t next_request_id_;
  std::map<std::uint64_t, PendingCall*> calls_;  // by request id, so the oldest is the first
  // channel_'s descriptor and its file's identity, for a forked child, which reads them without the
  // lock.
  struct {
    std::atomic<int> fd{-1};
    std::atomic<std::uint64_t> device{0};
    std::atomic<std::uint64_t> inode{0};
  } raw_;
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_CONNECTION_H_

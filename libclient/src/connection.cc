// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "idd/base/guarded_fd.h"
#include "idd/shm/abi.h"
#include "idd/wire/frames.h"
#include "process_mark.h"

namespace idd::client {

using idd::Code;
using idd::Deadline;
using idd::Result;
using idd::Status;
using idd::wire::FrameType;
using idd::wire::Message;

namespace {

// How long a sender with a full socket waits before it tries again.
constexpr std::chrono::milliseconds kSendRetry(10);
// Replies that a leader reads before it hands them out.
constexpr std::size_t kMaxRepliesAtOnce = 256;

// Agrees on versions; the first exchange of every connection.
Status Hello(idd::wire::Channel& channel, Deadline deadline) {
  idd::wire::HelloRequest request;
  request.abi_version = idd::shm::kAbiVersion;
  constexpr std::string_view kVersion = IDD_VERSION;
  std::copy_n(kVersion.begin(), std::min(kVersion.size(), sizeof(request.client_version) - 1),
              request.client_version);
  Result<Message> message =
      channel.Exchange(idd::wire::BuildRequest(FrameType::kHello, 0, request), deadline);
  if (!message.ok()) return message.status();
  const auto frame = idd::wire::ParseFrame(message.value().bytes);
  if (!frame.ok()) return frame.status();
  std::string reason;
  const auto reply =
      idd::wire::ParseReply<idd::wire::HelloReply>(frame.value(), FrameType::kHello, &reason);
  if (!reply.ok()) return reply.status();
  if (reply.value().status != 0) return {idd::CodeFromNumber(reply.value().status), reason};
  return Status::Ok();
}

// Removes a call from `calls`, also when an exception ends it. Destroyed under the mutex, or once
// the call is finished: the thread that finishes a call removes it.
struct Registration {
  std::map<std::uint64_t, PendingCall*>& calls;
  const PendingCall& call;

  ~Registration() {
    if (!call.finished()) calls.erase(call.request_id());
  }
};

// Never 0, which HELLO and notices use. No process makes so many requests that counting up from
// here wraps round to 0.
std::uint64_t RandomRequestId() noexcept {
  std::uint32_t id = 0;
  if (::getrandom(&id, sizeof(id), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(id))) id = 0;
  return (std::uint64_t{id} << 24) + 1;
}

}  // namespace

Connection::Connection(std::string socket_path, std::optional<uid_t> trusted_uid, Log log)
    : socket_path_(std::move(socket_path)),
      trusted_uid_(trusted_uid),
      log_(log),
      owner_(ProcessMark()),
      next_request_id_(RandomRequestId()) {}

Status Connection::EnsureConnected(Deadline deadline) {
  Lock lock(mutex_);
  DropIfClosed();
  return ConnectLocked(lock, deadline);
}

void Connection::DropIfClosed() {
  if (!channel_.has_value() || leading_ || !channel_->PeerClosed()) return;
  Drop({Code::kUnavailable, "the connection to idd broke"});
}

void Connection::DropIfTaken() {
  if (!channel_.has_value() || leading_ || channel_->IsOurs()) return;
  Drop({Code::kUnavailable, "the program has closed the connection to idd"});
}

void Connection::Drop(const Status& reason) {
  raw_.fd.store(-1, std::memory_order_relaxed);  // F1: this process only
  if (channel_.has_value()) lost_ = reason.message();
  channel_.reset();
  // The next daemon does not know the requests that this one was sent.
  FailAll(reason);
}

void Connection::SetChannel(idd::wire::Channel channel) {
  channel_.emplace(std::move(channel));
  raw_.device.store(channel_->identity().device, std::memory_order_relaxed);  // F2 orders it
  raw_.inode.store(channel_->identity().inode, std::memory_order_relaxed);    // F2 orders it
  raw_.fd.store(channel_->fd(), std::memory_order_release);                   // F2, pairs with F3
}

Status Connection::ConnectLocked(Lock& lock, Deadline deadline) {
  while (connecting_) {
    if (connected_or_failed_.wait_until(lock, deadline.at()) == std::cv_status::timeout &&
        connecting_) {
      return {Code::kUnavailable, "idd at " + socket_path_ + " did not answer before the deadline"};
    }
  }
  if (channel_.has_value()) return Status::Ok();
  connecting_ = true;
  const std::string lost = std::exchange(lost_, {});
  lock.unlock();
  if (!lost.empty()) log_.Warning(lost);
  Result<idd::wire::Channel> channel =
      idd::wire::Channel::Connect(socket_path_, deadline, trusted_uid_);
  Status status = channel.ok() ? Hello(channel.value(), deadline) : channel.status();
  // A daemon that accepts and does not answer counts as unavailable.
  if (status.code() == Code::kTimeout) status = {Code::kUnavailable, status.message()};
  if (status.ok()) log_.Info("connected to idd at " + socket_path_);
  lock.lock();
  connecting_ = false;
  if (status.ok()) SetChannel(std::move(channel).value());
  connected_or_failed_.notify_all();
  return status;
}

Result<Message> Connection::Call(const RequestBuilder& build, Deadline deadline) {
  Lock lock(mutex_);
  // Only sending the request shows whether the daemon of the last call is still there. If it is
  // not, the request is sent once more, to the next daemon.
  bool may_retry = channel_.has_value();
  while (true) {
    if (Status status = ConnectLocked(lock, deadline); !status.ok()) return status;
    PendingCall call(next_request_id_++);
    // Registered before it is sent: a leader may read the reply before this thread runs again.
    calls_.emplace(call.request_id(), &call);
    const Registration registration{calls_, call};
    const Status status = SendLocked(lock, build(call.request_id()), deadline);
    if (status.ok()) WaitForReply(lock, call, deadline);
    if (!lock.owns_lock()) return call.TakeReply();
    if (!call.finished()) calls_.erase(call.request_id());
    WakeNextLeader();
    if (status.code() == Code::kUnavailable && may_retry && !deadline.passed()) {
      may_retry = false;
      continue;
    }
    if (call.finished()) return call.TakeReply();
    if (!status.ok()) return status;
    return Status(Code::kTimeout, "idd did not answer in time");
  }
}

Status Connection::SendLocked(Lock& lock, std::span<const std::byte> frame, Deadline deadline) {
  while (channel_.has_value()) {
    if (channel_->TrySend(frame)) return Status::Ok();
    DropIfClosed();
    if (!channel_.has_value()) break;
    // The socket is full or broken. The leader will notice a broken one. A full one means that idd
    // is stopped or overloaded; there may be room after the next reply.
    const Deadline retry = deadline.EarlierOf(Deadline::After(kSendRetry));
    if (!leading_) {
      LeadOnce(lock, retry);
    } else {
      connected_or_failed_.wait_until(lock, retry.at());
    }
    if (deadline.passed()) return {Code::kTimeout, "idd did not read the request in time"};
  }
  return {Code::kUnavailable, "the connection to idd broke"};
}

void Connection::WaitForReply(Lock& lock, PendingCall& call, Deadline deadline) {
  while (!call.finished() && !deadline.passed()) {
    if (!leading_) {
      LeadOnce(lock, deadline);
      continue;
    }
    call.DeclineToLead();
    lock.unlock();
    call.Sleep(deadline);
    if (call.finished()) return;
    lock.lock();
    DropIfTaken();  // it has slept since its request was sent
  }
}

void Connection::LeadOnce(Lock& lock, Deadline deadline) {
  if (!channel_.has_value()) {
    FailAll({Code::kUnavailable, "the connection to idd broke"});
    return;
  }
  leading_ = true;
  const bool leads_others = calls_.size() > 1;
  lock.unlock();
  std::vector<Message> replies;
  Status end;
  Deadline patience = deadline;
  // Replies that came with the first one are handed out at once. If each thread read its own reply,
  // many replies would need as many thread switches, one after the other.
  try {
    do {
      Result<Message> message = channel_->Receive(patience);
      if (message.ok()) {
        replies.push_back(std::move(message).value());
      } else {
        end = message.status();
      }
      patience = Deadline::After(std::chrono::milliseconds(0));
    } while (end.ok() && leads_others && replies.size() < kMaxRepliesAtOnce);
  } catch (const std::bad_alloc&) {
    end = {Code::kSystem, "out of memory"};  // fits a std::string without an allocation
  }
  lock.lock();
  leading_ = false;
  for (Message& reply : replies) Dispatch(std::move(reply));
  if (!end.ok() && end.code() != Code::kTimeout) {
    Drop({end.code() == Code::kSystem ? Code::kSystem : Code::kUnavailable, end.message()});
  }
  connected_or_failed_.notify_all();
}

void Connection::Dispatch(Message message) {
  const auto frame = idd::wire::ParseFrame(message.bytes);
  if (!frame.ok()) {
    Drop({Code::kIncompatible, "idd sent what is no frame: " + frame.status().message()});
    return;
  }
  const auto found = calls_.find(frame.value().header.request_id);
  if (found == calls_.end()) return;  // late: its caller's deadline passed, its ids are a gap
  PendingCall* const call = found->second;
  calls_.erase(found);
  const std::uint16_t type = frame.value().header.type;
  if (type == (static_cast<std::uint16_t>(FrameType::kError) | idd::wire::kReplyBit)) {
    // Only this call is at fault. The daemon now closes the connection; the other calls fail as
    // UNAVAILABLE and are tried again.
    call->Finish(idd::wire::ParseError(frame.value()));
  } else {
    call->Finish(std::move(message));
  }
}

void Connection::FailAll(const Status& status) {
  while (!calls_.empty()) {
    PendingCall* const call = calls_.begin()->second;
    calls_.erase(calls_.begin());
    call->Finish(status);
  }
}

void Connection::WakeNextLeader() {
  if (!leading_ && !calls_.empty()) calls_.begin()->second->AskToLead();
}

void Connection::TryNotify(std::span<const std::byte> frame) noexcept {
  const Lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && channel_.has_value()) static_cast<void>(channel_->TrySend(frame));
}

void Connection::AbandonInChild() noexcept {
  const int fd = raw_.fd.exchange(-1, std::memory_order_acquire);  // F3, pairs with F2
  if (fd < 0) return;
  const idd::FileIdentity identity{raw_.device.load(std::memory_order_relaxed),  // F3 orders it
                                   raw_.inode.load(std::memory_order_relaxed)};  // F3 orders it
  if (idd::IdentityOf(fd) == identity) ::close(fd);
}

}  // namespace idd::client

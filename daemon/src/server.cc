// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

#include "admin_fields.h"
#include "idd/shm/abi.h"
#include "logging.h"
#include "random.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;
using wire::FrameType;
using wire::FrameView;

constexpr int kBacklog = 1024;
constexpr int kAcceptsPerTurn = 64;
// A connection says HELLO within this time, or is closed.
constexpr std::chrono::seconds kHelloPatience(5);
constexpr std::chrono::milliseconds kAcceptPause(100);
constexpr const char* kTooManyRequests = "this connection has too many requests under way";
// Everybody may connect whom the folder lets in: who may do what, idd says by the peer's
// credentials, so that it can say why not.
constexpr mode_t kSocketMode = 0666;

Result<sockaddr_un> MakeAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Status(Code::kInvalid, "the socket's path must have 1 to " +
                                      std::to_string(sizeof(address.sun_path) - 1) +
                                      " bytes: " + path);
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

const sockaddr* AsSockaddr(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Somebody listens there: accepted, or the backlog is full (a stopped daemon is alive, too).
bool IsLive(const sockaddr_un& address) {
  const ScopedFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(probe.get(), AsSockaddr(address), sizeof(address)) == 0) return true;
  // EPROTOTYPE: a listener of another socket type. Only a refusal proves that nobody is there.
  return errno != ECONNREFUSED && errno != ENOENT;
}

Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status::Ok() : Status::FromErrno(errno, "looking at " + path);
  }
  if (Status status = Server::CheckPath(path); !status.ok()) return status;
  if (IsLive(address)) {
    return {Code::kUnavailable, "another process listens at " + path + "; it is left alone"};
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Status::FromErrno(errno, "removing the stale socket " + path);
  }
  log::Info("socket.stale_removed", {{"path", path}});
  return Status::Ok();
}

// The document as a descriptor: any length, no queue. Sealed, so that it stays what it was.
Result<ScopedFd> MakeDocument(const std::string& text) {
  ScopedFd fd(::memfd_create("idd-document", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::FromErrno(errno, "memfd_create");
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t bytes = ::write(fd.get(), text.data() + done, text.size() - done);
    if (bytes < 0 && errno != EINTR) return Status::FromErrno(errno, "writing a document");
    if (bytes > 0) done += static_cast<std::size_t>(bytes);
  }
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return Status::FromErrno(errno, "sealing a document");
  }
  return fd;
}

Status CheckWait(std::uint32_t timeout_ms, std::uint32_t reserved) {
  if (reserved != 0) return {Code::kInvalid, "a reserved field of the frame is not 0"};
  if (timeout_ms <= wire::kMaxTimeoutMs) return Status::Ok();
  return {Code::kInvalid, "timeout_ms is more than an hour"};
}

}  // namespace

Server::Server(boost::asio::io_context& loop, TagService& tags, Admin& admin)
    : loop_(loop),
      tags_(tags),
      admin_(admin),
      daemon_id_(RandomId()),
      listener_(loop),
      pause_(loop),
      pacer_(loop, [this](ClaimOrder order) { PaceClaim(std::move(order)); }) {}

Server::~Server() = default;

Status Server::CheckPath(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || S_ISSOCK(info.st_mode)) return Status::Ok();
  return {Code::kUnavailable, path + " exists and is not a socket; it is left alone"};
}

Result<FileLock> Server::LockPath(const std::string& path) {
  const Result<sockaddr_un> address = MakeAddress(path);
  if (!address.ok()) return address.status();
  // Between the look at a stale file and its removal another idd could bind: the lock excludes it.
  Result<FileLock> lock = FileLock::Take(path + ".lock");
  if (lock.ok() || lock.status().code() != Code::kUnavailable) return lock;
  return lock.status().WithContext("another idd uses this socket");
}

bool Server::IsListener(int fd) {
  int type = 0;
  int listens = 0;
  socklen_t type_bytes = sizeof(type);
  socklen_t listens_bytes = sizeof(listens);
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 &&
         ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) == 0 &&
         type == SOCK_SEQPACKET && listens != 0;
}

bool Server::ListensAt(int fd, const std::string& path) {
  sockaddr_un address{};
  socklen_t bytes = sizeof(address);
  const bool is_named = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
                        address.sun_family == AF_UNIX && bytes > offsetof(sockaddr_un, sun_path);
  if (!is_named) return false;
  return path == std::string(address.sun_path,
                             ::strnlen(address.sun_path, bytes - offsetof(sockaddr_un, sun_path)));
}

Status Server::Listen(const std::string& path, ScopedFd listener) {
  if (!listener.valid()) {
    Result<ScopedFd> bound = Bind(path);
    if (!bound.ok()) return bound.status();
    listener = std::move(bound).value();
  } else if (::fcntl(listener.get(), F_SETFL, O_NONBLOCK) != 0) {
    return Status::FromErrno(errno, "fcntl");
  }
  listener_.assign(listener.release());
  WaitAcceptable();
  return Status::Ok();
}

Result<ScopedFd> Server::Bind(const std::string& path) {
  const Result<sockaddr_un> address = MakeAddress(path);
  if (!address.ok()) return address.status();
  if (Status status = RemoveStale(path, address.value()); !status.ok()) return status;
  ScopedFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::FromErrno(errno, "socket");
  if (::bind(fd.get(), AsSockaddr(address.value()), sizeof(sockaddr_un)) != 0) {
    return Status::FromErrno(errno, "cannot bind " + path);
  }
  // Before listen(2): nobody can connect while the mode is still the umask's.
  if (::chmod(path.c_str(), kSocketMode) != 0) return Status::FromErrno(errno, "chmod of " + path);
  if (::lstat(path.c_str(), &bound_) != 0) return Status::FromErrno(errno, "lstat of " + path);
  if (::listen(fd.get(), kBacklog) != 0) return Status::FromErrno(errno, "listen");
  path_ = path;
  return fd;
}

void Server::StopAccepting() {
  boost::system::error_code ignored;
  pause_.cancel();
  listener_.close(ignored);
  struct stat info {};
  if (path_.empty() || ::lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == bound_.st_dev && info.st_ino == bound_.st_ino) ::unlink(path_.c_str());
  path_.clear();
}

void Server::WaitAcceptable() {
  listener_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                       [this](const boost::system::error_code& error) {
                         if (!error) OnAcceptable();
                       });
}

void Server::OnAcceptable() {
  for (int turn = 0; turn < kAcceptsPerTurn; ++turn) {
    ScopedFd socket(
        ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      Adopt(std::move(socket));
      continue;
    }
    if (errno == EAGAIN) break;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    const int error = errno;
    log::Error("accept.failed", {{"error", Status::FromErrno(error, "accept").message()}});
    const bool is_out = error == EMFILE || error == ENFILE;
    if (is_out && DropSilent("idd is out of descriptors, and this connection has not said HELLO")) {
      continue;
    }
    PauseAccepting();  // out of descriptors: without a pause the loop would spin on the backlog
    return;
  }
  WaitAcceptable();
}

void Server::PauseAccepting() {
  pause_.expires_after(kAcceptPause);
  pause_.async_wait([this](const boost::system::error_code& error) {
    if (!error) WaitAcceptable();
  });
}

bool Server::DropSilent(const char* why) {
  while (!silent_.empty()) {
    Connection* const connection = Find(silent_.front().id);
    silent_.pop_front();
    if (connection == nullptr || connection->greeted) continue;
    connection->CloseWith({Code::kUnavailable, why});
    return true;
  }
  return false;
}

void Server::Poll() {
  const MonotonicTime now = MonotonicClock::now();
  gate_.Poll(now);
  WithdrawRings();  // what could not be done at the reload
  const MonotonicTime latest = now - kHelloPatience;
  while (!silent_.empty()) {
    const Connection* const connection = Find(silent_.front().id);
    const bool counts = connection != nullptr && !connection->greeted;
    if (!counts) {
      silent_.pop_front();
      continue;
    }
    if (silent_.front().since > latest) return;
    DropSilent("no HELLO within 5 seconds");
  }
}

void Server::Configure(std::vector<AccessRule> rules, const LimitSettings& limits) {
  gate_.Configure(std::move(rules), limits);
  for (const auto& [id, connection] : connections_) {
    const Status status = gate_.StillAdmit(connection->peer());
    if (!status.ok()) connection->CloseWith(status);
  }
  unlawful_ = gate_.UnlawfulRings();
  WithdrawRings();
}

void Server::WithdrawRings() {
  std::erase_if(unlawful_, [this](const RingHolders::Ring& ring) {
    if (!tags_.Withdraw(ring.tag, ring.ring_id)) return false;
    gate_.holders().Forget(ring);
    return true;
  });
}

void Server::Adopt(ScopedFd socket) {
  Result<Peer> peer = PeerOf(socket.get());
  if (!peer.ok()) return;
  const std::uint64_t id = next_id_++;
  const Status admitted = gate_.Admit(peer.value(), connections_.size());
  auto connection =
      std::make_unique<Connection>(loop_, std::move(socket), id, std::move(peer).value());
  Connection& started = *connection;
  connections_.emplace(id, std::move(connection));
  started.Start(
      [this](Connection& from, std::span<const std::byte> message) { OnMessage(from, message); },
      [this](std::uint64_t closed) { OnClosed(closed); });
  if (!admitted.ok()) return started.CloseWith(admitted);
  started.admitted = true;
  silent_.push_back({.id = id, .since = MonotonicClock::now()});
}

void Server::OnClosed(std::uint64_t id) {
  const Connection* const connection = Find(id);
  if (connection == nullptr) return;
  if (connection->unanswered > 0) {
    tags_.DropOwner(id);
    for (const ClaimOrder& order : pacer_.Drop(id)) gate_.limits().GiveIdsBack(order);
  }
  if (connection->admitted) gate_.Release(connection->peer());
  connections_.erase(id);
}

Connection* Server::Find(std::uint64_t id) {
  const auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second.get();
}

void Server::OnMessage(Connection& connection, std::span<const std::byte> message) {
  const Result<FrameView> frame = wire::ParseFrame(message);
  if (!frame.ok()) {
    connection.CloseWith(frame.status());
    return;
  }
  const Status status = Dispatch(connection, frame.value());
  if (!status.ok()) connection.CloseWith(status, frame.value().header.request_id);
}

Status Server::Dispatch(Connection& connection, const FrameView& frame) {
  const auto type = static_cast<FrameType>(frame.header.type);
  if (Status status = gate_.TakeRequest(connection.peer()); !status.ok()) {
    Refuse(connection, frame, status);
    return Status::Ok();
  }
  if (!connection.greeted && type != FrameType::kHello) {
    return {Code::kInvalid, "the first frame must be HELLO"};
  }
  switch (type) {
    case FrameType::kHello:
      return OnHello(connection, frame);
    case FrameType::kAttach:
      return OnAttach(connection, frame);
    case FrameType::kClaim:
      return OnClaim(connection, frame);
    case FrameType::kRefill:
      return OnRefill(connection, frame);
    case FrameType::kAdmin:
      return OnAdmin(connection, frame);
    case FrameType::kError:
      break;
  }
  return {Code::kInvalid, "unknown frame type " + std::to_string(frame.header.type)};
}

void Server::Refuse(Connection& connection, const FrameView& frame, const Status& status) {
  const std::uint64_t request_id = frame.header.request_id;
  const auto code = static_cast<std::uint32_t>(status.code());
  switch (static_cast<FrameType>(frame.header.type)) {
    case FrameType::kAttach: {
      wire::AttachReply reply;
      reply.status = code;
      connection.Send(wire::BuildReply(FrameType::kAttach, request_id, reply, status.message()));
      return;
    }
    case FrameType::kClaim: {
      wire::ClaimReply reply;
      reply.status = code;
      connection.Send(wire::BuildReply(FrameType::kClaim, request_id, reply, status.message()));
      return;
    }
    case FrameType::kAdmin:
      ++connection.unanswered;
      // UNAVAILABLE would tell idctl that idd is out of reach.
      ReplyAdmin(connection.id(), request_id, {Code::kSystem, status.message()},
                 ErrorDocument(status.message()));
      return;
    case FrameType::kRefill:
      return;  // the poll sees to it
    case FrameType::kHello:
    case FrameType::kError:
      break;
  }
  connection.CloseWith(status, request_id);
}

Status Server::OnHello(Connection& connection, const FrameView& frame) const {
  const Result<wire::HelloRequest> request = wire::ParsePayload<wire::HelloRequest>(frame);
  if (!request.ok()) return request.status();
  if (request.value().reserved != 0) {
    return {Code::kInvalid, "a reserved field of the frame is not 0"};
  }
  const std::uint32_t theirs = request.value().abi_version;
  if (theirs >> 16 != shm::kAbiMajor) {
    return {Code::kIncompatible, "the client has ABI " + std::to_string(theirs >> 16) + "." +
                                     std::to_string(theirs & 0xffff) + ", idd has " +
                                     std::to_string(shm::kAbiMajor) + "." +
                                     std::to_string(shm::kAbiMinor)};
  }
  connection.greeted = true;
  wire::HelloReply reply;
  reply.abi_version = shm::kAbiVersion;
  reply.daemon_id = daemon_id_;
  constexpr std::string_view kVersion = IDD_VERSION;
  std::copy_n(kVersion.begin(), std::min(kVersion.size(), sizeof(reply.daemon_version) - 1),
              reply.daemon_version);
  connection.Send(wire::BuildReply(FrameType::kHello, frame.header.request_id, reply));
  return Status::Ok();
}

Status Server::OnAttach(Connection& connection, const FrameView& frame) {
  const Result<wire::AttachRequest> request = wire::ParsePayload<wire::AttachRequest>(frame);
  if (!request.ok()) return request.status();
  const Result<std::string_view> tag = wire::UnpackTag(request.value().tag);
  if (!tag.ok()) return tag.status();
  if (Status status = CheckWait(request.value().timeout_ms, request.value().reserved); !status.ok())
    return status;
  if (connection.unanswered >= kMaxUnanswered) {
    Refuse(connection, frame, {Code::kUnavailable, kTooManyRequests});
    return Status::Ok();
  }
  const Result<TagRight> right = gate_.RightTo(connection.peer(), tag.value());
  if (!right.ok()) {
    Refuse(connection, frame, right.status());
    return Status::Ok();
  }
  ++connection.unanswered;
  const ClaimOrder order{.owner = connection.id(),
                         .request_id = frame.header.request_id,
                         .tag = std::string(tag.value()),
                         .deadline = Deadline::After(milliseconds(request.value().timeout_ms)),
                         .pace = std::nullopt};
  tags_.Attach(order.tag, {.owner = order.owner, .deadline = order.deadline},
               [this, order](const Result<AttachGrant>& grant) { ReplyAttach(order, grant); });
  return Status::Ok();
}

void Server::ReplyAttach(const ClaimOrder& order, const Result<AttachGrant>& grant) {
  Connection* connection = Find(order.owner);
  if (connection == nullptr) return;
  --connection->unanswered;
  wire::AttachReply reply;
  reply.abi_version = shm::kAbiVersion;
  // Looked at again: the rules may have changed while the request waited, and memory that was given
  // away is in use for as long as its holder likes.
  const Result<TagRight> right = gate_.RightTo(connection->peer(), order.tag);
  const Status status = grant.ok() && !right.ok() ? right.status() : grant.status();
  if (!status.ok()) {
    reply.status = static_cast<std::uint32_t>(status.code());
    connection->Send(
        wire::BuildReply(FrameType::kAttach, order.request_id, reply, status.message()));
    return;
  }
  if (grant.value().ring_id == 0 ||
      right.value().access < Access::kShm) {  // nothing to map: the ids are claimed by CLAIM
    connection->Send(wire::BuildReply(FrameType::kAttach, order.request_id, reply));
    return;
  }
  gate_.holders().Add({.tag = order.tag, .ring_id = grant.value().ring_id}, connection->peer());
  reply.ring_id = grant.value().ring_id;
  reply.table_bytes = shm::kTableBytes;
  reply.cursors_bytes = shm::kCursorsBytes;
  connection->Send(wire::BuildReply(FrameType::kAttach, order.request_id, reply),
                   {grant.value().table_fd, grant.value().cursors_fd});
}

Status Server::OnClaim(Connection& connection, const FrameView& frame) {
  const Result<wire::ClaimRequest> parsed = wire::ParsePayload<wire::ClaimRequest>(frame);
  if (!parsed.ok()) return parsed.status();
  const wire::ClaimRequest& request = parsed.value();
  const Result<std::string_view> tag = wire::UnpackTag(request.tag);
  if (!tag.ok()) return tag.status();
  if (request.count == 0) return {Code::kInvalid, "CLAIM with count 0"};
  if (Status status = CheckWait(request.timeout_ms, request.reserved); !status.ok()) return status;
  if (connection.unanswered >= kMaxUnanswered) {
    Refuse(connection, frame, {Code::kUnavailable, kTooManyRequests});
    return Status::Ok();
  }
  const Result<TagRight> right = gate_.RightTo(connection.peer(), tag.value());
  if (!right.ok()) {
    Refuse(connection, frame, right.status());
    return Status::Ok();
  }
  ++connection.unanswered;
  ClaimOrder order{.owner = connection.id(),
                   .request_id = frame.header.request_id,
                   .tag = std::string(tag.value()),
                   .ring_id = request.ring_id,
                   .count = request.count,
                   .deadline = Deadline::After(milliseconds(request.timeout_ms)),
                   .by_socket = right.value().access == Access::kSocket,
                   .pace = std::nullopt};
  if (right.value().ids_per_s.has_value()) {
    order.pace = {.uid = connection.peer().uid, .per_s = *right.value().ids_per_s};
    PaceClaim(std::move(order));
  } else {
    StartClaim(std::move(order));
  }
  return Status::Ok();
}

// Lets the claim through if its uid may have ids now, or keeps it until then or until its deadline.
void Server::PaceClaim(ClaimOrder order) {
  if (order.pace->is_taken) return StartClaim(std::move(order));
  const MonotonicTime now = MonotonicClock::now();
  const PeerLimits::IdTurn turn = gate_.limits().NextIds(order, now);
  const MonotonicTime deadline = order.deadline.at();
  if (turn.at > deadline) {
    if (!order.deadline.passed()) return pacer_.Add(deadline, std::move(order));
    return ReplyClaim(
        order, Status(Code::kTimeout, "uid " + std::to_string(order.pace->uid) + " may claim " +
                                          std::to_string(order.pace->per_s) +
                                          " ids a second of tag '" + order.tag + "', and has"));
  }
  order.count = turn.ids;
  gate_.limits().TakeIds(order, now);
  order.pace->is_taken = true;
  if (turn.at > now) return pacer_.Add(turn.at, std::move(order));
  StartClaim(std::move(order));
}

void Server::StartClaim(ClaimOrder order) {
  const std::string tag = order.tag;
  const std::uint64_t ring_id = order.ring_id;
  const std::uint64_t count = order.count;
  const RequestContext context{
      .owner = order.owner, .deadline = order.deadline, .by_socket = order.by_socket};
  tags_.Claim(tag, ring_id, count, context,
              [this, order = std::move(order)](const Result<ClaimGrant>& grant) {
                ReplyClaim(order, grant);
              });
}

void Server::ReplyClaim(const ClaimOrder& order, const Result<ClaimGrant>& grant) {
  const std::uint64_t granted = grant.ok() ? grant.value().ids.size() : 0;
  gate_.limits().GiveIdsBack(order, granted);
  const std::uint64_t request_id = order.request_id;
  Connection* connection = Find(order.owner);
  if (connection == nullptr) return;
  --connection->unanswered;
  wire::ClaimReply reply;
  if (!grant.ok()) {
    reply.status = static_cast<std::uint32_t>(grant.status().code());
    connection->Send(
        wire::BuildReply(FrameType::kClaim, request_id, reply, grant.status().message()));
    return;
  }
  // A peer that gets no ring is told to attach only while it still names one.
  const bool is_stale = order.by_socket ? order.ring_id != 0 : grant.value().attach_again;
  reply.attach_again = is_stale ? 1 : 0;
  reply.first = grant.value().ids.first;
  reply.count = grant.value().ids.size();
  const std::vector<std::byte> frame = wire::BuildReply(FrameType::kClaim, request_id, reply);
  if (grant.value().more_follow) {
    connection->SendWithNext(frame);
  } else {
    connection->Send(frame);
  }
}

Status Server::OnRefill(const Connection& connection, const FrameView& frame) {
  const Result<wire::RefillNotice> notice = wire::ParsePayload<wire::RefillNotice>(frame);
  if (!notice.ok()) return notice.status();
  const Result<std::string_view> tag = wire::UnpackTag(notice.value().tag);
  if (!tag.ok()) return tag.status();
  if (gate_.AccessTo(connection.peer(), tag.value()) < Access::kShm) return Status::Ok();
  tags_.Refill(std::string(tag.value()));
  return Status::Ok();
}

Status Server::OnAdmin(Connection& connection, const FrameView& frame) {
  if (connection.unanswered >= kMaxUnanswered) {
    return {Code::kInvalid, kTooManyRequests};
  }
  ++connection.unanswered;
  std::string text(frame.payload.size(), '\0');
  std::transform(frame.payload.begin(), frame.payload.end(), text.begin(),
                 [](std::byte byte) { return static_cast<char>(byte); });
  const std::uint64_t owner = connection.id();
  const std::uint64_t request_id = frame.header.request_id;
  admin_.Handle(text, gate_.RightsOf(connection.peer()),
                [this, owner, request_id](const Status& status, const std::string& document) {
                  ReplyAdmin(owner, request_id, status, document);
                });
  return Status::Ok();
}

void Server::ReplyAdmin(std::uint64_t owner, std::uint64_t request_id, const Status& status,
                        const std::string& document) {
  Connection* connection = Find(owner);
  if (connection == nullptr) return;
  --connection->unanswered;
  if (status.code() == Code::kDenied) LogDenied(connection->peer(), status);
  Result<ScopedFd> fd = MakeDocument(document);
  if (!fd.ok()) {
    connection->CloseWith(fd.status(), request_id);
    return;
  }
  wire::AdminReply reply;
  reply.status = static_cast<std::uint32_t>(status.code());
  reply.document_bytes = document.size();
  connection->Send(wire::BuildReply(FrameType::kAdmin, request_id, reply), {fd.value().get(), -1});
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// Server: the handlers of a connection's frames.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "idd/shm/abi.h"
#include "server/server.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;
using wire::FrameType;
using wire::FrameView;

constexpr const char* kTooManyRequests = "this connection has too many requests under way";

// Writing a longer document takes longer than a claim.
constexpr std::size_t kMaxWrittenOnTheLoop = 64UL * 1024;

// Puts the document into a memfd, so that it may have any length and needs no queue. The memfd is
// sealed, so that the document cannot change.
Result<ScopedFd> WriteDocument(const std::string& text) {
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
    case FrameType::kObserve:
      return OnObserve(connection, frame);
    case FrameType::kError:
      break;
  }
  return {Code::kInvalid, "unknown frame type " + std::to_string(frame.header.type)};
}

void Server::Refuse(Connection& connection, const FrameView& frame, const Status& status) {
  const std::uint64_t request_id = frame.header.request_id;
  const auto code = static_cast<std::uint32_t>(status.code());
  switch (static_cast<FrameType>(frame.header.type)) {
    case FrameType::kAttach:
    case FrameType::kObserve: {
      wire::AttachReply reply;
      reply.status = code;
      const auto type = static_cast<FrameType>(frame.header.type);
      connection.Send(wire::BuildReply(type, request_id, reply, status.message()));
      return;
    }
    case FrameType::kClaim: {
      wire::ClaimReply reply;
      reply.status = code;
      connection.Send(wire::BuildReply(FrameType::kClaim, request_id, reply, status.message()));
      return;
    }
    default:
      connection.CloseWith(status, request_id);
  }
}

Status Server::OnHello(Connection& connection, const FrameView& frame) {
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
  connection.abi_version = theirs;
  const auto& version = request.value().client_version;
  connection.client_version.assign(version, ::strnlen(version, sizeof(version)));
  ledger_.Greeted(connection.id(), connection.client_version, theirs);
  wire::HelloReply reply;
  reply.abi_version = shm::kAbiVersion;
  reply.daemon_id = daemon_id_;
  constexpr std::string_view kVersion = IDD_VERSION;
  std::copy_n(kVersion.begin(), std::min(kVersion.size(), sizeof(reply.daemon_version) - 1),
              reply.daemon_version);
  connection.Send(wire::BuildReply(FrameType::kHello, frame.header.request_id, reply));
  return Status::Ok();
}

Result<TagRight> Server::MayAsk(const Connection& connection, std::string_view tag) {
  if (connection.unanswered >= kMaxUnanswered) {
    gate_.NoteTooMany();
    return Status(Code::kUnavailable, kTooManyRequests);
  }
  return gate_.RightTo(connection.peer(), tag);
}

Status Server::OnAttach(Connection& connection, const FrameView& frame) {
  const Result<wire::AttachRequest> request = wire::ParsePayload<wire::AttachRequest>(frame);
  if (!request.ok()) return request.status();
  const Result<std::string_view> tag = wire::UnpackTag(request.value().tag);
  if (!tag.ok()) return tag.status();
  if (Status status = CheckWait(request.value().timeout_ms, request.value().reserved); !status.ok())
    return status;
  const Result<TagRight> right = MayAsk(connection, tag.value());
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
  // The right is checked again: the rules may have changed while the request waited, and memory
  // that was handed out stays in use for as long as its holder likes.
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
    connection->Send(
        wire::BuildReply(FrameType::kAttach, order.request_id, reply, grant.value().mode));
    return;
  }
  ledger_.Attached(order.owner, order.tag, MonotonicClock::now());
  gate_.holders().Add({.tag = order.tag, .ring_id = grant.value().ring_id}, connection->peer());
  reply.ring_id = grant.value().ring_id;
  reply.table_bytes = shm::kTableBytes;
  reply.cursors_bytes = grant.value().cursors_bytes;
  connection->Send(wire::BuildReply(FrameType::kAttach, order.request_id, reply),
                   {grant.value().table_fd, grant.value().cursors_fd});
}

// An observer does not count as a holder: it cannot write, so its ring need not be replaced when it
// may no longer observe. It can read what it has mapped for as long as the ring is in use.
Status Server::OnObserve(Connection& connection, const FrameView& frame) {
  const Result<wire::ObserveRequest> request = wire::ParsePayload<wire::ObserveRequest>(frame);
  if (!request.ok()) return request.status();
  const Result<std::string_view> tag = wire::UnpackTag(request.value().tag);
  if (!tag.ok()) return tag.status();
  const Result<TagRight> right = gate_.RightTo(connection.peer(), tag.value());
  if (!right.ok()) {
    Refuse(connection, frame, right.status());
    return Status::Ok();
  }
  Result<ObserveGrant> grant =
      right.value().access < Access::kShm ? ObserveGrant() : tags_.Observe(tag.value());
  if (!grant.ok()) {
    Refuse(connection, frame, grant.status());
    return Status::Ok();
  }
  wire::AttachReply reply;
  reply.abi_version = shm::kAbiVersion;
  reply.ring_id = grant.value().ring_id;
  if (reply.ring_id != 0) {
    reply.table_bytes = shm::kTableBytes;
    reply.cursors_bytes = grant.value().cursors_bytes;
  }
  connection.Send(wire::BuildReply(FrameType::kObserve, frame.header.request_id, reply),
                  {grant.value().table_fd, grant.value().cursors_fd.get()});
  return Status::Ok();
}

Status Server::OnClaim(Connection& connection, const FrameView& frame) {
  const Result<wire::ClaimRequest> parsed = wire::ParsePayload<wire::ClaimRequest>(frame);
  if (!parsed.ok()) return parsed.status();
  const wire::ClaimRequest& request = parsed.value();
  const Result<std::string_view> tag = wire::UnpackTag(request.tag);
  if (!tag.ok()) return tag.status();
  if (request.count == 0) return {Code::kInvalid, "CLAIM with count 0"};
  if (Status status = CheckWait(request.timeout_ms, request.reserved); !status.ok()) return status;
  const Result<TagRight> right = MayAsk(connection, tag.value());
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

// Starts the claim if its uid may have ids now; else keeps it until then or until its deadline.
void Server::PaceClaim(ClaimOrder order) {
  if (order.pace->is_taken) return StartClaim(std::move(order));
  const MonotonicTime now = MonotonicClock::now();
  const PeerLimits::IdTurn turn = gate_.limits().NextIds(order, now);
  const MonotonicTime deadline = order.deadline.at();
  if (turn.at > deadline) {
    if (!order.deadline.passed()) return pacer_.Add(deadline, std::move(order));
    return ReplyClaim(
        order,
        Status(Code::kTimeout, "uid " + std::to_string(order.pace->uid) + " may claim " +
                                   std::to_string(order.pace->per_s) + " ids a second of tag '" +
                                   order.tag + "', and has reached that limit"));
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
  if (grant.ok()) {
    ledger_.Claimed(order.owner, order.tag, granted, grant.value().has_waited ? 1 : 0);
  }
  wire::ClaimReply reply;
  if (!grant.ok()) {
    reply.status = static_cast<std::uint32_t>(grant.status().code());
    // During a stop, the client asks the next idd. Any other failure that a tag reports is final.
    reply.is_final = tags_.is_stopping() ? 0 : 1;
    connection->Send(
        wire::BuildReply(FrameType::kClaim, request_id, reply, grant.status().message()));
    return;
  }
  // A peer that gets no ring needs to attach again only while it still names one.
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
    gate_.NoteTooMany();
    return {Code::kInvalid, kTooManyRequests};
  }
  ++connection.unanswered;
  std::string text(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
  const std::uint64_t owner = connection.id();
  const std::uint64_t request_id = frame.header.request_id;
  admin_.Handle(std::move(text), gate_.RightsOf(connection.peer()),
                [this, owner, request_id](const Status& status, std::string document) {
                  ReplyAdmin(owner, request_id, status, std::move(document));
                });
  return Status::Ok();
}

Server::Document Server::MakeDocument(const std::string& text) {
  return {.bytes = text.size(), .fd = WriteDocument(text)};
}

// A long document is written by another thread, so a later reply may overtake it.
void Server::ReplyAdmin(std::uint64_t owner, std::uint64_t request_id, const Status& status,
                        std::string document) {
  if (document.size() <= kMaxWrittenOnTheLoop) {
    return SendDocument(owner, request_id, status, MakeDocument(document));
  }
  document_thread_.Post([this, owner, request_id, status, text = std::move(document)] {
    // Shared, as a task has to be copyable.
    loop_.Post([this, owner, request_id, status,
                made = std::make_shared<const Document>(MakeDocument(text))] {
      SendDocument(owner, request_id, status, *made);
    });
  });
}

void Server::SendDocument(std::uint64_t owner, std::uint64_t request_id, const Status& status,
                          const Document& document) {
  Connection* connection = Find(owner);
  if (connection == nullptr) return;
  --connection->unanswered;
  if (status.code() == Code::kDenied) gate_.NoteDeniedAdmin(connection->peer(), status);
  if (!document.fd.ok()) {
    connection->CloseWith(document.fd.status(), request_id);
    return;
  }
  wire::AdminReply reply;
  reply.status = static_cast<std::uint32_t>(status.code());
  reply.document_bytes = document.bytes;
  connection->Send(wire::BuildReply(FrameType::kAdmin, request_id, reply),
                   {document.fd.value().get(), -1});
}

}  // namespace idd::daemon

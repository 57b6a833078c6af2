// SPDX-License-Identifier: Apache-2.0
#include "client/admin_client.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "client/json_fields.h"
#include "idd/shm/abi.h"
#include "idd/wire/frames.h"

namespace idd::tools {
namespace {

// Maps a failed exchange to its meaning for a user of idctl: a daemon that does not answer is out
// of reach, and a frame that one side does not understand is a version mismatch.
Status ExchangeError(const Status& status) {
  switch (status.code()) {
    case Code::kTimeout:
      return Status(Code::kUnavailable, status.message());
    case Code::kInvalid:
      return Status(Code::kIncompatible, status.message());
    default:
      return status;
  }
}

Status Malformed(const std::string& what) {
  return Status(Code::kIncompatible, "the daemon's reply is malformed: " + what);
}

// The fixed part of a reply frame.
template <typename T>
Result<T> ReadReply(const wire::Message& message, wire::FrameType request, std::string* reason) {
  Result<wire::FrameView> frame = wire::ParseFrame(message.bytes);
  if (!frame.ok()) return Malformed(frame.status().message());
  Result<T> reply = wire::ParseReply<T>(frame.value(), request, reason);
  if (!reply.ok()) return Malformed(reply.status().message());
  return reply;
}

// The daemon's message for a refusal.
std::string RefusalText(const Result<JsonDocument>& document, Code code) {
  if (document.ok()) {
    Status error;
    std::string text = Fields(document.value().json(), "reply", &error).Text("error");
    if (error.ok()) return text;
  }
  return std::string("the daemon answers ") + CodeName(code) + " without a reason";
}

Result<JsonDocument> ReadDocument(const wire::Message& message, std::uint64_t document_bytes) {
  Result<std::string> text = ReadSealedDocument(message.fds[0].get(), document_bytes);
  if (!text.ok()) return text.status();
  return ParseDocument(text.value());
}

}  // namespace

Result<std::string> ReadSealedDocument(int fd, std::uint64_t document_bytes) {
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK;
  if (fd < 0) return Malformed("no document came with it");
  if (document_bytes == 0 || document_bytes > wire::kMaxAdminReplyBytes) {
    return Malformed("a document of " + std::to_string(document_bytes) + " bytes");
  }
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return Malformed("the document is not a memfd");
  if ((seals & kSeals) != kSeals) return Malformed("the document is not sealed");
  struct stat status {};
  if (::fstat(fd, &status) != 0) return Status::FromErrno(errno, "fstat of the document");
  if (std::cmp_less(status.st_size, document_bytes)) {
    return Malformed("the document has " + std::to_string(status.st_size) + " bytes of " +
                     std::to_string(document_bytes));
  }
  std::string text(static_cast<std::size_t>(document_bytes), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got =
        ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, "reading the document");
    if (got == 0) return Malformed("the document ends early");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

Result<AdminClient> AdminClient::Connect(const std::string& socket_path, Deadline deadline) {
  Result<wire::Channel> channel = wire::Channel::Connect(socket_path, deadline, std::nullopt);
  if (!channel.ok()) return ExchangeError(channel.status());
  AdminClient client(std::move(channel).value());
  if (Status status = client.Hello(deadline); !status.ok()) return status;
  return client;
}

Status AdminClient::Hello(Deadline deadline) {
  constexpr std::string_view kVersion = IDD_VERSION;
  wire::HelloRequest request;
  static_assert(kVersion.size() < sizeof(request.client_version));
  request.abi_version = shm::kAbiVersion;
  std::copy(kVersion.begin(), kVersion.end(), request.client_version);
  Result<wire::Message> message = channel_.Exchange(
      wire::BuildRequest(wire::FrameType::kHello, next_request_id_++, request), deadline);
  if (!message.ok()) return ExchangeError(message.status());
  std::string reason;
  Result<wire::HelloReply> reply =
      ReadReply<wire::HelloReply>(message.value(), wire::FrameType::kHello, &reason);
  if (!reply.ok()) return reply.status();
  const Code code = CodeFromNumber(reply.value().status);
  abi_version_ = reply.value().abi_version;
  if (code == Code::kOk) return Status::Ok();
  if (reason.empty()) reason = RefusalText(Status(code, ""), code);
  return Status(code, "the daemon refuses this idctl (" IDD_VERSION "): " + reason);
}

Result<JsonDocument> AdminClient::Request(const AdminRequest& request, Deadline deadline) {
  const std::string text = request.Text();
  if (text.size() > wire::kMaxAdminRequestBytes) {
    return Status(Code::kInvalid, "the request is longer than a frame; shorten its texts");
  }
  Result<wire::Message> message =
      channel_.Exchange(wire::BuildFrame(wire::FrameType::kAdmin, false, next_request_id_++,
                                         std::as_bytes(std::span(text))),
                        deadline);
  if (!message.ok()) return ExchangeError(message.status());
  std::string reason;
  Result<wire::AdminReply> reply =
      ReadReply<wire::AdminReply>(message.value(), wire::FrameType::kAdmin, &reason);
  if (!reply.ok()) return reply.status();
  const Code code = CodeFromNumber(reply.value().status);
  Result<JsonDocument> document = ReadDocument(message.value(), reply.value().document_bytes);
  if (code == Code::kOk) return document;
  return Status(code, reason.empty() ? RefusalText(document, code) : reason);
}

Result<std::optional<shm::RingObserver>> AdminClient::Observe(const std::string& tag,
                                                              Deadline deadline) {
  constexpr std::uint32_t kSinceMinor = 2;
  std::optional<shm::RingObserver> none;
  if (!wire::CheckTagName(tag).ok() || (abi_version_ & 0xffffU) < kSinceMinor) return none;
  const wire::ObserveRequest request{.tag = wire::PackTag(tag)};
  Result<wire::Message> message = channel_.Exchange(
      wire::BuildRequest(wire::FrameType::kObserve, next_request_id_++, request), deadline);
  if (!message.ok()) return ExchangeError(message.status());
  std::string reason;
  const Result<wire::AttachReply> reply =
      ReadReply<wire::AttachReply>(message.value(), wire::FrameType::kObserve, &reason);
  if (!reply.ok()) return reply.status();
  if (reply.value().status != 0) {
    // Not kUnavailable, which would mean that idd is out of reach.
    return Status(Code::kSystem, "the daemon gives no ring to look at: " + reason);
  }
  if (reply.value().ring_id == 0) return none;
  Result<shm::RingObserver> observer =
      shm::RingObserver::Attach(message.value().fds[0], message.value().fds[1], tag);
  if (!observer.ok()) return observer.status();
  if (observer.value().ring_id() != reply.value().ring_id) {
    return Malformed("its ring has another id than it states");
  }
  return std::optional<shm::RingObserver>(std::move(observer).value());
}

}  // namespace idd::tools

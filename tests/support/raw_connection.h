// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_SUPPORT_RAW_CONNECTION_H_
#define IDD_TESTS_SUPPORT_RAW_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "idd/wire/frames.h"

namespace idd::harness {

using Bytes = std::vector<std::byte>;

// A frame as docs/socket-protocol.md has it, put together without the code under test. Its header
// is right; a test may spoil it afterwards.
[[nodiscard]] Bytes MakeFrame(wire::FrameType type, std::uint64_t request_id,
                              std::span<const std::byte> payload);
template <typename T>
[[nodiscard]] Bytes MakeRequest(wire::FrameType type, std::uint64_t request_id, const T& payload) {
  return MakeFrame(type, request_id, std::as_bytes(std::span(&payload, 1)));
}
[[nodiscard]] wire::TagName MakeTag(const std::string& tag);
[[nodiscard]] Bytes MakeHello();
[[nodiscard]] Bytes MakeClaim(const std::string& tag, std::uint64_t request_id, std::uint64_t count,
                              std::uint32_t timeout_ms);
[[nodiscard]] Bytes MakeAttach(const std::string& tag, std::uint64_t request_id);

// A received frame; descriptors beside it were closed.
struct Reply {
  wire::FrameHeader header;
  Bytes payload;

  // The fixed part of the payload; throws HarnessError when it is shorter.
  template <typename T>
  [[nodiscard]] T As() const {
    T value;
    CopyPayload(&value, sizeof value);
    return value;
  }
  // What is behind the fixed part.
  template <typename T>
  [[nodiscard]] std::string Reason() const {
    return TextFrom(sizeof(T));
  }

 private:
  void CopyPayload(void* out, std::size_t bytes) const;
  [[nodiscard]] std::string TextFrom(std::size_t offset) const;
};

// A SEQPACKET connection that sends whatever it is told.
class RawConnection {
 public:
  // Throws HarnessError when nobody listens.
  explicit RawConnection(const std::string& path);

  // Nothing when the connection cannot be made at once: nobody listens, or the backlog is full.
  [[nodiscard]] static std::optional<RawConnection> TryConnect(const std::string& path);
  // Connects, says HELLO and has an answer with status 0 within a second.
  [[nodiscard]] static bool AnswersHello(const std::string& path);

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Does not wait: false when the peer has closed, or when its queue is full (errno is EAGAIN
  // then).
  bool Send(std::span<const std::byte> message);
  // Waits for room in the peer's queue; false when the peer has closed or the time is up.
  [[nodiscard]] bool SendWithin(std::chrono::milliseconds timeout,
                                std::span<const std::byte> message);
  // The next frame, of a message that may hold several; nothing when the peer closed or the time is
  // up.
  [[nodiscard]] std::optional<Reply> Receive(std::chrono::milliseconds timeout);
  // Received so far.
  [[nodiscard]] int messages() const noexcept { return messages_; }
  // Reads on until the peer closes; false when it has not by then.
  [[nodiscard]] bool WaitClosed(std::chrono::milliseconds timeout);
  // HELLO, and throws HarnessError unless it is answered with status 0.
  void Hello();

 private:
  explicit RawConnection(ScopedFd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] Reply TakeFrame();

  ScopedFd fd_;
  Bytes rest_;  // of the last message
  int messages_ = 0;
  bool closed_ = false;
};

// Somebody who listens there, with a short backlog; `type`: SOCK_SEQPACKET or SOCK_STREAM.
[[nodiscard]] ScopedFd ListenAt(const std::string& path, int type);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_RAW_CONNECTION_H_

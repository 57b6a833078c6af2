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

// A frame as docs/socket-protocol.md defines it, built without the code under test. Its header is
// valid; a test may corrupt it afterwards.
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

// A received frame; descriptors that came with it were closed.
struct Reply {
  wire::FrameHeader header;
  Bytes payload;

  // The fixed part of the payload; throws HarnessError if the payload is shorter.
  template <typename T>
  [[nodiscard]] T As() const {
    T value;
    CopyPayload(&value, sizeof value);
    return value;
  }
  // The payload after the fixed part.
  template <typename T>
  [[nodiscard]] std::string Reason() const {
    return TextFrom(sizeof(T));
  }

 private:
  void CopyPayload(void* out, std::size_t bytes) const;
  [[nodiscard]] std::string TextFrom(std::size_t offset) const;
};

// A SEQPACKET connection that sends arbitrary bytes.
class RawConnection {
 public:
  // Throws HarnessError if no process listens.
  explicit RawConnection(const std::string& path);

  // Nothing if the connection cannot be made at once: no process listens, or the backlog is full.
  [[nodiscard]] static std::optional<RawConnection> TryConnect(const std::string& path);
  // Connects, sends HELLO and gets an answer with status 0 within a second.
  [[nodiscard]] static bool AnswersHello(const std::string& path);

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Does not wait: false if the peer has closed, or if its queue is full (then errno is EAGAIN).
  bool Send(std::span<const std::byte> message);
  // Waits for room in the peer's queue; false if the peer has closed or at the timeout.
  [[nodiscard]] bool SendWithin(std::chrono::milliseconds timeout,
                                std::span<const std::byte> message);
  // The next frame; a message may hold several. Nothing if the peer has closed or at the timeout.
  [[nodiscard]] std::optional<Reply> Receive(std::chrono::milliseconds timeout);
  // The number received so far.
  [[nodiscard]] int messages() const noexcept { return messages_; }
  // Reads until the peer closes; false at the timeout.
  [[nodiscard]] bool WaitClosed(std::chrono::milliseconds timeout);
  // Sends HELLO; throws HarnessError unless the answer has status 0.
  void Hello();

 private:
  explicit RawConnection(ScopedFd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] Reply TakeFrame();

  ScopedFd fd_;
  Bytes rest_;  // of the last message
  int messages_ = 0;
  bool closed_ = false;
};

// Listens at `path` with a short backlog; `type`: SOCK_SEQPACKET or SOCK_STREAM.
[[nodiscard]] ScopedFd ListenAt(const std::string& path, int type);

}  // namespace idd::harness

#endif  // IDD_TESTS_SUPPORT_RAW_CONNECTION_H_

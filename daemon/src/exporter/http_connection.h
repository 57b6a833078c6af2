// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_EXPORTER_HTTP_CONNECTION_H_
#define IDD_DAEMON_EXPORTER_HTTP_CONNECTION_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"

namespace idd::daemon {

// One scraper's connection: a request is read, a reply is written, and the connection ends. It
// never waits for its peer; the owner polls for events() and drops it when it is over or overdue.
//
// Thread safety: none.
class HttpConnection {
 public:
  using Page = std::shared_ptr<const std::string>;
  enum class State {
    kReads,   // the request
    kWaits,   // for ReplyPage() or ReplyError()
    kWrites,  // the reply
    kEnds,    // until the peer has read the reply
    kOver
  };

  explicit HttpConnection(ScopedFd fd);

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] State state() const noexcept { return state_; }
  // What to poll for.
  [[nodiscard]] short events() const noexcept;
  // When the present state has lasted too long.
  [[nodiscard]] MonotonicTime until() const noexcept { return until_; }

  // Reads or writes what is possible now, after a poll() that returned `events`.
  void GoOn(short events);
  // Precondition: the state is kReads or kWaits. `status` is as "404 Not Found".
  void ReplyPage(Page page);
  void ReplyError(std::string_view status, std::string_view reason);

 private:
  void Read();
  void Write();
  void ReadToEnd();
  // Of a whole request.
  void TakeRequest();
  void Reply(std::string_view status, Page page);
  void Enter(State state);
  // True when all of `text` is sent. `sent_` counts on from `before`, the bytes ahead of it.
  [[nodiscard]] bool Send(std::string_view text, std::size_t before);

  ScopedFd fd_;
  State state_ = State::kReads;
  MonotonicTime until_{};
  std::string request_;
  bool wants_body_ = true;
  std::string head_;
  Page page_;
  std::size_t sent_ = 0;  // of both
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_EXPORTER_HTTP_CONNECTION_H_

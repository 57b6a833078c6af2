// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_SERVER_LISTENER_H_
#define IDD_DAEMON_SERVER_LISTENER_H_

#include <sys/stat.h>

#include <functional>
#include <string>
#include <utility>

#include "idd/base/scoped_fd.h"
#include "idd/base/status.h"
#include "platform/event_loop.h"
#include "platform/state_dir.h"

namespace idd::daemon {

// The listening socket: binds it, or takes the service manager's, and accepts connections. It does
// not know frames.
//
// Thread safety: none; event loop.
class Listener {
 public:
  using OnAccepted = std::function<void(ScopedFd socket)>;
  // Called when the process is out of descriptors: closes a connection. False: there is none to
  // close.
  using MakeRoom = std::function<bool()>;

  Listener(EventLoop& loop, OnAccepted on_accepted, MakeRoom make_room)
      : on_accepted_(std::move(on_accepted)),
        make_room_(std::move(make_room)),
        watch_(loop),
        pause_(loop) {}
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Takes the lock that keeps a second idd from `path`. It is taken before the store is touched, so
  // that the idd that does not get it has changed nothing. kUnavailable names the holder.
  [[nodiscard]] static Result<FileLock> LockPath(const std::string& path);
  // kUnavailable if there is anything but a socket at `path`, as in Listen(). Changes nothing.
  [[nodiscard]] static Status CheckPath(const std::string& path);
  // Whether a descriptor is a listening socket of the kind that clients connect to; and whether it
  // listens at `path`.
  [[nodiscard]] static bool IsListener(int fd);
  [[nodiscard]] static bool ListensAt(int fd, const std::string& path);

  // Binds and listens. Precondition: LockPath(path) is held. Replaces a stale socket file, but
  // never a live one or another kind of file: kUnavailable. kInvalid (path), kSystem. A `passed`
  // socket already listens at `path`, and the process that passed it removes the file: then nothing
  // is bound or replaced.
  [[nodiscard]] Status Listen(const std::string& path, ScopedFd passed);
  // Accepts no more and removes the socket file if it is still ours.
  void Stop();

 private:
  [[nodiscard]] Result<ScopedFd> Bind(const std::string& path);
  void WaitAcceptable();
  void OnAcceptable();

  const OnAccepted on_accepted_;
  const MakeRoom make_room_;
  std::string path_;      // the socket file, if we made it
  struct stat bound_ {};  // its identity
  DescriptorWatch watch_;
  Timer pause_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SERVER_LISTENER_H_

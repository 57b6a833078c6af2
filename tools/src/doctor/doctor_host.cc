// SPDX-License-Identifier: Apache-2.0
#include "doctor/doctor_host.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>
#include <utility>

#include "idd/base/clock.h"
#include "idd/base/scoped_fd.h"
#include "idd/wire/channel.h"
#include "terminal/output.h"

namespace idd::tools {
namespace {

constexpr std::chrono::seconds kManagerPatience(1);
constexpr std::size_t kLongestState = 64;

std::string ErrorText(int error) { return std::generic_category().message(error); }

// Reads until the other end closes or the deadline passes.
std::string ReadUntil(int fd, Deadline deadline) {
  std::string text;
  while (text.size() < kLongestState) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(deadline.remaining().count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return "";
    std::array<char, kLongestState> part{};
    const ssize_t got = ::read(fd, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

// Starts the program with its output in a pipe; -1 if it does not start.
pid_t Spawn(const std::string& program, std::vector<std::string> arguments, int out) {
  posix_spawn_file_actions_t actions{};
  if (::posix_spawn_file_actions_init(&actions) != 0) return -1;
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

void EndAndReap(pid_t pid) {
  ::kill(pid, SIGKILL);  // not reaped yet, so the pid is still ours
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Finding NobodyListens(const NoAnswer& failed) {
  const bool is_left = failed.listener.error == ECONNREFUSED;
  if (is_left && !S_ISSOCK(failed.socket.mode)) {
    return {"daemon", Health::kProblem,
            Quote(failed.socket.path) + " is not a socket, so idd does not listen there" +
                ServiceText(failed.service),
            "name idd's socket with --socket or IDD_SOCKET (/run/idd/idd.sock)"};
  }
  return {"daemon", Health::kProblem,
          (is_left ? "no process listens at " + Quote(failed.socket.path) +
                         ": the file was left by an idd that has ended"
                   : "no idd runs with this socket") +
              ServiceText(failed.service),
          "systemctl start idd, and journalctl -u idd says why it ended; or name its socket with "
          "--socket"};
}

Finding NotLetIn(const NoAnswer& failed) {
  if (failed.listener.error == EACCES || failed.listener.error == EPERM) {
    return {"daemon", Health::kProblem, failed.status.message(),
            "give this user the group of the socket's folder (usermod -aG idd USER, then log in "
            "again), or open the folder: chmod 0755"};
  }
  return {"daemon", Health::kProblem, failed.status.message(),
          "ask root for an [[access]] rule in idd.toml; if another process listens there, end it "
          "and then systemctl restart idd"};
}

}  // namespace

std::string ServiceText(const std::optional<std::string>& service) {
  return service ? "; systemd says idd.service is " + *service : "";
}

FileProbe ProbeFile(const std::string& path) {
  FileProbe look;
  look.path = path;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    look.error = errno;
    return look;
  }
  look.owner = info.st_uid;
  look.mode = info.st_mode;
  look.may_write = ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
  return look;
}

ListenerProbe ProbeListener(const std::string& path) {
  ListenerProbe look;
  look.error = ENAMETOOLONG;
  const Result<sockaddr_un> address = wire::SocketAddress(path);
  if (!address.ok()) return look;
  const ScopedFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool is_connected =
      fd.valid() && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.value()),
                              sizeof(sockaddr_un)) == 0;
  look.error = is_connected ? 0 : errno;
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (is_connected && ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) {
    look.pid = peer.pid;
    look.uid = peer.uid;
  }
  return look;
}

std::optional<std::string> AskServiceManager(const std::string& runtime_dir,
                                             const std::string& systemctl) {
  struct stat info {};
  if (::stat(runtime_dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return std::nullopt;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const ScopedFd reader(ends[0]);
  ScopedFd writer(ends[1]);
  const pid_t pid = Spawn(systemctl, {systemctl, "is-active", "idd.service"}, writer.get());
  if (pid < 0) return std::nullopt;
  writer.reset();
  std::string state = ReadUntil(reader.get(), Deadline::After(kManagerPatience));
  EndAndReap(pid);
  state = state.substr(0, state.find_first_of("\r\n"));
  const bool is_short = !state.empty() && state.size() < kLongestState;
  const bool is_word = is_short && std::all_of(state.begin(), state.end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || c == '-';
                       });
  if (!is_word) return std::nullopt;
  return state;
}

Finding CheckSocket(const FileProbe& socket, const FileProbe& folder, uid_t uid) {
  const std::string path = Quote(socket.path);
  const auto problem = [](std::string found, std::string next) {
    return Finding{"socket", Health::kProblem, std::move(found), std::move(next)};
  };
  if (socket.error == ENOENT || socket.error == ENOTDIR) {
    return problem("there is no " + path,
                   "start idd (systemctl status idd shows its state), or name its socket with "
                   "--socket or IDD_SOCKET");
  }
  if (socket.error != 0) {
    return problem(path + " cannot be examined: " + ErrorText(socket.error),
                   "let this user into the folder: usermod -aG idd USER and log in again, or chmod "
                   "0755 of " +
                       ShellWord(folder.path));
  }
  if (!S_ISSOCK(socket.mode)) {
    return problem(path + " is not a socket",
                   "name idd's socket with --socket or IDD_SOCKET; if this is its path, move the "
                   "file elsewhere and start idd");
  }
  constexpr mode_t kOthersWrite = S_IWOTH;
  const bool is_open =
      folder.error == 0 && (folder.mode & kOthersWrite) != 0 && (folder.mode & S_ISVTX) == 0;
  if (is_open) {
    return problem("any user can put another socket in the place of " + path,
                   "chmod 0755 " + ShellWord(folder.path));
  }
  if (!socket.may_write) {
    return problem("this user (uid " + std::to_string(uid) + ") may not connect to " + path,
                   "systemctl restart idd, which gives it mode 0666; [[access]] in idd.toml says "
                   "who may do what");
  }
  return {"socket", Health::kOk, path + " of uid " + std::to_string(socket.owner), ""};
}

Finding ExplainNoAnswer(const NoAnswer& failed) {
  const Code code = failed.status.code();
  const int error = failed.listener.error;
  if (code == Code::kDenied) return NotLetIn(failed);
  if (code == Code::kIncompatible) {
    return {"versions", Health::kProblem, failed.status.message(),
            "upgrade the older of idctl and idd, and systemctl restart idd"};
  }
  if (code != Code::kUnavailable) {
    return {"daemon", Health::kProblem, failed.status.message(),
            "see the log of idd and this host's limits"};
  }
  if (error == ECONNREFUSED || error == ENOENT || error == ENOTDIR) return NobodyListens(failed);
  if (error != 0 && error != EAGAIN) {
    return {"daemon", Health::kProblem, failed.status.message() + ServiceText(failed.service),
            "systemctl status idd"};
  }
  constexpr const char* kMeanwhile =
      ", then systemctl restart idd; programs go on claiming from memory meanwhile";
  // systemd listens for idd, so the socket's listener is not the process that has to answer.
  if (failed.listener.pid == 1 && failed.service.has_value()) {
    return {"daemon", Health::kProblem,
            "systemd listens at the socket, and idd does not answer: " + failed.status.message() +
                ServiceText(failed.service),
            std::string("journalctl -u idd: does it start, is it out of descriptors "
                        "(LimitNOFILE=), is it stopped, or does it hang?") +
                kMeanwhile};
  }
  const std::string who =
      failed.listener.pid > 0 ? " (pid " + std::to_string(failed.listener.pid) + ")" : "";
  return {
      "daemon", Health::kProblem,
      "idd" + who + " does not answer: " + failed.status.message() + ServiceText(failed.service),
      std::string("is it stopped, or does it hang? journalctl -u idd") + kMeanwhile};
}

}  // namespace idd::tools

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_UNIT_SUPPORT_CLIENT_FIXTURE_H_
#define IDD_TESTS_UNIT_SUPPORT_CLIENT_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client.h"
#include "connection.h"
#include "fake_daemon.h"
#include "idd/shm/ring_memory.h"
#include "idd/shm/ring_writer.h"
#include "support/temp_dir.h"
#include "tag.h"

namespace idd::client {

using idd::harness::TempDir;
using idd::shm::IdRange;
using idd::shm::RingMemory;
using idd::shm::RingWriter;
using idd::testing_support::FakeDaemon;
using idd::testing_support::ListenAt;
using idd::testing_support::Request;
using idd::wire::FrameType;
using idd::wire::Message;
using std::chrono::milliseconds;

inline Deadline Soon() { return Deadline::After(milliseconds(40)); }
// Whatever must not wait for it ends before kOnlyByADefect.
inline Deadline Later() { return Deadline::After(std::chrono::minutes(1)); }
inline constexpr std::chrono::seconds kOnlyByADefect(30);

// A call whose reply is recognisable: ring_id comes back in `first`.
inline Connection::RequestBuilder ClaimOf(std::uint64_t number) {
  return [number](std::uint64_t id) {
    wire::ClaimRequest request;
    request.tag = wire::PackTag("orders");
    request.ring_id = number;
    request.count = 1;
    return wire::BuildRequest(FrameType::kClaim, id, request);
  };
}
inline std::uint64_t FirstOf(const Result<Message>& message) {
  if (!message.ok()) return 0;
  const auto frame = wire::ParseFrame(message.value().bytes);
  std::string reason;
  return wire::ParseReply<wire::ClaimReply>(frame.value(), FrameType::kClaim, &reason)
      .value()
      .first;
}
inline void Echo(FakeDaemon& daemon, const Request& request) {
  daemon.Reply(request,
               wire::ClaimReply{.first = request.As<wire::ClaimRequest>().ring_id, .count = 1});
}

// The daemon's side of one ring.
struct DaemonRing {
  explicit DaemonRing(std::uint64_t ring_id, const std::string& tag = "orders")
      : memory(std::move(RingMemory::Create({.tag = tag, .ring_id = ring_id})).value()),
        writer(memory->writable_table(), memory->cursors()) {}
  [[nodiscard]] std::vector<int> fds() const { return {memory->table_fd(), memory->cursors_fd()}; }
  void Grant(FakeDaemon& daemon, const Request& request) const {
    wire::AttachReply reply;
    reply.abi_version = shm::kAbiVersion;
    reply.ring_id = memory->ring_id();
    reply.table_bytes = shm::kTableBytes;
    reply.cursors_bytes = shm::kCursorsBytes;
    daemon.Reply(request, reply, {}, fds());
  }

  std::unique_ptr<RingMemory> memory;
  RingWriter writer;
};

// The handler of a daemon that attaches its clients to the ring, and leaves CLAIM to the test, or
// answers it with `reply`.
inline FakeDaemon::Handler Granting(const DaemonRing& ring,
                                    const std::optional<wire::ClaimReply>& reply = std::nullopt) {
  return [&ring, reply](FakeDaemon& self, const Request& request) {
    if (request.type() == FrameType::kAttach) ring.Grant(self, request);
    if (request.type() == FrameType::kClaim && reply.has_value()) {
      self.Reply(request, *reply, "as told");
    }
    return request.type() == FrameType::kAttach ||
           (reply.has_value() && request.type() != FrameType::kHello);
  };
}

// The number of rings that this process has mapped.
inline int MappedRings() {
  std::ifstream maps("/proc/self/maps");
  int rings = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:idd-cursors") != std::string::npos) ++rings;
  }
  return rings;
}

// Waits until the thread sleeps in the kernel.
inline void AwaitSleep(pid_t tid) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/stat";
  for (char state = 'R'; state != 'S';) {
    std::ifstream stat(path);
    std::string text;
    std::getline(stat, text);
    state = text.at(text.rfind(')') + 2);
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// This process's descriptor that is connected to the listener at `path`.
inline int SocketOfPeer(const std::string& path) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_un peer{};
    socklen_t bytes = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0 &&
        peer.sun_family == AF_UNIX && bytes > sizeof(sa_family_t) && path == peer.sun_path) {
      return fd;
    }
  }
  return -1;
}

class ConnectionTest : public ::testing::Test {
 protected:
  TempDir dir_;
  const std::string path_ = dir_.File("idd.sock");
};

class ClientTest : public ConnectionTest {
 protected:
  std::unique_ptr<Client> Open(milliseconds timeout = std::chrono::minutes(1)) {
    auto client = Client::Open({.socket_path = path_,
                                .timeout = timeout,
                                .trusted_uid = {},
                                .opens_once = false,
                                .log = {}});
    EXPECT_TRUE(client.ok()) << client.status().message();
    return std::move(client).value();
  }
  static Result<IdRange> Claim(Tag& tag, std::uint64_t count = 1) {
    std::optional<Deadline> deadline;
    return tag.Claim(count, deadline);
  }
  // Attaches to the ring that `grant` hands out.
  Status AttachTo(const std::function<void(FakeDaemon&, const Request&)>& grant) {
    FakeDaemon daemon(path_, [&](FakeDaemon& self, const Request& request) {
      if (request.type() != FrameType::kAttach) return false;
      grant(self, request);
      return true;
    });
    return Open()->OpenTag("orders").status();
  }
  // Opens a tag whose ring is dry, and claims `count` ids, which the daemon answers with `reply`.
  Result<IdRange> ClaimAnsweredBy(wire::ClaimReply reply, std::uint64_t count = 10) {
    const DaemonRing ring(1);
    FakeDaemon daemon(path_, Granting(ring, reply));
    const std::unique_ptr<Client> client = Open();
    return Claim(*client->OpenTag("orders").value(), count);
  }
};

}  // namespace idd::client

#endif  // IDD_TESTS_UNIT_SUPPORT_CLIENT_FIXTURE_H_

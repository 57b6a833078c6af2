// SPDX-License-Identifier: Apache-2.0
//
// socket_benchmark [--same-processor]: the time of the slow operations. A claim over the socket
// (from a tag with access=socket, so that every claim goes there) beside a bare blocking ping-pong
// of frames of the same sizes between two processes; and idclient_open with idclient_tag_open of a
// published tag. The three take turns. The peers, idd and the ping-pong process, run on one other
// processor than the caller, or with --same-processor on the caller's own.
//
// Prints JSON: {"ping_pong": percentiles, "fallback": ..., "open": ...}, in ns.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "idclient/idclient.h"
#include "idclient/idclient.hpp"
#include "idd/wire/frames.h"
#include "processors.h"
#include "report.h"
#include "samples.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr std::size_t kRequestBytes = sizeof(wire::FrameHeader) + sizeof(wire::ClaimRequest);
constexpr std::size_t kReplyBytes = sizeof(wire::FrameHeader) + sizeof(wire::ClaimReply);
constexpr int kTurns = 20;
constexpr int kRoundTripsOfTurn = 1'000;
constexpr int kOpensOfTurn = 50;

// A process that answers each request with a reply and does nothing else.
class PingPong {
 public:
  explicit PingPong(unsigned peer_processor) {
    std::array<int, 2> ends{};
    RequireErrno(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0,
                 "socketpair");
    const pid_t parent = ::getpid();
    child_ = ::fork();
    RequireErrno(child_ >= 0, "fork");
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::close(ends[0]);
      PinThread(0, peer_processor);
      std::array<char, kRequestBytes> request{};
      const std::array<char, kReplyBytes> reply{};
      while (::recv(ends[1], request.data(), request.size(), 0) > 0) {
        if (::send(ends[1], reply.data(), reply.size(), MSG_NOSIGNAL) < 0) break;
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    end_ = ends[0];
  }
  ~PingPong() {
    ::close(end_);
    ::waitpid(child_, nullptr, 0);
  }
  PingPong(const PingPong&) = delete;
  PingPong& operator=(const PingPong&) = delete;

  void RoundTrip() const {
    const std::array<char, kRequestBytes> request{};
    std::array<char, kReplyBytes> reply{};
    RequireErrno(::send(end_, request.data(), request.size(), MSG_NOSIGNAL) > 0, "send");
    RequireErrno(::recv(end_, reply.data(), reply.size(), 0) > 0, "recv");
  }

 private:
  pid_t child_ = -1;
  int end_ = -1;
};

class Benchmark {
 public:
  explicit Benchmark(unsigned peer_processor) : host_(dir_) {
    host_.daemon.Start();
    host_.idctl.Do({"tag", "create", "by-socket", "--step", "1000000000", "--access", "socket"});
    host_.idctl.CreateTag("by-ring", 1'000'000);
    options_.socket_path = host_.daemon.socket();
    client_.emplace(options_);
    static_cast<void>(client_->tag("by-ring").claim());
    ping_pong_.emplace(peer_processor);
    PinThread(0, 0);
    PinProcess(host_.daemon.pid(), peer_processor);
  }

  [[nodiscard]] nlohmann::json Run() {
    const TickClock clock;
    idclient_tag* const tag = client_->tag("by-socket").get();
    std::uint64_t id = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int i = 0; i < kRoundTripsOfTurn; ++i) {
        Time(ping_pong_ticks_, [this] { ping_pong_->RoundTrip(); });
      }
      for (int i = 0; i < kRoundTripsOfTurn; ++i) {
        Time(fallback_ticks_, [&] { Succeed(idclient_claim(tag, &id)); });
      }
      for (int i = 0; i < kOpensOfTurn; ++i) OpenAndClose();
    }
    const double ns = clock.NsPerTick();
    return {{"ping_pong", PercentilesNs(ping_pong_ticks_, ns)},
            {"fallback", PercentilesNs(fallback_ticks_, ns)},
            {"open", PercentilesNs(open_ticks_, ns)}};
  }

 private:
  template <typename Operation>
  static void Time(tools::LatencyHistogram& ticks, Operation operation) {
    const std::uint64_t before = TickClock::Now();
    operation();
    ticks.Add(TickClock::Now() - before);
  }

  static void Succeed(idclient_status status) {
    Require(status == IDCLIENT_OK, idclient_last_error());
  }

  void OpenAndClose() {
    idclient_options options = IDCLIENT_OPTIONS_INIT;
    options.socket_path = options_.socket_path.c_str();
    idclient_client* client = nullptr;
    idclient_tag* tag = nullptr;
    Time(open_ticks_, [&] {
      Succeed(idclient_open(&options, &client));
      Succeed(idclient_tag_open(client, "by-ring", &tag));
    });
    std::uint64_t id = 0;
    Succeed(idclient_claim(tag, &id));
    idclient_close(client);
  }

  TempDir dir_;
  Host host_;
  idclient::Options options_;
  std::optional<idclient::Client> client_;
  std::optional<PingPong> ping_pong_;
  tools::LatencyHistogram ping_pong_ticks_;
  tools::LatencyHistogram fallback_ticks_;
  tools::LatencyHistogram open_ticks_;
};

}  // namespace
}  // namespace idd::harness

int main(int argc, char** argv) {
  const bool on_one_processor = argc == 2 && std::strcmp(argv[1], "--same-processor") == 0;
  if (argc > 1 && !on_one_processor) {
    std::fputs("usage: socket_benchmark [--same-processor]\n", stderr);
    return 2;
  }
  const bool has_two = std::thread::hardware_concurrency() > 1;
  return idd::bench::PrintReport<idd::harness::Benchmark>("socket_benchmark",
                                                          on_one_processor || !has_two ? 0U : 1U);
}

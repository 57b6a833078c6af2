// SPDX-License-Identifier: Apache-2.0
//
// attack_benchmark [rounds]: how long a user's claims over the socket take while another user of
// the host attacks. In each round, for each attack: without the attack, under it, and while the
// same attack goes to another idd of the same machine. The last is the floor: what the attack costs
// because the machine has only so many processors.
//
// Needs root, to act as two users. Prints JSON: {attack: [{"quiet": percentiles, "attacked": ...,
// "elsewhere": ...}]}, in ns.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idd/wire/frames.h"
#include "report.h"
#include "samples.h"
#include "support/host.h"
#include "support/identity.h"
#include "support/raw_connection.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr Identity kAttacker{.uid = 12345, .gid = 12345, .groups = {}};
constexpr Identity kVictim{.uid = 12346, .gid = 12346, .groups = {}};
constexpr int kClaims = 5'000;
constexpr std::size_t kManyConnections = 900;

std::optional<RawConnection> Connect(const std::string& socket) {
  std::optional<RawConnection> connection = RawConnection::TryConnect(socket);
  if (!connection.has_value()) std::this_thread::sleep_for(1ms);  // the backlog is full
  return connection;
}

// Random bytes, and frames that are valid except for some random bytes. Most end their connection,
// which is then made again.
void SendRandomFrames(const std::string& socket) {
  std::mt19937_64 random(1);
  const std::vector<Bytes> models = {
      MakeHello(), MakeClaim("theirs", 1, 1, 1), MakeAttach("theirs", 2),
      MakeFrame(wire::FrameType::kAdmin, 3, Bytes(40, std::byte{'{'}))};
  std::optional<RawConnection> connection;
  while (true) {
    if (!connection.has_value()) {
      connection = Connect(socket);
      if (!connection.has_value()) continue;
      if (random() % 2 == 0) static_cast<void>(connection->SendWithin(1s, MakeHello()));
    }
    Bytes frame(random() % 600);
    if (random() % 2 == 0) frame = models[random() % models.size()];
    const std::size_t changes = random() % 2 == 0 ? frame.size() : 1 + random() % 4;
    for (std::size_t i = 0; i < changes && !frame.empty(); ++i) {
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    }
    if (!connection->SendWithin(1s, frame) || random() % 8 == 0) connection.reset();
  }
}

// A connection that is closed for its unread replies is made again.
void SendAndDoNotRead(const std::string& socket, std::size_t connections, const Bytes& frame) {
  std::vector<std::optional<RawConnection>> peers(connections);
  while (true) {
    bool has_sent = false;
    for (std::optional<RawConnection>& peer : peers) {
      if (!peer.has_value()) {
        peer = Connect(socket);
        if (!peer.has_value() || !peer->SendWithin(1s, MakeHello())) continue;
      }
      if (peer->Send(frame)) {
        has_sent = true;
      } else if (errno != EAGAIN) {
        peer.reset();
      }
    }
    if (!has_sent) std::this_thread::sleep_for(1ms);  // a full socket stays full until idd reads
  }
}

void SendAndRead(const std::string& socket, std::size_t connections, const Bytes& frame) {
  std::vector<std::optional<RawConnection>> peers(connections);
  while (true) {
    for (std::optional<RawConnection>& peer : peers) {
      if (!peer.has_value()) {
        peer = Connect(socket);
        if (peer.has_value()) peer->Hello();
      }
      if (peer.has_value() && !peer->SendWithin(1s, frame)) peer.reset();
    }
    for (std::optional<RawConnection>& peer : peers) {
      if (peer.has_value() && !peer->Receive(1s).has_value()) peer.reset();
    }
  }
}

// A process of the other user that attacks until the object goes.
class Attacker {
 public:
  template <typename Attack>
  Attacker(const std::string& socket, Attack attack) {
    const pid_t parent = ::getpid();
    child_ = ::fork();
    RequireErrno(child_ >= 0, "fork");
    if (child_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    try {
      const ScopedIdentity identity(kAttacker);
      attack(socket);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "attack_benchmark: the attack ended: %s\n", error.what());
    }
    ::_exit(1);
  }
  ~Attacker() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

 private:
  pid_t child_ = -1;
};

class Benchmark {
 public:
  explicit Benchmark(int rounds) : rounds_(rounds) {
    Require(::geteuid() == 0, "only root can act as other users");
    for (Host* host : {&host_, &other_}) {
      host->daemon.options().database = dir_.File(host->daemon.options().host_id + ".db");
      host->daemon.options().log_level = "error";
      WriteFile(host->daemon.options().config,
                "[[access]]\ntags = ['*']\nusers = [12345, 12346]\naccess = 'shm'\n");
      host->daemon.Start();
      for (const char* tag : {"ours", "theirs"}) {
        host->idctl.Do({"tag", "create", tag, "--step", "100000000"});
        for (int i = 0; i < 2; ++i) static_cast<void>(host->idctl.Claim(tag));  // now in the ring
      }
    }
    RequireErrno(::chmod(dir_.path().c_str(), 0711) == 0, "chmod");
    const ScopedIdentity identity(kVictim);
    victim_.emplace(host_.daemon.socket());
    victim_->Hello();
  }

  [[nodiscard]] nlohmann::json Run() {
    nlohmann::json report;
    for (int round = 0; round < rounds_; ++round) {
      Measure(report["random frames"], SendRandomFrames);
      Measure(report["CLAIM, replies unread"], [](const std::string& socket) {
        SendAndDoNotRead(socket, 1, MakeClaim("theirs", 1, 1, 0));
      });
      Measure(report["CLAIM over 900 connections, replies unread"], [](const std::string& socket) {
        SendAndDoNotRead(socket, kManyConnections, MakeClaim("theirs", 1, 1, 0));
      });
      Measure(report["ATTACH over 900 connections, replies unread"], [](const std::string& socket) {
        SendAndDoNotRead(socket, kManyConnections, MakeAttach("theirs", 1));
      });
      Measure(report["ATTACH over 900 connections, replies read"], [](const std::string& socket) {
        SendAndRead(socket, kManyConnections, MakeAttach("theirs", 1));
      });
      Measure(
          report["16,000 brackets as JSON over 900 connections"], [](const std::string& socket) {
            const Bytes brackets(16'000, std::byte{'['});
            SendAndRead(socket, kManyConnections, MakeFrame(wire::FrameType::kAdmin, 1, brackets));
          });
    }
    return report;
  }

 private:
  template <typename Attack>
  void Measure(nlohmann::json& rounds, Attack attack) {
    nlohmann::json round;
    round["quiet"] = Claim();
    round["attacked"] = ClaimUnder(host_, attack);
    round["elsewhere"] = ClaimUnder(other_, attack);
    rounds.push_back(std::move(round));
  }

  template <typename Attack>
  [[nodiscard]] nlohmann::json ClaimUnder(const Host& attacked, Attack attack) {
    const Attacker attacker(attacked.daemon.socket(), attack);
    std::this_thread::sleep_for(1s);  // the burst of its connections has passed
    return Claim();
  }

  [[nodiscard]] nlohmann::json Claim() {
    const TickClock clock;
    const Bytes request = MakeClaim("ours", 1, 1, 60'000);
    tools::LatencyHistogram ticks;
    for (int i = 0; i < kClaims; ++i) {
      const std::uint64_t before = TickClock::Now();
      Require(victim_->SendWithin(60s, request) && victim_->Receive(60s).has_value(), "claim");
      ticks.Add(TickClock::Now() - before);
    }
    return PercentilesNs(ticks, clock.NsPerTick());
  }

  const int rounds_;
  const TempDir dir_;
  Host host_{dir_};
  Host other_{dir_, "host-b"};
  std::optional<RawConnection> victim_;
};

}  // namespace
}  // namespace idd::harness

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  return idd::bench::PrintReport<idd::harness::Benchmark>("attack_benchmark", rounds);
}

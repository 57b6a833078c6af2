// SPDX-License-Identifier: Apache-2.0
//
// SimulatedStore's packets: how they travel, and what may happen to them on the way.
#ifndef IDD_TESTS_SIMULATION_SIMULATED_PACKET_H_
#define IDD_TESTS_SIMULATION_SIMULATED_PACKET_H_

#include <functional>
#include <memory>
#include <utility>

#include "simulated_store.h"
#include "world.h"

namespace idd::simulation {

// How long a client waits for an answer.
inline constexpr Nanos kStatementPatience = 5 * kSecond;

// The state of a packet that its client and its server share. It outlives either of them.
struct Exchange {
  Thread* waiter = nullptr;
  bool is_over = false;  // answered, or refused by a reset
};

// Forgets the waiter when it is killed or stops waiting.
class WaiterGuard {
 public:
  explicit WaiterGuard(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~WaiterGuard() { exchange_->waiter = nullptr; }
  WaiterGuard(const WaiterGuard&) = delete;
  WaiterGuard& operator=(const WaiterGuard&) = delete;

 private:
  std::shared_ptr<Exchange> exchange_;
};

inline void End(const std::shared_ptr<Exchange>& exchange) {
  exchange->is_over = true;
  if (exchange->waiter != nullptr) exchange->waiter->Wake();
}

template <typename T>
Result<T> SimulatedStore::Send(std::function<Result<T>(Server&)> packet) {
  if (!session_.has_value()) return NotOpen();
  Server* server = session_->server;
  if (cluster_.access() == Access::kProxy) server = &cluster_.PrimaryOf(link_);
  const bool is_direct = cluster_.access() != Access::kProxy;
  if (is_direct && IsBroken()) {
    session_.reset();
    return Status(Code::kUnavailable, "connection reset");
  }
  Result<T> result = SendTo<T>(
      server,
      [session = *session_, is_direct, packet = std::move(packet)](Server& at) -> Result<T> {
        if (is_direct && session.IsReset()) return Status(Code::kSystem, "connection reset");
        *session.used = World::Get().now();
        return packet(at);
      });
  if (result.status().code() == Code::kSystem) {
    session_.reset();
    return Status(Code::kUnavailable, result.status().message());
  }
  return result;
}

// kSystem: there was no answer.
template <typename T>
Result<T> SimulatedStore::SendTo(Server* server, std::function<Result<T>(Server&)> packet) {
  World& world = World::Get();
  const auto exchange = std::make_shared<Exchange>();
  exchange->waiter = Thread::Current();
  const WaiterGuard guard(exchange);
  const auto result = std::make_shared<Result<T>>(Status(Code::kSystem, "no answer"));
  Link& link = link_;
  const auto travel = [&link, &world] {
    return link.latency / 2 + world.random().Between(0, link.latency);
  };
  const auto is_lost = [&link, &world, server] {
    return link.is_cut || link.cut_from.contains(server->number) ||
           world.random().Percent(link.lost);
  };
  on_step_();
  if (!is_lost()) {
    world.After(travel(), [=, &world, packet = std::move(packet)] {
      if (!server->is_up) return End(exchange);  // a reset
      if (server->hangs) {
        world.Met("a packet reached a server that hangs");
        return;
      }
      *result = packet(*server);
      const Nanos back = travel();
      if (is_lost()) {
        world.Met("an answer was lost");
        *result = Status(Code::kSystem, "no answer");
        return;
      }
      world.After(back, [exchange, &world] {
        if (exchange->waiter == nullptr) world.Met("a client was gone when its answer came");
        End(exchange);
      });
    });
  }
  const Nanos until = world.now() + kStatementPatience;
  while (!exchange->is_over && world.now() < until) Thread::Current()->Wait(until);
  if (!exchange->is_over) return Status(Code::kSystem, "no answer within 5 s");
  on_step_();
  return *result;
}

template <typename T>
Result<T> SimulatedStore::Change(std::function<Result<T>(DataSet&)> change) {
  return Send<T>([&cluster = cluster_, change = std::move(change)](Server& server) -> Result<T> {
    if (server.is_read_only) return ReadOnly();
    return cluster.CommitFor<Result<T>>(server, change);
  });
}

}  // namespace idd::simulation

#endif  // IDD_TESTS_SIMULATION_SIMULATED_PACKET_H_

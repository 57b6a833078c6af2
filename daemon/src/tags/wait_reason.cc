// SPDX-License-Identifier: Apache-2.0
#include "tags/wait_reason.h"

#include <chrono>

namespace idd::daemon {
namespace {

// If the store takes longer than this, a waiter's timeout reports it.
constexpr std::chrono::milliseconds kSlowStore(100);

std::string SecondsSince(MonotonicTime since) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(MonotonicClock::now() - since);
  return std::to_string(seconds.count()) + " s";
}

std::string DownFor(const StoreHealth& health) {
  return "down for " + SecondsSince(health.since) + ": " + health.last_error;
}

std::string ReasonOf(const WaitFacts& facts) {
  if (!facts.clock.empty()) return facts.clock;
  if (facts.awaits_ring) {
    return "its ring waits until the service manager has the descriptors of other tags' rings";
  }
  if (facts.health.since == MonotonicTime{}) return "the store has not answered yet";
  if (!facts.health.up) return "the store has been " + DownFor(facts.health);
  if (facts.asked_at.has_value() && MonotonicClock::now() - *facts.asked_at > kSlowStore) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(MonotonicClock::now() -
                                                                          *facts.asked_at);
    return "the store has not answered for " + std::to_string(ms.count()) +
           " ms; is it locked or slow?";
  }
  if (!facts.last_error.empty()) return facts.last_error;
  if (facts.quarantined_at.has_value()) {
    return "its ring was quarantined " + SecondsSince(*facts.quarantined_at) +
           " ago, as a client had forged a cursor; a segment for the new ring is on its way";
  }
  return "the next segment is on its way";
}

}  // namespace

Status NoIdsBeforeDeadline(const WaitFacts& facts) {
  return {Code::kTimeout,
          "tag '" + facts.tag + "': no ids before the deadline; " + ReasonOf(facts)};
}

Status NoTicketWithoutStore(const std::string& tag, const StoreHealth& health) {
  return {Code::kUnavailable, "tag '" + tag +
                                  "': each of its ids is a transaction at the store, which has "
                                  "been " +
                                  DownFor(health)};
}

}  // namespace idd::daemon

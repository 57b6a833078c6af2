// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ACCESS_CLAIM_ORDER_H_
#define IDD_DAEMON_ACCESS_CLAIM_ORDER_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "idd/base/clock.h"

namespace idd::daemon {

// An admitted CLAIM, or the same fields of an ATTACH: which connection to answer, and what it asked
// for.
struct ClaimOrder {
  std::uint64_t owner = 0;  // the connection
  std::uint64_t request_id = 0;
  std::string tag;
  std::uint64_t ring_id = 0;  // that the client named
  std::uint64_t count = 0;
  Deadline deadline;
  bool by_socket = false;  // the peer gets no ring
  // For a peer with ids_per_second: the uid whose account `count` was taken from, until it is given
  // back.
  struct Pace {
    uid_t uid = 0;
    std::uint64_t per_s = 0;
    bool is_taken = false;
  };
  std::optional<Pace> pace;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_CLAIM_ORDER_H_

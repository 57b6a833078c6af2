// SPDX-License-Identifier: Apache-2.0
//
// The counters of AdmissionControl. Thread safety: only that of each metric; event loop.
#ifndef IDD_DAEMON_ACCESS_PEER_METER_H_
#define IDD_DAEMON_ACCESS_PEER_METER_H_

#include <prometheus/counter.h>

namespace idd::daemon {

struct PeerMeter {
  prometheus::Counter accepted;
  prometheus::Counter refused;
  prometheus::Counter denied_connections;
  prometheus::Counter denied_tags;
  prometheus::Counter denied_admin;
  prometheus::Counter limited_by_rate;
  prometheus::Counter limited_under_way;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ACCESS_PEER_METER_H_

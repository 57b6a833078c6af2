// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_STORE_MYSQL_LOST_COMMITS_H_
#define IDD_DAEMON_STORE_MYSQL_LOST_COMMITS_H_

#include <map>
#include <string>
#include <vector>

#include "idd/base/clock.h"

namespace idd::daemon {

// Leases whose COMMIT got no answer. None of their ids is ever used. If the journal has them at
// all, they are to be abandoned there.
//
// Pure. Thread safety: none. Memory: a token for each such lease of the last two minutes.
class LostCommits {
 public:
  void Add(const std::vector<std::string>& tokens, MonotonicTime now);
  [[nodiscard]] bool empty() const noexcept { return lost_.empty(); }

  // Statements for one packet: the first abandons those that are active, the second selects the
  // tokens of those that are in the journal and have ended. Precondition: not empty.
  [[nodiscard]] std::vector<std::string> Statements(const std::string& host) const;
  // Forgets the leases that were selected. A lease that is not in the journal may still come,
  // because the packet on the old connection may not have ended; it is forgotten after two minutes.
  void Forget(const std::vector<std::string>& ended, MonotonicTime now);

 private:
  std::map<std::string, MonotonicTime> lost_;  // tokens, since when
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_STORE_MYSQL_LOST_COMMITS_H_

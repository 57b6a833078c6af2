// SPDX-License-Identifier: Apache-2.0
//
// Makes room for the first leases of tags, before a claim needs it.
#ifndef IDD_DAEMON_LEASING_COVER_TAGS_H_
#define IDD_DAEMON_LEASING_COVER_TAGS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "agreement/agreement.h"
#include "idd/base/status.h"
#include "leasing/high_water.h"
#include "leasing/recovery.h"
#include "store/store.h"

namespace idd::daemon {

struct Coverage {
  std::vector<std::string> waiting;  // the tags of which no host may lease an id yet
  std::string reason;                // why not, for people
  std::vector<WitnessWait> waits;    // the witnesses that leasing waits for
};

inline constexpr std::size_t kMaxTagsToCover = 500;

// Raises the ceilings of tags as their next leases would, on any host, and says which tags still
// wait for theirs. For a tag of mode snowflake, that is the ceilings of as many worker ids as there
// are hosts. A tag that is missing, invalid or used up waits for nothing. Precondition: at most
// kMaxTagsToCover tags.
[[nodiscard]] Result<Coverage> CoverTags(const std::vector<std::string>& tags, Store& store,
                                         HighWaterMarks& marks, StoreSession& session);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_LEASING_COVER_TAGS_H_

// SPDX-License-Identifier: Apache-2.0
//
// Tags, leases, hosts and the daemon as JSON, from which every answer to an administration request
// is made.
#ifndef IDD_DAEMON_ADMIN_SHARED_ADMIN_JSON_H_
#define IDD_DAEMON_ADMIN_SHARED_ADMIN_JSON_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "leasing/lease_worker.h"
#include "store/store.h"
#include "tags/drain_ledger.h"
#include "tags/tag_views.h"

namespace idd::daemon {

using Json = nlohmann::ordered_json;  // the keys in the order they are written

struct DaemonInfo;  // admin_context.h

[[nodiscard]] std::string Dump(const Json& document);
[[nodiscard]] std::string ErrorDocument(const std::string& message);
// null for an empty text.
[[nodiscard]] Json OrNull(const std::string& text);

// The witnesses that leasing waits for.
[[nodiscard]] Json WaitsJson(const std::vector<WitnessWait>& waits);
// The term and its witnesses; null if the store has no terms.
[[nodiscard]] Json AgreementJson(const AgreementReport& agreement);

// The tag as `tag show` has it.
[[nodiscard]] Json TagJson(const TagRecord& record);
// The tag as `status` has it.
[[nodiscard]] Json StatusTagJson(const TagSnapshot& tag);
// The tag as `doctor` has it. `record`: nullptr if the store does not have the tag, or has not
// answered.
[[nodiscard]] Json DoctorTagJson(const TagSnapshot& tag, const TagRecord* record);
// The names that hosts have for people, by their ids.
using HostNames = std::map<std::string, std::string, std::less<>>;
[[nodiscard]] HostNames NamesOf(const std::vector<HostRecord>& hosts);
[[nodiscard]] Json LeaseJson(const LeaseRecord& lease, const HostNames& names);
[[nodiscard]] Json HostJson(const HostRecord& host);
[[nodiscard]] Json DaemonJson(const DaemonInfo& info, bool is_drained);
[[nodiscard]] Json DatabaseJson(const std::string& display_url, const StoreHealth& health);

// All tags by name: those of the store, and those that this daemon serves, as it serves them. A tag
// that it does not serve counts as drained if it is in `drained`, or if the whole host is.
[[nodiscard]] std::map<std::string, TagSnapshot> AllTags(const std::vector<TagRecord>& records,
                                                         std::vector<TagSnapshot> served,
                                                         const DrainLedger::Scopes& drained);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_ADMIN_JSON_H_

// SPDX-License-Identifier: Apache-2.0
//
// `host.list`.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"

namespace idd::daemon {

void ListHosts(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
               AdminDone done) {
  const auto is_all = FlagField(request, "all");
  if (!is_all.ok()) return Fail(done, is_all.status());
  context.Read<std::vector<HostRecord>>([](StoreReader& store) { return store.ListHosts(); },
                                        [is_all = is_all.value(), done = std::move(done)](
                                            const Result<std::vector<HostRecord>>& hosts) {
                                          if (!hosts.ok()) return Fail(done, hosts.status());
                                          Json array = Json::array();
                                          for (const HostRecord& host : hosts.value()) {
                                            if (is_all || !host.is_forgotten)
                                              array.push_back(HostJson(host));
                                          }
                                          done(Status::Ok(), Dump({{"hosts", std::move(array)}}));
                                        });
}

}  // namespace idd::daemon

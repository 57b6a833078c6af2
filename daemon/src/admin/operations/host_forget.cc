// SPDX-License-Identifier: Apache-2.0
//
// `host.forget`: ends the fence's wait for a host that an operator knows to be off.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"

namespace idd::daemon {

void ForgetHost(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
                AdminDone done) {
  const auto host = TextField(request, "host");
  if (!host.ok()) return Fail(done, host.status());
  if (!host.value().has_value()) return Fail(done, {Code::kInvalid, "'host' is missing"});
  const auto is_forced = FlagField(request, "force");
  if (!is_forced.ok()) return Fail(done, is_forced.status());
  context.worker.SubmitWithSession<bool>(
      [host = *host.value(), is_forced = is_forced.value()](Store& store, HighWaterMarks&,
                                                            StoreSession& session) -> Result<bool> {
        if (store.fence() == nullptr) {
          return Status(Code::kInvalid,
                        "leasing waits for no host with this database; only MySQL has a fence");
        }
        Status status = session.fence.Forget(*store.fence(), host, is_forced);
        if (!status.ok()) return status;
        return true;
      },
      [host = *host.value(), done = std::move(done)](const Result<bool>& forgotten) {
        if (!forgotten.ok()) return Fail(done, forgotten.status());
        done(Status::Ok(), Dump({{"host", host}, {"state", "out"}}));
      });
}

}  // namespace idd::daemon

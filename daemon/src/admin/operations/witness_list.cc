// SPDX-License-Identifier: Apache-2.0
//
// `witness.list`: the term, and the hosts whose disks keep the ceilings.
#include <utility>

#include "admin/operations/operations.h"
#include "admin/operations/witness_report.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_request.h"

namespace idd::daemon {

void ListWitnesses(AdminContext& context, const AdminRequest& /*request*/,
                   const PeerRights& /*rights*/, AdminDone done) {
  context.worker.SubmitWithSession<AgreementReport>(
      [](Store& store, HighWaterMarks&, StoreSession& session) {
        return ReportWitnesses(store, session);
      },
      [done = std::move(done)](const Result<AgreementReport>& report) {
        if (!report.ok()) return Fail(done, report.status());
        AnswerWithWitnesses(done, report.value());
      });
}

}  // namespace idd::daemon

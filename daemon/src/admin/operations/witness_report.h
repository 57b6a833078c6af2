// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_OPERATIONS_WITNESS_REPORT_H_
#define IDD_DAEMON_ADMIN_OPERATIONS_WITNESS_REPORT_H_

#include "admin/shared/admin_request.h"
#include "idd/base/status.h"
#include "leasing/recovery.h"
#include "store/store.h"

namespace idd::daemon {

// What the operations about witnesses answer with, as the lease worker's last look has found it. To
// be called on that worker's thread. kInvalid: the store has none.
[[nodiscard]] Result<AgreementReport> ReportWitnesses(Store& store, const StoreSession& session);
void AnswerWithWitnesses(const AdminDone& done, const AgreementReport& report);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_OPERATIONS_WITNESS_REPORT_H_

// SPDX-License-Identifier: Apache-2.0
#include "admin/operations/witness_report.h"

#include <nlohmann/json.hpp>

#include "admin/shared/admin_json.h"

namespace idd::daemon {

Result<AgreementReport> ReportWitnesses(Store& store, const StoreSession& session) {
  if (store.terms() == nullptr) {
    return Status(Code::kInvalid, "a SQLite file has no witnesses; only a MySQL database has them");
  }
  return session.agreement.Report();
}

void AnswerWithWitnesses(const AdminDone& done, const AgreementReport& report) {
  if (report.state == "none") {
    return Fail(done,
                {Code::kSystem, "no witness has begun a term yet; ask again in some seconds"});
  }
  done(Status::Ok(), Dump(AgreementJson(report)));
}

}  // namespace idd::daemon

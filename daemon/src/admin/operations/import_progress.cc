// SPDX-License-Identifier: Apache-2.0
//
// `import.progress`.
#include <memory>
#include <nlohmann/json.hpp>

#include "admin/import/tag_import.h"
#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"

namespace idd::daemon {

// NOLINTBEGIN(performance-unnecessary-value-param): as every operation.
void ShowImportProgress(AdminContext& context, const AdminRequest& /*request*/,
                        const PeerRights& /*rights*/, AdminDone done) {
  // NOLINTEND(performance-unnecessary-value-param)
  const std::shared_ptr<TagImport> import = context.import.lock();
  const TagImport::Progress progress = import ? import->progress() : TagImport::Progress();
  done(Status::Ok(),
       Dump({{"under_way", import != nullptr}, {"done", progress.done}, {"rows", progress.rows}}));
}

}  // namespace idd::daemon

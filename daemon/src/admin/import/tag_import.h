// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_IMPORT_TAG_IMPORT_H_
#define IDD_DAEMON_ADMIN_IMPORT_TAG_IMPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "admin/import/import_source.h"
#include "idd/base/status.h"
#include "leasing/lease_worker.h"
#include "platform/event_loop.h"
#include "store/store.h"

namespace idd::daemon {

enum class ImportAction { kCreated, kLifted, kKept, kRefused };
enum class ImportMode { kWrite, kDryRun };

// The outcome for one row of the source, or what the outcome would be.
struct ImportedTag {
  std::string tag;
  ImportAction action = ImportAction::kRefused;
  std::optional<std::uint64_t> from;  // where a lifted tag stood
  std::uint64_t next_id = 0;          // meaningless when refused, as is `step`
  std::uint64_t step = 0;
  std::string reason;
  // Hosts with leases of the tag that begin below the source's next id. They may hand out those ids
  // until they give the leases up.
  std::vector<std::string> holders;
};

struct ImportReport {
  std::vector<ImportedTag> tags;
  std::vector<std::string> warnings;  // sentences; if there are any, the ids are not safe yet
};

// Brings each row's tag above the row's ids: creates it there, lifts it, or keeps it if it stands
// high enough. Refuses a bad row or tag and goes on with the others; an error is the store's.
// Precondition: no two rows that are not refused have the same tag.
[[nodiscard]] Result<std::vector<ImportedTag>> ImportTags(Store& store,
                                                          const std::vector<ImportRow>& rows,
                                                          ImportMode mode,
                                                          const std::string& description);

// One import, from the first reading of its source to its report. If it fails, what it has written
// stays, and the next import goes on from there. Another thread reads the source and the lease
// worker writes a few tags at a time, so leases wait for neither.
//
// Thread safety: none; event loop. Lives until `done` was called.
class TagImport : public std::enable_shared_from_this<TagImport> {
 public:
  struct Means {
    EventLoop& loop;
    WorkThread& reader;
    LeaseWorker& worker;
  };
  using Done = std::function<void(const Result<ImportReport>&)>;

  TagImport(Means means, ImportQuery query, ImportMode mode, Done done);
  void Start();

  // How many of the rows that were read are done; `rows` is 0 before they are read.
  struct Progress {
    std::size_t done = 0;
    std::size_t rows = 0;
  };
  [[nodiscard]] Progress progress() const noexcept {
    return {.done = report_.tags.size(), .rows = rows_.size()};
  }

 private:
  using Rows = std::vector<ImportRow>;

  void Read(std::function<void(Result<Rows>)> then);
  void Write(std::size_t begin);
  void OnWritten(std::size_t end, Result<std::vector<ImportedTag>> tags);
  void OnReadAgain(const Result<Rows>& again);
  void OnRewritten(const Rows& moved, const Result<std::vector<ImportedTag>>& tags);
  void Finish();

  const Means means_;
  const ImportQuery query_;
  const ImportMode mode_;
  const Done done_;
  Rows rows_;
  ImportReport report_;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_IMPORT_TAG_IMPORT_H_

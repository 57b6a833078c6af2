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

// What became, or would become, of one row of the source.
struct ImportedTag {
  std::string tag;
  ImportAction action = ImportAction::kRefused;
  std::optional<std::uint64_t> from;  // where a lifted tag stood
  std::uint64_t next_id = 0;          // this and step: nothing when refused
  std::uint64_t step = 0;
  std::string reason;
  // Hosts that hold leases of the tag that begin below what the source had: they hand those ids out
  // until they have given the leases up.
  std::vector<std::string> holders;
};

struct ImportReport {
  std::vector<ImportedTag> tags;
  std::vector<std::string> warnings;  // sentences; then the ids are not safe yet
};

// Brings each row's tag above the row: creates it there, lifts it, or keeps it where it stands. A
// bad row or tag is refused and the others go on; an error is the store's. No two rows that are not
// refused have the same tag.
[[nodiscard]] Result<std::vector<ImportedTag>> ImportTags(Store& store,
                                                          const std::vector<ImportRow>& rows,
                                                          ImportMode mode,
                                                          const std::string& description);

// One import, from the first reading of its source to its report. What it has written when it fails
// stays: the next one goes on from there. The source is read on a thread of its own and the tags
// are written by the lease worker a few at a time, so that leases do not wait for either.
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

  // Of the rows that were read, how many are done; no rows before they are read.
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

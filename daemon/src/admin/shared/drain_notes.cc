// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/drain_notes.h"

#include <utility>

namespace idd::daemon {

// Asks the store only about a tag that is unknown here or is being deleted.
void DrainNotes::FindScope(const std::string& scope, Then then) {
  const bool is_known = tags_.drains().Has(scope) || tags_.Knows(scope);
  if (scope == kWholeHost || (is_known && !deleting_.contains(scope))) return then(Status::Ok());
  worker_.Submit<TagRecord>([scope](Store& store, HighWaterMarks&) { return store.FindTag(scope); },
                            [this, scope, then = std::move(then)](const Result<TagRecord>& record) {
                              if (record.ok() && deleting_.contains(scope))
                                return FindScope(scope, then);
                              then(record.status());
                            });
}

void DrainNotes::SetDrained(const std::string& scope, bool is_drained, Then then) {
  if (!IsUnsure(scope) && tags_.drains().Has(scope) == is_drained) return then(Status::Ok());
  ++changes_;
  worker_.SubmitForMarks<bool>(
      [scope, is_drained](HighWaterMarks& marks) -> Result<bool> {
        if (Status status = marks.SetDrained(scope, is_drained); !status.ok()) return status;
        return true;
      },
      [this, scope, then = std::move(then)](const Result<bool>& noted) {
        --changes_;
        if (noted.ok()) {
          unsure_.erase(scope);
        } else {
          unsure_.insert(scope);
        }
        then(noted.status());
      });
}

void DrainNotes::DeleteTag(const std::string& tag, Then then) {
  const bool may_be_drained = tags_.drains().Has(tag) || IsUnsure(tag);
  const auto deleting = deleting_.insert(tag);
  worker_.Submit<bool>(
      [tag, may_be_drained](Store& store, HighWaterMarks& marks) -> Result<bool> {
        if (Status status = store.DeleteTag(tag); !status.ok()) return status;
        if (!may_be_drained) return true;
        // A later tag of the same name must not begin drained.
        Status forgotten = marks.SetDrained(tag, false);
        if (forgotten.ok()) return true;
        return forgotten.WithContext(
            "the tag is deleted, but a new tag of its name would begin drained");
      },
      [this, deleting, tag, then = std::move(then)](const Result<bool>& deleted) {
        deleting_.erase(deleting);
        if (!deleted.ok()) return then(deleted.status());
        tags_.OnTagDeleted(tag);
        unsure_.erase(tag);
        then(Status::Ok());
      });
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/tag_lister.h"

#include <utility>

namespace idd::daemon {

void TagLister::List(std::shared_ptr<Caller> caller) {
  waiting_.push_back(std::move(caller));
  BeginNext();
}

void TagLister::BeginNext() {
  std::erase_if(waiting_, [](const auto& caller) { return !caller->IsWaiting(); });
  if (is_listing_ || waiting_.empty()) return;
  is_listing_ = true;
  served_ = std::exchange(waiting_, {});
  worker_.Submit<std::vector<TagRecord>>(
      [](Store& store, HighWaterMarks&) { return store.ListTags(); },
      [this](Result<std::vector<TagRecord>> records) {
        OnListed(std::make_shared<const Result<std::vector<TagRecord>>>(std::move(records)));
      });
}

void TagLister::OnListed(const Records& records) {
  is_listing_ = false;
  for (const auto& caller : std::exchange(served_, {})) caller->OnListed(records);
  BeginNext();
}

}  // namespace idd::daemon

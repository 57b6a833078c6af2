// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_ADMIN_SHARED_TAG_LISTER_H_
#define IDD_DAEMON_ADMIN_SHARED_TAG_LISTER_H_

#include <memory>
#include <vector>

#include "idd/base/status.h"
#include "leasing/lease_worker.h"
#include "store/store.h"

namespace idd::daemon {

// Gets the store's list of tags for all callers at the same time: at most two lists are under way
// or waiting, however many callers ask for the status of a store that hangs. A call that comes
// while the store makes a list waits for the next list, because its caller may know a tag that the
// present list lacks.
//
// Thread safety: none; event loop.
class TagLister {
 public:
  // Shared, because the callers read the list on other threads. Never null.
  using Records = std::shared_ptr<const Result<std::vector<TagRecord>>>;
  class Caller {
   public:
    Caller() = default;
    virtual ~Caller() = default;
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;
    // False once it has given up.
    [[nodiscard]] virtual bool IsWaiting() const = 0;
    virtual void OnListed(const Records& records) = 0;
  };

  explicit TagLister(LeaseWorker& worker) : worker_(worker) {}
  TagLister(const TagLister&) = delete;
  TagLister& operator=(const TagLister&) = delete;

  void List(std::shared_ptr<Caller> caller);

 private:
  void BeginNext();
  void OnListed(const Records& records);

  LeaseWorker& worker_;
  std::vector<std::shared_ptr<Caller>> served_;   // by the list that is being made
  std::vector<std::shared_ptr<Caller>> waiting_;  // for the one after it
  bool is_listing_ = false;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_TAG_LISTER_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_TAKEOVER_H_
#define IDD_DAEMON_TAGS_TAKEOVER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "platform/event_loop.h"
#include "restart/inheritance.h"
#include "store/lease.h"
#include "tags/tag_context.h"
#include "tags/tag_ring.h"

namespace idd::daemon {

// Takes over, tag by tag, what an earlier idd has left (restart/inheritance.h). Claimers continue
// in the old ring until their tag's turn comes, so a restart pauses one tag at a time, not all.
//
// Thread safety: none; event loop.
class Takeover {
 public:
  // Called with the rest of a tag's leases and a new ring for them. No ring: the tag is drained, or
  // there is no memory for a ring, and the leases go back.
  using OnTaken = std::function<void(const InheritedTag& tag, std::unique_ptr<TagRing> ring)>;
  // Called when a client has written into an old ring: the published ids of these leases are
  // spoilt.
  using OnForged =
      std::function<void(const std::string& tag, const std::vector<std::string>& tokens)>;

  Takeover(TagContext& context, OnTaken on_taken, OnForged on_forged);
  Takeover(const Takeover&) = delete;
  Takeover& operator=(const Takeover&) = delete;

  // Closes the ended leases and takes the tags over one by one, or at once if a request needs one.
  // Calls `done` on the loop when none is left.
  void Begin(Inheritance& inheritance, std::function<void()> done);
  // Takes the tag over at once, if that is not done yet.
  void TakeIfLeft(const std::string& tag);
  void TakeAll();
  // Takes over the next tag. False: none is left.
  bool TakeOne();
  // To be called for each number from 0 on, once a second: checks whether a client has opened that
  // old ring again. False: there is no ring of this number.
  [[nodiscard]] bool WatchOldRing(std::size_t number);

  [[nodiscard]] std::size_t old_rings() const noexcept { return old_rings_.size(); }
  // Leases that were published again.
  [[nodiscard]] std::size_t leases() const noexcept { return leases_; }

 private:
  void TakeNext();
  void Take(LeftTag left);
  void CloseEnded(const std::vector<LeaseUse>& closing, const std::vector<LeaseUse>& returning);
  void HandBackNewestFirst(std::vector<LeaseUse> uses);

  TagContext& context_;
  const OnTaken on_taken_;
  const OnForged on_forged_;
  std::map<std::string, LeftTag, std::less<>> left_;
  std::function<void()> done_;
  Timer timer_;
  std::vector<InheritedRing> old_rings_;
  std::size_t leases_ = 0;
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAKEOVER_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_TAGS_TAG_CONTEXT_H_
#define IDD_DAEMON_TAGS_TAG_CONTEXT_H_

#include <cstdint>
#include <string>

#include "idd/base/status.h"
#include "leasing/lease_closer.h"
#include "leasing/lease_scheduler.h"
#include "leasing/lease_worker.h"
#include "platform/event_loop.h"
#include "platform/service_manager.h"
#include "restart/held_leases.h"
#include "store/tag_record.h"
#include "tags/drain_ledger.h"
#include "tags/new_rings.h"
#include "tags/service_meter.h"

namespace idd::daemon {

// The places where the next idd finds what this one leaves; both outlive the service.
struct Handover {
  HeldLeases& leases;
  DescriptorStore& descriptors;
};

// The events that a tag reports to its service.
class TagOwner {
 public:
  TagOwner(const TagOwner&) = delete;
  TagOwner& operator=(const TagOwner&) = delete;

  // The store's answer to ServedTag::LookUp(), for the tag of that name and instance.
  virtual void OnLookedUp(const std::string& tag, std::uint64_t instance,
                          Result<TagRecord> record) = 0;
  // Requests have stopped waiting, or a pause is over. The call may destroy the tag.
  virtual void OnMayBeUnused(std::string tag) = 0;

 protected:
  TagOwner() = default;
  virtual ~TagOwner() = default;
};

// The objects and state that the tags of a service share; it outlives them.
struct TagContext {
  EventLoop& loop;
  LeaseWorker& worker;
  Handover handover;
  LeaseScheduler& scheduler;
  LeaseCloser& closer;
  DrainLedger& drains;
  NewRings& new_rings;
  ServiceMeter& meter;
  TagOwner& owner;
  StoreHealth health{};            // as last seen
  bool is_stopping = false;        // TagService::Shutdown() was called
  std::uint64_t tags_version = 1;  // TagService::tags_version()
};

// The answer to requests once the service is stopping.
[[nodiscard]] inline Status Stopping() { return {Code::kUnavailable, "idd is stopping"}; }

}  // namespace idd::daemon

#endif  // IDD_DAEMON_TAGS_TAG_CONTEXT_H_

// SPDX-License-Identifier: Apache-2.0
#include "tags/takeover.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "platform/logging.h"
#include "restart/descriptor_names.h"
#include "store/snowflake_layout.h"
#include "tags/ring_shape.h"

namespace idd::daemon {
namespace {

// The pause between two tags. A client that connects and attaches again takes several turns of the
// loop, and needs a moment itself before each. They fit into one pause, so that the client need not
// wait for another tag's takeover in each turn.
constexpr std::chrono::milliseconds kBetweenTags(1);

}  // namespace

Takeover::Takeover(TagContext& context, OnTaken on_taken, OnForged on_forged)
    : context_(context),
      on_taken_(std::move(on_taken)),
      on_forged_(std::move(on_forged)),
      timer_(context.loop) {}

void Takeover::Begin(Inheritance& inheritance, std::function<void()> done) {
  CloseEnded(inheritance.closing, inheritance.returning);
  context_.closer.HandBackUnanswered(inheritance.asked);
  done_ = std::move(done);
  for (LeftTag& tag : std::exchange(inheritance.tags, {})) {
    const std::string name = tag.tag;
    left_.emplace(name, std::move(tag));
  }
  TakeNext();
}

// Waits until the service manager has handled the messages of the previous tag: it takes
// milliseconds for each message while it keeps thousands of descriptors, and the loop would block
// once its queue is full.
void Takeover::TakeNext() {
  context_.handover.descriptors.WhenHandled([this] {
    timer_.After(left_.empty() ? std::chrono::milliseconds(0) : kBetweenTags, [this] {
      static_cast<void>(TakeOne());
      if (!left_.empty()) return TakeNext();
      if (done_) std::exchange(done_, nullptr)();
    });
  });
}

void Takeover::TakeIfLeft(const std::string& tag) {
  const auto it = left_.find(tag);
  if (it != left_.end()) Take(std::move(left_.extract(it).mapped()));
}

bool Takeover::TakeOne() {
  if (left_.empty()) return false;
  Take(std::move(left_.extract(left_.begin()).mapped()));
  return true;
}

void Takeover::TakeAll() {
  while (TakeOne()) {
  }
}

// The new ring is made and kept before the old one is closed, because making it takes much longer
// than the rest.
void Takeover::Take(LeftTag left) {
  const std::string name = left.tag;
  const bool is_drained = context_.drains.IsDrained(name);
  std::unique_ptr<TagRing> ring;
  if (!is_drained) {
    const TagRecord* const settings = left.settings();
    Result<std::unique_ptr<TagRing>> made =
        TagRing::Create(name, left.first_id(), context_.handover.descriptors,
                        settings == nullptr ? RingShape{} : ShapeOf(*settings));
    if (made.ok()) ring = std::move(made).value();
  }
  InheritedTag inherited = CloseOldRings(std::move(left), context_.handover.leases);
  if (inherited.leases.empty()) {
    if (ring != nullptr) static_cast<void>(ring->Retire());  // unused: its descriptors are dropped
  } else {
    const bool has_ring = ring != nullptr;
    on_taken_(inherited, std::move(ring));
    if (has_ring) {
      leases_ += inherited.leases.size();
    } else {
      if (is_drained) {
        for (const LeaseUse& use : inherited.leases) context_.drains.OnClosed(use);
      }
      HandBackNewestFirst(inherited.leases);
    }
  }
  CloseEnded(inherited.closing, inherited.returning);
  // The leases of the old rings are recorded as the new ring's by now.
  for (const std::string& descriptor : inherited.names) {
    DropInherited(context_.handover.descriptors, descriptor);
  }
  for (InheritedRing& old : inherited.rings) {
    context_.worker.meter().AddWaste(name, old.ring->left_in_lanes());
    old_rings_.push_back(std::move(old));
  }
}

void Takeover::CloseEnded(const std::vector<LeaseUse>& closing,
                          const std::vector<LeaseUse>& returning) {
  std::vector<LeaseClosure> closures;
  closures.reserve(closing.size());
  for (const LeaseUse& use : closing) {
    context_.worker.meter().AddWaste(ServedName(use.lease.tag), use.available());
    closures.push_back(Abandoned(use));
  }
  if (!closures.empty()) context_.closer.Close(std::move(closures));
  for (const LeaseUse& use : returning) {
    if (context_.drains.IsDrained(ServedName(use.lease.tag))) context_.drains.OnClosed(use);
  }
  HandBackNewestFirst(returning);
}

// Each hand-back lowers max_id to the end of the previous lease.
void Takeover::HandBackNewestFirst(std::vector<LeaseUse> uses) {
  std::sort(uses.begin(), uses.end(), [](const LeaseUse& a, const LeaseUse& b) {
    return a.lease.ids.first > b.lease.ids.first;
  });
  for (const LeaseUse& use : uses) context_.closer.HandBack(use);
}

bool Takeover::WatchOldRing(std::size_t number) {
  if (number >= old_rings_.size()) return false;
  const InheritedRing& old = old_rings_[number];
  if (old.ring->StaysClosed()) return true;
  log::Error("ring.reopened",
             {{"tag", old.tag},
              {"ring", old.ring->ring_id()},
              {"reason", "a client forged a cursor that the earlier idd left"},
              {"action", "closed again; a later ring that has ids of it is quarantined"}});
  old.ring->Close();
  on_forged_(old.tag, old.tokens);
  return true;
}

}  // namespace idd::daemon

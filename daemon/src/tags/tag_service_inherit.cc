// SPDX-License-Identifier: Apache-2.0
//
// TagService: what an earlier idd has left, taken over tag by tag. Claimers go on in the old ring
// until it is their tag's turn; the pause of a restart is that of one tag, not of all.
#include <algorithm>
#include <chrono>
#include <utility>

#include "platform/logging.h"
#include "tags/served_tag.h"
#include "tags/tag_service.h"

namespace idd::daemon {
namespace {

// Between two tags. A client that connects and attaches again takes several looks of the loop,
// with a moment of its own before each: they fit in here, and need not wait for a tag each.
constexpr std::chrono::milliseconds kBetweenTags(1);

}  // namespace

void TagService::Inherit(Inheritance& inheritance, std::function<void()> done) {
  EndInherited(inheritance.closing, inheritance.returning);
  closer_.HandBackUnanswered(inheritance.asked);
  taken_over_ = std::move(done);
  for (LeftTag& tag : std::exchange(inheritance.tags, {})) {
    const std::string name = tag.tag;
    left_.emplace(name, std::move(tag));
  }
  TakeOverNext();
}

// Not before the service manager has handled the messages of the tag before: it takes milliseconds
// for each while it keeps thousands of descriptors, and once its queue is full the loop would wait.
void TagService::TakeOverNext() {
  handover_.descriptors.WhenHandled([this] {
    takeover_timer_.After(left_.empty() ? std::chrono::milliseconds(0) : kBetweenTags, [this] {
      if (!left_.empty()) TakeOverTag(std::move(left_.extract(left_.begin()).mapped()));
      if (!left_.empty()) return TakeOverNext();
      WarmNext();
      if (taken_over_) std::exchange(taken_over_, nullptr)();
    });
  });
}

void TagService::TakeOverIfLeft(const std::string& name) {
  const auto it = left_.find(name);
  if (it != left_.end()) TakeOverTag(std::move(left_.extract(it).mapped()));
}

void TagService::TakeOverAll() {
  while (!left_.empty()) TakeOverTag(std::move(left_.extract(left_.begin()).mapped()));
}

// The new ring is made and kept before the old one is closed: that takes much longer than the rest.
void TagService::TakeOverTag(LeftTag left) {
  const std::string name = left.tag;
  Result<std::unique_ptr<TagRing>> ring(Status(Code::kUnavailable, "the tag is drained"));
  if (!drains_.IsDrained(name)) {
    ring = TagRing::Create(name, left.first_id(), handover_.descriptors);
    if (!ring.ok()) {
      log::Error("ring.create_failed", {{"tag", name}, {"error", ring.status().message()}});
    }
  }
  InheritedTag inherited = TakeOver(std::move(left), handover_.leases);
  if (inherited.leases.empty()) {
    if (ring.ok()) static_cast<void>(ring.value()->Retire());  // unused: its descriptors go
  } else {
    Tag& tag = GetTag(name);
    Configure(tag, inherited.record);
    tag.data_set = kInheritedDataSet;
    if (ring.ok()) {
      tag.ring = std::move(ring).value();
      ++tags_version_;
      log::Info("ring.created", {{"tag", name}, {"ring", tag.ring->ring_id()}});
      PublishInherited(tag, inherited.leases);
    } else {
      if (drains_.IsDrained(name)) {
        for (const LeaseUse& use : inherited.leases) drains_.OnClosed(use);
      }
      HandBackNewestFirst(inherited.leases);
    }
  }
  EndInherited(inherited.closing, inherited.returning);
  // What the old rings had is noted as the new one's.
  for (const std::string& descriptor : inherited.names) handover_.descriptors.Drop(descriptor);
  for (InheritedRing& old : inherited.rings) old_rings_.push_back(std::move(old));
}

void TagService::PublishInherited(Tag& tag, const std::vector<LeaseUse>& leases) {
  tag.floor = leases.front().lease.ids.first;
  for (const LeaseUse& use : leases) {
    PublishRest(tag, use);
    tag.inherited_claimed += use.claimed;
    ++tag.leases_taken;
    ++inherited_leases_;
    log::Info("lease.inherited", {{"tag", tag.name},
                                  {"token", use.lease.token},
                                  {"first", use.lease.ids.first + use.claimed},
                                  {"limit", use.lease.ids.limit}});
  }
  tag.leased_to = leases.back().lease.ids.limit;
  PublishStats(tag);
}

void TagService::EndInherited(const std::vector<LeaseUse>& closing,
                              const std::vector<LeaseUse>& returning) {
  std::vector<LeaseClosure> closures;
  closures.reserve(closing.size());
  for (const LeaseUse& use : closing) {
    worker_.meter().AddWaste(use.lease.tag, use.available());
    closures.push_back(Abandoned(use));
  }
  if (!closures.empty()) closer_.Close(std::move(closures));
  for (const LeaseUse& use : returning) {
    if (drains_.IsDrained(use.lease.tag)) drains_.OnClosed(use);
  }
  HandBackNewestFirst(returning);
}

// Each lowers max_id to where the one before it ends.
void TagService::HandBackNewestFirst(std::vector<LeaseUse> uses) {
  std::sort(uses.begin(), uses.end(), [](const LeaseUse& a, const LeaseUse& b) {
    return a.lease.ids.first > b.lease.ids.first;
  });
  for (const LeaseUse& use : uses) closer_.HandBack(use);
}

void TagService::WatchOldRings() {
  for (const InheritedRing& old : old_rings_) {
    if (old.ring->StaysClosed()) continue;
    log::Error("ring.reopened",
               {{"tag", old.tag},
                {"ring", old.ring->ring_id()},
                {"reason", "a client forged a cursor that the earlier idd left"},
                {"action", "closed again; what the tag's ring still has of it is given up"}});
    old.ring->Close();
    OnForged(old.tag, old.tokens);
  }
}

void TagService::OnForged(const std::string& tag, const std::vector<std::string>& tokens) {
  const auto it = tags_.find(tag);
  if (it == tags_.end() || it->second->ring == nullptr || stopping_) return;
  const std::vector<LeaseUse> uses = it->second->ring->Look();
  const bool is_spoilt = std::any_of(uses.begin(), uses.end(), [&tokens](const LeaseUse& use) {
    return std::find(tokens.begin(), tokens.end(), use.lease.token) != tokens.end();
  });
  if (is_spoilt) Quarantine(*it->second);
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "restart/inheritance.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "idd/shm/abi.h"
#include "platform/logging.h"
#include "restart/descriptor_names.h"

namespace idd::daemon {
namespace {

// Both descriptors of one ring.
struct RingDescriptors {
  ScopedFd table;
  ScopedFd cursors;
  std::vector<std::string> names{};
  // There is more than one of a kind: it is unknown which of them belong together.
  bool is_ambiguous = false;
};

void LogNotInherited(const HeldLease& held, const std::string& error) {
  log::Error("ring.not_inherited", {{"tag", held.lease.tag},
                                    {"ring", held.ring_id},
                                    {"error", error},
                                    {"action", "its leases are abandoned"}});
}

// Finds what an earlier idd left.
class InheritanceReader {
 public:
  InheritanceReader(std::vector<PassedDescriptor>& passed, const std::string& host_id,
                    const std::string& list_id)
      : passed_(passed), host_id_(host_id), list_id_(list_id) {}

  Result<Inheritance> Take() {
    Status status = TakeDescriptors();
    if (!status.ok()) return status;
    const std::vector<HeldLease> leases = result_.held->All();
    for (const HeldLease& held : leases) OpenRing(held);
    for (const HeldLease& held : leases) Classify(held);
    // A ring's leases show which tag it belongs to. A ring without leases has nothing to close.
    for (const auto& [key, descriptors] : descriptors_) {
      for (const std::string& name : descriptors.names) result_.names.push_back(name);
    }
    for (auto& [name, tag] : tags_) result_.tags.push_back(std::move(tag));
    return std::move(result_);
  }

 private:
  Status TakeDescriptors() {
    std::vector<PassedDescriptor> others;
    for (PassedDescriptor& descriptor : passed_) {
      if (const auto part = ParseRingName(descriptor.name)) {
        RingDescriptors& ring = descriptors_[part->ring];
        ScopedFd& fd = part->is_table ? ring.table : ring.cursors;
        if (fd.valid()) ring.is_ambiguous = true;
        fd = std::move(descriptor.fd);
        ring.names.push_back(descriptor.name);
      } else if (descriptor.name == kHeldLeasesName) {
        AdoptLeases(std::move(descriptor.fd));
      } else {
        others.push_back(std::move(descriptor));
      }
    }
    passed_ = std::move(others);
    if (result_.held != nullptr) return Status::Ok();
    Result<std::unique_ptr<HeldLeases>> held = HeldLeases::Create(host_id_);
    if (!held.ok()) return held.status();
    result_.held = std::move(held).value();
    return Status::Ok();
  }

  void AdoptLeases(ScopedFd fd) {
    Result<std::unique_ptr<HeldLeases>> held = HeldLeases::Adopt(std::move(fd), host_id_);
    if (held.ok() && held.value()->id() != list_id_) {
      held = Status(Code::kIncompatible, "another idd has run on this host since");
    }
    if (held.ok()) {
      result_.held = std::move(held).value();
      result_.held_is_kept = true;
      return;
    }
    result_.names.emplace_back(kHeldLeasesName);
    log::Warning("held.not_inherited", {{"error", held.status().message()},
                                        {"action", "what the earlier idd held is abandoned"}});
  }

  void OpenRing(const HeldLease& held) {
    if (held.state != HeldState::kHeld || held.ring_id == 0) return;
    if (!looked_for_.insert(held.ring_id).second) return;
    // The longer one first: only it stands for this ring alone.
    auto it = descriptors_.find(LongRingKey(held.ring_id));
    if (it == descriptors_.end()) it = descriptors_.find(RingKey(held.ring_id));
    if (it == descriptors_.end()) {
      return LogNotInherited(held, "the service manager does not have it");
    }
    if (it->second.is_ambiguous) {
      return LogNotInherited(held, "the service manager has several of its name");
    }
    const std::string tag = ServedName(held.lease.tag);
    auto ring = shm::LeftRing::Open(it->second.table, it->second.cursors, tag);
    if (!ring.ok() || ring.value()->ring_id() != held.ring_id) {
      return LogNotInherited(held, ring.ok() ? "it has another number" : ring.status().message());
    }
    tags_[tag].rings.push_back(
        {.ring = std::move(ring).value(), .names = std::move(it->second.names)});
    descriptors_.erase(it);
    opened_[held.ring_id] = tag;
  }

  void Classify(const HeldLease& held) {
    if (held.state == HeldState::kAsked) {
      result_.asked[held.lease.token] = held.lease.tag;
      return;
    }
    LeaseUse use{.lease = held.lease, .claimed = held.next - held.lease.ids.first};
    if (held.state == HeldState::kClosing) return result_.closing.push_back(std::move(use));
    if (held.state == HeldState::kReturning) return result_.returning.push_back(std::move(use));
    const auto ring = opened_.find(held.ring_id);
    const std::string name = ServedName(held.lease.tag);
    if (held.ring_id != 0 && (ring == opened_.end() || ring->second != name)) {
      result_.held->RecordClosing(use.lease.token, use.claimed);
      return result_.closing.push_back(std::move(use));
    }
    LeftTag& tag = tags_[name];
    tag.tag = name;
    tag.leases.push_back(held);
  }

  std::vector<PassedDescriptor>& passed_;
  const std::string& host_id_;
  const std::string& list_id_;
  std::map<std::string, RingDescriptors> descriptors_;  // by the key in their names
  std::set<std::uint64_t> looked_for_;
  std::map<std::uint64_t, std::string> opened_;  // tags, by ring
  std::map<std::string, LeftTag> tags_;
  Inheritance result_;
};

// Closes the old rings of one tag.
class RingCloser {
 public:
  RingCloser(LeftTag left, HeldLeases& held) : left_(std::move(left)), held_(held) {}

  InheritedTag Take() {
    CloseRings();
    for (const HeldLease& lease : left_.leases) Classify(lease);
    Arrange();
    return std::move(result_);
  }

 private:
  void CloseRings() {
    for (LeftTagRing& left : left_.rings) {
      left.ring->Close();
      InheritedRing inherited{.tag = left_.tag, .tokens = {}, .ring = std::move(left.ring)};
      const std::uint64_t ring_id = inherited.ring->ring_id();
      for (const HeldLease& held : left_.leases) {
        if (held.ring_id != ring_id) continue;
        inherited.tokens.push_back(held.lease.token);
        if (IsForged(*inherited.ring, held)) forged_.insert(ring_id);
      }
      rings_[ring_id] = inherited.ring.get();
      result_.rings.push_back(std::move(inherited));
      for (std::string& name : left.names) result_.names.push_back(std::move(name));
    }
  }

  // True if the cursor is below a value that the earlier idd had seen or claimed. A client that has
  // written into one cursor may have written into all, so the whole ring then counts as forged.
  static bool IsForged(const shm::LeftRing& ring, const HeldLease& held) {
    return ring.NextOf(held.lease.ids).value_or(held.next) < held.next;
  }

  void Classify(const HeldLease& held) {
    LeaseUse use{.lease = held.lease, .claimed = held.next - held.lease.ids.first};
    const std::optional<std::uint64_t> next = NextOf(held);
    if (!next.has_value()) return Close(use);
    use.claimed = *next - held.lease.ids.first;
    if (use.available() == 0) return Close(use);
    held_.RecordUsed(held.lease.token, *next, 0);
    // The settings of the newest lease count.
    if (held.record.next_id > result_.record.next_id) result_.record = held.record;
    result_.leases.push_back(std::move(use));
  }

  // The first id of the lease that was not and will not be claimed. Nothing: unknown.
  [[nodiscard]] std::optional<std::uint64_t> NextOf(const HeldLease& held) {
    if (held.ring_id == 0) return held.next;
    shm::LeftRing& ring = *rings_.at(held.ring_id);
    if (!forged_.contains(held.ring_id) && ring.StaysClosed()) {
      return ring.NextOf(held.lease.ids).value_or(held.next);
    }
    log::Error("ring.quarantined", {{"tag", held.lease.tag},
                                    {"ring", held.ring_id},
                                    {"leases", 1},
                                    {"reason", "a client forged a cursor"},
                                    {"action", "what is left of the lease is abandoned"}});
    return std::nullopt;
  }

  void Close(const LeaseUse& use) {
    held_.RecordClosing(use.lease.token, use.claimed);
    result_.closing.push_back(use);
  }

  // Ids must rise in a ring, and all leases of a ring are of one worker id. Leases that a ring has
  // no room for, and those of another worker id than the newest, go back.
  void Arrange() {
    std::sort(
        result_.leases.begin(), result_.leases.end(),
        [](const LeaseUse& a, const LeaseUse& b) { return a.lease.ids.first < b.lease.ids.first; });
    std::vector<LeaseUse> leases;
    for (LeaseUse& use : result_.leases) {
      const bool rises = leases.empty() || use.lease.ids.first >= leases.back().lease.ids.limit;
      if (!rises) {
        Close(use);
      } else if (leases.size() == shm::kSlotCount ||
                 use.lease.tag != result_.leases.back().lease.tag) {
        held_.RecordReturning(use.lease.token, use.claimed);
        result_.returning.push_back(std::move(use));
      } else {
        leases.push_back(std::move(use));
      }
    }
    result_.leases = std::move(leases);
  }

  LeftTag left_;
  HeldLeases& held_;
  std::map<std::uint64_t, shm::LeftRing*> rings_;
  std::set<std::uint64_t> forged_;  // rings
  InheritedTag result_;
};

}  // namespace

Result<Inheritance> Inherit(std::vector<PassedDescriptor>& passed, const std::string& host_id,
                            const std::string& list_id) {
  return InheritanceReader(passed, host_id, list_id).Take();
}

InheritedTag CloseOldRings(LeftTag left, HeldLeases& held) {
  return RingCloser(std::move(left), held).Take();
}

std::uint64_t LeftTag::first_id() const {
  std::uint64_t first = shm::kMaxLimit;
  for (const HeldLease& held : leases) first = std::min(first, held.lease.ids.first);
  return first;
}

const TagRecord* LeftTag::settings() const {
  const auto newest = std::max_element(
      leases.begin(), leases.end(),
      [](const HeldLease& a, const HeldLease& b) { return a.record.next_id < b.record.next_id; });
  return newest == leases.end() ? nullptr : &newest->record;
}

}  // namespace idd::daemon

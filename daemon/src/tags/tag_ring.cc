// SPDX-License-Identifier: Apache-2.0
#include "tags/tag_ring.h"

#include <algorithm>
#include <chrono>

#include "idd/base/check.h"
#include "idd/base/clock.h"
#include "platform/descriptor_limit.h"
#include "platform/logging.h"
#include "restart/descriptor_names.h"

namespace idd::daemon {

Result<std::unique_ptr<TagRing>> TagRing::Create(const std::string& tag, std::uint64_t floor,
                                                 DescriptorStore& descriptors,
                                                 const RingShape& shape) {
  shm::RingOptions options{
      .tag = tag, .ring_id = NewRingId(descriptors), .lane_count = shape.lane_count};
  if (shape.layout.has_value()) options.time = shape.layout->OfRing();
  Result<std::unique_ptr<shm::RingMemory>> memory = shm::RingMemory::Create(options);
  Status status = memory.status();
  if (status.ok()) {
    const int highest = std::max(memory.value()->table_fd(), memory.value()->cursors_fd());
    status = CheckRoomBeside(highest);
  }
  if (!status.ok()) {
    FreeRingId(descriptors, options.ring_id);
    log::Error("ring.create_failed", {{"tag", tag}, {"error", status.message()}},
               log::Pace::kSeldom);
    return status;
  }
  return std::unique_ptr<TagRing>(
      new TagRing(std::move(memory).value(), floor, descriptors, shape));
}

TagRing::TagRing(std::unique_ptr<shm::RingMemory> memory, std::uint64_t floor,
                 DescriptorStore& descriptors, const RingShape& shape)
    : descriptors_(descriptors),
      memory_(std::move(memory)),
      writer_(memory_->writable_table(), memory_->cursors(), floor, memory_->lanes()),
      shape_(shape) {
  descriptors_.Keep(TableName(ring_id()), table_fd());
  descriptors_.Keep(CursorsName(ring_id()), cursors_fd());
}

TagRing::~TagRing() {
  for (int call = 0; call < 2; ++call) writer_.ClearOldEnds();
  if (writer_.state() == shm::RingState::kActive) return;  // the next idd continues with it
  DropRing(descriptors_, ring_id());
}

void TagRing::Publish(const Lease& lease, std::uint64_t taken, std::uint64_t mark,
                      std::atomic<std::uint64_t>* witness) {
  writer_.Publish(lease.ids, taken, mark, witness, IdsOf(lease));
  leases_.push_back(lease);
  row_ = lease.tag;
}

shm::IdLayout TagRing::IdsOf(const Lease& lease) const {
  if (!shape_.layout.has_value()) return {};
  const std::optional<CounterOf> counter = ParseCounterName(lease.tag);
  IDD_CHECK(counter.has_value());
  IDD_CHECK(row_.empty() || row_ == lease.tag);
  return shape_.layout->IdsOfWorker(counter->worker);
}

void TagRing::MoveWithTime(shm::TimeBounds bounds) noexcept {
  writer_.MoveWithTime(bounds.now);
  writer_.SetFrontier(bounds.frontier);
}

std::optional<std::uint64_t> TagRing::NextNumber() const {
  const std::optional<shm::RingWriter::Segment> open = writer_.NextOpen();
  return open.has_value() ? std::optional(open->next) : std::nullopt;
}

TimedClaim TagRing::ClaimAt(shm::TimeBounds bounds, std::uint64_t count) {
  MoveWithTime(bounds);
  const std::optional<shm::RingWriter::Segment> open = writer_.NextOpen();
  if (!open.has_value()) return {};
  if (open->next >= bounds.frontier) return {.early = open->next};
  const shm::IdLayout layout = IdsOf(leases_.front());
  const std::uint64_t most = layout.OneTime({open->next, open->ids.limit}).size();
  const shm::IdRange numbers = writer_.Claim(std::min(count, most)).ids;
  if (numbers.empty()) return {};
  // Another process has claimed in between: these numbers are a gap.
  if (numbers.first >= bounds.frontier) return {.early = numbers.first};
  return {.ids = layout.IdsOf(layout.OneTime(numbers))};
}

void TagRing::PublishStats(const shm::TagNumbers& numbers) noexcept {
  if (numbers == published_) return;
  published_ = numbers;
  shm::TagNumbers stamped = numbers;
  const std::chrono::nanoseconds since_boot = MonotonicClock::now().time_since_epoch();
  stamped.written_at_ns = static_cast<std::uint64_t>(since_boot.count());
  writer_.PublishStats(stamped);
}

std::vector<LeaseUse> TagRing::TakeExhausted() {
  std::vector<LeaseUse> exhausted;
  for (const shm::RingWriter::Segment& segment : writer_.RetireExhausted()) {
    IDD_CHECK(!leases_.empty() && leases_.front().ids == segment.ids);
    exhausted.push_back({.lease = std::move(leases_.front()), .claimed = segment.claimed()});
    leases_.pop_front();
  }
  return exhausted;
}

std::vector<LeaseUse> TagRing::Retire(shm::RingState state) {
  // The state comes first: a claimer that finds its segment closed must not wait for another
  // segment here.
  writer_.SetState(state);
  std::vector<LeaseUse> uses;
  for (const shm::RingWriter::Segment& segment : writer_.DrainAll()) {
    IDD_CHECK(!leases_.empty() && leases_.front().ids == segment.ids);
    uses.push_back({.lease = std::move(leases_.front()), .claimed = segment.claimed()});
    leases_.pop_front();
  }
  return uses;
}

std::vector<LeaseUse> TagRing::Snapshot() const {
  std::vector<LeaseUse> uses;
  auto lease = leases_.begin();
  for (const shm::RingWriter::Segment& segment : writer_.Snapshot()) {
    uses.push_back({.lease = *lease++, .claimed = segment.claimed()});
  }
  return uses;
}

std::optional<LaneLevel> TagRing::Lanes() const {
  if (shape_.lane_count == 0) return std::nullopt;
  const shm::LaneSums sums = writer_.Lanes();
  return LaneLevel{.count = shape_.lane_count,
                   .block = writer_.lane_block(),
                   .left = sums.left,
                   .dropped = sums.dropped};
}

RingLevel TagRing::Level() const {
  RingLevel level;
  for (const shm::RingWriter::Segment& segment : writer_.Snapshot()) {
    level.claimed += segment.claimed();
    if (segment.available() == 0) continue;
    level.available += segment.available();
    ++level.open_segments;
    level.newest_size = segment.ids.size();
  }
  return level;
}

}  // namespace idd::daemon

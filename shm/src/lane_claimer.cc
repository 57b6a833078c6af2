// SPDX-License-Identifier: Apache-2.0
#include "idd/shm/lane_claimer.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>

namespace idd::shm {
namespace {

// An interrupted sequence is tried again. A thread that is interrupted so often in a few
// nanoseconds is being single-stepped; it takes the slow way, or drops what it holds.
constexpr int kSequenceTries = 16;

}  // namespace

std::optional<std::ptrdiff_t> RseqOffset() noexcept {
  if constexpr (!kHasLaneSequences) return std::nullopt;
  // Looked up by name: a C library older than 2.35 has neither.
  const void* const offset = ::dlsym(RTLD_DEFAULT, "__rseq_offset");
  const void* const size = ::dlsym(RTLD_DEFAULT, "__rseq_size");
  if (offset == nullptr || size == nullptr) return std::nullopt;
  if (*static_cast<const unsigned int*>(size) == 0) return std::nullopt;  // not registered
  return *static_cast<const std::ptrdiff_t*>(offset);
}

const LaneView* NoLanes() noexcept {
  // The sequence stores into the thread's struct rseq before it looks at lane_count, so claims may
  // use this view only where there is one. libidclient shows it only there.
  static const LaneView view{.rseq_offset = RseqOffset().value_or(0)};
  return &view;
}

LaneClaimer::LaneClaimer(const Table& table, Lane* lanes, RingClaimer& ring,
                         std::ptrdiff_t rseq_offset) noexcept
    : view_{.lanes = lanes,
            .slots = table.slots,
            .lane_count = table.header.lane_count,
            .rseq_offset = rseq_offset},
      live_(table.live),
      ring_(ring) {}

SlotClaim LaneClaimer::FinishOne(const LaneGrant& grant) noexcept {
  LaneGrant last = grant;
  for (int tries = 0; tries < kSequenceTries; ++tries) {
    if (!last.empty()) {
      CountDropped(1);
      GiveUp(last);
    }
    // An empty grant means that the lane is used up, or that the claim was interrupted: only a
    // second look tells.
    last = ClaimOneInLane(view_);
    if (last.empty()) break;
    if (IsPublished(view_, last)) return {.ids = {last.first, last.first + 1}};
  }
  return ClaimAboveLanes(1);
}

SlotClaim LaneClaimer::ClaimMany(std::uint64_t count) noexcept {
  const std::uint64_t n = std::min(count, kMaxClaim);
  if (n >= BlockSize()) return ring_.Claim(n);
  std::uint64_t taken = 0;
  const LaneGrant grant = ClaimManyInLane(view_, n, taken);
  if (!grant.empty()) {
    const LaneGrant last{grant.first + taken - 1, grant.limit, grant.segment};
    if (IsPublished(view_, grant) && IsPublished(view_, last)) {
      return {.ids = {grant.first, grant.first + taken}};
    }
    CountDropped(taken);
    GiveUp(grant);
  }
  return ClaimAboveLanes(n);
}

// Claims a block (Y2), keeps its first `count` ids and makes the rest the lane's (Y3).
SlotClaim LaneClaimer::ClaimAboveLanes(std::uint64_t count) noexcept {
  const std::uint64_t n = std::min(count, kMaxClaim);
  if (!HasLane(view_)) return ring_.Claim(n);
  SlotClaim claim = ring_.Claim(std::max(BlockSize(), n));
  if (claim.ids.size() <= count || claim.ids.empty()) return claim;
  const LaneBlock rest{
      .first = claim.ids.first, .kept = count, .limit = claim.ids.limit, .segment = claim.segment};
  LaneInstall result = LaneInstall::kAborted;
  for (int tries = 0; tries < kSequenceTries && result == LaneInstall::kAborted; ++tries) {
    result = InstallInLane(view_, rest);
  }
  if (result != LaneInstall::kInstalled) CountDropped(claim.ids.size() - count);
  claim.ids.limit = claim.ids.first + count;
  return claim;
}

void LaneClaimer::GiveUp(const LaneGrant& grant) noexcept {
  std::uint64_t given_up = 0;
  for (int tries = 0; tries < kSequenceTries; ++tries) {
    if (!GiveUpInLane(view_, grant, given_up)) continue;
    if (given_up != 0) CountDropped(given_up);
    return;
  }
}

void LaneClaimer::CountDropped(std::uint64_t ids) noexcept {
  if (view_.lane_count == 0) return;
  // Any lane's word will do: observers add them up.
  view_.lanes[0].dropped.fetch_add(ids, std::memory_order_relaxed);  // Y7: only a number
}

std::uint64_t LaneClaimer::BlockSize() const noexcept {
  const std::uint64_t block = live_.lane_block.load(std::memory_order_relaxed);  // Y5: a hint
  return std::clamp<std::uint64_t>(block, 1, kMaxLaneBlock);
}

}  // namespace idd::shm

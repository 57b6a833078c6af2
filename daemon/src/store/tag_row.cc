// SPDX-License-Identifier: Apache-2.0
#include "store/tag_row.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "idd/base/clock.h"
#include "idd/wire/frames.h"
#include "platform/random.h"

namespace idd::daemon {
namespace {

Status BadColumn(const StoredRow& row, int column, const std::string& expected) {
  constexpr const char* kNames[] = {
      "leaf_alloc.biz_tag",     "leaf_alloc.max_id",      "leaf_alloc.step",
      "leaf_alloc.description", "leaf_alloc.update_time", "idd_tag.mode",
      "idd_tag.max_id_allowed", "idd_tag.access",         "idd_tag.refill",
      "idd_tag.max_step",       "idd_tag.max_prefetch",   "idd_tag.outage_tolerance_s",
      "idd_order.tag_order",    "idd_order.lane_block"};
  const std::string tag = row.TextIf(0).value_or("(not a text)");
  return {Code::kInvalid, std::string(kNames[column]) + " of tag '" + tag + "' is " +
                              row.Describe(column) + "; it must be " + expected +
                              "; until then idd leases nothing from the tag"};
}

// Parses columns 8 to 11; NULL is the default. A max_step below the step, which any program may
// have raised in leaf_alloc, counts as the step.
Status ParseRefill(const StoredRow& row, RefillSettings& refill) {
  const std::optional<RefillRule> rule = ParseRefillRule(row.TextIf(8).value_or(std::string()));
  if (!rule.has_value()) return BadColumn(row, 8, "'promise' or 'leaf' and nothing else");
  refill.rule = *rule;
  const auto number = [&row](int column, std::uint64_t otherwise) {
    return row.IsNull(column) ? std::optional<std::uint64_t>(otherwise) : row.UintIf(column);
  };
  const std::optional<std::uint64_t> max_step = number(9, kMaxStep);
  if (!max_step.has_value() || *max_step < 1 || *max_step > kMaxStep) {
    return BadColumn(row, 9, "an integer from 1 to " + std::to_string(kMaxStep));
  }
  refill.max_step = std::max(*max_step, refill.step);
  const std::optional<std::uint64_t> max_prefetch = number(10, DefaultMaxPrefetch(refill.step));
  if (!max_prefetch.has_value() || *max_prefetch < 2) {
    return BadColumn(row, 10, "an integer from 2 to 2^63-1");
  }
  refill.max_prefetch = *max_prefetch;
  const std::optional<std::uint64_t> tolerance =
      number(11, static_cast<std::uint64_t>(kDefaultOutageTolerance.count()));
  const auto longest = static_cast<std::uint64_t>(kMaxOutageTolerance.count());
  if (!tolerance.has_value() || *tolerance > longest) {
    return BadColumn(row, 11, "an integer from 0 to " + std::to_string(longest));
  }
  refill.outage_tolerance = std::chrono::seconds(*tolerance);
  return Status::Ok();
}

// Parses columns 12 and 13.
Status ParseOrder(const StoredRow& row, TagRecord& record) {
  const std::optional<TagOrder> order = ParseTagOrder(row.TextIf(12).value_or(std::string()));
  if (!order.has_value()) return BadColumn(row, 12, "'host' or 'cpu' and nothing else");
  const std::optional<std::uint64_t> block = row.UintIf(13);
  if (!block.has_value() || *block > shm::kMaxLaneBlock || *block == 1) {
    return BadColumn(row, 13, "0 or an integer from 2 to " + std::to_string(shm::kMaxLaneBlock));
  }
  if (record.mode != TagMode::kSegment && *order != TagOrder::kHost) {
    return BadColumn(row, 12, "'host' in mode " + std::string(TagModeName(record.mode)));
  }
  record.order = *order;
  record.lane_block = *block;
  return Status::Ok();
}

Status CheckLaneBlock(const std::string& tag, std::uint64_t block) {
  if (block != 1 && block <= shm::kMaxLaneBlock) return Status::Ok();
  return {Code::kInvalid, "the lane block of tag '" + tag + "' must be from 2 to " +
                              std::to_string(shm::kMaxLaneBlock) +
                              ", or 0 to let idd choose it, not " + std::to_string(block)};
}

Status CheckStep(const std::string& tag, std::uint64_t step) {
  if (step >= 1 && step <= kMaxStep) return Status::Ok();
  return {Code::kInvalid, "the step of tag '" + tag + "' must be from 1 to " +
                              std::to_string(kMaxStep) + ", not " + std::to_string(step)};
}

Status CheckMaxId(const std::string& tag, std::uint64_t max_id) {
  if (max_id <= kMaxId) return Status::Ok();
  return {Code::kInvalid, "the largest id of tag '" + tag + "' must be at most " +
                              std::to_string(kMaxId) + ", not " + std::to_string(max_id)};
}

// Checks the settings of a tag with the step `step`.
Status CheckRefill(const std::string& tag, std::uint64_t step, const RefillChange& refill) {
  const std::string name = "tag '" + tag + "'";
  if (refill.max_step.has_value() && (*refill.max_step < step || *refill.max_step > kMaxStep)) {
    return {Code::kInvalid, "the largest step of " + name + " must be from its step, " +
                                std::to_string(step) + ", to " + std::to_string(kMaxStep) +
                                ", not " + std::to_string(*refill.max_step)};
  }
  if (refill.max_prefetch.has_value() &&
      (*refill.max_prefetch < 2 * step || *refill.max_prefetch > shm::kMaxLimit)) {
    return {Code::kInvalid, "max_prefetch of " + name + " must be from two steps, " +
                                std::to_string(2 * step) + ", to 2^63-1, got " +
                                std::to_string(*refill.max_prefetch)};
  }
  if (refill.outage_tolerance.has_value() && *refill.outage_tolerance > kMaxOutageTolerance) {
    return {Code::kInvalid, "the outage tolerance of " + name + " must be at most " +
                                std::to_string(kMaxOutageTolerance.count()) + " s"};
  }
  return Status::Ok();
}

}  // namespace

Result<TagRecord> ParseTagRow(const StoredRow& row) {
  TagRecord record;
  record.tag = row.TextIf(0).value_or(std::string());
  if (Status status = wire::CheckTagName(record.tag); !status.ok()) {
    return status.WithContext("a row of leaf_alloc has no usable biz_tag");
  }
  const std::optional<std::uint64_t> next_id = row.UintIf(1);
  if (!next_id.has_value()) return BadColumn(row, 1, "an integer from 0 to 2^63-1");
  const std::uint64_t step = row.UintIf(2).value_or(0);
  if (step < 1 || step > kMaxStep) {
    return BadColumn(row, 2, "an integer from 1 to " + std::to_string(kMaxStep));
  }
  record.next_id = *next_id;
  record.step = step;
  record.description = row.TextIf(3).value_or(std::string());
  record.update_time = row.TextIf(4).value_or(std::string());
  const std::optional<TagMode> mode = ParseTagMode(row.TextIf(5).value_or(std::string()));
  if (!mode.has_value()) return BadColumn(row, 5, "'segment', 'snowflake' or 'ticket'");
  record.mode = *mode;
  // The table's own checks may have been switched off when the row was written.
  const std::optional<std::uint64_t> max_id = row.UintIf(6);
  if (!max_id.has_value() || *max_id > kMaxId) {
    return BadColumn(row, 6, "an integer from 0 to " + std::to_string(kMaxId));
  }
  record.max_id = *max_id;
  // An unknown policy must not be taken for 'ring', because that would give clients memory that it
  // may be meant to protect.
  const std::optional<TagAccess> access = ParseTagAccess(row.TextIf(7).value_or(std::string()));
  if (!access.has_value()) return BadColumn(row, 7, "'ring' or 'socket' and nothing else");
  record.access = *access;
  record.refill.step = step;
  if (Status status = ParseRefill(row, record.refill); !status.ok()) return status;
  if (Status status = ParseOrder(row, record); !status.ok()) return status;
  if (record.mode == TagMode::kTicket) {
    record.access = TagAccess::kSocket;
    record.refill.outage_tolerance = std::chrono::seconds(0);
  }
  if (record.mode != TagMode::kSnowflake) return record;
  if (Status status = SetLayout(row.TextIf(14), record); !status.ok()) return status;
  return record;
}

// A rule that names "a*" alone cannot be written: it would name "ab" as well.
Status CheckNewTagName(const std::string& tag) {
  if (Status status = wire::CheckTagName(tag); !status.ok()) return status;
  if (Status status = CheckIsNoCounter(tag); !status.ok()) return status;
  if (tag.find_first_of("*?") == std::string::npos) return Status::Ok();
  return {Code::kInvalid,
          "the name of tag '" + tag +
              "' contains '*' or '?', which stand for other characters in the rules of idd.toml, "
              "so no rule could name this tag alone; use a name without them"};
}

Status CheckNewTag(const NewTag& tag) {
  if (Status status = wire::CheckTagName(tag.tag); !status.ok()) return status;
  if (Status status = CheckStep(tag.tag, tag.step); !status.ok()) return status;
  if (Status status = CheckMaxId(tag.tag, tag.max_id.value_or(kMaxId)); !status.ok()) {
    return status;
  }
  if (tag.snowflake.has_value()) {
    if (Status status = CheckLayout(*tag.snowflake); !status.ok()) return status;
    if (Status status = CheckLifetime(*tag.snowflake, WallClock::now_ms()); !status.ok()) {
      return status;
    }
    if (tag.tag.size() > kMaxSnowflakeTagBytes) {
      return {Code::kInvalid, "the name of a snowflake tag must have at most " +
                                  std::to_string(kMaxSnowflakeTagBytes) + " bytes, got " +
                                  std::to_string(tag.tag.size())};
    }
  }
  if (Status status = CheckLaneBlock(tag.tag, tag.lane_block); !status.ok()) return status;
  const bool has_order = tag.order != TagOrder::kHost || tag.lane_block != 0;
  if (has_order && tag.mode != TagMode::kSegment) return NoOrderInThisMode();
  return CheckRefill(tag.tag, tag.step, tag.refill);
}

Status CheckTagChange(const TagChange& change) {
  if (change.step.has_value()) {
    if (Status status = CheckStep(change.tag, *change.step); !status.ok()) return status;
  }
  if (change.max_id.has_value()) {
    if (Status status = CheckMaxId(change.tag, *change.max_id); !status.ok()) return status;
  }
  if (Status status = CheckLaneBlock(change.tag, change.lane_block.value_or(0)); !status.ok()) {
    return status;
  }
  // Finds errors that no step could fix; CheckChanged() finds the others.
  return CheckRefill(change.tag, change.step.value_or(1), change.refill);
}

Status CheckStart(const NewTag& tag, std::uint64_t start, std::uint64_t used) {
  const std::string name = "tag '" + tag.tag + "'";
  if (start < used) {
    return {Code::kInvalid, name + " existed before and its ids below " + std::to_string(used) +
                                " are used; it cannot start at " + std::to_string(start)};
  }
  const std::uint64_t max_id = tag.max_id.value_or(kMaxId);
  if (start > max_id) {
    return {Code::kInvalid, "the first id " + std::to_string(start) + " of " + name +
                                " lies above its largest id " + std::to_string(max_id)};
  }
  return Status::Ok();
}

Status CheckSameKind(const NewTag& tag, std::uint64_t used, bool had_workers) {
  const std::string name = "tag '" + tag.tag + "'";
  if (tag.snowflake.has_value() && used > 1) {
    return {Code::kInvalid, name + " existed before in another mode and its ids below " +
                                std::to_string(used) +
                                " are used; in mode snowflake they could come again; choose "
                                "another name"};
  }
  if (!tag.snowflake.has_value() && had_workers) {
    return {Code::kInvalid, "a snowflake " + name +
                                " existed before and its ids are used; in mode " +
                                TagModeName(tag.mode) +
                                " they could come again; choose mode snowflake with the same "
                                "layout, or another name"};
  }
  return Status::Ok();
}

Status SetLayout(const std::optional<std::string>& layout, TagRecord& record) {
  record.snowflake = layout.has_value() ? ParseLayout(*layout) : std::nullopt;
  if (record.snowflake.has_value()) return Status::Ok();
  return {Code::kInvalid, "idd_snowflake.layout of tag '" + record.tag + "' is " +
                              (layout.has_value() ? "'" + *layout + "'" : "missing") +
                              "; it must be like '" + FormatLayout(SnowflakeLayout()) +
                              "'; until then idd leases nothing from the tag"};
}

Status CheckSameIds(const NewTag& tag, const SnowflakeLayout& before) {
  const SnowflakeLayout& now = *tag.snowflake;
  const bool is_same = BitsText(now) == BitsText(before) && now.unit_ms == before.unit_ms &&
                       now.epoch_ms == before.epoch_ms;
  if (is_same) return Status::Ok();
  return {Code::kInvalid,
          "a snowflake tag '" + tag.tag + "' existed before with the layout '" +
              FormatLayout(before) +
              "'; with other bits, another unit or another epoch its ids would come again"};
}

NewTag CounterTag(const WorkerChoice& choice) {
  return {.tag = CounterName(choice.tag, choice.worker),
          .step = 1,
          .start = std::nullopt,
          .max_id = choice.last_number,
          .description = "numbers of worker " + std::to_string(choice.worker) +
                         " of the snowflake tag " + choice.tag};
}

Status NoOwner(const std::string& counter) {
  return {Code::kUnavailable,
          "this host does not own the worker id of '" + counter + "'; it takes another one"};
}

Status NoSuchSettingOfTickets() {
  return {Code::kInvalid,
          "a tag of mode ticket leases exactly what claims wait for, and its ids are claimed over "
          "the socket: step, refill settings and access ring do not apply"};
}

Status NoSuchSettingOfSnowflakes() {
  return {Code::kInvalid,
          "a tag of mode snowflake leases time: step, start, max-id and refill settings do not "
          "apply, except the outage tolerance"};
}

Status NoOrderInThisMode() {
  return {Code::kInvalid, "order cpu and lane-block are for mode segment only"};
}

Status CheckChanged(const TagChange& change, const TagRecord& after) {
  const bool has_order = change.order.value_or(TagOrder::kHost) != TagOrder::kHost ||
                         change.lane_block.value_or(0) != 0;
  if (has_order && after.mode != TagMode::kSegment) return NoOrderInThisMode();
  RefillChange counts = change.refill;
  counts.outage_tolerance.reset();
  if (after.mode == TagMode::kSnowflake &&
      (change.step.has_value() || change.max_id.has_value() || counts != RefillChange{})) {
    return NoSuchSettingOfSnowflakes();
  }
  const bool has_prefetch = change.step.has_value() || change.refill != RefillChange{};
  if (after.mode == TagMode::kTicket && (has_prefetch || change.access == TagAccess::kRing)) {
    return NoSuchSettingOfTickets();
  }
  if (Status status = CheckRefill(change.tag, after.step, change.refill); !status.ok()) {
    return status;
  }
  // The next id may be just above the largest id, which stops the tag.
  if (change.max_id.has_value() && after.next_id > *change.max_id + 1) {
    return {Code::kInvalid,
            "the ids of tag '" + change.tag + "' below " + std::to_string(after.next_id) +
                " are leased already; its largest id cannot be " + std::to_string(*change.max_id)};
  }
  return Status::Ok();
}

std::string RangeText(shm::IdRange ids) {
  return "[" + std::to_string(ids.first) + ", " + std::to_string(ids.limit) + ")";
}

Status CheckLeaseRequest(const LeaseRequest& request) {
  if (request.count < 1 || request.count > kMaxStep) {
    return {Code::kInvalid, "a lease of tag '" + request.tag + "' is for 1 to " +
                                std::to_string(kMaxStep) + " ids, not " +
                                std::to_string(request.count)};
  }
  if (request.high_water_mark > shm::kMaxLimit || request.floor > shm::kMaxLimit) {
    return {Code::kInvalid, "the high-water mark or floor of tag '" + request.tag +
                                "' lies beyond 2^63-1; the state dir is damaged"};
  }
  if (!IsToken(request.token)) {
    return {Code::kInvalid, "the token of a lease of tag '" + request.tag +
                                "' is not 32 lower-case hexadecimal digits"};
  }
  return Status::Ok();
}

Status CheckClosure(const LeaseClosure& closure, shm::IdRange ids) {
  const std::string lease = "lease " + closure.token + " of tag '" + closure.tag + "'";
  if (closure.claimed > ids.size()) {
    return {Code::kInvalid, lease + " has " + std::to_string(ids.size()) + " ids, so " +
                                std::to_string(closure.claimed) + " cannot be claimed"};
  }
  if (closure.state == LeaseState::kExhausted && closure.claimed != ids.size()) {
    return {Code::kInvalid, lease + " is not exhausted with " + std::to_string(closure.claimed) +
                                " of " + std::to_string(ids.size()) + " ids claimed"};
  }
  return Status::Ok();
}

Result<LeaseRecord> ParseLeaseRow(const StoredRow& row) {
  LeaseRecord lease;
  lease.token = row.TextIf(0).value_or(std::string());
  lease.tag = row.TextIf(1).value_or(std::string());
  const auto bad = [&](int column, const char* name, const std::string& expected) {
    return Status(Code::kInvalid, std::string("idd_lease.") + name + " of tag '" + lease.tag +
                                      "', token '" + lease.token + "' is " + row.Describe(column) +
                                      "; it must be " + expected);
  };
  const std::optional<std::string> host = row.TextIf(2);
  if (!row.TextIf(0).has_value()) return bad(0, "token", "a text");
  if (!row.TextIf(1).has_value()) return bad(1, "biz_tag", "a text");
  if (!host.has_value()) return bad(2, "host", "a text");
  lease.host = *host;
  const std::optional<std::uint64_t> base = row.UintIf(3);
  const std::optional<std::uint64_t> limit = row.UintIf(4);
  if (!base.has_value()) return bad(3, "base", "an integer from 0 to 2^63-1");
  if (!limit.has_value() || *limit <= *base) return bad(4, "limit", "a number above base");
  lease.ids = {*base, *limit};
  const auto state = ParseLeaseState(row.TextIf(5).value_or(std::string()));
  if (!state.has_value()) return bad(5, "state", "the state of a lease");
  lease.state = *state;
  constexpr const char* kCounts[] = {"claimed", "returned", "abandoned"};
  std::uint64_t* const counts[] = {&lease.claimed, &lease.returned, &lease.abandoned};
  for (int i = 0; i < 3; ++i) {
    const std::optional<std::uint64_t> count = row.UintIf(6 + i);
    if (!count.has_value() || *count > lease.ids.size()) {
      return bad(6 + i, kCounts[i], "at most the number of ids of the lease");
    }
    *counts[i] = *count;
  }
  lease.leased_at = row.TextIf(9).value_or(std::string());
  lease.closed_at = row.TextIf(10).value_or(std::string());
  lease.seq = row.UintIf(11).value_or(0);
  return lease;
}

Result<std::vector<LeaseRecord>> ParseLeaseRows(SqlQuery& rows) {
  std::vector<LeaseRecord> leases;
  while (rows.Next()) {
    Result<LeaseRecord> lease = ParseLeaseRow(rows);
    if (!lease.ok()) return lease.status();
    leases.push_back(std::move(lease).value());
  }
  if (!rows.Finish().ok()) return rows.Finish();
  return leases;
}

}  // namespace idd::daemon

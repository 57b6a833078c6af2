// SPDX-License-Identifier: Apache-2.0
#include "restart/held_leases.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <new>
#include <string_view>
#include <utility>

#include "idd/base/check.h"
#include "idd/shm/abi.h"
#include "platform/logging.h"
#include "platform/random.h"

namespace idd::daemon {
namespace {

// "IDDHELD2" in memory order on a little-endian host. Another layout needs another number: leases
// in a list with another layout are abandoned, as after a crash.
constexpr std::uint64_t kMagic = 0x32444c4548444449ULL;
constexpr std::size_t kTokenBytes = 32;
constexpr std::size_t kHostBytes = 128;
// Room for twice as many tags as a host has descriptors for, with two leases each. Pages without an
// entry take no memory.
constexpr std::uint32_t kEntryCount = 131072;

template <std::size_t kBytes>
void Put(std::array<char, kBytes>& field, std::string_view text) {
  field.fill('\0');
  std::copy_n(text.begin(), std::min(text.size(), kBytes), field.begin());
}

template <std::size_t kBytes>
std::string Get(const std::array<char, kBytes>& field) {
  return {field.begin(), std::find(field.begin(), field.end(), '\0')};
}

}  // namespace

// Words that are stored while the entry is in use are atomics: the process may be killed between
// any two, and the compiler must keep their order.
struct HeldLeases::Entry {
  std::atomic<std::uint64_t> state;  // HeldState; stored last (release)
  std::atomic<std::uint64_t> next;
  std::atomic<std::uint64_t> ring_id;
  std::uint64_t first;
  std::uint64_t limit;
  std::uint64_t previous_mark;
  std::uint64_t step;
  std::uint64_t max_step;
  std::uint64_t max_prefetch;
  std::uint64_t max_id;
  std::uint64_t outage_tolerance_s;
  std::uint32_t rule;    // RefillRule
  std::uint16_t access;  // TagAccess
  std::uint16_t mode;    // TagMode
  std::array<char, kTokenBytes> token;
  std::array<char, shm::kMaxTagBytes> tag;  // the rest is zero
  // SnowflakeLayout, in mode snowflake.
  std::int64_t epoch_ms;
  std::uint32_t max_ahead_ms;
  std::uint32_t unit_ms;
  std::uint32_t clock;
  std::uint8_t time_bits;
  std::uint8_t worker_bits;
  std::uint8_t sequence_bits;
  std::uint8_t order;  // TagOrder; 0, as in a list of an earlier version, is kHost
  std::uint32_t lane_block;
  std::array<std::uint8_t, 36> reserved;

  [[nodiscard]] SnowflakeLayout Layout() const {
    return {.time_bits = time_bits,
            .worker_bits = worker_bits,
            .sequence_bits = sequence_bits,
            .unit_ms = unit_ms,
            .epoch_ms = epoch_ms,
            .clock = static_cast<shm::TagClock>(clock),
            .max_ahead_ms = max_ahead_ms};
  }
  void SetLayout(const SnowflakeLayout& layout) {
    time_bits = static_cast<std::uint8_t>(layout.time_bits);
    worker_bits = static_cast<std::uint8_t>(layout.worker_bits);
    sequence_bits = static_cast<std::uint8_t>(layout.sequence_bits);
    unit_ms = layout.unit_ms;
    epoch_ms = layout.epoch_ms;
    clock = static_cast<std::uint32_t>(layout.clock);
    max_ahead_ms = layout.max_ahead_ms;
  }
  // A lease of a snowflake tag must be of a worker, and its layout must be one.
  [[nodiscard]] bool HasLayout() const {
    const bool is_clock = clock == static_cast<std::uint32_t>(shm::TagClock::kClaimer) ||
                          clock == static_cast<std::uint32_t>(shm::TagClock::kDaemon);
    return is_clock && CheckLayout(Layout()).ok() && ParseCounterName(Get(tag)).has_value();
  }

  void Store(HeldState to) {
    state.store(static_cast<std::uint64_t>(to), std::memory_order_release);  // E1, with E2
  }
  [[nodiscard]] HeldState Load() const {
    return static_cast<HeldState>(state.load(std::memory_order_acquire));  // E2, with E1
  }
};

struct HeldLeases::Header {
  std::uint64_t magic;
  std::atomic<std::uint64_t> used;  // entries at and above it were never used
  std::array<char, kHostBytes> host;
  std::array<char, kTokenBytes> id;
};

struct HeldLeases::Layout {
  Header header;
  std::array<Entry, kEntryCount> entries;
};

HeldLeases::HeldLeases(ScopedFd fd, shm::MappedMemory memory)
    : fd_(std::move(fd)), memory_(std::move(memory)) {}
HeldLeases::~HeldLeases() = default;

HeldLeases::Layout& HeldLeases::layout() const noexcept {
  return *static_cast<Layout*>(memory_.address());
}

Result<std::unique_ptr<HeldLeases>> HeldLeases::Create(const std::string& host_id) {
  static_assert(sizeof(Entry) == 320);
  static_assert(std::is_trivially_destructible_v<Layout>);
  Result<ScopedFd> fd = shm::MakeMemfd("idd-held", sizeof(Layout));
  if (!fd.ok()) return fd.status();
  Result<shm::MappedMemory> memory =
      shm::MappedMemory::Map(fd.value().get(), shm::MapAccess::kReadWrite, sizeof(Layout));
  if (!memory.ok()) return memory.status();
  Status sealed = shm::SealMemfd(fd.value().get(), shm::MemfdSeals::kFixed);
  if (!sealed.ok()) return sealed;
  std::unique_ptr<HeldLeases> held(
      new HeldLeases(std::move(fd).value(), std::move(memory).value()));
  // The pages are zero, which means "free" for each entry.
  Header& header = held->layout().header;
  Put(header.host, host_id);
  Put(header.id, RandomToken());
  header.magic = kMagic;
  return held;
}

Result<std::unique_ptr<HeldLeases>> HeldLeases::Adopt(ScopedFd fd, const std::string& host_id) {
  if (shm::CheckMemfd(fd.get(), shm::MemfdSeals::kFixed, sizeof(Layout)) !=
      shm::MemfdOutcome::kOk) {
    return Status(Code::kIncompatible, "it is not a list of held leases that this idd knows");
  }
  Result<shm::MappedMemory> memory =
      shm::MappedMemory::Map(fd.get(), shm::MapAccess::kReadWrite, sizeof(Layout));
  if (!memory.ok()) return memory.status();
  std::unique_ptr<HeldLeases> held(new HeldLeases(std::move(fd), std::move(memory).value()));
  Header& header = held->layout().header;
  if (header.magic != kMagic) {
    return Status(Code::kIncompatible, "its layout is another idd version's");
  }
  if (Get(header.host) != host_id.substr(0, kHostBytes)) {
    return Status(Code::kIncompatible, "it is of host '" + Get(header.host) + "'");
  }
  if (header.used.load(std::memory_order_relaxed) > kEntryCount) {  // E4
    return Status(Code::kIncompatible, "its count of entries is out of range");
  }
  return held;
}

std::string HeldLeases::id() const { return Get(layout().header.id); }

std::string HeldLeases::host_id() const { return Get(layout().header.host); }

bool HeldLeases::MakesSense(const Entry& entry) {
  const HeldState state = entry.Load();
  if (state > HeldState::kReturning || !IsToken({entry.token.data(), entry.token.size()}) ||
      entry.tag[0] == '\0')
    return false;
  if (state == HeldState::kAsked) return true;
  const std::uint64_t next = entry.next.load(std::memory_order_relaxed);  // E6
  return entry.first < entry.limit && entry.limit <= shm::kMaxLimit &&
         entry.limit - entry.first <= shm::kClosingStep / 2 && entry.first <= next &&
         next <= entry.limit && entry.step >= 1 && entry.step <= kMaxStep &&
         entry.max_step >= entry.step && entry.max_step <= kMaxStep &&
         entry.max_prefetch >= 2 * entry.step && entry.max_id < shm::kMaxLimit &&
         entry.outage_tolerance_s <= static_cast<std::uint64_t>(kMaxOutageTolerance.count()) &&
         entry.rule <= static_cast<std::uint32_t>(RefillRule::kLeaf) &&
         entry.access <= static_cast<std::uint16_t>(TagAccess::kSocket) &&
         entry.mode <= static_cast<std::uint16_t>(TagMode::kTicket) &&
         entry.order <= static_cast<std::uint8_t>(TagOrder::kCpu) &&
         entry.lane_block <= shm::kMaxLaneBlock &&
         (entry.mode != static_cast<std::uint16_t>(TagMode::kSnowflake) || entry.HasLayout());
}

HeldLease HeldLeases::Read(const Entry& entry) {
  HeldLease held;
  held.state = entry.Load();
  held.lease.token = {entry.token.begin(), entry.token.end()};
  held.lease.tag = Get(entry.tag);
  if (held.state == HeldState::kAsked) return held;
  held.lease.ids = {entry.first, entry.limit};
  held.lease.previous_mark = entry.previous_mark;
  held.next = entry.next.load(std::memory_order_relaxed);        // E6
  held.ring_id = entry.ring_id.load(std::memory_order_relaxed);  // E6
  held.record.tag = ServedName(held.lease.tag);
  held.record.next_id = entry.limit;
  held.record.step = entry.step;
  held.record.max_id = entry.max_id;
  held.record.access = static_cast<TagAccess>(entry.access);
  held.record.mode = static_cast<TagMode>(entry.mode);
  held.record.order = static_cast<TagOrder>(entry.order);
  held.record.lane_block = entry.lane_block;
  if (held.record.mode == TagMode::kSnowflake) held.record.snowflake = entry.Layout();
  held.record.refill = {.rule = static_cast<RefillRule>(entry.rule),
                        .step = entry.step,
                        .max_step = entry.max_step,
                        .max_prefetch = entry.max_prefetch,
                        .outage_tolerance = std::chrono::seconds(entry.outage_tolerance_s)};
  return held;
}

std::vector<HeldLease> HeldLeases::All() {
  std::vector<HeldLease> all;
  by_token_.clear();
  free_.clear();
  const auto used =
      static_cast<std::uint32_t>(layout().header.used.load(std::memory_order_relaxed));  // E4
  for (std::uint32_t i = 0; i < used; ++i) {
    Entry& entry = layout().entries[i];
    const bool in_use = entry.Load() != HeldState::kFree && MakesSense(entry);
    if (!in_use) {
      entry.Store(HeldState::kFree);
      free_.insert(i);
      continue;
    }
    HeldLease held = Read(entry);
    by_token_[held.lease.token] = i;
    all.push_back(std::move(held));
  }
  return all;
}

HeldLeases::Entry* HeldLeases::Find(const std::string& token) const {
  const auto it = by_token_.find(token);
  return it == by_token_.end() ? nullptr : &layout().entries[it->second];
}

void HeldLeases::RecordAsked(const std::string& token, const std::string& tag) {
  IDD_CHECK(token.size() == kTokenBytes && tag.size() <= shm::kMaxTagBytes);
  Header& header = layout().header;
  std::uint64_t index = header.used.load(std::memory_order_relaxed);  // E4
  if (!free_.empty()) {
    index = free_.extract(free_.begin()).value();
  } else if (index == kEntryCount) {
    if (unnoted_++ == 0) {
      log::Warning("held.full", {{"leases", std::uint64_t{kEntryCount}},
                                 {"action", "further leases are not kept over a restart"}});
    }
    return;
  }
  Entry& entry = layout().entries[index];
  if (index == header.used.load(std::memory_order_relaxed)) {  // E4
    header.used.store(index + 1, std::memory_order_release);   // E3
  }
  Put(entry.token, token);
  Put(entry.tag, tag);
  entry.Store(HeldState::kAsked);
  by_token_[token] = static_cast<std::uint32_t>(index);
}

void HeldLeases::RecordGranted(const Lease& lease, const TagRecord& record) {
  Entry* const entry = Find(lease.token);
  if (entry == nullptr) return;
  entry->first = lease.ids.first;
  entry->limit = lease.ids.limit;
  entry->previous_mark = lease.previous_mark;
  entry->step = record.refill.step;
  entry->max_step = record.refill.max_step;
  entry->max_prefetch = record.refill.max_prefetch;
  entry->max_id = record.max_id;
  entry->outage_tolerance_s = static_cast<std::uint64_t>(record.refill.outage_tolerance.count());
  entry->rule = static_cast<std::uint32_t>(record.refill.rule);
  entry->access = static_cast<std::uint16_t>(record.access);
  entry->mode = static_cast<std::uint16_t>(record.mode);
  entry->order = static_cast<std::uint8_t>(record.order);
  entry->lane_block = static_cast<std::uint32_t>(record.lane_block);
  if (record.snowflake.has_value()) entry->SetLayout(*record.snowflake);
  entry->next.store(lease.ids.first, std::memory_order_relaxed);  // E5, before E1
  entry->ring_id.store(0, std::memory_order_relaxed);             // E5
  entry->Store(HeldState::kHeld);
}

// `next` comes first: no id below it is handed out again, whatever the ring shows.
void HeldLeases::RecordUsed(const std::string& token, std::uint64_t next, std::uint64_t ring_id) {
  Entry* const entry = Find(token);
  if (entry == nullptr) return;
  entry->next.store(next, std::memory_order_release);        // E5
  entry->ring_id.store(ring_id, std::memory_order_release);  // E5
}

std::atomic<std::uint64_t>* HeldLeases::NextOf(const std::string& token) const {
  Entry* const entry = Find(token);
  return entry == nullptr ? nullptr : &entry->next;
}

void HeldLeases::RecordEnd(const std::string& token, std::uint64_t claimed, HeldState state) {
  Entry* const entry = Find(token);
  if (entry == nullptr || entry->Load() == HeldState::kAsked) return;
  entry->next.store(entry->first + claimed, std::memory_order_release);  // E5
  entry->Store(state);
}

void HeldLeases::RecordClosing(const std::string& token, std::uint64_t claimed) {
  RecordEnd(token, claimed, HeldState::kClosing);
}

void HeldLeases::RecordReturning(const std::string& token, std::uint64_t claimed) {
  RecordEnd(token, claimed, HeldState::kReturning);
}

void HeldLeases::Forget(const std::string& token) {
  const auto it = by_token_.find(token);
  if (it == by_token_.end()) return;
  layout().entries[it->second].Store(HeldState::kFree);
  free_.insert(it->second);
  by_token_.erase(it);
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// idclient.hpp: libidclient for C++20, header-only over the C ABI of idclient.h.
//
//   idclient::Client client;                 // $IDD_SOCKET, else /run/idd/idd.sock
//   idclient::Tag orders = client.tag("orders");
//   std::uint64_t id = orders.claim();
//
// Thread safety, cancellation and fork, also in signal handlers: as in idclient.h. A Tag is a
// handle and may be copied freely, but must not outlive its Client. Failures are thrown as
// idclient::Error, which says what failed and why; the functions that begin with try_ do not throw.
// A claim that finds ids in the ring is inlined into the caller: one atomic add and a look at
// memory that is in the cache.
#ifndef IDCLIENT_HPP_
#define IDCLIENT_HPP_

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "idclient.hpp needs C++20 (-std=c++20); programs in older C++ can include idclient.h"
#endif

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "idclient/idclient.h"
#include "idclient/thread_block.h"
#include "idd/shm/claim_point.h"
#include "idd/shm/lane_sequences.h"

namespace idclient {

// A failure, with the status of the C call and its error message.
class Error : public std::runtime_error {
 public:
  // Of the calling thread's last failed call.
  explicit Error(idclient_status status) : Error(status, idclient_last_error()) {}
  Error(idclient_status status, const std::string& message)
      : std::runtime_error(std::string(idclient_status_name(status)) + ": " + message),
        status_(status) {}
  [[nodiscard]] idclient_status status() const noexcept { return status_; }
  // Whether the same call may succeed later.
  [[nodiscard]] bool retryable() const noexcept { return idclient_status_retryable(status_) != 0; }

 private:
  idclient_status status_;
};

// A value, or the status that says why there is none; idclient_last_error() has the message until
// the thread's next call. Used like std::expected<T, idclient_status> of C++23.
template <typename T>
class [[nodiscard]] Expected {
 public:
  constexpr Expected(T value) noexcept : value_(std::move(value)) {}
  constexpr Expected(idclient_status error) noexcept : error_(error) {}

  [[nodiscard]] constexpr bool has_value() const noexcept { return error_ == IDCLIENT_OK; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return has_value(); }
  // Precondition: has_value().
  [[nodiscard]] constexpr const T& operator*() const noexcept { return value_; }
  [[nodiscard]] constexpr const T* operator->() const noexcept { return &value_; }
  // Throws Error without a value, with the message of the thread's last failed call.
  [[nodiscard]] const T& value() const {
    if (!has_value()) throw Error(error_);
    return value_;
  }
  [[nodiscard]] constexpr T value_or(T other) const noexcept {
    return has_value() ? value_ : std::move(other);
  }
  // IDCLIENT_OK with a value.
  [[nodiscard]] constexpr idclient_status error() const noexcept { return error_; }

 private:
  T value_{};
  idclient_status error_ = IDCLIENT_OK;
};

using LogFunction = std::function<void(idclient_log_level level, std::string_view message)>;

struct Options {
  std::string socket_path{};                   // empty: $IDD_SOCKET, else /run/idd/idd.sock
  std::chrono::milliseconds timeout{0};        // longest wait on a dry ring; 0: 500 ms
  std::optional<std::uint32_t> trusted_uid{};  // may run idd, besides root, this user, user idd
  bool open_once = false;                      // no wait for a daemon that is not there
  LogFunction log{};                           // as idclient_options::log; what it throws is lost
};

struct TagOptions {
  std::uint32_t block_size = 0;  // as in idclient_tag_options; 0: every claim is made in the ring
};

// Contiguous ids [first, first + count): for (std::uint64_t id : range).
struct Range {
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::uint64_t;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::uint64_t*;
    using reference = std::uint64_t;

    constexpr iterator() noexcept = default;
    constexpr explicit iterator(std::uint64_t id) noexcept : id_(id) {}
    [[nodiscard]] constexpr std::uint64_t operator*() const noexcept { return id_; }
    constexpr iterator& operator++() noexcept {
      ++id_;
      return *this;
    }
    constexpr iterator operator++(int) noexcept { return iterator(id_++); }
    friend constexpr bool operator==(const iterator&, const iterator&) noexcept = default;

   private:
    std::uint64_t id_ = 0;
  };

  std::uint64_t first = 0;
  std::size_t count = 0;

  [[nodiscard]] constexpr iterator begin() const noexcept { return iterator(first); }
  [[nodiscard]] constexpr iterator end() const noexcept { return iterator(first + count); }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return count; }
  [[nodiscard]] constexpr bool empty() const noexcept { return count == 0; }
};

namespace internal {

// A wait as the C functions take it; too long for them if it is negative or does not fit.
[[nodiscard]] constexpr std::uint32_t Milliseconds(std::chrono::milliseconds timeout) noexcept {
  const auto count = timeout.count();
  return count < 0 || count > std::numeric_limits<std::uint32_t>::max()
             ? std::numeric_limits<std::uint32_t>::max()
             : static_cast<std::uint32_t>(count);
}

}  // namespace internal

// One tag. Lives as long as its Client, or until it is closed. One that was made without a Client
// refuses every claim as INVALID.
class Tag {
 public:
  Tag() noexcept = default;

  // One id. Throws Error.
  [[nodiscard, gnu::always_inline]] std::uint64_t claim() const {
    const Range fast = ClaimOne();
    if (fast.count != 0) [[likely]]
      return fast.first;
    return ClaimByCall();
  }
  // The same with a longest wait of its own; 0 ms: no wait, see idclient_claim_timeout.
  [[nodiscard, gnu::always_inline]] std::uint64_t claim(std::chrono::milliseconds timeout) const {
    const Range fast = ClaimOne();
    if (fast.count != 0) [[likely]]
      return fast.first;
    return TryClaimByCall(timeout).value();
  }

  // One id, or the status that says why there is none.
  [[nodiscard, gnu::always_inline]] Expected<std::uint64_t> try_claim() const noexcept {
    const Range fast = ClaimOne();
    if (fast.count != 0) [[likely]]
      return fast.first;
    return TryClaimByCall();
  }
  [[nodiscard, gnu::always_inline]] Expected<std::uint64_t> try_claim(
      std::chrono::milliseconds timeout) const noexcept {
    const Range fast = ClaimOne();
    if (fast.count != 0) [[likely]]
      return fast.first;
    return TryClaimByCall(timeout);
  }

  // Fills `ids` with rising ids and returns how many it could fill before the deadline: fewer than
  // asked only with a status other than IDCLIENT_OK in `why`.
  [[nodiscard]] std::size_t try_claim_many(std::span<std::uint64_t> ids,
                                           idclient_status* why = nullptr) const noexcept {
    std::size_t claimed = 0;
    const idclient_status status = idclient_claim_many(tag_, ids.data(), ids.size(), &claimed);
    if (why != nullptr) *why = status;
    return claimed;
  }

  // Fills all of `ids` or throws Error; the ids claimed until then are lost (a gap).
  void claim_many(std::span<std::uint64_t> ids) const {
    std::size_t claimed = 0;
    const idclient_status status = idclient_claim_many(tag_, ids.data(), ids.size(), &claimed);
    if (status != IDCLIENT_OK) throw Error(status);
  }

  // The largest contiguous run up to `count` that one segment has left; at least one id.
  [[nodiscard]] Range claim_range(std::size_t count) const {
    return try_claim_range(count).value();
  }
  [[nodiscard]] Expected<Range> try_claim_range(std::size_t count) const noexcept {
    Range range;
    const idclient_status status = idclient_claim_range(tag_, count, &range.first, &range.count);
    return status == IDCLIENT_OK ? Expected<Range>(range) : Expected<Range>(status);
  }

  // Throws Error for a handle without a tag.
  [[nodiscard]] idclient_tag_info info() const {
    idclient_tag_info info = IDCLIENT_TAG_INFO_INIT;
    const idclient_status status = idclient_tag_get_info(tag_, &info);
    if (status != IDCLIENT_OK) throw Error(status);
    return info;
  }

  // Ends one Client::tag(); see idclient_tag_close.
  void close() noexcept { idclient_tag_close(std::exchange(*this, Tag()).tag_); }

  [[nodiscard]] explicit operator bool() const noexcept { return tag_ != nullptr; }
  [[nodiscard]] idclient_tag* get() const noexcept { return tag_; }

 private:
  friend class Client;
  explicit Tag(idclient_tag* tag) noexcept
      : tag_(tag),
        view_(static_cast<const idd::shm::ClaimView*>(
            idclient_tag_view(tag, idd::shm::kClaimViewVersion))),
        lanes_(static_cast<const idd::shm::LaneViewPointer*>(
            idclient_tag_lanes(tag, idd::shm::kLaneViewVersion))) {
    if (idclient_tag_blocks(tag, idd::client::kThreadBlockVersion, &blocks_) == 0) blocks_ = {};
  }

  // One id of the ring, of this CPU's lane or of this thread's block, as the tag has it. Empty: the
  // ring's current segment, the lane or the block has ended, or claims of this tag are not inlined.
  [[nodiscard, gnu::always_inline]] Range ClaimOne() const noexcept {
    if (view_ != nullptr) return ClaimInRing(1);
    if (lanes_ != nullptr) return ClaimInLane();
    std::uint64_t id = 0;
    if (blocks_.serial != 0 && idd::client::TakeFromBlock(idclient_thread_blocks, blocks_, id))
      return {id, 1};
    return {};
  }

  // Precondition: there is a view.
  [[nodiscard, gnu::always_inline]] Range ClaimInRing(std::size_t count) const noexcept {
    const idd::shm::SlotClaim claim = idd::shm::ClaimAtPoint(*view_, count);
    if (claim.ids.empty()) [[unlikely]]
      return {};
    if (claim.wakes_daemon) [[unlikely]]
      idclient_tag_wake(tag_);
    return {claim.ids.first, claim.ids.size()};
  }

  // Precondition: there are lanes.
  [[nodiscard, gnu::always_inline]] Range ClaimInLane() const noexcept {
    const idd::shm::LaneView& view = idd::shm::ViewAt(*lanes_);
    const idd::shm::LaneGrant grant = idd::shm::ClaimOneInLane(view);
    if (grant.empty() || !idd::shm::IsPublished(view, grant)) [[unlikely]]
      return {};
    return {grant.first, 1};
  }

  [[nodiscard, gnu::noinline, gnu::cold]] std::uint64_t ClaimByCall() const {
    std::uint64_t id = 0;
    if (const idclient_status status = idclient_claim(tag_, &id); status != IDCLIENT_OK) {
      throw Error(status);
    }
    return id;
  }
  [[nodiscard, gnu::noinline, gnu::cold]] Expected<std::uint64_t> TryClaimByCall() const noexcept {
    std::uint64_t id = 0;
    const idclient_status status = idclient_claim(tag_, &id);
    return status == IDCLIENT_OK ? Expected<std::uint64_t>(id) : Expected<std::uint64_t>(status);
  }
  [[nodiscard, gnu::noinline, gnu::cold]] Expected<std::uint64_t> TryClaimByCall(
      std::chrono::milliseconds timeout) const noexcept {
    std::uint64_t id = 0;
    const idclient_status status =
        idclient_claim_timeout(tag_, internal::Milliseconds(timeout), &id);
    return status == IDCLIENT_OK ? Expected<std::uint64_t>(id) : Expected<std::uint64_t>(status);
  }

  idclient_tag* tag_ = nullptr;
  // Null: claims are not made in the ring by inlined code.
  const idd::shm::ClaimView* view_ = nullptr;
  const idd::shm::LaneViewPointer* lanes_ = nullptr;  // of a tag of order cpu when it was opened
  idd::client::BlockOwner blocks_{};                  // of a tag with a block size
};

// A connection to the host's idd. Move-only.
class Client {
 public:
  // Connects. Throws Error, also for a timeout that the C type cannot hold.
  Client() : Client(Options{}) {}
  explicit Client(const Options& options)
      : log_(options.log ? std::make_unique<LogFunction>(options.log) : nullptr) {
    idclient_options raw = IDCLIENT_OPTIONS_INIT;
    if (!options.socket_path.empty()) raw.socket_path = options.socket_path.c_str();
    raw.timeout_ms = internal::Milliseconds(options.timeout);
    if (options.trusted_uid.has_value()) {
      raw.flags |= IDCLIENT_TRUST_UID;
      raw.trusted_uid = *options.trusted_uid;
    }
    if (options.open_once) raw.flags |= IDCLIENT_OPEN_ONCE;
    if (log_ != nullptr) {
      raw.log = CallLog;
      raw.log_context = log_.get();
    }
    idclient_client* client = nullptr;
    if (const idclient_status status = idclient_open(&raw, &client); status != IDCLIENT_OK) {
      throw Error(status);
    }
    client_.reset(client);
  }

  // The tag's handle; opening it again is cheap and gives the same one. Throws Error.
  [[nodiscard]] Tag tag(std::string_view name, const TagOptions& options = {}) {
    if (name.find('\0') != std::string_view::npos) {
      throw Error(IDCLIENT_INVALID, "a tag's name has no zero byte");
    }
    idclient_tag_options raw = IDCLIENT_TAG_OPTIONS_INIT;
    raw.block_size = options.block_size;
    idclient_tag* tag = nullptr;
    const idclient_status status =
        idclient_tag_open_with(client_.get(), std::string(name).c_str(), &raw, &tag);
    if (status != IDCLIENT_OK) throw Error(status);
    return Tag(tag);
  }

  [[nodiscard]] idclient_client* get() const noexcept { return client_.get(); }

 private:
  struct Close {
    void operator()(idclient_client* client) const noexcept { idclient_close(client); }
  };
  static void CallLog(void* log, idclient_log_level level, const char* message) noexcept {
    try {
      (*static_cast<LogFunction*>(log))(level, message);
    } catch (...) {
    }
  }

  std::unique_ptr<LogFunction> log_;  // outlives the client, which calls it
  std::unique_ptr<idclient_client, Close> client_;
};

}  // namespace idclient

#endif  // IDCLIENT_HPP_

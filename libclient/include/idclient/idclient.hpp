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
// idclient::Error, which says what failed and why; try_claim does not throw. A claim that finds ids
// in the ring is inlined into the caller: one atomic add and a look at memory that is in the cache.
// `idclient` is a struct, not a namespace, because idclient.h declares a struct of that name; the
// C++ names are nested in it. So both headers can be included together.
#ifndef IDCLIENT_HPP_
#define IDCLIENT_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "idclient/idclient.h"
#include "idclient/thread_block.h"
#include "idd/shm/claim_point.h"
#include "idd/shm/lane_sequences.h"

struct idclient {
  class Error;
  class Client;
  class Tag;
  struct Options;
  struct TagOptions;
  struct Range;

  idclient() = delete;  // never made here: the library's object is behind the pointer
};

// A failure, with the status of the C call and its error message.
class idclient::Error : public std::runtime_error {
 public:
  explicit Error(idclient_status status)
      : std::runtime_error(std::string(idclient_status_name(status)) + ": " +
                           idclient_last_error()),
        status_(status) {}
  [[nodiscard]] idclient_status status() const noexcept { return status_; }

 private:
  idclient_status status_;
};

struct idclient::Options {
  std::string socket_path{};                   // empty: $IDD_SOCKET, else /run/idd/idd.sock
  std::chrono::milliseconds timeout{0};        // longest wait on a dry ring; 0: 500 ms
  std::optional<std::uint32_t> trusted_uid{};  // may run idd, besides root, this user, user idd
};

struct idclient::TagOptions {
  std::uint32_t block_size = 0;  // as in idclient_tag_options; 0: every claim is made in the ring
};

// Contiguous ids [first, first + count).
struct idclient::Range {
  std::uint64_t first = 0;
  std::size_t count = 0;
};

// One tag. Lives as long as its Client.
class idclient::Tag {
 public:
  // One id. Throws Error.
  [[nodiscard, gnu::always_inline]] std::uint64_t claim() {
    const Range fast = ClaimOne();
    if (fast.count != 0) [[likely]]
      return fast.first;
    return ClaimByCall();
  }

  // One id, or nothing and, if asked for, the status that says why.
  [[nodiscard, gnu::always_inline]] std::optional<std::uint64_t> try_claim(
      idclient_status* why = nullptr) noexcept {
    // It stays a Range until the end: if two paths make an optional, gcc 12 passes it through
    // memory, which costs more than the add.
    Range claimed = ClaimOne();
    if (claimed.count != 0) [[likely]] {
      if (why != nullptr) *why = IDCLIENT_OK;
    } else {
      claimed = TryClaimByCall(why);
    }
    return claimed.count != 0 ? std::optional<std::uint64_t>(claimed.first) : std::nullopt;
  }

  // Fills `ids` with rising ids and returns how many it could fill before the deadline: fewer than
  // asked only with a status other than IDCLIENT_OK in `why`.
  [[nodiscard]] std::size_t try_claim_many(std::span<std::uint64_t> ids,
                                           idclient_status* why = nullptr) noexcept {
    std::size_t claimed = 0;
    const idclient_status status = idclient_claim_many(tag_, ids.data(), ids.size(), &claimed);
    if (why != nullptr) *why = status;
    return claimed;
  }

  // Fills all of `ids` or throws Error; the ids claimed until then are lost (a gap).
  void claim_many(std::span<std::uint64_t> ids) {
    std::size_t claimed = 0;
    const idclient_status status = idclient_claim_many(tag_, ids.data(), ids.size(), &claimed);
    if (status != IDCLIENT_OK) throw Error(status);
  }

  // The largest contiguous run up to `count` that one segment has left; at least one id.
  [[nodiscard]] Range claim_range(std::size_t count) {
    Range range;
    const idclient_status status = idclient_claim_range(tag_, count, &range.first, &range.count);
    if (status != IDCLIENT_OK) throw Error(status);
    return range;
  }

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
  [[nodiscard, gnu::always_inline]] Range ClaimOne() noexcept {
    if (view_ != nullptr) return ClaimInRing(1);
    if (lanes_ != nullptr) return ClaimInLane();
    std::uint64_t id = 0;
    if (blocks_.serial != 0 && idd::client::TakeFromBlock(idclient_thread_blocks, blocks_, id))
      return {id, 1};
    return {};
  }

  // Precondition: there is a view.
  [[nodiscard, gnu::always_inline]] Range ClaimInRing(std::size_t count) noexcept {
    const idd::shm::SlotClaim claim = idd::shm::ClaimAtPoint(*view_, count);
    if (claim.ids.empty()) [[unlikely]]
      return {};
    if (claim.wakes_daemon) [[unlikely]]
      idclient_tag_wake(tag_);
    return {claim.ids.first, claim.ids.size()};
  }

  // Precondition: there are lanes.
  [[nodiscard, gnu::always_inline]] Range ClaimInLane() noexcept {
    const idd::shm::LaneView& view = idd::shm::ViewAt(*lanes_);
    const idd::shm::LaneGrant grant = idd::shm::ClaimOneInLane(view);
    if (grant.empty() || !idd::shm::IsPublished(view, grant)) [[unlikely]]
      return {};
    return {grant.first, 1};
  }

  [[nodiscard, gnu::noinline, gnu::cold]] std::uint64_t ClaimByCall() {
    std::uint64_t id = 0;
    if (const idclient_status status = idclient_claim(tag_, &id); status != IDCLIENT_OK) {
      throw Error(status);
    }
    return id;
  }

  [[nodiscard, gnu::noinline, gnu::cold]] Range TryClaimByCall(idclient_status* why) noexcept {
    std::uint64_t id = 0;
    const idclient_status status = idclient_claim(tag_, &id);
    if (why != nullptr) *why = status;
    return {id, status == IDCLIENT_OK ? std::size_t{1} : 0};
  }

  idclient_tag* tag_;
  const idd::shm::ClaimView* view_;         // null: claims are not made in the ring by inlined code
  const idd::shm::LaneViewPointer* lanes_;  // of a tag of order cpu when it was opened; or null
  idd::client::BlockOwner blocks_{};        // of a tag with a block size
};

// A connection to the host's idd. Move-only.
class idclient::Client {
 public:
  // Connects. Throws Error, also for a timeout that the C type cannot hold.
  Client() : Client(Options{}) {}
  explicit Client(const Options& options) {
    idclient_options raw = IDCLIENT_OPTIONS_INIT;
    if (!options.socket_path.empty()) raw.socket_path = options.socket_path.c_str();
    const auto timeout = options.timeout.count();
    raw.timeout_ms = timeout < 0 || timeout > std::numeric_limits<std::uint32_t>::max()
                         ? std::numeric_limits<std::uint32_t>::max()
                         : static_cast<std::uint32_t>(timeout);
    if (options.trusted_uid.has_value()) {
      raw.flags = IDCLIENT_TRUST_UID;
      raw.trusted_uid = *options.trusted_uid;
    }
    idclient* client = nullptr;
    if (const idclient_status status = idclient_open(&raw, &client); status != IDCLIENT_OK) {
      throw Error(status);
    }
    client_.reset(client);
  }

  // The tag's handle; opening it again is cheap and gives the same one. Throws Error.
  [[nodiscard]] Tag tag(const std::string& name, const TagOptions& options = {}) {
    idclient_tag_options raw = IDCLIENT_TAG_OPTIONS_INIT;
    raw.block_size = options.block_size;
    idclient_tag* tag = nullptr;
    const idclient_status status = idclient_tag_open_with(client_.get(), name.c_str(), &raw, &tag);
    if (status != IDCLIENT_OK) throw Error(status);
    return Tag(tag);
  }

  [[nodiscard]] idclient* get() const noexcept { return client_.get(); }

 private:
  struct Close {
    void operator()(idclient* client) const noexcept { idclient_close(client); }
  };
  std::unique_ptr<idclient, Close> client_;
};

#endif  // IDCLIENT_HPP_

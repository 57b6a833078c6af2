// SPDX-License-Identifier: Apache-2.0
//
// Where `idctl top` gets its numbers: from the rings, which it looks at itself, and now and then
// from the daemon.
#ifndef IDD_TOOLS_TOP_TOP_SOURCE_H_
#define IDD_TOOLS_TOP_TOP_SOURCE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/admin_client.h"
#include "client/json_fields.h"
#include "idd/base/clock.h"
#include "idd/base/status.h"
#include "idd/shm/ring_observer.h"
#include "top/top_model.h"

namespace idd::tools {

// What an observed ring says, as `status` would. `now_ns`: CLOCK_MONOTONIC. Pure.
[[nodiscard]] TagReading ReadingOf(const shm::RingView& view, std::uint64_t now_ns);

// Not thread-safe.
class TopSource {
 public:
  explicit TopSource(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  // The first connection and the list of tags: without them there is nothing to show.
  [[nodiscard]] Status Start(Deadline deadline);

  // Looks at everything. While the daemon is gone it tries to reach it, for a moment only, and the
  // rings that it has left are looked at all the same. kIncompatible: a document is malformed.
  [[nodiscard]] Status Refresh();

  [[nodiscard]] const TopHead& head() const noexcept { return head_; }
  [[nodiscard]] std::vector<const TopTag*> tags() const;

 private:
  struct Watched {
    TopTag shown;
    std::optional<shm::RingObserver> ring;
    bool is_wanted = false;   // it has a ring that we have not got, or another than we have
    bool was_listed = false;  // by the list that is being read
    MonotonicTime read_at{};  // when `shown` was advanced
  };

  [[nodiscard]] Status Reconnect(MonotonicTime now);
  void Lose(const Status& why, MonotonicTime now);
  // The daemon's part of it, by one request or two.
  [[nodiscard]] Status AskDaemon(MonotonicTime now);
  [[nodiscard]] Status AskForTags(const char* which, Deadline deadline, MonotonicTime now);
  [[nodiscard]] Status TakeDocument(const Json& document, bool is_whole, MonotonicTime now);
  void TakeTag(const Fields& tag, bool is_whole, MonotonicTime now);
  void ObserveWanted(MonotonicTime now);
  void ReadRings(MonotonicTime now);
  static void Advance(Watched& tag, TagReading reading, MonotonicTime now);

  const std::string socket_path_;
  std::optional<AdminClient> client_;
  MonotonicTime next_try_{};
  MonotonicTime gone_at_{};
  MonotonicTime asked_at_{};        // for what cannot be observed
  MonotonicTime listed_at_{};       // all tags
  MonotonicTime next_list_{};       // not before
  std::uint64_t tags_version_ = 0;  // the newest told
  std::uint64_t listed_version_ = 0;
  bool is_listed_ = false;
  bool lacks_rings_ = false;  // some that the daemon takes for observed: only the list has them
  TopHead head_;
  double uptime_s_ = 0;  // when it was told
  std::map<std::string, Watched, std::less<>> tags_;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_TOP_TOP_SOURCE_H_

// SPDX-License-Identifier: Apache-2.0
//
// The sources of `idctl top`'s numbers: the rings, which it observes itself, and now and then the
// daemon.
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

// The reading from an observed ring, as `status` would report it. `now_ns`: CLOCK_MONOTONIC. Pure.
[[nodiscard]] TagReading ReadingOf(const shm::RingView& view, std::uint64_t now_ns);

// It has more members than a class should: what it knows of the daemon, of each ring that it
// observes, and of the answer that it waits for.
//
// Not thread-safe.
class TopSource {
 public:
  explicit TopSource(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  // Makes the first connection and reads the list of tags; without them there is nothing to show.
  [[nodiscard]] Status Start(Deadline deadline);

  // Reads everything. While the daemon is down, tries briefly to reconnect and continues to read
  // the rings that it left. kIncompatible: a document is malformed.
  [[nodiscard]] Status Refresh();

  [[nodiscard]] const TopHead& head() const noexcept { return head_; }
  [[nodiscard]] std::vector<const TopTag*> tags() const;

 private:
  struct Watched {
    TopTag shown;
    std::optional<shm::RingObserver> ring;
    bool is_wanted = false;   // has a ring that is not mapped yet, or a newer one
    bool was_listed = false;  // is in the list that is being read
    MonotonicTime read_at{};  // the last time that `shown` was advanced
  };

  [[nodiscard]] Status Reconnect(MonotonicTime now);
  void Lose(const Status& why, MonotonicTime now);
  // The daemon's part, in one or two requests.
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
  MonotonicTime asked_at_{};        // last request for tags without a ring here
  MonotonicTime listed_at_{};       // last list of all tags
  MonotonicTime next_list_{};       // no list of all tags before this time
  std::uint64_t tags_version_ = 0;  // the newest reported version
  std::uint64_t listed_version_ = 0;
  bool is_listed_ = false;
  bool lacks_rings_ = false;  // some rings are refused: only the whole list has those tags
  TopHead head_;
  double uptime_s_ = 0;  // at the last report
  std::map<std::string, Watched, std::less<>> tags_;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_TOP_TOP_SOURCE_H_

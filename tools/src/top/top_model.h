// SPDX-License-Identifier: Apache-2.0
//
// The tags as `idctl top` knows them, and their arrangement. Pure: readings in, numbers out.
#ifndef IDD_TOOLS_TOP_TOP_MODEL_H_
#define IDD_TOOLS_TOP_TOP_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace idd::tools {

// The newest values of a series, for a sparkline.
class History {
 public:
  static constexpr std::size_t kMaxValues = 128;

  void Add(double value) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  // 0 is the newest. Precondition: age < size().
  [[nodiscard]] double Back(std::size_t age) const noexcept;

 private:
  std::array<float, kMaxValues> values_{};
  std::size_t next_ = 0;
  std::size_t count_ = 0;
};

// One reading of a tag, from its ring or from the daemon's status.
struct TagReading {
  std::string state;
  std::uint64_t claimed = 0;  // since the daemon started
  std::uint64_t available = 0;
  std::uint64_t step = 0;
  std::uint64_t leases = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t in_lanes = 0;  // of order cpu: counted as claimed, and no program has them yet
  double outage_tolerance_s = 0;
  double planning_rate_per_s = 0;
  std::uint64_t promised_ids = 0;  // that should be held by now
  bool is_observed = false;        // read from its ring
};

struct TopTag {
  std::string name;
  // "snowflake": its numbers count time, used or not, so it has no rate, cover or kept promise.
  std::string mode;
  TagReading now;
  std::optional<std::string> last_error;
  double rate_per_s = 0;            // between the last two readings
  std::optional<double> covered_s;  // at the recent rate; nothing while idle
  bool is_kept = true;              // the promise
  double promise_s = 0;             // its present length; its final one while idle
  History rates;
  History covers;

  double smooth_per_s = 0;
  bool is_known = false;  // has had a reading

  [[nodiscard]] bool is_snowflake() const noexcept { return mode == "snowflake"; }
};

// The STATE of a tag in `status` and `top`: "short" if the tag is served and does not hold the ids
// that it should hold by now.
[[nodiscard]] std::string ShownState(const std::string& state, bool is_kept);

// Advances the tag with a reading. `seconds`: since the previous one; 0: it is the first.
void Advance(TopTag& tag, TagReading reading, double seconds);

struct TopHead {
  std::string version;
  std::string host_id;
  std::uint64_t pid = 0;
  double uptime_s = 0;
  std::string database_state;
  std::string database_url;
  double database_since_s = 0;
  std::optional<std::string> database_error;
  // For a daemon that does not answer: why, and for how long.
  std::optional<std::string> gone_why;
  double gone_s = 0;
};

struct TopSums {
  std::size_t tags = 0;
  std::size_t judged = 0;  // tags with a promise that is kept or not
  std::size_t kept = 0;
  std::size_t snowflake = 0;
  std::size_t dry = 0;
  std::size_t quarantined = 0;
  std::size_t drained = 0;
  std::uint64_t available = 0;
  double rate_per_s = 0;
};
[[nodiscard]] TopSums SumUp(const std::vector<const TopTag*>& tags);

enum class TopOrder { kRate, kCover, kAvailable, kName };
[[nodiscard]] const char* TopOrderName(TopOrder order) noexcept;
[[nodiscard]] std::optional<TopOrder> ParseTopOrder(std::string_view name) noexcept;
[[nodiscard]] TopOrder NextOrder(TopOrder order) noexcept;

struct TopArrangement {
  TopOrder order = TopOrder::kRate;
  bool is_reversed = false;
  std::string filter{};  // part of the names to show; empty: all
};
// Sorts what needs attention first: the highest rate, the shortest cover, the least available;
// names ascending. Ties sort by name.
[[nodiscard]] std::vector<const TopTag*> Arrange(const std::vector<const TopTag*>& tags,
                                                 const TopArrangement& arrangement);

}  // namespace idd::tools

#endif  // IDD_TOOLS_TOP_TOP_MODEL_H_

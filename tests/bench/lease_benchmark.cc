// SPDX-License-Identifier: Apache-2.0
//
// lease_benchmark: the cost of a lease on a real MariaDB with durable settings, in turn with Leaf's
// transaction of four round trips, which writes no journal. It leases a tag whose row was just
// read, a tag whose row is read first, and 50 tags that are due together, whose rows are read
// first. It also measures the other steps of a lease on their own: the high-water mark on this
// host's disk, and the ends of 50 leases, which are journalled together.
//
// Over TCP, as hosts usually reach their server; with the argument "socket" over a Unix socket.
//
// Prints JSON, medians: {"leaf_us", "lease_us", "lease_read_us", "lease_of_50_us", "mark_us",
// "ends_of_50_us"}.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lease_requests.h"
#include "leasing/high_water.h"
#include "nlohmann/json.hpp"
#include "report.h"
#include "store/mysql/mysql_store.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/leasable.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

constexpr int kRounds = 1000;
constexpr int kTags = 50;
constexpr std::size_t kEnds = 50;

class Benchmark {
 public:
  explicit Benchmark(bool by_tcp) : by_tcp_(by_tcp) {
    server_.Start();
    const std::string url = by_tcp ? server_.TcpUrl() : server_.Url();
    store_ = std::make_unique<MysqlStore>(
        MysqlStoreOptions{ParseMysqlUrl(url).value(), {"bench", "boot", "instance"}});
    harness::Require(store_->Open().ok(), "the store does not open");
    MakeLeasable(*store_, server_);
    auto marks = HighWaterMarks::Open(dir_.path());
    harness::Require(marks.ok(), "the marks cannot be kept");
    marks_ = std::move(marks).value();
    for (int i = 0; i < kTags; ++i) {
      NewTag tag;
      tag.tag = "tag-" + std::to_string(i);
      tags_.push_back(tag.tag);
      harness::Require(store_->CreateTag(tag).ok(), "no tag can be created");
    }
  }

  [[nodiscard]] nlohmann::json Run() {
    std::optional<harness::DbSession> session;
    if (by_tcp_) {
      session.emplace(port_);
    } else {
      session.emplace(server_.socket(), "root", "idd");
    }
    harness::DbSession& leaf = *session;
    std::vector<double> of_leaf;
    std::vector<double> of_one;
    std::vector<double> of_read;
    std::vector<double> of_many;
    std::vector<double> of_mark;
    std::vector<double> of_ends;
    for (int round = 0; round < kRounds; ++round) {
      of_leaf.push_back(Time([&] { LeafLease(leaf); }));
      of_one.push_back(Time([&] { Lease(1, false); }));
      of_read.push_back(Time([&] { Lease(1, true); }));
      of_mark.push_back(Time([&] { Keep(static_cast<std::uint64_t>(round) + 1); }));
      if (round % 5 == 0) of_many.push_back(Time([&] { Lease(kTags, true); }));
      if (round % 5 == 0) of_ends.push_back(Time([&] { JournalEnds(); }));
    }
    return {{"leaf_us", bench::Median(of_leaf)},       {"lease_us", bench::Median(of_one)},
            {"lease_read_us", bench::Median(of_read)}, {"lease_of_50_us", bench::Median(of_many)},
            {"mark_us", bench::Median(of_mark)},       {"ends_of_50_us", bench::Median(of_ends)}};
  }

 private:
  template <typename Body>
  [[nodiscard]] static double Time(const Body& body) {
    const auto began = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began)
        .count();
  }
  static void LeafLease(harness::DbSession& leaf) {
    leaf.Execute("BEGIN");
    leaf.Execute("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'tag-0'");
    static_cast<void>(
        leaf.Query("SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = 'tag-0'"));
    leaf.Execute("COMMIT");
  }

  void Lease(int count, bool reads) {
    const std::vector<std::string> tags(tags_.begin(), tags_.begin() + count);
    const auto records = reads ? store_->FindTags(tags) : store_->FindTagsCached(tags);
    harness::Require(records.ok(), "the tags cannot be read");
    const auto leases = store_->TakeLeases(bench::RequestsFor(tags));
    harness::Require(leases.ok() && leases.value().back().ok(), "no lease");
    for (const Result<idd::daemon::Lease>& lease : leases.value()) {
      open_.push_back(bench::EndOf(lease.value()));
    }
  }

  void Keep(std::uint64_t mark) {
    harness::Require(marks_->Raise("tag-0", mark).ok(), "the mark cannot be kept");
  }

  void JournalEnds() {
    const std::size_t kept = open_.size() - std::min<std::size_t>(open_.size(), kEnds);
    const std::vector<LeaseClosure> ends(open_.begin() + static_cast<std::ptrdiff_t>(kept),
                                         open_.end());
    open_.resize(kept);
    harness::Require(store_->CloseLeases(ends).ok(), "the ends cannot be journalled");
  }

  const bool by_tcp_;
  const std::uint16_t port_ = harness::FreePorts(1).front();
  harness::TempDir dir_;
  harness::DbServer server_{dir_, "db", {.port = port_, .arguments = {}}};
  std::unique_ptr<MysqlStore> store_;
  std::unique_ptr<HighWaterMarks> marks_;
  std::vector<std::string> tags_;
  std::vector<LeaseClosure> open_;  // leases that are still open
};

}  // namespace
}  // namespace idd::daemon

int main(int argc, char** argv) {
  return idd::bench::PrintReport<idd::daemon::Benchmark>(
      "lease_benchmark", argc == 1 || std::string(argv[1]) != "socket");
}

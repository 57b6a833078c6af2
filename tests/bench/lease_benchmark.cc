// SPDX-License-Identifier: Apache-2.0
//
// lease_benchmark: what a lease costs on a real MariaDB with durable settings, in turn with Leaf's
// own transaction of four round trips, which journals nothing: of a tag whose row was read a
// moment ago, of one whose row is read first, and of 50 tags that are due together, whose rows
// are read first. The high-water mark on this host's disk is not in it.
//
// Over TCP, as hosts reach a server of theirs; with the argument "socket" over a Unix socket.
//
// Prints JSON, medians: {"leaf_us", "lease_us", "lease_read_us", "lease_of_50_us"}.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "random.h"
#include "store/mysql_store.h"
#include "support/free_ports.h"
#include "support/mariadb_server.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

constexpr int kRounds = 1000;
constexpr int kTags = 50;

class Benchmark {
 public:
  explicit Benchmark(bool by_tcp) : by_tcp_(by_tcp) {
    server_.Start();
    const std::string url = by_tcp ? server_.TcpUrl() : server_.Url();
    store_ = std::make_unique<MysqlStore>(
        MysqlStoreOptions{ParseMysqlUrl(url).value(), {"bench", "boot", "instance"}});
    harness::Require(store_->Open().ok(), "the store does not open");
    for (int i = 0; i < kTags; ++i) {
      NewTag tag;
      tag.tag = "tag-" + std::to_string(i);
      tags_.push_back(tag.tag);
      harness::Require(store_->CreateTag(tag).ok(), "no tag can be created");
    }
  }

  [[nodiscard]] nlohmann::json Run() {
    std::optional<harness::MariadbSession> session;
    if (by_tcp_) {
      session.emplace(port_);
    } else {
      session.emplace(server_.socket(), "root", "idd");
    }
    harness::MariadbSession& leaf = *session;
    std::vector<double> of_leaf;
    std::vector<double> of_one;
    std::vector<double> of_read;
    std::vector<double> of_many;
    for (int round = 0; round < kRounds; ++round) {
      of_leaf.push_back(Time([&] { LeafLease(leaf); }));
      of_one.push_back(Time([&] { Lease(1, false); }));
      of_read.push_back(Time([&] { Lease(1, true); }));
      if (round % 5 == 0) of_many.push_back(Time([&] { Lease(kTags, true); }));
    }
    return {{"leaf_us", Median(of_leaf)},
            {"lease_us", Median(of_one)},
            {"lease_read_us", Median(of_read)},
            {"lease_of_50_us", Median(of_many)}};
  }

 private:
  template <typename Body>
  [[nodiscard]] static double Time(const Body& body) {
    const auto began = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began)
        .count();
  }
  [[nodiscard]] static double Median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  static void LeafLease(harness::MariadbSession& leaf) {
    leaf.Execute("BEGIN");
    leaf.Execute("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'tag-0'");
    static_cast<void>(
        leaf.Query("SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = 'tag-0'"));
    leaf.Execute("COMMIT");
  }

  // As the daemon does it (take_leases.cc).
  void Lease(int count, bool reads) {
    const std::vector<std::string> tags(tags_.begin(), tags_.begin() + count);
    const auto records = reads ? store_->FindTags(tags) : store_->PeekTags(tags);
    harness::Require(records.ok(), "the tags cannot be read");
    std::vector<LeaseRequest> requests;
    for (const std::string& tag : tags) {
      requests.push_back(
          {.tag = tag, .count = 1000, .high_water_mark = 0, .floor = 0, .token = RandomToken()});
    }
    const auto leases = store_->TakeLeases(requests);
    harness::Require(leases.ok() && leases.value().back().ok(), "no lease");
  }

  const bool by_tcp_;
  const std::uint16_t port_ = harness::FreePorts(1).front();
  harness::TempDir dir_;
  harness::MariadbServer server_{dir_, "db", {.port = port_, .arguments = {}}};
  std::unique_ptr<MysqlStore> store_;
  std::vector<std::string> tags_;
};

}  // namespace
}  // namespace idd::daemon

int main(int argc, char** argv) {
  try {
    idd::daemon::Benchmark benchmark(argc == 1 || std::string(argv[1]) != "socket");
    std::puts(benchmark.Run().dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lease_benchmark: %s\n", error.what());
    return 1;
  }
  return 0;
}

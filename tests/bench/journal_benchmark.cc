// SPDX-License-Identifier: Apache-2.0
//
// journal_benchmark: how large the lease journal becomes on a real MariaDB, and how much the start
// and the end of a lease send and write. Several hosts take and close leases of the same tags in
// turn.
//
// Prints JSON, all in bytes: the size of the tablespace of idd_lease for each row; the bytes that
// the server receives, sends and writes into its redo log for one lease or one close of one tag,
// including reads; and the same for each tag in a transaction of many.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lease_requests.h"
#include "nlohmann/json.hpp"
#include "platform/random.h"
#include "report.h"
#include "store/mysql/mysql_store.h"
#include "support/db_server.h"
#include "support/leasable.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

constexpr int kHosts = 20;
constexpr int kTags = 1000;  // each is leased once in a transaction of its own
constexpr int kAtOnce = 50;
constexpr int kRounds = 100;

class Benchmark {
 public:
  Benchmark() {
    server_.Start();
    for (int i = 0; i < kHosts; ++i) {
      // As long as a machine id.
      stores_.push_back(std::make_unique<MysqlStore>(MysqlStoreOptions{
          ParseMysqlUrl(server_.Url()).value(), {RandomToken(), RandomToken(), RandomToken()}}));
      harness::Require(stores_.back()->Open().ok(), "the store does not open");
    }
    MakeLeasable(*stores_.front(), server_);
    // A lease is guarded by the term that its host has read.
    for (const auto& store : stores_) {
      harness::Require(store->ReadTerm(std::nullopt).ok(), "the term cannot be read");
    }
    for (int i = 0; i < kTags; ++i) {
      NewTag tag;
      tag.tag = "orders-" + std::to_string(i);
      tags_.push_back(tag.tag);
      harness::Require(stores_.front()->CreateTag(tag).ok(), "no tag can be created");
    }
  }

  [[nodiscard]] nlohmann::json Run() {
    harness::DbSession session = server_.Session();
    nlohmann::json result;
    std::vector<Lease> held;
    MysqlStore& one = *stores_.front();
    // The record that was read when the tag was created is too old to be used.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const Counters begin = Count(session);
    for (const std::string& tag : tags_) held.push_back(Take(one, {tag}).front());
    const Counters leased = Count(session);
    for (const Lease& lease : held) Close(one, {lease});
    const Counters closed = Count(session);
    result["lease"] = Between(begin, leased, kTags);
    result["close"] = Between(leased, closed, kTags);
    const std::vector<std::string> some(tags_.begin(), tags_.begin() + kAtOnce);
    const Counters many = Count(session);
    for (int round = 0; round < kRounds; ++round) {
      for (const auto& store : stores_) Close(*store, Take(*store, some));
    }
    result["lease_and_close_of_many"] = Between(many, Count(session), kRounds * kHosts * kAtOnce);
    const int rows = kTags + kRounds * kHosts * kAtOnce;
    result["rows"] = rows;
    session.Execute("FLUSH TABLES idd_lease FOR EXPORT");
    result["bytes_a_row"] =
        std::stod(session.Query("SELECT FILE_SIZE FROM information_schema.INNODB_SYS_TABLESPACES"
                                " WHERE NAME = 'idd/idd_lease'")) /
        rows;
    session.Execute("UNLOCK TABLES");
    return result;
  }

 private:
  struct Counters {
    double received = 0;
    double sent = 0;
    double redo = 0;
  };

  [[nodiscard]] static double Status(harness::DbSession& session, const std::string& name) {
    return std::stod(
        session.Query("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS"
                      " WHERE VARIABLE_NAME = '" +
                      name + "'"));
  }
  [[nodiscard]] static Counters Count(harness::DbSession& session) {
    return {Status(session, "BYTES_RECEIVED"), Status(session, "BYTES_SENT"),
            Status(session, "INNODB_LSN_CURRENT")};
  }
  [[nodiscard]] static nlohmann::json Between(const Counters& begin, const Counters& end,
                                              int count) {
    return {{"received", (end.received - begin.received) / count},
            {"sent", (end.sent - begin.sent) / count},
            {"redo_log", (end.redo - begin.redo) / count}};
  }

  [[nodiscard]] static std::vector<Lease> Take(MysqlStore& store,
                                               const std::vector<std::string>& tags) {
    harness::Require(store.FindTagsCached(tags).ok(), "the tags cannot be read");
    auto taken = store.TakeLeases(bench::RequestsFor(tags));
    harness::Require(taken.ok(), "no leases");
    std::vector<Lease> leases;
    for (Result<Lease>& lease : taken.value()) {
      harness::Require(lease.ok(), "no lease");
      leases.push_back(std::move(lease).value());
    }
    return leases;
  }

  static void Close(MysqlStore& store, const std::vector<Lease>& leases) {
    std::vector<LeaseClosure> closures;
    for (const Lease& lease : leases) closures.push_back(bench::EndOf(lease));
    harness::Require(store.CloseLeases(closures).ok(), "a lease cannot be closed");
  }

  harness::TempDir dir_;
  harness::DbServer server_{dir_};
  std::vector<std::unique_ptr<MysqlStore>> stores_;
  std::vector<std::string> tags_;
};

}  // namespace
}  // namespace idd::daemon

int main() { return idd::bench::PrintReport<idd::daemon::Benchmark>("journal_benchmark"); }

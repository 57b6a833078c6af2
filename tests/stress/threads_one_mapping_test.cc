// SPDX-License-Identifier: Apache-2.0
//
// Several threads through one idclient handle, in this process, against a real idd.
//
// Method: all threads share ONE mapping of the ring, because ThreadSanitizer pairs accesses by
// address and is blind across two mappings of one memfd. The oracle judges the ids.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "idclient/idclient.h"
#include "support/claim_oracle.h"
#include "support/host.h"
#include "support/test_environment.h"

namespace idd::harness {
namespace {

constexpr std::size_t kThreads = 6;

// The results of one thread; read after its join.
struct ThreadLog {
  std::vector<ClaimRecord> records;
  std::string failure;
};

class ThreadsOneMapping : public ::testing::Test {
 protected:
  void SetUp() override {
    host_.daemon.Start();
    idclient_options options = IDCLIENT_OPTIONS_INIT;
    options.socket_path = host_.daemon.socket().c_str();
    options.timeout_ms = 120'000;
    ASSERT_EQ(idclient_open(&options, &client_), IDCLIENT_OK) << idclient_last_error();
  }
  void TearDown() override {
    idclient_close(client_);
    host_.daemon.Stop();
  }

  [[nodiscard]] idclient_tag* OpenTag(const std::string& name, std::uint64_t step) {
    host_.idctl.CreateTag(name, step);
    idclient_tag* tag = nullptr;
    EXPECT_EQ(idclient_tag_open(client_, name.c_str(), &tag), IDCLIENT_OK) << idclient_last_error();
    return tag;
  }

  // Claims one id, with as little as possible around it: the closer the claims, the more of them
  // collide.
  static void ClaimOne(idclient_tag* tag, ThreadLog& log) {
    std::uint64_t id = 0;
    const std::uint64_t before = MonotonicNs();
    const idclient_status status = idclient_claim(tag, &id);
    const std::uint64_t after = MonotonicNs();
    if (status == IDCLIENT_OK) {
      log.records.push_back({before, after, id, 1});
    } else {
      log.failure = idclient_last_error();
    }
  }

  // Makes one claim of a random kind, up to `most` ids, and logs it.
  static void ClaimSome(idclient_tag* tag, std::size_t most, std::mt19937_64& random,
                        ThreadLog& log) {
    const std::size_t count = 1 + random() % most;
    std::vector<std::uint64_t> ids(count);
    std::size_t claimed = 0;
    idclient_status status = IDCLIENT_OK;
    const std::uint64_t before = MonotonicNs();
    switch (random() % 3) {
      case 0:
        status = idclient_claim(tag, ids.data());
        claimed = status == IDCLIENT_OK ? 1 : 0;
        break;
      case 1:
        status = idclient_claim_many(tag, ids.data(), count, &claimed);
        break;
      default: {
        status = idclient_claim_range(tag, count, ids.data(), &claimed);
        for (std::size_t i = 1; i < claimed; ++i) ids[i] = ids[0] + i;
        break;
      }
    }
    const std::uint64_t after = MonotonicNs();
    for (std::size_t i = 0; i < claimed; ++i) log.records.push_back({before, after, ids[i], 1});
    if (status != IDCLIENT_OK) log.failure = idclient_last_error();
  }

  // All threads claim `ids` ids each from `tag`.
  std::vector<ThreadLog> Run(idclient_tag* tag, std::uint64_t ids, std::size_t most) {
    std::vector<ThreadLog> logs(kThreads);
    std::atomic<bool> go = false;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&logs, &go, i, tag, ids, most] {
        std::mt19937_64 random(i);
        ThreadLog log;  // local to this thread while it claims
        log.records.reserve(ids + most);
        while (!go.load()) std::this_thread::yield();
        while (log.records.size() < ids && log.failure.empty()) {
          if (most == 1) {
            ClaimOne(tag, log);
          } else {
            ClaimSome(tag, most, random, log);
          }
        }
        logs[i] = std::move(log);
      });
    }
    go.store(true);
    for (std::thread& thread : threads) thread.join();
    return logs;
  }

  void Check(const std::string& tag, const std::vector<ThreadLog>& logs) {
    std::vector<Claimer> claimers;
    for (std::size_t i = 0; i < logs.size(); ++i) {
      EXPECT_EQ(logs[i].failure, "") << "thread " << i;
      claimers.push_back({"thread" + std::to_string(i), logs[i].records});
    }
    EXPECT_EQ(Join(CheckUnique(claimers)), "");
    EXPECT_EQ(Join(CheckRising(claimers)), "");
    EXPECT_EQ(Join(CheckOrder(claimers)), "");
    EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases(tag))), "");
    EXPECT_EQ(Join(CheckAudit(host_.idctl.Audit(tag), CountIds(claimers), 1000)), "");
  }

  const TempDir dir_;
  Host host_{dir_};
  idclient_client* client_ = nullptr;
};

TEST_F(ThreadsOneMapping, ClaimDistinctOrderedIdsOneAtATime) {
  idclient_tag* tag = OpenTag("single", 100'000);
  Check("single", Run(tag, ScaledLoad(500'000), 1));
}

TEST_F(ThreadsOneMapping, ClaimDistinctOrderedIdsInMixedBatches) {
  idclient_tag* tag = OpenTag("wide", 100'000);
  Check("wide", Run(tag, ScaledLoad(300'000), 100));
}

TEST_F(ThreadsOneMapping, ClaimDistinctOrderedIdsWhileTheRingRunsDryAllTheTime) {
  idclient_tag* tag = OpenTag("narrow", 20);
  Check("narrow", Run(tag, ScaledLoad(1'500), 50));
}

TEST_F(ThreadsOneMapping, OpenTheSameTagAtOnceAndGetOneHandle) {
  host_.idctl.CreateTag("fresh", 1000);
  std::vector<idclient_tag*> tags(kThreads, nullptr);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, &tags, i] {
      if (idclient_tag_open(client_, "fresh", &tags[i]) != IDCLIENT_OK) tags[i] = nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_NE(tags[0], nullptr);
  for (idclient_tag* tag : tags) EXPECT_EQ(tag, tags[0]);
}

TEST_F(ThreadsOneMapping, GoOnOverRestartsOfTheDaemon) {
  idclient_tag* tag = OpenTag("restarted", 1000);
  std::atomic<bool> stop = false;
  std::vector<ThreadLog> logs(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&logs, &stop, i, tag] {
      std::mt19937_64 random(i);
      // A missing daemon may cause failures here, but never duplicates.
      while (!stop.load()) {
        ClaimSome(tag, 20, random, logs[i]);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    host_.daemon.Restart();
  }
  std::uint64_t id = 0;
  EXPECT_EQ(idclient_claim(tag, &id), IDCLIENT_OK) << idclient_last_error();
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  std::vector<Claimer> claimers;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    claimers.push_back({"thread" + std::to_string(i), logs[i].records});
  }
  EXPECT_EQ(Join(CheckUnique(claimers)), "");
  EXPECT_EQ(Join(CheckRising(claimers)), "");
  // Each stop drains the ring before it hands back, so even the order over all threads holds here.
  EXPECT_EQ(Join(CheckOrder(claimers)), "");
  EXPECT_EQ(Join(CheckLeased(claimers, host_.idctl.Leases("restarted"))), "");
}

}  // namespace
}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_UNIT_SUPPORT_TAG_SERVICE_FIXTURE_H_
#define IDD_TESTS_UNIT_SUPPORT_TAG_SERVICE_FIXTURE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/options.h"
#include "idd/shm/ring_memory.h"
#include "ring_client.h"
#include "service_harness.h"
#include "tags/tag_service.h"

namespace idd::daemon {

// A TagService over an in-memory store, and clients that attach to its rings.
class TagServiceTest : public ::testing::Test {
 protected:
  explicit TagServiceTest(LeaseWorker::Recovery recovery =
                              [](Store&, HighWaterMarks&, StoreSession&) { return Status::Ok(); }) {
    h_.Start([this](const StoreHealth& health) { service_.OnStoreHealth(health); },
             std::move(recovery));
  }
  ~TagServiceTest() override { h_.store.script.Release(); }

  Answer& Claim(const std::string& tag, std::uint64_t count,
                std::chrono::milliseconds timeout = kLong, std::uint64_t owner = 1,
                std::uint64_t ring_id = 0) {
    Answer& answer = answers_.emplace_back();
    service_.Claim(tag, ring_id, count, {.owner = owner, .deadline = Deadline::After(timeout)},
                   [this, &answer](const Result<ClaimGrant>& grant) {
                     Note(answer, grant.status());
                     if (grant.ok()) answer.grant = grant.value();
                   });
    return answer;
  }
  Answer& Attach(const std::string& tag, std::chrono::milliseconds timeout = kLong,
                 std::uint64_t owner = 1) {
    Answer& answer = answers_.emplace_back();
    service_.Attach(tag, {.owner = owner, .deadline = Deadline::After(timeout)},
                    [this, &answer, tag](const Result<AttachGrant>& grant) {
                      Note(answer, grant.status());
                      if (!grant.ok()) return;
                      answer.attached = grant.value();
                      if (grant.value().ring_id != 0) Map(tag, grant.value());
                    });
    return answer;
  }
  // As an administrator would change it.
  void ChangeAccess(const std::string& tag, TagAccess access) {
    h_.store.SetAccess(tag, access);
    const Result<std::vector<TagRecord>> all = h_.store.ListTags();
    for (const TagRecord& record : all.value()) {
      if (record.tag == tag) service_.OnTagChanged(record);
    }
  }
  // The immediate answer to a claim.
  ClaimGrant Granted(const std::string& tag, std::uint64_t count, std::uint64_t ring_id = 0) {
    const Answer& answer = Claim(tag, count, kLong, 1, ring_id);
    EXPECT_TRUE(answer.done() && answer.status.ok()) << answer.status.message();
    return answer.grant;
  }
  // Attaches and returns the client, whose ring has its first segment.
  Client& AttachedClient(const std::string& tag) {
    const Answer& answer = Attach(tag);
    EXPECT_TRUE(h_.RunUntil([&] { return answer.done(); }));
    EXPECT_TRUE(answer.status.ok()) << answer.status.message();
    h_.Settle();
    return *clients_.back();
  }
  // A client of a new tag, which has claimed that many ids.
  Client& ClientOfNewTag(const std::string& tag, std::uint64_t step, std::uint64_t claimed = 0,
                         std::uint64_t next_id = 1) {
    h_.store.AddTag(tag, step, next_id);
    Client& client = AttachedClient(tag);
    if (claimed != 0) {
      EXPECT_EQ(client.Claim(claimed).size(), claimed);
    }
    return client;
  }
  // As the daemon does once a second.
  void PollAndSettle() {
    service_.Poll();
    h_.Settle();
  }
  void RefillAndSettle(const std::string& tag) {
    service_.Refill(tag);
    h_.Settle();
  }
  // While the process can open no descriptor.
  static void WithoutDescriptors(const std::function<void()>& action) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    // UBSan reads an object's type through a pipe, once for each place: do it here, while one is
    // available.
    ASSERT_FALSE(Status::FromErrno(EMFILE, "warming up").ok());
    const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    action();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  [[nodiscard]] bool Await(const Answer& answer) {
    return h_.RunUntil([&] { return answer.done(); });
  }
  // The answer, once it is there.
  const Answer& Awaited(const Answer& answer) {
    EXPECT_TRUE(Await(answer));
    return answer;
  }
  [[nodiscard]] TagSnapshot SnapshotOf(const std::string& tag) const {
    for (const TagSnapshot& snapshot : service_.Snapshot()) {
      if (snapshot.tag == tag) return snapshot;
    }
    return {};
  }
  [[nodiscard]] int Leases() const { return h_.store.script.Count("TakeLease"); }
  void Shutdown() {
    service_.Shutdown([this] { ++shutdowns_; });
  }
  [[nodiscard]] bool ShutsDown() {
    Shutdown();
    return h_.RunUntil([this] { return shutdowns_ == 1; });
  }

  static void ExpectAccounted(const LeaseRecord& lease) {
    EXPECT_EQ(lease.claimed + lease.returned + lease.abandoned, lease.ids.size()) << lease.token;
  }

  WorkerHarness h_;
  TagService service_{h_.loop, h_.worker, h_.handover(), kDefaultLeasesPerSecond};
  std::deque<Answer> answers_;
  std::vector<std::unique_ptr<Client>> clients_;
  int answered_ = 0;
  int shutdowns_ = 0;

 private:
  void Note(Answer& answer, const Status& status) {
    ++answer.times;
    answer.order = ++answered_;
    answer.status = status;
  }
  void Map(const std::string& tag, const AttachGrant& grant) {
    auto memory =
        shm::RingMemory::Attach(ScopedFd(::fcntl(grant.table_fd, F_DUPFD_CLOEXEC, 0)),
                                ScopedFd(::fcntl(grant.cursors_fd, F_DUPFD_CLOEXEC, 0)), tag);
    ASSERT_TRUE(memory.ok()) << memory.status().message();
    EXPECT_EQ(memory.value()->ring_id(), grant.ring_id);
    clients_.push_back(std::make_unique<Client>(std::move(memory).value()));
  }
};

}  // namespace idd::daemon

#endif  // IDD_TESTS_UNIT_SUPPORT_TAG_SERVICE_FIXTURE_H_

// SPDX-License-Identifier: Apache-2.0
//
// The contract of every allocator for snowflake tags: who owns a worker id, and what a tag's layout
// is. A test file instantiates it with its fixture, a StoreCase that has, beside what
// store_contract.h says,
//   Execute(sql)   runs SQL as another program would
#ifndef IDD_TESTS_SUPPORT_WORKER_CONTRACT_H_
#define IDD_TESTS_SUPPORT_WORKER_CONTRACT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "store/snowflake_layout.h"
#include "store/store.h"
#include "support/store_case.h"
#include "support/test_environment.h"

namespace idd::daemon {

template <typename Fixture>
class WorkerContract : public Fixture {
 protected:
  static constexpr std::uint64_t kLast = 1'000'000;

  [[nodiscard]] static NewTag Snowflake(const SnowflakeLayout& layout = {}) {
    NewTag tag;
    tag.tag = "ids";
    tag.mode = TagMode::kSnowflake;
    tag.step = 1;
    tag.snowflake = layout;
    return tag;
  }
  [[nodiscard]] auto OpenWithIds(const std::string& host) {
    auto store = this->OpenStore(host);
    const Result<TagRecord> created = store->CreateTag(Snowflake());
    EXPECT_TRUE(created.ok()) << created.status().message();
    return store;
  }
  [[nodiscard]] static WorkerChoice Choice(std::uint32_t worker, std::optional<std::string> owner,
                                           std::uint64_t at_most = kLast) {
    return {.tag = "ids",
            .worker = worker,
            .owner = std::move(owner),
            .at_most = at_most,
            .last_number = kLast};
  }
  // "true", "false", or the error.
  [[nodiscard]] static std::string Taken(Store& store, const WorkerChoice& choice) {
    const Result<bool> taken = store.TakeWorker(choice);
    if (!taken.ok()) return taken.status().message();
    return taken.value() ? "true" : "false";
  }
  [[nodiscard]] static LeaseRequest WindowOf(std::uint32_t worker, std::uint64_t token,
                                             std::uint64_t floor, std::uint64_t count = 100) {
    LeaseRequest request = Request(token, 0, count, CounterName("ids", worker));
    request.floor = floor;
    request.rises = true;
    request.is_of_worker = true;
    return request;
  }
  // "worker host next_number", with a star if the owner is the host of the store.
  [[nodiscard]] static std::string Workers(Store& store) {
    const Result<std::vector<WorkerRecord>> workers = store.ListWorkers("ids");
    if (!workers.ok()) return workers.status().message();
    std::string text;
    for (const WorkerRecord& worker : workers.value()) {
      text += (text.empty() ? "" : ",") + std::to_string(worker.worker) + " " + worker.host +
              (worker.is_mine ? "* " : " ") + std::to_string(worker.next_number);
    }
    return text;
  }
};
TYPED_TEST_SUITE_P(WorkerContract);

TYPED_TEST_P(WorkerContract, WorkerIdIsTakenFromTheOwnerThatWasSeen) {
  const auto a = this->OpenWithIds("a");
  const auto b = this->OpenStore("b");
  EXPECT_EQ(this->Workers(*a), "");
  EXPECT_EQ(this->Taken(*a, this->Choice(5, std::nullopt)), "true");
  EXPECT_EQ(this->Taken(*b, this->Choice(5, std::nullopt)), "false") << "a has it";
  EXPECT_EQ(this->Taken(*b, this->Choice(5, "c")), "false");
  EXPECT_EQ(this->Taken(*b, this->Choice(12, "a")), "false") << "nobody has it";
  EXPECT_EQ(this->Workers(*a), "5 a* 1");
  EXPECT_EQ(this->Taken(*b, this->Choice(5, "a")), "true");
  EXPECT_EQ(this->Taken(*a, this->Choice(5, "a")), "false") << "the owner has changed";
  EXPECT_EQ(this->Taken(*a, this->Choice(12, std::nullopt)), "true");
  EXPECT_EQ(this->Workers(*a), "5 b 1,12 a* 1");
  EXPECT_EQ(this->Workers(*b), "5 b* 1,12 a 1");
  EXPECT_TRUE(a->ListWorkers("id").value().empty());
  const Result<TagRecord> counter = a->FindTag("ids#12");
  ASSERT_TRUE(counter.ok()) << counter.status().message();
  EXPECT_EQ(counter.value().max_id, this->kLast);
}

// Regression: MySQL counts only rows that change, and the new row was the old one if the host had
// taken the worker id less than a second ago.
TYPED_TEST_P(WorkerContract, HostTakesItsOwnWorkerIdAgainAtOnce) {
  const auto a = this->OpenWithIds("a");
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(this->Taken(*a, this->Choice(1, i == 0 ? std::nullopt : std::optional("a"))), "true");
  }
  EXPECT_EQ(this->Workers(*a), "1 a* 1");
}

TYPED_TEST_P(WorkerContract, CounterThatIsBeyondTheBoundKeepsItsOwner) {
  const auto a = this->OpenWithIds("a");
  const auto b = this->OpenStore("b");
  ASSERT_EQ(this->Taken(*a, this->Choice(0, std::nullopt)), "true");
  EXPECT_EQ(this->Take(*a, this->WindowOf(0, 1, 1000)), (shm::IdRange{1000, 1100}));
  EXPECT_EQ(this->Taken(*b, this->Choice(0, "a", 1099)), "false");
  EXPECT_EQ(this->Taken(*a, this->Choice(0, "a", 1099)), "false") << "also for its owner";
  EXPECT_EQ(this->Workers(*b), "0 a 1100");
  EXPECT_EQ(this->Taken(*b, this->Choice(0, "a", 1100)), "true");
  EXPECT_EQ(this->Workers(*b), "0 b* 1100");
  EXPECT_EQ(this->Take(*b, this->WindowOf(0, 2, 1100)), (shm::IdRange{1100, 1200}));
}

TYPED_TEST_P(WorkerContract, WindowThatGoesBackFreesItsWorkerIdFromThereOn) {
  const auto a = this->OpenWithIds("a");
  const auto b = this->OpenStore("b");
  ASSERT_EQ(this->Taken(*a, this->Choice(0, std::nullopt)), "true");
  this->Take(*a, this->WindowOf(0, 1, 1000));
  LeaseClosure closure = Closure(1, LeaseState::kReturned, 40);
  closure.tag = "ids#0";
  EXPECT_EQ(a->ReturnTail(closure).value(), ReturnOutcome::kLowered);
  EXPECT_EQ(this->Taken(*b, this->Choice(0, "a", 1039)), "false");
  EXPECT_EQ(this->Taken(*b, this->Choice(0, "a", 1040)), "true");
  EXPECT_EQ(this->Take(*b, this->WindowOf(0, 2, 1040)), (shm::IdRange{1040, 1140}));
}

TYPED_TEST_P(WorkerContract, LeaseByAHostThatIsNotTheOwnerIsRefused) {
  const auto a = this->OpenWithIds("a");
  const auto b = this->OpenStore("b");
  this->CreateOrders(*b);
  ASSERT_EQ(this->Taken(*a, this->Choice(0, std::nullopt)), "true");
  this->Take(*a, this->WindowOf(0, 1, 1000));
  const auto refused = b->TakeLease(this->WindowOf(0, 2, 1000));
  EXPECT_EQ(refused.status().code(), Code::kUnavailable) << "it can lease from another";
  EXPECT_NE(refused.status().message().find("does not own the worker id of 'ids#0'"),
            std::string::npos)
      << refused.status().message();
  EXPECT_EQ(this->Journal(), "active 0/0/0");
  EXPECT_EQ(this->Workers(*a), "0 a* 1100");
  // Nor is a row that is no counter leased as one.
  LeaseRequest of_no_worker = Request(3);
  of_no_worker.is_of_worker = true;
  EXPECT_EQ(b->TakeLease(of_no_worker).status().code(), Code::kUnavailable);
  // It fails alone.
  const auto both = b->TakeLeases({this->WindowOf(0, 4, 1000), Request(5)});
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(both.value()[0].status().code(), Code::kUnavailable);
  ASSERT_TRUE(both.value()[1].ok()) << both.value()[1].status().message();
  EXPECT_EQ(this->Journal(), "active 0/0/0,active 0/0/0");
  EXPECT_EQ(this->MaxId(), "1001");
  ASSERT_EQ(this->Taken(*b, this->Choice(0, "a")), "true");
  EXPECT_FALSE(a->TakeLease(this->WindowOf(0, 6, 1100)).ok()) << "a is the owner no more";
  EXPECT_EQ(this->Take(*b, this->WindowOf(0, 7, 1100)).first, 1100U);
}

TYPED_TEST_P(WorkerContract, WindowsOfTwoTagsAreLeasedTogether) {
  const auto a = this->OpenWithIds("a");
  ASSERT_EQ(this->Taken(*a, this->Choice(0, std::nullopt)), "true");
  ASSERT_EQ(this->Taken(*a, this->Choice(1, std::nullopt)), "true");
  const auto both = a->TakeLeases({this->WindowOf(0, 1, 1000), this->WindowOf(1, 2, 2000)});
  ASSERT_TRUE(both.ok() && both.value()[0].ok() && both.value()[1].ok());
  EXPECT_EQ(both.value()[0].value().ids, (shm::IdRange{1000, 1100}));
  EXPECT_EQ(both.value()[1].value().ids, (shm::IdRange{2000, 2100}));
}

TYPED_TEST_P(WorkerContract, OneOfSeveralHostsTakesAWorkerId) {
  constexpr std::uint32_t kHosts = 4;
  constexpr std::uint32_t kWorkers = 20;
  std::vector<decltype(this->OpenStore("host"))> stores;
  stores.push_back(this->OpenWithIds("host-0"));
  for (std::uint32_t i = 1; i < kHosts; ++i) {
    stores.push_back(this->OpenStore("host-" + std::to_string(i)));
  }
  std::vector<std::atomic<int>> winners(2 * kWorkers);
  std::barrier<> together(kHosts);
  std::vector<std::thread> threads;
  for (std::uint32_t host = 0; host < kHosts; ++host) {
    threads.emplace_back([&, host] {
      for (std::uint32_t i = 0; i < 2 * kWorkers; ++i) {
        // First nobody has it; then all see the same owner.
        const std::uint32_t worker = i / 2;
        const auto workers = stores[host]->ListWorkers("ids");
        std::optional<std::string> owner;
        for (const WorkerRecord& one : workers.value()) {
          if (one.worker == worker) owner = one.host;
        }
        together.arrive_and_wait();
        Result<bool> taken = stores[host]->TakeWorker(this->Choice(worker, owner));
        // Locked for longer than the store waits: it was refused.
        while (taken.status().code() == Code::kUnavailable) {
          taken = stores[host]->TakeWorker(this->Choice(worker, owner));
        }
        EXPECT_TRUE(taken.ok()) << taken.status().message();
        const bool is_own = owner == "host-" + std::to_string(host);
        if (taken.ok() && taken.value() && !is_own) ++winners[i];
        together.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The owner's own take leaves the row as it is.
  for (std::uint32_t i = 0; i < 2 * kWorkers; ++i) EXPECT_EQ(winners[i], 1) << "take " << i;
}

TYPED_TEST_P(WorkerContract, DeletedTagKeepsItsCountersItsOwnersAndItsLayout) {
  const auto store = this->OpenWithIds("a");
  ASSERT_EQ(this->Taken(*store, this->Choice(7, std::nullopt)), "true");
  this->Take(*store, this->WindowOf(7, 1, 1000));
  ASSERT_TRUE(store->DeleteTag("ids").ok());
  EXPECT_EQ(store->FindTag("ids").status().code(), Code::kNoSuchTag);
  EXPECT_EQ(this->Workers(*store), "7 a* 1100");
  const auto refused = [&](auto change) {
    SnowflakeLayout layout;
    change(layout);
    const Status status = store->CreateTag(this->Snowflake(layout)).status();
    EXPECT_EQ(store->FindTag("ids").status().code(), Code::kNoSuchTag);
    return status.code() == Code::kInvalid &&
           status.message().find("existed before with the layout") != std::string::npos;
  };
  EXPECT_TRUE(refused([](SnowflakeLayout& layout) { layout.epoch_ms += 1; }));
  EXPECT_TRUE(refused([](SnowflakeLayout& layout) { layout.unit_ms = 10; }));
  EXPECT_TRUE(refused([](SnowflakeLayout& layout) { --layout.time_bits; }));
  EXPECT_TRUE(refused([](SnowflakeLayout& layout) {
    ++layout.worker_bits;
    --layout.sequence_bits;
  }));
  // These say nothing about which ids there are.
  SnowflakeLayout layout;
  layout.clock = shm::TagClock::kDaemon;
  layout.max_ahead_ms = 5;
  const Result<TagRecord> again = store->CreateTag(this->Snowflake(layout));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again.value().snowflake, layout);
  EXPECT_EQ(store->FindTag("ids").value().snowflake, layout);
  EXPECT_EQ(this->Take(*store, this->WindowOf(7, 2, 0)), (shm::IdRange{1100, 1200}));
}

// The ids of both kinds are numbers of one space, but each kind keeps an account of its own.
TYPED_TEST_P(WorkerContract, DeletedTagWithIdsIsNotCreatedAgainInAModeOfTheOtherKind) {
  const auto store = this->OpenWithIds("a");
  const auto refused = [&](const NewTag& tag) {
    const Status status = store->CreateTag(tag).status();
    return status.code() == Code::kInvalid &&
           status.message().find("could come again") != std::string::npos;
  };
  NewTag segment;
  segment.tag = "ids";
  segment.step = 10;
  ASSERT_TRUE(store->DeleteTag("ids").ok());
  ASSERT_TRUE(store->CreateTag(segment).ok()) << "no id of the snowflake tag was used";
  ASSERT_TRUE(store->DeleteTag("ids").ok());
  ASSERT_TRUE(store->CreateTag(this->Snowflake()).ok()) << "no id of the segment tag was used";
  ASSERT_EQ(this->Taken(*store, this->Choice(7, std::nullopt)), "true");
  ASSERT_TRUE(store->DeleteTag("ids").ok());
  EXPECT_TRUE(refused(segment));
  segment.start = std::uint64_t{1} << 40;
  EXPECT_TRUE(refused(segment));
  NewTag ticket;
  ticket.tag = "ids";
  ticket.step = 1;
  ticket.mode = TagMode::kTicket;
  ticket.access = TagAccess::kSocket;
  EXPECT_TRUE(refused(ticket));
  EXPECT_TRUE(store->CreateTag(this->Snowflake()).ok());

  this->CreateOrders(*store);
  ASSERT_TRUE(store->TakeLease(Request(1)).ok());
  ASSERT_TRUE(store->DeleteTag("orders").ok());
  NewTag flakes = this->Snowflake();
  flakes.tag = "orders";
  EXPECT_TRUE(refused(flakes));
}

TYPED_TEST_P(WorkerContract, LayoutThatIsMissingOrWrongIsReported) {
  const auto store = this->OpenWithIds("a");
  this->CreateOrders(*store);
  const auto expect_refused = [&](const std::string& what) {
    const Status status = store->FindTag("ids").status();
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_NE(status.message().find("idd_snowflake.layout of tag 'ids' is " + what),
              std::string::npos)
        << status.message();
    const auto tags = store->ListTags();
    ASSERT_TRUE(tags.ok()) << tags.status().message();
    ASSERT_EQ(tags.value().size(), 1U);
    EXPECT_EQ(tags.value()[0].tag, "orders");
    const auto found = store->FindTags({"orders", "ids"});
    ASSERT_TRUE(found.ok());
    EXPECT_TRUE(found.value()[0].ok());
    EXPECT_FALSE(found.value()[1].ok());
  };
  const std::string layout = FormatLayout({});
  for (const char* wrong : {"rubbish", "", "41/10/13 unit=1 epoch=0 clock=client ahead=1000"}) {
    this->Execute("UPDATE idd_snowflake SET layout = '" + std::string(wrong) + "'");
    expect_refused("'" + std::string(wrong) + "'");
  }
  this->Execute("DELETE FROM idd_snowflake");
  expect_refused("missing");
  this->Execute("INSERT INTO idd_snowflake(biz_tag, layout) VALUES('ids', '" + layout + "')");
  EXPECT_EQ(store->FindTag("ids").value().snowflake, SnowflakeLayout());
  EXPECT_EQ(store->ListTags().value().size(), 2U);
}

// A row of the worker id that another program has damaged hides no other.
TYPED_TEST_P(WorkerContract, OwnerWithoutACounterBeginsAtTheFirstNumber) {
  const auto store = this->OpenWithIds("a");
  this->Execute("INSERT INTO idd_worker(biz_tag, worker, host) VALUES('ids', 4, 'b')");
  EXPECT_EQ(this->Workers(*store), "4 b 0");
  EXPECT_EQ(this->Taken(*store, this->Choice(4, "b")), "true");
  EXPECT_EQ(this->Workers(*store), "4 a* 1");
}

REGISTER_TYPED_TEST_SUITE_P(
    WorkerContract, WorkerIdIsTakenFromTheOwnerThatWasSeen, HostTakesItsOwnWorkerIdAgainAtOnce,
    CounterThatIsBeyondTheBoundKeepsItsOwner, WindowThatGoesBackFreesItsWorkerIdFromThereOn,
    LeaseByAHostThatIsNotTheOwnerIsRefused, WindowsOfTwoTagsAreLeasedTogether,
    OneOfSeveralHostsTakesAWorkerId, DeletedTagKeepsItsCountersItsOwnersAndItsLayout,
    DeletedTagWithIdsIsNotCreatedAgainInAModeOfTheOtherKind, LayoutThatIsMissingOrWrongIsReported,
    OwnerWithoutACounterBeginsAtTheFirstNumber);

}  // namespace idd::daemon

#endif  // IDD_TESTS_SUPPORT_WORKER_CONTRACT_H_

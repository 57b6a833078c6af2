// SPDX-License-Identifier: Apache-2.0
#include "store_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "store/journal_store.h"
#include "support/store_case.h"

namespace idd::daemon {
namespace {

constexpr std::size_t kTags = 2;  // in the front of tags_
constexpr std::uint32_t kWorkers = 3;

std::string Text(shm::IdRange ids) {
  return "[" + std::to_string(ids.first) + ", " + std::to_string(ids.limit) + ")";
}

std::string Text(const LeaseRecord& row) {
  return row.token + " " + row.tag + " " + row.host + " " + Text(row.ids) + " " +
         LeaseStateName(row.state) + " " + std::to_string(row.claimed) + "/" +
         std::to_string(row.returned) + "/" + std::to_string(row.abandoned);
}

std::vector<std::string> Texts(const std::vector<LeaseRecord>& rows,
                               const std::vector<std::string>& tags) {
  std::vector<std::string> texts;
  for (const LeaseRecord& row : rows) {
    if (std::find(tags.begin(), tags.end(), row.tag) != tags.end()) texts.push_back(Text(row));
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

}  // namespace

StoreHistory::StoreHistory(std::uint32_t seed, std::array<Store*, 2> stores)
    : random_(seed), seed_(seed), stores_(stores) {
  for (Store* const store : stores_) EXPECT_TRUE(store->AbandonActive({}).ok());
  for (const char* name : {"x", "y"}) {
    tags_.push_back("history-" + std::to_string(seed) + name);
    CreateTag(tags_.back());
  }
  snowflake_ = "history-" + std::to_string(seed) + "s";
  CreateSnowflake();
  for (std::uint32_t worker = 0; worker < kWorkers; ++worker) {
    tags_.push_back(CounterName(snowflake_, worker));
  }
}

std::string StoreHistory::Story() const {
  std::string text = "seed " + std::to_string(seed_);
  for (const std::string& step : story_) text += "\n  " + step;
  return text;
}

void StoreHistory::Say(std::string step) { story_.push_back(std::move(step)); }

std::string StoreHistory::NewToken() { return TestToken((std::uint64_t{seed_} << 32) + ++tokens_); }

void StoreHistory::Run(int steps) {
  for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) Step();
  CompareTables();
}

void StoreHistory::Step() {
  const std::uint64_t pick = Below(100);
  if (pick < 10) return TakeWorker();
  if (pick < 45) return TakeLease();
  if (pick < 60) return CloseLeases();
  if (pick < 82) return ReturnTail();
  if (pick < 85) return AbandonActive();
  if (pick < 88) return Reconcile();
  if (pick < 90) return SettleLeases();
  if (pick < 94) return LiftTag();
  if (pick < 97) return DeleteTag();
  if (Below(3) == 0) return CreateSnowflake();
  CreateTag(tags_[Below(kTags)]);
}

// The model has no such step, because nothing but the place of rows changes.
void StoreHistory::SettleLeases() {
  const std::size_t host = Below(2);
  const auto settled = stores_[host]->journal()->KeepJournal(
      {.settle_after = std::chrono::seconds(0), .rows = 1 + Below(20)});
  Say("settle by " + hosts_[host]);
  EXPECT_TRUE(settled.ok()) << settled.status().message() << Story();
}

// One of two layouts: the second makes other ids of a time.
void StoreHistory::CreateSnowflake() {
  NewTag made;
  made.tag = snowflake_;
  made.mode = TagMode::kSnowflake;
  made.snowflake = SnowflakeLayout();
  if (Below(3) == 0) made.snowflake->max_ahead_ms = static_cast<std::uint32_t>(Below(5000));
  if (Below(3) == 0) made.snowflake->sequence_bits = 11;
  Say("create " + snowflake_ + " as " + FormatLayout(*made.snowflake));
  const Result<TagRecord> real = stores_[0]->CreateTag(made);
  const Result<TagRecord> expected = model_.CreateTag(made);
  ASSERT_EQ(real.status().code(), expected.status().code())
      << Story() << real.status().message() << expected.status().message();
  if (real.ok() && Below(2) == 0) {
    Say("delete it");
    ASSERT_EQ(stores_[1]->DeleteTag(snowflake_).code(), model_.DeleteTag(snowflake_).code());
  }
}

// The owner as it is, or a wrong one; the counter may be anywhere.
void StoreHistory::TakeWorker() {
  const std::size_t host = Below(2);
  WorkerChoice choice{.tag = snowflake_,
                      .worker = static_cast<std::uint32_t>(Below(kWorkers)),
                      .owner = {},
                      .at_most = 1 + Below(Below(3) == 0 ? 500 : 5000),
                      .last_number = 1'000'000'000};
  const std::string counter = CounterName(snowflake_, choice.worker);
  choice.owner = model_.OwnerOf(counter);
  const bool is_made = model_.tags.contains(counter);
  if (is_made && Below(4) == 0) choice.owner = hosts_[Below(2)];
  if (is_made && Below(8) == 0) choice.owner.reset();
  Say(hosts_[host] + " takes " + counter + " of " + choice.owner.value_or("nobody") + " up to " +
      std::to_string(choice.at_most));
  const Result<bool> real = stores_[host]->TakeWorker(choice);
  ASSERT_TRUE(real.ok()) << Story() << real.status().message();
  const Result<bool> expected = model_.TakeWorker(choice, hosts_[host]);
  ASSERT_TRUE(expected.ok()) << Story() << expected.status().message();
  ASSERT_EQ(real.value(), expected.value()) << Story();
}

void StoreHistory::CreateTag(const std::string& tag) {
  NewTag made;
  made.tag = tag;
  made.step = 10;
  if (Below(4) == 0) made.start = 1 + Below(500);
  if (Below(4) == 0) made.max_id = 500 + Below(5000);
  Say("create " + tag);
  const Result<TagRecord> real = stores_[0]->CreateTag(made);
  const Result<TagRecord> expected = model_.CreateTag(made);
  ASSERT_EQ(real.status().code(), expected.status().code())
      << Story() << real.status().message() << expected.status().message();
  if (real.ok()) {
    EXPECT_EQ(real.value().next_id, expected.value().next_id) << Story();
  }
}

void StoreHistory::TakeLease() {
  const std::size_t host = Below(2);
  LeaseRequest request{.tag = AnyTag(),
                       .count = 1 + Below(100),
                       .high_water_mark = 0,
                       .floor = 0,
                       .token = NewToken()};
  // The host's own mark, or a lower one.
  for (const Known& lease : leases_) {
    if (lease.tag != request.tag || lease.host != host || Below(3) == 0) continue;
    request.high_water_mark = std::max(request.high_water_mark, lease.ids.limit - Below(3));
  }
  if (Below(4) == 0) request.floor = request.high_water_mark + Below(50);
  if (ParseCounterName(request.tag).has_value()) {
    request.rises = Below(4) != 0;
    request.is_of_worker = Below(4) != 0;
  }
  Say(hosts_[host] + " leases " + request.tag + " " + std::to_string(request.count) + ", mark " +
      std::to_string(request.high_water_mark) + ", floor " + std::to_string(request.floor) +
      (request.is_of_worker ? ", as its owner" : ""));
  // Reads the record again, because another host's lease may have changed it.
  ASSERT_TRUE(stores_[host]->FindTags({request.tag}).ok()) << Story();
  const Result<Lease> real = stores_[host]->TakeLease(request);
  const Result<Lease> expected = model_.TakeLease(request, hosts_[host], false);
  ASSERT_EQ(real.status().code(), expected.status().code()) << Story() << "\n"
                                                            << real.status().message() << "\n"
                                                            << expected.status().message();
  if (!real.ok()) return;
  ASSERT_EQ(Text(real.value().ids), Text(expected.value().ids)) << Story();
  EXPECT_EQ(real.value().from_returned, expected.value().from_returned) << Story();
  EXPECT_EQ(real.value().lifted_from, expected.value().lifted_from) << Story();
  leases_.push_back(
      {.token = request.token, .tag = request.tag, .host = host, .ids = real.value().ids});
}

void StoreHistory::CloseLeases() {
  if (leases_.empty()) return;
  const Known& lease = leases_[Below(leases_.size())];
  const std::size_t host = Below(8) == 0 ? 1 - lease.host : lease.host;
  const bool is_whole = Below(2) == 0;
  const LeaseClosure closure{.token = lease.token,
                             .tag = lease.tag,
                             .state = is_whole ? LeaseState::kExhausted : LeaseState::kAbandoned,
                             .claimed = is_whole ? lease.ids.size() : Below(lease.ids.size() + 2)};
  Say(hosts_[host] + " closes " + lease.tag + " " + Text(lease.ids) + ", claimed " +
      std::to_string(closure.claimed));
  const Status real = stores_[host]->CloseLeases({closure});
  const Status expected = model_.CloseLeases({closure}, hosts_[host]);
  ASSERT_EQ(real.code(), expected.code()) << Story() << real.message() << expected.message();
}

void StoreHistory::ReturnTail() {
  if (leases_.empty()) return;
  // One of the newest, because most of those are still active.
  const std::size_t back = std::min<std::size_t>(Below(6), leases_.size() - 1);
  const Known& lease = leases_[leases_.size() - 1 - back];
  const std::size_t host = Below(8) == 0 ? 1 - lease.host : lease.host;
  const LeaseClosure closure{.token = lease.token,
                             .tag = lease.tag,
                             .state = LeaseState::kReturned,
                             .claimed = Below(3) == 0 ? 0 : Below(lease.ids.size() + 1)};
  Say(hosts_[host] + " hands back " + lease.tag + " " + Text(lease.ids) + ", claimed " +
      std::to_string(closure.claimed));
  const Result<ReturnOutcome> real = stores_[host]->ReturnTail(closure);
  const Result<ReturnOutcome> expected = model_.ReturnTail(closure, hosts_[host], false);
  ASSERT_EQ(real.status().code(), expected.status().code())
      << Story() << real.status().message() << expected.status().message();
  if (real.ok()) {
    EXPECT_EQ(real.value(), expected.value()) << Story();
  }
}

void StoreHistory::AbandonActive() {
  const std::size_t host = Below(2);
  std::vector<std::string> except;
  for (const Known& lease : leases_) {
    if (Below(2) == 0) except.push_back(lease.token);
  }
  Say(hosts_[host] + " abandons all but " + std::to_string(except.size()));
  const Result<std::vector<LeaseRecord>> real = stores_[host]->AbandonActive(except);
  ASSERT_TRUE(real.ok()) << Story() << real.status().message();
  const std::vector<LeaseRecord> expected =
      model_.AbandonActive({except.begin(), except.end()}, hosts_[host]);
  EXPECT_EQ(Texts(real.value(), tags_), Texts(expected, tags_)) << Story();
}

void StoreHistory::Reconcile() {
  const std::size_t host = Below(2);
  HostMemory memory;
  for (const std::string& tag : tags_) {
    if (Below(2) == 0) memory.marks.push_back({.tag = tag, .mark = 1 + Below(3000)});
    if (Below(4) == 0) memory.ceilings.push_back({.tag = tag, .mark = 1 + Below(4000)});
  }
  Say(hosts_[host] + " pushes its marks");
  const Result<Reconciliation> real = stores_[host]->Reconcile(memory);
  ASSERT_TRUE(real.ok()) << Story() << real.status().message();
  const Reconciliation expected = model_.Reconcile(memory, hosts_[host]);
  ASSERT_EQ(real.value().lifted.size(), expected.lifted.size()) << Story();
  for (std::size_t i = 0; i < expected.lifted.size(); ++i) {
    EXPECT_EQ(real.value().lifted[i].tag, expected.lifted[i].tag) << Story();
    EXPECT_EQ(real.value().lifted[i].from, expected.lifted[i].from) << Story();
    EXPECT_EQ(real.value().lifted[i].to, expected.lifted[i].to) << Story();
  }
  EXPECT_EQ(real.value().forgot_leases, expected.forgot_leases) << Story();
}

void StoreHistory::LiftTag() {
  const std::string& tag = AnyTag();
  const std::uint64_t to = 1 + Below(3000);
  Say("lift " + tag + " to " + std::to_string(to));
  const Result<TagRecord> real = stores_[0]->LiftTag(tag, to);
  const Result<TagRecord> expected = model_.LiftTag(tag, to);
  ASSERT_EQ(real.status().code(), expected.status().code())
      << Story() << real.status().message() << expected.status().message();
  if (real.ok()) {
    EXPECT_EQ(real.value().next_id, expected.value().next_id) << Story();
  }
}

void StoreHistory::DeleteTag() {
  const std::string& tag = AnyTag();
  Say("delete " + tag);
  const Status real = stores_[1]->DeleteTag(tag);
  const Status expected = model_.DeleteTag(tag);
  ASSERT_EQ(real.code(), expected.code()) << Story() << real.message() << expected.message();
}

void StoreHistory::CompareWorkers() {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const Result<std::vector<WorkerRecord>> real = stores_[host]->ListWorkers(snowflake_);
    ASSERT_TRUE(real.ok()) << real.status().message();
    const std::vector<WorkerRecord> expected = model_.ListWorkers(snowflake_, hosts_[host]);
    ASSERT_EQ(real.value().size(), expected.size()) << Story();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(real.value()[i].worker, expected[i].worker) << Story();
      EXPECT_EQ(real.value()[i].host, expected[i].host) << Story();
      EXPECT_EQ(real.value()[i].is_mine, expected[i].is_mine) << Story();
      EXPECT_EQ(real.value()[i].next_number, expected[i].next_number) << Story();
    }
  }
  const Result<TagRecord> real = stores_[0]->FindTag(snowflake_);
  const Result<TagRecord> expected = model_.FindTag(snowflake_, false);
  ASSERT_EQ(real.status().code(), expected.status().code()) << Story();
  if (real.ok()) {
    EXPECT_EQ(real.value().snowflake, expected.value().snowflake) << Story();
  }
}

// The sums of both tables are those of the model's journal.
void StoreHistory::CompareSums() {
  for (const std::string& tag : tags_) {
    std::vector<LeaseRecord> of_tag;
    for (const LeaseRecord& lease : model_.journal) {
      if (lease.tag == tag) of_tag.push_back(lease);
    }
    const auto text = [](const std::vector<LeaseSums>& sums) {
      std::string all;
      for (const LeaseSums& one : sums) {
        for (const std::uint64_t number :
             {one.active_leases, one.active_ids, one.ended.leases, one.ended.leased,
              one.ended.claimed, one.ended.returned, one.ended.abandoned}) {
          all += " " + std::to_string(number);
        }
        all += " of " + one.host + ";";
      }
      return all;
    };
    const Result<std::vector<LeaseSums>> sums = stores_[0]->SumLeases(tag);
    ASSERT_TRUE(sums.ok()) << sums.status().message();
    EXPECT_EQ(text(sums.value()), text(AddUp(of_tag))) << tag << Story();
    const Result<std::vector<std::string>> differences = stores_[0]->CheckSums(tag);
    ASSERT_TRUE(differences.ok()) << differences.status().message();
    EXPECT_TRUE(differences.value().empty()) << differences.value().front() << Story();
  }
}

void StoreHistory::CompareTables() {
  CompareWorkers();
  CompareSums();
  const Result<std::vector<LeaseRecord>> journal =
      stores_[0]->ListLeases({.tag = {}, .host = {}, .state = {}, .among = tags_});
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  EXPECT_EQ(Texts(journal.value(), tags_), Texts(model_.journal, tags_)) << Story();
  for (const std::string& tag : tags_) {
    EXPECT_EQ(stores_[0]->UsedLimit(tag).value(), model_.UsedLimit(tag)) << tag << Story();
    const Result<TagRecord> real = stores_[0]->FindTag(tag);
    const Result<TagRecord> expected = model_.FindTag(tag, false);
    ASSERT_EQ(real.status().code(), expected.status().code()) << tag << Story();
    if (real.ok()) {
      EXPECT_EQ(real.value().next_id, expected.value().next_id) << tag << Story();
    }
    std::vector<std::string> listed;
    const Result<std::vector<ReturnedRange>> ranges = stores_[0]->ListReturned(tag);
    ASSERT_TRUE(ranges.ok()) << Story();
    for (const ReturnedRange& range : ranges.value()) {
      listed.push_back(range.host + Text(range.ids));
    }
    std::vector<std::string> modelled;
    for (const simulation::ReturnedRow& row : model_.returned) {
      if (row.tag == tag) modelled.push_back(row.host + Text(row.ids));
    }
    std::sort(listed.begin(), listed.end());
    std::sort(modelled.begin(), modelled.end());
    EXPECT_EQ(listed, modelled) << tag << Story();
  }
}

}  // namespace idd::daemon

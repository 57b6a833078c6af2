// SPDX-License-Identifier: Apache-2.0
//
// `status`: the daemon, its store and the tags. Neither the snapshots of thousands of tags nor the
// document may hold the loop: the snapshots are taken in turns, the document is made by a thread.
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "admin/operations/operations.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_json.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/snapshots.h"
#include "admin/shared/tag_lister.h"

namespace idd::daemon {
namespace {

// How long `status` waits for the store, unless the request says otherwise.
constexpr std::uint64_t kStatusPatienceMs = 500;
constexpr std::uint64_t kMaxStatusPatienceMs = 600'000;

// What a status is made of, for the thread that makes it.
struct StatusFacts {
  // Of the whole host, at the time of the call.
  StatusFacts(const AdminContext& context, PeerRights peer_rights)
      : daemon(DaemonJson(context.info, context.tags.drains().Has(kWholeHost))),
        database(DatabaseJson(context.info.database_url, context.tags.store_health())),
        tags_version(context.tags.tags_version()),
        drained(context.tags.drains().scopes()),
        rights(std::move(peer_rights)) {}

  Json daemon;
  Json database;
  std::uint64_t tags_version;
  DrainLedger::Scopes drained;
  PeerRights rights;
  std::optional<std::string> only{};  // the one tag that was asked for
  TagLister::Records records{};       // of the store; null: it was not asked
  std::vector<TagSnapshot> served{};
};

Json TagsJson(StatusFacts& facts) {
  static const std::vector<TagRecord> kNone;
  const bool is_listed = facts.records != nullptr && facts.records->ok();
  Json tags = Json::array();
  for (const auto& [name, tag] : AllTags(is_listed ? facts.records->value() : kNone,
                                         std::move(facts.served), facts.drained)) {
    if (facts.only.has_value() ? name == *facts.only : facts.rights.MaySee(name)) {
      tags.push_back(StatusTagJson(tag));
    }
  }
  return tags;
}

// The answer to the request, as AdminDone gets it.
std::pair<Status, std::string> MakeStatus(StatusFacts facts) {
  Json tags = TagsJson(facts);
  const Status listed = facts.records == nullptr ? Status::Ok() : facts.records->status();
  const bool is_late = listed.code() == Code::kTimeout;
  if (facts.only.has_value() && tags.empty() && (listed.ok() || is_late)) {
    Status failed = listed.ok() ? Status(Code::kNoSuchTag, "no such tag: '" + *facts.only + "'")
                                : Status(Code::kSystem, listed.message());
    std::string document = ErrorDocument(failed.message());
    return {std::move(failed), std::move(document)};
  }
  // A store that hangs is not down yet, because the first job that will fail is still under way.
  if (is_late && facts.database["last_error"].is_null()) {
    facts.database["last_error"] = OrNull(listed.message());
  }
  return {Status::Ok(), Dump({{"daemon", std::move(facts.daemon)},
                              {"database", std::move(facts.database)},
                              {"tags", std::move(tags)},
                              {"tags_version", facts.tags_version}})};
}

// Making the document takes longer than taking the snapshots, so another thread makes it.
void Answer(AdminContext& context, StatusFacts facts, const AdminDone& done) {
  // Shared, as a task has to be copyable.
  auto shared = std::make_shared<StatusFacts>(std::move(facts));
  context.documents.Post([&loop = context.loop, shared = std::move(shared), done] {
    loop.Post([answer = MakeStatus(std::move(*shared)), done]() mutable {
      done(answer.first, std::move(answer.second));
    });
  });
}

// Takes the snapshots, and answers.
void TakeAndAnswer(AdminContext& context, StatusFacts facts, NextSnapshot next, AdminDone done) {
  auto shared = std::make_shared<StatusFacts>(std::move(facts));
  TakeSnapshots(context.loop, std::move(next),
                [&context, shared, done = std::move(done)](std::vector<TagSnapshot> served) {
                  shared->served = std::move(served);
                  Answer(context, std::move(*shared), done);
                });
}

// Shows only the tags that the peer cannot fully observe. For a peer that asks often and itself
// observes the rings of the other tags. Does not ask the store.
void ShowUnobserved(AdminContext& context, const PeerRights& rights, AdminDone done) {
  const auto may_observe = [rights](const std::string& tag) {
    return rights.Has(Access::kShm, tag);
  };
  TakeAndAnswer(
      context, StatusFacts(context, rights),
      [&context, may_observe](std::string& at, std::vector<TagSnapshot>& snapshots) {
        return context.tags.UnobservedNext(at, may_observe, snapshots);
      },
      std::move(done));
}

// A status request. It is answered when the store's list comes or the wait is over, whichever is
// first.
class StatusCall : public TagLister::Caller, public std::enable_shared_from_this<StatusCall> {
 public:
  StatusCall(AdminContext& context, PeerRights rights, std::optional<std::string> only,
             AdminDone done)
      : context_(context),
        rights_(std::move(rights)),
        only_(std::move(only)),
        done_(std::move(done)),
        patience_(context.loop) {}

  void Begin(std::uint64_t patience_ms) {
    // While the store is down, its jobs are slow to fail, and the tags that are served do not
    // depend on it.
    if (!context_.tags.store_health().up) {
      return OnListed(Failed({Code::kUnavailable, "the store is down"}));
    }
    patience_.After(std::chrono::milliseconds(patience_ms),
                    [this, patience_ms, self = shared_from_this()] {
                      OnListed(Failed({Code::kTimeout, "the store has not listed its tags within " +
                                                           std::to_string(patience_ms) +
                                                           " ms; is it locked or slow?"}));
                    });
    context_.lister.List(shared_from_this());
  }

  [[nodiscard]] bool IsWaiting() const override { return !is_answered_; }

  // If the store does not answer, the reply has only the tags that this daemon serves.
  void OnListed(const TagLister::Records& records) override {
    if (is_answered_) return;
    is_answered_ = true;
    patience_.Cancel();
    StatusFacts facts(context_, rights_);
    facts.records = records;
    facts.only = only_;
    if (only_.has_value()) {
      facts.served = context_.tags.SnapshotOf(*only_);
      return Answer(context_, std::move(facts), done_);
    }
    TakeAndAnswer(
        context_, std::move(facts),
        [&context = context_](std::string& at, std::vector<TagSnapshot>& snapshots) {
          return context.tags.SnapshotNext(at, snapshots);
        },
        done_);
  }

 private:
  [[nodiscard]] static TagLister::Records Failed(Status status) {
    return std::make_shared<const Result<std::vector<TagRecord>>>(std::move(status));
  }

  AdminContext& context_;
  const PeerRights rights_;
  const std::optional<std::string> only_;
  const AdminDone done_;
  Timer patience_;
  bool is_answered_ = false;
};

}  // namespace

void ShowStatus(AdminContext& context, const AdminRequest& request, const PeerRights& rights,
                AdminDone done) {
  const auto only = TextField(request, "tag");
  const auto which = TextField(request, "tags");
  if (!only.ok()) return Fail(done, only.status());
  if (!which.ok()) return Fail(done, which.status());
  if (which.value().value_or("all") == "unobserved" && !only.value().has_value()) {
    return ShowUnobserved(context, rights, std::move(done));
  }
  if (which.value().value_or("all") != "all") {
    return Fail(done, {Code::kInvalid, "'tags' must be 'all', or 'unobserved' without a 'tag'"});
  }
  const auto wait_ms = NumberField(request, "wait_ms");
  if (!wait_ms.ok()) return Fail(done, wait_ms.status());
  const std::uint64_t patience_ms = wait_ms.value().value_or(kStatusPatienceMs);
  if (patience_ms > kMaxStatusPatienceMs) {
    return Fail(
        done, {Code::kInvalid, "'wait_ms' must be at most " + std::to_string(kMaxStatusPatienceMs) +
                                   ", got " + std::to_string(patience_ms)});
  }
  std::make_shared<StatusCall>(context, rights, only.value(), std::move(done))->Begin(patience_ms);
}

}  // namespace idd::daemon

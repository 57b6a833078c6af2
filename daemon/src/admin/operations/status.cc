// SPDX-License-Identifier: Apache-2.0
//
// `status`: the daemon, its store and the tags.
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

namespace idd::daemon {
namespace {

// How long `status` waits for the store, unless the request says otherwise.
constexpr std::uint64_t kStatusPatienceMs = 500;
constexpr std::uint64_t kMaxStatusPatienceMs = 600'000;

std::string StatusText(const AdminContext& context, Json tags, const std::string& late = "") {
  Json database = DatabaseJson(context.info.database_url, context.tags.store_health());
  // A store that hangs is not down yet, because the first job that will fail is still under way.
  if (database["last_error"].is_null()) database["last_error"] = OrNull(late);
  return Dump({{"daemon", DaemonJson(context.info, context.tags.drains().Has(kWholeHost))},
               {"database", std::move(database)},
               {"tags", std::move(tags)},
               {"tags_version", context.tags.tags_version()}});
}

// Shows only the tags that the peer cannot fully observe. For a peer that asks often and itself
// observes the rings of the other tags. Does not ask the store.
void ShowUnobserved(const AdminContext& context, const PeerRights& rights, const AdminDone& done) {
  const auto may_observe = [&rights](const std::string& tag) {
    return rights.Has(Access::kShm, tag);
  };
  Json tags = Json::array();
  for (const TagSnapshot& tag : context.tags.Unobserved(may_observe)) {
    if (rights.MaySee(tag.tag)) tags.push_back(StatusTagJson(tag));
  }
  done(Status::Ok(), StatusText(context, std::move(tags)));
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
      return OnListed(Status(Code::kUnavailable, "the store is down"));
    }
    patience_.After(std::chrono::milliseconds(patience_ms),
                    [this, patience_ms, self = shared_from_this()] {
                      OnListed(Status(Code::kTimeout, "the store has not listed its tags within " +
                                                          std::to_string(patience_ms) +
                                                          " ms; is it locked or slow?"));
                    });
    context_.lister.List(shared_from_this());
  }

  [[nodiscard]] bool IsWaiting() const override { return !is_answered_; }

  // If the store does not answer, the reply has only the tags that this daemon serves.
  void OnListed(const Result<std::vector<TagRecord>>& records) override {
    if (is_answered_) return;
    is_answered_ = true;
    patience_.Cancel();
    const bool is_late = records.status().code() == Code::kTimeout;
    Json tags = TagsJson(records.ok() ? records.value() : std::vector<TagRecord>());
    if (only_.has_value() && tags.empty() && records.ok()) {
      return Fail(done_, {Code::kNoSuchTag, "no such tag: '" + *only_ + "'"});
    }
    if (only_.has_value() && tags.empty() && is_late) {
      return Fail(done_, {Code::kSystem, records.status().message()});
    }
    done_(Status::Ok(),
          StatusText(context_, std::move(tags), is_late ? records.status().message() : ""));
  }

 private:
  [[nodiscard]] Json TagsJson(const std::vector<TagRecord>& records) const {
    Json tags = Json::array();
    for (const auto& [name, tag] :
         AllTags(records, context_.tags.Snapshot(), context_.tags.drains().scopes())) {
      if (only_.has_value() ? name == *only_ : rights_.MaySee(name)) {
        tags.push_back(StatusTagJson(tag));
      }
    }
    return tags;
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
    return ShowUnobserved(context, rights, done);
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

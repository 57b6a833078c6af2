// SPDX-License-Identifier: Apache-2.0
//
// `host.forget`: an operator says that a host will not return. Its active leases end, batch by
// batch, between the leases of this host.
#include <algorithm>
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
#include "platform/logging.h"
#include "store/host_store.h"

namespace idd::daemon {
namespace {

constexpr std::size_t kRowsOfABatch = 500;

struct Forgotten {
  std::string id;
  std::string name;
};

Status NotKnown(const std::string& host) {
  return {Code::kInvalid, "host '" + host + "' is not known; 'idctl host list' shows the names"};
}

Result<Forgotten> FindHost(Store& store, const std::string& own_id, const std::string& host) {
  const Result<std::vector<HostRecord>> hosts = store.ListHosts();
  if (!hosts.ok()) return hosts.status();
  Result<std::string> id = FindHostId(hosts.value(), host);
  if (!id.ok()) return id.status();
  if (id.value() == own_id) {
    return Status(Code::kInvalid, "host '" + host + "' is this one; stop its idd instead");
  }
  const auto record = std::find_if(hosts.value().begin(), hosts.value().end(),
                                   [&id](const HostRecord& one) { return one.host == id.value(); });
  if (record == hosts.value().end() || store.hosts() == nullptr) return NotKnown(host);
  return Forgotten{.id = std::move(id).value(), .name = record->name};
}

// A request to forget a host, from the first batch to the last.
class ForgetCall : public std::enable_shared_from_this<ForgetCall> {
 public:
  ForgetCall(AdminContext& context, bool is_forced, AdminDone done)
      : context_(context), is_forced_(is_forced), done_(std::move(done)) {}

  void Begin(const std::string& host) {
    context_.worker.Submit<Forgotten>(
        [own_id = context_.info.host_id, host](Store& store, HighWaterMarks&) {
          return FindHost(store, own_id, host);
        },
        [self = shared_from_this()](const Result<Forgotten>& begun) {
          if (!begun.ok()) return Fail(self->done_, begun.status());
          self->forgotten_ = begun.value();
          self->EndLeases();
        });
  }

 private:
  void EndLeases() {
    const ForgetOrder order{.host = forgotten_.id,
                            .is_forced = is_forced_,
                            .is_first = is_first_,
                            .rows = kRowsOfABatch};
    context_.worker.Submit<ForgetOutcome>(
        [order](Store& store, HighWaterMarks&) -> Result<ForgetOutcome> {
          HostStore* const hosts = store.hosts();
          if (hosts != nullptr) return hosts->Forget(order);
          return Status(Code::kUnavailable, "the store was exchanged for another");
        },
        [self = shared_from_this()](const Result<ForgetOutcome>& batch) { self->OnBatch(batch); });
  }

  // After a failure the next request goes on where this one has ended.
  void OnBatch(const Result<ForgetOutcome>& batch) {
    if (!batch.ok()) {
      const std::string so_far =
          leases_ == 0 ? "" : "after " + std::to_string(leases_) + " leases were abandoned";
      return Fail(done_, so_far.empty() ? batch.status() : batch.status().WithContext(so_far));
    }
    is_first_ = false;
    leases_ += batch.value().leases;
    ids_ += batch.value().ids;
    returned_ids_ += batch.value().returned_ids;
    if (!batch.value().is_done) return EndLeases();
    log::Info("host.forgotten", {{"host", forgotten_.id},
                                 {"name", forgotten_.name},
                                 {"leases", leases_},
                                 {"ids", ids_},
                                 {"returned_ids", returned_ids_}});
    Finish();
  }

  void Finish() {
    context_.cluster.Forget();  // what it has read is out of date
    done_(Status::Ok(), Dump({{"host", forgotten_.id},
                              {"state", "forgotten"},
                              {"name", OrNull(forgotten_.name)},
                              {"leases", leases_},
                              {"ids", ids_},
                              {"returned_ids", returned_ids_}}));
  }

  AdminContext& context_;
  const bool is_forced_;
  const AdminDone done_;
  Forgotten forgotten_{};
  bool is_first_ = true;
  std::uint64_t leases_ = 0;
  std::uint64_t ids_ = 0;
  std::uint64_t returned_ids_ = 0;
};

}  // namespace

void ForgetHost(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
                AdminDone done) {
  const auto host = TextField(request, "host");
  if (!host.ok()) return Fail(done, host.status());
  if (!host.value().has_value()) return Fail(done, {Code::kInvalid, "'host' is missing"});
  const auto is_forced = FlagField(request, "force");
  if (!is_forced.ok()) return Fail(done, is_forced.status());
  std::make_shared<ForgetCall>(context, is_forced.value(), std::move(done))->Begin(*host.value());
}

}  // namespace idd::daemon

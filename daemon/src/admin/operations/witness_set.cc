// SPDX-License-Identifier: Apache-2.0
//
// `witness.set`: an operator names the hosts whose disks keep the ceilings.
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "admin/operations/operations.h"
#include "admin/operations/witness_report.h"
#include "admin/shared/admin_context.h"
#include "admin/shared/admin_request.h"
#include "admin/shared/claimable.h"
#include "idd/base/clock.h"
#include "platform/event_loop.h"

namespace idd::daemon {
namespace {

using std::chrono::milliseconds;

// As often as a host looks at the term while something waits for the witnesses.
constexpr milliseconds kReportPause(200);
// More than there can be witnesses: the right number is checked with the rest.
constexpr std::size_t kMostHosts = 100;

Result<std::vector<std::string>> HostsField(const AdminRequest& request) {
  const auto field = request.find("hosts");
  const bool is_list = field != request.end() && field->is_array() && field->size() <= kMostHosts;
  if (!is_list) return Status(Code::kInvalid, "'hosts' must be a list of hosts");
  std::vector<std::string> hosts;
  for (const AdminRequest& host : *field) {
    if (!host.is_string()) return Status(Code::kInvalid, "'hosts' must be a list of texts");
    hosts.push_back(host.get<std::string>());
  }
  return hosts;
}

// The ids of the hosts that are asked for, sorted.
Result<std::vector<std::string>> Change(Store& store, StoreSession& session,
                                        const std::vector<std::string>& asked, bool is_forced) {
  const Result<AgreementReport> report = ReportWitnesses(store, session);
  if (!report.ok()) return report.status();
  const Result<std::vector<HostRecord>> records = store.ListHosts();
  if (!records.ok()) return records.status();
  std::vector<std::string> hosts;
  for (const std::string& host : asked) {
    Result<std::string> id = FindHostId(records.value(), host);
    if (!id.ok()) return id.status();
    hosts.push_back(std::move(id).value());
  }
  Status status = session.agreement.SetWitnesses(*store.terms(), hosts, is_forced);
  if (!status.ok()) return status;
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

// A request to change the witnesses, until the hosts have agreed on the new ones or its wait is
// over: then they still do so as soon as they can.
class WitnessCall : public std::enable_shared_from_this<WitnessCall> {
 public:
  WitnessCall(AdminContext& context, milliseconds wait, AdminDone done)
      : context_(context), deadline_(Deadline::After(wait)), done_(std::move(done)) {}

  void Begin(const std::vector<std::string>& asked, bool is_forced) {
    context_.worker.SubmitWithSession<std::vector<std::string>>(
        [asked, is_forced](Store& store, HighWaterMarks&, StoreSession& session) {
          return Change(store, session, asked, is_forced);
        },
        [self = shared_from_this()](const Result<std::vector<std::string>>& hosts) {
          if (!hosts.ok()) return Fail(self->done_, hosts.status());
          self->hosts_ = hosts.value();
          self->Look();
        });
  }

 private:
  void Look() {
    context_.worker.SubmitWithSession<AgreementReport>(
        [](Store& store, HighWaterMarks&, StoreSession& session) {
          return ReportWitnesses(store, session);
        },
        [self = shared_from_this()](const Result<AgreementReport>& report) {
          if (!report.ok()) return Fail(self->done_, report.status());
          if (self->IsMade(report.value()) || self->deadline_.passed()) {
            return AnswerWithWitnesses(self->done_, report.value());
          }
          auto timer = std::make_shared<Timer>(self->context_.loop);
          timer->After(kReportPause, [self, timer] { self->Look(); });
        });
  }

  [[nodiscard]] bool IsMade(const AgreementReport& report) const {
    std::vector<std::string> hosts;
    for (const AgreementReport::Witness& witness : report.witnesses) hosts.push_back(witness.host);
    std::sort(hosts.begin(), hosts.end());
    return report.next.empty() && hosts == hosts_;
  }

  AdminContext& context_;
  const Deadline deadline_;
  const AdminDone done_;
  std::vector<std::string> hosts_;
};

}  // namespace

void SetWitnesses(AdminContext& context, const AdminRequest& request, const PeerRights& /*rights*/,
                  AdminDone done) {
  const auto hosts = HostsField(request);
  if (!hosts.ok()) return Fail(done, hosts.status());
  const auto is_forced = FlagField(request, "force");
  if (!is_forced.ok()) return Fail(done, is_forced.status());
  const auto wait = WaitField(request);
  if (!wait.ok()) return Fail(done, wait.status());
  std::make_shared<WitnessCall>(context, wait.value(), std::move(done))
      ->Begin(hosts.value(), is_forced.value());
}

}  // namespace idd::daemon

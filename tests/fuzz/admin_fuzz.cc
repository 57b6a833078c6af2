// SPDX-License-Identifier: Apache-2.0
//
// An administration request: any text gets exactly one answer, a JSON document, and a peer without
// the right to change something changes nothing.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "admin/admin.h"
#include "config/options.h"
#include "fuzz_target.h"
#include "idd/base/check.h"
#include "platform/logging.h"
#include "support/service_harness.h"
#include "tags/tag_service.h"

namespace {

using namespace idd::daemon;  // NOLINT(google-build-using-namespace): all of it is under test.

constexpr uid_t kSomebody = 1000;
constexpr const char* kHidden = "not-for-everybody";

struct Answer {
  int times = 0;
  idd::Status status;
  std::string document;
};

void CheckAnswer(const Answer& answer) {
  IDD_CHECK(answer.times == 1);
  const auto document = nlohmann::json::parse(answer.document, nullptr, false);
  IDD_CHECK(document.is_object());
  IDD_CHECK(answer.status.ok() || document["error"].is_string());
  IDD_CHECK(answer.status.ok() || !document["error"].get<std::string>().empty());
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  log::SetLevel(log::Level::kError);
  const bool may_change = (data[0] & 1) != 0;
  // A user who may claim from one tag, and may not see the other.
  const auto rules =
      std::make_shared<const AccessRules>(std::vector<AccessRule>{{.tags = {"orders"},
                                                                   .users = {kSomebody},
                                                                   .groups = {},
                                                                   .access = Access::kSocket,
                                                                   .ids_per_s = std::nullopt}},
                                          AccessDefaults{});
  const PeerRights rights(rules,
                          {.pid = 1, .uid = may_change ? 0 : kSomebody, .gid = 1, .groups = {}});
  const bool store_fails = (data[0] & 2) != 0;
  const std::string request(reinterpret_cast<const char*>(data) + 1, size - 1);

  WorkerHarness h;
  TagService tags(h.loop, h.worker, h.handover(), kDefaultLeasesPerSecond);
  MetricsCollector metrics(h.loop, tags);
  const ClientLedger clients;
  Admin admin(h.loop,
              {.version = "0",
               .host_id = FakeStore::kHost,
               .socket = "s",
               .database_url = "fake:",
               .database = "fake:",
               .started = idd::MonotonicClock::now()},
              {.worker = h.worker,
               .tags = tags,
               .metrics = metrics,
               .clients = clients,
               .open_reader = h.reader()});
  h.store.AddTag("orders", 10);
  h.store.AddTag(kHidden, 10);
  h.Start([&tags](const StoreHealth& health) { tags.OnStoreHealth(health); });
  h.Settle();
  if (store_fails) h.store.script.FailAll({idd::Code::kInvalid, "no"});

  Answer answer;
  admin.Handle(request, rights, [&answer](const idd::Status& status, const std::string& document) {
    ++answer.times;
    answer.status = status;
    answer.document = document;
  });
  IDD_CHECK(h.RunUntil([&answer] { return answer.times > 0; }));
  h.Settle();
  CheckAnswer(answer);
  const bool was_told = answer.document.find(kHidden) != std::string::npos;
  IDD_CHECK(may_change || !was_told || !answer.status.ok());
  IDD_CHECK(may_change || h.marks.script.Count("SetDrained") == 0);
  for (const char* change : {"CreateTag", "ChangeTag", "DeleteTag", "LiftTag"}) {
    IDD_CHECK(may_change || h.store.script.Count(change) == 0);
  }
  return 0;
}

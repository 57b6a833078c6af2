// SPDX-License-Identifier: Apache-2.0
//
// The table of the operations of administration requests (docs/socket-protocol.md): name, right and
// handler. Each handler is in the file named after its operation.
#ifndef IDD_DAEMON_ADMIN_OPERATIONS_OPERATIONS_H_
#define IDD_DAEMON_ADMIN_OPERATIONS_OPERATIONS_H_

#include <array>
#include <string_view>

#include "access/access_rules.h"
#include "admin/shared/admin_request.h"

namespace idd::daemon {

struct AdminContext;  // admin_context.h

// The right that a peer needs for an operation. Operations with kSee show only tags that the peer
// may use.
enum class Needs {
  kSee,
  kAdministerTag,
  kAdministerScope,  // kAdmin of the named tag or, without one, of all tags
  kAdministerAll,
};

// Called on the event loop when the peer has the right. It calls `done` once, now or later on the
// loop. `request` and `rights` are valid during the call only.
using AdminHandler = void(AdminContext& context, const AdminRequest& request,
                          const PeerRights& rights, AdminDone done);

AdminHandler Audit;
AdminHandler AwaitTag;
AdminHandler CheckTag;
AdminHandler CreateTag;
AdminHandler Decode;
AdminHandler DeleteTag;
AdminHandler Doctor;
AdminHandler Drain;
AdminHandler ForgetHost;
AdminHandler ImportTags;
AdminHandler InitStore;
AdminHandler ListClients;
AdminHandler ListHosts;
AdminHandler ListLeases;
AdminHandler ListTags;
AdminHandler ListWitnesses;
AdminHandler LogLevel;
AdminHandler Resume;
AdminHandler SetTag;
AdminHandler SetWitnesses;
AdminHandler ShowCluster;
AdminHandler ShowConfig;
AdminHandler ShowImportProgress;
AdminHandler ShowMetrics;
AdminHandler ShowStatus;
AdminHandler ShowTag;
AdminHandler WhoIs;

struct AdminOperation {
  std::string_view name;
  Needs needs;
  AdminHandler* handler;
};

inline constexpr std::array kAdminOperations = {
    AdminOperation{"audit", Needs::kSee, &Audit},
    AdminOperation{"client.list", Needs::kSee, &ListClients},
    AdminOperation{"cluster", Needs::kSee, &ShowCluster},
    AdminOperation{"config.show", Needs::kAdministerAll, &ShowConfig},
    AdminOperation{"decode", Needs::kSee, &Decode},
    AdminOperation{"doctor", Needs::kSee, &Doctor},
    AdminOperation{"drain", Needs::kAdministerScope, &Drain},
    AdminOperation{"host.forget", Needs::kAdministerAll, &ForgetHost},
    AdminOperation{"host.list", Needs::kSee, &ListHosts},
    AdminOperation{"import", Needs::kAdministerAll, &ImportTags},
    AdminOperation{"import.progress", Needs::kAdministerAll, &ShowImportProgress},
    AdminOperation{"lease.list", Needs::kSee, &ListLeases},
    AdminOperation{"log.level", Needs::kAdministerAll, &LogLevel},
    AdminOperation{"metrics", Needs::kSee, &ShowMetrics},
    AdminOperation{"resume", Needs::kAdministerScope, &Resume},
    AdminOperation{"status", Needs::kSee, &ShowStatus},
    AdminOperation{"store.init", Needs::kAdministerAll, &InitStore},
    AdminOperation{"tag.await", Needs::kAdministerTag, &AwaitTag},
    AdminOperation{"tag.check", Needs::kAdministerTag, &CheckTag},
    AdminOperation{"tag.create", Needs::kAdministerTag, &CreateTag},
    AdminOperation{"tag.delete", Needs::kAdministerTag, &DeleteTag},
    AdminOperation{"tag.list", Needs::kSee, &ListTags},
    AdminOperation{"tag.set", Needs::kAdministerTag, &SetTag},
    AdminOperation{"tag.show", Needs::kSee, &ShowTag},
    AdminOperation{"whois", Needs::kSee, &WhoIs},
    AdminOperation{"witness.list", Needs::kSee, &ListWitnesses},
    AdminOperation{"witness.set", Needs::kAdministerAll, &SetWitnesses},
};

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_OPERATIONS_OPERATIONS_H_

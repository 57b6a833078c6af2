// SPDX-License-Identifier: Apache-2.0
//
// An administration request as JSON, its fields, and how it is refused.
#ifndef IDD_DAEMON_ADMIN_SHARED_ADMIN_REQUEST_H_
#define IDD_DAEMON_ADMIN_SHARED_ADMIN_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "idd/base/status.h"
#include "store/store.h"

namespace idd::daemon {

using AdminRequest = nlohmann::json;
// Called with the document to answer with; on failure `status` is not ok and the document is
// {"error": ...}.
using AdminDone = std::function<void(const Status& status, std::string document)>;

// Parses untrusted text. kInvalid unless it is a JSON object with an 'op', at most
// kMaxRequestFields fields and at most kMaxRequestDepth levels. The depth is checked first, so a
// deeper text costs no more than the bytes up to that depth.
inline constexpr std::size_t kMaxRequestDepth = 8;
inline constexpr std::size_t kMaxRequestFields = 64;
[[nodiscard]] Result<AdminRequest> ParseRequest(std::string_view text);

// Answers with {"error": ...}.
void Fail(const AdminDone& done, const Status& status);

// A request's field, or nothing if it is absent. kInvalid if it has another type, or is not a known
// word.
[[nodiscard]] Result<std::optional<std::string>> TextField(const AdminRequest& request,
                                                           const char* key);
[[nodiscard]] Result<std::optional<std::uint64_t>> NumberField(const AdminRequest& request,
                                                               const char* key);
// A time as the allocator's tables have it, UTC: "2026-11-26 05:30:00".
[[nodiscard]] Result<std::optional<std::string>> TimeField(const AdminRequest& request,
                                                           const char* key);
// False if the field is absent.
[[nodiscard]] Result<bool> FlagField(const AdminRequest& request, const char* key);
[[nodiscard]] Result<std::optional<TagAccess>> AccessField(const AdminRequest& request);
[[nodiscard]] Result<std::optional<TagOrder>> OrderField(const AdminRequest& request);
[[nodiscard]] Result<RefillChange> RefillFields(const AdminRequest& request);
// kInvalid also if the field is absent.
[[nodiscard]] Result<std::string> TagField(const AdminRequest& request);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_SHARED_ADMIN_REQUEST_H_

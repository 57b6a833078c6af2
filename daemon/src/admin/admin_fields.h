// SPDX-License-Identifier: Apache-2.0
//
// What the parts of Admin share: reading the fields of a request, and writing records as JSON.
#ifndef IDD_DAEMON_ADMIN_ADMIN_FIELDS_H_
#define IDD_DAEMON_ADMIN_ADMIN_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "admin/admin.h"
#include "idd/base/status.h"
#include "store/store.h"

namespace idd::daemon {

using Request = nlohmann::json;
using Json = nlohmann::ordered_json;  // the keys in the order they are written

[[nodiscard]] std::string Dump(const Json& document);

[[nodiscard]] std::string ErrorDocument(const std::string& message);

// An administration request as JSON: untrusted text. kInvalid unless it is an object of at most
// kMaxRequestFields fields, with an 'op', and of at most kMaxRequestDepth levels, which is looked
// at first: a deeper one costs no more than the bytes to that depth.
inline constexpr std::size_t kMaxRequestDepth = 8;
inline constexpr std::size_t kMaxRequestFields = 64;
[[nodiscard]] Result<Request> ParseRequest(std::string_view text);

// Answers with {"error": ...}.
void Fail(const Admin::Done& done, const Status& status);

// A request's field, or nothing when it is absent. kInvalid when it has another type, or is not one
// of the words that are known.
[[nodiscard]] Result<std::optional<std::string>> TextField(const Request& request, const char* key);
[[nodiscard]] Result<std::optional<std::uint64_t>> NumberField(const Request& request,
                                                               const char* key);
// False when it is absent.
[[nodiscard]] Result<bool> FlagField(const Request& request, const char* key);
[[nodiscard]] Result<std::optional<TagAccess>> AccessField(const Request& request);
[[nodiscard]] Result<RefillChange> RefillFields(const Request& request);
// kInvalid when it is absent, too.
[[nodiscard]] Result<std::string> TagField(const Request& request);

[[nodiscard]] Json TagJson(const TagRecord& record);
[[nodiscard]] Json LeaseJson(const LeaseRecord& lease);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_ADMIN_ADMIN_FIELDS_H_

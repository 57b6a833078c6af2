// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TOOLS_CLIENT_ADMIN_REQUEST_H_
#define IDD_TOOLS_CLIENT_ADMIN_REQUEST_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "client/json_document.h"

namespace idd::tools {

// The payload of an admin frame (docs/socket-protocol.md, "Administration"): the operation, then
// its arguments in the order in which they were set. A value type.
class AdminRequest {
 public:
  explicit AdminRequest(std::string_view op) { fields_.Set("op", op); }

  // A text, a bool, an unsigned number or a list, as JsonDocument::Set accepts it.
  template <typename T>
  AdminRequest& Set(const char* key, const T& value) {
    fields_.Set(key, value);
    return *this;
  }
  // Sets nothing if there is no value.
  template <typename T>
  AdminRequest& SetIfGiven(const char* key, const std::optional<T>& value) {
    return value ? Set(key, *value) : *this;
  }

  // The number of fields, including the operation.
  [[nodiscard]] std::size_t size() const noexcept { return fields_.size(); }
  [[nodiscard]] std::string Text() const { return fields_.Compact(); }

 private:
  JsonDocument fields_;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_CLIENT_ADMIN_REQUEST_H_

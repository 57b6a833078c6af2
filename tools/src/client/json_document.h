// SPDX-License-Identifier: Apache-2.0
//
// JSON documents that idctl receives, builds and prints. This header and json_fields.h only declare
// the library's type: its definition takes seconds to compile, and few files need it.
#ifndef IDD_TOOLS_CLIENT_JSON_DOCUMENT_H_
#define IDD_TOOLS_CLIENT_JSON_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/json_fields.h"
#include "idd/base/status.h"

namespace idd::tools {

// Owns a document, or a part of one under construction. A value type; a moved-from object may only
// be assigned to or destroyed. Not thread-safe.
class JsonDocument {
 public:
  JsonDocument();  // an object without fields
  explicit JsonDocument(const Json& value);
  JsonDocument(const JsonDocument& other);
  JsonDocument(JsonDocument&& other) noexcept;
  JsonDocument& operator=(JsonDocument other) noexcept;
  ~JsonDocument();

  // Valid until the document is assigned to or destroyed.
  [[nodiscard]] const Json& json() const noexcept { return *value_; }
  [[nodiscard]] Json& json() noexcept { return *value_; }

  // Sets one field; a new field is appended. Precondition: the document is an object.
  JsonDocument& Set(const char* key, std::string_view text);
  JsonDocument& Set(const char* key, const char* text) { return Set(key, std::string_view(text)); }
  JsonDocument& Set(const char* key, bool flag);
  JsonDocument& Set(const char* key, std::uint64_t number);
  JsonDocument& Set(const char* key, double number);
  JsonDocument& Set(const char* key, const JsonDocument& part);
  JsonDocument& Set(const char* key, const std::vector<JsonDocument>& parts);
  JsonDocument& Set(const char* key, const std::vector<std::string>& texts);
  JsonDocument& Set(const char* key, const std::vector<std::uint64_t>& numbers);
  JsonDocument& Set(const char* key, std::nullptr_t null);
  template <typename T>
  JsonDocument& Set(const char* key, const std::optional<T>& value) {
    return value ? Set(key, *value) : Set(key, nullptr);
  }

  // The number of fields of an object, or of elements of a list.
  [[nodiscard]] std::size_t size() const noexcept;

  // On one line, or one field a line; without a final newline. Bytes that are not UTF-8 are
  // replaced.
  [[nodiscard]] std::string Compact() const;
  [[nodiscard]] std::string Indented() const;

  // The same document with the digits of each integer as a text. JavaScript and jq read an integer
  // above 2^53 as another one.
  [[nodiscard]] JsonDocument WithTextIntegers() const;

 private:
  std::unique_ptr<Json> value_;  // never null, except after a move
};

// kIncompatible if `text` is not one JSON document or is nested deeper than any reply.
[[nodiscard]] Result<JsonDocument> ParseDocument(std::string_view text);

// `text` as a JSON string, in double quotes.
[[nodiscard]] std::string JsonQuote(std::string_view text);

// --- Changing a document of the daemon. A value of another type than expected stays as it is.

[[nodiscard]] bool IsObject(const Json& value) noexcept;
// Copies the field of `from`; null if it has none.
void CopyField(const Json& from, const char* key, Json& to);
// Null if there is no text. Bytes that are not UTF-8 are escaped.
void SetText(Json& object, const char* key, const std::optional<std::string>& text);
// Calls `change` for each object of the list.
void ForEachObject(Json& document, const char* list,
                   const std::function<void(Json& object)>& change);

}  // namespace idd::tools

#endif  // IDD_TOOLS_CLIENT_JSON_DOCUMENT_H_

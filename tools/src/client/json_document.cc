// SPDX-License-Identifier: Apache-2.0
#include "client/json_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "terminal/output.h"

namespace idd::tools {
namespace {

constexpr int kMaxNesting = 32;  // replies need 6
constexpr int kOneLine = -1;
constexpr int kIndent = 2;

// The nesting depth of brackets outside strings, even if the text is not JSON. The parser's
// callback is not used: with one, parsing takes time quadratic in an array's length.
int Nesting(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    if (in_string && byte == '\\') {
      ++i;
    } else if (byte == '"') {
      in_string = !in_string;
    } else if (!in_string && (byte == '[' || byte == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!in_string && (byte == ']' || byte == '}')) {
      --depth;
    }
  }
  return deepest;
}

// "replace" never throws.
std::string Dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// NOLINTNEXTLINE(misc-no-recursion): a document is nested at most kMaxNesting deep.
void MakeIntegersTexts(Json& value) {
  if (value.is_number_integer()) {
    value = Dump(value, kOneLine);
  } else if (value.is_structured()) {
    for (Json& part : value) MakeIntegersTexts(part);
  }
}

}  // namespace

JsonDocument::JsonDocument() : value_(std::make_unique<Json>(Json::object())) {}
JsonDocument::JsonDocument(const Json& value) : value_(std::make_unique<Json>(value)) {}
JsonDocument::JsonDocument(const JsonDocument& other) : JsonDocument(other.json()) {}
JsonDocument::JsonDocument(JsonDocument&& other) noexcept = default;
JsonDocument::~JsonDocument() = default;

JsonDocument& JsonDocument::operator=(JsonDocument other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, std::string_view text) {
  json()[key] = text;
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, bool flag) {
  json()[key] = flag;
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, std::uint64_t number) {
  json()[key] = number;
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, double number) {
  json()[key] = number;
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, const JsonDocument& part) {
  json()[key] = part.json();
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, const std::vector<JsonDocument>& parts) {
  Json list = Json::array();
  for (const JsonDocument& part : parts) list.push_back(part.json());
  json()[key] = std::move(list);
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, const std::vector<std::string>& texts) {
  json()[key] = texts;
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, const std::vector<std::uint64_t>& numbers) {
  json()[key] = numbers;
  return *this;
}

JsonDocument& JsonDocument::Set(const char* key, std::nullptr_t null) {
  json()[key] = null;
  return *this;
}

std::size_t JsonDocument::size() const noexcept { return json().size(); }

std::string JsonDocument::Compact() const { return Dump(json(), kOneLine); }

std::string JsonDocument::Indented() const { return Dump(json(), kIndent); }

JsonDocument JsonDocument::WithTextIntegers() const {
  JsonDocument document(json());
  MakeIntegersTexts(document.json());
  return document;
}

Result<JsonDocument> ParseDocument(std::string_view text) {
  const auto malformed = [](const char* what) {
    return Status(Code::kIncompatible,
                  std::string("the daemon's reply is malformed: the document is ") + what);
  };
  if (Nesting(text) > kMaxNesting) return malformed("nested too deeply");
  JsonDocument document;
  // Without exceptions, the parser returns unparsable text as "discarded".
  document.json() = Json::parse(text, nullptr, false);
  if (document.json().is_discarded()) return malformed("not JSON");
  return document;
}

std::string JsonQuote(std::string_view text) { return Dump(Json(text), kOneLine); }

bool IsObject(const Json& value) noexcept { return value.is_object(); }

void CopyField(const Json& from, const char* key, Json& to) {
  if (!from.is_object() || !to.is_object()) return;
  const auto found = from.find(key);
  to[key] = found == from.end() ? Json(nullptr) : *found;
}

void SetText(Json& object, const char* key, const std::optional<std::string>& text) {
  if (!object.is_object()) return;
  Json& field = object[key];
  field = nullptr;
  if (text) field = IsUtf8(*text) ? *text : EscapeText(*text);
}

void ForEachObject(Json& document, const char* list,
                   const std::function<void(Json& object)>& change) {
  if (!document.is_object()) return;
  const auto found = document.find(list);
  if (found == document.end() || !found->is_array()) return;
  for (Json& item : *found) {
    if (item.is_object()) change(item);
  }
}

}  // namespace idd::tools

// SPDX-License-Identifier: Apache-2.0
//
// Reading a document of the daemon. It is untrusted input, so every field is checked before its
// use.
#ifndef IDD_TOOLS_CLIENT_JSON_FIELDS_H_
#define IDD_TOOLS_CLIENT_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "idd/base/status.h"

namespace idd::tools {

// Keeps the order of the daemon's fields when the document is printed again.
using Json = nlohmann::ordered_json;

// One object of a document. The first field that is missing or has the wrong type is recorded as
// kIncompatible, with the field's path, in the Status that all objects of a document share. Every
// accessor then returns an empty value, so a reader checks the Status once, at the end.
//
// The document and the Status must outlive it.
class Fields {
 public:
  // `path` is the object's name in messages ("status.daemon").
  Fields(const Json& object, std::string path, Status* error);

  [[nodiscard]] std::string Text(const char* key) const;
  // Nothing if null, missing or an empty text.
  [[nodiscard]] std::optional<std::string> OptionalText(const char* key) const;
  // An unsigned integer.
  [[nodiscard]] std::uint64_t Count(const char* key) const;
  // Nothing if null; missing is an error.
  [[nodiscard]] std::optional<std::uint64_t> OptionalCount(const char* key) const;
  // The decimal digits of Count().
  [[nodiscard]] std::string CountText(const char* key) const;
  // A non-negative number.
  [[nodiscard]] double Number(const char* key) const;
  // Nothing if null or missing.
  [[nodiscard]] std::optional<double> OptionalNumber(const char* key) const;
  [[nodiscard]] bool Flag(const char* key) const;
  [[nodiscard]] Fields Object(const char* key) const;
  // Nothing if null; missing is an error.
  [[nodiscard]] std::optional<Fields> OptionalObject(const char* key) const;
  // The objects in a list.
  [[nodiscard]] std::vector<Fields> Objects(const char* key) const;
  // The texts in a list.
  [[nodiscard]] std::vector<std::string> Texts(const char* key) const;
  // False when the key is missing.
  [[nodiscard]] bool Has(const char* key) const;

 private:
  // Never null: a JSON null where the key is missing.
  [[nodiscard]] const Json& At(const char* key) const;
  void Note(const char* key, const char* expected) const;

  const Json* object_;
  std::string path_;
  Status* error_;
};

}  // namespace idd::tools

#endif  // IDD_TOOLS_CLIENT_JSON_FIELDS_H_

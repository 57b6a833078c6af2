// SPDX-License-Identifier: Apache-2.0
#include "client/json_fields.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace idd::tools {
namespace {

const Json& NullJson() {
  static const Json null;
  return null;
}

}  // namespace

Fields::Fields(const Json& object, std::string path, Status* error)
    : object_(&object), path_(std::move(path)), error_(error) {
  if (!object.is_object() && error_->ok()) {
    *error_ = Status(Code::kIncompatible, "the daemon's document is malformed: " + path_ + " is " +
                                              object.type_name() + ", not an object");
  }
}

const Json& Fields::At(const char* key) const {
  if (!object_->is_object()) return NullJson();
  const auto found = object_->find(key);
  return found == object_->end() ? NullJson() : *found;
}

bool Fields::Has(const char* key) const { return object_->is_object() && object_->contains(key); }

void Fields::Note(const char* key, const char* expected) const {
  if (!error_->ok()) return;
  const std::string found = Has(key) ? At(key).type_name() : "missing";
  *error_ = Status(Code::kIncompatible, "the daemon's document is malformed: " + path_ + "." + key +
                                            " is " + found + ", not " + expected);
}

std::string Fields::Text(const char* key) const {
  const Json& value = At(key);
  if (value.is_string()) return value.get<std::string>();
  Note(key, "a text");
  return {};
}

std::optional<std::string> Fields::OptionalText(const char* key) const {
  if (At(key).is_null()) return std::nullopt;
  std::string text = Text(key);
  if (text.empty()) return std::nullopt;
  return text;
}

std::uint64_t Fields::Count(const char* key) const {
  const Json& value = At(key);
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  Note(key, "an unsigned integer");
  return 0;
}

std::optional<std::uint64_t> Fields::OptionalCount(const char* key) const {
  if (Has(key) && At(key).is_null()) return std::nullopt;
  return Count(key);
}

std::string Fields::CountText(const char* key) const { return std::to_string(Count(key)); }

double Fields::Number(const char* key) const {
  const Json& value = At(key);
  if (value.is_number() && value.get<double>() >= 0) return value.get<double>();
  Note(key, "a number of at least 0");
  return 0;
}

std::optional<double> Fields::OptionalNumber(const char* key) const {
  if (At(key).is_null()) return std::nullopt;
  return Number(key);
}

bool Fields::Flag(const char* key) const {
  const Json& value = At(key);
  if (value.is_boolean()) return value.get<bool>();
  Note(key, "true or false");
  return false;
}

Fields Fields::Object(const char* key) const {
  if (!At(key).is_object()) Note(key, "an object");
  return Fields(At(key), path_ + "." + key, error_);
}

std::optional<Fields> Fields::OptionalObject(const char* key) const {
  if (Has(key) && At(key).is_null()) return std::nullopt;
  return Object(key);
}

std::vector<Fields> Fields::Objects(const char* key) const {
  const Json& list = At(key);
  std::vector<Fields> objects;
  if (!list.is_array()) {
    Note(key, "a list");
    return objects;
  }
  objects.reserve(list.size());
  for (std::size_t i = 0; i < list.size() && error_->ok(); ++i) {
    objects.emplace_back(list[i], path_ + "." + key + "[" + std::to_string(i) + "]", error_);
  }
  return objects;
}

std::vector<std::string> Fields::Texts(const char* key) const {
  const Json& list = At(key);
  if (!list.is_array()) {
    Note(key, "a list of texts");
    return {};
  }
  std::vector<std::string> texts;
  for (const Json& item : list) {
    if (!item.is_string()) {
      Note(key, "a list of texts");
      return {};
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

}  // namespace idd::tools

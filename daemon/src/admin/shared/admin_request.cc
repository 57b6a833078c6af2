// SPDX-License-Identifier: Apache-2.0
#include "admin/shared/admin_request.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "admin/shared/admin_json.h"
#include "idd/wire/frames.h"
#include "store/snowflake_layout.h"

namespace idd::daemon {
namespace {

// Whether arrays and objects are nested deeper than `most`, judged by the brackets outside of
// strings. The parser refuses text that is not JSON.
bool IsDeeper(std::string_view text, std::size_t most) {
  std::size_t depth = 0;
  bool is_in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string) {
      if (c == '\\') ++i;
      if (c == '"') is_in_string = false;
    } else if (c == '"') {
      is_in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<AdminRequest> ParseRequest(std::string_view text) {
  if (IsDeeper(text, kMaxRequestDepth)) {
    return Status(Code::kInvalid, "the request is nested more than " +
                                      std::to_string(kMaxRequestDepth) + " levels deep");
  }
  AdminRequest request = AdminRequest::parse(text, nullptr, false);
  if (!request.is_object() || !request.contains("op") || !request["op"].is_string()) {
    return Status(Code::kInvalid, "the request is not a JSON object with an 'op'");
  }
  if (request.size() > kMaxRequestFields) {
    return Status(Code::kInvalid,
                  "the request has more than " + std::to_string(kMaxRequestFields) + " fields");
  }
  return request;
}

void Fail(const AdminDone& done, const Status& status) {
  // UNAVAILABLE means to a client that idd is out of reach; here it is the store that is. TIMEOUT
  // means that a claim got no id; here a row was locked.
  Status answer = status;
  if (status.code() == Code::kUnavailable) {
    answer = {Code::kSystem, "the store is not available: " + status.message()};
  } else if (status.code() == Code::kTimeout) {
    answer = {Code::kSystem, status.message()};
  }
  done(answer, ErrorDocument(answer.message()));
}

Result<std::optional<std::string>> TextField(const AdminRequest& request, const char* key) {
  const auto it = request.find(key);
  if (it == request.end() || it->is_null()) return std::optional<std::string>();
  if (!it->is_string())
    return Status(Code::kInvalid, std::string("'") + key + "' must be a string");
  return std::optional<std::string>(it->get<std::string>());
}

Result<std::optional<std::uint64_t>> NumberField(const AdminRequest& request, const char* key) {
  const auto it = request.find(key);
  if (it == request.end() || it->is_null()) return std::optional<std::uint64_t>();
  if (!it->is_number_unsigned()) {
    return Status(Code::kInvalid, std::string("'") + key + "' must be a whole number, 0 or more");
  }
  return std::optional<std::uint64_t>(it->get<std::uint64_t>());
}

Result<std::optional<std::string>> TimeField(const AdminRequest& request, const char* key) {
  Result<std::optional<std::string>> text = TextField(request, key);
  if (!text.ok() || !text.value().has_value()) return text;
  constexpr std::string_view kForm = "dddd-dd-dd dd:dd:dd";
  const std::string& time = *text.value();
  bool is_time = time.size() == kForm.size();
  for (std::size_t i = 0; is_time && i < kForm.size(); ++i) {
    const bool is_digit = time[i] >= '0' && time[i] <= '9';
    is_time = kForm[i] == 'd' ? is_digit : time[i] == kForm[i];
  }
  if (is_time) return text;
  return Status(Code::kInvalid,
                std::string("'") + key + "' must be a time in UTC, like \"2026-11-26 05:30:00\"");
}

Result<bool> FlagField(const AdminRequest& request, const char* key) {
  const auto it = request.find(key);
  if (it == request.end() || it->is_null()) return false;
  if (!it->is_boolean()) {
    return Status(Code::kInvalid, std::string("'") + key + "' must be true or false");
  }
  return it->get<bool>();
}

Result<std::string> TagField(const AdminRequest& request) {
  Result<std::optional<std::string>> tag = TextField(request, "tag");
  if (!tag.ok()) return tag.status();
  if (!tag.value().has_value()) return Status(Code::kInvalid, "'tag' is missing");
  if (Status status = wire::CheckTagName(*tag.value()); !status.ok()) return status;
  if (Status status = CheckIsNoCounter(*tag.value()); !status.ok()) return status;
  return *std::move(tag.value());
}

Result<std::optional<TagAccess>> AccessField(const AdminRequest& request) {
  const Result<std::optional<std::string>> name = TextField(request, "access");
  if (!name.ok()) return name.status();
  if (!name.value().has_value()) return std::optional<TagAccess>();
  const std::optional<TagAccess> access = ParseTagAccess(*name.value());
  if (access.has_value()) return access;
  return Status(Code::kInvalid,
                "unknown access '" + *name.value() + "'; ring and socket are available");
}

Result<std::optional<TagOrder>> OrderField(const AdminRequest& request) {
  const Result<std::optional<std::string>> name = TextField(request, "order");
  if (!name.ok()) return name.status();
  if (!name.value().has_value()) return std::optional<TagOrder>();
  const std::optional<TagOrder> order = ParseTagOrder(*name.value());
  if (order.has_value()) return order;
  return Status(Code::kInvalid,
                "unknown order '" + *name.value() + "'; host and cpu are available");
}

Result<RefillChange> RefillFields(const AdminRequest& request) {
  const auto rule = TextField(request, "refill");
  const auto max_step = NumberField(request, "max_step");
  const auto max_prefetch = NumberField(request, "max_prefetch");
  const auto tolerance = NumberField(request, "outage_tolerance_s");
  for (const Status& status :
       {rule.status(), max_step.status(), max_prefetch.status(), tolerance.status()}) {
    if (!status.ok()) return status;
  }
  RefillChange refill{.max_step = max_step.value(), .max_prefetch = max_prefetch.value()};
  if (rule.value().has_value()) {
    refill.rule = ParseRefillRule(*rule.value());
    if (!refill.rule.has_value()) {
      return Status(Code::kInvalid,
                    "unknown refill '" + *rule.value() + "'; promise and leaf are available");
    }
  }
  if (tolerance.value().has_value()) {
    // A longer value becomes the longest tolerance plus one second, which is refused. A signed
    // number of seconds could not hold every value.
    const auto longest = static_cast<std::uint64_t>(kMaxOutageTolerance.count()) + 1;
    refill.outage_tolerance = std::chrono::seconds(std::min(*tolerance.value(), longest));
  }
  return refill;
}

}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
//
// Values and errors of JavaScript, and back.
#ifndef IDCLIENT_NODE_VALUES_H_
#define IDCLIENT_NODE_VALUES_H_

#ifndef NAPI_VERSION
#define NAPI_VERSION 8
#endif
#include <node_api.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "idclient/idclient.hpp"

namespace idclient_node {

inline napi_value Undefined(napi_env env) {
  napi_value value = nullptr;
  napi_get_undefined(env, &value);
  return value;
}

inline napi_value FromNumber(napi_env env, double number) {
  napi_value value = nullptr;
  napi_create_double(env, number, &value);
  return value;
}

inline napi_value FromId(napi_env env, std::uint64_t id) {
  napi_value value = nullptr;
  napi_create_bigint_uint64(env, id, &value);
  return value;
}

inline napi_value FromString(napi_env env, std::string_view text) {
  napi_value value = nullptr;
  napi_create_string_utf8(env, text.data(), text.size(), &value);
  return value;
}

inline napi_valuetype TypeOf(napi_env env, napi_value value) {
  napi_valuetype type = napi_undefined;
  napi_typeof(env, value, &type);
  return type;
}

inline std::optional<std::string> ReadString(napi_env env, napi_value value) {
  if (TypeOf(env, value) != napi_string) return std::nullopt;
  std::size_t bytes = 0;
  if (napi_get_value_string_utf8(env, value, nullptr, 0, &bytes) != napi_ok) return std::nullopt;
  std::string text(bytes, '\0');
  napi_get_value_string_utf8(env, value, text.data(), bytes + 1, &bytes);
  return text;
}

// A whole number from 0 to `limit`; what is above it becomes `limit`.
inline std::optional<std::uint64_t> ReadCount(napi_env env, napi_value value, std::uint64_t limit) {
  double number = 0;
  if (napi_get_value_double(env, value, &number) != napi_ok) return std::nullopt;
  if (!(number >= 0) || std::trunc(number) != number) return std::nullopt;
  return number >= static_cast<double>(limit) ? limit : static_cast<std::uint64_t>(number);
}

// A wait that is too long for the library becomes one that it refuses.
inline std::optional<std::uint32_t> ReadMilliseconds(napi_env env, napi_value value) {
  const auto count = ReadCount(env, value, std::numeric_limits<std::uint32_t>::max());
  return count.has_value() ? std::optional(static_cast<std::uint32_t>(*count)) : std::nullopt;
}

// What an environment has once.
struct Instance {
  // Before the environment deletes its references, and after its last callback.
  static void EndReferences(void* data) {
    Instance& instance = *static_cast<Instance*>(data);
    const napi_ref make_error = std::exchange(instance.make_error, nullptr);
    if (make_error != nullptr) napi_delete_reference(instance.env, make_error);
  }

  napi_env env = nullptr;
  napi_ref make_error = nullptr;  // (status, message, retryable, detail) => Error
};

// A failure with its message, copied before the thread's next call.
struct Failure {
  explicit Failure(idclient_status why) : status(why), message(idclient_last_error()) {}
  Failure(idclient_status why, std::string text) : status(why), message(std::move(text)) {}
  explicit Failure(const idclient::Error& error) : status(error.status()), message(error.what()) {
    const std::string prefix = std::string(idclient_status_name(status)) + ": ";
    if (message.starts_with(prefix)) message.erase(0, prefix.size());
  }

  idclient_status status;
  std::string message;
};

// Calls the factory of lib/errors.js. Null if JavaScript cannot run now.
inline napi_value MakeError(napi_env env, std::string_view status, std::string_view message,
                            bool is_retryable, napi_value detail) {
  void* data = nullptr;
  napi_value make_error = nullptr;
  if (napi_get_instance_data(env, &data) != napi_ok || data == nullptr) return nullptr;
  const Instance& instance = *static_cast<Instance*>(data);
  if (instance.make_error == nullptr) return nullptr;
  if (napi_get_reference_value(env, instance.make_error, &make_error) != napi_ok) return nullptr;
  napi_value retryable = nullptr;
  napi_get_boolean(env, is_retryable, &retryable);
  const napi_value arguments[] = {FromString(env, status), FromString(env, message), retryable,
                                  detail};
  napi_value error = nullptr;
  if (napi_call_function(env, Undefined(env), make_error, std::size(arguments), arguments,
                         &error) != napi_ok) {
    return nullptr;
  }
  return error;
}

inline napi_value MakeError(napi_env env, const Failure& failure, napi_value detail) {
  return MakeError(env, idclient_status_name(failure.status), failure.message,
                   idclient_status_retryable(failure.status) != 0, detail);
}

// Returns null, as a callback that throws does.
[[gnu::noinline, gnu::cold]] inline napi_value Throw(napi_env env, const Failure& failure,
                                                     napi_value detail = nullptr) {
  if (detail == nullptr) detail = Undefined(env);
  const napi_value error = MakeError(env, failure, detail);
  if (error != nullptr) napi_throw(env, error);
  return nullptr;
}

[[gnu::noinline, gnu::cold]] inline napi_value ThrowNotSafeInteger(napi_env env, std::uint64_t id) {
  const std::string message =
      "id " + std::to_string(id) + " is above Number.MAX_SAFE_INTEGER; claim it as a BigInt";
  const napi_value error = MakeError(env, "NUMBER_RANGE", message, false, FromId(env, id));
  if (error != nullptr) napi_throw(env, error);
  return nullptr;
}

// Runs `body`, and throws in JavaScript what it throws in C++.
template <typename Body>
napi_value Contained(napi_env env, Body body) noexcept {
  try {
    return body();
  } catch (const idclient::Error& error) {
    return Throw(env, Failure(error));
  } catch (const std::exception& error) {
    return Throw(env, Failure(IDCLIENT_SYSTEM, error.what()));
  }
}

}  // namespace idclient_node

#endif  // IDCLIENT_NODE_VALUES_H_

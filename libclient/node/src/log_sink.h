// SPDX-License-Identifier: Apache-2.0
//
// Takes what the library logs, on any thread, to a function of JavaScript.
#ifndef IDCLIENT_NODE_LOG_SINK_H_
#define IDCLIENT_NODE_LOG_SINK_H_

#ifndef NAPI_VERSION
#define NAPI_VERSION 8
#endif
#include <node_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "idclient/idclient.h"
#include "values.h"

namespace idclient_node {

struct LogMessage {
  idclient_log_level level;
  std::string text;
};

// Brings log messages from any thread to the event loop, without keeping that alive.
//
// It refers to the JavaScript function weakly, because the function may refer to the client: the
// client's JavaScript object keeps it.
class LogSink {
 public:
  static std::shared_ptr<LogSink> Create(napi_env env, napi_value function) {
    auto sink = std::make_shared<LogSink>();
    if (napi_create_reference(env, function, 0, &sink->log_) != napi_ok) return nullptr;
    auto owner = std::make_unique<std::shared_ptr<LogSink>>(sink);
    if (napi_create_threadsafe_function(env, nullptr, nullptr, FromString(env, "idclient.log"), 0,
                                        1, owner.get(), Finalize, sink.get(), Deliver,
                                        &sink->channel_) != napi_ok) {
      napi_delete_reference(env, sink->log_);
      return nullptr;
    }
    static_cast<void>(owner.release());  // Finalize deletes it
    napi_unref_threadsafe_function(env, sink->channel_);
    return sink;
  }

  // On any thread. Messages of an environment that is ending are dropped.
  void Write(idclient_log_level level, std::string_view text) {
    auto message = std::make_unique<LogMessage>(LogMessage{level, std::string(text)});
    const std::lock_guard lock(mutex_);
    if (channel_ == nullptr) return;
    if (napi_call_threadsafe_function(channel_, message.get(), napi_tsfn_nonblocking) == napi_ok) {
      static_cast<void>(message.release());  // Deliver deletes it
    }
  }

  // On the environment's thread. What was written before is still delivered, then the end, which
  // is no message.
  void Close() {
    const std::lock_guard lock(mutex_);
    const napi_threadsafe_function channel = std::exchange(channel_, nullptr);
    if (channel == nullptr) return;
    napi_call_threadsafe_function(channel, nullptr, napi_tsfn_nonblocking);
    napi_release_threadsafe_function(channel, napi_tsfn_release);
  }

 private:
  static void Deliver(napi_env env, napi_value /*function*/, void* context, void* data) {
    const std::unique_ptr<LogMessage> message(static_cast<LogMessage*>(data));
    if (env == nullptr) return;
    LogSink& sink = *static_cast<LogSink*>(context);
    if (message == nullptr) {
      napi_delete_reference(env, std::exchange(sink.log_, nullptr));
      return;
    }
    napi_value log = nullptr;
    if (napi_get_reference_value(env, sink.log_, &log) != napi_ok || log == nullptr) return;
    const char* const level = message->level == IDCLIENT_LOG_WARNING ? "warning" : "info";
    const napi_value arguments[] = {FromString(env, level), FromString(env, message->text)};
    if (napi_call_function(env, Undefined(env), log, std::size(arguments), arguments, nullptr) ==
        napi_pending_exception) {
      ReportException(env);
    }
  }

  // As an uncaught exception; Node.js would only warn.
  static void ReportException(napi_env env) {
    napi_value exception = nullptr;
    if (napi_get_and_clear_last_exception(env, &exception) == napi_ok)
      napi_fatal_exception(env, exception);
  }

  // The channel has ended, perhaps with its environment, which then deletes the reference.
  static void Finalize(napi_env /*env*/, void* data, void* /*hint*/) {
    const std::unique_ptr<std::shared_ptr<LogSink>> owner(
        static_cast<std::shared_ptr<LogSink>*>(data));
    const std::lock_guard lock((*owner)->mutex_);
    (*owner)->channel_ = nullptr;
  }

  std::mutex mutex_;
  napi_threadsafe_function channel_ = nullptr;  // guarded by mutex_
  napi_ref log_ = nullptr;                      // weak
};

}  // namespace idclient_node

#endif  // IDCLIENT_NODE_LOG_SINK_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef IDCLIENT_SRC_LOG_H_
#define IDCLIENT_SRC_LOG_H_

#include <string>

#include "idclient/idclient.h"

namespace idd::client {

// The program's log function, if it gave one. Thread safety: all; no lock may be held.
class Log {
 public:
  Log() = default;
  Log(idclient_log_function function, void* context) noexcept
      : function_(function), context_(context) {}

  void Info(const std::string& message) const noexcept { Write(IDCLIENT_LOG_INFO, message); }
  void Warning(const std::string& message) const noexcept { Write(IDCLIENT_LOG_WARNING, message); }

 private:
  void Write(idclient_log_level level, const std::string& message) const noexcept {
    if (function_ != nullptr) function_(context_, level, message.c_str());
  }

  idclient_log_function function_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace idd::client

#endif  // IDCLIENT_SRC_LOG_H_

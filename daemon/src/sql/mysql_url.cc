// SPDX-License-Identifier: Apache-2.0
#include "sql/mysql_url.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "idd/base/url_password.h"
#include "platform/path_error.h"

namespace idd::daemon {
namespace {

constexpr std::string_view kForm = "mysql://user[:password]@host[:port][,host2[:port]...]/database";

Status Bad(const std::string& what) {
  return {Code::kInvalid, "the database URL " + what + "; it must be " + std::string(kForm)};
}

std::optional<std::string> Decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned char byte = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const char* const end = text.data() + i + 3;
    const auto [stop, error] = std::from_chars(text.data() + i + 1, end, byte, 16);
    if (error != std::errc() || stop != end || byte == 0) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

// Splits at the first `separator`; the second part is empty without one.
std::pair<std::string_view, std::string_view> Split(std::string_view text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::optional<MysqlEndpoint> ParseEndpoint(std::string_view text) {
  MysqlEndpoint endpoint;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    endpoint.host = text.substr(1, end - 1);
    std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':')) return std::nullopt;
    if (!rest.empty()) port = rest.substr(1);
    if (!rest.empty() && port.empty()) return std::nullopt;
  } else {
    const auto [host, number] = Split(text, ':');
    if (text.ends_with(':')) return std::nullopt;
    endpoint.host = host;
    port = number;
  }
  const bool is_clean = std::all_of(endpoint.host.begin(), endpoint.host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == ':';
  });
  if (endpoint.host.empty() || !is_clean) return std::nullopt;
  if (!port.empty()) {
    const auto [stop, error] =
        std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
    if (error != std::errc() || stop != port.data() + port.size() || endpoint.port == 0) {
      return std::nullopt;
    }
  }
  return endpoint;
}

Status ParseParameter(std::string_view parameter, MysqlUrl& url) {
  const auto [name, encoded] = Split(parameter, '=');
  const std::optional<std::string> value = Decode(encoded);
  if (!value.has_value() || value->empty()) {
    return Bad("has a parameter without a value, or with a bad percent code");
  }
  const std::array<std::pair<std::string_view, std::string*>, 6> texts = {
      {{"unix_socket", &url.unix_socket},
       {"ssl_ca", &url.ssl_ca},
       {"ssl_cert", &url.ssl_cert},
       {"ssl_key", &url.ssl_key},
       {"server_public_key", &url.server_public_key},
       {"password_file", &url.password_file}}};
  for (const auto& [known, place] : texts) {
    if (name != known) continue;
    *place = *value;
    return Status::Ok();
  }
  if (name == "ssl_verify" && (*value == "0" || *value == "1")) {
    url.ssl_verify = *value == "1";
    return Status::Ok();
  }
  return Bad(
      "has an unknown parameter; known are unix_socket, ssl_ca, ssl_cert, ssl_key, ssl_verify=0|1, "
      "server_public_key and password_file");
}

Status ParseUser(std::string_view text, MysqlUrl& url) {
  const auto [user, password] = Split(text, ':');
  const std::optional<std::string> decoded_user = Decode(user);
  const std::optional<std::string> decoded_password = Decode(password);
  if (!decoded_user.has_value() || !decoded_password.has_value()) {
    return Bad("has a bad percent code before the '@'");
  }
  if (decoded_user->empty()) return Bad("names no user");
  url.user = *decoded_user;
  url.password = *decoded_password;
  return Status::Ok();
}

// The path of a credential of the service manager; nothing if it has passed no credentials.
std::optional<std::string> CredentialPath(const std::string& name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read only.
  const char* const directory = std::getenv("CREDENTIALS_DIRECTORY");
  if (directory == nullptr) return std::nullopt;
  return std::string(directory) + "/" + name;
}

}  // namespace

std::string MysqlUrl::Display() const {
  std::string text = std::string(kMysqlScheme) + user + "@";
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const bool is_v6 = endpoints[i].host.find(':') != std::string::npos;
    text += (i == 0 ? "" : ",") + (is_v6 ? "[" + endpoints[i].host + "]" : endpoints[i].host) +
            (endpoints[i].host.empty() ? "" : ":" + std::to_string(endpoints[i].port));
  }
  text += "/" + database;
  if (!unix_socket.empty()) text += "?unix_socket=" + unix_socket;
  return text;
}

Result<MysqlUrl> ParseMysqlUrl(std::string_view text) {
  if (!text.starts_with(kMysqlScheme)) return Bad("does not begin with mysql://");
  MysqlUrl url;
  const auto [before_query, query] = Split(text.substr(kMysqlScheme.size()), '?');
  // The last '@' ends the password, so the password may have any character but '?' and '%'
  // unencoded.
  const std::size_t at = before_query.rfind('@');
  if (at == std::string_view::npos) return Bad("names no user");
  if (Status status = ParseUser(before_query.substr(0, at), url); !status.ok()) return status;
  const auto [hosts, database] = Split(before_query.substr(at + 1), '/');
  const std::optional<std::string> decoded = Decode(database);
  if (!decoded.has_value() || decoded->empty() || decoded->find('/') != std::string::npos) {
    return Bad("names no database");
  }
  url.database = *decoded;
  std::optional<bool> verify;
  for (std::string_view rest = query; !rest.empty();) {
    const auto [parameter, next] = Split(rest, '&');
    if (Status status = ParseParameter(parameter, url); !status.ok()) return status;
    if (parameter.starts_with("ssl_verify=")) verify = url.ssl_verify;
    rest = next;
  }
  url.ssl_verify = verify.value_or(!url.ssl_ca.empty());
  if (url.ssl_cert.empty() != url.ssl_key.empty()) {
    return Bad("has only one of ssl_cert and ssl_key");
  }
  if (!url.password.empty() && !url.password_file.empty()) {
    return Bad("has both a password and a password_file");
  }
  if (!url.unix_socket.empty()) {
    if (!hosts.empty() && hosts != "localhost") return Bad("has both hosts and a unix_socket");
    url.endpoints.push_back({.host = "", .port = 0});
    return url;
  }
  for (std::string_view rest = hosts; !rest.empty();) {
    const auto [host, next] = Split(rest, ',');
    const std::optional<MysqlEndpoint> endpoint = ParseEndpoint(host);
    if (!endpoint.has_value()) return Bad("has an invalid host or port");
    url.endpoints.push_back(*endpoint);
    if (next.empty() && rest.ends_with(',')) return Bad("has an invalid host or port");
    rest = next;
  }
  if (url.endpoints.empty()) return Bad("names no host");
  return url;
}

Result<MysqlUrl> ParseOwnMysqlUrl(std::string_view text) {
  Result<MysqlUrl> url = ParseMysqlUrl(text);
  if (!url.ok() || !url.value().password.empty() || !url.value().password_file.empty()) return url;
  const std::optional<std::string> path = CredentialPath(kPasswordCredential);
  if (path.has_value() && ::access(path->c_str(), F_OK) == 0) {
    url.value().password_file = kPasswordCredential;
  }
  return url;
}

Result<std::string> PasswordOf(const MysqlUrl& url) {
  if (url.password_file.empty()) return url.password;
  std::string path = url.password_file;
  if (path.find('/') == std::string::npos) {
    const std::optional<std::string> credential = CredentialPath(path);
    if (!credential.has_value()) {
      return Status(Code::kUnavailable, "password_file=" + path +
                                            " names a credential, and the service manager has "
                                            "passed none; give a path, or LoadCredential=");
    }
    path = *credential;
  }
  std::ifstream file(path);
  std::string password;
  if (!file || (!std::getline(file, password) && !file.eof())) {
    return Status(Code::kUnavailable, "the database password cannot be read from '" + path +
                                          "': " + PathError(path, errno));
  }
  return password;
}

}  // namespace idd::daemon

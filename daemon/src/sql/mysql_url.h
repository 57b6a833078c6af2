// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_DAEMON_SQL_MYSQL_URL_H_
#define IDD_DAEMON_SQL_MYSQL_URL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "idd/base/status.h"

namespace idd::daemon {

struct MysqlEndpoint {
  std::string host;  // a name or an address; empty with a Unix socket
  std::uint16_t port = 3306;

  friend bool operator==(const MysqlEndpoint&, const MysqlEndpoint&) = default;
};

// How to reach the allocator over the MySQL protocol.
struct MysqlUrl {
  std::string user;
  std::string password;       // unless password_file
  std::string password_file;  // read at every connect; a bare name is a systemd credential's
  std::vector<MysqlEndpoint> endpoints;  // tried in order; one without a host with unix_socket
  std::string database;
  std::string unix_socket;
  std::string ssl_ca;  // with it the server's certificate and name are verified
  std::string ssl_cert;
  std::string ssl_key;
  bool ssl_verify = false;        // ssl_ca, or ssl_verify=1
  std::string server_public_key;  // for caching_sha2_password without TLS

  // Without a password.
  [[nodiscard]] std::string Display() const;
};

// mysql://user[:password]@host[:port][,host2[:port]...]/db[?unix_socket=..&ssl_ca=..&ssl_cert=..
// &ssl_key=..&ssl_verify=0|1&server_public_key=..&password_file=..]; user, password, database and
// values may be percent-encoded, an IPv6 address stands in brackets. kInvalid says what is wrong
// and repeats nothing that may be a password.
[[nodiscard]] Result<MysqlUrl> ParseMysqlUrl(std::string_view text);

// The same for idd's own database: a URL without any password uses the credential
// kPasswordCredential, if the service manager has passed it. No other server gets that password.
inline constexpr const char* kPasswordCredential = "idd-database-password";
[[nodiscard]] Result<MysqlUrl> ParseOwnMysqlUrl(std::string_view text);

// The password to use now: `password`, or the first line of password_file, which is a path or the
// name of a file in $CREDENTIALS_DIRECTORY. kUnavailable when it cannot be read.
[[nodiscard]] Result<std::string> PasswordOf(const MysqlUrl& url);

}  // namespace idd::daemon

#endif  // IDD_DAEMON_SQL_MYSQL_URL_H_

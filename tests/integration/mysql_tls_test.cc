// SPDX-License-Identifier: Apache-2.0
//
// TLS to a real MariaDB that refuses connections without it. The test makes the certificates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sql/mysql_db.h"
#include "sql/mysql_url.h"
#include "support/certificates.h"
#include "support/db_server.h"
#include "support/free_ports.h"
#include "support/mysql_proxy.h"
#include "support/temp_dir.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using harness::DbServer;
using harness::Patience;
using harness::Require;
using harness::TempDir;
using std::chrono_literals::operator""s;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class MysqlTls : public ::testing::Test {
 protected:
  MysqlTls() {
    certificates_.MakeAuthority("ca");
    certificates_.MakeAuthority("other-ca");
    certificates_.Make("server", "subjectAltName=DNS:localhost,IP:127.0.0.1");
    certificates_.Make("stranger", "subjectAltName=DNS:db.example.org");
    certificates_.Make("client", "extendedKeyUsage=clientAuth");
  }

  [[nodiscard]] std::string File(const std::string& name) const { return dir_.File(name); }

  void Start(const std::string& certificate) {
    port_ = harness::FreePorts(1)[0];
    server_.emplace(dir_, "db",
                    DbServer::Options{.port = port_,
                                      .arguments = {"--ssl-ca=" + File("ca.pem"),
                                                    "--ssl-cert=" + File(certificate + ".pem"),
                                                    "--ssl-key=" + File(certificate + ".key")}});
    server_->Start();
    server_->Session().Execute("ALTER USER idd@'127.0.0.1' REQUIRE SSL");
  }
  [[nodiscard]] Result<std::unique_ptr<MysqlDb>> Connect(
      const std::string& options, const std::string& host = "127.0.0.1") const {
    const Result<MysqlUrl> url = ParseMysqlUrl("mysql://idd:secret@" + host + ":" +
                                               std::to_string(port_) + "/idd" + options);
    Require(url.ok(), url.status().message());
    return MysqlDb::Connect(url.value(), url.value().endpoints.front());
  }

  const TempDir dir_;
  const harness::Certificates certificates_{dir_};
  std::uint16_t port_ = 0;
  std::optional<DbServer> server_;
};

TEST_F(MysqlTls, ServerOfTheGivenAuthorityIsTrustedAndTheConnectionIsEncrypted) {
  Start("server");
  Result<std::unique_ptr<MysqlDb>> db = Connect("?ssl_ca=" + File("ca.pem"));
  ASSERT_TRUE(db.ok()) << db.status().message();
  const Result<MysqlResult> cipher = db.value()->Query("SHOW SESSION STATUS LIKE 'Ssl_cipher'");
  ASSERT_TRUE(cipher.ok()) << cipher.status().message();
  EXPECT_NE(cipher.value().rows.at(0).at(1).value_or(""), "");
}

TEST_F(MysqlTls, WithoutTlsTheServerRefuses) {
  Start("server");
  const Status status = Connect("").status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  // MySQL's accounts have a plugin for which a connection in the clear needs the server's key.
  EXPECT_THAT(status.message(),
              HasSubstr(harness::IsMysql() ? "server_public_key" : "check user and password"));
}

TEST_F(MysqlTls, AnotherAuthorityIsRefused) {
  Start("server");
  const Status status = Connect("?ssl_ca=" + File("other-ca.pem")).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("TLS/SSL error"));
}

// libmariadb 3.4 checks no name where the host is 127.0.0.1 or ::1.
TEST_F(MysqlTls, CertificateOfAnotherNameIsRefused) {
  Start("stranger");
  const Status status = Connect("?ssl_ca=" + File("ca.pem"), "localhost").status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("TLS/SSL error"));
}

TEST_F(MysqlTls, ServerMayAskForACertificateOfTheHost) {
  Start("server");
  server_->Session().Execute("ALTER USER idd@'127.0.0.1' REQUIRE X509");
  EXPECT_FALSE(Connect("?ssl_ca=" + File("ca.pem")).ok());
  const Status status = Connect("?ssl_ca=" + File("ca.pem") + "&ssl_cert=" + File("client.pem") +
                                "&ssl_key=" + File("client.key"))
                            .status();
  EXPECT_TRUE(status.ok()) << status.message();
}

// Each byte arrives within the time limit of a read, and so does each part of a TLS record.
TEST_F(MysqlTls, ServerThatDripsBytesIsGivenUpInTime) {
  Start("server");
  server_->Session().Execute("ALTER USER idd@localhost REQUIRE SSL");
  harness::MysqlProxy proxy(File("proxy"), server_->socket());
  const MysqlUrl url =
      ParseMysqlUrl("mysql://idd:secret@localhost/idd?unix_socket=" + File("proxy") +
                    "&ssl_ca=" + File("ca.pem"))
          .value();
  const auto connect = [&url] { return MysqlDb::Connect(url, url.endpoints.front()); };
  Result<std::unique_ptr<MysqlDb>> db = connect();
  ASSERT_TRUE(db.ok()) << db.status().message();
  const Result<MysqlResult> cipher = db.value()->Query("SHOW SESSION STATUS LIKE 'Ssl_cipher'");
  ASSERT_TRUE(cipher.ok()) << cipher.status().message();
  ASSERT_NE(cipher.value().rows.at(0).at(1).value_or(""), "");
  EXPECT_TRUE(db.value()->Query("SELECT SLEEP(0.3)").ok()) << "an answer that takes a moment";
  proxy.Drip(true);
  // Byte by byte the answer would take minutes.
  const auto began = std::chrono::steady_clock::now();
  EXPECT_FALSE(db.value()->Query("SELECT REPEAT('x', 4000)").ok());
  EXPECT_FALSE(connect().ok());
  EXPECT_LT(std::chrono::steady_clock::now() - began, Patience(60s));
}

TEST_F(MysqlTls, FilesThatAreNotThereAreNamed) {
  Start("server");
  const Status status = Connect("?ssl_ca=" + File("nowhere.pem")).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), AnyOf(HasSubstr("nowhere.pem"), HasSubstr("TLS/SSL error")));
}

}  // namespace
}  // namespace idd::daemon

// SPDX-License-Identifier: Apache-2.0
#include "sql/mysql_url.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "idd/base/url_password.h"
#include "support/temp_dir.h"

namespace idd::daemon {
namespace {

using Endpoints = std::vector<MysqlEndpoint>;

MysqlUrl Parsed(const std::string& text) {
  Result<MysqlUrl> url = ParseMysqlUrl(text);
  EXPECT_TRUE(url.ok()) << text << ": " << url.status().message();
  return url.ok() ? std::move(url).value() : MysqlUrl();
}

TEST(MysqlUrlTest, HostsArePortsAndNamesInTheirOrder) {
  const MysqlUrl url = Parsed("mysql://idd:secret@db1,db2:3307,[::1]:3308,10.0.0.4/leaf");
  EXPECT_EQ(url.user, "idd");
  EXPECT_EQ(url.password, "secret");
  EXPECT_EQ(url.database, "leaf");
  EXPECT_EQ(url.endpoints,
            (Endpoints{{"db1", 3306}, {"db2", 3307}, {"::1", 3308}, {"10.0.0.4", 3306}}));
  EXPECT_FALSE(url.ssl_verify);
}

TEST(MysqlUrlTest, PasswordMayHoldAnythingThatIsEncoded) {
  EXPECT_EQ(Parsed("mysql://idd:a%40b%2Fc%3fd%25@h/x").password, "a@b/c?d%");
  EXPECT_EQ(Parsed("mysql://idd:a:b@h/x").password, "a:b");
  EXPECT_EQ(Parsed("mysql://i%64d@h/x").user, "idd");
  EXPECT_EQ(Parsed("mysql://idd@h/x").password, "");
}

TEST(MysqlUrlTest, SocketStandsForTheHosts) {
  for (const char* text : {"mysql://idd@localhost/x?unix_socket=/run/mysqld/mysqld.sock",
                           "mysql://idd@/x?unix_socket=%2Frun%2Fmysqld%2Fmysqld.sock"}) {
    const MysqlUrl url = Parsed(text);
    EXPECT_EQ(url.unix_socket, "/run/mysqld/mysqld.sock");
    EXPECT_EQ(url.endpoints, (Endpoints{{"", 0}}));
  }
}

TEST(MysqlUrlTest, CertificatesAreVerifiedByDefault) {
  const MysqlUrl url = Parsed(
      "mysql://idd@h/x?ssl_ca=/ca.pem&ssl_cert=/c.pem&ssl_key=/k.pem&password_file=/p"
      "&server_public_key=/s.pem");
  EXPECT_EQ(url.ssl_ca, "/ca.pem");
  EXPECT_EQ(url.ssl_cert, "/c.pem");
  EXPECT_EQ(url.ssl_key, "/k.pem");
  EXPECT_EQ(url.server_public_key, "/s.pem");
  EXPECT_EQ(url.password_file, "/p");
  EXPECT_TRUE(url.ssl_verify);
  EXPECT_FALSE(Parsed("mysql://idd@h/x?ssl_verify=0&ssl_ca=/ca.pem").ssl_verify);
  EXPECT_TRUE(Parsed("mysql://idd@h/x?ssl_verify=1").ssl_verify);
}

TEST(MysqlUrlTest, DisplayHidesThePassword) {
  EXPECT_EQ(Parsed("mysql://idd:secret@db1,[::1]:3308/leaf").Display(),
            "mysql://idd@db1:3306,[::1]:3308/leaf");
  EXPECT_EQ(Parsed("mysql://idd:secret@/leaf?unix_socket=/s").Display(),
            "mysql://idd@/leaf?unix_socket=/s");
}

TEST(MysqlUrlTest, PasswordIsFoundWhereverTheUrlStands) {
  const auto found = [](const std::string& text) {
    const PasswordPlace place = FindPassword(text);
    return text.substr(place.begin, place.size);
  };
  EXPECT_EQ(found("mysql://idd:secret@h/x"), "secret");
  EXPECT_EQ(found("--database=mysql://idd:se@cr:et@h:3306/x?ssl_ca=/a@b"), "se@cr:et");
  EXPECT_EQ(found("mysql://idd@h:3306/x"), "");
  EXPECT_EQ(found("mysql://idd@h/x?a=b:c@d"), "");
  EXPECT_EQ(found("sqlite:/a:b@c"), "");
  EXPECT_EQ(found(""), "");
  EXPECT_EQ(WithoutPassword("a mysql://idd:secret@h/x"), "a mysql://idd:******@h/x");
  EXPECT_EQ(WithoutPassword("orders"), "orders");
}

TEST(MysqlUrlTest, WhatCannotBeIsRefusedAndNotRepeated) {
  for (const char* text : {"mysql://",
                           "mysql://h/x",
                           "mysql://idd:PassWord@h",
                           "mysql://idd:PassWord@h/",
                           "mysql://idd:PassWord@/x",
                           "mysql://:PassWord@h/x",
                           "mysql://idd:PassWord@h:0/x",
                           "mysql://idd:PassWord@h:65536/x",
                           "mysql://idd:PassWord@h:33o6/x",
                           "mysql://idd:PassWord@h:/x",
                           "mysql://idd:PassWord@h,/x",
                           "mysql://idd:PassWord@,h/x",
                           "mysql://idd:PassWord@[::1/x",
                           "mysql://idd:PassWord@[::1]x/x",
                           "mysql://idd:PassWord%4@h/x",
                           "mysql://idd:PassWord%00@h/x",
                           "mysql://idd:PassWord%zz@h/x",
                           "mysql://idd:PassWord@h/x/y",
                           "mysql://idd:PassWord@h/x?ssl_c=1",
                           "mysql://idd:PassWord@h/x?ssl_ca=",
                           "mysql://idd:PassWord@h/x?ssl_verify=2",
                           "mysql://idd:PassWord@h/x?ssl_cert=/c",
                           "mysql://idd:PassWord@h/x?password_file=/p",
                           "mysql://idd:PassWord@h/x?unix_socket=/s",
                           "mysql://idd:PassWord@h;rm/x"}) {
    const Status status = ParseMysqlUrl(text).status();
    EXPECT_EQ(status.code(), Code::kInvalid) << text;
    EXPECT_EQ(status.message().find("PassWord"), std::string::npos) << status.message();
  }
}

TEST(MysqlUrlTest, PasswordComesFromAFileOrACredential) {
  const harness::TempDir dir;
  const std::string& path = dir.path();
  harness::WriteFile(path + "/db", "from file\nsecond line\n");
  MysqlUrl url = Parsed("mysql://idd@h/x");
  url.password_file = path + "/db";
  EXPECT_EQ(PasswordOf(url).value(), "from file");
  url.password_file = "db";
  ::unsetenv("CREDENTIALS_DIRECTORY");
  EXPECT_EQ(PasswordOf(url).status().code(), Code::kUnavailable);
  ::setenv("CREDENTIALS_DIRECTORY", path.c_str(), 1);
  EXPECT_EQ(PasswordOf(url).value(), "from file");
  url.password_file = "no-such";
  EXPECT_EQ(PasswordOf(url).status().code(), Code::kUnavailable);
  ::unsetenv("CREDENTIALS_DIRECTORY");
}

TEST(MysqlUrlTest, OwnDatabaseTakesTheCredentialUnlessItsUrlSaysOtherwise) {
  const harness::TempDir dir;
  const std::string& path = dir.path();
  const auto own_password = [](const std::string& text) {
    return PasswordOf(ParseOwnMysqlUrl(text).value()).value();
  };
  ::unsetenv("CREDENTIALS_DIRECTORY");
  EXPECT_EQ(own_password("mysql://idd@h/x"), "");
  ::setenv("CREDENTIALS_DIRECTORY", path.c_str(), 1);
  EXPECT_EQ(own_password("mysql://idd@h/x"), "");  // LoadCredential= found no file
  harness::WriteFile(path + "/" + kPasswordCredential, "from credential\n");
  EXPECT_EQ(own_password("mysql://idd@h/x"), "from credential");
  EXPECT_EQ(own_password("mysql://idd:secret@h/x"), "secret");
  harness::WriteFile(path + "/other", "from file\n");
  EXPECT_EQ(own_password("mysql://idd@h/x?password_file=other"), "from file");
  EXPECT_EQ(ParseOwnMysqlUrl("mysql://idd@h/x").value().Display(), "mysql://idd@h:3306/x");
  // Another server, such as the one of `idctl import --from`, never gets it.
  EXPECT_EQ(PasswordOf(Parsed("mysql://idd@h/x")).value(), "");
  EXPECT_EQ(ParseOwnMysqlUrl("mysql://").status().code(), Code::kInvalid);
  ::unsetenv("CREDENTIALS_DIRECTORY");
}

}  // namespace
}  // namespace idd::daemon

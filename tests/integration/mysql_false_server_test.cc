// SPDX-License-Identifier: Apache-2.0
//
// What a server can make idd do that is not the server it is taken for, or is broken.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "idd/base/scoped_fd.h"
#include "sql/mysql_db.h"
#include "sql/mysql_url.h"
#include "store/mysql/mysql_store.h"
#include "support/test_environment.h"

namespace idd::daemon {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPassword = "TopSecret1";

std::string Bytes(std::initializer_list<int> bytes) {
  std::string text;
  for (const int byte : bytes) text += static_cast<char>(byte);
  return text;
}

// Text that ends with a zero byte.
std::string Zero(const std::string& text) { return text + '\0'; }

// An answer without rows. More may follow it.
std::string Ok(bool has_more = false) { return Bytes({0, 0, 0, has_more ? 0x0a : 0x02, 0, 0, 0}); }

// One client's connection, as the server sees it.
class Session {
 public:
  explicit Session(int fd) : fd_(fd) {}

  // False: the client is gone.
  bool Send(const std::string& packet) {
    const auto size = static_cast<unsigned>(packet.size());
    const std::string head =
        Bytes({static_cast<int>(size & 0xff), static_cast<int>(size >> 8 & 0xff),
               static_cast<int>(size >> 16), number_++});
    const std::string all = head + packet;
    return ::send(fd_, all.data(), all.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(all.size());
  }
  // The client's next packet; empty if it is gone.
  std::string Receive() {
    const std::string head = Read(4);
    if (head.empty()) return "";
    const auto byte = [&head](std::size_t i) { return static_cast<unsigned char>(head[i]); };
    number_ = byte(3) + 1;
    heard_.push_back(Read(byte(0) + (static_cast<std::size_t>(byte(1)) << 8) +
                          (static_cast<std::size_t>(byte(2)) << 16)));
    return heard_.back();
  }
  [[nodiscard]] const std::vector<std::string>& heard() const { return heard_; }

 private:
  std::string Read(std::size_t size) {
    std::string bytes(size, '\0');
    std::size_t got = 0;
    while (got < size) {
      const ssize_t some = ::recv(fd_, bytes.data() + got, size - got, 0);
      if (some <= 0) return "";
      got += static_cast<std::size_t>(some);
    }
    return bytes;
  }

  const int fd_;
  int number_ = 0;
  std::vector<std::string> heard_;
};

using Script = std::function<void(Session&)>;

// Listens on loopback, greets each client as a MariaDB does and then does as its script says.
class FalseServer {
 public:
  explicit FalseServer(Script script) : script_(std::move(script)) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    harness::RequireErrno(::bind(listener_.get(), any, size) == 0, "bind");
    harness::RequireErrno(::listen(listener_.get(), 16) == 0, "listen");
    harness::RequireErrno(::getsockname(listener_.get(), any, &size) == 0, "getsockname");
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~FalseServer() {
    stopping_ = true;
    acceptor_.join();
  }
  FalseServer(const FalseServer&) = delete;
  FalseServer& operator=(const FalseServer&) = delete;

  [[nodiscard]] MysqlUrl Url(const std::string& options = "") const {
    return ParseMysqlUrl(std::string("mysql://idd:") + kPassword +
                         "@127.0.0.1:" + std::to_string(port_) + "/idd" + options)
        .value();
  }
  [[nodiscard]] Result<std::unique_ptr<MysqlDb>> Connect(const std::string& options = "") const {
    const MysqlUrl url = Url(options);
    return MysqlDb::Connect(url, url.endpoints.front());
  }

 private:
  void Accept() {
    while (!stopping_) {
      pollfd entry{.fd = listener_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&entry, 1, 20) <= 0) continue;
      const ScopedFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const timeval limit{.tv_sec = 20, .tv_usec = 0};
      ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      Session session(client.get());
      script_(session);
    }
  }

  const Script script_;
  ScopedFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
};

constexpr const char* kScramble = "12345678901234567890";

void Greet(Session& session, const std::string& plugin = "mysql_native_password") {
  constexpr int kLow = 0x0001 | 0x0004 | 0x0008 | 0x0200 | 0x2000 | 0x8000;
  constexpr int kHigh = 0x0001 | 0x0002 | 0x0008;  // several statements and results, plugins
  const std::string scramble = kScramble;
  session.Send(Bytes({10}) + Zero("10.11.6-MariaDB") + Bytes({7, 0, 0, 0}) +
               Zero(scramble.substr(0, 8)) +
               Bytes({kLow & 0xff, kLow >> 8, 45, 2, 0, kHigh, 0, 21}) + std::string(10, '\0') +
               Zero(scramble.substr(8)) + Zero(plugin));
}

// The head of an answer with one column of text.
void SendColumn(Session& session) {
  const std::string end = Bytes({0xfe, 0, 0, 2, 0});
  session.Send(Bytes({1}));
  session.Send(Bytes({3}) + "def" + Bytes({0, 0, 0, 1}) + "c" +
               Bytes({0, 12, 45, 0, 0xff, 0, 0, 0, 253, 0, 0, 0, 0, 0}));
  session.Send(end);
}

// An answer with one row, "0".
void SendZero(Session& session) {
  SendColumn(session);
  session.Send(Bytes({1}) + "0");
  session.Send(Bytes({0xfe, 0, 0, 2, 0}));
}

// A server that every client may log in to, and that answers so once it is asked for the trap.
Script Answer(std::function<void(Session&, const std::string&)> answer) {
  return [answer = std::move(answer)](Session& session) {
    Greet(session);
    session.Receive();
    session.Send(Ok());
    for (std::string command = session.Receive(); !command.empty(); command = session.Receive()) {
      if (command.find("@@insert_id") != std::string::npos &&
          command.find("SET") == std::string::npos) {
        SendZero(session);  // as a server says it at a login
      } else if (command.find("TRAP") == std::string::npos) {
        session.Send(Ok());
      } else {
        answer(session, command);
      }
    }
  };
}

// --- logins

struct Trap {
  const char* name;
  Script script;
  const char* options = "";
};

// Asks for another login than the greeting's. Each answer of the client is answered by the next of
// `more`.
Script Switch(const std::string& request, std::vector<std::string> more = {},
              const std::string& first = "mysql_native_password") {
  return [=](Session& session) {
    Greet(session, first);
    session.Receive();
    session.Send(request);
    for (const std::string& next : more) {
      if (session.Receive().empty()) return;
      session.Send(next);
    }
    session.Receive();
  };
}

constexpr const char* kKey =
    "-----BEGIN PUBLIC KEY-----\n"
    "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDOz20xvS5nU760Ew6GIsCjVu8c\n"
    "fxIQMdp7JwpXPObcujUzfIW9UQ6FFqI+u4RAXoTT0aPQUwdHlCXp4I1X9aD/XV/o\n"
    "dY3xuNTpKXDl3R5hPR5Vek8sv87UKULIcIHL5HWgLteRQVgy1o9yV9AMB4rPDMI0\n"
    "fFJHBU2wJ1GT5Q1wZQIDAQAB\n"
    "-----END PUBLIC KEY-----\n";

std::vector<Trap> Traps() {
  const std::string scramble = Zero(kScramble);
  const std::string more = Bytes({1, 4});  // caching_sha2_password: I do not know you
  const std::string sha2 = Bytes({0xfe}) + Zero("caching_sha2_password") + scramble;
  const char* const no_tls = "?ssl_cert=/none&ssl_key=/none&ssl_verify=0";
  return {
      {"Clear", Switch(Bytes({0xfe}) + Zero("mysql_clear_password"))},
      {"Dialog", Switch(Bytes({0xfe}) + Zero("dialog") + "\4Password: ")},
      {"Sha256", Switch(Bytes({0xfe}) + Zero("sha256_password") + scramble, {kKey})},
      {"Old", Switch(Bytes({0xfe}))},
      {"OwnKey", Switch(sha2, {more, Bytes({1}) + kKey})},
      {"OwnKeyWhereTheGivenOneIsMissing", Switch(sha2, {more, Bytes({1}) + kKey}),
       "?server_public_key=/none"},
      {"ClearInTheGreeting", Switch(Ok(), {}, "mysql_clear_password")},
      {"DialogInTheGreeting", Switch(Ok(), {}, "dialog")},
      {"OwnKeyInTheGreeting", Switch(more, {Bytes({1}) + kKey}, "caching_sha2_password")},
      {"ClearWhereTlsIsAskedFor", Switch(Bytes({0xfe}) + Zero("mysql_clear_password")), no_tls},
      {"ItsOwnKeyWhereTlsIsAskedFor", Switch(sha2, {more}), no_tls},
      {"NoTlsWhereItIsAskedFor", Switch(Ok()), no_tls},
      {"NoTlsWhereItIsVerified", Switch(sha2, {more}), "?ssl_verify=1"},
  };
}

class FalseServerLogin : public ::testing::TestWithParam<Trap> {};

// libmariadb took part in any login that the server asked for, and sent the password.
TEST_P(FalseServerLogin, GetsNoPassword) {
  std::mutex mutex;
  std::vector<std::string> heard;
  {
    const FalseServer server([&](Session& session) {
      GetParam().script(session);
      const std::lock_guard lock(mutex);
      heard = session.heard();
    });
    const Status status = server.Connect(GetParam().options).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.message(), AnyOf(HasSubstr("the password itself"), HasSubstr("has no TLS"),
                                        HasSubstr("SSL is required"), HasSubstr("cannot be read")));
  }
  EXPECT_LE(heard.size(), 2U) << "nor under a key of the server: a login, and a scramble at most";
  for (const std::string& packet : heard) EXPECT_THAT(packet, Not(HasSubstr(kPassword)));
}

INSTANTIATE_TEST_SUITE_P(Mysql, FalseServerLogin, ::testing::ValuesIn(Traps()),
                         [](const auto& trap) { return std::string(trap.param.name); });

// --- answers

constexpr const char* kFile = "/etc/passwd";

Status Ask(const FalseServer& server) {
  const Result<std::unique_ptr<MysqlDb>> db = server.Connect();
  if (!db.ok()) return db.status();
  Status status = db.value()->Query("SELECT 'TRAP'").status();
  EXPECT_TRUE(db.value()->broken());
  return status;
}

TEST(FalseServerAnswer, FileIsNotSent) {
  std::mutex mutex;
  std::string sent;
  {
    const FalseServer server(Answer([&](Session& session, const std::string&) {
      session.Send(Bytes({0xfb}) + kFile);
      const std::lock_guard lock(mutex);
      sent = session.Receive();
      session.Send(Ok());
    }));
    EXPECT_FALSE(Ask(server).ok());
  }
  EXPECT_EQ(sent, "");
}

// Such answers were read as long as they went on, into memory that they filled.
TEST(FalseServerAnswer, RowsWithoutEndEndWithTheDeadline) {
  const FalseServer server(Answer([](Session& session, const std::string&) {
    SendColumn(session);
    while (session.Send(Bytes({1}) + "x")) {
    }
  }));
  EXPECT_EQ(Ask(server).code(), Code::kUnavailable);
}

TEST(FalseServerAnswer, ResultsWithoutEndAreRefused) {
  const FalseServer server(Answer([](Session& session, const std::string&) {
    while (session.Send(Ok(true))) {
    }
  }));
  EXPECT_THAT(Ask(server).message(), HasSubstr("too much"));
}

TEST(FalseServerAnswer, PacketOf4GigabytesIsRefused) {
  const FalseServer server(Answer([](Session& session, const std::string&) {
    SendColumn(session);
    const std::string part((1U << 24) - 1, 'x');
    while (session.Send(part)) {
    }
  }));
  EXPECT_EQ(Ask(server).code(), Code::kUnavailable);
}

// A cell that was missing was read from beyond its row.
TEST(FalseServerAnswer, MissingRowsAndCellsAreErrors) {
  const auto answer = [](bool has_row) {
    return [has_row](Session& session) {
      Greet(session);
      session.Receive();
      session.Send(Ok());
      for (std::string asked = session.Receive(); !asked.empty(); asked = session.Receive()) {
        for (std::size_t i = asked.find(';'); i != std::string::npos; i = asked.find(';', i + 1)) {
          session.Send(Ok(true));
        }
        if (has_row && asked.find("SELECT") != std::string::npos &&
            asked.find(';') == std::string::npos) {
          SendZero(session);
        } else {
          session.Send(Ok());
        }
      }
    };
  };
  for (const bool has_row : {false, true}) {
    const FalseServer server(answer(has_row));
    MysqlStore store({server.Url(), {"a", "boot", "state"}});
    EXPECT_FALSE(store.Open().ok());
    MysqlStore reader({server.Url(), {"a", "boot", "state"}});
    EXPECT_FALSE(reader.OpenToRead().ok());
  }
}

}  // namespace
}  // namespace idd::daemon

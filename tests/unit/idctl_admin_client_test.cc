// SPDX-License-Identifier: Apache-2.0
//
// idctl against a daemon that answers, refuses, lies, stalls or disappears.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/admin_client.h"
#include "commands/cli.h"
#include "idd/base/scoped_fd.h"
#include "idd/shm/abi.h"
#include "idd/wire/frames.h"
#include "support/idctl_documents.h"
#include "support/temp_dir.h"

namespace idd::tools {
namespace {

using std::chrono::milliseconds;

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

ScopedFd MakeDocument(std::string_view text, int seals = kSeals) {
  ScopedFd fd(::memfd_create("document", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

void SendFrame(int socket, std::vector<std::byte> frame, int fd = -1) {
  iovec part{.iov_base = frame.data(), .iov_len = frame.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

// The next frame; empty if the client is gone.
std::vector<std::byte> ReceiveFrame(int socket) {
  std::vector<std::byte> bytes(wire::kMaxFrameBytes);
  const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

wire::FrameHeader HeaderOf(const std::vector<std::byte>& frame) {
  wire::FrameHeader header;
  if (frame.size() >= sizeof(header)) std::memcpy(&header, frame.data(), sizeof(header));
  return header;
}

void AnswerHello(int socket, wire::HelloReply reply = {}) {
  const std::vector<std::byte> frame = ReceiveFrame(socket);
  SendFrame(socket, wire::BuildReply(wire::FrameType::kHello, HeaderOf(frame).request_id, reply));
}

void AnswerAdmin(int socket, std::uint64_t id, std::uint32_t status, std::uint64_t bytes, int fd) {
  const wire::AdminReply reply{.status = status, .reserved = 0, .document_bytes = bytes};
  SendFrame(socket, wire::BuildReply(wire::FrameType::kAdmin, id, reply), fd);
}

// Answers HELLO, then receives one admin request and returns its id.
std::uint64_t ReceiveAdmin(int socket) {
  AnswerHello(socket);
  return HeaderOf(ReceiveFrame(socket)).request_id;
}

// Listens on its own socket and runs a script for every connection, one after the other.
class FakeDaemon {
 public:
  using Script = std::function<void(int socket)>;

  explicit FakeDaemon(Script script, int backlog = 8) : script_(std::move(script)) {
    listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), backlog), 0);
    if (script_) thread_ = std::thread([this] { Serve(); });
  }
  ~FakeDaemon() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void Serve() {
    while (true) {
      const ScopedFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.valid()) return;
      script_(connection.get());
    }
  }

  Script script_;
  const harness::TempDir dir_;
  const std::string path_ = dir_.File("idd.sock");
  ScopedFd listener_;
  std::thread thread_;
};

// For tests that must end long before this limit: only a defect reaches kOnlyByADefect.
constexpr milliseconds kDeadline(60'000);
constexpr milliseconds kOnlyByADefect(30'000);

Deadline Later() { return Deadline::After(kDeadline); }

// One complete admin exchange.
Result<JsonDocument> Ask(const FakeDaemon& daemon, Deadline deadline = Later()) {
  Result<AdminClient> client = AdminClient::Connect(daemon.path(), deadline);
  if (!client.ok()) return client.status();
  return client.value().Request(AdminRequest("status"), deadline);
}

// The client's result for one reply to its admin request.
Result<JsonDocument> AskWithReply(std::uint32_t status, std::uint64_t bytes, int fd) {
  const FakeDaemon daemon(
      [&](int socket) { AnswerAdmin(socket, ReceiveAdmin(socket), status, bytes, fd); });
  return Ask(daemon);
}

Result<JsonDocument> AskWithDocument(std::uint32_t status, std::string_view text,
                                     int seals = kSeals) {
  const ScopedFd document = MakeDocument(text, seals);
  return AskWithReply(status, text.size(), document.get());
}

TEST(AdminClientTest, SaysHelloThenReturnsTheDocument) {
  wire::HelloRequest hello;
  std::string request;
  const FakeDaemon daemon([&](int socket) {
    const std::vector<std::byte> first = ReceiveFrame(socket);
    std::memcpy(&hello, first.data() + sizeof(wire::FrameHeader), sizeof(hello));
    SendFrame(socket, wire::BuildReply(wire::FrameType::kHello, HeaderOf(first).request_id,
                                       wire::HelloReply{}));
    const std::vector<std::byte> second = ReceiveFrame(socket);
    request.assign(reinterpret_cast<const char*>(second.data()) + sizeof(wire::FrameHeader),
                   second.size() - sizeof(wire::FrameHeader));
    const std::string text = R"({"b": 18446744073709551615, "a": []})";
    const ScopedFd document = MakeDocument(text);
    AnswerAdmin(socket, HeaderOf(second).request_id, 0, text.size(), document.get());
  });
  Result<JsonDocument> document = Ask(daemon);
  ASSERT_TRUE(document.ok()) << document.status().message();
  EXPECT_EQ(document.value().json().dump(), R"({"b":18446744073709551615,"a":[]})");
  EXPECT_EQ(hello.abi_version, shm::kAbiVersion);
  EXPECT_NE(hello.client_version[0], '\0');
  EXPECT_EQ(request, R"({"op":"status"})");
}

TEST(AdminClientTest, ARefusalHasTheDaemonsCodeAndSentence) {
  const Status status = AskWithDocument(3, R"({"error": "no tag 'x'"})").status();
  EXPECT_EQ(status.code(), Code::kNoSuchTag);
  EXPECT_EQ(status.message(), "no tag 'x'");
}

TEST(AdminClientTest, ARefusalWithoutASentenceNamesTheCode) {
  const Status status = AskWithReply(4, 0, -1).status();
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_NE(status.message().find("DENIED"), std::string::npos);
  EXPECT_EQ(AskWithDocument(4, R"({"error": 5})").status().code(), Code::kDenied);
  EXPECT_EQ(AskWithDocument(4, "not json").status().code(), Code::kDenied);
}

TEST(AdminClientTest, AnUnknownStatusIsSystem) {
  EXPECT_EQ(AskWithDocument(99, R"({"error": "new"})").status().code(), Code::kSystem);
}

TEST(AdminClientTest, ADocumentThatIsNotJsonIsIncompatible) {
  for (const char* text : {"{", "{} {}", "nonsense", "\xff", "{\"a\": 1e999}", "\"\xc3\""}) {
    EXPECT_EQ(AskWithDocument(0, text).status().code(), Code::kIncompatible) << text;
  }
}

TEST(AdminClientTest, ADeeplyNestedDocumentIsIncompatible) {
  const std::string text = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(ParseDocument(text).status().code(), Code::kIncompatible);
  EXPECT_TRUE(ParseDocument("[[[[[[{\"a\":[]}]]]]]]").ok());
}

TEST(AdminClientTest, ADocumentThatCouldChangeIsIncompatible) {
  for (const int seals : {0, F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW}) {
    EXPECT_EQ(AskWithDocument(0, "{}", seals).status().code(), Code::kIncompatible) << seals;
  }
  EXPECT_TRUE(AskWithDocument(0, "{}", F_SEAL_WRITE | F_SEAL_SHRINK).ok());
}

TEST(AdminClientTest, ADescriptorThatIsNotAMemfdIsIncompatible) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const ScopedFd reader(ends[0]);
  const ScopedFd writer(ends[1]);
  EXPECT_EQ(AskWithReply(0, 2, reader.get()).status().code(), Code::kIncompatible);
  const ScopedFd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(AskWithReply(0, 2, zero.get()).status().code(), Code::kIncompatible);
}

TEST(AdminClientTest, AnImpossibleLengthIsIncompatible) {
  const ScopedFd document = MakeDocument("{}");
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{wire::kMaxAdminReplyBytes},
        std::uint64_t{wire::kMaxAdminReplyBytes} + 1, ~std::uint64_t{0}}) {
    EXPECT_EQ(AskWithReply(0, bytes, document.get()).status().code(), Code::kIncompatible) << bytes;
  }
}

TEST(AdminClientTest, AMissingDocumentIsIncompatible) {
  EXPECT_EQ(AskWithReply(0, 2, -1).status().code(), Code::kIncompatible);
}

TEST(AdminClientTest, TruncatedFramesAreIncompatible) {
  const wire::AdminReply reply{.status = 0, .reserved = 0, .document_bytes = 2};
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{23}, std::size_t{24}, std::size_t{30}, std::size_t{39}}) {
    const FakeDaemon daemon([&](int socket) {
      auto frame = wire::BuildReply(wire::FrameType::kAdmin, ReceiveAdmin(socket), reply);
      frame.resize(bytes);
      SendFrame(socket, frame);
    });
    EXPECT_EQ(Ask(daemon).status().code(), Code::kIncompatible) << bytes;
  }
}

TEST(AdminClientTest, AShortPayloadIsIncompatible) {
  const FakeDaemon daemon([](int socket) {
    const std::uint64_t id = ReceiveAdmin(socket);
    const std::array<std::byte, 8> payload{};
    SendFrame(socket, wire::BuildFrame(wire::FrameType::kAdmin, true, id, payload));
  });
  EXPECT_EQ(Ask(daemon).status().code(), Code::kIncompatible);
}

TEST(AdminClientTest, ALateReplyToAnotherRequestIsSkipped) {
  const ScopedFd wrong = MakeDocument("[1]");
  const ScopedFd right = MakeDocument("[2]");
  const FakeDaemon daemon([&](int socket) {
    const std::uint64_t id = ReceiveAdmin(socket);
    AnswerAdmin(socket, id + 1000, 0, 3, wrong.get());
    AnswerAdmin(socket, id, 0, 3, right.get());
  });
  Result<JsonDocument> document = Ask(daemon);
  ASSERT_TRUE(document.ok()) << document.status().message();
  EXPECT_EQ(document.value().json().dump(), "[2]");
}

TEST(AdminClientTest, ARefusedHelloSaysWhy) {
  const FakeDaemon refusing([](int socket) {
    wire::HelloReply reply;
    reply.status = static_cast<std::uint32_t>(Code::kIncompatible);
    AnswerHello(socket, reply);
  });
  EXPECT_EQ(Ask(refusing).status().code(), Code::kIncompatible);

  const FakeDaemon closing([](int socket) {
    const std::uint64_t id = HeaderOf(ReceiveFrame(socket)).request_id;
    const wire::StatusReply reply{.status = 4, .reserved = 0};
    SendFrame(socket, wire::BuildReply(wire::FrameType::kError, id, reply, "uid 5 may not"));
  });
  const Status status = Ask(closing).status();
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_NE(status.message().find("uid 5 may not"), std::string::npos) << status.message();
}

TEST(AdminClientTest, AnAbsentDaemonIsUnavailableAtOnce) {
  const MonotonicTime start = MonotonicClock::now();
  std::string path;
  {
    const FakeDaemon daemon(nullptr);
    path = daemon.path();
  }
  EXPECT_EQ(AdminClient::Connect(path, Later()).status().code(), Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - start, kOnlyByADefect);
}

TEST(AdminClientTest, ADaemonThatDoesNotAcceptIsUnavailableAtTheDeadline) {
  for (const int backlog : {8, 0}) {
    const FakeDaemon daemon(nullptr, backlog);
    const MonotonicTime start = MonotonicClock::now();
    for (int i = 0; i < 3; ++i) {  // fills the short backlog, then finds it full
      const Deadline deadline = Deadline::After(milliseconds(100));
      EXPECT_EQ(Ask(daemon, deadline).status().code(), Code::kUnavailable);
    }
    EXPECT_GE(MonotonicClock::now() - start, milliseconds(300));
    EXPECT_LT(MonotonicClock::now() - start, kOnlyByADefect);
  }
}

TEST(AdminClientTest, ADaemonThatStopsAnsweringIsUnavailableAtTheDeadline) {
  std::atomic<bool> may_end = false;
  const auto wait = [&may_end](int) {
    while (!may_end) std::this_thread::sleep_for(milliseconds(5));
  };
  const FakeDaemon mute(wait);
  const FakeDaemon stalling([&wait](int socket) {
    ReceiveAdmin(socket);
    wait(socket);
  });
  for (const FakeDaemon* daemon : {&mute, &stalling}) {
    const MonotonicTime start = MonotonicClock::now();
    const Status status = Ask(*daemon, Deadline::After(milliseconds(150))).status();
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
    EXPECT_GE(MonotonicClock::now() - start, milliseconds(150));
    EXPECT_LT(MonotonicClock::now() - start, kOnlyByADefect);
  }
  may_end = true;
}

TEST(AdminClientTest, ADaemonThatClosesMidwayIsUnavailable) {
  const FakeDaemon at_once([](int) {});
  EXPECT_EQ(Ask(at_once).status().code(), Code::kUnavailable);
  const FakeDaemon after_hello([](int socket) { AnswerHello(socket); });
  EXPECT_EQ(Ask(after_hello).status().code(), Code::kUnavailable);
  const FakeDaemon after_request([](int socket) { ReceiveAdmin(socket); });
  EXPECT_EQ(Ask(after_request).status().code(), Code::kUnavailable);
}

TEST(AdminClientTest, ARequestTooLongForAFrameIsInvalid) {
  const FakeDaemon daemon([](int socket) {
    AnswerHello(socket);
    ReceiveFrame(socket);
  });
  Result<AdminClient> client = AdminClient::Connect(daemon.path(), Later());
  ASSERT_TRUE(client.ok()) << client.status().message();
  AdminRequest request("tag.set");
  request.Set("description", std::string(20'000, 'x'));
  EXPECT_EQ(client.value().Request(request, Later()).status().code(), Code::kInvalid);
}

// --- The whole tool.

struct Ran {
  ExitStatus exit = ExitStatus::kDone;
  std::string out;
  std::string err;
  Json request;
};

std::string Contents(int fd) {
  std::string text(static_cast<std::size_t>(::lseek(fd, 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

// Runs idctl against a daemon that answers the request with `status` and `text`.
Ran RunAgainst(std::vector<const char*> arguments, std::uint32_t status, std::string text) {
  std::string request;
  const ScopedFd out(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const ScopedFd err(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  Ran ran;
  {
    const FakeDaemon daemon([&](int socket) {
      AnswerHello(socket);
      const std::vector<std::byte> frame = ReceiveFrame(socket);
      if (frame.size() < sizeof(wire::FrameHeader)) return;
      request.assign(reinterpret_cast<const char*>(frame.data()) + sizeof(wire::FrameHeader),
                     frame.size() - sizeof(wire::FrameHeader));
      const ScopedFd document = MakeDocument(text);
      AnswerAdmin(socket, HeaderOf(frame).request_id, status, text.size(), document.get());
    });
    arguments.insert(arguments.begin(), {"idctl", "--socket", daemon.path().c_str()});
    ran.exit = RunIdctl(static_cast<int>(arguments.size()), arguments.data(), out.get(), err.get());
  }
  ran.out = Contents(out.get());
  ran.err = Contents(err.get());
  ran.request = Json::parse(request, nullptr, false);
  return ran;
}

constexpr const char* kTag =
    R"({"tag": {"tag": "orders", "mode": "segment", "access": "ring", "step": 10, "refill": "leaf",
        "max_step": 20, "max_prefetch": 40, "outage_tolerance_s": 60, "next_id": 1, "max_id": 99,
        "description": "d", "update_time": "t", "returned": []}})";

TEST(IdctlDoctorTest, ADaemonWithoutDoctorIsToBeRestarted) {
  const Ran ran = RunAgainst({"doctor"}, static_cast<std::uint32_t>(Code::kInvalid),
                             R"({"error": "unknown operation 'doctor'"})");
  EXPECT_EQ(ran.request, Json::parse(R"({"op": "doctor"})"));
  EXPECT_EQ(ran.exit, ExitStatus::kFailed);
  EXPECT_NE(ran.out.find("problem  versions     this idd is older than idctl"), std::string::npos)
      << ran.out;
  EXPECT_EQ(ran.err, "idctl: doctor: 1 problem; do what each says after 'next'\n");
}

TEST(IdctlDoctorTest, ADaemonThatSendsNonsenseIsAProblemOfVersions) {
  for (const char* text : {"[]", "{}", R"({"daemon": 7})", "nonsense"}) {
    const Ran ran = RunAgainst({"--json", "doctor"}, 0, text);
    EXPECT_EQ(ran.exit, ExitStatus::kFailed) << text;
    const Json document = Json::parse(ran.out, nullptr, false);
    ASSERT_TRUE(document.is_object()) << ran.out;
    EXPECT_EQ(document["ok"], false);
    EXPECT_EQ(document["findings"].back()["check"], "versions") << document;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

TEST(IdctlDoctorTest, ADaemonThatLeavesBeforeItsAnswerIsOutOfReach) {
  const FakeDaemon daemon([](int socket) { static_cast<void>(ReceiveAdmin(socket)); });
  const ScopedFd out(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const ScopedFd err(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const std::vector<const char*> arguments = {"idctl", "--socket", daemon.path().c_str(), "doctor"};
  EXPECT_EQ(RunIdctl(4, arguments.data(), out.get(), err.get()), ExitStatus::kUnreachable);
  EXPECT_NE(Contents(out.get()).find("problem  daemon "), std::string::npos);
}

TEST(IdctlTest, SendsWhatWasAskedFor) {
  struct Case {
    std::vector<const char*> arguments;
    const char* request;
    const char* reply;
  };
  const std::string cluster = ClusterDocument().dump();
  const std::string agreement = AgreementDocument().dump();
  const std::vector<Case> cases = {
      {{"tag", "create", "orders"}, R"({"op":"tag.create","tag":"orders","if_absent":true})", kTag},
      {{"tag", "create", "orders", "--step", "10", "--start", "0", "--max-id", "99", "--mode",
        "segment", "--description", "ü"},
       R"({"op":"tag.create","tag":"orders","mode":"segment","step":10,"start":0,"max_id":99,)"
       R"("description":"ü","if_absent":true})",
       kTag},
      {{"tag", "set", "orders", "--step", "10", "--description", ""},
       R"({"op":"tag.set","tag":"orders","step":10,"description":""})",
       kTag},
      {{"tag", "create", "orders", "--access", "socket"},
       R"({"op":"tag.create","tag":"orders","access":"socket","if_absent":true})",
       kTag},
      {{"tag", "set", "orders", "--refill", "leaf", "--outage-tolerance", "60", "--max-prefetch",
        "40", "--max-step", "20"},
       R"({"op":"tag.set","tag":"orders","refill":"leaf","max_step":20,"max_prefetch":40,)"
       R"("outage_tolerance_s":60})",
       kTag},
      {{"tag", "set", "orders", "--access", "ring"},
       R"({"op":"tag.set","tag":"orders","access":"ring"})",
       kTag},
      {{"tag", "create", "orders", "--mode", "snowflake"},
       R"({"op":"tag.create","tag":"orders","mode":"snowflake","if_absent":true})",
       kTag},
      {{"tag", "create", "orders", "--mode", "snowflake", "--layout", "39/16/8", "--unit", "10ms",
        "--epoch", "2014-09-01", "--clock", "daemon", "--max-ahead", "2s", "--access", "socket"},
       R"({"op":"tag.create","tag":"orders","mode":"snowflake","access":"socket",)"
       R"("layout":"39/16/8","unit_ms":10,"epoch":"2014-09-01","clock":"daemon",)"
       R"("max_ahead_ms":2000,"if_absent":true})",
       kTag},
      {{"decode", "orders", "1", "9223372036854775806"},
       R"({"op":"decode","tag":"orders","ids":[1,9223372036854775806]})",
       R"({"tag": "orders", "mode": "snowflake", "parts": []})"},
      {{"tag", "show", "orders"}, R"({"op":"tag.show","tag":"orders"})", kTag},
      {{"tag", "show", "--", "-x"}, R"({"op":"tag.show","tag":"-x"})", kTag},
      {{"tag", "list"}, R"({"op":"tag.list"})", R"({"tags": []})"},
      {{"tag", "delete", "orders", "--force"},
       R"({"op":"tag.delete","tag":"orders","force":true})",
       R"({"deleted": "orders"})"},
      {{"lease", "list"}, R"({"op":"lease.list"})", R"({"truncated": false, "leases": []})"},
      {{"lease", "list", "--tag", "orders", "--host", "h", "--state", "active"},
       R"({"op":"lease.list","tag":"orders","host":"h","state":"active"})",
       R"({"truncated": false, "leases": []})"},
      {{"host", "list"}, R"({"op":"host.list"})", R"({"hosts": []})"},
      {{"witness", "list"}, R"({"op":"witness.list"})", agreement.c_str()},
      {{"witness", "set", "web-1", "web-2", "web-3"},
       R"({"op":"witness.set","hosts":["web-1","web-2","web-3"],"wait_ms":15000})",
       agreement.c_str()},
      {{"--timeout", "10s", "witness", "set", "web-1", "--force"},
       R"({"op":"witness.set","hosts":["web-1"],"force":true,"wait_ms":5000})",
       agreement.c_str()},
      {{"host", "list", "--all"}, R"({"op":"host.list","all":true})", R"({"hosts": []})"},
      {{"status", "--all-hosts"}, R"({"op":"cluster"})", cluster.c_str()},
      {{"status", "orders", "--all-hosts", "--limit", "7"},
       R"({"op":"cluster","tag":"orders","limit":7})",
       cluster.c_str()},
      {{"top", "--all-hosts", "--once"}, R"({"op":"cluster"})", cluster.c_str()},
      {{"audit"}, R"({"op":"audit"})", R"({"ok": true, "tags": [], "findings": []})"},
      {{"audit", "orders"},
       R"({"op":"audit","tag":"orders"})",
       R"({"ok": true, "tags": [], "findings": []})"},
  };
  for (const Case& each : cases) {
    const Ran ran = RunAgainst(each.arguments, 0, each.reply);
    EXPECT_EQ(ran.exit, ExitStatus::kDone) << ran.err;
    EXPECT_EQ(ran.request.dump(), each.request);
    EXPECT_EQ(ran.err, "");
    EXPECT_NE(ran.out, "");
  }
}

TEST(IdctlTest, AnIdThatDoesNotFitFailsAfterTheDocument) {
  const char* const reply = R"({"tag": "orders", "mode": "snowflake", "parts": [
      {"id": 5, "error": "it has more than 53 bits"}]})";
  const Ran human = RunAgainst({"decode", "orders", "5"}, 0, reply);
  EXPECT_EQ(human.exit, ExitStatus::kFailed);
  EXPECT_EQ(human.out, "ID  TIME  WORKER  SEQUENCE\n 5  -          -         -\n");
  EXPECT_EQ(human.err,
            "idctl: decode 'orders': id 5: it has more than 53 bits; is it an id of this tag?\n");
  const Ran json = RunAgainst({"--json", "decode", "orders", "5"}, 0, reply);
  EXPECT_EQ(json.exit, ExitStatus::kFailed);
  EXPECT_EQ(json.out, Json::parse(reply).dump(2) + "\n");
}

TEST(IdctlTest, JsonPrintsTheDocumentAsItCame) {
  const Ran before = RunAgainst({"--json", "tag", "show", "orders"}, 0, kTag);
  const Ran behind = RunAgainst({"tag", "show", "orders", "--json"}, 0, kTag);
  EXPECT_EQ(before.out, Json::parse(kTag).dump(2) + "\n");
  EXPECT_EQ(behind.out, before.out);
}

TEST(IdctlTest, ADocumentThatLacksAFieldFailsInBothFormats) {
  for (const char* format : {"--json", "--timeout=5000"}) {
    const Ran ran = RunAgainst({"tag", "show", "orders", format}, 0, R"({"tag": {}})");
    EXPECT_EQ(ran.exit, ExitStatus::kFailed);
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err,
              "idctl: tag show 'orders': the daemon's document is malformed: reply.tag.tag is "
              "missing, not a text; upgrade the older of idctl and idd\n");
  }
}

TEST(IdctlTest, TheDaemonsCodeIsTheExitStatus) {
  const std::array<int, 9> expected = {0, 1, 4, 3, 6, 5, 5, 1, 1};
  for (std::uint32_t code = 1; code < expected.size(); ++code) {
    const Ran ran = RunAgainst({"tag", "show", "orders"}, code, R"({"error": "line\nbreak."})");
    EXPECT_EQ(static_cast<int>(ran.exit), expected[code]);
    EXPECT_EQ(ran.out, "");
    EXPECT_TRUE(ran.err.starts_with("idctl: tag show 'orders': line\\x0abreak; ")) << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

TEST(IdctlTest, AnAuditThatDoesNotAddUpPrintsItsFindingsAndFails) {
  const char* const reply = R"({"ok": false, "tags": [], "findings": ["orders: lost 3"]})";
  const Ran human = RunAgainst({"audit"}, 0, reply);
  EXPECT_EQ(human.exit, ExitStatus::kFailed);
  EXPECT_NE(human.out.find("orders: lost 3\n"), std::string::npos) << human.out;
  EXPECT_NE(human.err.find("idctl: audit: 1 finding; "), std::string::npos) << human.err;
  const Ran json = RunAgainst({"audit", "--json"}, 0, reply);
  EXPECT_EQ(json.exit, ExitStatus::kFailed);
  EXPECT_EQ(json.out, Json::parse(reply).dump(2) + "\n");
}

// The exit status, and the number of bytes on stderr.
std::pair<ExitStatus, std::string> RunAbsent(std::vector<const char*> arguments) {
  const ScopedFd out(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const ScopedFd err(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  arguments.insert(arguments.begin(), {"idctl", "--socket", "/tmp/idctl_test.no_such_socket"});
  const ExitStatus exit =
      RunIdctl(static_cast<int>(arguments.size()), arguments.data(), out.get(), err.get());
  EXPECT_EQ(Contents(out.get()), "");
  return {exit, Contents(err.get())};
}

TEST(IdctlTest, EveryCommandSaysThatTheDaemonIsAbsent) {
  const std::vector<std::vector<const char*>> commands = {
      {"status"},        {"claim", "orders"}, {"tag", "list"}, {"tag", "create", "a"},
      {"lease", "list"}, {"host", "list"},    {"audit"},       {"claim", "orders", "--json"}};
  for (std::vector<const char*> command : commands) {
    command.insert(command.begin(), {"--timeout", "60000"});
    const MonotonicTime start = MonotonicClock::now();
    const auto [exit, err] = RunAbsent(command);
    EXPECT_EQ(exit, ExitStatus::kUnreachable) << err;
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
    EXPECT_NE(err.find("; "), std::string::npos) << err;
    EXPECT_LT(MonotonicClock::now() - start, kOnlyByADefect) << "it did not end by its deadline";
  }
}

TEST(IdctlTest, AClosedPipeEndsQuietly) {
  std::signal(SIGPIPE, SIG_IGN);  // as idctl's main does
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  const ScopedFd writer(ends[1]);
  const ScopedFd err(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const std::array<const char*, 2> arguments = {"idctl", "--help"};
  EXPECT_EQ(RunIdctl(2, arguments.data(), writer.get(), err.get()), ExitStatus::kFailed);
  EXPECT_EQ(Contents(err.get()), "");
}

}  // namespace
}  // namespace idd::tools

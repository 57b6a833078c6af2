// SPDX-License-Identifier: Apache-2.0
//
// idctl against a daemon that answers, refuses, lies, stalls or disappears.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
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
#include "support/fake_daemon.h"
#include "support/idctl_documents.h"
#include "support/run_tool.h"
#include "support/temp_dir.h"

namespace idd::tools {
namespace {

using std::chrono::milliseconds;
using testing_support::FakeDaemon;
using testing_support::ListenAt;
using testing_support::Request;
using wire::FrameType;

constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

ScopedFd MakeDocument(std::string_view text, int seals = kSeals) {
  ScopedFd fd(::memfd_create("document", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

wire::AdminReply ReplyWith(std::uint32_t status, std::uint64_t bytes) {
  return {.status = status, .reserved = 0, .document_bytes = bytes};
}

// A daemon on a socket of its own, whose handler gets the requests. It answers HELLO itself unless
// the handler does.
struct Daemon {
  explicit Daemon(FakeDaemon::Handler handler) : fake(path, std::move(handler)) {}

  const harness::TempDir dir;
  const std::string path = dir.File("idd.sock");
  FakeDaemon fake;
};

// Calls `answer` for the admin request.
FakeDaemon::Handler OnRequest(std::function<void(FakeDaemon&, const Request&)> answer) {
  return [answer = std::move(answer)](FakeDaemon& daemon, const Request& request) {
    if (request.type() != FrameType::kAdmin) return false;
    answer(daemon, request);
    return true;
  };
}

// For tests that must end long before this limit: only a defect reaches kOnlyByADefect.
constexpr milliseconds kDeadline(60'000);
constexpr milliseconds kOnlyByADefect(30'000);

Deadline Later() { return Deadline::After(kDeadline); }

// One complete admin exchange.
Result<JsonDocument> Ask(const std::string& path, Deadline deadline = Later()) {
  Result<AdminClient> client = AdminClient::Connect(path, deadline);
  if (!client.ok()) return client.status();
  return client.value().Request(AdminRequest("status"), deadline);
}
Result<JsonDocument> AskOf(FakeDaemon::Handler handler) {
  return Ask(Daemon(std::move(handler)).path);
}

// The client's result for one reply to its admin request.
Result<JsonDocument> AskWithReply(std::uint32_t status, std::uint64_t bytes,
                                  const std::vector<int>& fds) {
  return AskOf(OnRequest([&](FakeDaemon& daemon, const Request& request) {
    daemon.Reply(request, ReplyWith(status, bytes), {}, fds);
  }));
}

Result<JsonDocument> AskWithDocument(std::uint32_t status, std::string_view text,
                                     int seals = kSeals) {
  const ScopedFd document = MakeDocument(text, seals);
  return AskWithReply(status, text.size(), {document.get()});
}

TEST(AdminClientTest, SaysHelloThenReturnsTheDocument) {
  wire::HelloRequest hello;
  std::string request;
  const Result<JsonDocument> document = AskOf([&](FakeDaemon& daemon, const Request& frame) {
    if (frame.type() == FrameType::kHello) {
      hello = frame.As<wire::HelloRequest>();
      return false;
    }
    request.assign(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
    const std::string text = R"({"b": 18446744073709551615, "a": []})";
    const ScopedFd memory = MakeDocument(text);
    return daemon.Reply(frame, ReplyWith(0, text.size()), {}, {memory.get()});
  });
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
  const Status status = AskWithReply(4, 0, {}).status();
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
  EXPECT_EQ(AskWithReply(0, 2, {reader.get()}).status().code(), Code::kIncompatible);
  const ScopedFd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(AskWithReply(0, 2, {zero.get()}).status().code(), Code::kIncompatible);
}

TEST(AdminClientTest, AnImpossibleLengthIsIncompatible) {
  const ScopedFd document = MakeDocument("{}");
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{wire::kMaxAdminReplyBytes},
        std::uint64_t{wire::kMaxAdminReplyBytes} + 1, ~std::uint64_t{0}}) {
    EXPECT_EQ(AskWithReply(0, bytes, {document.get()}).status().code(), Code::kIncompatible)
        << bytes;
  }
}

TEST(AdminClientTest, AMissingDocumentIsIncompatible) {
  EXPECT_EQ(AskWithReply(0, 2, {}).status().code(), Code::kIncompatible);
}

TEST(AdminClientTest, TruncatedFramesAreIncompatible) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{23}, std::size_t{24}, std::size_t{30}, std::size_t{39}}) {
    const auto truncate = [&](FakeDaemon& daemon, const Request& request) {
      auto frame = wire::BuildReply(FrameType::kAdmin, request.header.request_id, ReplyWith(0, 2));
      frame.resize(bytes);
      daemon.Send(request.connection, frame);
    };
    EXPECT_EQ(AskOf(OnRequest(truncate)).status().code(), Code::kIncompatible) << bytes;
  }
}

TEST(AdminClientTest, AShortPayloadIsIncompatible) {
  const auto shorten = [](FakeDaemon& daemon, const Request& request) {
    daemon.Reply(request, std::uint64_t{0});
  };
  EXPECT_EQ(AskOf(OnRequest(shorten)).status().code(), Code::kIncompatible);
}

TEST(AdminClientTest, ALateReplyToAnotherRequestIsSkipped) {
  const ScopedFd wrong = MakeDocument("[1]");
  const ScopedFd right = MakeDocument("[2]");
  const auto answer_both = [&](FakeDaemon& daemon, const Request& request) {
    daemon.Send(
        request.connection,
        wire::BuildReply(FrameType::kAdmin, request.header.request_id + 1000, ReplyWith(0, 3)),
        {wrong.get()});
    daemon.Reply(request, ReplyWith(0, 3), {}, {right.get()});
  };
  const Result<JsonDocument> document = AskOf(OnRequest(answer_both));
  ASSERT_TRUE(document.ok()) << document.status().message();
  EXPECT_EQ(document.value().json().dump(), "[2]");
}

TEST(AdminClientTest, ARefusedHelloSaysWhy) {
  const auto refuse = [](FakeDaemon& daemon, const Request& request) {
    wire::HelloReply reply;
    reply.status = static_cast<std::uint32_t>(Code::kIncompatible);
    return daemon.Reply(request, reply);
  };
  EXPECT_EQ(AskOf(refuse).status().code(), Code::kIncompatible);
  const auto deny = [](FakeDaemon& daemon, const Request& request) {
    const wire::StatusReply reply{.status = 4, .reserved = 0};
    return daemon.Send(
        request.connection,
        wire::BuildReply(FrameType::kError, request.header.request_id, reply, "uid 5 may not"));
  };
  const Status status = AskOf(deny).status();
  EXPECT_EQ(status.code(), Code::kDenied);
  EXPECT_NE(status.message().find("uid 5 may not"), std::string::npos) << status.message();
}

TEST(AdminClientTest, AnAbsentDaemonIsUnavailableAtOnce) {
  const MonotonicTime start = MonotonicClock::now();
  const harness::TempDir dir;
  ListenAt(dir.File("idd.sock")).reset();
  EXPECT_EQ(AdminClient::Connect(dir.File("idd.sock"), Later()).status().code(),
            Code::kUnavailable);
  EXPECT_LT(MonotonicClock::now() - start, kOnlyByADefect);
}

TEST(AdminClientTest, ADaemonThatDoesNotAcceptIsUnavailableAtTheDeadline) {
  for (const int backlog : {8, 0}) {
    const harness::TempDir dir;
    const ScopedFd listener = ListenAt(dir.File("idd.sock"), backlog);
    const MonotonicTime start = MonotonicClock::now();
    for (int i = 0; i < 3; ++i) {  // fills the short backlog, then finds it full
      const Deadline deadline = Deadline::After(milliseconds(100));
      EXPECT_EQ(Ask(dir.File("idd.sock"), deadline).status().code(), Code::kUnavailable);
    }
    EXPECT_GE(MonotonicClock::now() - start, milliseconds(300));
    EXPECT_LT(MonotonicClock::now() - start, kOnlyByADefect);
  }
}

TEST(AdminClientTest, ADaemonThatStopsAnsweringIsUnavailableAtTheDeadline) {
  const Daemon mute([](FakeDaemon&, const Request&) { return true; });
  const Daemon stalling(OnRequest([](FakeDaemon&, const Request&) {}));
  for (const Daemon* daemon : {&mute, &stalling}) {
    const MonotonicTime start = MonotonicClock::now();
    const Status status = Ask(daemon->path, Deadline::After(milliseconds(150))).status();
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
    EXPECT_GE(MonotonicClock::now() - start, milliseconds(150));
    EXPECT_LT(MonotonicClock::now() - start, kOnlyByADefect);
  }
}

TEST(AdminClientTest, ADaemonThatClosesMidwayIsUnavailable) {
  const harness::TempDir dir;
  const ScopedFd listener = ListenAt(dir.File("idd.sock"));
  std::thread accepts(
      [&listener] { ScopedFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset(); });
  EXPECT_EQ(Ask(dir.File("idd.sock")).status().code(), Code::kUnavailable);
  accepts.join();
  for (const FrameType last : {FrameType::kHello, FrameType::kAdmin}) {
    const auto close = [last](FakeDaemon& daemon, const Request& request) {
      if (request.type() == last) daemon.Close(request.connection);
      return request.type() == last;
    };
    EXPECT_EQ(AskOf(close).status().code(), Code::kUnavailable);
  }
  const auto after_hello = [](FakeDaemon& daemon, const Request& request) {
    daemon.Reply(request, wire::HelloReply{});
    daemon.Close(request.connection);
    return true;
  };
  EXPECT_EQ(AskOf(after_hello).status().code(), Code::kUnavailable);
}

TEST(AdminClientTest, ARequestTooLongForAFrameIsInvalid) {
  const Daemon daemon(nullptr);
  Result<AdminClient> client = AdminClient::Connect(daemon.path, Later());
  ASSERT_TRUE(client.ok()) << client.status().message();
  AdminRequest request("tag.set");
  request.Set("description", std::string(20'000, 'x'));
  EXPECT_EQ(client.value().Request(request, Later()).status().code(), Code::kInvalid);
}

// --- The whole tool.

struct Answered : Ran {
  Json request;
};

Ran RunAt(const std::string& socket, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"--socket", socket.c_str()});
  return RunTool(arguments);
}

// Runs idctl against a daemon that answers the request with `status` and `text`.
Answered RunAgainst(const std::vector<const char*>& arguments, std::uint32_t status,
                    const std::string& text) {
  std::string request;
  Answered ran;
  {
    const ScopedFd document = MakeDocument(text);
    const Daemon daemon(OnRequest([&](FakeDaemon& fake, const Request& frame) {
      request.assign(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
      fake.Reply(frame, ReplyWith(status, text.size()), {}, {document.get()});
    }));
    static_cast<Ran&>(ran) = RunAt(daemon.path, arguments);
  }
  ran.request = Json::parse(request, nullptr, false);
  return ran;
}

constexpr const char* kTag =
    R"({"tag": {"tag": "orders", "mode": "segment", "access": "ring", "step": 10, "refill": "leaf",
        "max_step": 20, "max_prefetch": 40, "outage_tolerance_s": 60, "next_id": 1, "max_id": 99,
        "description": "d", "update_time": "t", "returned": []}})";

TEST(IdctlDoctorTest, ADaemonWithoutDoctorIsToBeRestarted) {
  const Answered ran = RunAgainst({"doctor"}, static_cast<std::uint32_t>(Code::kInvalid),
                                  R"({"error": "unknown operation 'doctor'"})");
  EXPECT_EQ(ran.request, Json::parse(R"({"op": "doctor"})"));
  EXPECT_EQ(ran.exit, ExitStatus::kFailed);
  EXPECT_NE(ran.out.find("problem  versions     this idd is older than idctl"), std::string::npos)
      << ran.out;
  EXPECT_EQ(ran.err, "idctl: doctor: 1 problem; do what each says after 'next'\n");
}

TEST(IdctlDoctorTest, ADaemonThatSendsNonsenseIsAProblemOfVersions) {
  for (const char* text : {"[]", "{}", R"({"daemon": 7})", "nonsense"}) {
    const Answered ran = RunAgainst({"--json", "doctor"}, 0, text);
    EXPECT_EQ(ran.exit, ExitStatus::kFailed) << text;
    const Json document = Json::parse(ran.out, nullptr, false);
    ASSERT_TRUE(document.is_object()) << ran.out;
    EXPECT_EQ(document["ok"], false);
    EXPECT_EQ(document["findings"].back()["check"], "versions") << document;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

TEST(IdctlDoctorTest, ADaemonThatLeavesBeforeItsAnswerIsOutOfReach) {
  const Daemon daemon(
      OnRequest([](FakeDaemon& fake, const Request& request) { fake.Close(request.connection); }));
  const Ran ran = RunAt(daemon.path, {"doctor"});
  EXPECT_EQ(ran.exit, ExitStatus::kUnreachable);
  EXPECT_NE(ran.out.find("problem  daemon "), std::string::npos);
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
    const Answered ran = RunAgainst(each.arguments, 0, each.reply);
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
    const Answered ran = RunAgainst({"tag", "show", "orders", format}, 0, R"({"tag": {}})");
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
    const Answered ran =
        RunAgainst({"tag", "show", "orders"}, code, R"({"error": "line\nbreak."})");
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

}  // namespace
}  // namespace idd::tools

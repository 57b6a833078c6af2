// SPDX-License-Identifier: Apache-2.0
//
// idctl claim: ids through libidclient, as any other program gets them.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "commands/commands.h"

namespace idd::tools {
namespace {

// Large enough that printing costs more than claiming, small enough that an interrupted claim
// leaves a small gap.
constexpr std::size_t kChunkIds = 4096;
constexpr std::uint64_t kDefaultClaimTimeoutMs = 500;

// idclient_status and Code have the same numbers (idd/base/status.h).
static_assert(IDCLIENT_SYSTEM == static_cast<int>(Code::kSystem));
static_assert(IDCLIENT_NO_SUCH_TAG == static_cast<int>(Code::kNoSuchTag));

Status StatusFromClient(idclient_status status, std::string message) {
  if (message.empty()) message = idclient_status_name(status);
  const bool is_known = status > IDCLIENT_OK && status <= IDCLIENT_SYSTEM;
  return Status(is_known ? static_cast<Code>(status) : Code::kSystem, std::move(message));
}

struct ClientCloser {
  void operator()(idclient_client* client) const { idclient_close(client); }
};
using ClientPtr = std::unique_ptr<idclient_client, ClientCloser>;

// Prints ids one a line, or as a JSON document with the fields of a complete claim. Prints nothing
// before the first id, so a claim that gets none leaves the output empty.
class IdPrinter {
 public:
  IdPrinter(const ClaimRun& run, Output& out) : run_(run), out_(out) {}

  void Print(const std::uint64_t* ids, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (run_.as_json) WriteJsonSeparator();
      if (run_.has_text_integers) out_.Write("\"");
      out_.WriteNumber(ids[i]);
      if (run_.has_text_integers) out_.Write("\"");
      if (!run_.as_json) out_.Write("\n");
    }
    printed_ += count;
  }

  void Finish() {
    if (run_.as_json && is_open_) out_.Write("\n  ]\n}\n");
  }

  [[nodiscard]] std::uint64_t printed() const { return printed_; }

 private:
  void WriteJsonSeparator() {
    if (is_open_) return out_.Write(",\n    ");
    is_open_ = true;
    out_.Write("{\n  \"tag\": " + JsonQuote(run_.tag) + ",\n  \"ids\": [\n    ");
  }

  const ClaimRun& run_;
  Output& out_;
  std::uint64_t printed_ = 0;
  bool is_open_ = false;
};

Failure ClaimFailure(const ClaimRun& run, std::uint64_t claimed, const Status& status) {
  std::string what = "claim from " + Quote(run.tag);
  if (claimed > 0) {
    what += " after " + std::to_string(claimed) + " of " + std::to_string(run.count) + " ids";
  }
  return FailureFrom(status, what);
}

Outcome Claim(const GlobalOptions& global, const ClaimArguments& arguments, Output& out) {
  const ClaimRun run{arguments.tag, arguments.count.value_or(1), global.as_json,
                     global.has_text_integers};
  idclient_options options = IDCLIENT_OPTIONS_INIT;
  options.socket_path = global.socket_path.c_str();
  options.flags = IDCLIENT_OPEN_ONCE;
  options.timeout_ms =
      static_cast<std::uint32_t>(global.timeout_ms.value_or(kDefaultClaimTimeoutMs));
  idclient_client* opened = nullptr;
  idclient_status status = idclient_open(&options, &opened);
  const ClientPtr client(opened);
  idclient_tag* tag = nullptr;
  if (status == IDCLIENT_OK) status = idclient_tag_open(client.get(), run.tag.c_str(), &tag);
  if (status != IDCLIENT_OK) {
    return ClaimFailure(run, 0, StatusFromClient(status, idclient_last_error()));
  }
  const auto source = [tag](std::uint64_t* ids, std::size_t count, std::size_t* claimed) {
    return idclient_claim_many(tag, ids, count, claimed);
  };
  const auto last_error = [] { return std::string(idclient_last_error()); };
  return ClaimAndPrint(run, source, last_error, out);
}

}  // namespace

Outcome ClaimAndPrint(const ClaimRun& run, const ClaimSource& source,
                      const std::function<std::string()>& last_error, Output& out) {
  IdPrinter printer(run, out);
  std::vector<std::uint64_t> ids(kChunkIds);
  Status error;
  while (error.ok() && printer.printed() < run.count) {
    const std::uint64_t wanted = std::min<std::uint64_t>(kChunkIds, run.count - printer.printed());
    std::size_t claimed = 0;
    const idclient_status status = source(ids.data(), static_cast<std::size_t>(wanted), &claimed);
    if (status != IDCLIENT_OK) {
      error = StatusFromClient(status, last_error());
    } else if (claimed == 0) {
      error = Status(Code::kSystem, "the library reported success without an id");
    }
    printer.Print(ids.data(), std::min(claimed, ids.size()));
    // Flushes after each claim so that a reader sees the ids at once, and stops claiming when the
    // reader has gone.
    if (error.ok() && !out.Flush()) return std::nullopt;
  }
  printer.Finish();
  if (error.ok()) return std::nullopt;
  return ClaimFailure(run, printer.printed(), error);
}

void RegisterClaimCommand(Command root, Invocation& invocation) {
  constexpr NumberRange kCountRange = {1, std::numeric_limits<std::int64_t>::max()};
  Command claim =
      root.AddCommand("claim", "Claim ids, one decimal number a line", "idctl claim orders -n 3");
  claim.AddTagName("TAG", "The tag to claim from", &invocation.claim.tag).Required();
  claim.AddCount("-n,--count", "Number of ids [1]", kCountRange, &invocation.claim.count);
  SetAction(claim, invocation,
            [&invocation](Output& out) { return Claim(invocation.global, invocation.claim, out); });
}

}  // namespace idd::tools

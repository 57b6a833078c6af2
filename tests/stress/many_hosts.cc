// SPDX-License-Identifier: Apache-2.0
#include "many_hosts.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "support/test_environment.h"

namespace idd::harness {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

constexpr std::chrono::milliseconds kSampleEvery(500);
}  // namespace

ServerWatch::ServerWatch(const DbServer& server) : server_(server), thread_([this] { Loop(); }) {}

ServerWatch::~ServerWatch() { static_cast<void>(Stop()); }

std::vector<ServerWatch::Reading> ServerWatch::Stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  if (thread_.joinable()) {
    thread_.join();
    Sample();
  }
  return samples_;
}

void ServerWatch::Sample() {
  const MonotonicTime asked = MonotonicClock::now();
  if (const std::optional<ServerCounters> counters = Read()) {
    samples_.push_back({asked, MonotonicClock::now(), *counters});
  }
}

void ServerWatch::Loop() {
  for (;;) {
    Sample();
    const bool is_stopping = WaitUntil(kSampleEvery, [this] {
      const std::lock_guard lock(mutex_);
      return is_stopping_;
    });
    if (is_stopping) return;
  }
}

std::optional<ServerCounters> ServerWatch::Read() {
  try {
    if (session_ == nullptr) {
      session_ = std::make_unique<DbSession>(server_.socket(), "root", "");
    }
    const std::map<std::string, double> counters = session_->Counters();
    const auto count = [&counters](const char* name) {
      return static_cast<std::uint64_t>(counters.at(name));
    };
    std::uint64_t rows_read = 0;  // at the storage engine's interface
    for (const auto& [name, value] : counters) {
      if (name.starts_with("handler_read_")) rows_read += static_cast<std::uint64_t>(value);
    }
    return ServerCounters{
        .statements = count("questions"),
        .commits = count("com_commit"),
        .updates = count("com_update"),
        .connections = count("connections"),
        .rows_read = rows_read,
        .running = count("threads_running"),
        .leases = std::stoull(session_->Query("SELECT COALESCE(MAX(seq), 0) FROM idd.idd_lease"))};
  } catch (const HarnessError&) {
    session_.reset();  // it does not answer now
    return std::nullopt;
  }
}

double HighestRate(const std::vector<ServerWatch::Reading>& samples,
                   const std::function<std::uint64_t(const ServerCounters&)>& count) {
  double highest = 0;
  for (std::size_t first = 0, last = 0; last < samples.size(); ++last) {
    while (samples[last].answered - samples[first + 1 < last ? first + 1 : first].answered >= 1s &&
           first + 1 < last) {
      ++first;
    }
    const std::chrono::duration<double> passed = samples[last].answered - samples[first].answered;
    if (passed < 1s) continue;
    const auto grown = count(samples[last].counters) - count(samples[first].counters);
    highest = std::max(highest, static_cast<double>(grown) / passed.count());
  }
  return highest;
}

ClaimEverywhere::ClaimEverywhere(Plan plan)
    : plan_(std::move(plan)),
      hosts_(plan_.sockets.size()),
      open_(plan_.sockets.size() * plan_.tags.size() * static_cast<std::size_t>(plan_.rounds)) {
  std::mt19937_64 random(TestSeed());
  for (Of& host : hosts_) {
    host.to_send.resize(plan_.tags.size());
    std::iota(host.to_send.begin(), host.to_send.end(), 0);
    std::shuffle(host.to_send.begin(), host.to_send.end(), random);
    host.rounds.resize(plan_.tags.size());
    host.sent.resize(plan_.tags.size());
  }
}

const ClaimEverywhere::Outcome& ClaimEverywhere::outcome() {
  std::sort(outcome_.waits_s.begin(), outcome_.waits_s.end());
  return outcome_;
}

bool ClaimEverywhere::Run(std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::After(timeout);
  std::vector<pollfd> polled;
  while (open_ != 0 && !deadline.passed()) {
    polled.assign(hosts_.size(), pollfd{-1, 0, 0});
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (!hosts_[i].connection.has_value()) Connect(hosts_[i]);
      if (!hosts_[i].connection.has_value()) continue;
      Send(hosts_[i]);
      polled[i] = {hosts_[i].connection->fd(), POLLIN, 0};
    }
    if (::poll(polled.data(), polled.size(), 10) <= 0) continue;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (polled[i].revents == 0 || Receive(i)) continue;
      throw HarnessError("the idd at " + plan_.sockets[i] + " has closed the connection");
    }
  }
  return open_ == 0;
}

// An idd that starts does not listen yet.
void ClaimEverywhere::Connect(Of& host) {
  const auto number = static_cast<std::size_t>(&host - hosts_.data());
  host.connection = RawConnection::TryConnect(plan_.sockets[number]);
  if (host.connection.has_value() && !host.connection->Send(MakeHello())) host.connection.reset();
}

// What the daemon's queue has no room for is sent later.
void ClaimEverywhere::Send(Of& host) {
  while (!host.to_send.empty()) {
    const std::size_t tag = host.to_send.back();
    if (!host.connection->Send(
            MakeClaim(plan_.tags[tag], 2 + tag, plan_.count, plan_.timeout_ms))) {
      return;
    }
    host.sent[tag] = MonotonicClock::now();
    host.to_send.pop_back();
  }
}

bool ClaimEverywhere::Receive(std::size_t number) {
  RawConnection& connection = *hosts_[number].connection;
  const std::optional<Reply> reply = connection.Receive(0ms);
  if (!reply.has_value()) return false;
  OnReply(number, *reply);
  return true;
}

void ClaimEverywhere::OnReply(std::size_t number, const Reply& reply) {
  if (reply.header.request_id < 2) return;  // HELLO
  Of& host = hosts_[number];
  const auto tag = static_cast<std::size_t>(reply.header.request_id - 2);
  const auto claim = reply.As<wire::ClaimReply>();
  const MonotonicTime now = MonotonicClock::now();
  ++outcome_.answers;
  --open_;
  if (claim.status != 0) {
    ++outcome_.failures[reply.Reason<wire::ClaimReply>()];
  } else {
    const std::chrono::duration<double> wait = now - std::max(host.sent.at(tag), from_);
    outcome_.waits_s.push_back(std::max(wait.count(), 0.0));
    outcome_.ids.push_back({plan_.tags.at(tag), {claim.first, claim.first + claim.count}});
  }
  if (++host.rounds[tag] < plan_.rounds) host.to_send.push_back(tag);
  const auto all = plan_.tags.size() * static_cast<std::size_t>(plan_.rounds);
  if (++host.answered == all) outcome_.served[number] = now;
}

std::map<std::string, int> ErrorsIn(const std::string& log) {
  std::map<std::string, int> errors;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string time;
    std::string level;
    std::string event;
    words >> time >> level >> event;
    if (level == "error" || level == "critical") ++errors[event];
  }
  return errors;
}

}  // namespace idd::harness

// SPDX-License-Identifier: Apache-2.0
#ifndef IDD_TESTS_UNIT_SUPPORT_IDCTL_DOCUMENTS_H_
#define IDD_TESTS_UNIT_SUPPORT_IDCTL_DOCUMENTS_H_

#include <nlohmann/json.hpp>

#include "commands/commands.h"

// Answers of idd, for the tests of what idctl makes of them.
namespace idd::tools {

[[nodiscard]] inline Json Parse(const char* text) {
  Json document = Json::parse(text, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << text;
  return document;
}

[[nodiscard]] inline Json StatusDocument() {
  return Parse(R"({
    "daemon": {"version": "0.1.0", "pid": 4711, "uptime_s": 723, "host_id": "web-1",
               "socket": "/run/idd/idd.sock"},
    "database": {"url": "sqlite:/var/lib/idd/idd.db", "state": "up", "last_error": null,
                 "since_s": 720},
    "tags": [
      {"tag": "orders", "mode": "segment", "step": 1000, "state": "ok", "claimed": 120,
       "available": 1880, "segments": [{"base": 1, "limit": 1001, "next": 121},
                                       {"base": 1001, "limit": 2001, "next": 1001}],
       "rate_per_s": 12.5, "covered_s": 150.4,
       "promise": {"outage_tolerance_s": 600, "length_s": 600, "kept": false}, "exhausted_in_days": null, "fallbacks": 0, "leases": 2, "last_error": null},
      {"tag": "x\ny", "mode": "segment", "step": 5, "state": "dry", "claimed": 9223372036854775806,
       "available": 0, "segments": [], "rate_per_s": 0, "covered_s": null,
       "promise": {"outage_tolerance_s": 600, "length_s": null, "kept": true}, "exhausted_in_days": 17.5, "fallbacks": 7,
       "leases": 1, "last_error": "database is locked"}]})");
}

[[nodiscard]] inline Json TagDocument() {
  return Parse(
      R"({"tag": {"tag": "orders", "mode": "segment", "access": "socket", "step": 1000, "refill": "promise",
    "max_step": 5000, "max_prefetch": 100000, "outage_tolerance_s": 600,
    "next_id": 2001, "max_id": 9223372036854775806, "description": "", "update_time": "2025-01-02 03:04:05",
    "returned": [{"host": "web-1", "base": 500, "limit": 1001}]}})");
}

[[nodiscard]] inline Json TagListDocument() {
  return Parse(
      R"({"tags": [{"tag": "orders", "mode": "segment", "access": "ring", "step": 1000, "refill": "promise",
    "max_step": 5000, "max_prefetch": 100000, "outage_tolerance_s": 600,
    "next_id": 2001, "max_id": 9223372036854775806, "description": "order ids",
    "update_time": "2025-01-02 03:04:05"}]})");
}

constexpr const char* kLayout =
    R"({"layout": "41/10/12", "unit_ms": 1, "epoch": "2024-01-01T00:00:00.000Z",
        "epoch_ms": 1704067200000, "clock": "client", "max_ahead_ms": 1000, "ids_per_unit": 4096,
        "workers": 1024, "ends": "2093-09-06T15:47:35.552Z"})";

[[nodiscard]] inline Json SnowflakeTagDocument() {
  Json document = TagDocument();
  Json& tag = document["tag"];
  tag["mode"] = "snowflake";
  tag["access"] = "ring";
  tag["returned"] = Json::array();
  tag["snowflake"] = Parse(kLayout);
  tag["workers"] = Parse(R"([
      {"worker": 3, "host": "web-1", "until": "2026-11-25T04:00:00.000Z", "is_over": false},
      {"worker": 12, "host": "web-2", "until": "2026-11-24T04:00:00.000Z", "is_over": true}])");
  return document;
}

[[nodiscard]] inline Json SnowflakeStatusDocument() {
  Json document = StatusDocument();
  Json& tag = document["tags"][0];
  tag["mode"] = "snowflake";
  tag["rate_per_s"] = 0U;
  tag["covered_s"] = nullptr;
  tag["snowflake"] = Parse(R"({"counter": "orders#3", "worker": 3,
      "time": "2026-11-25T03:00:00.123Z", "leased_until": "2026-11-25T03:10:00.000Z",
      "clock": "client"})");
  return document;
}

[[nodiscard]] inline Json LeaseDocument() {
  return Parse(
      R"({"truncated": false, "leases": [{"token": "00ff", "tag": "orders", "host": "web-1",
    "base": 1, "limit": 1001, "state": "active", "claimed": 120, "returned": 0, "abandoned": 0,
    "leased_at": "2025-01-02 03:04:05", "closed_at": null}]})");
}

[[nodiscard]] inline Json HostDocument() {
  return Parse(R"({"hosts": [{"host": "web-1", "first_seen": "2025-01-02 03:04:05",
    "last_seen": "2025-01-02 03:05:06", "boot_id": "b-1", "state": "live"}]})");
}

// As an idd reports it that knows more of its hosts.
[[nodiscard]] inline Json NamedHostDocument() {
  Json document = HostDocument();
  document["hosts"][0].update(Parse(R"({"name": "web-1.example", "address": "10.0.0.1",
    "version": "0.1.0", "condition": "silent", "silent_s": 61})"));
  return document;
}

[[nodiscard]] inline Json ClusterDocument() {
  return Parse(R"({"age_ms": 12, "rate_window_s": 300, "cluster": {"hosts": 3,
    "conditions": {"live": 2, "silent": 1}, "versions": {"0.1.0": 2}, "tags": 2, "short_tags": 1,
    "rate_per_s": 12.5, "active_leases": 3, "leased_ids": 5000, "claimed_ids": 1000,
    "held_ids": 3000, "returned_ids": 500, "abandoned_ids": 500},
    "hosts": [{"host": "h2", "name": "web-2", "condition": "silent", "version": "0.1.0",
      "silent_s": 130, "active_leases": 1, "held_ids": 1000, "served_tags": 1, "short_tags": 0},
     {"host": "h1", "name": "web-1", "condition": "live", "version": "0.1.0", "silent_s": 7,
      "active_leases": 2, "held_ids": 2000, "served_tags": 2, "short_tags": 1}],
    "more_hosts": 1,
    "tags": [{"tag": "orders", "mode": "segment", "rate_per_s": 12.5, "next_id": 5001,
      "max_id": 9000, "exhausted_in_days": 1.5, "hosts": 2, "short_hosts": 1, "active_leases": 3,
      "leased_ids": 5000, "claimed_ids": 1000, "held_ids": 3000, "returned_ids": 500,
      "abandoned_ids": 500}],
    "more_tags": 1})");
}

[[nodiscard]] inline Json WhoIsDocument() {
  return Parse(R"({"tag": "orders", "id": 130, "leases": [
    {"token": "01", "tag": "orders", "host": "web-2", "base": 121, "limit": 1001, "state": "active",
     "claimed": 0, "returned": 0, "abandoned": 0, "leased_at": "2025-01-02 03:05:06",
     "closed_at": null, "id_state": "active"},
    {"token": "00ff", "tag": "orders", "host": "web-1", "base": 1, "limit": 1001,
     "state": "returned", "claimed": 120, "returned": 880, "abandoned": 0,
     "leased_at": "2025-01-02 03:04:05", "closed_at": "2025-01-02 03:05:00",
     "id_state": "returned"}], "reason": null})");
}

[[nodiscard]] inline Json SnowflakeWhoIsDocument() {
  return Parse(R"({"tag": "orders", "id": 383123456789012345, "parts":
    {"id": 383123456789012345, "time": "2026-11-25T03:00:00.123Z", "time_ms": 1795575600123,
     "worker": 3, "sequence": 17}, "leases": [
    {"token": "01", "host": "web-1", "base": 374000000000000, "limit": 374002457600000,
     "from": "2026-11-25T03:00:00.000Z", "to": "2026-11-25T03:10:00.000Z", "state": "active",
     "claimed": 120, "returned": 0, "abandoned": 0, "leased_at": "2026-11-25 02:59:00",
     "closed_at": null, "id_state": "claimed"}], "reason": null})");
}

[[nodiscard]] inline Json DecodeDocument() {
  return Parse(R"({"tag": "orders", "mode": "snowflake", "parts": [
    {"id": 383123456789012345, "time": "2026-11-25T03:00:00.123Z", "time_ms": 1795575600123,
     "worker": 3, "sequence": 17},
    {"id": 1, "time": "2024-01-01T00:00:00.000Z", "time_ms": 1704067200000, "worker": 0,
     "sequence": 1}]})");
}

[[nodiscard]] inline Json ImportDocument() {
  return Parse(R"({"source": "tinyid", "dry_run": false, "tags": [
    {"tag": "new", "action": "created", "from": null, "next_id": 11, "step": 5, "reason": null},
    {"tag": "low", "action": "lifted", "from": 100, "next_id": 5001, "step": 10,
     "reason": "moved while importing"}], "warnings": []})");
}

[[nodiscard]] inline Json AuditDocument() {
  return Parse(R"({"ok": true, "tags": [{"tag": "orders", "leased": 10, "claimed": 1,
    "available": 2, "returned": 3, "abandoned": 4}], "findings": []})");
}

// As in a reply of status, and as one of witness.list.
[[nodiscard]] inline Json AgreementDocument() {
  return Parse(R"({"state": "leasing", "term": 17, "begun_by": "web-1", "witnesses": [
    {"host": "web-1", "silent_s": 0, "is_there": true},
    {"host": "web-2", "silent_s": 0, "is_there": true},
    {"host": "web-3", "silent_s": 0, "is_there": true}],
    "next": [], "has_majority": true, "reason": null})");
}

}  // namespace idd::tools

#endif  // IDD_TESTS_UNIT_SUPPORT_IDCTL_DOCUMENTS_H_

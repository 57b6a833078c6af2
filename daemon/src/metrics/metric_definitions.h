// SPDX-License-Identifier: Apache-2.0
//
// Every metric of idd, once: name, type, unit and one line of help. Code that measures something
// takes its metric from here. docs/metrics.md says what to do about each; a test checks that it
// lists the same metrics.
//
// Names follow Prometheus: base units, counters end in _total. A metric with a label `tag` is about
// that tag alone, and is shown to peers that may use the tag. Histograms are per host: with one for
// each tag, thousands of tags would make hundreds of thousands of series. Counters begin at 0 with
// each start of idd.
#ifndef IDD_DAEMON_METRICS_METRIC_DEFINITIONS_H_
#define IDD_DAEMON_METRICS_METRIC_DEFINITIONS_H_

namespace idd::daemon {

enum class MetricKind { kCounter, kGauge, kHistogram };

struct Metric {
  const char* name;
  MetricKind kind;
  const char* unit;  // "1": a state, 0 or 1
  const char* help;
};

namespace metric {

// --- idd itself
inline constexpr Metric kBuildInfo{"idd_build_info", MetricKind::kGauge, "1",
                                   "Always 1; the labels say which idd this is."};
inline constexpr Metric kStartTime{"idd_start_time_seconds", MetricKind::kGauge, "seconds",
                                   "When idd started, in Unix time."};
inline constexpr Metric kInheritedRings{"idd_inherited_rings", MetricKind::kGauge, "rings",
                                        "Rings of an earlier idd that idd found at its start."};
inline constexpr Metric kInheritedLeases{"idd_inherited_leases", MetricKind::kGauge, "leases",
                                         "Leases that were taken over from an earlier idd."};
inline constexpr Metric kLoopDelay{"idd_event_loop_delay_seconds", MetricKind::kHistogram,
                                   "seconds", "Event-loop lag, measured with a 1 s timer."};
inline constexpr Metric kLoopTurn{"idd_event_loop_turn_seconds", MetricKind::kHistogram, "seconds",
                                  "Processor time of each turn of the event loop."};
inline constexpr Metric kMetricsTurn{"idd_metrics_turn_seconds", MetricKind::kHistogram, "seconds",
                                     "How long each turn of collecting metrics held the loop."};
inline constexpr Metric kLogEvents{"idd_log_events_total", MetricKind::kCounter, "events",
                                   "Warnings and errors, with those that were not written."};
inline constexpr Metric kLogSuppressed{"idd_log_lines_suppressed_total", MetricKind::kCounter,
                                       "lines",
                                       "Lines left out of the log because too many were alike."};

// --- the store
inline constexpr Metric kStoreUp{"idd_store_up", MetricKind::kGauge, "1",
                                 "Whether the store answers."};
inline constexpr Metric kStoreChangeTime{"idd_store_state_change_time_seconds", MetricKind::kGauge,
                                         "seconds", "Unix time of the last store state change."};
inline constexpr Metric kStoreFailures{"idd_store_failures_total", MetricKind::kCounter, "calls",
                                       "Calls to the store that failed because of the store."};
inline constexpr Metric kStoreAlarms{"idd_store_alarms_total", MetricKind::kCounter, "alarms",
                                     "Alarms about the store, by kind: set back, replaced, "
                                     "another data set, not durable."};

// --- the term and its witnesses; no samples without a MySQL store
inline constexpr Metric kTerm{"idd_term", MetricKind::kGauge, "number",
                              "Number of the data set's term, as this host knows it."};
inline constexpr Metric kWitnesses{"idd_witnesses", MetricKind::kGauge, "hosts",
                                   "Hosts whose disks keep the ceilings."};
inline constexpr Metric kWitnessesThere{
    "idd_witnesses_there", MetricKind::kGauge, "hosts",
    "Those that have come to the present term and are not silent."};
inline constexpr Metric kIsWitness{"idd_is_witness", MetricKind::kGauge, "1",
                                   "Whether this host is a witness."};

// --- leases
inline constexpr Metric kLeasesTaken{"idd_leases_taken_total", MetricKind::kCounter, "leases",
                                     "Leases that the store granted."};
inline constexpr Metric kLeasesRefused{"idd_leases_refused_total", MetricKind::kCounter, "leases",
                                       "Leases that the store refused because of their tag."};
inline constexpr Metric kLeaseFailures{"idd_lease_failures_total", MetricKind::kCounter, "leases",
                                       "Leases that failed because of the store."};
inline constexpr Metric kLeaseDuration{"idd_lease_duration_seconds", MetricKind::kHistogram,
                                       "seconds",
                                       "How long the store took for a transaction of leases."};
inline constexpr Metric kAwaitingTurn{"idd_tags_awaiting_lease", MetricKind::kGauge, "tags",
                                      "Tags whose lease waits for lease_limit."};
inline constexpr Metric kRefills{"idd_refills_total", MetricKind::kCounter, "segments",
                                 "Segments that were leased and published."};
inline constexpr Metric kRefillNotices{"idd_refill_notices_total", MetricKind::kCounter, "notices",
                                       "Wake-ups from claimers that passed a refill mark."};

// --- the journal
inline constexpr Metric kJournalKeeper{"idd_journal_keeper", MetricKind::kGauge, "1",
                                       "Whether this host keeps the journal of all hosts short."};
inline constexpr Metric kJournalSettled{"idd_journal_settled_leases_total", MetricKind::kCounter,
                                        "leases", "Ended leases that this host added up."};
inline constexpr Metric kJournalFolded{"idd_journal_folded_leases_total", MetricKind::kCounter,
                                       "leases",
                                       "Leases whose rows this host deleted after "
                                       "journal_retention."};

// --- the whole store, of the host that keeps the journal
inline constexpr Metric kClusterHosts{"idd_cluster_hosts", MetricKind::kGauge, "hosts",
                                      "Hosts of the store by state, as idctl host list has it."};
inline constexpr Metric kClusterSampleTime{"idd_cluster_sample_time_seconds", MetricKind::kGauge,
                                           "seconds",
                                           "When the store was read for these metrics, in Unix "
                                           "time."};
inline constexpr Metric kClusterTagLeased{"idd_cluster_tag_leased_ids_total", MetricKind::kCounter,
                                          "ids", "Ids that all hosts leased of the tag."};
inline constexpr Metric kClusterTagReturned{"idd_cluster_tag_returned_ids_total",
                                            MetricKind::kCounter, "ids",
                                            "Ids that all hosts handed back."};
inline constexpr Metric kClusterTagAbandoned{
    "idd_cluster_tag_abandoned_ids_total", MetricKind::kCounter, "ids",
    "Ids that all hosts gave up; they are never handed out."};
inline constexpr Metric kClusterTagHeld{"idd_cluster_tag_held_ids", MetricKind::kGauge, "ids",
                                        "Ids of active leases of all hosts, claimed or not."};
inline constexpr Metric kClusterTagShortHosts{
    "idd_cluster_tag_short_hosts", MetricKind::kGauge, "hosts",
    "Hosts that hold fewer ids of the tag than promised."};
inline constexpr Metric kClusterTagExhaustion{
    "idd_cluster_tag_exhaustion_seconds", MetricKind::kGauge, "seconds",
    "Time until the tag's last id is leased at the rate of the last minutes; absent while idle."};

// --- claims over the socket
inline constexpr Metric kDryClaims{"idd_dry_claims_total", MetricKind::kCounter, "claims",
                                   "Claims that found the ring dry and had to wait."};
inline constexpr Metric kClaimWait{"idd_claim_wait_seconds", MetricKind::kHistogram, "seconds",
                                   "How long dry claims waited for ids or an error with a reason."};
inline constexpr Metric kFailedClaims{"idd_failed_claims_total", MetricKind::kCounter, "claims",
                                      "Dry claims that ended without ids, by reason."};
inline constexpr Metric kWaiting{"idd_waiting_requests", MetricKind::kGauge, "requests",
                                 "Claims and attaches that wait now."};

// --- peers
inline constexpr Metric kConnections{"idd_connections", MetricKind::kGauge, "connections",
                                     "Connections that are open."};
inline constexpr Metric kConnectionsAccepted{"idd_connections_accepted_total", MetricKind::kCounter,
                                             "connections", "Connections that were let in."};
inline constexpr Metric kConnectionsRefused{"idd_connections_refused_total", MetricKind::kCounter,
                                            "connections",
                                            "Connections beyond a limit, refused at once."};
inline constexpr Metric kDenials{"idd_denials_total", MetricKind::kCounter, "requests",
                                 "Requests denied for lack of rights, by what they asked for."};
inline constexpr Metric kLimited{"idd_limited_requests_total", MetricKind::kCounter, "requests",
                                 "Times that a request limit took effect, by limit."};
inline constexpr Metric kAdminRequests{"idd_admin_requests_total", MetricKind::kCounter, "requests",
                                       "Administration requests, by operation."};

// --- tags
inline constexpr Metric kTags{"idd_tags", MetricKind::kGauge, "tags", "Tags that idd serves."};
inline constexpr Metric kTagClaimed{"idd_tag_claimed_ids_total", MetricKind::kCounter, "ids",
                                    "Ids claimed from the ring, and by requests on the socket."};
inline constexpr Metric kTagAvailable{"idd_tag_available_ids", MetricKind::kGauge, "ids",
                                      "Ids that are published and not claimed."};
inline constexpr Metric kTagLaneIds{"idd_tag_lane_ids", MetricKind::kGauge, "ids",
                                    "Ids that CPUs' lanes have, which count as claimed; absent "
                                    "with order host."};
inline constexpr Metric kTagLaneDropped{
    "idd_tag_lane_dropped_ids_total", MetricKind::kCounter, "ids",
    "Ids of lanes that claimers gave up, in the present ring; absent with order host."};
inline constexpr Metric kTagCover{"idd_tag_cover_seconds", MetricKind::kGauge, "seconds",
                                  "Time for which the available ids last at the present rate; "
                                  "absent while idle or drained."};
inline constexpr Metric kTagPromise{"idd_tag_promise_seconds", MetricKind::kGauge, "seconds",
                                    "Outage tolerance: how long the ids held must last."};
inline constexpr Metric kTagPromiseLength{
    "idd_tag_promise_length_seconds", MetricKind::kGauge, "seconds",
    "Present length of the promise: as long as the load has lasted, at most outage_tolerance; "
    "absent while idle or drained."};
inline constexpr Metric kTagPromiseKept{
    "idd_tag_promise_kept", MetricKind::kGauge, "1",
    "1 if the ids held cover the present length of the promise; absent while drained."};
inline constexpr Metric kTagExhaustion{"idd_tag_exhaustion_seconds", MetricKind::kGauge, "seconds",
                                       "Time until the tag's last id is claimed at the present "
                                       "rate; absent while idle."};
inline constexpr Metric kTagWasted{"idd_tag_wasted_ids_total", MetricKind::kCounter, "ids",
                                   "Ids that were leased and given up; they are never handed out."};
inline constexpr Metric kTagLeases{"idd_tag_leases_total", MetricKind::kCounter, "leases",
                                   "Leases of the tag, inherited ones included."};
inline constexpr Metric kTagDryClaims{"idd_tag_fallbacks_total", MetricKind::kCounter, "claims",
                                      "Claims that came to the socket because the ring was dry."};
inline constexpr Metric kTagQuarantines{"idd_tag_quarantines_total", MetricKind::kCounter, "rings",
                                        "Rings that a client had spoilt."};
inline constexpr Metric kTagState{"idd_tag_state", MetricKind::kGauge, "1",
                                  "Always 1; the label says the state."};
inline constexpr Metric kTagRefused{"idd_tag_lease_refused", MetricKind::kGauge, "1",
                                    "Whether the store refuses the tag's leases."};

}  // namespace metric
}  // namespace idd::daemon

#endif  // IDD_DAEMON_METRICS_METRIC_DEFINITIONS_H_

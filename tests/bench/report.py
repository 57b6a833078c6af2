# SPDX-License-Identifier: Apache-2.0
"""Turns the results of measure.py into figures with limits, text, a Markdown table and a chart."""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Figure:
    """One measured figure. `limit`: None, or the largest value the project allows itself."""
    group: str
    name: str
    unit: str  # "x": a ratio, claim over raw
    values: tuple
    limit: float | None = None
    is_floor: bool = False  # `limit` is the smallest value instead
    detail: str = ""  # the absolute figures

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def is_met(self):
        if self.limit is None:
            return None
        return self.median >= self.limit if self.is_floor else self.median <= self.limit


# How long a raw add takes decides which ratios are possible: a claim that adds without a lock costs
# a third of a locked add of 6 ns, and as much as one of 2 ns.
SLOW_RAW_NS = 4

# Name, benchmark of the claim, ids of one call, benchmark of the raw operation, limit. A pair of
# limits: where an inlined raw add takes SLOW_RAW_NS or more, and elsewhere.
CLAIMS = (
    ("inlined C++ claim, 1 thread", "ClaimInlined/threads:1", 1, "RawInlined/threads:1", 1.15),
    ("inlined C++ claim, 2 threads", "ClaimInlined/threads:2", 1, "RawInlined/threads:2", None),
    ("C call, 1 thread", "ClaimCall/ring/threads:1", 1, "RawCall/threads:1", 1.3),
    ("C call, 2 threads", "ClaimCall/ring/threads:2", 1, "RawCall/threads:2", None),
    ("snowflake, claimers' clock, 1 thread", "ClaimSnowflake/client/threads:1", 1,
     "RawClock/threads:1", 1.3),
    ("snowflake, claimers' clock, 2 threads", "ClaimSnowflake/client/threads:2", 1,
     "RawClock/threads:2", 1.3),
    ("snowflake, idd's clock, 1 thread", "ClaimSnowflake/daemon/threads:1", 1,
     "RawInlined/threads:1", 1.5),
    ("snowflake, idd's clock, 2 threads", "ClaimSnowflake/daemon/threads:2", 1,
     "RawInlined/threads:2", 1.5),
    ("batches of 8, per id", "ClaimBatch/8", 8, "RawInlined/threads:1", None),
    ("batches of 64, per id", "ClaimBatch/64", 64, "RawInlined/threads:1", (0.2, 0.4)),
    ("batches of 1000, per id", "ClaimBatch/1000", 1000, "RawInlined/threads:1", None),
    ("blocks of 64, inlined, 1 thread", "BlockInlined/64/threads:1", 1, "RawInlined/threads:1",
     (0.5, 0.8)),
    ("blocks of 64, inlined, 2 threads", "BlockInlined/64/threads:2", 1, "RawInlined/threads:2",
     None),
    ("blocks of 1024, inlined, 1 thread", "BlockInlined/1024/threads:1", 1, "RawInlined/threads:1",
     (0.35, 0.6)),
    ("blocks of 1024, inlined, 2 threads", "BlockInlined/1024/threads:2", 1,
     "RawInlined/threads:2", None),
    ("blocks of 64, C call, 1 thread", "ClaimBlock/64/threads:1", 1, "RawCall/threads:1", 1),
    ("blocks of 64, C call, 2 threads", "ClaimBlock/64/threads:2", 1, "RawCall/threads:2", None),
    ("blocks of 1024, C call, 1 thread", "ClaimBlock/1024/threads:1", 1, "RawCall/threads:1", 1),
    ("blocks of 1024, C call, 2 threads", "ClaimBlock/1024/threads:2", 1, "RawCall/threads:2",
     None),
    ("order cpu, inlined, 1 thread", "LaneInlined/threads:1", 1, "RawInlined/threads:1",
     (0.5, 1.3)),
    ("order cpu, inlined, 2 threads", "LaneInlined/threads:2", 1, "RawInlined/threads:2", None),
    ("order cpu, C call, 1 thread", "ClaimCall/lane/threads:1", 1, "RawCall/threads:1",
     (0.7, 1.35)),
    ("order cpu, C call, 2 threads", "ClaimCall/lane/threads:2", 1, "RawCall/threads:2", None),
)


def claim_figures(runs):
    is_slow = statistics.median(run["RawInlined/threads:1"] for run in runs) >= SLOW_RAW_NS
    for name, claim, ids, raw, limit in CLAIMS:
        if isinstance(limit, tuple):
            limit = limit[0 if is_slow else 1]
        ns = statistics.median(run[claim] / ids for run in runs)
        raw_ns = statistics.median(run[raw] for run in runs)
        yield Figure("Claim", name, "x", tuple(run[claim] / ids / run[raw] for run in runs), limit,
                     detail=f"{ns:.2f} ns to {raw_ns:.2f} ns")


def process_figures(reports):
    for count, runs in reports.items():
        ids = statistics.median(run["claim"]["ids_per_s"] for run in runs) / 1e6
        raw = statistics.median(run["raw"]["ids_per_s"] for run in runs) / 1e6
        detail = f"{ids:.1f} M/s to {raw:.1f} M/s"
        if count == "8":
            yield Figure("Claim", f"throughput, {count} processes", "x",
                         tuple(1 / run["ratio"] for run in runs), 0.9, is_floor=True, detail=detail)
        else:
            yield Figure("Claim", f"{count} processes", "x", tuple(run["ratio"] for run in runs),
                         1.15 if count == "2" else None, detail=detail)


def latency_figures(by_place):
    for place, runs in by_place.items():
        group = f"Claim while segments of 10,000 change, idd on the {place}"
        limits = {"p99": 1.5, "p99.9": 1.5} if place == "other processor" else {}
        for percentile in ("p50", "p99", "p99.9", "p99.99"):
            ns = statistics.median(run["claim"][percentile] for run in runs)
            raw_ns = statistics.median(run["raw"][percentile] for run in runs)
            yield Figure(group, percentile, "x",
                         tuple(run["claim"][percentile] / run["raw"][percentile] for run in runs),
                         limits.get(percentile), detail=f"{ns:.0f} ns to {raw_ns:.0f} ns")
        for percentile in ("p50", "p99"):
            yield Figure(group, f"claims that cross into a segment, {percentile}", "us",
                         tuple(run["crossing"][percentile] / 1000 for run in runs),
                         5 if percentile == "p99" and limits else None)
        yield Figure(group, "claims that found the ring dry, of 3,000,000", "",
                     tuple(run["dry_claims"] for run in runs))


def socket_figures(by_place):
    for place, runs in by_place.items():
        group = f"Socket, idd on the {place}"
        for percentile in ("p50", "p99"):
            us = statistics.median(run["fallback"][percentile] for run in runs) / 1000
            raw_us = statistics.median(run["ping_pong"][percentile] for run in runs) / 1000
            yield Figure(group, f"claim over the socket to a bare ping-pong, {percentile}", "x",
                         tuple(run["fallback"][percentile] / run["ping_pong"][percentile]
                               for run in runs), 1.5 if percentile == "p50" else None,
                         detail=f"{us:.1f} us to {raw_us:.1f} us")
        for percentile in ("p50", "p99"):
            yield Figure(group, f"idclient_open and idclient_tag_open, {percentile}", "us",
                         tuple(run["open"][percentile] / 1000 for run in runs),
                         500 if percentile == "p50" else None)


def refill_figures(runs):
    group = "Claim at the highest rate of one claimer, a segment changes every 100,000 claims"
    yield Figure(group, "p99.99 while segments change to p99.9 without", "x",
                 tuple(run["changing"]["p99.99"] / run["steady"]["p99.9"] for run in runs), 3,
                 detail=f"{statistics.median(run['changing']['p99.99'] for run in runs):.0f} ns to "
                        f"{statistics.median(run['steady']['p99.9'] for run in runs):.0f} ns")
    yield Figure(group, "segments that changed in 10,100,000 claims", "",
                 tuple(run["segments"] for run in runs))
    yield Figure(group, "claims that found the ring dry", "",
                 tuple(run["dry_claims"] for run in runs), 0)
    yield Figure("Waiting", "500 threads on a dry ring, from the first served to the last", "ms",
                 tuple(spread for run in runs for spread in run["waiters_ms"]), 5)
    restarts = [restart for run in runs for restart in run["restarts"]]
    restart_ms = statistics.median(restart["restart_ms"] for restart in restarts)
    yield Figure("Waiting", "the slowest claim beside a restart of idd, beyond the restart itself", "ms",
                 tuple(max(0, restart["slowest_claim_ms"] - restart["restart_ms"]) for restart in restarts),
                 150, detail=f"restart {restart_ms:.0f} ms")


def lease_figures(by_way):
    for way, place in (("tcp", "over TCP"), ("socket", "over a Unix socket")):
        runs = by_way[way]
        group = f"Lease on MariaDB {place}, durable and journalled, to Leaf's transaction of four round trips"
        for name, key, limit in (("one, its tag read in the last 100 ms", "lease_us", 1),
                                 ("one, its tag read first", "lease_read_us", None)):
            yield Figure(group, name, "x", tuple(run[key] / run["leaf_us"] for run in runs), limit,
                         detail=f"{statistics.median(run[key] for run in runs):.0f} us to "
                                f"{statistics.median(run['leaf_us'] for run in runs):.0f} us")
        yield Figure(group, "50 that are due together, to one, tags read first", "x",
                     tuple(run["lease_of_50_us"] / run["lease_read_us"] for run in runs), 5,
                     detail=f"{statistics.median(run['lease_of_50_us'] for run in runs) / 1000:.1f} ms")


def host_lease_figures(results):
    runs = results.get("host_lease", [])
    group = "Leases from end to end on MariaDB over TCP, each for a claim that waits, to bare commits of one row"
    if not runs:  # an earlier version of scripts/bench
        return
    for hosts, count in (("one host, to one connection", 1), ("eight hosts, to eight connections", 8)):
        for tags, suffix in (("of one tag", ""), ("of sixteen tags", "_of_16")):
            leases, commits = f"leases_{count}{suffix}", f"commits_{count}"
            yield Figure(group, f"{tags}, {hosts}", "x", tuple(run[leases] / run[commits] for run in runs), 0.5,
                         is_floor=True,
                         detail=f"{statistics.median(run[leases] for run in runs):.0f}/s to "
                                f"{statistics.median(run[commits] for run in runs):.0f}/s")
    steps = results["lease"]["tcp"]
    group = "Steps of a lease on MariaDB over TCP"
    for name, key in (("read the tag, unless it was read in the last 100 ms", None),
                      ("lease and journal, committed", "lease_us"),
                      ("keep the high-water mark on this host's disk", "mark_us"),
                      ("later: journal the ends of 50 leases together", "ends_of_50_us")):
        yield Figure(group, name, "us", tuple(run[key] if key else run["lease_read_us"] - run["lease_us"]
                                              for run in steps))


def kernel_figures(results):
    calls = results["kernel_entries"]
    detail = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
    yield Figure("Kernel", "system calls of 10,000,000 claims in 11 segments of 1,000,000", "",
                 (sum(calls.values()),), 22, detail=detail)


def look_figures(looks):
    group = "A look at 2,000 tags with a ring each"
    for name, key in (("idctl status", "status_ms"), ("idctl --json status", "status_json_ms")):
        yield Figure(group, f"{name}, time of a processor, with idd's", "ms", tuple(looks[key]), 100)
    yield Figure(group, "processor time of idctl top and idd together", "%", (looks["top_percent"],), 1)
    yield Figure(group, "a scrape of /metrics", "ms", tuple(looks["scrape_ms"]), 1000)
    yield Figure(group, "the slowest claim of a new client beside scrapes", "ms", (looks["claim_ms"],), 1000)
    yield Figure(group, "turns of the loop for scrapes that take less than 3 ms", "%",
                 (looks["short_turns_percent"],), 50, is_floor=True)


def flood_figures(flood):
    if flood is None:  # only root can act as another user
        return
    yield Figure("One user makes 100,000 connections", "the slowest claim of a new client meanwhile", "ms",
                 (flood["claim_ms"],), 1000)


def attack_figures(attacks):
    for name, runs in (attacks or {}).items():
        us = {when: statistics.median(run[f"{when}_us"] for run in runs)
              for when in ("quiet", "attacked", "elsewhere")}
        yield Figure("Claim over the socket while another user attacks, to the same while that user is quiet", f"{name}, p99", "x",
                     tuple(run["attacked_us"] / run["quiet_us"] for run in runs), max(10, 400 / us["quiet"]),
                     detail=f"{us['attacked']:.0f} us to {us['quiet']:.0f} us; {us['elsewhere']:.0f} us if it attacks another idd")


# By number of tags: most MiB, % of a processor and wake-ups a second.
IDLE_LIMITS = {1: (20, 0.1, 1), 10_000: (200, 0.5, None)}


def footprint_figures(rows):
    for row in rows:
        tags = "1 tag" if row["tags"] == 1 else f"{row['tags']:,} tags"
        group = f"idd idle, {tags}, {row['rings']:,} with a ring"
        resident, processor, wake_ups = IDLE_LIMITS.get(row["tags"], (None, None, None))
        yield Figure(group, "resident", "MiB", (row["resident_mib"],), resident)
        yield Figure(group, "processor", "%", (row["cpu_percent"],), processor)
        yield Figure(group, "wake-ups per second of the busiest thread", "",
                     (row["wake_ups_per_s"],), wake_ups)


def figures(results):
    return [
        *claim_figures(results["claims"]),
        *process_figures(results["processes"]),
        *latency_figures(results["latency"]),
        *socket_figures(results["socket"]),
        *refill_figures(results["refill"]),
        *lease_figures(results["lease"]),
        *host_lease_figures(results),
        *kernel_figures(results),
        *look_figures(results["looks"]),
        *flood_figures(results["flood"]),
        *attack_figures(results.get("attacked")),
        *footprint_figures(results["footprint"]),
    ]


def number(value):
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.095 else f"{value:.3f}"


def cells(figure):
    def with_unit(value):
        return f"{number(value)} {figure.unit}".strip()
    limit = ""
    if figure.limit is not None:
        limit = f"{'at least' if figure.is_floor else 'at most'} {with_unit(figure.limit)}"
        if not figure.is_met:
            limit += ": NOT MET"
    spread = ""
    if len(figure.values) > 1:
        spread = f"{number(min(figure.values))} to {number(max(figure.values))}"
    return with_unit(figure.median), spread, limit, figure.detail


def text(all_figures):
    lines, group = [], None
    for figure in all_figures:
        if figure.group != group:
            group = figure.group
            lines.append(f"\n{group}")
        value, spread, limit, detail = cells(figure)
        lines.append(f"  {figure.name:50} {value:>12}  {spread:18} {limit:24} {detail}".rstrip())
    return "\n".join(lines) + "\n"


def markdown(all_figures):
    lines, group = [], None
    for figure in all_figures:
        if figure.group != group:
            group = figure.group
            lines += ["", f"**{group}**", "", "| | Median | Range | Limit | Claim to raw |",
                      "|---|---:|---|---|---|"]
        lines.append(f"| {figure.name} | " + " | ".join(cells(figure)) + " |")
    return "\n".join(lines[1:]) + "\n"


def machine_line(machine):
    return (f"{machine['processor']}, {machine['processors']} processors, {machine['architecture']}, "
            f"Linux {machine['kernel']}, {machine['compiler']}")


def chart(all_figures, path):
    """The ratios of the group "Claim" as bars, their spread as whiskers, the limits as ticks."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "idd"
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    shown = [figure for figure in all_figures if figure.group == "Claim"][::-1]
    rows = range(len(shown))
    medians = [figure.median for figure in shown]
    spread = [[figure.median - min(figure.values) for figure in shown],
              [max(figure.values) - figure.median for figure in shown]]
    plot, axes = pyplot.subplots(figsize=(9, 0.36 * len(shown) + 1.2))
    axes.barh(rows, medians, height=0.6, color="#3b6ea5", xerr=spread, ecolor="#888888", capsize=2)
    for row, figure in zip(rows, shown):
        axes.text(max(figure.values) + 0.02, row, f"{figure.median:.2f}", va="center", fontsize=8)
        if figure.limit is not None:
            axes.plot([figure.limit] * 2, [row - 0.4, row + 0.4], color="#c03030", linewidth=2)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(rows, [figure.name for figure in shown])
    axes.set_xlim(0, max(1.5, *(figure.median * 1.1 for figure in shown)))
    axes.set_xlabel("ratio to a raw fetch_add of the same kind (1: the same; red: the limit)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    plot.tight_layout()
    plot.savefig(path, metadata={"Date": None})

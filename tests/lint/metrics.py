#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""metrics.py ROOT: daemon/src/metrics/metric_definitions.h declares each metric once and by Prometheus' rules; the source
uses each; docs/metrics.md has a row for each, with its type and unit, and no other; the alerts and the
dashboard ask for no metric that is not declared; and each alert has a summary, a description, a section in
docs/metrics.md, and a case in which it fires and one in which it does not.

A row is `| metric | type | unit | what | what to do |`. Exits 77 without python3-yaml.
"""

import json
import pathlib
import re
import sys

try:
    import yaml
except ImportError:
    print("metrics.py: skipped, python3-yaml is not installed")
    sys.exit(77)

LIST = pathlib.PurePath("daemon", "src", "metrics", "metric_definitions.h")
TABLE = pathlib.PurePath("docs", "metrics.md")
RULES = pathlib.PurePath("docs", "prometheus", "idd-alerts.rules.yml")
CASES = pathlib.PurePath("tests", "integration", "idd-alerts.test.yml")
DASHBOARD = pathlib.PurePath("docs", "grafana", "idd-dashboard.json")

DECLARED = re.compile(
    r'Metric\s+(k\w+)\s*\{\s*"([^"]+)"\s*,\s*MetricKind::k(\w+)\s*,\s*"([^"]*)"\s*,\s*((?:"[^"]*"\s*)+)\}')
NAME = re.compile(r"\bidd_[a-z0-9_]+")
ROW = re.compile(r"^\|\s*`(idd_\w+)`\s*\|([^|]*)\|([^|]*)\|(.*)\|\s*$")
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum")}
# The base units of Prometheus that stand at a name's end; counts of things have none.
BASE_UNITS = ("seconds", "ids")


def read(root, path, findings):
    try:
        return (root / path).read_text(encoding="utf-8")
    except OSError:
        findings.append(f"{root / path}:1: is not there")
        return ""


def check_name(where, name, kind, unit):
    is_counter = kind == "counter"
    if is_counter != name.endswith("_total"):
        yield f"{where}: a counter ends in _total, nothing else does"
    if unit in BASE_UNITS and not name.removesuffix("_total").endswith(f"_{unit}"):
        yield f"{where}: its name ends in its unit, {unit}"
    if re.search(r"_(ms|us|ns|minutes|hours|days|bytes_per|percent)\b", name):
        yield f"{where}: use base units"


def declared(root, findings):
    """name -> (kind, unit), as the list has them."""
    text = read(root, LIST, findings)
    metrics, identifiers = {}, {}
    for match in DECLARED.finditer(text):
        identifier, name, kind, unit, help_text = match.groups()
        where = f"{root / LIST}:{text.count(chr(10), 0, match.start()) + 1}: {name}"
        if name in metrics:
            findings.append(f"{where}: is declared twice")
        if "\\n" in help_text or not help_text.strip('" \n').endswith("."):
            findings.append(f"{where}: its help is one sentence")
        metrics[name] = (kind.lower(), unit)
        identifiers[identifier] = where
        findings += check_name(where, name, kind.lower(), unit)
    if len(metrics) != text.count("inline constexpr Metric "):
        findings.append(f"{root / LIST}:1: a declaration is not of the form that this test reads")
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((root / "daemon" / "src").rglob("*.cc")))
    for identifier, where in identifiers.items():
        if f"metric::{identifier}" not in sources:
            findings.append(f"{where}: nothing measures it")
    return metrics


def check_table(root, metrics, findings):
    table = root / TABLE
    rows = {}
    for number, line in enumerate(read(root, TABLE, findings).splitlines(), 1):
        row = ROW.match(line)
        if row is None:
            continue
        name, kind, unit, rest = row.groups()
        where = f"{table}:{number}: {name}"
        if name in rows:
            findings.append(f"{where}: has another row")
        rows[name] = (kind.strip(), unit.strip())
        if name not in metrics:
            findings.append(f"{where}: is not declared")
        elif rows[name] != metrics[name]:
            findings.append(f"{where}: is a {metrics[name][0]}, unit {metrics[name][1]}")
        if rest.count("|") != 1 or not all(cell.strip() for cell in rest.split("|")):
            findings.append(f"{where}: say what it is and what to do")
    for name in sorted(metrics.keys() - rows.keys()):
        findings.append(f"{root / LIST}:1: {name} has no row in {TABLE}")


def unknown(expression, metrics):
    """The metrics that the expression uses and idd does not expose."""
    known = set(metrics)
    for name, (kind, _) in metrics.items():
        known |= {name + suffix for suffix in SUFFIXES.get(kind, ())}
        if kind == "histogram":
            known.discard(name)
    return sorted(set(NAME.findall(expression)) - known)


def check_alert(where, rule, metrics, sections):
    for name in unknown(rule["expr"], metrics):
        yield f"{where}: {name} is not exposed"
    notes = rule.get("annotations", {})
    for note in ("summary", "description", "runbook_url"):
        if not notes.get(note):
            yield f"{where}: has no {note}"
    link = f"metrics.md#{rule['alert'].lower()}"
    if not notes.get("runbook_url", "").endswith(link) or rule["alert"] not in sections:
        yield f"{where}: its runbook is a section of {TABLE} of its name, and a link to it"
    if rule.get("labels", {}).get("severity") not in ("warning", "critical"):
        yield f"{where}: its severity is warning or critical"


def check_rules(root, metrics, findings):
    rules = yaml.safe_load(read(root, RULES, findings)) or {"groups": []}
    cases = yaml.safe_load(read(root, CASES, findings)) or {"tests": []}
    sections = re.findall(r"^### (\w+)$", read(root, TABLE, findings), re.MULTILINE)
    fires, quiet = set(), set()
    for test in cases["tests"]:
        for case in test["alert_rule_test"]:
            (fires if case.get("exp_alerts") else quiet).add(case["alertname"])
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    for rule in alerts:
        where = f"{root / RULES}:1: {rule['alert']}"
        findings += check_alert(where, rule, metrics, sections)
        if rule["alert"] not in fires or rule["alert"] not in quiet:
            findings.append(f"{where}: a case of {CASES} makes it fire, and another one does not")
    if not alerts:
        findings.append(f"{root / RULES}:1: has no alerts")


def check_dashboard(root, metrics, findings):
    try:
        dashboard = json.loads(read(root, DASHBOARD, findings))
    except json.JSONDecodeError as error:
        findings.append(f"{root / DASHBOARD}:{error.lineno}: {error.msg}")
        return
    asked = set()
    for panel in dashboard["panels"]:
        where = f"{root / DASHBOARD}:1: panel '{panel['title']}'"
        expressions = [target["expr"] for target in panel.get("targets", [])]
        if panel["type"] != "row" and not expressions:
            findings.append(f"{where}: shows nothing")
        for expression in expressions:
            asked |= set(NAME.findall(expression))
            findings += [f"{where}: {name} is not exposed" for name in unknown(expression, metrics)]
    for variable in dashboard["templating"]["list"]:
        for name in unknown(variable.get("definition", ""), metrics):
            findings.append(f"{root / DASHBOARD}:1: variable {variable['name']}: {name} is not exposed")
    if not asked:
        findings.append(f"{root / DASHBOARD}:1: shows no metric")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    findings = []
    metrics = declared(root, findings)
    if not metrics:
        findings.append(f"{root / LIST}:1: nothing is declared there")
    check_table(root, metrics, findings)
    check_rules(root, metrics, findings)
    check_dashboard(root, metrics, findings)
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

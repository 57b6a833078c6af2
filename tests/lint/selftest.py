#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each check beside this file accepts a good tree and finds what is planted in it."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import includes  # noqa: E402
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class Lint(unittest.TestCase):
    def run_check(self, check, files):
        with tempfile.TemporaryDirectory(prefix="idd-lint-") as root:
            for name, text in files.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755 if text.startswith("#!") else 0o644)
            command = [str(HERE / check), root]
            if check.endswith(".py"):
                command.insert(0, sys.executable)
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
        self.assertIn(done.returncode, (0, 1, 77, 123), done.stdout)
        if done.returncode == 77:
            self.skipTest(done.stdout)
        return done.returncode, done.stdout

    def accepts(self, check, files):
        status, output = self.run_check(check, files)
        self.assertEqual(status, 0, output)

    def finds(self, what, check, files):
        status, output = self.run_check(check, files)
        self.assertNotEqual(status, 0, "nothing found")
        self.assertIn(what, output)

    def test_doc_links(self):
        page = '# A *page* of `idd`\n<a id="here"></a>\n```sh\n# no heading [x](nowhere)\n```\n'
        good = {"a.md": page, "docs/b.md": "[a](../a.md#a-page-of-idd) [b](../a.md#here) [c](c.toml)\n",
                "docs/c.toml": "", "docs/d.md": "[e](https://example.org/#e) [f](#f)\n# F\n",
                "docs/failures.md": "`unit/a_test.cc`\n", "tests/unit/a_test.cc": ""}
        self.accepts("doc_links.py", good)
        for name, text, what in (
            ("docs/b.md", "\n[a](a.md)\n", "b.md:2: there is no a.md"),
            ("docs/b.md", "[a](../a.md#there)\n", "no such place"),
            ("docs/b.md", "[a](../a.md#no-heading-x)\n", "no such place"),
            ("docs/b.md", "[a](#here)\n", "no such place"),
            ("docs/failures.md", "`unit/b_test.cc`\n", "no test unit/b_test.cc"),
        ):
            with self.subTest(text=text):
                self.finds(what, "doc_links.py", {**good, name: text})

    def test_faults(self):
        patch = "Why.\n\n--- a/a.cc\n+++ b/a.cc\n@@ -1 +1 @@\n-int a;\n+int b;\n"
        for name in ("tests/simulation/faults/x.patch", "tests/simulation/faults/hidden/x.patch"):
            self.accepts("faults.sh", {"a.cc": "int a;\n", name: patch})
            self.finds(f"{name}:1", "faults.sh", {"a.cc": "int c;\n", name: patch})

    def test_format(self):
        style = (HERE / "../../.clang-format").read_text(encoding="utf-8")
        self.accepts("format.sh", {".clang-format": style, "a.cc": "int* p;\n"})
        self.finds("a.cc:1", "format.sh", {".clang-format": style, "a.cc": "int *p;\n"})

    def test_includes(self):
        good = {
            "shm/include/idd/shm/abi.h": "#include <atomic>\n",
            "shm/src/a.cc": '#include "idd/shm/abi.h"\n',
            "libclient/src/b.h": "",
            "libclient/src/b.cc": '#include "b.h"\n#include "idd/shm/abi.h"\n',
            "daemon/src/tags/c.h": "#include <nlohmann/json_fwd.hpp>\n",
            "daemon/src/tags/c.cc": '#include "tags/c.h"\n#include <nlohmann/json.hpp>\n',
            "daemon/src/config/c.cc": "#include <toml++/toml.h>\n",
            "daemon/src/config/options.cc": "#include <CLI/App.hpp>\n",
            "daemon/src/platform/event_loop.cc": "#include <boost/asio/post.hpp>\n",
            "daemon/src/platform/logging.cc": "#include <spdlog/spdlog.h>\n",
            "daemon/src/platform/p.h": "",
            "daemon/src/sql/c.cc": '#include "sql/c.h"\n#include <sqlite3.h>\n',
            "daemon/src/sql/c.h": "",
            "daemon/src/daemon.cc": '#include "tags/c.h"\n#include "platform/p.h"\n',
            "tools/src/terminal/e.h": "#include <nlohmann/json_fwd.hpp>\n",
            "tools/src/terminal/e.cc": '#include "terminal/e.h"\n#include <nlohmann/json.hpp>\n',
            "tools/src/terminal/command_line.cc": "#include <CLI/CLI.hpp>\n",
            "docs/architecture.md": "".join(
                includes.row_of(source, room, *facts) + "\n"
                for source, rooms in includes.ROOMS.items() for room, facts in rooms.items()),
        }
        self.accepts("includes.py", good)
        for bad, line in (
            ("shm/include/idd/shm/abi.h", "#include <vector>"),
            ("shm/src/a.cc", '#include "idclient/idclient.h"'),
            ("shm/src/a.cc", '#include "c.h"'),
            ("libclient/src/b.cc", "#include <spdlog/spdlog.h>"),
            ("libclient/include/idclient/idclient.hpp", '#include "idd/shm/ring_claimer.h"'),
            ("shm/include/idd/shm/claim_point.h", '#include "idd/base/check.h"'),
            ("tools/src/main.cc", '#include "store/c.h"'),
            ("tools/src/main.cc", "#include <sqlite3.h>"),
            ("daemon/src/tags/c.h", '#include "idclient/idclient.h"'),
            ("daemon/src/tags/c.h", "#include <CLI/CLI.hpp>"),
            ("tools/src/terminal/f.cc", "#include <CLI/CLI.hpp>"),
            ("tools/src/terminal/e.h", "#include <nlohmann/json.hpp>"),
            ("daemon/src/tags/c.h", "#include <nlohmann/json.hpp>"),
            ("daemon/src/tags/c.h", "#include <spdlog/spdlog.h>"),
            ("daemon/src/tags/c.h", "#include <toml++/toml.h>"),
            ("daemon/src/tags/d.cc", "#include <boost/asio/post.hpp>"),
            ("daemon/src/platform/event_loop.h", "#include <boost/asio/post.hpp>"),
            ("daemon/src/platform/no_event_loop.cc", "#include <boost/asio/post.hpp>"),
            ("daemon/src/tags/d.cc", "#include <sqlite3.h>"),
            ("daemon/src/tags/d.cc", "#include <spdlog/spdlog.h>"),
            ("daemon/src/sql/c.h", '#include "tags/c.h"'),  # runs up
            ("daemon/src/refill/c.cc", '#include "platform/p.h"'),  # not in its row
            ("daemon/src/daemon.cc", '#include "sql/c.h"'),  # of a room that it does not use
            ("daemon/src/shed/c.cc", '#include "platform/p.h"'),  # no room
            ("daemon/src/tags/c.cc", '#include "platform/p.h"\n#include "tags/c.h"'),  # not first
        ):
            with self.subTest(file=bad, line=line):
                self.finds(f"{bad}:1", "includes.py", {**good, bad: line + "\n"})
        page = {"docs/architecture.md": good["docs/architecture.md"].replace("platform", "base", 1)}
        self.finds("no row | `daemon/src`", "includes.py", {**good, **page})

    def test_words(self):
        long = "word " * 21
        good = {
            "docs/a.md": f"# A page\n\n| {long} | {long} |\n\n```sh\n# somebody {long}\n```\n`nobody` reads.\n"
                         f"<!-- measured: begin -->\n{long}\n<!-- measured: end -->\n",
            "daemon/src/a.cc": '// somebody\nlog::Info("told.by_nobody", {{"error", "the store is down"}});\n',
        }
        self.accepts("words.py", good)
        for name, text, what in (
            ("docs/a.md", "Somebody reads.\n", "a.md:1: 'Somebody' is not used here"),
            ("docs/a.md", f"{long}\n", "a.md:1: 105 columns; prose wraps at 100"),
            ("docs/a.md", "<!-- measured: begin --> text\n", "a.md:1: the benchmark that writes this part"),
            ("README.md", "Claims go by the socket.\n", "over the socket"),
            ("tools/src/b.cc", 'Print("nobody is there");\n', "b.cc:1: 'nobody' is not used here"),
            ("shm/src/b.h", '  "it is mended anew"\n', "'mended' is not used here; fix"),
            ("daemon/idd.toml", "# whoever connects\n", "idd.toml:1: 'whoever' is not used here"),
            ("docs/grafana/a.json", '"how long it shall"\n', "a.json:1: 'shall' is not used here"),
        ):
            with self.subTest(text=text):
                self.finds(what, "words.py", {**good, name: text})

    def test_memory_orders(self):
        order = "std::memory_order_release"
        for good in (
            f"x.store(1, {order});  // P1, pairs with C1\nx.load({order});  // C1\n",
            f"// P1: why.\nx.store(1, {order});\n",
            f"x.store(a_long_name,\n        {order});  // P1\n",
            "// x.load() in words\n",
            "std::exchange(fd_, -1);\n",
        ):
            with self.subTest(good=good):
                self.accepts("memory_orders.py", {"shm/a.h": good})
        for bad in (
            f"y = 0;  // P1\nx.store(1, {order});\n",
            f"x.store(1, {order});  // not labelled\n",
            f"x.store(1, {order});  // P1, pairs with C9\n",
            "x.load();  // P1\n",
            "x.fetch_add(1);  // P1\n",
            f"std::atomic_thread_fence({order});  // P1\n",
            "volatile int x;  // P1\n",
            f"x.store(1, {order});  // Q1: a label of libclient\n",
        ):
            with self.subTest(bad=bad):
                self.finds("shm/a.h:", "memory_orders.py", {"shm/a.h": bad})

    def test_log_events(self):
        call = 'log::Info("idd.ready", {{"store", up ? ")" : "down"},\n {"socket", path}});\n'
        row = "| `idd.ready` | info | `store`, `socket` | it listens | nothing |\n"
        table = "docs/log-events.md"
        self.accepts("log_events.py", {"daemon/src/a.cc": call, table: "# Events\n" + row})
        # If two places log an event, its row has the fields of both.
        both = call + 'log::Info("idd.ready", {{"version", 1}});\n'
        good = row.replace("`socket`", "`socket`, `version`")
        self.accepts("log_events.py", {"daemon/src/a.cc": both, table: good})
        for source, text, what in (
            (call, "", "idd.ready has no row"),
            (call + 'log::Error("b.c",\n {});\n', row, "a.cc:3: b.c has no row"),
            ("int a;\n", row, "nothing logs it"),
            (call, row + row, "has another row"),
            (call, row.replace("info", "error"), "its level is info"),
            (call + call.replace("Info", "Error"), row, "its level is error, info"),
            (call, row.replace(", `socket`", ""), "has a field socket"),
            (call, row.replace("`socket`", "`socket`, `pid`"), "has no field pid"),
            (call, row.replace("nothing", ""), "what to do"),
            ("log::Info(name, {});\n" + call, row, "by a name"),
            ("// " + call.replace("\n", ""), row, "nothing logs it"),
        ):
            with self.subTest(what=what):
                self.finds(what, "log_events.py", {"daemon/src/a.cc": source, table: text})
        self.finds("idd.ready has no row", "log_events.py", {"daemon/src/a.cc": call})
        own = {"daemon/src/platform/logging.cc": 'TextLine("log.suppressed", fields);\n' + call}
        self.finds("log.suppressed has no row", "log_events.py", {**own, table: row})

    def test_metrics(self):
        names = ("daemon/src/metrics/metric_definitions.h", "docs/metrics.md", "docs/prometheus/idd-alerts.rules.yml",
                 "tests/integration/idd-alerts.test.yml", "docs/grafana/idd-dashboard.json")
        good = {name: (HERE / "../.." / name).read_text(encoding="utf-8") for name in names}
        used = sorted(set(re.findall(r"Metric (k\w+)\{", good[names[0]])))
        good["daemon/src/a.cc"] = "".join(f"metric::{name};\n" for name in used)
        self.accepts("metrics.py", good)
        for name, old, new, what in (
            (names[0], '"idd_store_up"', '"idd_store_ok"', "idd_store_ok has no row"),
            (names[0], '"idd_store_up"', '"idd_tags"', "is declared twice"),
            (names[0], '"idd_refills_total"', '"idd_refills"', "a counter ends in _total"),
            (names[0], '"idd_start_time_seconds"', '"idd_start_time"', "ends in its unit"),
            (names[0], "answers.", "answers", "its help is one sentence"),
            (names[0], "MetricKind::kGauge", "kGauge", "not of the form"),
            ("daemon/src/a.cc", "metric::kStoreUp;", "", "nothing measures it"),
            (names[1], "| `idd_store_up` | gauge |", "| `idd_store_up` | counter |", "is a gauge, unit 1"),
            (names[1], "| `idd_store_up` |", "| `idd_store_is_up` |", "is not declared"),
            (names[1], "### IddDown", "### Down", "IddDown: its runbook"),
            (names[2], "idd_store_up == 0", "idd_stored_up == 0", "idd_stored_up is not exposed"),
            (names[2], "idd_lease_duration_seconds_bucket", "idd_lease_duration_seconds", "is not exposed"),
            (names[2], "          summary: \"idd does", "          summery: \"idd does", "has no summary"),
            (names[3], "alertname: IddStoreDown", "alertname: IddStoreUp", "IddStoreDown: a case"),
            (names[4], "min(idd_store_up", "min(idd_stored_up", "idd_stored_up is not exposed"),
            (names[4], '"panels"', "panels", "idd-dashboard.json:"),
        ):
            with self.subTest(old=old, new=new):
                self.assertIn(old, good[name])
                self.finds(what, "metrics.py", {**good, name: good[name].replace(old, new)})

    def test_manifests(self):
        folder = HERE / "../../docs/containers"
        recipe = "docs/containers/Dockerfile"
        dockerfile = {recipe: (folder / "Dockerfile").read_text(encoding="utf-8")}
        for name in ("compose.yaml", "daemonset.yaml", "sidecar.yaml"):
            good = (folder / name).read_text(encoding="utf-8")
            path = f"docs/containers/{name}"
            self.accepts("manifests.py", {path: good, **dockerfile})
            self.finds("No such file", "manifests.py", {path: good})
            if "services:" in good:
                self.finds("does not exist", "manifests.py",
                           {path: good.replace("context: ../..", "context: .."), **dockerfile})
            for old, new in (
                ("/run/idd:ro", "/run/idd"),
                (", readOnly: true}\n      volumes", "}\n      volumes"),
                ("cap_drop: [ALL]", "cap_drop: [CHOWN]"),
                ("drop: [ALL]", "drop: [CHOWN]"),
                ("add: [CHOWN, FOWNER]", "add: [CHOWN, SYS_ADMIN]"),
                ("    read_only: true", "    ipc: host"),
                ("    spec:\n", "    spec:\n      hostIPC: true\n"),
                ("services:", "services: ["),
                ("mountPath: /run/idd, readOnly", "mountPath: /dev/shm, readOnly"),
                ("image: idd:0.1.0\n    entrypoint", "image: example.org/idd:0.1.0\n    entrypoint"),
                ("image: example.org/idd", "image: idd"),
                ("image: example.org/idd:0.1.0\n          args", "image: example.org/idd:0.2.0\n          args"),
                ("image: example.org/idd:0.1.0\n          command", "image: example.org/other:1\n          command"),
                ("Dockerfile beside this file", "image"),
                ("command: [\"--database\"", "command: [\"idd\", \"--database\""),
                ("args: [", "args: [\"idd\", "),
                ("args: [", "command: ["),
                ("image: idd:0.1.0\n    #", "image: idd:0.1.0\n    user: \"0:0\"\n    #"),
                ("image: idd:0.1.0\n    #", "image: idd:0.1.0\n    healthcheck: {test: [CMD, \"true\"]}\n    #"),
                ("      - idd-state:/var/lib/idd\n", ""),
                ("            - {name: idd-state, mountPath: /var/lib/idd}\n            - {name: idd-password",
                 "            - {name: idd-password"),
                ("            - {name: idd-run, mountPath: /run/idd}\n            - {name: idd-state, mountPath: /var/lib/idd}\n"
                 "      containers", "            - {name: idd-run, mountPath: /etc}\n      containers"),
                ("group_add: [\"997\"]", "group_add: [\"998\"]"),
                ("user: \"1000:1000\"", "user: \"0:0\""),
                ("runAsUser: 997", "runAsUser: 0"),
                ("runAsGroup: 997", "runAsGroup: 0"),
                ("runAsUser: 1000", "runAsUser: 997"),
                ("            runAsNonRoot: true\n", ""),
                ("fsGroup: 997", "fsGroup: 998"),
                ("supplementalGroups: [997]", "supplementalGroups: [998]"),
                (", defaultMode: 0440", ""),
                ("[\"idctl\", \"status\"]", "[\"idctl\", \"top\"]"),
            ):
                if old in good:
                    with self.subTest(name=name, old=old):
                        self.finds(name, "manifests.py", {path: good.replace(old, new), **dockerfile})
        for old, new, what in (
            ("USER 997:997", "USER 0:0", "is root"),
            ("USER 997:997", "USER idd", "in numbers"),
            ("USER 997:997\n", "", "has 0 of USER"),
            ("USER 997:997", "USER 996:997", "no command gives 996"),
            ("--gid 997 idd", "--gid 996 idd", "no command gives 997"),
            ("VOLUME [\"/run/idd\", ", "VOLUME [", "the volumes are"),
            ("HEALTHCHECK CMD [\"idctl\"", "HEALTHCHECK CMD [\"idd\"", "the Dockerfile's is"),
            ("COPY --from=build", "COPY", "not from the packages"),
            ("RUN scripts/package", "RUN make", "does not build the packages"),
            ("--tag idd:0.1.0", "--tag idd:0.2.0", "the Dockerfile's is idd:0.2.0"),
            ("ENTRYPOINT", "ENTER", "cannot read"),
        ):
            with self.subTest(old=old, new=new):
                self.assertIn(old, dockerfile[recipe])
                self.finds(what, "manifests.py", {path: good, recipe: dockerfile[recipe].replace(old, new)})
        self.finds("is not the project's", "manifests.py",
                   {path: good, **dockerfile, "CMakeLists.txt": "project(idd VERSION 0.1.1)\n"})
        self.finds("no manifests", "manifests.py", {"docs/containers/a.md": ""})

    def test_man_pages(self):
        page = "% X(1) x\n\n# NAME\n\nx - does `a *` and *b*\n\n**\\*** *\\*c*\n\n    int *d;\n"
        self.accepts("man_pages.py", {"daemon/x.1.md": page})
        for broken in ("**a***B***@***C*\n", "x * y\n"):
            with self.subTest(broken=broken):
                self.finds("x.1.md:11: shows an asterisk", "man_pages.py", {"daemon/x.1.md": page + "\n" + broken})
        self.finds("no man pages", "man_pages.py", {"daemon/x.md": page})

    def test_reload_keys(self):
        files = {"daemon/src/config/reload.cc": 'Note("a", n.a, m.a, plan.changed);\nNote("b", n, m, plan.not_changed);\n',
                 "daemon/idd.toml": "# SIGHUP applies a and [c]. b needs a restart.\n",
                 "daemon/idd.8.md": ":   Read the configuration again. **a** takes effect. b does not.\n",
                 "daemon/idd.toml.5.md": "idd reads the file again. **a** takes effect. b does not.\n",
                 "docs/operations.md": "SIGHUP makes idd read the configuration again. `a` takes effect. b does not.\n"}
        self.accepts("reload_keys.py", files)
        self.finds("idd.toml:1: lacks 'a'", "reload_keys.py", {**files, "daemon/idd.toml": "# SIGHUP applies c. a b\n"})
        self.finds("idd.toml:1: must not list 'b'", "reload_keys.py",
                   {**files, "daemon/idd.toml": "# SIGHUP applies a and b. c\n"})
        self.finds("does not say", "reload_keys.py", {**files, "docs/operations.md": "a\n"})

    def test_hardening(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("no compiler")
        source = ("#include <stdio.h>\n#include <string.h>\n"
                  "int main(int n, char** v) { char a[9]; strcpy(a, v[n - 1]); return printf(\"%s\", a); }\n")
        good = ["-O2", "-w", "-fPIE", "-pie", "-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2",
                "-Wl,-z,relro,-z,now"]
        with tempfile.TemporaryDirectory(prefix="idd-lint-") as folder:
            pathlib.Path(folder, "a.c").write_text(source, encoding="utf-8")

            def check(*flags):
                subprocess.run([compiler, f"{folder}/a.c", "-o", f"{folder}/a", *good, *flags], check=True)
                done = subprocess.run([str(HERE / "hardening.sh"), "--optimized", f"{folder}/a"],
                                      stdout=subprocess.PIPE, text=True, check=False)
                return done.returncode, done.stdout

            self.assertEqual(check(), (0, ""))
            for flags, what in (
                (["-fno-PIE", "-no-pie"], "not position-independent"),
                (["-Wl,-z,lazy"], "binds symbols late"),
                (["-Wl,-z,norelro"], "no read-only relocations"),
                (["-Wl,-z,execstack"], "executable stack"),
                (["-fno-stack-protector"], "no stack protector"),
                (["-U_FORTIFY_SOURCE"], "no fortified function"),
            ):
                with self.subTest(flags=flags):
                    status, output = check(*flags)
                    self.assertEqual(status, 1)
                    self.assertIn(what, output)

    def test_scripts(self):
        spdx = SPDX.replace("//", "#")
        self.accepts("scripts.sh", {"scripts/run": f"#!/bin/bash\n{spdx}true\n"})
        self.finds("run", "scripts.sh", {"scripts/run": "#!/bin/bash\nif true; then\n"})
        self.finds("#!/bin/bash", "scripts.sh", {"scripts/run": "#!/bin/sh\ntrue\n"})

    def test_test_registration(self):
        test = {"tests/unit/a_test.cc": SPDX}
        lists = "tests/unit/CMakeLists.txt"
        self.accepts("test_registration.sh", {**test, lists: "idd_add_test(SOURCES a_test.cc)\n"})
        self.finds("a_test.cc:1", "test_registration.sh", {**test, lists: "# a_test.cc\n"})
        self.finds("a_test.cc:1", "test_registration.sh", {**test, lists: "(aa_test.cc)\n"})

    def test_text(self):
        self.accepts("text.sh", {"a.cc": SPDX + "int a;\n", "b.md": "in /etc/idd and ~/home\n"})
        for bad in (
            "int a;\n",
            SPDX + "int a; // " + "TO" + "DO\n",
            SPDX + '"/ho' + 'me/somebody"\n',
            SPDX + "int a; \n",
            SPDX + "\tint a;\n",
            SPDX + "int a;\r\n",
            SPDX + "int a;",
        ):
            with self.subTest(bad=bad):
                self.finds("a.cc:", "text.sh", {"a.cc": bad})


if __name__ == "__main__":
    unittest.main()

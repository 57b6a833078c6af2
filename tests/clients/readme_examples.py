#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first example of a client's README.md runs as a user would run it, against a real idd.

readme_examples.py --idd IDD --idctl IDCTL LANGUAGE PACKAGE

PACKAGE is the built client: the folder for PYTHONPATH, the jar, the go program, or the addon.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import conformance
from conformance import expect

CLIENTS = pathlib.Path(__file__).resolve().parent.parent.parent / "libclient"


def example(folder, fence):
    text = (CLIENTS / folder / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^```{fence}\n(.*?)^```", text, re.M | re.S)
    expect(found is not None, f"{folder}/README.md has no example in {fence}")
    return found[1]


def python(package, work):
    (work / "example.py").write_text(example("python", "python"), encoding="utf-8")
    return ["/usr/bin/python3", work / "example.py"], {"PYTHONPATH": package}


def java(package, work):
    imports, body = example("java", "java").split("\n", 1)
    (work / "Example.java").write_text(
        f"{imports}\nclass Example {{ public static void main(String[] a) {{ {body} }} }}\n", encoding="utf-8"
    )
    return ["java", "-cp", package, work / "Example.java"], {}


def go(package, work):
    (work / "main.go").write_text(example("go", "go"), encoding="utf-8")
    (work / "go.mod").write_text(
        f"module example\n\ngo 1.19\n\nrequire idd.invalid/idclient v0.0.0\n\nreplace idd.invalid/idclient => {CLIENTS}/go\n", encoding="utf-8"
    )
    return [package, "run", "."], {"GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOCACHE": str(work / "cache")}


def node(package, work):
    (work / "node_modules").mkdir()
    (work / "node_modules" / "idclient").symlink_to(CLIENTS / "node")
    # An await at the top level, as the example has it, needs a function around it here.
    (work / "example.js").write_text(
        f"(async () => {{\n{example('node', 'js')}\n}})();\n", encoding="utf-8"
    )
    return ["node", work / "example.js"], {"IDCLIENT_NODE_ADDON": package}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--idd", required=True)
    parser.add_argument("--idctl", required=True)
    parser.add_argument("language", choices=["python", "java", "go", "node"])
    parser.add_argument("package")
    programs = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="idd-clients-") as folder:
        host = conformance.Host(programs, folder)
        try:
            host.start()
            host.idctl("tag", "create", "orders", "--step", "10000")
            work = pathlib.Path(folder) / "example"
            work.mkdir()
            command, environment = globals()[programs.language](programs.package, work)
            done = subprocess.run(
                [str(word) for word in command], cwd=work, capture_output=True, text=True, check=False,
                timeout=5 * conformance.PATIENCE,
                env={**os.environ, **environment, "IDD_SOCKET": host.socket},
            )  # fmt: skip
            expect(done.returncode == 0, f"the example ended with {done.returncode}: {done.stderr}")
            next_id = conformance.Answer(f"ok {host.idctl('claim', 'orders').strip()}").id
            expect(next_id > 1, "the example claimed no id")
            print(f"the example ran, and the next id is {next_id}")
            return 0
        except conformance.Failure as failure:
            print(f"FAILED: {failure}")
            return 1
        finally:
            host.close(False)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first example of a client's README.md, and that of the project's, run as a user would run them,
against a real idd.

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

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLIENTS = ROOT / "libclient"
# What the few lines of the project's README.md leave out.
GO_PROGRAM = """package main

import (
    "context"
    "fmt"
    "log"

    "idd.invalid/idclient"
)

func main() {
%s}
"""


def example(page, fence):
    found = re.search(rf"^```{fence}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    expect(found is not None, f"{page} has no example in {fence}")
    return found[1]


def python(page, package, work):
    (work / "example.py").write_text(example(page, "python"), encoding="utf-8")
    return ["/usr/bin/python3", work / "example.py"], {"PYTHONPATH": package}


def java(page, package, work):
    imports, body = example(page, "java").split("\n", 1)
    (work / "Example.java").write_text(
        f"{imports}\nclass Example {{ public static void main(String[] a) {{ {body} }} }}\n", encoding="utf-8"
    )
    return ["java", "-cp", package, work / "Example.java"], {}


def go(page, package, work):
    code = example(page, "go")
    if not code.startswith("package "):
        code = GO_PROGRAM % code
    (work / "main.go").write_text(code, encoding="utf-8")
    (work / "go.mod").write_text(
        f"module example\n\ngo 1.19\n\nrequire idd.invalid/idclient v0.0.0\n\nreplace idd.invalid/idclient => {CLIENTS}/go\n", encoding="utf-8"
    )
    return [package, "run", "."], {"GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOCACHE": str(work / "cache")}


def node(page, package, work):
    (work / "node_modules").mkdir()
    (work / "node_modules" / "idclient").symlink_to(CLIENTS / "node")
    # An await at the top level, as the example has it, needs a function around it here.
    (work / "example.js").write_text(
        f"(async () => {{\n{example(page, 'js')}\n}})();\n", encoding="utf-8"
    )
    return ["node", work / "example.js"], {"IDCLIENT_NODE_ADDON": package}


def run(page, programs, host, work):
    work.mkdir()
    command, environment = globals()[programs.language](page, programs.package, work)
    done = subprocess.run(
        [str(word) for word in command], cwd=work, capture_output=True, text=True, check=False,
        timeout=5 * conformance.PATIENCE,
        env={**os.environ, **environment, "IDD_SOCKET": host.socket},
    )  # fmt: skip
    expect(done.returncode == 0, f"the example of {page} ended with {done.returncode}: {done.stderr}")


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
            pages = [CLIENTS / programs.language / "README.md", ROOT / "README.md"]
            for number, page in enumerate(pages):
                run(page, programs, host, pathlib.Path(folder) / f"example{number}")
            next_id = conformance.Answer(f"ok {host.idctl('claim', 'orders').strip()}").id
            expect(next_id > 2, "an example claimed no id")
            print(f"the examples ran, and the next id is {next_id}")
            return 0
        except conformance.Failure as failure:
            print(f"FAILED: {failure}")
            return 1
        finally:
            host.close(False)


if __name__ == "__main__":
    sys.exit(main())

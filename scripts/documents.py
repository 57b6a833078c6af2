# SPDX-License-Identifier: Apache-2.0
"""Shared by the scripts that write measured figures into the documents."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


def build(*targets):
    """Builds programs like scripts/bench, with optimisation, in build/bench."""
    subprocess.run([ROOT / "scripts" / "install-deps", "bench"], check=True)
    for command in (["cmake", "--preset", "bench"],
                    ["cmake", "--build", "build/bench", "--target", *targets]):
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def replace_measured(document, measured):
    """Replaces the measured part of the document by `measured`."""
    text = document.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    document.write_text(before + BEGIN + measured + END + after, encoding="utf-8")


def pyplot():
    """matplotlib.pyplot, set up so that the same figures give the same SVG."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "idd"
    from matplotlib import pyplot as plotting  # pylint: disable=import-outside-toplevel
    return plotting

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a Dockerfile: what the tests and the lint of docs/containers need of one.

dockerfile.py FILE KEYWORD     the values of the last stage's instructions KEYWORD, one a line; words
                               of the JSON form are separated by blanks
dockerfile.py FILE packages    the packages that the last stage installs by name
dockerfile.py FILE health-check    the words of its health check
"""

import json
import pathlib
import re
import sys

KEYWORDS = ("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL", "USER",
            "VOLUME", "WORKDIR")


class DockerfileError(ValueError):
    """Not a Dockerfile of the form that this module reads."""


def instructions(text):
    """The (KEYWORD, value) of each instruction; continued lines are joined."""
    pending = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (not line.strip() and not pending):
            continue
        pending += line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        keyword, _, value = pending.partition(" ")
        if keyword not in KEYWORDS or not value.strip():
            raise DockerfileError(f"cannot read '{pending}'")
        yield keyword, re.sub(r" {2,}", " ", value.strip())
        pending = ""
    if pending:
        raise DockerfileError("ends in a continued line")


def stages(text):
    """The instructions of each stage; each begins with its FROM."""
    found = []
    for keyword, value in instructions(text):
        if keyword == "FROM":
            found.append([])
        if not found:
            raise DockerfileError(f"{keyword} before FROM")
        found[-1].append((keyword, value))
    if not found:
        raise DockerfileError("has no FROM")
    return found


def words(value):
    """The words of a value in the JSON form or in the shell's simple form."""
    return json.loads(value) if value.startswith("[") else value.split()


class Image:
    """What the last stage says about the image."""

    def __init__(self, text):
        self.stages = stages(text)
        self.last = self.stages[-1]

    def values(self, keyword):
        return [value for name, value in self.last if name == keyword]

    def one(self, keyword):
        found = self.values(keyword)
        if len(found) != 1:
            raise DockerfileError(f"has {len(found)} of {keyword}, not one")
        return found[0]

    @property
    def user(self):
        """(uid, gid), which must be numbers."""
        match = re.fullmatch(r"(\d+):(\d+)", self.one("USER"))
        if match is None:
            raise DockerfileError(f"USER {self.one('USER')} is not UID:GID in numbers")
        return int(match[1]), int(match[2])

    @property
    def entrypoint(self):
        return words(self.one("ENTRYPOINT"))

    @property
    def volumes(self):
        return [path for value in self.values("VOLUME") for path in words(value)]

    @property
    def health_check(self):
        _, separator, command = self.one("HEALTHCHECK").partition("CMD ")
        if not separator:
            raise DockerfileError("HEALTHCHECK has no CMD")
        return words(command)

    @property
    def packages(self):
        """What RUN installs from the distribution, by name."""
        found = []
        for command in re.split(r"&&|;", " ".join(self.values("RUN"))):
            parts = command.split()
            if parts[:2] == ["apt-get", "install"]:
                found += [part for part in parts[2:] if not part.startswith(("-", "/"))]
        return found


def main():
    path, what = sys.argv[1:]
    image = Image(pathlib.Path(path).read_text(encoding="utf-8"))
    if what == "packages":
        print("\n".join(image.packages))
        return
    if what == "health-check":
        print(" ".join(image.health_check))
        return
    for value in image.values(what):
        print(" ".join(words(value)) if value.startswith("[") else value)


if __name__ == "__main__":
    main()

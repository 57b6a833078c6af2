#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""includes.py ROOT: the direction of dependencies, read from the #include lines.

shm uses nothing of ours; libclient uses shm; tools use both; daemon uses shm; nothing uses daemon.
A package of the outside is used in the folders that own it and nowhere else.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Folder: what its quoted includes may begin with, beside files of its own src/.
OURS = {
    "shm": ("idd/",),
    "libclient": ("idd/", "idclient/"),
    "tools": ("idd/", "idclient/"),
    "daemon": ("idd/",),
}

# Package, by its include: the only files outside tests/ that may use it (regex on the path). What is
# slow to compile stands in no header.
PACKAGES = {
    r"spdlog/|fmt/": r"daemon/src/.*\.cc$",
    r"sqlite3|mysql|mariadb": r"daemon/src/",
    r"toml\+\+/|systemd/": r"daemon/src/.*\.cc$",
    r"nlohmann/json_fwd\.hpp": r"(daemon|tools)/src/",
    r"nlohmann/(?!json_fwd\.hpp)": r"(daemon|tools)/src/.*\.cc$",
    r"CLI/": r"(tools/src/command_line\.cc$|daemon/src/(main|options)\.cc$)",
    r"boost/interprocess/": r"shm/src/memfd\.cc$",
    r"boost/": r"(shm/src/memfd\.cc$|daemon/src/(.*/)?event_loop\.cc$)",
}

# Files that others compile, or translate, on their own: the whole list of what they may include.
EXACT = {
    "shm/include/idd/shm/abi.h": {"atomic", "cstddef", "cstdint", "type_traits"},
    "libclient/include/idclient/idclient.h": {"stddef.h", "stdint.h"},
}


# shm's headers that are installed, because idclient.hpp inlines what is in them.
INSTALLED = {f"idd/shm/{name}.h" for name in ("abi", "claim_point", "ring_protocol")}


def includes_of(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def own_file(root, folder, path, name):
    """A quoted include that names a file beside the includer or under the folder's src/."""
    return (path.parent / name).is_file() or (root / folder / "src" / name).is_file()


def findings_in(root, path):
    relative = path.relative_to(root).as_posix()
    folder = relative.split("/")[0]
    for number, quoted, name in includes_of(path):
        where = f"{path}:{number}: "
        if relative in EXACT and name not in EXACT[relative]:
            yield where + f"{name}: this file includes only {', '.join(sorted(EXACT[relative]))}"
        for package, allowed in PACKAGES.items():
            if re.match(package, name) and not re.match(allowed, relative):
                yield where + f"{name} belongs to {allowed}"
                break
        if quoted and not name.startswith(OURS[folder]) and not own_file(root, folder, path, name):
            yield where + f"{name}: {folder} may include its own files and {', '.join(OURS[folder])}"
        if not quoted and name.startswith(("idd/", "idclient/")):
            yield where + f"{name}: ours are included with quotes"
        installed = relative.startswith("libclient/include/") or relative[12:] in INSTALLED
        if installed and name.startswith("idd/") and name not in INSTALLED:
            yield where + f"{name}: this header of shm is not installed"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    findings = []
    for folder in OURS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".hpp", ".c", ".cc"):
                findings += findings_in(root, path)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

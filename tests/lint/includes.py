#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""includes.py ROOT: the direction of dependencies, read from the #include lines.

shm uses nothing of ours; libclient uses shm; tools use both; daemon uses shm; nothing uses daemon.
A package of the outside is used in the folders that own it and nowhere else. Inside daemon/src and
tools/src each folder is a room: ROOMS says what it is and which lower rooms it may include. A
source file there includes its own header first.
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

# Room: what it is, and the rooms that its files may include beside their own. From the top down: a
# room includes only rooms that stand below it here. docs/architecture.md has the same table.
ROOMS = {
    "daemon/src": {
        "": ("the program: makes the parts, connects them, handles signals",
             "config server admin exporter tags leasing restart store access platform"),
        "config": ("options, configuration file and reload; opens the store that a URL names",
                   "store/mysql store/sqlite store sql access platform"),
        "server": ("the Unix socket: accepts clients, reads frames, sends replies",
                   "admin tags access metrics platform"),
        "admin": ("administration requests: parses them, checks rights, calls the operation",
                  "admin/operations admin/shared exporter access metrics platform"),
        "admin/operations": ("one file per operation of idctl, and the table of them",
                             "admin/import admin/shared exporter tags leasing store sql refill access"
                             " metrics platform"),
        "admin/import": ("reads the tables of another id generator",
                         "leasing store sql refill platform"),
        "admin/shared": ("what the operations share: request fields, JSON, reports, notes of drains",
                         "exporter tags leasing store access platform"),
        "exporter": ("samples the metrics, serves them over HTTP and writes them to a file",
                     "tags metrics platform"),
        "tags": ("one state machine per tag: waiters, ring, refill, drain",
                 "leasing restart store refill metrics platform"),
        "leasing": ("the lease worker and its jobs: leases, marks, recovery",
                    "agreement restart store sql refill metrics platform"),
        "agreement": ("terms, witnesses and ceilings: when an id may be leased", "store platform"),
        "restart": ("what the next idd inherits from this one", "store platform"),
        "store/mysql": ("the store over MySQL and MariaDB", "store sql platform"),
        "store/sqlite": ("the store over a SQLite file", "store sql platform"),
        "store": ("the interface of a store, its records and the checks of its rows",
                  "sql refill platform"),
        "sql": ("connections, statements and rows; knows no table of idd", "platform"),
        "access": ("who a peer is, what it may do and what it has used", "platform"),
        "refill": ("pure: when to lease, and how much", ""),
        "metrics": ("pure: the list of metrics, samples of them and the page made of a sample", ""),
        "platform": ("event loop, log, random numbers, host id, service manager, state directory",
                     ""),
    },
    "tools/src": {
        "": ("the program", "commands terminal"),
        "commands": ("the command line of idctl, one file per group of commands",
                     "bench doctor top tags client terminal"),
        "bench": ("the load of idctl bench, and what it measures", ""),
        "doctor": ("the checks of idctl doctor: host, store, tags", "client terminal"),
        "top": ("the screen of idctl top: source, model, lines", "client terminal"),
        "tags": ("the settings of tags: as options, in files, in answers of idd", "client terminal"),
        "client": ("requests to idd and its JSON answers", "terminal"),
        "terminal": ("arguments, text, tables, colours, exit status", ""),
    },
}

# Package, by its include: the only files outside tests/ that may use it (regex on the path). No
# header includes a library that is slow to compile.
PACKAGES = {
    r"spdlog/|fmt/": r"daemon/src/platform/logging\.cc$",
    r"(sqlite3|mysql|mariadb)(\.h|/)": r"(daemon/src/sql|libclient/examples)/",
    r"toml\+\+/": r"(daemon/src/config/.*|tools/src/tags/tag_file)\.cc$",
    r"systemd/": r"daemon/src/platform/.*\.cc$",
    r"nlohmann/json_fwd\.hpp": r"(daemon|tools)/src/",
    r"nlohmann/(?!json_fwd\.hpp)": r"(daemon|tools)/src/.*\.cc$",
    r"CLI/": r"(tools/src/terminal/command_line\.cc$|daemon/src/config/options\.cc$)",
    r"boost/interprocess/": r"shm/src/memfd\.cc$",
    r"boost/": r"(shm/src/memfd\.cc$|daemon/src/platform/event_loop\.cc$)",
}

# Files that others compile, or translate, on their own: the whole list of what they may include.
EXACT = {
    "shm/include/idd/shm/abi.h": {"atomic", "cstddef", "cstdint", "type_traits"},
    "libclient/include/idclient/idclient.h": {"stddef.h", "stdint.h"},
}


# shm's headers that are installed, because idclient.hpp inlines what is in them.
INSTALLED = {f"idd/shm/{name}.h" for name in ("abi", "claim_point", "lane_sequences", "ring_protocol")}


def includes_of(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def own_file(root, folder, path, name):
    """A quoted include that names a file under the folder's src/ or, without rooms, beside itself."""
    beside = f"{folder}/src" not in ROOMS and (path.parent / name).is_file()
    return beside or (root / folder / "src" / name).is_file()


def room_findings(source, path, where, name):
    """An include of `path`, below the folder of rooms `source`, that its room may not use."""
    rooms = ROOMS[source.parent.name + "/src"]
    room = path.parent.relative_to(source).as_posix().removeprefix(".")
    if room not in rooms:
        yield where + f"{room} is no room: ROOMS in tests/lint/includes.py has none of that name"
        return
    if not (source / name).is_file():
        return
    other = pathlib.PurePosixPath(name).parent.as_posix().removeprefix(".")
    if other not in (room, *rooms[room][1].split()):
        yield where + f"{name}: {room or 'the program'} may include {rooms[room][1] or 'no room'}"


def row_of(source, room, sentence, below):
    """A room's row in docs/architecture.md."""
    cells = (f"`{source}/{room}`".replace("/`", "`"), sentence, below)
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def table_findings(root):
    """Every room stands above those that it may include, and is in docs/architecture.md."""
    map_of_rooms = root / "docs/architecture.md"
    text = map_of_rooms.read_text(encoding="utf-8") if map_of_rooms.is_file() else ""
    for source, rooms in ROOMS.items():
        names = list(rooms)
        if not (root / source).is_dir():
            continue
        for place, (room, (sentence, below)) in enumerate(rooms.items()):
            for other in below.split():
                if other not in names[place + 1:]:
                    yield f"tests/lint/includes.py: {other} does not stand below {room} in ROOMS"
            row = row_of(source, room, sentence, below)
            if row not in text:
                yield f"docs/architecture.md: no row {row}"


def findings_in(root, path):
    relative = path.relative_to(root).as_posix()
    folder = relative.split("/")[0]
    includes = list(includes_of(path))
    if path.suffix == ".cc" and folder + "/src" in ROOMS and path.with_suffix(".h").is_file():
        own = path.with_suffix(".h").relative_to(root / folder / "src").as_posix()
        if not includes or includes[0][2] != own:
            yield f"{path}:1: {own} comes first, so that it is compiled without help of the others"
    for number, quoted, name in includes:
        where = f"{path}:{number}: "
        if relative in EXACT and name not in EXACT[relative]:
            yield where + f"{name}: this file includes only {', '.join(sorted(EXACT[relative]))}"
        for package, allowed in PACKAGES.items():
            if re.match(package, name) and not re.match(allowed, relative):
                yield where + f"{name} belongs to {allowed}"
                break
        if quoted and not name.startswith(OURS[folder]) and not own_file(root, folder, path, name):
            yield where + f"{name}: {folder} may include its own files and {', '.join(OURS[folder])}"
        source = root / folder / "src"
        if quoted and folder + "/src" in ROOMS and source in path.parents:
            yield from room_findings(source, path, where, name)
        if not quoted and name.startswith(("idd/", "idclient/")):
            yield where + f"{name}: ours are included with quotes"
        installed = relative.startswith("libclient/include/") or relative[12:] in INSTALLED
        if installed and name.startswith("idd/") and name not in INSTALLED:
            yield where + f"{name}: this header of shm is not installed"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    findings = list(table_findings(root))
    for folder in OURS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".hpp", ".c", ".cc"):
                findings += findings_in(root, path)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

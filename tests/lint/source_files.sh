# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the checks in this folder.

# source_files ROOT PATTERN... : the files under ROOT whose names match a pattern, NUL-terminated,
# without generated ones. Does not use `git ls-files`: an unpacked archive has no git, and new files
# should be checked before they are added.
source_files() {
  local root=$1 names=()
  shift
  for pattern; do names+=(-o -name "$pattern"); done
  find "$root" \( -path "$root/build" -o -name .git -o -name .cache -o -name __pycache__ \) -prune \
    -o -type f \( "${names[@]:1}" \) -print0 | sort -z
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the checks beside it.

# source_files ROOT PATTERN... : the files under ROOT whose name matches a pattern, NUL-terminated,
# without what is generated. Not `git ls-files`: an unpacked archive has no git, and a new file should
# be checked before it is added.
source_files() {
  local root=$1 names=()
  shift
  for pattern; do names+=(-o -name "$pattern"); done
  find "$root" \( -path "$root/build" -o -name .git -o -name .cache -o -name __pycache__ \) -prune \
    -o -type f \( "${names[@]:1}" \) -print0 | sort -z
}

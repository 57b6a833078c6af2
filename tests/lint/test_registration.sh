#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_registration.sh ROOT: every *_test.cc is listed in the CMakeLists.txt of its folder. A test
# that is not built passes indefinitely.
set -euo pipefail
root=$(realpath "$1")
# shellcheck source=tests/lint/source_files.sh
source "$(dirname "$0")/source_files.sh"

failed=0
while IFS= read -r -d '' file; do
  list=$(dirname "$file")/CMakeLists.txt
  name=$(basename "$file")
  # Not grep -q: it exits at the first match, and under pipefail its input commands would then fail.
  if ! sed 's/#.*//' "$list" 2>/dev/null | tr -s '[:space:]()' '\n' | grep -Fx -- "$name" >/dev/null; then
    echo "$file:1: not named in $list"
    failed=1
  fi
done < <(source_files "$root" '*_test.cc')
exit $failed

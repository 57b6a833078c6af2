#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# text.sh ROOT: rules for the text of every source file: the licence line, no postponed work, no
# path of a developer's machine, clean line ends.
set -uo pipefail
root=$(realpath "$1")
# shellcheck source=tests/lint/source_files.sh
source "$(dirname "$0")/source_files.sh"

failed=0
# report WHAT: prefixes the lines on stdin; any line is a finding.
report() {
  local line
  while IFS= read -r line; do
    echo "$line: $1"
    failed=1
  done
}

sources=('*.h' '*.hpp' '*.c' '*.cc' '*.py' '*.sh' '*.pml' '*.service.in' CMakeLists.txt)
texts=("${sources[@]}" '*.md' '*.json' '*.in' '*.conf' '*.sql' '*.toml' test demo run install-deps)

mapfile -d '' files < <(source_files "$root" "${texts[@]}")
mapfile -d '' code < <(source_files "$root" "${sources[@]}")

report 'no SPDX-License-Identifier in the first three lines' < <(
  for file in "${code[@]}"; do
    [[ $file == *.map ]] && continue
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$file:1"
  done)
# Written so that this file does not match itself.
report 'work left for later: do it or open an issue' < <(
  grep -nHE '\b(TO''DO|FIX''ME|XX''X)\b' "${files[@]}" | cut -d: -f1,2)
report "a path of a developer's machine" < <(
  grep -nHE '(^|[^A-Za-z0-9_.}-])/(home|root|work|Users|mnt|media)/' "${files[@]}" | cut -d: -f1,2)
report 'carriage return' < <(grep -nH $'\r' "${files[@]}" | cut -d: -f1,2)
report 'tab' < <(grep -nHP '\t' "${code[@]}" | cut -d: -f1,2)
report 'blank at the end of the line' < <(grep -nHE ' +$' "${code[@]}" | cut -d: -f1,2)
report 'no newline at the end of the file' < <(
  for file in "${files[@]}"; do
    [[ -s $file && -n $(tail -c 1 "$file" | tr -d '\n\0') ]] && echo "$file:1"
  done)
exit $failed

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts.sh ROOT: every shell script parses, is executable unless it is only sourced, and passes the
# linter shellcheck where that is installed.
set -uo pipefail
root=$(realpath "$1")
# shellcheck source=tests/lint/source_files.sh
source "$(dirname "$0")/source_files.sh"

failed=0
scripts=()
while IFS= read -r -d '' file; do
  case $(head -n 1 "$file" | tr -d '\0') in
    '#!/bin/bash')
      if [[ ! -x $file ]]; then
        echo "$file:1: has a #! line but is not executable"
        failed=1
      fi
      ;;
    '#!'*sh | '#!'*'sh '*)
      echo "$file:1: scripts start with #!/bin/bash"
      failed=1
      ;;
    *) [[ $file == *.sh ]] || continue ;;
  esac
  scripts+=("$file")
  bash -n "$file" || failed=1
done < <(source_files "$root" '*')

if command -v shellcheck >/dev/null; then
  (cd "$root" && shellcheck --external-sources "${scripts[@]}") || failed=1
fi
exit $failed

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# faults.sh ROOT: the deliberate faults of tests/simulation still apply to the sources.
set -euo pipefail
command -v git >/dev/null || exit 77
cd "$1"

failed=0
for patch in tests/simulation/faults/*.patch tests/simulation/faults/hidden/*.patch; do
  [[ -e $patch ]] || continue
  git apply --check "$patch" 2>/dev/null && continue
  echo "$patch:1: does not apply; adapt it to the sources"
  failed=1
done
exit $failed

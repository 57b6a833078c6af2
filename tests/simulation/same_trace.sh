#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# same_trace.sh PROGRAM: a seed's trace is the same in every process.
set -euo pipefail

for seed in 2 9 17 21; do
  first=$("$1" --seed "$seed" | tail -1)
  second=$("$1" --seed "$seed" | tail -1)
  if [[ $first != "$second" || $first != *" trace "* ]]; then
    printf 'two runs of one seed:\n%s\n%s\n' "$first" "$second" >&2
    exit 1
  fi
done

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hardening.sh [--optimized] BINARY...: each program and library is position-independent, binds all
# symbols at its start, then makes its tables read-only, and has no executable stack. --optimized,
# for shipped binaries: also a stack protector and, in programs, fortified functions.
set -uo pipefail
is_optimized=0
if [[ ${1-} == --optimized ]]; then
  is_optimized=1
  shift
fi

if ! command -v readelf >/dev/null; then
  echo "skipped: binutils is not installed"
  exit 77
fi

failed=0
# finding BINARY WHAT
finding() {
  echo "$1: $2"
  failed=1
}

(($#)) || finding hardening.sh "no binary is named"
for binary; do
  header=$(readelf --file-header --wide "$binary") || { finding "$binary" "cannot be read" && continue; }
  segments=$(readelf --segments --wide "$binary")
  dynamic=$(readelf --dynamic --wide "$binary")
  symbols=$(readelf --dyn-syms --wide "$binary")
  grep -Eq 'Type: +DYN' <<<"$header" || finding "$binary" "is not position-independent (-pie)"
  grep -q GNU_RELRO <<<"$segments" || finding "$binary" "has no read-only relocations (-z relro)"
  grep -Eq 'BIND_NOW|FLAGS_1.*\bNOW\b' <<<"$dynamic" || finding "$binary" "binds symbols late (-z now)"
  if grep -Eq 'GNU_STACK .*RWE' <<<"$segments"; then finding "$binary" "has an executable stack"; fi
  ((is_optimized)) || continue
  grep -q __stack_chk_fail <<<"$symbols" || finding "$binary" "has no stack protector"
  # A library may contain nothing to fortify.
  if grep -q INTERP <<<"$segments" && ! grep -Eq '__[a-z]+_chk@' <<<"${symbols//__stack_chk_fail/}"; then
    finding "$binary" "has no fortified function (_FORTIFY_SOURCE)"
  fi
done
exit $failed

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# readme_examples_test.sh ROOT IDD IDCTL LIBIDCLIENT [COMPILER_FLAG...]: the C++ example of README.md
# and the C example of libidclient(3) compile without a warning and claim from a real idd; no id comes
# twice, and the ids rise. tests/clients runs the examples of the other languages.
set -euo pipefail
root=$1 idd=$2 idctl=$3 library=$4
shift 4
libdir=$(dirname "$library")

# shellcheck source=tests/support/run_idd.sh
source "$root/tests/support/run_idd.sh"

# extract DOCUMENT LANGUAGE FILE: extracts the fenced block in that language; the document must have
# exactly one.
extract() {
  local blocks
  blocks=$(grep -c "^\`\`\`$2\$" "$root/$1" || true)
  ((blocks == 1)) || fail "$1 has $blocks fenced blocks of '$2', not 1"
  sed -n "/^\`\`\`$2\$/,/^\`\`\`\$/p" "$root/$1" | sed '1d;$d' >"$3"
  [[ -s $3 ]] || fail "$1's block of '$2' is empty"
}

extract README.md cpp "$folder/example.cc"
extract libclient/libidclient.3.md c "$folder/manual.c"
flags=(-Wall -Wextra -Wpedantic ${WERROR:+-Werror} "$@" -I "$root/libclient/include" -I "$root/shm/include")
link=(-L "$libdir" "-Wl,-rpath,$libdir" -lidclient)
"${CXX:-c++}" -std=c++20 "${flags[@]}" "$folder/example.cc" -o "$folder/example_cc" "${link[@]}"
"${CC:-cc}" -std=c11 "${flags[@]}" "$folder/manual.c" -o "$folder/manual_c" "${link[@]}"

# Both report why when there is no daemon.
ulimit -c 0 # that of README.md does not catch what the library throws
for example in example_cc manual_c; do
  if "$folder/$example" >"$folder/out" 2>"$folder/err"; then
    fail "$example succeeds without a daemon"
  fi
  [[ ! -s $folder/out ]] || fail "$example prints an id without a daemon"
  grep -q UNAVAILABLE "$folder/err" || fail "$example does not say what is wrong"
done

start_idd
"$idctl" tag create orders --step 3 >/dev/null # less than one run claims, so segments change

# run EXAMPLE: adds its ids. On a busy disk a lease may take longer than the half second that a
# claim waits by default; then the example runs again.
run() {
  local tries
  for ((tries = 0; tries < 100; ++tries)); do
    if "$folder/$1" >"$folder/out" 2>"$folder/err"; then
      cat "$folder/out" >>"$folder/ids"
      return
    fi
    grep -q TIMEOUT "$folder/err" || break
  done
  cat "$folder/err" >&2
  fail "$1 failed"
}
for example in example_cc manual_c example_cc manual_c; do run "$example"; done
ids=$(wc -l <"$folder/ids")
((ids == 18)) || fail "the examples printed $ids ids, not 18"
grep -Evq '^[0-9]+$' "$folder/ids" && fail "the examples print something that is no id"
sort --numeric-sort --unique "$folder/ids" | cmp - "$folder/ids" ||
  fail "an id came twice, or a later claim got a smaller one"

stop_idd

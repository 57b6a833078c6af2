#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# readme_examples_test.sh ROOT IDD IDCTL LIBIDCLIENT [COMPILER_FLAG...]: the C++ and the C example of
# README.md and the one of libidclient(3) compile without a warning and claim from a real idd; no id comes twice,
# and they rise.
set -euo pipefail
root=$1 idd=$2 idctl=$3 library=$4
shift 4
libdir=$(dirname "$library")

folder=$(mktemp -d "${TMPDIR:-/tmp}/idd-readme.XXXXXX")
idd_pid=
cleanup() {
  local status=$?
  trap - EXIT
  if [[ -n $idd_pid ]] && kill -TERM "$idd_pid" 2>/dev/null; then
    # A stop takes at most its own patience of 10 s; what is left then must not outlive the test.
    for _ in {1..150}; do
      kill -0 "$idd_pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$idd_pid" 2>/dev/null && status=1
    wait "$idd_pid" 2>/dev/null || true
  fi
  if ((status != 0)) && [[ -s $folder/idd.log ]]; then cat "$folder/idd.log" >&2; fi
  rm -rf "$folder"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "readme_examples_test: $*" >&2
  exit 1
}

# extract DOCUMENT LANGUAGE FILE: the fenced block of that language; the document must have exactly one.
extract() {
  local blocks
  blocks=$(grep -c "^\`\`\`$2\$" "$root/$1" || true)
  ((blocks == 1)) || fail "$1 has $blocks fenced blocks of '$2', not 1"
  sed -n "/^\`\`\`$2\$/,/^\`\`\`\$/p" "$root/$1" | sed '1d;$d' >"$3"
  [[ -s $3 ]] || fail "$1's block of '$2' is empty"
}

extract README.md cpp "$folder/example.cc"
extract README.md c "$folder/example.c"
extract libclient/libidclient.3.md c "$folder/manual.c"
flags=(-Wall -Wextra -Wpedantic -Werror "$@" -I "$root/libclient/include" -I "$root/shm/include")
link=(-L "$libdir" "-Wl,-rpath,$libdir" -lidclient)
"${CXX:-c++}" -std=c++20 "${flags[@]}" "$folder/example.cc" -o "$folder/example_cc" "${link[@]}"
"${CC:-cc}" -std=c11 "${flags[@]}" "$folder/example.c" -o "$folder/example_c" "${link[@]}"
"${CC:-cc}" -std=c11 "${flags[@]}" "$folder/manual.c" -o "$folder/manual_c" "${link[@]}"

unset "${!IDD_@}" # what is set for the caller's own idd
export IDD_SOCKET=$folder/idd.sock

# All say why when there is no daemon.
for example in example_cc example_c manual_c; do
  if "$folder/$example" >"$folder/out" 2>"$folder/err"; then
    fail "$example succeeds without a daemon"
  fi
  [[ ! -s $folder/out ]] || fail "$example prints an id without a daemon"
  grep -q UNAVAILABLE "$folder/err" || fail "$example does not say what is wrong"
done

"$idd" --database "sqlite:$folder/idd.db" --state-dir "$folder" 2>"$folder/idd.log" &
idd_pid=$!
for _ in {1..300}; do
  "$idctl" status >/dev/null 2>&1 && break
  kill -0 "$idd_pid" 2>/dev/null || fail "idd did not start"
  sleep 0.1
done
"$idctl" tag create orders --step 3 >/dev/null # less than one run claims: segments change, too

for example in example_cc example_c manual_c example_cc example_c; do
  "$folder/$example" >>"$folder/ids" || fail "$example failed with status $?"
done
ids=$(wc -l <"$folder/ids")
((ids == 18)) || fail "the examples printed $ids ids, not 18"
grep -Evq '^[0-9]+$' "$folder/ids" && fail "the examples print something that is no id"
sort --numeric-sort --unique "$folder/ids" | cmp - "$folder/ids" ||
  fail "an id came twice, or a later claim got a smaller one"

kill -TERM "$idd_pid"
status=0
wait "$idd_pid" || status=$?
idd_pid=
((status == 0)) || fail "idd ended with exit status $status"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# readme_examples_test.sh ROOT IDD IDCTL LIBIDCLIENT [COMPILER_FLAG...]: the C++ and the C example of
# README.md compile without a warning and claim from a real idd; no id comes twice, and they rise.
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

# extract LANGUAGE FILE: the fenced block of that language; README.md must have exactly one.
extract() {
  local blocks
  blocks=$(grep -c "^\`\`\`$1\$" "$root/README.md" || true)
  ((blocks == 1)) || fail "README.md has $blocks fenced blocks of '$1', not 1"
  sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$root/README.md" | sed '1d;$d' >"$2"
  [[ -s $2 ]] || fail "README.md's block of '$1' is empty"
}

extract cpp "$folder/example.cc"
extract c "$folder/example.c"
flags=(-Wall -Wextra -Wpedantic -Werror "$@" -I "$root/libclient/include" -I "$root/shm/include")
link=(-L "$libdir" "-Wl,-rpath,$libdir" -lidclient)
"${CXX:-c++}" -std=c++20 "${flags[@]}" "$folder/example.cc" -o "$folder/example_cc" "${link[@]}"
"${CC:-cc}" -std=c11 "${flags[@]}" "$folder/example.c" -o "$folder/example_c" "${link[@]}"

unset "${!IDD_@}" # what is set for the caller's own idd
export IDD_SOCKET=$folder/idd.sock

# Both say why when there is no daemon.
for example in example_cc example_c; do
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

for example in example_cc example_c example_cc example_c; do
  "$folder/$example" >>"$folder/ids" || fail "$example failed with status $?"
done
ids=$(wc -l <"$folder/ids")
((ids == 10)) || fail "the examples printed $ids ids, not 10"
grep -Evq '^[0-9]+$' "$folder/ids" && fail "the examples print something that is no id"
sort --numeric-sort --unique "$folder/ids" | cmp - "$folder/ids" ||
  fail "an id came twice, or a later claim got a smaller one"

kill -TERM "$idd_pid"
status=0
wait "$idd_pid" || status=$?
idd_pid=
((status == 0)) || fail "idd ended with exit status $status"

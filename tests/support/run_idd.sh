# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# run_idd.sh, for bash tests that need a real idd: source it with $idd and $idctl set. It makes
# $folder and unsets the caller's own idd settings; everything that it starts ends with the test.
#   fail MESSAGE    ends the test
#   start_idd       on $folder/idd.sock, which IDD_SOCKET names, and $folder/idd.db
#   stop_idd        expects exit status 0
test_name=$(basename "$0" .sh)
folder=$(mktemp -d "${TMPDIR:-/tmp}/idd-$test_name.XXXXXX")
idd_pid=

end_test() {
  local status=$?
  trap - EXIT
  [[ -z $idd_pid ]] || kill -KILL "$idd_pid" 2>/dev/null || true
  [[ -z $idd_pid ]] || wait "$idd_pid" 2>/dev/null || true
  ((status == 0)) || cat "$folder/idd.log" >&2 2>/dev/null || true
  rm -rf "$folder"
  exit "$status"
}
trap end_test EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "$test_name: $*" >&2
  exit 1
}

unset "${!IDD_@}"
export IDD_SOCKET=$folder/idd.sock

start_idd() {
  # shellcheck disable=SC2154 # the test's
  "$idd" --database "sqlite:$folder/idd.db" --state-dir "$folder" 2>"$folder/idd.log" &
  idd_pid=$!
  for _ in {1..300}; do
    # shellcheck disable=SC2154 # the test's
    "$idctl" status >/dev/null 2>&1 && return
    kill -0 "$idd_pid" 2>/dev/null || fail "idd did not start"
    sleep 0.1
  done
  fail "idd does not answer"
}

stop_idd() {
  local status=0 watcher
  kill -TERM "$idd_pid"
  # idd itself gives up a stop after 10 s.
  { sleep 15 && kill -KILL "$idd_pid"; } 2>/dev/null &
  watcher=$!
  wait "$idd_pid" || status=$?
  idd_pid=
  kill "$watcher" 2>/dev/null || true
  ((status == 0)) || fail "idd ended with exit status $status"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts beside it, from any folder. Goes to the root of the tree, whose path is $root.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"

export LC_ALL=C.UTF-8

# ccache fails, and with it the build, where it may not write.
if [[ -z ${CCACHE_DIR-} && ! -w ${HOME:-/nonexistent} ]]; then
  export CCACHE_DIR=$root/build/ccache
fi

# Every process that the script starts inherits this variable and can be found by it. (Not IDD_*: the
# tests keep those from the daemons they start.)
export SCRIPT_RUN_OF_IDD=$$.$RANDOM$RANDOM

# The pids of the processes started by this script that still live, one a line, without itself.
own_processes() {
  local file pid
  for file in $(env -u SCRIPT_RUN_OF_IDD grep --files-with-matches --null-data --fixed-strings \
    --line-regexp "SCRIPT_RUN_OF_IDD=$SCRIPT_RUN_OF_IDD" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${file#/proc/}
    pid=${pid%/environ}
    [[ $pid == "$$" || $pid == "$BASHPID" ]] || echo "$pid"
  done
}

# Waits up to two seconds for our own processes to end, and kills what is left. False, with a line for
# each, when there were any.
end_own_processes() {
  local pids='' pid
  for _ in {1..20}; do
    pids=$(own_processes)
    [[ -z $pids ]] && return 0
    sleep 0.1
  done
  for pid in $pids; do
    echo "left behind: process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)" >&2
    kill -KILL "$pid" 2>/dev/null || true
  done
  return 1
}

# For a trap on EXIT: whatever is still running ends, by itself or by SIGTERM after a signal to us.
# Returns the exit status that the script should have.
clean_up_processes() {
  local status=$1
  if ((status > 128)); then
    # shellcheck disable=SC2046  # a list of numbers
    kill -TERM $(own_processes) 2>/dev/null || true
  fi
  end_own_processes || status=1
  wait  # for the dead, so that not even their entries in the process table stay
  return "$status"
}

# in_background COMMAND...: the same as COMMAND, but a signal to the script does not wait for its end.
in_background() {
  "$@" &
  wait $!
}

# quietly COMMAND...: the output goes to a file that is shown only when the command fails.
quietly() {
  local log=$root/build/last-command.log
  mkdir -p "$root/build"
  in_background "$@" >"$log" 2>&1 && return 0
  # What goes on after an error may print more than that.
  head -n -80 "$log" | grep -E -A 3 -m 20 'error: ' >&2 || true
  tail -n 80 "$log" >&2
  echo "failed: $*" >&2
  return 1
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts in this folder, from any folder. Changes to the root of the tree, $root.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"

export LC_ALL=C.UTF-8

# Without a folder that it can write to, ccache fails, and the build with it.
if [[ -z ${CCACHE_DIR-} && ! -w ${HOME:-/nonexistent} ]]; then
  export CCACHE_DIR=$root/build/ccache
fi

# Every process that the script starts inherits this variable, which identifies it. (Not IDD_*: the
# tests remove those from the environment of their daemons.)
export SCRIPT_RUN_OF_IDD=$$.$RANDOM$RANDOM

# Prints the pids of the live processes that this script started, one a line, without its own.
own_processes() {
  local file pid
  for file in $(env -u SCRIPT_RUN_OF_IDD grep --files-with-matches --null-data --fixed-strings \
    --line-regexp "SCRIPT_RUN_OF_IDD=$SCRIPT_RUN_OF_IDD" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${file#/proc/}
    pid=${pid%/environ}
    [[ $pid == "$$" || $pid == "$BASHPID" ]] || echo "$pid"
  done
}

# Waits up to two seconds for the processes of this script to end, then kills the rest. Returns
# false, after a line for each, if it had to kill any.
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

# For a trap on EXIT: every process that is still running ends, by itself or by SIGTERM after a
# signal to the script. Returns the exit status that the script should have.
clean_up_processes() {
  local status=$1
  if ((status > 128)); then
    # shellcheck disable=SC2046  # a list of numbers
    kill -TERM $(own_processes) 2>/dev/null || true
  fi
  end_own_processes || status=1
  wait  # reaps them, so that not even zombies remain
  return "$status"
}

# in_background COMMAND...: runs COMMAND, but a signal to the script does not wait for its end.
in_background() {
  "$@" &
  wait $!
}

# quietly COMMAND...: writes the output to a file, which is shown only if the command fails.
quietly() {
  local log=$root/build/last-command.log
  mkdir -p "$root/build"
  in_background "$@" >"$log" 2>&1 && return 0
  # A command that continues after an error may print more than that.
  head -n -80 "$log" | grep -E -A 3 -m 20 'error: ' >&2 || true
  tail -n 80 "$log" >&2
  echo "failed: $*" >&2
  return 1
}

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

# Ends what is left of our own processes, after a grace of two seconds for those that are on their
# way out. False, with a line for each, when there were any.
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

# quietly COMMAND...: the output goes to a file that is shown only when the command fails.
quietly() {
  local log=$root/build/last-command.log
  mkdir -p "$root/build"
  "$@" >"$log" 2>&1 && return 0
  tail -n 80 "$log" >&2
  echo "failed: $*" >&2
  return 1
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Sourced by packages_test.sh: programs that claim in the running tree during events of idd, and the
# checks of their ids.

claimers=()

# start_claimers COUNT: starts programs compiled against libidclient-dev, as user member.
start_claimers() {
  local i
  build_client claimer
  for ((i = 0; i < $1; ++i)); do
    in_tree setpriv --reuid member --regid member --init-groups /srv/claimer load 500 \
      >"$work/claimed.$i" 2>"$work/claimer.$i.log" 9>&- &
    claimers+=($!)
  done
  wait_until claimers_claim
}

# Whether every claimer has ids by now.
claimers_claim() {
  local i
  for i in "${!claimers[@]}"; do
    [[ -s $work/claimed.$i ]] || return 1
  done
}

claimers_live() {
  local pid
  for pid in "${claimers[@]}"; do
    kill -0 "$pid" 2>/dev/null || { cat "$work"/claimer.*.log >&2 && return 1; }
  done
}

# stop_claimers: each ends at its next claim, with exit status 0 if no claim has failed.
stop_claimers() {
  local i pid
  for pid in "${claimers[@]}"; do signal_client TERM "$pid"; done
  for i in "${!claimers[@]}"; do
    wait "${claimers[i]}" || { cat "$work/claimer.$i.log" >&2 && fail "claimer $i saw an error"; }
    sed "s/^/        claimer $i: /" "$work/claimer.$i.log"
  done
}

# check_claims MINIMUM: no id comes twice, none is missing between the first and the last, and each
# claimer's ids rise.
check_claims() {
  local i count distinct first last longest
  for i in "${!claimers[@]}"; do
    sort --numeric-sort --check "$work/claimed.$i" 2>/dev/null || fail "the ids of claimer $i do not rise"
  done
  sort --numeric-sort --merge "$work"/claimed.* >"$work/claimed"
  count=$(wc -l <"$work/claimed")
  distinct=$(uniq "$work/claimed" | wc -l)
  first=$(head -n 1 "$work/claimed")
  last=$(tail -n 1 "$work/claimed")
  longest=$(sed -n 's/^longest wait \([0-9]*\) ms$/\1/p' "$work"/claimer.*.log | sort -n | tail -n 1)
  step "$count ids, $((last - first + 1 - distinct)) missing between the first and the last, longest wait $longest ms"
  ((distinct == count)) || fail "$((count - distinct)) ids came twice"
  ((count >= $1)) || fail "only $count ids were claimed, not $1: there was no load"
  ((last - first + 1 == distinct)) || fail "$((last - first + 1 - distinct)) ids are missing"
}

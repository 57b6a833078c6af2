#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# restart_test.sh ROOT: systemd restarts the packaged service beside programs that claim from many
# tags: no id comes twice or out of order, none is lost, and no claim fails. Prints how long claims
# waited. 10 restarts of 200 tags with a step of 1000, or IDD_TEST_RESTARTS, IDD_TEST_TAGS and
# IDD_TEST_STEP; a measurement uses 100 restarts and 2000 tags, on an otherwise idle machine. Exits
# 77, with the reason, where that is impossible. Keeps reusable files in ROOT/build.
set -euo pipefail
name="restart-test"
# shellcheck source=tests/packages/common.sh
source "${1:?}/tests/packages/common.sh"

tags=${IDD_TEST_TAGS:-200}
restarts=${IDD_TEST_RESTARTS:-10}
segment=${IDD_TEST_STEP:-1000}
# systemd takes the descriptors of some 50 rings in a second when it has thousands.
patience_s=$((60 + tags / 10))
claimers=()

# start_claimer NUMBER: as user member.
start_claimer() {
  in_tree setpriv --reuid member --regid member --init-groups /srv/many_tags "$tags" 200 \
    >"$work/claimed.$1" 2>"$work/waits.$1" 9>&- &
  claimers+=($!)
}

signal_claimers() {
  local pid
  for pid in "${claimers[@]}"; do signal_client "$1" "$pid"; done
}

# Whether every claimer has reported that many waits.
have_reported() {
  local i
  for i in "${!claimers[@]}"; do
    kill -0 "${claimers[i]}" 2>/dev/null || { cat "$work/waits.$i" >&2 && fail "claimer $i has ended"; }
    (($(wc -l <"$work/waits.$i") >= $1)) || return 1
  done
}

have_all_tags() {
  local i
  for i in "${!claimers[@]}"; do
    (($(wc -l <"$work/claimed.$i") > tags)) || return 1
  done
}

prepare_tree
cp -r "$debs" "$tree/srv/debs"
rm -f "$tree"/srv/debs/1/*-dbgsym_*.deb
build_client many_tags
boot_tree 9>&- || { cat "$work/console.log" >&2 && fail "systemd does not come up"; }
step "install, and make $tags tags"
fails 0 in_tree sh -c 'exec dpkg --install /srv/debs/1/libidclient0_*.deb /srv/debs/1/idd_*.deb'
in_tree useradd --groups idd member
wait_until is_active idd.service
in_tree sh -c "for i in \$(seq $tags); do idctl tag create many-\$i --step $segment --if-absent >/dev/null || exit 1; done" ||
  fail "the tags cannot be made"
start_claimer 0
start_claimer 1
wait_until have_all_tags
signal_claimers USR1
wait_until have_reported 1
step "$restarts restarts"
for ((restart = 1; restart <= restarts; ++restart)); do
  fails 0 in_tree systemctl restart idd.service
  # One round over all tags, so that each claimer uses every ring that was replaced.
  lines=$(wc -l <"$work/claimed.0")
  sleep 0.5
  wait_until eval "((\$(wc -l <'$work/claimed.0') > $lines + $tags))"
  signal_claimers USR1
  wait_until have_reported $((restart + 1))
  if ((restart % 10 == 0)); then
    step "$restart restarts, $(wc -l <"$work/claimed.0") claims of one program, longest ones of the last ten, ms:" \
      "$(tail -q -n 10 "$work"/waits.* | sed -n 's/^wait \([0-9]*\)[0-9][0-9][0-9] us$/\1/p' | sort -n | tr '\n' ' ')"
  fi
done
signal_claimers TERM
for i in "${!claimers[@]}"; do
  wait "${claimers[i]}" || { tail -n 3 "$work/waits.$i" >&2 && fail "claimer $i saw an error"; }
done
journal_says 'idd.leaving' || fail "a restart was a stop"
if journal_says 'lease.abandoned|ring.not_inherited|held.not_inherited|idd.stopping'; then
  grep -Ei 'abandoned|not_inherited|stopping' "$work/journal" | head -n 5 >&2
  fail "a restart lost something, see above"
fi
# For each tag every id from the first to the last, once.
sort --numeric-sort --key=1,1 --key=2,2 --stable --merge <(sort -n -k1,1 -k2,2 "$work/claimed.0") \
  <(sort -n -k1,1 -k2,2 "$work/claimed.1") | awk '
  $1 == tag && $2 == id { ++twice }
  $1 == tag && $2 > id + 1 { missing += $2 - id - 1 }
  { tag = $1; id = $2; ++count }
  END { print count, twice + 0, missing + 0 }' >"$work/sums"
read -r count twice missing <"$work/sums"
step "$count ids, $twice twice, $missing missing"
((twice == 0)) || fail "$twice ids came twice"
((missing == 0)) || fail "$missing ids are missing"
in_tree idctl --timeout 120000 audit >"$work/said" || { tail -n 5 "$work/said" >&2 && fail "the audit does not add up"; }
# The first report of each claimer covers the time before the first restart.
tail -q -n +2 "$work"/waits.* | sed -n 's/^wait \([0-9]*\) us$/\1/p' | sort -n >"$work/sorted"
awk '{ wait[NR] = $1 / 1000 }
  END { printf "        longest claim beside each restart, ms: median %.1f, p99 %.1f, longest %.1f, of %d\n",
        wait[int((NR + 1) / 2)], wait[int((NR * 99 + 99) / 100)], wait[NR], NR }' "$work/sorted"
step "done"

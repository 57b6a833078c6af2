#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# units_test.sh ROOT BUILD_DIR: the commands of a reload work, systemd accepts the units without
# complaints, and rates the service's restrictions as intended. tests/packages runs this. Exits 77
# without systemd-analyze.
set -euo pipefail
root=$1 build=$2

folder=$(mktemp -d "${TMPDIR:-/tmp}/idd-units.XXXXXX")
daemon=
trap '[[ -z $daemon ]] || kill "$daemon" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM

fail() {
  echo "units_test: $*" >&2
  exit 1
}

# reload: runs the unit's ExecReload= commands as systemd does: in their order, until one fails.
reload() {
  local line installed built=$build/bin/idd
  installed=$(sed -n 's/^ExecStart=//p' "$build/systemd/idd.service")
  while read -r line; do
    line=${line#ExecReload=/bin/sh -c \"}
    line=${line%\"}
    line=${line//\$\$/\$}
    line=${line//"$installed"/"$built"}
    MAINPID=$daemon /bin/sh -c "$line" 2>>"$folder/said" || return 1
  done < <(grep '^ExecReload=' "$build/systemd/idd.service")
}

# logs WORDS: waits until idd logs them.
logs() {
  local i
  for ((i = 0; i < 600; i++)); do
    if grep -q "$1" "$folder/log"; then return 0; fi
    sleep 0.05
  done
  cat "$folder/log" >&2
  fail "idd does not log '$1'"
}

# Regression: 'systemctl reload' succeeded with a broken file. The check reads what the running idd
# reads: its --config, not the default.
echo 'log_level = "info"' >"$folder/idd.toml"
"$build/bin/idd" --config "$folder/idd.toml" --database "sqlite:$folder/idd.db" --socket "$folder/idd.sock" \
  --state-dir "$folder/state" 2>"$folder/log" &
daemon=$!
logs idd.ready
echo 'log_level = "loud"' >"$folder/idd.toml"
if reload; then fail "a reload with a broken file succeeds"; fi
grep -q 'idd.toml:1: log_level must be' "$folder/said" || fail "a failed reload does not say why"
if grep -q 'config.reload' "$folder/log"; then fail "idd was told to read a broken file"; fi
echo 'log_level = "debug"' >"$folder/idd.toml"
reload || fail "a reload with a valid file fails"
logs 'config.reloaded.*changed=log_level'
kill "$daemon"
wait "$daemon" || fail "idd ends with status $?"
daemon=

command -v systemd-analyze >/dev/null || {
  echo "units_test: skipped, systemd-analyze is not installed"
  exit 77
}
# The program need not be installed, but systemd-analyze checks that it exists.
sed "s|^ExecStart=.*|ExecStart=$build/bin/idd|" "$build/systemd/idd.service" >"$folder/idd.service"
cp "$root/systemd/idd.socket" "$folder"
export SYSTEMD_UNIT_PATH=$folder: SYSTEMD_LOG_LEVEL=info

# complaints: everything that systemd-analyze reports about the two units. It reports an unknown key
# with a message, not with its exit status.
complaints() {
  { systemd-analyze verify --man=no --recursive-errors=no "$folder"/idd.{socket,service} 2>&1 || true; } |
    grep 'idd\.'
}

if complaints; then fail "systemd complains, see above"; fi
systemd-analyze security --offline=true --threshold=12 --no-pager "$folder/idd.service" >"$folder/score" ||
  { cat "$folder/score" && fail "the service is more open than 1.2"; }
tail -n 1 "$folder/score"

# Both checks must find what they are for.
sed -i 's/^\[Socket\]$/&\nNonsense=1/' "$folder/idd.socket"
complaints >/dev/null || fail "a key that systemd does not know is not noticed"
sed -i '/^SystemCallFilter=/d' "$folder/idd.service"
if systemd-analyze security --offline=true --threshold=12 "$folder/idd.service" >/dev/null; then
  fail "a unit without its system-call filter scores as well"
fi

# Restrictions that the unit's comments promise and the score does not cover.
has() { grep -qx "$1" "$build/systemd/idd.service" || fail "idd.service lacks '$1'"; }
has 'RuntimeDirectoryPreserve=yes'
has 'StateDirectoryMode=0700'
has 'RestartPreventExitStatus=2'
if grep -Eq '^(PrivateUsers|DynamicUser)=(yes|true|1|on)' "$build/systemd/idd.service"; then
  fail "idd.service hides who its peers are"
fi

# Quick stops and starts must not leave a unit failed: the start limit is in [Unit], and clients may
# start idd often enough. systemd's defaults, 5 starts in 10 s and 20 triggers in 2 s, apply if a
# key is missing or in another section.
in_section() { # FILE SECTION: prints its keys
  sed -n "/^\[$2\]\$/,/^\[/{/^[A-Za-z]*=/p}" "$1"
}
for unit in "$build/systemd/idd.service" "$root/systemd/idd.socket"; do
  in_section "$unit" Unit | grep -qx 'StartLimitIntervalSec=0' || fail "$(basename "$unit") has a start limit"
done
trigger_s=$(in_section "$root/systemd/idd.socket" Socket | sed -n 's/^TriggerLimitIntervalSec=\([0-9]*\)s$/\1/p')
triggers=$(in_section "$root/systemd/idd.socket" Socket | sed -n 's/^TriggerLimitBurst=//p')
((${trigger_s:-0} >= 30 && ${triggers:-0} >= 2 * trigger_s)) ||
  fail "idd.socket fails after ${triggers:-too few} triggers in ${trigger_s:-too few} seconds"

# The names of all descriptors come back in one variable, which the kernel limits to 131072 bytes.
descriptors=$(sed -n 's/^FileDescriptorStoreMax=//p' "$build/systemd/idd.service")
open_files=$(sed -n 's/^LimitNOFILE=//p' "$build/systemd/idd.service")
((descriptors > 0 && descriptors * 5 + 64 <= 131072)) || fail "$descriptors names may not fit into LISTEN_FDNAMES"
((open_files >= 2 * descriptors)) || fail "LimitNOFILE=$open_files leaves no room beside $descriptors descriptors"

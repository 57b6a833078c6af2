# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by the tests in this folder and in tests/platforms, which set $name before. Provides their
# folder $work, a Debian tree with systemd, and functions to inspect it. IDD_TEST_SUITE chooses
# another Debian than 12 (bookworm), with packages that were built there. Ends the script with 77 and
# the reason where that is impossible.

root=$1
here=$root/tests/packages
suite=${IDD_TEST_SUITE:-bookworm}
[[ $suite == bookworm ]] || name=$suite-$name
work=$root/build/$name
debs=$root/build/packages-test-debs
[[ $suite == bookworm ]] || debs+=-$suite
started=$SECONDS
patience_s=60  # of wait_until

exec 9>"$root/build/$name.lock"
flock 9
rm -rf --one-file-system "$work"
mkdir -p "$work"
# shellcheck source=tests/packages/debian_tree.sh
source "$here/debian_tree.sh"

cleanup() {
  local status=$?
  trap - EXIT
  trap '' INT TERM
  if ((status != 0 && status != 77)) && [[ -n ${machine-} ]]; then
    in_tree journalctl --no-pager --lines 40 --unit 'idd*' >&2 || true
  fi
  end_tree 9>&- || status=1
  ((status != 0 && status != 77)) || rm -rf --one-file-system "$work"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "$name: $*" >&2
  exit 1
}

step() { printf '%4d s  %s\n' $((SECONDS - started)) "$*"; }

# fails STATUS COMMAND...: whether it ends with that exit status; its output is in $work/said.
fails() {
  local expected=$1 status=0
  shift
  "$@" >"$work/said" 2>&1 || status=$?
  ((status == expected)) || {
    cat "$work/said" >&2
    fail "'$*' ends with $status, not $expected"
  }
}

# build_client NAME: compiles NAME.c of this folder against libidclient-dev, as /srv/NAME in the
# tree, whose C library may be newer than this machine's.
build_client() {
  local headers=$work/dev library
  dpkg-deb --extract "$debs"/1/libidclient-dev_*.deb "$headers"
  dpkg-deb --extract "$debs"/1/libidclient0_*.deb "$headers"
  library=$(dirname "$(find "$headers" -name 'libidclient.so')")
  "${CC:-cc}" -std=gnu11 -Wall -Wextra ${WERROR:+-Werror} -O1 -I "$headers/usr/include/idclient" "$here/$1.c" \
    -o "$tree/srv/$1" -L "$library" -lidclient -Wl,--allow-shlib-undefined || fail "a program does not build with libidclient-dev"
}

# signal_client SIGNAL PID: signals the last process of the chain: this shell's child, nsenter and
# the program.
signal_client() {
  local pid=$2 child
  while child=$(cat "/proc/$pid/task/$pid/children") && [[ -n $child ]]; do pid=${child%% *}; done
  kill "-$1" "$pid"
}

as() { in_tree runuser -u "$1" -- "${@:2}"; }

# A minimal Debian has no ps and no kill, so these two look and act from outside.
pids_of() {
  local pid
  for pid in $(cat "$cgroup"/cgroup.procs "$cgroup"/*/cgroup.procs "$cgroup"/*/*/cgroup.procs 2>/dev/null) $(jobs -p); do
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) != "$1" ]] || echo "$pid"
  done
}

is_active() { in_tree systemctl --quiet is-active "$1"; }
property() { in_tree systemctl show --value --property "$1" idd.service; }

# journal_says EXPRESSION [OPTION...]: whether idd, or systemd about it, has logged such a line. The
# options are journalctl's.
journal_says() {
  local expression=$1
  shift
  in_tree journalctl --no-pager --unit idd.service "$@" >"$work/journal"
  grep -Eiq "$expression" "$work/journal"
}

wait_until() {
  local tries
  for ((tries = 0; tries < patience_s * 10; ++tries)); do
    "$@" && return 0
    sleep 0.1
  done
  fail "in vain: waited $patience_s seconds for '$*'"
}

# runs_anew PID: whether idd is ready in another process than PID.
runs_anew() {
  local pid
  is_active idd.service || return 1
  pid=$(property MainPID)
  [[ $pid != 0 && $pid != "$1" ]]
}


# prepare_tree DEPENDENCIES...: the dependencies beside those of idd itself.
prepare_tree() {
  step "make a tree of Debian's $suite"
  local dependencies extra
  # libidclient0 is created here, too, so only its later changes count.
  dependencies=$(dpkg-deb --field "$debs"/1/idd_*.deb Depends | sed 's/libidclient0 ([^)]*), //')
  for extra; do dependencies+=", $extra"; done
  make_tree "$root/build/packages-tree" "$name" "$dependencies" 9>&- || {
    tail -n 5 "$work/debootstrap.log" >&2
    echo "$name: skipped, there is no Debian mirror to be reached"
    exit 77
  }
}

if ! reason=$(can_boot); then
  echo "$name: skipped, $reason"
  exit 77
fi

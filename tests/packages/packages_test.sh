#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# packages_test.sh ROOT: tests the packages of build_packages.sh through their life on one host: a
# fresh Debian with systemd as pid 1, in namespaces. Install, start, claim, start by the first
# client, upgrade, restart, crash and hang under load, rollback, removal, purge. Exits 77, with the
# reason, where that is impossible. Keeps reusable files in ROOT/build.
set -euo pipefail
name=packages-test
# shellcheck source=tests/packages/common.sh
source "${1:?}/tests/packages/common.sh"
# shellcheck source=tests/packages/load.sh
source "$here/load.sh"

# All files that a package, a daemon or an administrator could have created.
files_of_tree() {
  find "$tree" -xdev \( -path "$tree/tmp" -o -path "$tree/srv" -o -path "$tree/var/log" \) -prune -o -printf '%P\n' | sort
}

# The contents of the packages: hardened programs without debug symbols, all pages, and no daemon
# for a program that only claims.
check_packages() {
  step "what is in the packages"
  local content=$work/content field page
  dpkg-deb --extract "$debs"/1/idd_*.deb "$content"
  dpkg-deb --extract "$debs"/1/libidclient0_*.deb "$content"
  local programs=("$content/usr/sbin/idd" "$content/usr/bin/idctl" "$content"/usr/lib/*/libidclient.so.0.*)
  "$root/tests/lint/hardening.sh" --optimized "${programs[@]}" || fail "a program is not hardened, see above"
  if readelf --sections --wide "${programs[@]}" | grep -q '\.debug_info'; then fail "a program is not stripped"; fi
  if readelf --dynamic "${programs[@]}" | grep -Eq 'R(UN)?PATH'; then fail "a packaged program has a path for libraries"; fi
  grep -qx 'ExecStart=/usr/sbin/idd' "$content/usr/lib/systemd/system/idd.service" || fail "the unit starts another idd"
  for page in "$root"/docs/*.md; do
    [[ -s $content/usr/share/doc/idd/${page##*/} || -s $content/usr/share/doc/idd/${page##*/}.gz ]] ||
      fail "${page##*/} is in no package"
  done
  for field in Depends Recommends Pre-Depends; do
    if dpkg-deb --field "$debs"/1/libidclient0_*.deb "$field" | grep -Eq '(^|[ ,])idd([ ,(]|$)'; then
      fail "libidclient0 brings the daemon along: $field"
    fi
  done
  if command -v lintian >/dev/null; then
    # The project has no address that could be named.
    lintian --allow-root --suppress-tags malformed-contact,bogus-mail-host-in-debian-changelog --fail-on error,warning "$debs"/1/*.deb ||
      fail "lintian has objections"
  fi
}

check_chroot_installation() {
  step "install where systemd does not run"
  chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C dpkg --install \
    "/srv/debs/1/$(basename "$debs"/1/libidclient0_*.deb)" "/srv/debs/1/$(basename "$debs"/1/idd_*.deb)" \
    >"$work/said" 2>&1 || { cat "$work/said" >&2 && fail "the packages cannot be installed in a chroot"; }
}

check_first_start() {
  step "boot: idd is started by the units that the package has enabled"
  boot_tree 9>&- || { cat "$work/console.log" >&2 && fail "systemd does not come up"; }
  is_active idd.socket || fail "idd.socket is not active"
  wait_until is_active idd.service
  # Where /proc is not mounted, as in the chroot, the folders are created at boot.
  [[ $(stat -c %a "$tree/var/lib/idd") == 700 && $(stat -c %a "$tree/etc/idd") == 750 ]] ||
    fail "the folders do not have the modes of tmpfiles.d"
  fails 0 in_tree systemd-analyze verify --man=no idd.service idd.socket
  [[ ! -s $work/said ]] || { cat "$work/said" >&2 && fail "systemd complains about the units"; }
  fails 0 in_tree systemd-analyze security --threshold=12 --no-pager idd.service
  in_tree /usr/sbin/idd --check-config >/dev/null || fail "the installed configuration is not valid"
}

check_sandbox() {
  step "the sandbox is in force"
  local pid
  pid=$(property MainPID)
  in_tree cat "/proc/$pid/status" >"$work/status"
  local line
  for line in 'Seccomp: 2' 'NoNewPrivs: 1' 'CapEff: 0000000000000000' 'CapBnd: 0000000000000000'; do
    grep -qx "$line" <(tr '\t' ' ' <"$work/status") || fail "idd's process lacks '$line'"
  done
  # The same unit with a program that changes its scheduling: any user may do that, but not under
  # this filter.
  local unit
  for unit in closed open; do
    sed -e 's|^ExecStart=.*|ExecStart=/usr/bin/taskset --cpu-list 0 /bin/true|;s|^Type=.*|Type=oneshot|' \
      -e '/^\(Watchdog\|Restart\|ExecReload\|FileDescriptor\|NotifyAccess\|RuntimeDirectory\|StateDirectory\)/d' \
      "$tree/usr/lib/systemd/system/idd.service" >"$tree/etc/systemd/system/idd-$unit.service"
  done
  sed -i '/^SystemCallFilter=/d' "$tree/etc/systemd/system/idd-open.service"
  in_tree systemctl daemon-reload
  fails 0 in_tree systemctl start idd-open.service
  fails 1 in_tree systemctl start idd-closed.service
  rm "$tree"/etc/systemd/system/idd-{open,closed}.service
  in_tree systemctl daemon-reload
  in_tree systemctl reset-failed
}

check_demo() {
  step "claim with the installed files"
  in_tree idctl tag create orders --step 1000 >/dev/null
  in_tree idctl claim orders -n 2500 >"$work/ids"
  [[ $(sort -u "$work/ids" | wc -l) == 2500 ]] || fail "not 2500 distinct ids"
  in_tree idctl --json status >"$work/said"
  grep -q '"orders"' "$work/said" || fail "idctl status does not show the tag"
  in_tree idctl audit >/dev/null || fail "the audit does not add up"
}

check_users() {
  step "members of group idd claim, others do not, and neither reads what is idd's"
  in_tree useradd --groups idd member
  in_tree useradd outsider
  as member idctl claim orders >/dev/null || fail "a member of group idd may not claim"
  fails 6 as member idctl tag create mine
  fails 6 as outsider idctl claim orders
  journal_says "(denied|refused).*$(in_tree id -u outsider)" ||
    fail "the journal does not say who was refused"
  journal_says 'warning access.denied' --priority warning..warning ||
    fail "the line of a denial has no priority of its own in the journal"
  local user file
  for user in member outsider; do
    for file in /etc/idd/idd.toml /var/lib/idd/idd.db /var/lib/idd/high-water.db; do
      as "$user" test ! -r "$file" || fail "$user can read $file"
    done
  done
}

check_activation() {
  step "the first client starts an idd that was stopped"
  in_tree systemctl stop idd.service 2>/dev/null
  ! is_active idd.service || fail "idd still runs"
  as member idctl claim orders >/dev/null || fail "idd does not answer the first client"
  is_active idd.service || fail "idd does not run"
  in_tree systemctl stop idd.socket idd.service
  fails 4 in_tree idctl --timeout 300 status
  in_tree systemctl start idd.service
  is_active idd.socket || fail "idd.service does not bring its socket along"
  step "twenty quick stops and starts leave nothing failed"
  local cycle
  for ((cycle = 0; cycle < 20; ++cycle)); do
    in_tree systemctl stop idd.socket idd.service
    in_tree systemctl start idd.socket idd.service || fail "idd does not start again in cycle $cycle"
  done
  is_active idd.socket || fail "idd.socket has failed"
  as member idctl claim orders >/dev/null || fail "idd does not answer"
}

check_credential() {
  step "the database password is a credential"
  mkdir -p "$tree/etc/credstore"
  (umask 077 && echo 'tree-password' >"$tree/etc/credstore/idd-database-password")
  in_tree systemctl restart idd.service
  local file=/run/credentials/idd.service/idd-database-password
  in_tree nsenter --target "$(property MainPID)" --mount --setuid "$(in_tree id -u idd)" --setgid "$(in_tree id -g idd)" \
    grep -qx tree-password "$file" || fail "idd cannot read the credential"
  as member test ! -r "$file" || fail "a member of group idd can read the credential"
  in_tree grep -q --null-data '^CREDENTIALS_DIRECTORY=' "/proc/$(property MainPID)/environ" ||
    fail "idd is not told where its credentials are"
  # A restart makes another copy, as mysql.md says. Some versions of systemd make it at a reload, too.
  echo 'rotated-password' >"$tree/etc/credstore/idd-database-password"
  in_tree systemctl restart idd.service
  passed_password rotated-password || fail "a restart has not brought the changed credential"
}

# passed_password TEXT: whether systemd has passed TEXT to the running idd.
passed_password() {
  in_tree nsenter --target "$(property MainPID)" --mount grep -qx "$1" /run/credentials/idd.service/idd-database-password
}

# survives WHAT COMMAND...: after COMMAND idd continues in a new process, with the same socket, and
# the claimers notice nothing.
survives() {
  local what=$1 pid inode
  shift
  step "under load: $what"
  pid=$(property MainPID)
  inode=$(in_tree stat -c %i /run/idd/idd.sock)
  "$@" >"$work/said" 2>&1 || { cat "$work/said" >&2 && fail "$what: '$*' fails"; }
  wait_until runs_anew "$pid"
  [[ $(in_tree stat -c %i /run/idd/idd.sock) == "$inode" ]] || fail "$what: the socket is another one"
  sleep 0.5
  claimers_live || fail "$what: a claimer has ended"
}

hang() { in_tree systemctl kill --signal STOP --kill-whom main idd.service; }
crash() { in_tree systemctl kill --signal KILL --kill-whom main idd.service; }
install_revision() { in_tree sh -c "exec dpkg --install /srv/debs/$1/libidclient0_*.deb /srv/debs/$1/idd_*.deb"; }
# shellcheck disable=SC2016  # dpkg-query's own variable
installed_revision() { in_tree dpkg-query --show --showformat='${Version}' idd | sed 's/.*-//'; }

check_load() {
  in_tree idctl tag create load --step 500 >/dev/null
  start_claimers 4
  survives "upgrade to a rebuilt higher version" install_revision 2
  [[ $(installed_revision) == 2 ]] || fail "the upgrade did not take place"
  survives "systemctl restart" in_tree systemctl restart idd.service
  journal_says idd.leaving || fail "a restart was a stop: it closed the rings"
  survives "SIGKILL" crash
  # A shorter watchdog interval than the unit's 30 s, to save time.
  mkdir -p "$tree/etc/systemd/system/idd.service.d"
  printf '[Service]\nWatchdogSec=2s\nTimeoutAbortSec=1s\n' >"$tree/etc/systemd/system/idd.service.d/test.conf"
  in_tree systemctl daemon-reload
  survives "a closer watch" in_tree systemctl restart idd.service
  survives "SIGSTOP, which the watchdog notices" hang
  journal_says 'Watchdog timeout' || fail "it was not the watchdog"
  rm -r "$tree/etc/systemd/system/idd.service.d"
  in_tree systemctl daemon-reload
  survives "rollback to the older version" install_revision 1
  stop_claimers
  check_claims 3000
  in_tree idctl audit >/dev/null || fail "the audit does not add up"
}

check_removal() {
  step "remove: idd's knowledge and the configuration stay"
  in_tree idctl claim orders >"$work/last"
  fails 0 in_tree dpkg --remove idd
  if is_active idd.service || is_active idd.socket; then fail "a unit is still active"; fi
  [[ -z $(pids_of idd) ]] || fail "idd still runs"
  [[ -s $tree/var/lib/idd/idd.db && -s $tree/etc/idd/idd.toml ]] || fail "remove has removed too much"
  in_tree test ! -e /run/idd || fail "/run/idd is still there"

  step "install again, on the running system: ids go on"
  fails 0 install_revision 1
  is_active idd.service || fail "the installation did not start idd.service"
  is_active idd.socket || fail "the installation did not start idd.socket"
  local next
  next=$(in_tree idctl claim orders)
  ((next > $(cat "$work/last"))) || fail "id $next after $(cat "$work/last")"
}

check_purge() {
  step "purge: nothing stays but what the administrator made"
  echo secret >"$tree/etc/idd/password"
  fails 0 in_tree dpkg --purge idd libidclient0
  grep -q 'deleting .*idd.db' "$work/said" || fail "purge does not say that the store goes"
  end_tree 9>&-
  machine=
  files_of_tree | comm -13 "$work/before" - >"$work/left"
  # idd leaves only the user idd. The administrator's files: a password, a credential, two users.
  # The rest belongs to systemd and dpkg.
  grep -Evx \
    -e 'etc/idd(/password)?' -e 'etc/credstore(/idd-database-password)?' \
    -e 'etc/(passwd|group|shadow|gshadow|subuid|subgid)-' -e 'etc/\.pwd\.lock' -e 'etc/(machine-id|\.updated|resolv\.conf)' \
    -e 'var/\.updated' -e 'var/lib/systemd/(random-seed|catalog/database|deb-systemd-helper-[a-z]*|timers|timers/.*)' \
    -e 'var/lib/(private|systemd/coredump|systemd/linger|systemd/pstore)' -e 'var/(cache|lib)/ldconfig/.*' \
    -e 'var/(tmp|cache/private|cache/debconf)/.*' -e 'var/lib/dpkg/.*' -e 'var/cache/private' -e '(run|dev|proc|sys)/.*' \
    "$work/left" >"$work/stray" || true
  [[ ! -s $work/stray ]] || { cat "$work/stray" >&2 && fail "purge leaves the above behind"; }
  [[ -s $tree/etc/idd/password ]] || fail "purge took what the administrator made"
  grep -q '^idd:' "$tree/etc/passwd" || fail "the user idd is gone, whose files may be elsewhere"
}

check_packages
prepare_tree
files_of_tree >"$work/before"
cp -r "$debs" "$tree/srv/debs"
rm -f "$tree"/srv/debs/1/*-dbgsym_*.deb
check_chroot_installation
check_first_start
check_sandbox
check_demo
check_users
check_activation
check_credential
check_load
check_removal
check_purge
step "done"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# documents_test.sh ROOT: extracts the commands of docs/operations.md and docs/mysql.md verbatim,
# and runs them as a reader would, on a fresh Debian 12 with systemd and the packages of
# build_packages.sh: once with SQLite, once with a MariaDB server over TLS. A command of these pages
# that is neither run nor listed in left_out fails the test. Exits 77, with the reason, where that
# is impossible. Keeps reusable files in ROOT/build.
set -euo pipefail
name=documents-test
# shellcheck source=tests/packages/common.sh
source "${1:?}/tests/packages/common.sh"

operations=$root/docs/operations.md
mysql=$root/docs/mysql.md

# Code that a page mentions but does not ask the reader to run as it stands, and code that cannot
# run here.
left_out=(
  'idctl import' 'idctl lease list' 'idctl tag create' 'idctl tag create --start' 'idctl tag set' 'idctl tag show'
  'idctl host forget' 'idctl store init' 'systemctl restart' 'systemctl stop' # names of commands
  'idctl witness set HOST...' 'idctl witness set --force HOST...' # need more hosts, or one that is lost
  'systemctl start idd.socket idd.service'                 # likewise
  'idctl top' 'idctl top --all-hosts'                      # need a terminal
  'systemctl edit idd'                                     # opens an editor; the test writes a file
  # With cmake --install: tests/packages uses packages; tests/integration/install_test.sh covers it.
  'systemd-sysusers && systemd-tmpfiles --create && systemctl enable --now idd.socket idd'
)

# shell TEXT: runs it in the tree as root, in the folder with the packages of revision $revision,
# and answers yes to questions.
revision=1
shell() { in_tree bash -euo pipefail -c "cd /srv/debs/$revision && $1" >"$work/said" 2>&1 <<<y; }

ran() { printf '%s\n' "$1" >>"$work/ran"; }

# run PAGE BEGINNING [SED]: runs the page's code span that begins so; SED replaces its placeholders.
run() {
  local command
  command=$("$here/document.py" span "$1" "$2")
  ran "$command"
  command=$(sed -e "${3-}" <<<"$command")
  shell "$command" || { cat "$work/said" >&2 && fail "'$command' of ${1##*/} fails"; }
}

# block PAGE LANGUAGE NUMBER HEADING: prints that block.
block() {
  "$here/document.py" block "$@"
  ran "$(printf '%s: %s %s %s' "${1##*/}" "${@:2}")"
}

run_block() {
  local commands
  commands=$(block "$@")
  shell "$commands" || { cat "$work/said" >&2 && fail "the ${*:2} block of ${1##*/} fails"; }
}

says() { grep -Eq "$1" "$work/said" || { cat "$work/said" >&2 && fail "no '$1' in the above"; }; }

# claim COUNT [TAG]: none of the ids may have come before.
claim() {
  local tag=${2-orders}
  in_tree idctl --timeout 20000 claim "$tag" -n "$1" >>"$work/ids.$tag" || fail "no ids of $tag"
  [[ -z $(sort "$work/ids.$tag" | uniq -d) ]] || fail "ids of $tag came twice"
}

# has_development_files REVISION
has_development_files() {
  in_tree dpkg --list libidclient-dev | grep -Eq "^ii +libidclient-dev +[^ ]+-$1 " ||
    fail "libidclient-dev is not installed in revision $1"
}

begin_tree() {
  end_tree 9>&-
  machine=
  rm -rf --one-file-system "$tree" "$work"/ids.*
  prepare_tree mariadb-server mariadb-client sqlite3 openssl iproute2
  cp -r "$debs" "$tree/srv/debs"
  rm "$tree"/srv/debs/1/*-dbgsym_*.deb
  boot_tree 9>&- || { cat "$work/console.log" >&2 && fail "systemd does not come up"; }
  in_tree ip link set lo up
}

check_sqlite() {
  step "operations.md: set-up with SQLite"
  begin_tree
  run_block "$operations" sh 1 Install
  grep -Ex '[0-9]+' "$work/said" | tail -n 3 >"$work/ids.orders"
  run "$operations" 'runuser -u idd'
  says 'valid'
  claim 1000
  step "operations.md: looking"
  run "$operations" 'idctl status'
  says orders
  run "$operations" 'idctl audit'
  run "$operations" 'idctl lease list --state active'
  says orders
  run "$operations" 'idctl tag show TAG' 's/TAG/orders/'
  run "$operations" 'idctl whois TAG ID' 's/TAG ID/orders 2/'
  shell 'idctl tag create events --mode snowflake >/dev/null && idctl claim events'
  run "$operations" 'idctl decode TAG ID...' "s/TAG ID.../events $(tail -n 1 "$work/said")/"
  says WORKER
  shell 'idctl tag delete events --force'
  run "$operations" 'idctl client list'
  run "$operations" 'idctl config show'
  says '/etc/idd/idd.toml|default'
  run "$operations" 'idctl log-level debug'
  run "$operations" 'idctl log-level info'
  run "$operations" 'idctl host list'
  says live
  run "$operations" 'idctl host list --all'
  run "$operations" 'idctl status --all-hosts'
  says orders
  run "$operations" 'idctl doctor'
  run "$operations" 'idctl metrics'
  says idd_
  run "$operations" 'journalctl -u idd'
  says idd.ready
  run "$operations" 'systemd-analyze security idd'
  step "operations.md: maintenance, access by the socket alone"
  run "$operations" 'idctl drain TAG' 's/TAG/orders/'
  fails 4 in_tree idctl claim orders
  run "$operations" 'idctl resume TAG' 's/TAG/orders/'
  claim 10
  run "$operations" 'idctl drain'
  fails 4 in_tree idctl claim orders
  run "$operations" 'systemctl stop idd'
  run "$operations" 'systemctl start idd'
  fails 4 in_tree idctl claim orders
  run "$operations" 'idctl resume'
  claim 10
  run "$operations" 'idctl tag create TAG --access socket' 's/TAG/careful/'
  run "$operations" 'idctl tag set TAG --access socket' 's/TAG/orders/'
  run "$operations" 'idctl tag create TAG --order cpu' 's/TAG/lanes/'
  run "$operations" 'idctl tag set TAG --order' 's/TAG/lanes/; s/cpu|host/host/'
  claim 10
  run "$operations" 'idctl tag create TAG --mode ticket' 's/TAG/invoices/'
  in_tree idctl claim invoices >"$work/said" || fail "no ticket"
  run "$operations" 'idctl tag create orders --step' 's/orders/parcels/'
  step "operations.md: tags in a file"
  run_block "$operations" sh 1 'Tags in a file'
  says '0 created, 0 changed, 0 deleted, [1-9]'
  run "$operations" 'idctl tag export'
  run "$operations" 'idctl apply -f'
  step "operations.md: permissions"
  in_tree sh -c 'groupadd billing && useradd --uid 2001 contractor && useradd --groups billing accountant'
  block "$operations" toml 1 "Permit users and programs" >>"$tree/etc/idd/idd.toml"
  run "$operations" 'runuser -u idd'
  run "$operations" 'systemctl reload idd'
  as www-data idctl claim orders >>"$work/ids.orders" || fail "the web server may not claim"
  as accountant idctl tag create billing.eu >"$work/said" 2>&1 || fail "the billing team makes no tag"
  as contractor idctl claim billing.eu >/dev/null || fail "the contractor may not claim"
  fails 6 as contractor idctl claim orders
  step "operations.md: metrics, by HTTP and by a file"
  mkdir -p "$tree/etc/systemd/system/idd.service.d"
  block "$operations" ini 1 "Expose metrics" >"$tree/etc/systemd/system/idd.service.d/override.conf"
  shell 'systemctl daemon-reload && systemctl restart idd' || fail "idd does not start with metrics"
  shell 'exec 3<>/dev/tcp/127.0.0.1/9742; printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3' || fail "nothing serves metrics"
  says '^idd_'
  block "$operations" ini 2 "Expose metrics" >"$tree/etc/systemd/system/idd.service.d/override.conf"
  shell "groupadd prometheus; mkdir -p /var/lib/prometheus/node-exporter
    $(sed -n 's/^# \(install .*\)/\1/p' "$tree/etc/systemd/system/idd.service.d/override.conf")
    systemctl daemon-reload && systemctl restart idd" || { cat "$work/said" >&2 && fail "idd does not start with a file of metrics"; }
  wait_until test -s "$tree/var/lib/prometheus/node-exporter/idd/idd.prom"
  step "operations.md: backup and restore"
  # The backup is taken to a place with room, and restored to the store's place.
  run "$operations" 'sqlite3 /var/lib/idd/idd.db'
  claim 5000
  run "$operations" 'systemctl stop idd.socket idd.service'
  shell 'rm -f /var/lib/idd/idd.db-wal /var/lib/idd/idd.db-shm && install -o idd -g idd -m 0600 idd-backup.db /var/lib/idd/idd.db' ||
    fail "the backup cannot be put in place"
  run "$operations" 'systemctl start idd'
  claim 5000
  step "operations.md: upgrade and rollback"
  shell "$(block "$operations" sh 1 Install | head -n 1)" || { cat "$work/said" >&2 && fail "the packages cannot be installed"; }
  shell 'apt install ./libidclient-dev_*.deb' || fail "libidclient-dev cannot be installed"
  revision=2
  # Regression: the command of the page removed libidclient-dev.
  run "$operations" 'apt install --only-upgrade ./'
  has_development_files 2
  claim 10
  shell 'ln -s ../1/idd_*.deb idd_OLDER.deb && ln -s ../1/libidclient0_*.deb libidclient0_OLDER.deb &&
    ln -s ../1/libidclient-dev_*.deb libidclient-dev_OLDER.deb' || fail "no older packages"
  run "$operations" 'apt install --only-upgrade --allow-downgrades'
  has_development_files 1
  claim 10
  revision=1
  run "$operations" 'systemctl restart idd'
  claim 10
  run "$operations" 'systemctl disable idd'
  run "$operations" 'idctl audit'
}

# The prerequisites of mysql.md: a server db1.example.org with a certificate from the reader's own
# CA.
start_server() {
  in_tree ip address add 10.0.0.1/16 dev lo
  echo '10.0.0.1 db1.example.org db1 db2.example.org' >>"$tree/etc/hosts"
  shell 'mkdir -p /etc/mysql/tls && cd /etc/mysql/tls
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=test CA" -keyout ca.key -out ca.pem
    openssl req -newkey rsa:2048 -nodes -subj "/CN=db1.example.org" -keyout server.key -out server.csr
    printf "subjectAltName=DNS:db1.example.org,DNS:db1\n" >names
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem
    chown mysql server.key' || { cat "$work/said" >&2 && fail "no certificate can be made"; }
  cat >"$tree/etc/mysql/mariadb.conf.d/99-test.cnf" <<'CONFIG'
[mariadbd]
bind-address=10.0.0.1
ssl-ca=/etc/mysql/tls/ca.pem
ssl-cert=/etc/mysql/tls/server.pem
ssl-key=/etc/mysql/tls/server.key
CONFIG
  shell 'systemctl restart mariadb' || { in_tree journalctl --no-pager -u mariadb | tail -n 20 >&2 && fail "no server"; }
}

check_mysql() {
  step "mysql.md: package first, then the server"
  begin_tree
  shell "$(block "$operations" sh 1 Install | head -n 1)" || { cat "$work/said" >&2 && fail "the packages cannot be installed"; }
  # As a reader who has tried the quick start.
  in_tree idctl tag create orders >"$work/said" 2>&1 || { cat "$work/said" >&2 && fail "no tag can be made"; }
  claim 3
  run_block "$mysql" sh 1 'From SQLite to a server'
  start_server
  block "$mysql" sql 1 Set-up | in_tree mariadb >"$work/said" 2>&1 || { cat "$work/said" >&2 && fail "the SQL fails"; }
  block "$mysql" toml 1 Set-up >"$tree/etc/idd/idd.toml"
  cp "$tree/etc/mysql/tls/ca.pem" "$tree/etc/idd/ca.pem"
  # The host knows of ids that the empty database would grant again: doctor says so, and what to do.
  if shell "$(block "$mysql" sh 1 Set-up)"; then fail "doctor finds nothing"; fi
  says 'idctl store init'
  run_block "$mysql" sh 2 'From SQLite to a server'
  says '1 created'
  run "$mysql" 'idctl status'
  says 'mysql://idd@db1.example.org'
  claim 3000
  [[ $(in_tree mariadb -N -e "SELECT COUNT(*) FROM information_schema.processlist WHERE USER = 'idd'") -ge 1 ]] ||
    fail "idd is not connected"
  step "operations.md: a new password, without a restart"
  run "$operations" 'install -o idd' "s/^/echo new-password | /"
  in_tree mariadb -e "ALTER USER idd@'10.0.%' IDENTIFIED BY 'new-password'"
  in_tree mariadb -N -e "SELECT CONCAT('KILL ', ID, ';') FROM information_schema.processlist WHERE USER = 'idd'" |
    in_tree mariadb
  in_tree idctl tag create behind-the-rotation >"$work/said" 2>&1 ||
    { cat "$work/said" >&2 && fail "the new password is not taken"; }
  claim 1000 behind-the-rotation
  step "operations.md and mysql.md: backup, restore, witnesses"
  run "$operations" 'mariadb-dump' 's|$| >/srv/dump.sql|'
  claim 2000
  run "$operations" 'systemctl stop idd.socket idd.service'
  shell 'mariadb idd </srv/dump.sql' || fail "the dump cannot be restored"
  run "$operations" 'systemctl start idd'
  claim 2000
  run "$mysql" 'idctl audit'
  run "$mysql" 'idctl witness list'
  says 'the only witness is there'
  # A host that will not return.
  in_tree mariadb idd -e "CREATE TEMPORARY TABLE gone SELECT * FROM idd_host;
    UPDATE gone SET host = 'gone', stopped_at = CURRENT_TIMESTAMP; INSERT INTO idd_host SELECT * FROM gone"
  local forget
  forget=$("$here/document.py" span "$operations" 'idctl host forget HOST')
  ran "$forget"
  wait_until shell "${forget/HOST/gone}"
  claim 10
  step "operations.md: from tinyid"
  in_tree mariadb -e "CREATE DATABASE tinyid; CREATE TABLE tinyid.tiny_id_info(id bigint PRIMARY KEY, biz_type varchar(63),
    begin_id bigint, max_id bigint, step int, delta int, remainder int, version bigint);
    INSERT INTO tinyid.tiny_id_info VALUES(1, 'invoices', 1, 70000, 1000, 1, 0, 1);
    CREATE USER reader@'10.0.%' IDENTIFIED BY 'read'"
  local grant
  grant=$("$here/document.py" span "$operations" 'GRANT SELECT ON')
  in_tree mariadb -e "${grant/.../reader@\'10.0.%\'}" || fail "'$grant' fails"
  shell 'echo read | install -o idd -m 0400 /dev/stdin /etc/idd/tinyid' || fail "no password file"
  run "$operations" 'idctl import tinyid --from'
  says invoices
  run "$operations" 'idctl import tinyid --from' 's/ --dry-run//'
  [[ $(in_tree idctl claim invoices) == 70001 ]] || fail "the import begins elsewhere"
}

# Every command that the pages ask to run was run, or is listed above.
check_all_ran() {
  step "no command of the pages is left"
  printf '%s\n' "${left_out[@]}" >>"$work/ran"
  local page
  for page in "$operations" "$mysql"; do
    "$here/document.py" commands "$page"
    "$here/document.py" blocks "$page" | sed "s/^/${page##*/}: /"
  done | sort -u >"$work/commands"
  sort -u "$work/ran" | comm -13 - "$work/commands" >"$work/never"
  [[ ! -s $work/never ]] || { cat "$work/never" >&2 && fail "the above was never run"; }
  "$here/document.py" commands "$operations" | cat - <("$here/document.py" commands "$mysql") | sort -u >"$work/commands"
  printf '%s\n' "${left_out[@]}" | sort | comm -23 - "$work/commands" >"$work/stale"
  [[ ! -s $work/stale ]] || { cat "$work/stale" >&2 && fail "the above is in left_out, not in a page"; }
}

check_sqlite
check_mysql
check_all_ran
step "done"

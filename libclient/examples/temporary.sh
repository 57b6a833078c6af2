# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts of the examples: a MariaDB server and an idd of their own, in a temporary
# folder, $folder, which goes away with them when the script ends.

set -euo pipefail
export LC_ALL=C.UTF-8
unset "${!IDD_@}"  # settings for the caller's own idd

folder=
server_log=
idd_log=
pids=()

# stop PID: SIGTERM, and SIGKILL after ten seconds.
stop() {
  kill -TERM "$1" 2>/dev/null || return 0
  for _ in {1..100}; do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

cleanup() {
  local status=$? index log
  trap - EXIT
  trap '' INT TERM
  if ((status != 0 && status != 77 && status < 128)); then
    for log in "$server_log" "$idd_log"; do
      [[ -s $log ]] || continue
      echo "the end of ${log##*/}:" >&2
      tail -n 10 "$log" >&2
    done
  fi
  # The last to start ends first: idd returns its ids to the database.
  for ((index = ${#pids[@]} - 1; index >= 0; --index)); do stop "${pids[index]}"; done
  [[ -z $folder ]] || rm -rf "$folder"
  exit "$status"
}

# fail MESSAGE: ends the script with status 1.
fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# run COMMAND...: runs it so that a signal to the script ends it at once.
run() {
  "$@" &
  pids+=($!)
  local status=0
  wait $! || status=$?
  unset 'pids[-1]'
  return "$status"
}

# Makes $folder. The server's user needs to enter it.
make_folder() {
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  folder=$(mktemp -d "${TMPDIR:-/tmp}/idd-examples.XXXXXX")
  chmod 0711 "$folder"
}

# find_server: sets $mariadbd, or returns false if a program of the server or its user is missing.
find_server() {
  mariadbd=$(PATH=$PATH:/usr/sbin:/usr/libexec command -v mariadbd) || return 1
  command -v mariadb-install-db >/dev/null && command -v mariadb >/dev/null || return 1
  server_user=()
  ((EUID != 0)) && return 0
  # mariadbd refuses to run as root.
  local user
  for user in mysql nobody; do
    getent passwd "$user" >/dev/null && server_user=("--user=$user") && return 0
  done
  return 1
}

# start_server OPTION...: starts mariadbd on a new data directory, with a Unix socket and a port on
# the loopback interface. Sets $server_socket, $server_port and $MYSQL_PWD, the password of the user
# `shop`, who owns the databases `shop` and `idd`. The caller is the administrator, over the socket.
start_server() {
  local data=$folder/data
  server_log=$folder/mariadbd.log
  server_socket=$folder/mariadbd/socket
  mkdir "$data" "$folder/mariadbd" "$folder/tmp"
  if ((EUID == 0)); then
    chown "${server_user[0]#--user=}" "$data" "$folder/mariadbd" "$folder/tmp"
  fi
  mariadb-install-db --no-defaults --datadir="$data" --tmpdir="$folder/tmp" --skip-test-db \
    --auth-root-authentication-method=socket --auth-root-socket-user="$(id -un)" \
    --innodb-log-file-size=8M "${server_user[@]}" >"$server_log" 2>&1 ||
    fail "mariadb-install-db failed"
  local options=(--no-defaults --datadir="$data" --socket="$server_socket"
    --pid-file="$data/pid" --tmpdir="$folder/tmp" --skip-log-bin --skip-name-resolve
    --bind-address=127.0.0.1 "${server_user[@]}")
  local _
  for _ in {1..10}; do
    server_port=$((20000 + RANDOM % 12000))  # another program may have it; then the next one
    "$mariadbd" "${options[@]}" --port="$server_port" "$@" >>"$server_log" 2>&1 &
    if wait_for_server $!; then
      pids+=($!)
      create_user
      return 0
    fi
    wait $! || true
  done
  fail "mariadbd did not start"
}

# wait_for_server PID: returns false if it ended.
wait_for_server() {
  local _
  for _ in {1..600}; do
    kill -0 "$1" 2>/dev/null || return 1
    sql 'SELECT 1' >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  stop "$1"
  return 1
}

create_user() {
  MYSQL_PWD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  export MYSQL_PWD
  local host statements='CREATE DATABASE shop CHARACTER SET utf8mb4; CREATE DATABASE idd;'
  for host in localhost 127.0.0.1; do
    statements+="CREATE USER shop@'$host' IDENTIFIED BY '$MYSQL_PWD';
      GRANT ALL ON shop.* TO shop@'$host'; GRANT ALL ON idd.* TO shop@'$host';
      GRANT PROCESS ON *.* TO shop@'$host';"
  done
  sql "$statements"
}

# sql STATEMENTS [DATABASE]: runs them as the administrator, prints the rows. Not --execute, because
# other users can read the command line.
sql() {
  mariadb --no-defaults --socket="$server_socket" --batch --skip-column-names "${2-}" <<<"$1"
}

# start_idd IDD IDCTL: starts idd on the server and sets $IDD_SOCKET, which every client reads.
start_idd() {
  idd_log=$folder/idd.log
  export IDD_SOCKET=$folder/idd.sock
  mkdir "$folder/state"
  # The URL is in the environment, because other users can read the command line.
  IDD_DATABASE="mysql://shop:$MYSQL_PWD@localhost/idd?unix_socket=$server_socket" \
    "$1" --socket "$IDD_SOCKET" --state-dir "$folder/state" 2>"$idd_log" &
  local pid=$! _
  pids+=("$pid")
  for _ in {1..100}; do
    "$2" status >/dev/null 2>&1 && return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  fail "idd does not answer on $IDD_SOCKET"
}

# find_python MODULE...: sets $python to an interpreter with these modules, or returns false.
# $PYTHON comes first, then the one in the path, then the system's, which has Debian's packages.
find_python() {
  local modules
  modules=$(printf 'import %s\n' "$@")
  for python in "${PYTHON:-python3}" /usr/bin/python3; do
    "$python" -c "$modules" >/dev/null 2>&1 && return 0
  done
  return 1
}

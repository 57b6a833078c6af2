#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=libclient/examples/temporary.sh
source "$(dirname "${BASH_SOURCE[0]}")/temporary.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

usage() {
  cat <<'USAGE'
usage: run.sh IDD IDCTL LIBRARY_DIR INCLUDE_DIRS PYTHON_SITE JAR

Runs every example against a temporary MariaDB server and a temporary idd, and checks the rows in
the database. An example whose tools are missing is skipped. Exit status: 0 all checks passed, 1 a
check failed, 77 no example could run.
  IDD, IDCTL    the programs
  LIBRARY_DIR   the folder of libidclient.so
  INCLUDE_DIRS  the folders of idclient/idclient.hpp and idd/shm/abi.h, with a colon between them
  PYTHON_SITE   the folder of the Python package idclient
  JAR           idclient-VERSION.jar
Each of them can also be a variable of this name. An empty one skips the examples that need it.
USAGE
}

case ${1-} in
  -h | --help)
    usage
    exit 0
    ;;
esac
idd=${1-${IDD-}} idctl=${2-${IDCTL-}} library_dir=${3-${LIBRARY_DIR-}}
include_dirs=${4-${INCLUDE_DIRS-}} python_site=${5-${PYTHON_SITE-}} jar=${6-${JAR-}}
if [[ -z $idd || -z $idctl ]] || (($# > 6)); then
  usage >&2
  exit 2
fi

ran=0
failed=0

has() { command -v "$1" >/dev/null; }

skip() { echo "SKIPPED $1: $2"; }

# expect WHAT WANTED SQL [DATABASE]: the statement's one value must be WANTED.
expect() {
  local got
  got=$(sql "$3" "${4-shop}")
  [[ $got == "$2" ]] && return 0
  echo "MISMATCH $1: expected $2, got $got" >&2
  failed=1
}

# check CHANNEL OUTPUT: what the program CHANNEL reported must be in the database.
check() {
  local orders items failed_before=$failed
  read -r orders items < <(sed -nE 's/^orders=([0-9]+) items=([0-9]+)$/\1 \2/p' "$2") ||
    fail "$1 printed no totals"
  expect "$1: orders" "$orders" "SELECT COUNT(*) FROM orders WHERE channel = '$1'"
  expect "$1: items" "$items" "SELECT COUNT(*) FROM order_items JOIN orders
    ON orders.id = order_items.order_id WHERE channel = '$1'"
  expect "$1: orders without items" 0 "SELECT COUNT(*) FROM orders LEFT JOIN order_items
    ON orders.id = order_items.order_id WHERE channel = '$1' AND order_items.id IS NULL"
  ran=$((ran + 1))
  ((failed == failed_before)) || return 0
  echo "ok $1: $orders orders, $items items (${SECONDS} s)"
}

# What all programs left in the tables together. The ids of a tag are unique across languages.
check_tables() {
  expect 'distinct ids of orders' 1 'SELECT COUNT(*) = COUNT(DISTINCT id) FROM orders'
  expect 'distinct ids of items' 1 'SELECT COUNT(*) = COUNT(DISTINCT id) FROM order_items'
  expect 'ids that idd did not lease' 0 "SELECT
    (SELECT COUNT(*) FROM shop.orders WHERE id < 1 OR id >=
      (SELECT max_id FROM idd.leaf_alloc WHERE biz_tag = 'orders')) +
    (SELECT COUNT(*) FROM shop.order_items WHERE id < 1 OR id >=
      (SELECT max_id FROM idd.leaf_alloc WHERE biz_tag = 'order_items'))"
  expect 'items without an order' 0 'SELECT COUNT(*) FROM order_items LEFT JOIN orders
    ON orders.id = order_items.order_id WHERE orders.id IS NULL'
  expect 'foreign keys' 1 "SELECT COUNT(*) FROM information_schema.REFERENTIAL_CONSTRAINTS
    WHERE CONSTRAINT_SCHEMA = 'shop' AND REFERENCED_TABLE_NAME = 'orders'"
}

# The build's folder has no package file for find_package(); this stands in for the installed one.
write_package_file() {
  cat >"$folder/idclientConfig.cmake" <<CMAKE
add_library(idclient::idclient SHARED IMPORTED)
set_target_properties(idclient::idclient PROPERTIES
  IMPORTED_LOCATION "$library_dir/libidclient.so"
  INTERFACE_INCLUDE_DIRECTORIES "${include_dirs//:/;}")
CMAKE
}

run_cpp() {
  if [[ -z $library_dir || -z $include_dirs ]]; then
    skip cpp 'no libidclient given'
    return
  fi
  if ! { has cmake && has c++ && has pkg-config && pkg-config --exists libmariadb; }; then
    skip cpp 'needs cmake, c++, pkg-config and libmariadb-dev'
    return
  fi
  write_package_file
  { run cmake -S "$here/cpp" -B "$folder/cpp" -Didclient_DIR="$folder" &&
    run cmake --build "$folder/cpp"; } >"$folder/cpp.log" 2>&1 ||
    { cat "$folder/cpp.log" >&2; fail 'the C++ example does not build'; }
  run "$folder/cpp/insert_orders" "$server_socket" shop shop 2000 >"$folder/cpp.out"
  check cpp "$folder/cpp.out"
}

run_python() {
  [[ -n $python_site ]] || { skip python 'no Python package given'; return; }
  export PYTHONPATH=$python_site
  find_python idclient sqlalchemy ||
    { skip python 'needs python3 with idclient and SQLAlchemy'; return; }
  local sqlite=$folder/orders.db
  run "$python" "$here/python/orders.py" "sqlite:///$sqlite" --orders 200 >"$folder/sqlite.out"
  [[ $(head -n 1 "$folder/sqlite.out") == 'orders=200 items=600' ]] || failed=1
  check_sqlite "$sqlite"
  find_python idclient sqlalchemy pymysql ||
    { skip 'python on MariaDB' 'needs PyMySQL'; return; }
  run "$python" "$here/python/orders.py" --workers 3 --orders 900 \
    "mysql+pymysql://shop@localhost/shop?unix_socket=$server_socket" >"$folder/python.out"
  check python "$folder/python.out"
}

check_sqlite() {
  ran=$((ran + 1))
  "$python" - "$1" <<'PYTHON' || { failed=1; return 0; }
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1])
got = rows.execute("""SELECT
    (SELECT COUNT(*) || '/' || COUNT(DISTINCT id) FROM orders) || ' ' ||
    (SELECT COUNT(*) || '/' || COUNT(DISTINCT id) FROM order_items)""").fetchone()[0]
lost = rows.execute("PRAGMA foreign_key_check").fetchall()
if got != "200/200 600/600" or lost:
    sys.exit(f"MISMATCH python on SQLite: rows/ids {got}, items without an order: {lost}")
PYTHON
  echo "ok python on SQLite (${SECONDS} s)"
}

run_java() {
  local driver=${MARIADB_JAR:-/usr/share/java/mariadb-java-client.jar}
  [[ -n $jar ]] || { skip java 'no jar given'; return; }
  if [[ ! -r $driver ]] || ! has javac; then
    skip java 'needs a JDK and libmariadb-java'
    return
  fi
  # -XX:TieredStopAtLevel=1: so short a run is over before more than the first compiler pays off.
  run java -XX:TieredStopAtLevel=1 -cp "$jar:$driver" "$here/java/OrderImport.java" \
    "jdbc:mariadb://127.0.0.1:$server_port/shop?rewriteBatchedStatements=true" shop 2000 \
    >"$folder/java.out"
  check java "$folder/java.out"
}

run_compare() {
  [[ -n $python_site ]] || { skip compare 'no Python package given'; return; }
  export PYTHONPATH=$python_site
  find_python idclient pymysql ||
    { skip compare 'needs python3 with idclient and PyMySQL'; return; }
  run "$python" "$here/compare/compare.py" --socket "$server_socket" --user shop --database shop \
    --tag compare --rows 4000 --rounds 1 --json >"$folder/compare.json"
  ran=$((ran + 1))
  "$python" - "$folder/compare.json" <<'PYTHON' || { failed=1; return 0; }
import json, sys
report = json.load(open(sys.argv[1]))
wrong = [kind["name"] for kind in report["keys"] if kind["rows"] != 4000 or kind["rows_per_s"] <= 0]
if wrong or len(report["keys"]) < 4 or len(report["parents"]) < 2:
    sys.exit(f"MISMATCH compare: {report}")
PYTHON
  echo "ok compare (${SECONDS} s)"
}

find_server || { skip 'all examples' 'need mariadb-server and mariadb-client'; exit 77; }
make_folder
start_server --innodb-buffer-pool-size=32M --innodb-log-file-size=16M
sql "$(cat "$here/schema.sql")" shop
start_idd "$idd" "$idctl"
for tag in orders order_items; do
  "$idctl" tag create "$tag" --step 1000 --description 'the examples' >/dev/null
done
"$idctl" tag create compare --step 100000 --description 'compare.py' >/dev/null
echo "MariaDB and idd are running (${SECONDS} s)"

run_cpp
run_python
run_java
run_compare
check_tables
"$idctl" audit >"$folder/audit" || { cat "$folder/audit" >&2; failed=1; }
((failed == 0)) || fail 'the database does not have what the examples reported'
((ran > 0)) || { echo 'no example could run'; exit 77; }
echo "all checks passed: $ran examples in ${SECONDS} s"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=libclient/examples/temporary.sh
source "$(dirname "${BASH_SOURCE[0]}")/../temporary.sh"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

if (($# < 3)); then
  cat >&2 <<'USAGE'
usage: compare/run.sh IDD IDCTL PYTHON_SITE [OPTION OF compare.py...]

Runs compare.py against a temporary MariaDB server whose buffer pool, 16 MiB, is smaller than the
tables, and a temporary idd.
USAGE
  exit 2
fi
idd=$1 idctl=$2
export PYTHONPATH=$3
shift 3

find_python idclient pymysql || fail 'needs python3 with idclient and PyMySQL'
find_server || fail 'needs mariadb-server and mariadb-client'
make_folder
start_server --innodb-buffer-pool-size=16M --innodb-log-file-size=96M
start_idd "$idd" "$idctl"
"$idctl" tag create compare --step 100000 --description 'compare.py' >/dev/null
run "$python" "$here/compare.py" --socket "$server_socket" --user shop --database shop \
  --tag compare "$@"

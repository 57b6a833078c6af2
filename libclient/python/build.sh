#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build.sh OUT_DIR LIBRARY_DIR INCLUDE_DIR [...]: builds the wheel of the Python client, which brings its
# own libidclient, and unpacks it in OUT_DIR/site, a folder for PYTHONPATH.
set -euo pipefail
out=$(realpath --canonicalize-missing "$1")
library_dir=$(realpath "$2")
includes=$(printf ' -I%s' "$(realpath "$3")")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
python=${PYTHON:-/usr/bin/python3}

# setuptools writes into the folder that it builds.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$here"/. "$copy"
cp "$library_dir/libidclient.so.0" "$copy/src/idclient/"
cd "$copy"
log=$copy/log
if ! CFLAGS="${CFLAGS:-}$includes" LDFLAGS="${LDFLAGS:-} -L$library_dir" \
  "$python" setup.py -q bdist_wheel --dist-dir dist >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
mkdir -p "$out"
rm -rf "$out"/site "$out"/idclient-*.whl
cp dist/*.whl "$out"
"$python" -m zipfile -e dist/*.whl "$out/site"

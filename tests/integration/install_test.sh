#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# install_test.sh BUILD_DIR: installs the build into a temporary folder, checks the installed files,
# and builds and runs programs against them, once with pkg-config and once with find_package.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d "${TMPDIR:-/tmp}/idd-install.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
prefix=$folder/usr

fail() {
  echo "install_test: $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$prefix" >"$folder/log"
pkgconfig=$(dirname "$(find "$prefix" -name idclient.pc)")
libdir=$(dirname "$pkgconfig")

for file in sbin/idd bin/idctl include/idclient/idclient.h include/idclient/idclient.hpp \
  include/idclient/thread_block.h include/idd/shm/{abi,claim_point,lane_sequences,ring_protocol}.h \
  lib/systemd/system/idd.service lib/systemd/system/idd.socket lib/sysusers.d/idd.conf lib/tmpfiles.d/idd.conf \
  share/doc/idd/{operations,mysql,failures,log-events,metrics,containers,capacity,refill}.md \
  share/doc/idd/{idd-dashboard.json,idd-alerts.rules.yml,containers/compose.yaml}; do
  [[ -s $prefix/$file ]] || fail "$file is not installed"
done
[[ -L $libdir/libidclient.so && -f $libdir/libidclient.so ]] || fail "libidclient.so is not a link"
readelf --dynamic "$libdir/libidclient.so" | grep -q 'SONAME.*\[libidclient\.so\.0\]' ||
  fail "the soname is not libidclient.so.0"
headers=$(find "$prefix/include" -type f | wc -l)
((headers == 7)) || fail "$headers headers are installed, not 7"
# Under a prefix that the system's linker does not search, idctl still finds its library, and the
# unit its program.
paths=$(readelf --dynamic --wide "$prefix/sbin/idd" "$prefix/bin/idctl" | sed -nE 's/.*R(UN)?PATH.*\[(.*)\]/\2/p')
[[ $paths == "\$ORIGIN/../${libdir#"$prefix/"}" ]] || fail "a program looks for libraries in '$paths'"
env -u LD_LIBRARY_PATH "$prefix/bin/idctl" --version >/dev/null || fail "idctl does not find its library"
grep -qx "ExecStart=$prefix/sbin/idd" "$prefix/lib/systemd/system/idd.service" || fail "the unit starts another idd"
# In /usr, as in a package, neither is needed.
DESTDIR=$folder/root cmake --install "$build" --prefix /usr >"$folder/log"
grep -qx 'ExecStart=/usr/sbin/idd' "$folder/root/usr/lib/systemd/system/idd.service" || fail "the unit of /usr starts another idd"
if readelf --dynamic "$folder/root/usr/bin/idctl" | grep -Eq 'R(UN)?PATH'; then
  fail "idctl of /usr has a path for libraries"
fi
rm -rf "$folder/root"
# Checks every page, and its links into the same folder.
while read -r page link; do
  [[ -e $(dirname "$page")/${link%%#*} ]] || fail "$page links to $link, which is not installed"
done < <(grep -oHE '\]\([^)]+' "$prefix"/share/doc/idd/*.md | sed 's/:\](/ /' | grep -Ev ' (https?:|#|\.\./)')

export LD_LIBRARY_PATH=$libdir PKG_CONFIG_PATH=$pkgconfig
socket=$folder/nobody.sock

read -ra flags <<<"$(pkg-config --cflags --libs idclient)"
"${CC:-cc}" -std=c11 -Wall -Wextra -Wpedantic ${WERROR:+-Werror} "$here/install/user.c" -o "$folder/user" \
  "${flags[@]}"
"$folder/user" "$socket"

configure() { cmake -G Ninja -S "$here/install" -DCMAKE_PREFIX_PATH="$prefix" "-DCMAKE_COMPILE_WARNING_AS_ERROR=${WERROR:+ON}" "$@"; }
{
  configure -B "$folder/build" &&
  cmake --build "$folder/build" &&
  configure -B "$folder/build_c" -DIDCLIENT_USER_LANGUAGES=C &&
  cmake --build "$folder/build_c"
} >"$folder/log" 2>&1 || {
  cat "$folder/log"
  fail "a project that uses find_package(idclient) does not build"
}
"$folder/build/user_c" "$socket"
"$folder/build/user_cc" "$socket"
"$prefix/sbin/idd" --version
"$prefix/bin/idctl" --version

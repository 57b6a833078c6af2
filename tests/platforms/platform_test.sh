#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# platform_test.sh ROOT SUITE test|gcc|clang: this source in a tree of Debian's SUITE with the packages of
# scripts/install-deps.
#   test        boots the tree, runs scripts/demo and the tests of the labels unit, abi, integration and
#               clients, and builds the packages for packages_test.sh
#   gcc, clang  compiles everything with that compiler and counts its warnings
# The versions of the tools go to ROOT/build/reports/platforms-SUITE.txt, ctest's report beside it. Exits 77,
# with the reason, where that is impossible. Keeps reusable files in ROOT/build.
set -euo pipefail
IDD_TEST_SUITE=${2:?} what=${3:?} name=platform-test-$3
# shellcheck source=tests/packages/common.sh
source "${1:?}/tests/packages/common.sh"
reports=$root/build/reports
compiled=$root/build/platforms-ccache/$suite

make_platform() {
  step "make a tree of Debian's $suite with the packages of scripts/install-deps"
  local packages
  # This machine may have Node.js from elsewhere, and then its script leaves these two out.
  mapfile -t packages < <("$root/scripts/install-deps" test --list && printf '%s\n' nodejs libnode-dev)
  make_tree "$root/build/platforms-tree" "$suite" "$(printf '%s\n' "${packages[@]}" | sort -u | paste -sd ,)" 9>&- || {
    tail -n 5 "$work/debootstrap.log" >&2
    echo "$name: skipped, there is no Debian mirror to be reached, or it lacks a package"
    exit 77
  }
  # The tests run their own servers.
  in_chroot systemctl --quiet disable mariadb.service prometheus.service >/dev/null 2>&1 || true
  mkdir -p "$tree/src/idd" "$reports" "$compiled"
  tar -C "$root" --exclude=./build --exclude=./.git -cf - . | tar -C "$tree/src/idd" --no-same-owner -xf -
}

# in_source RUNNER COMMAND: the shell's COMMAND in the tree's copy of the source, by in_chroot or in_tree.
in_source() {
  "$1" env HOME=/root CCACHE_DIR=/src/ccache CCACHE_MAXSIZE=5G nice bash -euo pipefail -c "cd /src/idd && $2" 9>&-
}

# build RUNNER COMMAND: likewise, with the compiler's output of earlier runs. Its log is in $work/build.log.
build() {
  local status=0
  rm -rf "$tree/src/ccache"
  mv "$compiled" "$tree/src/ccache"
  in_source "$1" "$2" >"$work/build.log" 2>&1 || status=$?
  mv "$tree/src/ccache" "$compiled"
  ((status == 0)) || { { grep -E -A 3 -m 20 'error: ' "$work/build.log" || true; tail -n 40 "$work/build.log"; } >&2 && fail "'$2' fails"; }
}

write_versions() {
  # shellcheck disable=SC2016  # the inner shell's
  in_source "$1" '
    echo "Debian $(cat /etc/debian_version), $(date --utc +%F)"
    for program in g++ clang++ cmake mariadbd python3 go node; do
      case $program in go) go version ;; mariadbd) mariadbd --no-defaults --version 2>/dev/null ;; *) $program --version ;; esac | sed -n 1p
    done
    javac --version
    dpkg-query --show --showformat="\${Package} \${Version}\n" libboost-dev libmariadb3 libspdlog-dev libsqlite3-0 systemd
  ' >"$reports/platforms-$suite.txt"
}

compile_all() {
  local cxx=$1 cc=$2
  write_versions in_chroot
  step "compile everything with $cxx"
  build in_chroot "cmake --preset dev -B build/$what -D CMAKE_CXX_COMPILER=$cxx -D CMAKE_C_COMPILER=$cc &&
    cmake --build build/$what --parallel $(nproc) --target all all_verify_interface_header_sets"
  step "warnings: $(grep -E ': warning: ' "$work/build.log" | sort -u | tee "$reports/platforms-$suite-$what.warnings" | wc -l)"
}

run_tests() {
  boot_tree 9>&- || { cat "$work/console.log" >&2 && fail "systemd does not come up"; }
  write_versions in_tree
  step "scripts/demo"
  build in_tree 'scripts/demo'
  step "build the tests"
  build in_tree 'cmake --preset dev && cmake --build --preset dev'
  step "packages"
  build in_tree 'scripts/package --no-install --no-symbols --revision 2 && scripts/package --no-install --no-symbols --clients'
  local revision
  rm -rf "$debs"
  for revision in 1 2; do
    mkdir -p "$debs/$revision"
    cp "$tree"/src/idd/build/packages/*-"${revision}"_*.deb "$debs/$revision"
  done
  step "unit, abi, integration and clients"
  local status=0
  in_source in_tree "IDD_TEST_STRESS_PERCENT=10 ctest --preset dev --parallel $((3 * $(nproc))) \
    --label-regex '^(unit|abi|integration|clients)\$' --output-junit /src/report.xml" >"$work/tests.log" 2>&1 || status=$?
  cp "$tree/src/report.xml" "$reports/platforms-$suite-tests.xml" || true
  grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test .* (Passed|\*\*\*Skipped) )' "$work/tests.log" || true
  ((status == 0)) || fail "tests fail in $suite"
}

make_platform
case $what in
  test) run_tests ;;
  gcc) compile_all g++ gcc ;;
  clang) compile_all clang++ clang ;;
  *) fail "what is '$what'?" ;;
esac
step "done"

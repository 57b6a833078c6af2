#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# arm64.sh ROOT: compiles the ring and its tests for AArch64 and runs them under qemu. It shows that
# the code compiles there, that the layout of abi.h is the same and that the tests pass with
# AArch64's instructions. The memory ordering is still the host's: README.md.
set -euo pipefail
root=$(realpath "$1")
gtest=/usr/src/googletest/googletest
compiler=aarch64-linux-gnu-g++

for needed in "$compiler" qemu-aarch64; do
  if ! command -v "$needed" >/dev/null; then
    echo "skipped: $needed is not installed"
    exit 77
  fi
done
if [[ ! -e $gtest/src/gtest-all.cc ]]; then
  echo "skipped: the source of GoogleTest (package googletest) is not installed"
  exit 77
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/idd-arm64.XXXXXX")
trap 'rm -rf "$work"' EXIT

flags=(-std=c++20 -O1 -Wall -Wextra ${WERROR:+-Werror} -pthread
  -I"$root/shm/include" -I"$root/tests/unit"
  -isystem "$gtest/include" -isystem "$gtest")
compile() { "$compiler" "${flags[@]}" -c "$1" -o "$work/$(basename "$1" .cc).o"; }

# Compiling GoogleTest takes as long as all the rest.
compile "$gtest/src/gtest-all.cc" &
library=$!
for source in "$gtest/src/gtest_main.cc" "$root"/shm/src/*.cc "$root"/tests/unit/{lane_claimer,lane_sequences,ring_claimer,ring_observer,ring_writer}_test.cc; do
  compile "$source"
done
wait "$library"
# The linker warns about getaddrinfo in a static program, GoogleTest about fork() under qemu.
quietly() {
  "$@" >"$work/log" 2>&1 && return
  cat "$work/log"
  exit 1
}
quietly "$compiler" -static -pthread "$work"/*.o -o "$work/ring_tests"
# A death test of the "threadsafe" style would start the program without qemu.
quietly qemu-aarch64 "$work/ring_tests" --gtest_death_test_style=fast
tail -n 1 "$work/log"

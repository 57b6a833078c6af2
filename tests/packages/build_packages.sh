#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# build_packages.sh ROOT: builds the Debian packages twice, the second time with a higher revision,
# into ROOT/build/packages-test-debs/1 and 2, for the tests in this folder. IDD_TEST_NO_SYMBOLS=1
# leaves out the packages of debug symbols, which need a build of their own. Exits 77 where those
# tests cannot run.
set -euo pipefail
root=$1
debs=$root/build/packages-test-debs
log=$root/build/packages-test-debs.log
work=$debs  # for debian_tree.sh
# shellcheck source=tests/packages/debian_tree.sh
source "$root/tests/packages/debian_tree.sh"

if ! reason=$(can_boot); then
  echo "build_packages: skipped, $reason"
  exit 77
fi
mkdir -p "$root/build"
rm -rf "$debs"
# The lower revision last, because the build folder should keep that one.
options=(--no-symbols)
for revision in 2 1; do
  "$root/scripts/package" --no-install --revision "$revision" "${options[@]}" >"$log" 2>&1 ||
    { cat "$log" >&2 && exit 1; }
  mkdir -p "$debs/$revision"
  xargs -I{} cp "$root/{}" "$debs/$revision" < <(grep '^build/packages/.*\.deb$' "$log")
  [[ -n ${IDD_TEST_NO_SYMBOLS-} ]] || options=()
  # Only the packages that a developer would install stay in the build folder.
  ((revision == 1)) || rm "$root"/build/packages/*-"${revision}_"*.deb
done
count=$(find "$debs" -name '*.deb' | wc -l) expected=8
[[ -z ${IDD_TEST_NO_SYMBOLS-} ]] || expected=6
((count == expected)) || { echo "build_packages: $count packages were built, not $expected" >&2 && exit 1; }

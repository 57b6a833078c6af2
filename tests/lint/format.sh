#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# format.sh ROOT: every C and C++ file is formatted as by clang-format. To fix a file: clang-format
# -i FILE.
set -euo pipefail
root=$(realpath "$1")
# shellcheck source=tests/lint/source_files.sh
source "$(dirname "$0")/source_files.sh"

if ! command -v clang-format >/dev/null; then
  echo "skipped: clang-format is not installed"
  exit 77
fi
# Each major version formats a little differently; this one is Debian 12's.
version=$(clang-format --version)
if [[ $version != *' version 14.'* ]]; then
  echo "skipped: not clang-format 14 but ${version#* version }"
  exit 77
fi
source_files "$root" '*.h' '*.hpp' '*.c' '*.cc' |
  xargs -0 --no-run-if-empty clang-format --dry-run --Werror

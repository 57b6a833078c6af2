# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by debian_tree.sh and by scripts/mysql-tree.

# The Debian mirror that this machine uses, or Debian's own.
debian_mirror() {
  local mirrors
  mirrors=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null |
    grep -v '^#' | grep -oE 'https?://[^ ]+/debian/?( |$)' | tr -d ' ') || true
  echo "${mirrors:-http://deb.debian.org/debian}" | sed -n 1p
}

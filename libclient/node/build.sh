#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the addon and the npm package of idclient, without a network.
#
#   build.sh OUT_DIR LIBRARY_DIR INCLUDE_DIR...
#
# LIBRARY_DIR has libidclient.so.0; the INCLUDE_DIRs have idclient/idclient.hpp and idd/shm/abi.h.
# Makes OUT_DIR/idclient.node, libidclient.so.0 and idclient-VERSION.tgz. CXX is the compiler.
# NODE_INCLUDE_DIR is the folder of node_api.h, which is found without it in the usual places.
set -euo pipefail

if (($# < 3)); then
  echo "usage: build.sh OUT_DIR LIBRARY_DIR INCLUDE_DIR..." >&2
  exit 2
fi
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
out_dir=$(cd "$1" && pwd)
library_dir=$2
shift 2

# Debian's libnode-dev, other packages, and the folder of the node in PATH.
find_node_headers() {
  local node_prefix=/usr dir
  if command -v node >/dev/null; then
    node_prefix=$(dirname "$(dirname "$(readlink -f "$(command -v node)")")")
  fi
  for dir in "${NODE_INCLUDE_DIR:-}" "$node_prefix/include/node" /usr/include/node \
    /usr/include/nodejs/src /usr/include/nodejs /usr/local/include/node; do
    if [[ -n $dir && -f $dir/node_api.h ]]; then
      echo "$dir"
      return
    fi
  done
  echo "build.sh: node_api.h not found; install libnode-dev or set NODE_INCLUDE_DIR" >&2
  return 1
}

# As process.arch of node has it.
node_arch() {
  case $(uname -m) in
    x86_64) echo x64 ;;
    aarch64) echo arm64 ;;
    *) uname -m ;;
  esac
}

headers=$(find_node_headers)
arch=$(node_arch)
version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' "$source_dir/package.json")

includes=()
for dir in "$@"; do includes+=("-I$dir"); done

# nodelete: a thread may keep the address of a restartable sequence in the addon's claims.
install -m 0644 "$library_dir/libidclient.so.0" "$out_dir/libidclient.so.0"
"${CXX:-c++}" -std=c++20 -O2 -Wall -Wextra ${WERROR:+-Werror} -fPIC -shared -fvisibility=hidden \
  -isystem "$headers" "${includes[@]}" "$source_dir/src/addon.cc" \
  -o "$out_dir/idclient.node" "$out_dir/libidclient.so.0" \
  -Wl,-rpath,"\$ORIGIN" -Wl,-z,nodelete -Wl,-z,relro,-z,now

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
package=$stage/package
mkdir -p "$package/prebuilt/linux-$arch"
cp -r "$source_dir/package.json" "$source_dir/README.md" "$source_dir/index.d.ts" \
  "$source_dir/lib" "$package/"
if [[ -f $source_dir/../../LICENSE ]]; then cp "$source_dir/../../LICENSE" "$package/"; fi
install -m 0755 "$out_dir/idclient.node" "$package/prebuilt/linux-$arch/"
install -m 0644 "$out_dir/libidclient.so.0" "$package/prebuilt/linux-$arch/"

tarball=$out_dir/idclient-$version.tgz
pack_with_npm() {
  command -v npm >/dev/null || return 1
  (cd "$package" && HOME=$stage npm pack --offline --ignore-scripts --silent \
    --update-notifier=false --pack-destination "$stage" "$package") >"$stage/npm.log" 2>&1 &&
    mv -f "$stage/idclient-$version.tgz" "$tarball"
}
if ! pack_with_npm; then
  tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@499162500 \
    -czf "$tarball" package
fi

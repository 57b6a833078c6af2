#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# library.sh LIBIDCLIENT: the library exports only functions idclient_* and the pointer that inlined
# claims from thread blocks need, each with a symbol version. It needs only libc, because every program
# on a host may have to load it, and little thread-local storage, because it may be loaded late.
set -euo pipefail
library=$1
failed=0

if ! command -v nm >/dev/null || ! command -v readelf >/dev/null; then
  echo "skipped: binutils is not installed"
  exit 77
fi

# Lines: `address type name@@version`; type A marks the name of the version itself.
while read -r _ type symbol; do
  [[ $type == A ]] && continue
  [[ $type == B && $symbol == idclient_thread_blocks@@IDCLIENT_0 ]] && continue
  if [[ $type != T || ! $symbol =~ ^idclient_[a-z_]+@@IDCLIENT_[0-9]+$ ]]; then
    echo "$library: exports $symbol (type $type)"
    failed=1
  fi
done < <(nm --dynamic --defined-only --with-symbol-versions "$library")

exported=$(nm --dynamic --defined-only "$library" | grep -c ' T idclient_' || true)
if ((exported == 0)); then
  echo "$library: exports no idclient_* function"
  failed=1
fi

while read -r needed; do
  case $needed in
    libc.so.6 | ld-linux*.so.*) ;;
    *)
      echo "$library: needs $needed"
      failed=1
      ;;
  esac
done < <(readelf --dynamic --wide "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')

# Columns: type, offset, two addresses, size in the file, size in memory.
tls=$(readelf --segments --wide "$library" | awk '$1 == "TLS" { print $6 }')
if ((${tls:-0} > 16)); then
  echo "$library: takes $((tls)) bytes of thread-local storage; 16 at most"
  failed=1
fi

for what in 'GNU_STACK .*RWE' 'TEXTREL'; do
  if readelf --segments --dynamic --wide "$library" | grep -Eq "$what"; then
    echo "$library: has $what"
    failed=1
  fi
done
exit $failed

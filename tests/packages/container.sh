#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# container.sh TREE [--user UID:GID] [--group GID]... [--capability NAME]... [--read-only]
#   [--volume SOURCE:PATH[:ro]]... [--environment NAME=VALUE]... -- COMMAND...
# Becomes COMMAND with TREE as its root, as a container runtime would start it: only the volumes are
# shared. Run it as pid 1 of new pid, mount, ipc, uts, net and cgroup namespaces; all its mounts end
# with them. Without --capability the process can never have one.
set -euo pipefail
umask 022
tree=$1
shift
user=0:0 groups=() capabilities=-all read_only=0 volumes=()
environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin)
while [[ $1 != -- ]]; do
  case $1 in
    --user) user=$2 ;;
    --group) groups+=("$2") ;;
    --capability) capabilities+=,+$2 ;;
    --volume) volumes+=("$2") ;;
    --environment) environment+=("$2") ;;
    --read-only)
      read_only=1
      shift
      continue
      ;;
    *) echo "container.sh: what is '$1'?" >&2 && exit 2 ;;
  esac
  shift 2
done
shift

mount --make-rprivate /
mount --bind "$tree" "$tree"
cd "$tree"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
  touch "dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/shm
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s /proc/self/fd dev/fd
for volume in "${volumes[@]}"; do
  IFS=: read -r source path mode <<<"$volume"
  [[ ! -d $source ]] || mkdir -p ".$path"
  mount --bind "$source" ".$path"
  [[ -z $mode ]] || mount -o "remount,bind,$mode" ".$path"
done
((!read_only)) || mount -o remount,bind,ro .
pivot_root . .
umount -l .
cd /
other_groups=(--clear-groups)
((!${#groups[@]})) || other_groups=(--groups "$(IFS=, && echo "${groups[*]}")")
# This process is no child of the test any more, but it must end with it.
exec env -i "${environment[@]}" setpriv --reuid "${user%:*}" --regid "${user#*:}" "${other_groups[@]}" \
  --bounding-set="$capabilities" --inh-caps=-all --no-new-privs --pdeathsig KILL "$@"

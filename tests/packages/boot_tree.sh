#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot_tree.sh TREE: becomes systemd with TREE as its root. Run it as pid 1 of new pid, mount, ipc,
# uts, network and cgroup namespaces; all its mounts end with them.
set -euo pipefail
tree=$1

mount --make-rprivate /
mount --bind "$tree" "$tree"
cd "$tree"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
# The namespace shows only its own part of the hierarchy, whatever else the host has mounted.
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
  touch "dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
pivot_root . .
umount -l .
cd /
# systemd does this itself unless it runs in a container; units get their credentials by mount
# propagation.
mount --make-rshared /
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=idd-test /lib/systemd/systemd --show-status=no

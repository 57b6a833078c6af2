# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Sourced by common.sh: a Debian tree with a running systemd. Needs $work, the test's own folder,
# and $suite. Sets $tree, the tree's root, and with boot_tree $machine, systemd's pid.

# shellcheck source=tests/packages/debian_mirror.sh
source "$(dirname "${BASH_SOURCE[0]}")/debian_mirror.sh"

tree=$work/tree
cgroup=
booter=

# can_boot: whether this machine can boot a tree; otherwise prints why not.
can_boot() {
  local tool
  ((EUID == 0)) || { echo "not root" && return 1; }
  for tool in debootstrap dpkg-deb nsenter setpriv unshare; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed" && return 1; }
  done
  [[ -n $(cgroup_root) ]] || { echo "no cgroup v2 hierarchy that can be written" && return 1; }
  unshare --pid --mount --ipc --uts --net --cgroup --fork --mount-proc true 2>/dev/null ||
    { echo "no namespaces may be made here" && return 1; }
}

# The host's cgroup v2 hierarchy: alone, or beside those of version 1.
cgroup_root() {
  local mount
  while read -r mount; do
    [[ -w $mount/cgroup.procs ]] && echo "$mount" && return
  done < <(awk '$3 == "cgroup2" { print $2 }' /proc/mounts)
}

# make_tree CACHE USE DEPENDENCIES: a minimal Debian of $suite with systemd and the dependencies, so
# that nothing in it needs a network. CACHE keeps one archive for each use; other dependencies
# rebuild it.
make_tree() {
  local cache=$1 use=$2 dependencies=$3 archive
  archive=$cache/$use-$(echo "$dependencies" | md5sum | cut -c 1-12).tar
  mkdir -p "$cache" "$tree"
  if [[ ! -s $archive ]]; then
    debootstrap --variant=minbase --include=systemd "$suite" "$tree" \
      "$(debian_mirror)" >"$work/debootstrap.log" 2>&1 || return 1
    in_chroot apt-get --quiet --quiet satisfy --yes --no-install-recommends "$dependencies" \
      >>"$work/debootstrap.log" 2>&1 || return 1
    in_chroot apt-get clean
    # Only a complete archive gets this name.
    rm -f "$cache/$use"-*.tar
    tar -C "$tree" --one-file-system -cf "$archive.part" .
    mv "$archive.part" "$archive"
  else
    tar -C "$tree" -xf "$archive"
  fi
}

# in_chroot COMMAND...: runs it in the tree without systemd, as root; its processes and its /proc end
# with it.
in_chroot() {
  # shellcheck disable=SC2016  # the inner shell's
  unshare --mount --pid --fork --kill-child sh -c \
    'mount --make-rprivate / && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$tree" \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

# boot_tree: starts systemd in the tree, and waits until it has finished starting.
boot_tree() {
  cgroup=$(cgroup_root)/idd-packages-$$
  # A killed run leaves an empty one.
  local old
  for old in "${cgroup%-*}"-*; do
    [[ ! -d $old || -d /proc/${old##*-} ]] || find "$old" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
  mkdir "$cgroup"
  # When this script is killed, unshare ends too, and then, with pid 1, everything inside.
  (
    echo "$BASHPID" >"$cgroup/cgroup.procs"
    exec setpriv --pdeathsig KILL unshare --pid --mount --ipc --uts --net --cgroup --fork --kill-child \
      "$(dirname "${BASH_SOURCE[0]}")/boot_tree.sh" "$tree" </dev/null >"$work/console.log" 2>&1
  ) &
  booter=$!
  local tries
  for ((tries = 0; tries < 300; ++tries)); do
    machine=$(cat "/proc/$booter/task/$booter/children" 2>/dev/null || true)
    machine=${machine%% *}
    # Its exit status is false if the system is degraded, as where no kernel module can be loaded.
    if [[ -n $machine && $(in_tree systemctl is-system-running 2>/dev/null) =~ ^(running|degraded)$ ]]; then
      return 0
    fi
    kill -0 "$booter" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

# in_tree COMMAND...: runs it in the running tree, as root.
in_tree() {
  nsenter --target "$machine" --all env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
}

# end_tree: ends everything that runs in the tree; its mounts end with it.
end_tree() {
  [[ -z $booter ]] || kill -KILL "$booter" 2>/dev/null || true
  [[ -z $booter ]] || wait "$booter" 2>/dev/null || true
  booter=
  if [[ -n $cgroup && -d $cgroup ]]; then
    local tries
    for ((tries = 0; tries < 50; ++tries)); do
      find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [[ -d $cgroup ]] || return 0
      sleep 0.1
    done
    echo "left behind: processes in $cgroup" >&2
    return 1
  fi
}

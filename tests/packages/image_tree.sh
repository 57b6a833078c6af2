# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Sourced by image_test.sh after common.sh: the image of docs/containers/Dockerfile as a tree, and
# containers of it as the manifests describe them.

recipe=$root/docs/containers/Dockerfile
volumes=$work/volumes
# Of each container that runs, by its name: the process that waits for it.
declare -A containers=()

of_recipe() { "$here/dockerfile.py" "$recipe" "$1"; }

# make_base: a tree in place of debian:bookworm-slim. Its only source of packages is the directory
# /srv/mirror, with all that the recipe installs from Debian, so that the recipe's commands need no
# network. Kept for later runs.
make_base() {
  local cache=$root/build/packages-tree archive dependencies packages
  dependencies=$(dpkg-deb --field "$debs"/1/idd_*.deb Depends | sed 's/libidclient0 ([^)]*), //')
  dependencies+=", $(dpkg-deb --field "$debs"/1/libidclient0_*.deb Depends)"
  mapfile -t packages < <(of_recipe packages)
  archive=$cache/image-$(echo "$dependencies ${packages[*]}" | md5sum | cut -c 1-12).tar
  mkdir -p "$cache" "$tree"
  if [[ ! -s $archive ]]; then
    debootstrap --variant=minbase bookworm "$tree" "$(debian_mirror)" >"$work/debootstrap.log" 2>&1 || return 1
    chroot "$tree" apt-get --quiet --quiet clean
    # The recipe's packages first, because they decide which alternative a dependency means.
    chroot "$tree" env -i PATH="$PATH" LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet satisfy --yes \
      --no-install-recommends --download-only "$(IFS=, && echo "${packages[*]}"), $dependencies" \
      >>"$work/debootstrap.log" 2>&1 || return 1
    mkdir "$tree/srv/mirror"
    mv "$tree"/var/cache/apt/archives/*.deb "$tree/srv/mirror"
    (cd "$tree/srv/mirror" && dpkg-scanpackages . >Packages 2>>"$work/debootstrap.log") || return 1
    rm -rf "$tree"/var/lib/apt/lists/* "$tree"/etc/apt/sources.list.d/*
    echo 'deb [trusted=yes] file:/srv/mirror ./' >"$tree/etc/apt/sources.list"
    rm -f "$cache"/image-*.tar
    tar -C "$tree" --one-file-system -cf "$archive.part" .
    mv "$archive.part" "$archive"
  else
    tar -C "$tree" -xf "$archive"
  fi
}

# copy_packages: the recipe's COPY, from the packages of build_packages.sh instead of the first
# stage.
# shellcheck disable=SC2086  # a source is a pattern
copy_packages() {
  local from sources target file
  read -r from sources < <(of_recipe COPY)
  [[ $from == --from=build ]] || fail "the recipe copies from '$from', not from its first stage"
  target=${sources##* }
  for file in ${sources% *}; do
    [[ $file == /src/build/packages/* ]] || fail "the recipe copies $file, which scripts/package does not make"
    cp "$debs"/1/${file#/src/build/packages/} "$tree$target"
  done
}

# run_recipe: the recipe's RUN lines, each as root in the tree with /proc and without a network.
run_recipe() {
  local line
  while IFS= read -r line; do
    # shellcheck disable=SC2016  # the inner shell's
    unshare --mount --pid --net --ipc --uts --fork --kill-child sh -c 'mount --make-rprivate / && mount -t proc proc "$1/proc" &&
        exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive sh -c "$2"' \
      sh "$tree" "$line" >"$work/said" 2>&1 || { tail -n 30 "$work/said" >&2 && fail "RUN '${line:0:60}...' fails"; }
  done < <(of_recipe RUN)
}

# build_with_buildah: the same recipe with a real builder, from the tree of make_base and the same
# packages. Prints what that image says about itself, and its two directories.
build_with_buildah() {
  local store=(buildah --root "$work/store" --runroot "$work/store-run" --storage-driver vfs) base built path
  mkdir -p "$work/context/src/build/packages"
  cp "$debs"/1/*.deb "$work/context/src/build/packages"
  base=$("${store[@]}" from scratch)
  "${store[@]}" add --quiet "$base" "$tree" / >/dev/null
  "${store[@]}" commit --quiet "$base" localhost/debian:bookworm-slim >/dev/null
  # Isolation by chroot needs no runtime, which may not run where the test does.
  "${store[@]}" build --isolation chroot --pull-never --format docker --build-context "build=$work/context" \
    --tag localhost/idd:test --file "$recipe" "$root" >"$work/said" 2>&1 || { tail -n 30 "$work/said" >&2 && return 1; }
  built=$("${store[@]}" from --pull-never localhost/idd:test)
  "${store[@]}" inspect --type image --format \
    '{{.Docker.Config.User}} {{.Docker.Config.Entrypoint}} {{.Docker.Config.Healthcheck.Test}}' localhost/idd:test
  echo
  path=$("${store[@]}" mount "$built")
  (cd "$path" && stat -c '%u:%g %a %n' run/idd var/lib/idd && find tmp -mindepth 1)
  "${store[@]}" umount --all >/dev/null
}

# start NAME MANIFEST CONTAINER: as NAME; its output goes to $work/NAME.log.
start() {
  local arguments
  mapfile -d '' -t arguments < <("$here/container_arguments.py" "$recipe" "$root/docs/containers/$2" "$3" "$volumes")
  ((${#arguments[@]})) || fail "there is no container $3 in $2"
  run_container "$1" "${arguments[@]}"
}

# run_container NAME ARGUMENTS...: those of container.sh.
run_container() {
  local container=$1
  shift
  setpriv --pdeathsig KILL unshare --pid --mount --ipc --uts --net --cgroup --fork --kill-child \
    "$here/container.sh" "$tree" "$@" </dev/null >"$work/$container.log" 2>&1 9>&- &
  containers[$container]=$!
}

# pid_of NAME: the container's process 1, as this machine numbers it.
pid_of() {
  local children
  children=$(cat "/proc/${containers[$1]}/task/${containers[$1]}/children" 2>/dev/null) || return 1
  [[ -n $children ]] && echo "${children%% *}"
}

# execute NAME COMMAND...: in the running container as its user, as a runtime would.
execute() {
  local pid
  pid=$(pid_of "$1") || return 1
  nsenter --target "$pid" --all --wd=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin setpriv --reuid "${image_user%:*}" \
    --regid "${image_user#*:}" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs "${@:2}"
}

# ends NAME STATUS: whether the container ends by itself, with that exit status.
ends() {
  local status=0
  wait "${containers[$1]}" || status=$?
  unset "containers[$1]"
  ((status == $2)) || { cat "$work/$1.log" >&2 && fail "container $1 ends with $status, not $2"; }
}

# signal NAME SIGNAL: to its process 1.
signal() { kill "-$2" "$(pid_of "$1")"; }

# crash NAME: kills its process 1.
crash() {
  signal "$1" KILL
  wait "${containers[$1]}" 2>/dev/null || true
  unset "containers[$1]"
}

# new_volume NAME [PATH]: as a runtime makes a named volume: like the image's directory PATH.
new_volume() {
  mkdir -p "$volumes"
  cp -a "$tree$2" "$volumes/$1"
}

end_containers() {
  local name
  for name in "${!containers[@]}"; do
    kill -KILL "${containers[$name]}" 2>/dev/null || true
    wait "${containers[$name]}" 2>/dev/null || true
  done
  containers=()
}

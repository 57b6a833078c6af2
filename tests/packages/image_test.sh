#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image_test.sh ROOT: builds the tree of the container image with the commands of
# docs/containers/Dockerfile, from the packages of build_packages.sh, and runs containers of it as
# compose.yaml, daemonset.yaml and sidecar.yaml of that folder describe them: users, capabilities,
# volumes, commands and probes are read from these files. Programs claim through the shared directory
# alone. Exits 77, with the reason, where that is impossible. Keeps reusable files in ROOT/build.
set -euo pipefail
name=image-test
# shellcheck source=tests/packages/common.sh
source "${1:?}/tests/packages/common.sh"
# shellcheck source=tests/packages/image_tree.sh
source "$root/tests/packages/image_tree.sh"
# For cleanup in common.sh.
end_tree() { end_containers; }

build_image() {
  step "the image's tree, as the Dockerfile says"
  make_base 9>&- || {
    tail -n 5 "$work/debootstrap.log" >&2
    echo "$name: skipped, there is no Debian mirror to be reached"
    exit 77
  }
  check_buildah
  copy_packages
  run_recipe
  image_user=$(of_recipe USER)
  read -ra health_check < <(of_recipe health-check)
  [[ $image_user != 0:* ]] || fail "the image's user is root"
  [[ $(chroot "$tree" id -u idd):$(chroot "$tree" id -g idd) == "$image_user" ]] ||
    fail "USER $image_user is not user and group idd of the image"
  local path
  for path in $(of_recipe VOLUME); do
    [[ $(stat -c %u:%g "$tree$path") == "$image_user" ]] || fail "$path of the image is not user idd's"
  done
  [[ $(stat -c %a "$tree/run/idd") == 755 && $(stat -c %a "$tree/var/lib/idd") == 700 ]] ||
    fail "the image's directories do not have the modes of tmpfiles.d"
  [[ -z $(find "$tree/tmp" -mindepth 1) ]] || fail "the image keeps files in /tmp"
  # The directory is the test's, the lists apt's.
  rm -rf "$tree/srv/mirror"
}

# A second opinion, where it can be had.
check_buildah() {
  if ! command -v buildah >/dev/null; then
    step "buildah is not installed, so only this test reads the Dockerfile"
    return
  fi
  step "buildah builds the same Dockerfile"
  local user
  user=$(of_recipe USER)
  build_with_buildah >"$work/built" || fail "buildah does not build the image"
  diff - "$work/built" <<EXPECTED >&2 || fail "buildah's image is another one"
$user [$(of_recipe ENTRYPOINT)] [CMD $(of_recipe health-check)]
$user 755 run/idd
$user 700 var/lib/idd
EXPECTED
  step "run the Dockerfile's commands"
}

is_healthy() { execute "$1" "${health_check[@]}" >"$work/said" 2>&1; }

# claim NAME: a container `orders` of Compose, which must end well; its ids go to $work/ids.
claim() {
  start "$1" compose.yaml orders
  ends "$1" 0
  cat "$work/$1.log" >>"$work/ids"
  (($(wc -l <"$work/$1.log") == 5)) || fail "not 5 ids: $(cat "$work/$1.log")"
  [[ -z $(sort "$work/ids" | uniq -d) ]] || fail "ids came twice"
}

# audit NAME: of the container, after wait_until is_healthy.
audit() {
  execute "$1" idctl audit >"$work/said" 2>&1 || { cat "$work/said" >&2 && fail "the audit does not add up"; }
}

check_confinement() {
  local line pid
  pid=$(pid_of "$1")
  for line in "Uid: ${image_user%:*} ${image_user%:*} ${image_user%:*} ${image_user%:*}" 'NoNewPrivs: 1' \
    'CapEff: 0000000000000000' 'CapBnd: 0000000000000000'; do
    grep -qx "$line" <(tr '\t' ' ' <"/proc/$pid/status") || fail "idd's process in $1 lacks '$line'"
  done
  [[ $(cat "/proc/$pid/comm") == idd ]] || fail "process 1 of $1 is not idd"
  fails 1 execute "$1" touch /var/lib/left-behind
}

check_compose() {
  step "compose.yaml: idd without root serves a program in another container"
  new_volume idd-run /run/idd
  new_volume idd-state /var/lib/idd
  start idd compose.yaml idd
  wait_until is_healthy idd
  check_confinement idd
  execute idd idctl tag create orders >"$work/said" 2>&1 || { cat "$work/said" >&2 && fail "no tag can be made"; }
  claim first
  step "a program whose image has no user idd does not trust it; the directory alone is shared"
  local arguments
  mapfile -d '' -t arguments < <("$here/container_arguments.py" "$recipe" "$root/docs/containers/compose.yaml" orders "$volumes")
  grep -v '^idd:' "$tree/etc/passwd" >"$work/passwd"
  run_container stranger --volume "$work/passwd:/etc/passwd:ro" "${arguments[@]:0:${#arguments[@]}-3}" idctl claim orders
  ends stranger 6
  run_container writer "${arguments[@]:0:${#arguments[@]}-3}" touch /run/idd/file
  ends writer 1

  step "SIGTERM stops it cleanly, and the next container goes on where it was"
  signal idd TERM
  ends idd 0
  grep -q idd.stopped "$work/idd.log" || { cat "$work/idd.log" >&2 && fail "it was not a clean stop"; }
  start idd compose.yaml idd
  wait_until is_healthy idd
  claim second
  (($(tail -n 1 "$work/ids") - $(head -n 1 "$work/ids") == 9)) || { cat "$work/ids" >&2 && fail "ids are missing"; }
  audit idd

  step "SIGKILL, and the state volume"
  crash idd
  start idd compose.yaml idd
  wait_until is_healthy idd
  claim third
  (($(tail -n 1 "$work/ids") > $(sed -n 10p "$work/ids"))) || { cat "$work/ids" >&2 && fail "the ids do not rise"; }
  audit idd
  # Another host's leases would show another name.
  execute idd idctl --json lease list >"$work/said" 2>&1 || { cat "$work/said" >&2 && fail "no list of leases"; }
  [[ $(grep -o '"host": *"[^"]*"' "$work/said" | tr -d ' ' | sort -u) == '"host":"compose-host-1"' ]] ||
    { cat "$work/said" >&2 && fail "the leases are not those of one host"; }
  signal idd TERM
  ends idd 0
  rm -r "$volumes"
}

# check_pod MANIFEST: idd of the manifest starts, although its database does not answer, and its
# probe is content.
check_pod() {
  local manifest=$1
  mkdir "$volumes/idd-password"
  echo secret >"$volumes/idd-password/password"
  chown "0:${image_user#*:}" "$volumes/idd-password/password"
  chmod 440 "$volumes/idd-password/password"
  start "$manifest" "$manifest" idd
  wait_until is_healthy "$manifest"
  check_confinement "$manifest"
  execute "$manifest" test -r /run/secrets/idd/password || fail "idd cannot read the password of $manifest"
  [[ $(stat -c %u "$volumes/idd-state/high-water.db") == "${image_user%:*}" ]] || fail "no marks in the state volume"
  signal "$manifest" TERM
  ends "$manifest" 0
  rm -r "$volumes"
}

check_kubernetes() {
  step "daemonset.yaml: root's directories of the node become idd's"
  mkdir -p "$volumes/idd-run" "$volumes/idd-state" # DirectoryOrCreate: root's, mode 755
  local pass
  for pass in 1 2; do
    start directories daemonset.yaml directories
    ends directories 0
    [[ $(stat -c %u:%g:%a "$volumes/idd-run") == "$image_user:755" && $(stat -c %u:%g:%a "$volumes/idd-state") == "$image_user:700" ]] ||
      fail "pass $pass: the node's directories are not user idd's"
  done
  check_pod daemonset.yaml
  step "sidecar.yaml: in empty directories of the pod"
  mkdir -p "$volumes/idd-run" "$volumes/idd-state"
  chown "0:${image_user#*:}" "$volumes"/idd-*
  chmod 2777 "$volumes"/idd-*
  check_pod sidecar.yaml
}

build_image
check_compose
check_kubernetes
step "done"

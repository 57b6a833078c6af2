#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# completion_files_test.sh ROOT IDCTL: the completions for bash, zsh and fish have every command and
# option that the help of idctl names. zsh and fish parse theirs, and fish completes with it, where
# they are installed.
set -euo pipefail
root=$1 idctl=$2
bash_file=$root/tools/idctl.bash-completion
zsh_file=$root/tools/idctl.zsh-completion
fish_file=$root/tools/idctl.fish-completion

failed=0
complain() {
  echo "completion_files_test: $*" >&2
  failed=1
}

# has FILE PATTERN WHAT: a line of the file has the pattern, with nothing of a name beside it.
has() { grep -Eq -- "(^|[^a-z-])$2($|[^a-z-])" "$1" || complain "${1##*/} lacks $3"; }

# visit WORD...: checks the help of this command, then those of its subcommands.
visit() {
  local help option name options names
  help=$("$idctl" "$@" --help)
  mapfile -t options < <(grep -oE '^ +(-[a-z],)?--?[a-z][a-z-]*' <<<"$help" | grep -oE -- '-+[a-z][a-z-]*' | sort -u)
  for option in "${options[@]}"; do
    [[ $option == -h || $option == -v ]] && continue
    has "$bash_file" "$option" "$option of 'idctl $*'"
    has "$zsh_file" "$option" "$option of 'idctl $*'"
    if [[ $option == --* ]]; then
      has "$fish_file" "-l ${option#--}" "$option of 'idctl $*'"
    else
      has "$fish_file" "-s ${option#-}" "$option of 'idctl $*'"
    fi
  done
  mapfile -t names < <(sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' <<<"$help")
  for name in "${names[@]}"; do
    has "$bash_file" "$name" "the command 'idctl $* $name'"
    has "$zsh_file" "$name" "the command 'idctl $* $name'"
    has "$fish_file" "$name" "the command 'idctl $* $name'"
    visited+=("$* $name")
    visit "$@" "$name"
  done
}

visited=()
visit
((${#visited[@]} >= 25)) || complain "idctl --help names only ${#visited[@]} commands"

if command -v zsh >/dev/null; then
  zsh -n "$zsh_file" || complain "zsh does not parse $zsh_file"
fi

# offers EXPECTED LINE: fish completes the command line so, in any order.
offers() {
  local offered
  offered=$(fish --no-config -c "source $fish_file; complete -C '$2'" | cut -f 1 | sort)
  [[ $offered == "$(sort <<<"$1")" ]] || complain "fish offers '$offered' after '$2', not '$1'"
}
if command -v fish >/dev/null; then
  fish -n "$fish_file" || complain "fish does not parse $fish_file"
  HOME=$(mktemp -d)
  export HOME
  trap 'rm -rf "$HOME"' EXIT
  PATH=$(dirname "$idctl"):$PATH
  offers $'tag\ntop' 'idctl t'
  offers $'create\ndelete\nexport\nlist\nset\nshow' 'idctl --timeout 5s tag '
  offers $'--start\n--step' 'idctl tag create x --st'
  offers $'segment\nsnowflake' 'idctl tag create x --mode s'
  offers $'debug\nerror\ninfo\nwarning' 'idctl log-level '
fi
exit "$failed"

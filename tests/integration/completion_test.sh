#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# completion_test.sh ROOT IDD IDCTL: bash's completions after the words of an idctl command, with a
# real idd that has tags, and without idd.
set -euo pipefail
root=$1 idd=$2 idctl=$3

# shellcheck source=tests/support/run_idd.sh
source "$root/tests/support/run_idd.sh"

PATH=$(dirname "$idctl"):$PATH
# shellcheck source=tools/idctl.bash-completion
source "$root/tools/idctl.bash-completion"

# offers EXPECTED WORD...: the words are those on the command line, the last of them incomplete.
# Expects EXPECTED as completions, a line each, in any order.
offers() {
  local expected=$1 offered
  shift
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _idctl || true # bash ignores the exit status
  offered=$( ((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}" | sort)
  [[ $offered == "$(sort <<<"$expected")" ]] || fail "behind '$*' come '$offered', not '$expected'"
}

complete -p idctl >/dev/null || fail "nothing is registered for idctl"

# Without a daemon: words but no tags, and no message.
{
  offers '' idctl claim ''
  offers '' idctl tag show ''
  offers $'tag\ntop' idctl t
} 2>"$folder/said"
[[ ! -s $folder/said ]] || fail "the completion complains that there is no daemon: $(cat "$folder/said")"

start_idd
for tag in orders order-lines 'two words' billing; do "$idctl" tag create "$tag" >/dev/null; done

offers $'create\ndelete\nexport\nlist\nset\nshow' idctl tag ''
offers 'delete' idctl tag d
offers $'forget\nlist' idctl host ''
offers show idctl config ''
offers $'debug\nerror\ninfo\nwarning' idctl log-level ''
offers $'orders\norder-lines' idctl claim ord
offers $'billing\norder-lines\norders\ntwo\\ words' idctl tag set ''
offers 'two\ words' idctl audit two
offers '' idctl tag create ord
offers '' idctl claim orders ''
offers 'billing' idctl --json --timeout 100 claim -n 3 b
offers 'billing' idctl lease list --tag b
offers 'billing' idctl client list --tag b
offers $'orders\norder-lines' idctl drain ord
offers $'--step\n--start' idctl tag create x --st
offers '--if-absent' idctl tag create x --i
offers '--state' idctl lease list --st
offers $'order-lines\norders' idctl tag export billing ord
offers $'abandoned\nactive' idctl lease list --state a
offers $'promise' idctl tag set orders --refill p
offers '' idctl tag create x --step 1
offers $'--socket' idctl --so
offers 'billing' idctl --socket "$IDD_SOCKET" status b
offers '' idctl --socket "$folder/nobody" status b
touch "$folder/a-file"
offers "$folder/a-file" idctl --socket "$folder/a-"
offers "$folder/a-file" idctl apply -f "$folder/a-"

# The completion knows every command and option that idctl's own help names.
commands=$("$idctl" --help | sed -n '/^Subcommands:/,$p' | sed -n 's/^  \([a-z-]*\) .*/\1/p')
[[ $(wc -l <<<"$commands") -ge 8 ]] || fail "idctl --help names no commands"
for command in $commands; do offers "$command" idctl "$command"; done
for command in 'tag create' 'tag set' 'tag delete' 'lease list' 'client list' 'host list' 'host forget' apply status claim audit bench doctor import top; do
  read -ra words <<<"$command"
  for option in $("$idctl" "${words[@]}" --help | grep -oE '^ +(-[a-z],)?-{1,2}[a-z-]+' | grep -oE -- '--?[a-z-]+$'); do
    [[ $option == -h || $option == -v ]] && continue
    COMP_WORDS=(idctl "${words[@]}" "$option") COMP_CWORD=$((${#words[@]} + 1)) COMPREPLY=()
    _idctl || true
    [[ " ${COMPREPLY[*]} " == *" $option "* ]] || fail "'idctl $command' does not offer $option"
  done
done

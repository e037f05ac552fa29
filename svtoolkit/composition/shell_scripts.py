"""Scripts that a shell evaluates to complete words after svt, with all words in them: Tab starts no Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from svtoolkit.composition.completion import SHELLS, Words, words_of
from svtoolkit.config import COMMANDS
from svtoolkit.errors import UserError

CHOICES = """\
# All that `svt COMMAND` takes; of a key that has choices, these.
_svt_keys() {{
    case $1 in
{keys}
    esac
}}
_svt_flags() {{
    case $1 in
{flags}
        *) echo --help --version ;;
    esac
}}
_svt_choices() {{ # COMMAND KEY, or COMMAND for the first word that is no key
    case "$1 ${{2:-}}" in
{choices}
    esac
}}
"""

BASH = """\
# eval "$(svt completion bash)"
{choices}
_svt() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]:-}}
    local command=${{COMP_WORDS[1]:-}} key="" list="" prefix="" name
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        list="{commands} help --help --version"
    elif [[ $command == help ]]; then
        list="{commands}"
    else
        # bash splits key=value into three words where = is in COMP_WORDBREAKS, as it is unless it was taken out.
        if [[ $word == = ]]; then
            key=$before word=
        elif [[ $before == = ]]; then
            key=${{COMP_WORDS[COMP_CWORD - 2]}}
        elif [[ $word != --* && $before == --* ]]; then
            key=${{before#--}} key=${{key//-/_}}
        elif [[ $word == *=* ]]; then
            prefix=${{word%%=*}}= key=${{word%%=*}} word=${{word#*=}}
        fi
        key=${{key#--}}
        if [[ -n $key ]]; then
            list=$(_svt_choices "$command" "$key")
        elif [[ $word == -* ]]; then
            list=$(_svt_flags "$command")
        else
            ((COMP_CWORD > 2)) || list=$(_svt_choices "$command")
            for name in $(_svt_keys "$command"); do
                [[ $name != "$word"* ]] || COMPREPLY+=("$name=")
            done
        fi
    fi
    for name in $list; do [[ $name != "$word"* ]] || COMPREPLY+=("$prefix$name "); done
}}
complete -o nospace -o default -F _svt svt
"""

ZSH = """\
# eval "$(svt completion zsh)"
{choices}
_svt() {{
    local word=$words[CURRENT] before=$words[CURRENT-1] command=$words[2] key= values
    if (( CURRENT == 2 )); then
        compadd -- {commands} help --help --version
        return
    fi
    if [[ $command == help ]]; then
        compadd -- {commands}
        return
    fi
    if [[ $word == *=* ]]; then
        key=${{${{word%%=*}}#--}}
        compset -P '*='
    elif [[ $word != --* && $before == --* && $before != *=* ]]; then
        key=${{${{before#--}}//-/_}}
    fi
    if [[ -n $key ]]; then
        values=(${{=$(_svt_choices $command $key)}})
        if (( $#values )); then compadd -- $values; else _files; fi
    elif [[ $word == -* ]]; then
        values=(${{=$(_svt_flags $command)}})
        compadd -- $values
    else
        values=(${{=$(_svt_keys $command)}})
        (( CURRENT > 3 )) || compadd -- ${{=$(_svt_choices $command)}}
        compadd -S = -- $values
        [[ -z $word ]] || _files
    fi
}}
if ! typeset -f compdef >/dev/null; then autoload -Uz compinit && compinit -i; fi
compdef _svt svt
"""

FISH = """\
# svt completion fish | source
function __svt_command
    set -l words (commandline -opc)
    test (count $words) -gt 1; and echo $words[2]
end
function __svt_is
    test (__svt_command) = $argv[1] 2>/dev/null
end
complete -c svt -e
{lines}
"""


def script_for(shell: str) -> str:
    """The script of a shell.

    Raises:
        UserError: there is none for it.
    """
    if shell not in SHELLS:
        raise UserError(f"there is no completion for {shell!r}; expected one of {', '.join(SHELLS)}")
    table = {name: words_of(name) for name in COMMANDS}
    if shell == "fish":
        return _fish(table)
    return (BASH if shell == "bash" else ZSH).format(choices=_choices(table), commands=" ".join(table))


def _choices(table: Mapping[str, Words]) -> str:
    """The functions that bash and zsh have in common."""
    lines = {
        "keys": [_case(name, words.keys) for name, words in table.items()],
        "flags": [_case(name, words.flags) for name, words in table.items()],
        "choices": [
            _case(f"'{name} {key}'", values)
            for name, words in table.items()
            for key, values in [("", words.positions), *words.choices.items()]
            if values
        ],
    }
    return CHOICES.format(**{name: "\n".join(listed) for name, listed in lines.items()})


def _case(pattern: str, values: Iterable[str]) -> str:
    return f"        {pattern}) echo {' '.join(map(shlex.quote, values))} ;;"


def _fish(table: Mapping[str, Words]) -> str:
    lines = [
        f"complete -c svt -n 'not __svt_command' -f -a {name} -d {shlex.quote(COMMANDS[name].summary)}"
        for name in table
    ]
    lines.append("complete -c svt -n 'not __svt_command' -f -a 'help --help --version'")
    lines.append(f"complete -c svt -n '__svt_is help' -f -a '{' '.join(table)}'")
    for name, words in table.items():
        of = f"complete -c svt -n '__svt_is {name}'"
        lines += [f"{of} -l {flag.removeprefix('--')}" for flag in words.flags]
        for key, values in words.choices.items():
            lines.append(f"{of} -l {key.replace('_', '-')} -x -a '{' '.join(values)}'")
        if words.choices:  # no names of files where values can be listed
            keys = "|".join(map(re.escape, words.choices))
            lines.append(
                f"complete -c svt -f -n '__svt_is {name}; and string match -qr \"^({keys})=\" -- (commandline -ct)'"
            )
        listed = [f"{key}={value}" for key in words.keys for value in words.choices.get(key, [""])]
        lines.append(f"{of} -a '{' '.join([*listed, *words.positions])}'")
    return FISH.format(lines="\n".join(lines))

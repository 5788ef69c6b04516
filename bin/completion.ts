/** Completion of the command line for three shells, written from the commands themselves. Owner: page bin/completion. */

import type { ArgumentFact, CommandFact, FlagFact } from './command-tree.ts'

export const SHELLS = ['bash', 'zsh', 'fish'] as const

export type Shell = (typeof SHELLS)[number]

/** A script that the shell reads at its start. Nothing of it calls the program. */
export function toCompletion(shell: Shell, commands: readonly CommandFact[]): string {
  return { bash: toBash, zsh: toZsh, fish: toFish }[shell](commands)
}

const shownOf = ({ flags }: CommandFact): readonly FlagFact[] => flags.filter(({ isShown }) => isShown)
const valuesOf = (command: CommandFact): readonly FlagFact[] => shownOf(command).filter(({ kind }) => kind !== 'none')
const spellingsOf = ({ short, long }: FlagFact): readonly string[] => [
  ...(short === null ? [] : [`-${short}`]),
  `--${long}`,
]
const nameOf = ({ words }: CommandFact): string => words.join(' ')

/** One word of a shell, whatever it holds. */
const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

/** Patterns of a `case`: every command that is reached by one more word. */
function toReached(commands: readonly CommandFact[]): readonly string[] {
  return commands.slice(1).map(command => quote(nameOf(command)))
}

/** Rows of a `case` on `<command> <flag>`: how the value of that flag is completed. */
function toValueRows(commands: readonly CommandFact[], complete: (value: FlagFact | ArgumentFact) => string): string {
  return commands
    .flatMap(command =>
      valuesOf(command).map(flag => {
        const patterns = spellingsOf(flag).map(spelling => quote(`${nameOf(command)} ${spelling}`))
        return `    ${patterns.join('|')}) ${complete(flag)}; return ;;`
      }),
    )
    .join('\n')
}

function toBash(commands: readonly CommandFact[]): string {
  const program = commands[0]!.words[0]
  const complete = ({ kind, choices }: FlagFact | ArgumentFact): string => {
    if (kind === 'choice') return `_${program}_reply -W ${quote(choices.join(' '))}`
    return kind === 'free' ? ':' : `_${program}_reply ${kind === 'file' ? '-f' : '-d'}`
  }
  const rows = commands.map(command => {
    const words = [...command.commands.map(({ name }) => name), ...shownOf(command).flatMap(spellingsOf)]
    const argument = command.args.find(({ kind }) => kind !== 'free')
    const other = argument === undefined ? ':' : complete(argument)
    return `    ${quote(nameOf(command))}) words=${quote(words.join(' '))}; [[ $cur == -* ]] || ${other} ;;`
  })
  return `# Completion of ${program} for bash: source <(${program} completion bash)
_${program}_reply() {
  local IFS=$'\\n'
  [[ $1 == -W ]] || compopt -o filenames 2>/dev/null
  local found
  if [[ $1 == -W ]]; then found=$(IFS=' '; compgen -W "$2" -- "$cur"); else found=$(compgen "$1" -- "$cur"); fi
  COMPREPLY+=($found)
}
_${program}() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]} at=${program} words= i
  COMPREPLY=()
  # bash takes --flag=value apart.
  if [[ $cur == = ]]; then cur=
  elif [[ $prev == = ]]; then prev=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at \${COMP_WORDS[i]}" in
      ${toReached(commands).join('|')}) at="$at \${COMP_WORDS[i]}" ;;
    esac
  done
  case "$at $prev" in
${toValueRows(commands, complete)}
  esac
  case "$at" in
${rows.join('\n')}
  esac
  _${program}_reply -W "$words"
}
complete -F _${program} ${program}
`
}

function toZsh(commands: readonly CommandFact[]): string {
  const program = commands[0]!.words[0]
  const complete = ({ kind, choices }: FlagFact | ArgumentFact): string => {
    if (kind === 'choice') return `compadd -- ${choices.map(quote).join(' ')}`
    return kind === 'free' ? ':' : kind === 'file' ? '_files' : '_files -/'
  }
  /** `name:description`, as `_describe` takes it. */
  const entry = (name: string, text: string): string => quote(`${name.replaceAll(':', '\\:')}:${toLine(text)}`)
  const rows = commands.map(command => {
    const flags = shownOf(command).flatMap(flag => spellingsOf(flag).map(name => entry(name, flag.description)))
    const names = command.commands.map(({ name, description }) => entry(name, description))
    const argument = command.args.find(({ kind }) => kind !== 'free')
    const other =
      names.length > 0 ? `found=(${names.join(' ')}); _describe command found` : complete(argument ?? NOTHING)
    return `    ${quote(nameOf(command))})
      if [[ $words[CURRENT] == -* ]]; then found=(${flags.join(' ')}); _describe -o flag found
      else ${other}
      fi ;;`
  })
  return `#compdef ${program}
# Completion of ${program} for zsh: ${program} completion zsh > a file _${program} in a folder of $fpath
_${program}() {
  local at=${program} prev=$words[CURRENT-1] i
  local -a found
  if [[ $words[CURRENT] == --*=* ]]; then prev=\${words[CURRENT]%%=*}; compset -P '*='; fi
  for ((i = 2; i < CURRENT; i++)); do
    case "$at $words[i]" in
      ${toReached(commands)
        .map(pattern => `(${pattern})`)
        .join('|')
        .replaceAll(')|(', '|')}) at="$at $words[i]" ;;
    esac
  done
  case "$at $prev" in
${toValueRows(commands, complete)}
  esac
  case "$at" in
${rows.join('\n')}
  esac
}
if [[ $funcstack[1] == _${program} ]]; then _${program} "$@"; else compdef _${program} ${program}; fi
`
}

/** An argument of which nothing is known. */
const NOTHING: ArgumentFact = { spelling: '', description: '', kind: 'free', choices: [] }

/** In fish a backslash is one inside quotes too. */
const quoteFish = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`

function toFish(commands: readonly CommandFact[]): string {
  const program = commands[0]!.words[0]
  const lines = commands.flatMap(command => {
    const when = `complete -c ${program} -n ${quoteFish(`__${program}_at ${nameOf(command)}`)}`
    const argument = command.args.find(({ kind }) => kind !== 'free')
    return [
      ...command.commands.map(
        ({ name, description }) => `${when} -a ${quoteFish(name)} -d ${quoteFish(toLine(description))}`,
      ),
      ...(argument === undefined ? [] : [`${when} ${toFishValue(argument)}`]),
      ...shownOf(command).map(flag => {
        const names = `${flag.short === null ? '' : `-s ${flag.short} `}-l ${flag.long}`
        const value = flag.kind === 'none' ? '' : ` -r ${toFishValue(flag)}`
        return `${when} ${names}${value} -d ${quoteFish(toLine(flag.description))}`
      }),
    ]
  })
  return `# Completion of ${program} for fish: ${program} completion fish > ~/.config/fish/completions/${program}.fish
function __${program}_at
  set -l at ${program}
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
      case ${commands
        .slice(1)
        .map(command => quoteFish(nameOf(command)))
        .join(' ')}
        set at "$at $word"
    end
  end
  test "$at" = "$argv"
end
complete -c ${program} -f
${lines.join('\n')}
`
}

function toFishValue({ kind, choices }: FlagFact | ArgumentFact): string {
  if (kind === 'choice') return `-f -a ${quoteFish(choices.join(' '))}`
  if (kind === 'folder') return `-f -a '(__fish_complete_directories)'`
  return kind === 'file' ? '-F' : '-f'
}

/** Descriptions stand in one line. */
const toLine = (text: string): string => text.replaceAll(/\s+/g, ' ')

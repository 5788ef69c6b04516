/** The commands and flags of the program as plain facts, for what is written from them. Owner: page bin/completion. */

import type { Argument, Command, Option } from 'commander'

/** Candidates for the completion of a value. */
type ValueKind = 'none' | 'file' | 'folder' | 'choice' | 'free'

export interface FlagFact {
  /** As commander spells it, such as `-p, --port <number>`. */
  spelling: string
  /** Without the dash; null when there is none. */
  short: string | null
  /** Without the dashes. */
  long: string
  description: string
  /** `none` for a switch. */
  kind: ValueKind
  choices: readonly string[]
  /** False for what `--help` leaves out. */
  isShown: boolean
}

export interface ArgumentFact {
  /** Such as `[dir]`. */
  spelling: string
  description: string
  kind: ValueKind
  choices: readonly string[]
}

export interface CommandFact {
  /** Words that call it, the program first. */
  words: readonly string[]
  description: string
  commands: readonly { name: string; description: string }[]
  args: readonly ArgumentFact[]
  flags: readonly FlagFact[]
}

/** The program itself and every command below it, in the order of `--help`. */
export function readCommands(program: Command, before: readonly string[] = []): readonly CommandFact[] {
  const words = [...before, program.name()]
  const help = program.createHelp()
  const shown = help.visibleOptions(program)
  const hidden = program.options.filter(option => !shown.includes(option))
  const below = program.commands
  const fact: CommandFact = {
    words,
    description: program.description(),
    commands: below.map(command => ({ name: command.name(), description: command.description() })),
    args: program.registeredArguments.map(toArgument),
    flags: [...shown.map(option => toFlag(option, true)), ...hidden.map(option => toFlag(option, false))],
  }
  return [fact, ...below.flatMap(command => readCommands(command, words))]
}

function toFlag(option: Option, isShown: boolean): FlagFact {
  const { flags, short, long, description, argChoices } = option
  const takesValue = option.required || option.optional
  return {
    spelling: flags,
    short: short?.slice(1) ?? null,
    long: (long ?? '--').slice(2),
    description,
    kind: takesValue ? toKind(flags, argChoices) : 'none',
    choices: argChoices ?? [],
    isShown,
  }
}

function toArgument(argument: Argument): ArgumentFact {
  const { description, argChoices } = argument
  const name = `${argument.name()}${argument.variadic ? '...' : ''}`
  const spelling = argument.required ? `<${name}>` : `[${name}]`
  return { spelling, description, kind: toKind(spelling, argChoices), choices: argChoices ?? [] }
}

/** The name of a value decides its kind. */
function toKind(spelling: string, choices: readonly string[] | undefined): ValueKind {
  if (choices !== undefined) return 'choice'
  if (/[<[]file(\.\.\.)?[>\]]/.test(spelling)) return 'file'
  return /[<[](dir|folder)(\.\.\.)?[>\]]/.test(spelling) ? 'folder' : 'free'
}

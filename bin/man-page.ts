/** The manual page `fngw(1)`, written from the commands themselves. Owner: page bin/completion. */

import type { ArgumentFact, CommandFact, FlagFact } from './command-tree.ts'

/** @returns text in the `man` macros of roff, the same for the same commands */
export function toManPage(commands: readonly CommandFact[], version: string): string {
  const [program, ...others] = commands as [CommandFact, ...CommandFact[]]
  const name = program.words[0]!
  const title = program.description.replace(/\.$/, '')
  return `${[
    `.TH ${toRoff(name.toUpperCase())} 1 "" "${toRoff(`${name} ${version}`)}" "User Commands"`,
    '.SH NAME',
    `${toRoff(name)} \\- ${toRoff(title)}`,
    '.SH SYNOPSIS',
    `.B ${toRoff(name)}`,
    '.I command',
    '[\\fIflags\\fR]',
    '.SH DESCRIPTION',
    'A folder of handler files in Python, Node, TypeScript, PHP, Lua, Go or Rust is served as an HTTP API.',
    'A flag is stronger than its variable in the environment, that than the project file',
    '.IR fngw.json ,',
    'and that than the default.',
    '.SH FLAGS',
    ...toFlags(program.flags.filter(({ isShown }) => isShown)),
    '.SH COMMANDS',
    // A command that only groups others has no entry.
    ...others.filter(({ commands }) => commands.length === 0).flatMap(toCommand),
    '.SH SETTINGS THAT HELP LEAVES OUT',
    'They are taken by the commands that read a tree or call a gateway, and matter to few or repeat a default.',
    ...toFlags(toHiddenFlags(commands)),
    '.SH EXIT STATUS',
    ...toEntry('0', 'Done.'),
    ...toEntry('1', 'It failed, or the result is negative.'),
    ...toEntry('2', 'Wrong usage or wrong settings.'),
    '.SH FILES',
    ...toEntry('fngw.json', 'Settings of a project.'),
    ...toEntry('fn.config.json, fn.env.json, fn.routes.json', 'Policy, values and routes beside a handler.'),
  ].join('\n')}\n`
}

function toCommand({ words, description, args, flags }: CommandFact): readonly string[] {
  const line = [...words, ...args.map(({ spelling }) => spelling), '[flags]'].join(' ')
  return [
    `.SS ${toRoff(line)}`,
    toText(description),
    ...args.flatMap(argument => toEntry(argument.spelling, withChoices(argument))),
    ...toFlags(flags.filter(({ isShown }) => isShown)),
  ]
}

/** Each flag that no command shows, once. */
function toHiddenFlags(commands: readonly CommandFact[]): readonly FlagFact[] {
  const shown = new Set(commands.flatMap(({ flags }) => flags.filter(flag => flag.isShown).map(({ long }) => long)))
  const hidden = commands.flatMap(({ flags }) => flags.filter(({ long }) => !shown.has(long)))
  return [...new Map(hidden.map(flag => [flag.long, flag])).values()]
}

function toFlags(flags: readonly FlagFact[]): readonly string[] {
  return flags.flatMap(flag => toEntry(flag.spelling, withChoices(flag)))
}

function withChoices({ description, choices }: FlagFact | ArgumentFact): string {
  return choices.length === 0 ? description : `${description} One of: ${choices.join(', ')}.`
}

function toEntry(term: string, text: string): readonly string[] {
  return ['.TP', `\\fB${toRoff(term)}\\fR`, toText(text)]
}

/** A separate line: a dot or an apostrophe in front would make it a command. */
function toText(text: string): string {
  return `\\&${toRoff(text)}`
}

/** Characters that roff would read, as themselves; a dash can be copied to a shell. */
function toRoff(text: string): string {
  return text.replaceAll(/\s+/g, ' ').replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('"', '\\(dq')
}

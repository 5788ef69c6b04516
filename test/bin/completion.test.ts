import { spawnSync } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Argument, Command, CommanderError, Option } from 'commander'
import t from 'tap'
import { type CommandFact, readCommands } from '../../bin/command-tree.ts'
import { SHELLS, type Shell, toCompletion } from '../../bin/completion.ts'
import { createOutput } from '../../bin/output.ts'
import { createProgram } from '../../bin/program.ts'

const quiet = { write: () => true, on: () => {} } as unknown as NodeJS.WriteStream

const program = createProgram({
  output: createOutput(quiet, quiet, {}),
  version: '9.9.9',
  program: 'fngw',
  terminal: null,
})
const commands = readCommands(program)

/** Runs a script of a shell that prints one candidate a line; null when the shell is not installed. */
function run(shell: Shell, text: string, cwd: string): string[] | null {
  const plain = { bash: ['--norc', '--noprofile'], zsh: ['-f'], fish: ['--no-config'] }[shell]
  const file = join(cwd, `script.${shell}`)
  writeFileSync(file, text)
  const env = { PATH: process.env.PATH, HOME: cwd, XDG_CONFIG_HOME: cwd, XDG_DATA_HOME: cwd }
  const { status, stdout, stderr, error } = spawnSync(shell, [...plain, file], { cwd, encoding: 'utf8', env })
  if (error !== undefined) return null
  if (stderr !== '' || status === null) throw new Error(`${shell}: ${status} ${stderr}`)
  return stdout.split('\n').filter(line => line !== '')
}

const quote = (text: string): string => `'${text}'`

/** Asks the shell what completes the last word, by its own means. */
const ASK: Readonly<Record<Shell, (words: readonly string[]) => string>> = {
  bash: words => `COMP_WORDS=(${words.map(quote).join(' ')}); COMP_CWORD=${words.length - 1}
_fngw; printf '%s\\n' "\${COMPREPLY[@]}"`,
  // The functions of its completion system need a terminal: these say what they are given.
  zsh: words => `words=(${words.map(quote).join(' ')}); CURRENT=${words.length}; _fngw`,
  fish: words => `complete -C ${quote(words.join(' '))} | string replace -r '\\t.*' ''`,
}

const ZSH_SYSTEM = `
compdef() { :; }
compset() { words[CURRENT]=\${words[CURRENT]#*=}; }
compadd() { shift; print -l -- \${(M)@:#\${words[CURRENT]}*}; }
_files() { if [[ $1 == -/ ]]; then print -l -- *(/N); else print -l -- *(N); fi }
_describe() { local one; for one in $found; do compadd -- "\${one%%:*}"; done }
`

function complete(shell: Shell, facts: readonly CommandFact[], words: readonly string[], cwd: string): string[] | null {
  const script = toCompletion(shell, facts)
  const before = shell === 'zsh' ? ZSH_SYSTEM : ''
  const found = run(shell, `${before}${script}\n${ASK[shell](words)}\n`, cwd)
  return found?.map(word => word.replace(/\/$/, '').replace(/^.*=/, '')).sort() ?? null
}

const ROWS: readonly [name: string, words: string[], wanted: (found: string[]) => boolean][] = [
  ['commands', ['fngw', ''], found => commands[0]!.commands.every(({ name }) => found.includes(name))],
  ['a command', ['fngw', 'expl'], found => found.join() === 'explain'],
  ['words of a command', ['fngw', 'jobs', ''], found => found.includes('create') && !found.includes('dev')],
  ['flags of a command', ['fngw', 'dev', '--po'], found => found.join() === '--port'],
  ['flags of a word', ['fngw', 'jobs', 'create', '--max-a'], found => found.join() === '--max-attempts'],
  ['values of a flag', ['fngw', 'init', 'hello', '-t', 'py'], found => found.join() === 'python'],
  ['values behind its long name', ['fngw', 'init', '--template', 'py'], found => found.join() === 'python'],
  ['values of an argument', ['fngw', 'completion', 'z'], found => found.join() === 'zsh'],
  ['folders alone', ['fngw', 'dev', 'pl'], found => found.join() === 'place'],
  ['files of a flag', ['fngw', 'dev', '--config', 'pl'], found => found.join() === 'place,plan.json'],
  ['nothing for what is free', ['fngw', 'dev', '--port', ''], found => found.length === 0],
]

t.test(
  '[bin/completion.1, bin/completion.2] three shells complete commands, flags, values, files and folders',
  async t => {
    for (const shell of SHELLS) {
      const cwd = t.testdir({ place: {}, 'plan.json': '{}' })
      if (run(shell, '', cwd) === null) {
        t.pass(shell, { skip: `${shell} is not installed` })
        continue
      }
      for (const [name, words, isWanted] of ROWS) {
        const found = complete(shell, commands, words, cwd)!
        // Stand-ins for the functions of zsh do not look at the word that is there.
        const fits = shell === 'zsh' ? found.filter(word => word.startsWith(words.at(-1)!)) : found
        t.ok(isWanted(fits), `${shell}: ${name}: ${fits.join(' ')}`)
      }
    }
    const joined = complete('bash', commands, ['fngw', 'init', '--template', '=', 'py'], t.testdir({}))
    t.same(joined, ['python'], 'bash takes --flag=value apart')
  },
)

t.test('[bin/completion.1] names of files may hold blanks, and texts what a shell would read', async t => {
  const hostile = new Command('fngw').addOption(
    new Option('--say <word>', `It's \\ "$(touch owned)" \`touch owned\`: a:b`).choices(['a', 'b']),
  )
  hostile.command('read').addArgument(new Argument('[file]', "an 'argument'"))
  for (const shell of SHELLS) {
    const cwd = t.testdir({ 'a name.txt': '' })
    const facts = readCommands(hostile)
    const flags = complete(shell, facts, ['fngw', '--sa'], cwd)
    if (flags === null) continue
    t.same(flags, ['--say'], shell)
    const files = complete(shell, facts, ['fngw', 'read', 'a'], cwd)!
    t.same(
      files.filter(word => word.startsWith('a')),
      ['a name.txt'],
      shell,
    )
    t.notOk(existsSync(join(cwd, 'owned')), `${shell} ran nothing`)
  }
})

t.test('[bin/completion.1] another shell is wrong usage', async t => {
  for (const command of [program, ...program.commands]) command.configureOutput({ writeErr: () => {} }).exitOverride()
  await t.rejects(program.parseAsync(['completion', 'tcsh'], { from: 'user' }), CommanderError)
  await t.rejects(program.parseAsync(['completion'], { from: 'user' }), CommanderError)
})

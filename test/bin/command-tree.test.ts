import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { readCommands } from '../../bin/command-tree.ts'
import { createOutput } from '../../bin/output.ts'
import { createProgram } from '../../bin/program.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const quiet = { write: () => true, on: () => {} } as unknown as NodeJS.WriteStream
const program = createProgram({
  output: createOutput(quiet, quiet, {}),
  version: '9.9.9',
  program: 'fngw',
  terminal: null,
})
const commands = new Map(readCommands(program).map(fact => [fact.words.slice(1).join(' '), fact]))

function filesBelow(folder: string, ending: RegExp): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && ending.test(entry.name))
    .map(entry => join(entry.parentPath, entry.name).slice(root.length))
}

/** What stands behind `fngw` in the code of a page, up to the end of the command. */
function* commandsIn(page: string): Generator<string> {
  const blocks = [...page.matchAll(/^ *```\w*\n([\s\S]*?)^ *```/gm)].flatMap(([, text]) => text!.split('\n'))
  const spans = [...page.replaceAll(/^ *```[\s\S]*?^ *```/gm, '').matchAll(/`([^`\n]+)`/g)].map(([, text]) => text!)
  for (const line of [...blocks, ...spans]) {
    const found = /(?:^|[\s(])(?<!-u(?:nit)? )(?:npx )?fngw ((?:[a-z]|--)[^#|;&)>]*(?:\|[a-z]+)*)/.exec(line)
    // A line of output begins with the name of the program, too.
    if (found !== null && !/^\s*fngw \d/.test(line)) yield found[1]!.trim()
  }
}

/** The same in quotes, or as the text of an element, in the sources of the console. */
function* commandsInSource(source: string): Generator<string> {
  for (const [, text] of source.matchAll(/['"`>](?:npx )?fngw ((?:[a-z]|--)[^'"`<$#|;&)>]*)/g)) yield text!.trim()
}

/** @returns why there is no such command; null when there is one */
function findWrong(text: string): string | null {
  const words = text.split(/\s+/)
  const names = words[0]!.startsWith('-') ? [''] : words[0]!.split('|')
  for (const name of names) {
    let path = name
    let fact = commands.get(path)
    if (fact === undefined) return `no command "${path}"`
    const below = words[1]
    if (fact.commands.length > 0 && below !== undefined && /^[a-z]/.test(below)) {
      path += ` ${below}`
      fact = commands.get(path)
      if (fact === undefined) return `no command "${path}"`
    }
    const flags = new Set(['help', 'version', ...fact.flags.map(({ long }) => long)])
    for (const [, flag] of text.matchAll(/(?<!\S)\[?--([a-z][a-z-]*)/g))
      if (!flags.has(flag!)) return `"${path}" has no flag --${flag}`
  }
  return null
}

t.test(
  '[bin/completion.4] every command that the console and the documentation show is one of the program',
  async t => {
    const pages = ['README.md', 'CONTRIBUTING.md', ...['docs', 'spec'].flatMap(folder => filesBelow(folder, /\.md$/))]
    const shown = [
      ...pages.map(file => [file, [...commandsIn(readFileSync(join(root, file), 'utf8'))]] as const),
      ...filesBelow('console', /\.tsx?$/).map(
        file => [file, [...commandsInSource(readFileSync(join(root, file), 'utf8'))]] as const,
      ),
    ]
    for (const [file, texts] of shown) {
      for (const text of texts) {
        const wrong = findWrong(text)
        if (wrong !== null) t.fail(`${file}: fngw ${text}: ${wrong}`)
      }
    }
    const fromConsole = shown.filter(([file, texts]) => file.startsWith('console/') && texts.length > 0)
    t.ok(fromConsole.length >= 2, 'commands of the console were found')
    t.ok(shown.flatMap(([, texts]) => texts).length > 100, 'commands of the pages were found')
    t.equal(findWrong('jobs add hello'), 'no command "jobs add"')
    t.equal(findWrong('run functions --no-such'), '"run" has no flag --no-such')
  },
)

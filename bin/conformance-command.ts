/** `fngw conformance`: holds any server that serves the fixture tree to the specification. Owner: page bin/conformance. */

import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Command } from 'commander'
import { toFixtureTree } from '../conformance/fixture-tree.ts'
import { LANGUAGES, type Language } from '../conformance/languages.ts'
import { runCases } from '../conformance/run-cases.ts'
import type { Output } from './output.ts'
import { CommandError, UsageError } from './usage-error.ts'

export interface ConformanceFlags {
  languages?: string
  write?: string
}

const LABELS = LANGUAGES.map(({ label }) => label).join(', ')

export function addConformance(program: Command, output: Output): void {
  const command = program
    .command('conformance')
    .description('Run the conformance suite against a server (TAP output).')
    .argument('[url]', 'Address of the server, such as http://127.0.0.1:8080.')
    .option('--write <dir>', 'Write the tree of fixtures into an empty folder, for the server to serve.')
    .option('--languages <list>', 'Only these: js,cjs,ts,py,pya,php8,lua5,golang,rs.')
    .addHelpText('after', '\nCases end processes, fill memory and loop: never ask a server that has users.')
    .addHelpText(
      'after',
      '\nExample:\n  fngw conformance --write tree && fngw dev tree &\n  fngw conformance http://127.0.0.1:8080',
    )
    .action(async (url: string | undefined) => {
      process.exitCode = await runConformance(url, command.opts<ConformanceFlags>(), output)
    })
}

/** @returns exit code: 0 when no case failed and at least one was looked at */
export async function runConformance(
  address: string | undefined,
  flags: ConformanceFlags,
  output: Output,
): Promise<number> {
  const languages = toLanguages(flags.languages)
  if (flags.write === undefined && address === undefined)
    throw new UsageError('give the address of a server, or --write DIR for the tree that it has to serve')
  const url = address === undefined ? null : toUrl(address)
  if (flags.write !== undefined) {
    const count = writeTree(flags.write, languages)
    output.note(
      `${count} files are in ${output.clean(flags.write)}: serve them in development mode, in every language that is there`,
    )
  }
  if (url === null) return 0
  const print = (line: string): void => output.result(line)
  const totals = await runCases({ url, languages, print }).catch(error => {
    throw new CommandError(`no response from ${url.origin}: ${(error as Error).message || String(error)}`)
  })
  if (totals.pass + totals.fail === 0)
    output.note(`${url.origin} serves no function of the tree of fixtures: fngw conformance --write DIR`)
  return totals.fail === 0 && totals.pass > 0 ? 0 : 1
}

function toLanguages(list: string | undefined): readonly Language[] {
  if (list === undefined) return LANGUAGES
  const labels = list.split(',').map(label => label.trim())
  const unknown = labels.find(label => !LANGUAGES.some(language => language.label === label))
  if (unknown !== undefined)
    throw new UsageError(`--languages must be some of ${LABELS}, got ${JSON.stringify(unknown)}`)
  return LANGUAGES.filter(({ label }) => labels.includes(label))
}

function toUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null
  if (
    url !== null &&
    /^https?:$/.test(url.protocol) &&
    url.pathname === '/' &&
    url.search === '' &&
    url.username === ''
  )
    return url
  throw new UsageError(
    `the server must be an address such as http://127.0.0.1:8080, without a path, got ${JSON.stringify(text)}`,
  )
}

/** @returns number of files written; nothing of anybody is overwritten */
function writeTree(folder: string, languages: readonly Language[]): number {
  try {
    mkdirSync(folder, { recursive: true })
    if (readdirSync(folder).length > 0)
      throw new UsageError(`--write ${JSON.stringify(folder)} must name an empty folder`)
    const entries = Object.entries(toFixtureTree(languages))
    for (const [path, entry] of entries) {
      const file = join(folder, path)
      mkdirSync(dirname(file), { recursive: true })
      writeFileSync(file, typeof entry === 'string' ? entry : `${JSON.stringify(entry.json, null, 2)}\n`, {
        flag: 'wx',
      })
    }
    return entries.length
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new CommandError(`the tree cannot be written: ${(error as Error).message}`)
  }
}

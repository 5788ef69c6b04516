/** Tools that read a block of code which cannot be run where the tests run. Owner: page docs. */

import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { transformSync } from 'esbuild'
import { parseAllDocuments } from 'yaml'
import { makeTree } from '../helpers/tree.ts'

const luaparse = createRequire(import.meta.url)('luaparse') as { parse(text: string, options: object): unknown }
const UNITS = fileURLToPath(new URL('../../examples/deploy/systemd', import.meta.url))

/** What is wrong with a text; null for nothing. */
type Check = (text: string) => string | null

function byProgram(program: string, ...args: string[]): Check {
  return text => {
    const { status, stderr, error } = spawnSync(program, args, { input: text, encoding: 'utf8' })
    return status === 0 ? null : (error?.message ?? stderr)
  }
}

function byFunction(parse: (text: string) => unknown): Check {
  return text => {
    try {
      parse(text)
      return null
    } catch (error) {
      return (error as Error).message
    }
  }
}

function checkYaml(text: string): string | null {
  const faults = parseAllDocuments(text).flatMap(document => document.errors)
  return faults.length === 0 ? null : faults.join('\n')
}

function whereInstalled(program: string, check: Check): Check {
  return text => (isInstalled(program) ? check(text) : null)
}

/** Both read files alone. A program that is not there reads nothing, which the reason beside the block tells. */
function checkNginx(text: string): string | null {
  if (!isInstalled('nginx')) return null
  const tree = makeTree({
    'nginx.conf': `pid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n${text}\n}\n`,
  })
  try {
    return byProgram('nginx', '-t', '-p', tree.root, '-c', 'nginx.conf')('')
  } finally {
    tree.cleanup()
  }
}

/** A drop-in of the package's service; the program that the service starts is not where it says. */
function checkUnit(text: string): string | null {
  if (!isInstalled('systemd-analyze')) return null
  const tree = makeTree({ 'fngw.service.d/own.conf': text })
  try {
    cpSync(UNITS, tree.root, { recursive: true })
    const service = tree.path('fngw.service')
    writeFileSync(service, readFileSync(service, 'utf8').replaceAll('/usr/local/bin/fngw', '/bin/true'))
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', service], {
      env: { ...process.env, SYSTEMD_UNIT_PATH: `${tree.root}:` },
      encoding: 'utf8',
    })
    // What it does not know it passes over with a line that names the file.
    return status === 0 && !stderr.includes('own.conf') ? null : stderr
  } finally {
    tree.cleanup()
  }
}

/** Whoever shows a language in a page names here who reads it. `text` is for people: nothing reads it. */
const CHECKS: Readonly<Record<string, Check>> = {
  sh: byProgram('bash', '-n'),
  console: text => CHECKS.sh!(text.replaceAll(/^(?![$>] ).*$/gm, '').replaceAll(/^[$>] /gm, '')),
  json: byFunction(JSON.parse),
  js: byFunction(text => transformSync(text, { format: 'esm' })),
  ts: byFunction(text => transformSync(text, { loader: 'ts', format: 'esm' })),
  python: byProgram('python3', '-c', 'import ast, sys; ast.parse(sys.stdin.read())'),
  php: byProgram('php', '-l'),
  lua: byFunction(text => luaparse.parse(text, { luaVersion: '5.3' })),
  // gofmt accepts statements alone; rustfmt reads whole items.
  go: whereInstalled('gofmt', byProgram('gofmt', '-e')),
  rust: whereInstalled('rustfmt', text => byProgram('rustfmt', '--emit', 'stdout')(`fn main() {\n${text}\n}\n`)),
  yaml: checkYaml,
  toml: byProgram('python3', '-c', 'import sys, tomllib; tomllib.load(sys.stdin.buffer)'),
  // Postgres reads it where the page is followed.
  sql: () => null,
  nginx: checkNginx,
  // Caddy reads files alone: test/e2e/proxies.test.ts starts it with the block.
  caddy: () => null,
  ini: checkUnit,
  // Every text is HTML: its standard says what a browser makes of each mistake.
  html: () => null,
  text: () => null,
}

export function findCheck(language: string): Check | null {
  return CHECKS[language] ?? null
}

export function isInstalled(program: string): boolean {
  return (process.env.PATH ?? '').split(':').some(folder => existsSync(join(folder, program)))
}

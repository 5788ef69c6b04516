// Changes one random line of a module and runs the module's own tests: a test that stays green did not notice. The module is put back
// after each mutant, also after SIGINT and SIGTERM.
// Usage: npm run mutants [-- --count N] [--seed S] [module ...]   default: 100 mutants of all modules of lib that have a test of their name
import { spawn } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { namesakeOf } from './helpers/coverage.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    count: { type: 'string', default: '100' },
    seed: { type: 'string', default: String(Date.now() % 100_000) },
  },
})
const TEST_MS = 120_000

/** Pattern and replacement of each kind of mutant; null removes the whole line, which must be a statement. */
const KINDS = [
  [/ === /, ' !== '],
  [/ !== /, ' === '],
  [/ < /, ' <= '],
  [/ > /, ' >= '],
  [/ <= /, ' < '],
  [/ >= /, ' > '],
  [/ && /, ' || '],
  [/ \|\| /, ' && '],
  [/ \+ 1\b/, ' - 1'],
  [/ - 1\b/, ' + 1'],
  [/\btrue\b/, 'false'],
  [/\bfalse\b/, 'true'],
  [/\bif \((?!!)([\w.#]+)\)/, 'if (!$1)'],
  [/\breturn null$/, 'return undefined'],
  [/^ +(?:this\.)?[#\w.]+\([^{]*\)$/, null],
]

let state = Number(values.seed)
/** Mulberry32. @returns a whole number below `end` */
function random(end) {
  state = (state + 0x6d2b79f5) | 0
  let t = Math.imul(state ^ (state >>> 15), 1 | state)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4_294_967_296) * end)
}

/** Tests by the module that they carry the name of. */
const tests = new Map()
for (const file of readdirSync(join(root, 'test'), { recursive: true })) {
  if (!file.endsWith('.test.ts')) continue
  const module = namesakeOf(root, `test/${file}`)
  if (module?.startsWith('lib/')) tests.set(module, [...(tests.get(module) ?? []), `test/${file}`])
}
const modules = positionals.length > 0 ? positionals : [...tests.keys()].sort()

/** Every mutant that a module can have. */
function mutantsOf(text) {
  return text.split('\n').flatMap((line, at) => {
    if (/^\s*(?:\/\/|\/?\*|import |export type|export interface)/.test(line)) return []
    return KINDS.filter(([pattern]) => pattern.test(line)).map(([pattern, by]) => ({
      at,
      line,
      changed: by === null ? '' : line.replace(pattern, by),
    }))
  })
}

/** @returns whether all tests of the module pass */
async function passes(module) {
  for (const test of tests.get(module) ?? []) {
    const child = spawn(process.execPath, ['--import', 'tsx', test], { cwd: root, stdio: 'ignore', detached: true })
    const timer = setTimeout(() => process.kill(-child.pid, 'SIGKILL'), TEST_MS)
    const code = await new Promise(resolve => child.once('exit', resolve))
    clearTimeout(timer)
    if (code !== 0) return false
  }
  return true
}

process.stdout.write(`seed ${values.seed}\n`)
let noticed = 0
let tried = 0
let restore = () => {}
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    restore()
    process.exit(1)
  })
}
while (tried < Number(values.count)) {
  const module = modules[random(modules.length)]
  const text = readFileSync(join(root, module), 'utf8')
  const mutants = mutantsOf(text)
  if (mutants.length === 0) continue
  const { at, line, changed } = mutants[random(mutants.length)]
  const lines = text.split('\n')
  lines[at] = changed
  restore = () => writeFileSync(join(root, module), text)
  writeFileSync(join(root, module), lines.join('\n'))
  const isMissed = await passes(module)
  restore()
  tried += 1
  if (isMissed) process.stdout.write(`missed ${module}:${at + 1}\n  - ${line.trim()}\n  + ${changed.trim()}\n`)
  else noticed += 1
}
process.stdout.write(`${noticed} of ${tried} mutants noticed (${Math.round((100 * noticed) / tried)} %)\n`)

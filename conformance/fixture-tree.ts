/**
 * The tree of functions that a server under test serves: the same answers in every language. Owner: page bin/conformance.
 *
 *   <label>/all      every answer          <label>/short    the same with a timeout of 400 ms
 *   <label>/other    invoke.handler        <label>/params/[id], docs/[...slug], maybe/[[...slug]]   file routes
 *   <label>/broken-* what cannot be loaded
 */

import { readFileSync } from 'node:fs'
import { packageFile } from '../lib/runtime/package-files.ts'
import type { Language } from './languages.ts'

/** Text of a file, or JSON to be written into it. */
type FixtureEntry = string | { json: unknown }

export const SHORT_TIMEOUT_MS = 400
/** Milliseconds that a handler takes which is to be ended before: on a busy machine whoever ends it may be late by seconds. */
export const LATE_MS = 4000
export const MAX_BODY_BYTES = 20 * 1024 * 1024

/** @param path - such as `all/handler.js` */
export function readFixture(path: string): string {
  return readFileSync(packageFile(`spec/fixtures/functions/${path}`), 'utf8')
}

/** Files of the functions of these languages, by path below the functions root. */
export function toFixtureTree(languages: readonly Language[]): Record<string, FixtureEntry> {
  const entries: Record<string, FixtureEntry> = {}
  for (const language of languages) {
    for (const [path, entry] of Object.entries({ ...functionsOf(language), ...brokenFunctions(language) }))
      entries[`${language.label}/${path}`] = entry
  }
  return entries
}

/** Handler files that cannot be loaded, by case and extension; the mistake is on line 2. */
const BROKEN: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  syntax: {
    '.js': 'const a = 1\nexport const handler = ( => a\n',
    '.cjs': 'const a = 1\nexports.handler = ( => a\n',
    '.ts': 'const a: number = 1\nexport const handler = ( => a\n',
    '.py': 'a = 1\ndef handler(event:\n',
    '.php': '<?php\nfunction handler( {}\n',
    '.lua': 'local a = 1\nfunction handler() return = a end\n',
  },
  symbol: {
    '.js': 'export const greet = () => 1\n',
    '.cjs': 'exports.greet = () => 1\n',
    '.ts': 'export const greet = (): number => 1\n',
    '.py': 'def greet(event):\n    return 1\n',
    '.php': '<?php\nfunction greet() { return 1; }\n',
    '.lua': 'function greet() return 1 end\n',
  },
  import: {
    '.js': 'const a = 1\nimport "./_gone.js"\nexport const handler = () => a\n',
    '.cjs': 'const a = 1\nrequire("./_gone")\n',
    '.ts': 'const a: number = 1\nimport "./_gone.ts"\nexport const handler = () => a\n',
    '.py': 'a = 1\nimport _gone\n',
    '.php': '<?php\nrequire "_gone.php";\n',
    '.lua': 'local a = 1\nrequire("_gone")\n',
  },
  throws: {
    '.js': 'const a = 1\nthrow new Error("no start")\n',
    '.cjs': 'const a = 1\nthrow new Error("no start")\n',
    '.ts': 'const a: number = 1\nthrow new Error("no start")\n',
    '.py': 'a = 1\nraise ValueError("no start")\n',
    '.php': '<?php\nthrow new Exception("no start");\n',
    '.lua': 'local a = 1\nerror("no start")\n',
  },
}

function brokenFunctions({ extension }: Language): Record<string, FixtureEntry> {
  const entries: Record<string, FixtureEntry> = {}
  for (const [name, files] of Object.entries(BROKEN)) {
    const text = files[extension]
    if (text === undefined) continue
    entries[`broken-${name}/handler${extension}`] = text
    // Named, so that every language looks for one name only.
    entries[`broken-${name}/fn.config.json`] = { json: { invoke: { handler: 'handler' } } }
  }
  return entries
}

function functionsOf({ label, extension, handler, beside, compiled }: Language): Record<string, FixtureEntry> {
  const text = readFixture(handler)
  const helpers = Object.entries(beside).map(([name, path]) => [name, readFixture(path)] as const)
  const entries: Record<string, FixtureEntry> = {}
  const add = (folder: string, file: string, config: unknown): void => {
    entries[`${folder}/${file}${extension}`] = text
    for (const [name, content] of helpers) entries[`${folder}/${name}`] = content
    if (config !== null) entries[`${folder}/fn.config.json`] = { json: config }
  }
  const policy = { timeout_ms: 20_000, max_concurrency: 200, max_body_bytes: MAX_BODY_BYTES }
  add('all', 'handler', { ...policy, response: { include_debug_headers: true } })
  entries['all/fn.env.json'] = { json: { PLAIN: 'plän', SECRET: { value: 's3cret', is_secret: true }, NUMBER: 5 } }
  add('short', 'handler', { timeout_ms: SHORT_TIMEOUT_MS })
  add('other', 'handler', { invoke: { handler: 'other' } })
  if (compiled) {
    const routes = ['all', 'params/[id]', 'docs/[...slug]', 'maybe/[[...slug]]', 'wild', 'wild/*']
    const invoke = { routes: routes.map(route => `/${label}/${route}`) }
    add('all', 'handler', { ...policy, invoke, response: { include_debug_headers: true } })
    return entries
  }
  add('wild', 'handler', { name: `${label}/wild` })
  add('params', '[id]', null)
  add('docs', '[...slug]', null)
  add('maybe', '[[...slug]]', null)
  return entries
}

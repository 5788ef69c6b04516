/**
 * The Cargo.toml of a build: the user's own with our targets in it. TOML is taken apart only as far as needed: into
 * tables and their entries, whose text stays as it is. Owner: §2.16, page dependencies/resolve.
 */

import { isAbsolute, join, resolve } from 'node:path'
import { isFolder, readOptional } from './build.ts'

interface ManifestOptions {
  /** Letters, digits and `_`, one for each handler file: all functions of a root share one folder of build results. */
  id: string
  /** Full path of the handler file. */
  entryPath: string
  /** Folder that relative paths of the user's manifest start from. */
  fnDir: string
  workerFolder: string
  /** Versions of crates that a manifest of our own asks for: by name, for an old compiler. */
  pins: Readonly<Record<string, string>>
}

interface Entry {
  /** First part of a dotted key, without quotes; '' for comments and blank lines. */
  key: string
  text: string
}

interface Table {
  /** Text of the header line; '' for what comes before the first one. */
  header: string
  /** Name without brackets and quotes: `dependencies.serde`. */
  name: string
  entries: Entry[]
}

/** Tables that say how the user's package is built or tested, and what a folder above might say. */
const DROPPED_TABLES =
  /^(?:lib|bin|example|test|bench|workspace|lints|badges|dev-dependencies|build-dependencies)(?:\.|$)/
const DROPPED_KEYS: ReadonlySet<string> = new Set([
  'autobenches',
  'autobins',
  'autoexamples',
  'autolib',
  'autotests',
  'build',
  'default-run',
  'exclude',
  'include',
  'license-file',
  'links',
  'publish',
  'readme',
  'workspace',
])
const WITH_PATHS = /(?:^|\.)(?:dependencies|patch)(?:\.|$)/
const PACKAGE_DEFAULTS: Readonly<Record<string, string>> = { name: 'handler', version: '0.0.0', edition: '2021' }

/** @param user - text of the user's Cargo.toml, null without one */
export function toManifest(user: string | null, options: ManifestOptions): string {
  const tables = user === null ? [] : parseTables(user).filter(({ name }) => !DROPPED_TABLES.test(name))
  const own = tableOf(tables, 'package')
  own.entries = own.entries.filter(({ key }) => !DROPPED_KEYS.has(key))
  for (const [key, value] of Object.entries(PACKAGE_DEFAULTS)) {
    if (!own.entries.some(entry => entry.key === key)) own.entries.push({ key, text: `${key} = "${value}"` })
  }
  for (const key of ['autobins', 'autoexamples', 'autotests', 'autobenches'])
    own.entries.push({ key, text: `${key} = false` })
  for (const table of tables) {
    if (!WITH_PATHS.test(table.name)) continue
    for (const entry of table.entries) entry.text = withFullPaths(entry.text, options.fnDir)
  }
  const dependencies = tableOf(tables, 'dependencies')
  const has = (name: string) =>
    dependencies.entries.some(({ key }) => key === name) || tables.some(table => table.name === `dependencies.${name}`)
  for (const [key, version] of Object.entries({ serde_json: '1', ...(user === null && options.pins) })) {
    if (!has(key)) dependencies.entries.push({ key, text: `${key} = "${version}"` })
  }
  dependencies.entries.push({ key: 'fngw_worker', text: `fngw_worker = { path = ${quote(options.workerFolder)} }` })
  if (!tables.some(({ name }) => name === 'profile.release')) {
    tables.push({
      header: '[profile.release]',
      name: 'profile.release',
      entries: [{ key: 'strip', text: 'strip = true' }],
    })
  }
  const targets = `[lib]
name = "handler_${options.id}"
path = ${quote(options.entryPath)}

[[bin]]
name = "fn_${options.id}"
path = "src/main.rs"

[workspace]
`
  const texts = tables.map(({ header, entries }) => [header, ...entries.map(({ text }) => text)].join('\n').trim())
  return `${[...texts.filter(text => text !== ''), targets].join('\n\n')}`
}

/** Name of the package of a Cargo.toml, null for one without. */
export function packageNameOf(manifest: string): string | null {
  const name = tableOf(parseTables(manifest), 'package').entries.find(({ key }) => key === 'name')
  return /=\s*["']([\w-]+)["']/.exec(name?.text ?? '')?.[1] ?? null
}

function tableOf(tables: Table[], name: string): Table {
  const known = tables.find(table => table.name === name)
  if (known !== undefined) return known
  const made = { header: `[${name}]`, name, entries: [] }
  tables.push(made)
  return made
}

/** Comments and quoted text; text of one line that is not closed ends with its line. */
const TOML_TEXT = /#[^\n]*|"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"?|'[^'\n]*'?/g

/** Cuts a TOML text at its headers; a `[` inside a value that spans lines begins no table. */
export function parseTables(text: string): Table[] {
  const toml = text.replace(/^\uFEFF/, '').replace(/\r\n/g, '\n')
  const code = toml.replace(TOML_TEXT, found => ' '.repeat(found.length))
  const tables: Table[] = [{ header: '', name: '', entries: [] }]
  for (let at = 0; at < toml.length; ) {
    const lineEnd = endOfLine(toml, at)
    const line = toml.slice(at, lineEnd)
    const header = /^\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$/.exec(line)
    const key = /^\s*("[^"]+"|'[^']+'|[A-Za-z0-9_-]+)\s*[.=]/.exec(line)?.[1]
    if (header !== null) tables.push({ header: line, name: toPlainKey(header[1] as string), entries: [] })
    const entryEnd = header === null && key !== undefined ? endOfValue(code, at + line.indexOf('=') + 1) : lineEnd
    if (header === null) {
      const entry = { key: key === undefined ? '' : toPlainKey(key), text: toml.slice(at, entryEnd) }
      tables.at(-1)?.entries.push(entry)
    }
    at = entryEnd + 1
  }
  return tables
}

/**
 * The end of the line in which a value ends: after open brackets and text of several lines.
 * @param code - without comments and quoted text
 */
function endOfValue(code: string, from: number): number {
  let depth = 0
  for (const mark of code.slice(from).matchAll(/[[{\]}\n]/g)) {
    if (mark[0] === '\n' && depth <= 0) return from + mark.index
    if (mark[0] !== '\n') depth += '[{'.includes(mark[0]) ? 1 : -1
  }
  return code.length
}

function endOfLine(text: string, from: number): number {
  const at = text.indexOf('\n', from)
  return at === -1 ? text.length : at
}

function toPlainKey(key: string): string {
  const parts = key.match(/"[^"]*"|'[^']*'|[^.\s]+/g) ?? []
  return parts.map(part => part.replace(/^(["'])(.*)\1$/, '$2')).join('.')
}

function withFullPaths(text: string, folder: string): string {
  return text.replace(
    /\b(path\s*=\s*)(?:"([^"]*)"|'([^']*)')/g,
    (whole, start: string, double?: string, single?: string) => {
      const path = double ?? single ?? ''
      return isAbsolute(path) ? whole : `${start}${quote(join(folder, path))}`
    },
  )
}

function quote(text: string): string {
  return JSON.stringify(text)
}

const CARGO_PATH = /\bpath\s*=\s*(?:"([^"]*)"|'([^']*)')/g

/** Full paths of the folders of crates that a folder's `Cargo.toml` names by path, and that these name. */
export function pathCratesOf(folder: string): string[] {
  const seen = new Set([folder])
  for (const crate of seen) {
    const text = readOptional(join(crate, 'Cargo.toml'))?.replace(/^\s*#.*$/gm, '') ?? ''
    // In its own tables `path` is a file: the one of a target.
    for (const [, double, single] of text.matchAll(CARGO_PATH)) {
      const path = resolve(crate, double ?? single ?? '')
      if (isFolder(path)) seen.add(path)
    }
  }
  seen.delete(folder)
  return [...seen]
}

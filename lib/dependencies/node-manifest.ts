/** `package.json` beside a function: read, checked, completed and made. Owner: page dependencies/node. */

import { join } from 'node:path'
import type { GatewayError } from '../core/errors.ts'
import { editJsonObject, findIndent, findJsonValue } from '../config/json-edit.ts'
import { isObject } from '../core/json.ts'
import { manifestError, parseManifest, readSmallFile, showToken } from './manifest-text.ts'
import { labelOf } from './unit-files.ts'

export const NODE_MANIFEST = 'package.json'
/** Tells a manifest of the gateway's from one of the author's. */
const GENERATED = 'Made from the imports of the function. Edit it freely: what stands here is kept.'
/** Fields that decide about packages; nothing else of a manifest reaches the installer, its scripts least of all. */
const FIELDS = [
  'dependencies',
  'devDependencies',
  'optionalDependencies',
  'peerDependencies',
  'peerDependenciesMeta',
  'overrides',
] as const
type Field = (typeof FIELDS)[number]
/** Where a manifest declares a package. */
export const DECLARING = ['dependencies', 'optionalDependencies', 'peerDependencies', 'devDependencies'] as const
/** Names to ranges. */
export type Ranges = Readonly<Record<string, unknown>>

/** A manifest that was read. */
export class NodeManifest {
  readonly #text: string
  readonly #json: Record<string, unknown>
  /** Below the functions root, for messages. */
  readonly label: string

  readonly #omitted: ReadonlySet<string>

  /**
   * @param omitted - names of packages that are left out of every field
   * @throws GatewayError when it is no JSON object, or a field has the wrong type
   */
  constructor(text: string, label: string, omitted: ReadonlySet<string> = new Set()) {
    this.#text = text.replace(/^\uFEFF/, '')
    this.label = label
    this.#omitted = omitted
    this.#json = parseManifest(this.#text, label, 'dependencies')
    for (const field of FIELDS) {
      const value = this.#json[field]
      if (value !== undefined && !isObject(value)) {
        const message = `${label}: ${field} must be an object of names and version ranges, got ${showToken(value)}`
        throw this.error(message, field, 'write { "name": "^1.0.0" }')
      }
    }
  }

  get name(): unknown {
    return this.#json.name
  }

  /** Of `package-lock.json`'s first entry: what a lock repeats of the manifest beside the packages. */
  get version(): unknown {
    return this.#json.version
  }

  /** True for one that the gateway made. */
  get isGenerated(): boolean {
    return this.#json.description === GENERATED
  }

  of(field: Field): Ranges {
    const value = this.#json[field]
    if (!isObject(value)) return {}
    if (this.#omitted.size === 0) return value
    return Object.fromEntries(Object.entries(value).filter(([name]) => !this.#omitted.has(name)))
  }

  /** The manifest without packages that are there already. */
  without(names: ReadonlySet<string>): NodeManifest {
    return names.size === 0 ? this : new NodeManifest(this.#text, this.label, names)
  }

  /** What decides about packages, with further packages to install. */
  toStaged(more: Readonly<Record<string, string>>): Record<string, unknown> {
    const staged: Record<string, unknown> = { name: STAGED_NAME, private: true }
    for (const field of FIELDS) if (Object.keys(this.of(field)).length > 0) staged[field] = this.of(field)
    if (Object.keys(more).length > 0) staged.dependencies = { ...this.of('dependencies'), ...more }
    return staged
  }

  /** The text with more dependencies: what is there keeps its order, indentation and line ends. */
  append(more: Readonly<Record<string, string>>): string {
    const indent = findIndent(this.#text)
    const before = findJsonValue(this.#text, 'dependencies')
    const entries = Object.entries(more).map(([name, range]) => [name, JSON.stringify(range)] as const)
    const dependencies = editJsonObject(before, new Map(entries), indent, 1)
    const isWindows = before === null && this.#text.includes('\r\n')
    const value = isWindows ? dependencies.replaceAll('\n', '\r\n') : dependencies
    const end = /\s*$/.exec(this.#text)?.[0] ?? ''
    return editJsonObject(this.#text, new Map([['dependencies', value]]), indent) + end
  }

  /** A failure that names the line of a word of the manifest. */
  error(message: string, word: string, hint: string): GatewayError {
    return manifestError({ text: this.#text, label: this.label }, message, word, hint)
  }
}

/** Name of the package that is installed from: one for all functions, so that equal wishes share one set. */
const STAGED_NAME = 'fngw-function'

/** @returns null when the folder has none @throws GatewayError when it cannot be used */
export function readNodeManifest(folder: string, folderLabel: string): NodeManifest | null {
  const label = labelOf({ label: folderLabel }, NODE_MANIFEST)
  const text = readSmallFile(join(folder, NODE_MANIFEST), label)
  return text === null ? null : new NodeManifest(text, label)
}

/** A manifest for a function without one. @param slug - from the function's name */
export function makeNodeManifest(slug: string, ranges: Readonly<Record<string, string>>): string {
  const name = `fn-${slug.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`.replace(/-+$/, '').slice(0, 100)
  const json = { name, version: '1.0.0', private: true, description: GENERATED, dependencies: ranges }
  return `${JSON.stringify(json, null, 2)}\n`
}

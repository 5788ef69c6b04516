/**
 * Imports that read like names of packages and are files of the function: by `paths` of a tsconfig.json, or because `./` was
 * forgotten. To install whatever has their name would run somebody else's code. Owner: page dependencies/node.
 */

import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { isObject } from '../core/json.ts'

const CONFIG = 'tsconfig.json'
/** Configs that extend others, one after the other. */
const MAX_EXTENDS = 5
const MAX_CHARS = 256 * 1024
const EXTENSIONS = ['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.tsx', '.jsx']
const COMMENTS = /("(?:[^"\\]|\\.)*")|\/\/[^\n]*|\/\*[\s\S]*?\*\//g

interface Mapping {
  /** Text before and after the `*` of a pattern; `after` null for one without. */
  before: string
  after: string | null
  /** Full paths, with `*` for what stands in its place. */
  targets: readonly string[]
}

export class NodeLocalNames {
  readonly #folder: string
  readonly #entries: ReadonlySet<string>
  readonly #mappings: readonly Mapping[]

  /**
   * @param folder - full path of the function's folder
   * @param root - full path of the functions root; what lies above it is not read
   * @param entries - full paths of handlers: a route may be called like the package it imports
   */
  constructor(folder: string, root: string, entries: readonly string[]) {
    this.#folder = folder
    this.#entries = new Set(entries)
    this.#mappings = readMappings(findConfig(folder, root), MAX_EXTENDS)
  }

  /** True when `paths` of the nearest tsconfig.json lead to a file that is there. */
  isMapped(specifier: string): boolean {
    return this.#mappings.some(({ before, after, targets }) => {
      const isMatch =
        after === null
          ? specifier === before
          : specifier.length >= before.length + after.length &&
            specifier.startsWith(before) &&
            specifier.endsWith(after)
      if (!isMatch) return false
      const middle = after === null ? '' : specifier.slice(before.length, specifier.length - after.length)
      return targets.some(target => isSource(target.replace('*', () => middle)))
    })
  }

  /** True for `helper` where `helper.js`, or `helper/index.js`, lies in the function's folder and is no handler. */
  isBeside(name: string): boolean {
    const bases = [join(this.#folder, name), join(this.#folder, name, 'index')]
    return bases.some(base => EXTENSIONS.some(end => existsSync(base + end) && !this.#entries.has(base + end)))
  }
}

function isSource(path: string): boolean {
  return [path, join(path, 'index')].some(base => ['', ...EXTENSIONS].some(end => existsSync(base + end)))
}

function findConfig(folder: string, root: string): string | null {
  for (let at = folder; ; at = dirname(at)) {
    if (existsSync(join(at, CONFIG))) return join(at, CONFIG)
    if (at === root || at === dirname(at)) return null
  }
}

function readMappings(file: string | null, left: number): Mapping[] {
  const config = file === null ? null : readConfig(file)
  if (file === null || config === null) return []
  const options = isObject(config.compilerOptions) ? config.compilerOptions : {}
  const { paths, baseUrl } = options
  const { extends: parent } = config
  if (!isObject(paths)) {
    if (typeof parent !== 'string' || !parent.startsWith('.') || left === 0) return []
    const next = resolve(dirname(file), parent)
    return readMappings(existsSync(next) ? next : `${next}.json`, left - 1)
  }
  const base = resolve(dirname(file), typeof baseUrl === 'string' ? baseUrl : '.')
  return Object.entries(paths).flatMap(([pattern, targets]) => {
    if (!Array.isArray(targets)) return []
    const [before = '', after = null] = pattern.split('*', 2) as [string, string?]
    return [{ before, after, targets: targets.filter(one => typeof one === 'string').map(one => resolve(base, one)) }]
  })
}

/** A tsconfig.json may have comments and commas before a closing bracket. */
function readConfig(file: string): Record<string, unknown> | null {
  try {
    const text = readFileSync(file, 'utf8')
    if (text.length > MAX_CHARS) return null
    const plain = text.replace(COMMENTS, (_, kept: string | undefined) => kept ?? '').replace(/,(\s*[}\]])/g, '$1')
    const value: unknown = JSON.parse(plain)
    return isObject(value) ? value : null
  } catch {
    return null
  }
}

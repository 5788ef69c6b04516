/** What an import or a manifest may name: packages of the registry, and nothing that reads as an option, path or address. Owner: page dependencies/node. */

import { isBuiltin } from 'node:module'
import { showToken } from './manifest-text.ts'

/** Longest name the registry takes. */
const MAX_NAME_CHARS = 214
/** Begins with a letter or digit: never an option, a hidden file or a way upwards. Old names have capitals. */
const NAME = /^(?:@[A-Za-z0-9][A-Za-z0-9._~-]*\/)?[A-Za-z0-9][A-Za-z0-9._~-]*$/
const RESERVED: ReadonlySet<string> = new Set(['node_modules', 'favicon.ico'])
/** `^1.2.3`, `>=1 <3 || 5.x`, `1.0.0 - 2.0.0`, `latest`, `next-14`, `*` and nothing at all. */
const RANGE = /^[\w.+*^~<>=| -]*$/
const MAX_RANGE_CHARS = 256
const SCHEME = /^[a-z][a-z0-9+.-]*:/i

/** True for the name of a package that the registry could have. */
export function isPackageName(name: string): boolean {
  return name.length <= MAX_NAME_CHARS && NAME.test(name) && !RESERVED.has(name.toLowerCase())
}

/** What one import stands for. */
type ImportTarget =
  | { kind: 'package'; name: string }
  /** Comes with node, with the function, or from an address that node reads itself. */
  | { kind: 'none' }
  /** Nothing that npm could install. */
  | { kind: 'unresolved' }

/** @param specifier - the text between the quotes of an import */
export function toImportTarget(specifier: string): ImportTarget {
  // `@/x` and `~/x` are what a tsconfig.json makes of them.
  if (/^\.\.?(?:\/|$)|^\/|^#|^[@~]\//.test(specifier) || /^[A-Za-z]:[\\/]/.test(specifier)) return { kind: 'none' }
  if (SCHEME.test(specifier)) return { kind: /^(?:node|data|file):/i.test(specifier) ? 'none' : 'unresolved' }
  const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
  // `punycode/` is the package of that name, `punycode` what node brings.
  if (isBuiltin(specifier)) return { kind: 'none' }
  return isPackageName(name) ? { kind: 'package', name } : { kind: 'unresolved' }
}

/** What a manifest asks for under one name. */
type PackageSource =
  | { kind: 'registry' }
  /** A folder or archive on this machine, as it is written after `file:`. */
  | { kind: 'file'; path: string }
  /** A repository or an address: fetched by other programs than the registry's client, from anywhere. */
  | { kind: 'address' }
  /** What only another package manager than npm installs (`workspace:*`). */
  | { kind: 'foreign'; why: string }
  | { kind: 'wrong'; why: string }

/** @param spec - the value beside the name in `dependencies` */
export function toPackageSource(name: string, spec: unknown): PackageSource {
  if (!isPackageName(name)) {
    return { kind: 'wrong', why: `${showToken(name)} is no name of a package` }
  }
  if (typeof spec !== 'string')
    return { kind: 'wrong', why: `${name} must be a version range as text, got ${showToken(spec)}` }
  const text = spec.trim()
  const wrong = (): PackageSource => ({ kind: 'wrong', why: `${name}: ${showToken(text)} is no version range` })
  if (text.length > MAX_RANGE_CHARS && !text.startsWith('file:')) return wrong()
  if (RANGE.test(text)) return text.startsWith('-') ? wrong() : { kind: 'registry' }
  if (text.startsWith('file:')) return { kind: 'file', path: text.slice('file:'.length) }
  if (text.startsWith('npm:')) return isAlias(text.slice('npm:'.length)) ? { kind: 'registry' } : wrong()
  if (/^(?:workspace|catalog|link|portal|patch):/.test(text)) {
    const why = `${name}: ${showToken(spec)} is understood by other package managers than npm`
    return { kind: 'foreign', why }
  }
  if (/^\.{0,2}\//.test(text)) return { kind: 'file', path: text }
  if (SCHEME.test(text) || /^[\w.-]+@[\w.-]+:/.test(text) || /^[\w.-]+\/[\w.-]+(?:#.*)?$/.test(text))
    return { kind: 'address' }
  return wrong()
}

/** `lodash@^4`: the package that another name stands for. */
function isAlias(text: string): boolean {
  const at = text.indexOf('@', 1)
  const name = at === -1 ? text : text.slice(0, at)
  return isPackageName(name) && RANGE.test(at === -1 ? '' : text.slice(at + 1))
}

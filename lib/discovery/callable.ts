/** Which symbol of a handler file is called, per runtime. The loader of each language follows this table. Spec: §2.4. */

import { readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { setImmediate } from 'node:timers/promises'
import type { Callable, FunctionVersion, Policy } from '../core/catalog.ts'
import { orNull, type Warning } from '../core/errors.ts'
import { hasAdapter, type RuntimeName } from '../core/identity.ts'

/** Of a function that names none. */
const DEFAULTS: Readonly<Record<RuntimeName, Callable>> = {
  python: toCallable(['handler', 'main']),
  // `export default function` and `module.exports = function` need no name.
  node: toCallable(['handler', 'default']),
  php: toCallable(['handler']),
  lua: toCallable(['handler', 'main']),
  go: toCallable(['handler', 'Handler']),
  rust: toCallable(['handler']),
}

/**
 * The callable of a function. `invoke.handler` replaces the default names and has no fallback: a missing symbol is a
 * mistake to show, not to guess around. The edge-worker adapter looks for `fetch` before any of them (§2.12).
 */
export function callableOf(runtime: RuntimeName, policy: Pick<Policy, 'handler' | 'adapter'>): Callable {
  const own = DEFAULTS[runtime]
  const isEdgeWorker = policy.adapter === 'edge-worker' && hasAdapter(runtime, policy.adapter)
  if (policy.handler === null && !isEdgeWorker) return own
  const names = policy.handler === null ? own.names : [policy.handler]
  return toCallable(isEdgeWorker ? ['fetch', ...names] : names)
}

/** Frozen: one object may stand in thousands of functions. */
function toCallable(names: readonly string[]): Callable {
  return Object.freeze({ names: Object.freeze([...names]) })
}

/** Ways to define `handler`, by the text of a file. Text that may do so in a way that it does not show counts as well. */
const NAMED: Readonly<Record<Exclude<RuntimeName, 'lua'>, RegExp>> = {
  python:
    /^(?:(?:async\s+)?def|class)\s+handler\b|^handler\s*[:=,]|^\s*(?:from|import)\b.*(?:\bhandler\b|\bimport\s*[(*])|\bglobals\(|\bexec\(/m,
  node: /\bexport\b[^;]{0,2000}?\bhandler\b|\bexport\s*\*|\bexports\b[^;]{0,2000}?\bhandler\b|\bexports\s*\[|\bexports\s*=\s*\{[^}]*\.\.\.|\(\s*(?:module\s*\.\s*)?exports\b/,
  php: /\bhandler\b/,
  go: /^func\s+[hH]andler\b/m,
  rust: /\bhandler\b/,
}

/** Other callables that a file may have: a default export, a returned function, `main`. */
const UNNAMED: Partial<Record<RuntimeName, RegExp>> = {
  python: /^(?:async\s+)?def\s+main\b/m,
  node: /\bexport\s+default\b|\bexport\s*=|\bas\s+default\b|\bexports\s*\.\s*default\b|\bmodule\s*\.\s*exports\s*=(?!\s*[{=])/,
  php: /^return\b(?!\s*(?:\[|array\b))/m,
}

/**
 * Whether a file may be a handler, by its text. False only when it certainly has no callable.
 * @param isNamedOnly - a default export and its like are not meant as a handler
 */
export function mayBeHandler(runtime: RuntimeName, text: string, isNamedOnly: boolean): boolean {
  if (runtime === 'lua') return checkLua(text, '', DEFAULTS.lua.names)?.code !== 'CALLABLE_MISSING'
  if (NAMED[runtime].test(text)) return true
  // `main` of a script is called by the script itself.
  const isScript = runtime === 'python' && text.includes('__main__')
  return !isNamedOnly && !isScript && UNNAMED[runtime]?.test(text) === true
}

// Checks of Lua handlers without running them: syntax errors and missing callables.

/** Largest file that is looked at, bytes: parsing holds up everything else, a megabyte of source for some 100 ms. */
const MAX_CHECKED_BYTES = 256 * 1024
/** With one of these a file may get its callable in ways that its text does not show. */
const DYNAMIC = new Set(['_G', '_ENV', 'load', 'loadstring', 'loadfile', 'dofile', 'require', 'setmetatable', 'rawset'])

/** The parts of luaparse that are used; the package has no types. */
interface LuaNode {
  readonly type: string
  readonly [field: string]: unknown
}
interface LuaParser {
  parse(text: string, options: object): LuaNode
}

/** Loaded with the first Lua file: a tree without any does not pay for it. */
function loadParser(): LuaParser {
  return createRequire(import.meta.url)('luaparse') as LuaParser
}

/**
 * @param names - symbols of which one must be there
 * @returns what is wrong, in the words of the call that would fail; null when nothing is, or when it cannot be known
 */
export function checkLua(text: string, file: string, names: readonly string[]): Omit<Warning, 'path'> | null {
  let chunk: LuaNode
  try {
    chunk = loadParser().parse(text.replace(/^\uFEFF/, ''), { luaVersion: '5.3', comments: false, scope: true })
  } catch (error) {
    return toSyntaxWarning(error, file)
  }
  const { globals, locals, isDynamic } = findDeclarations(chunk)
  if (isDynamic || returnsSomething(chunk) || names.some(name => globals.has(name))) return null
  const defined = [...globals].sort()
  const wanted = names.map(name => `"${name}"`).join(' or ')
  const local = names.find(name => locals.has(name))
  return {
    code: 'CALLABLE_MISSING',
    message: `${file} has no function ${wanted} (it defines ${defined.join(', ') || 'none'}): calls fail with 500`,
    hint:
      local === undefined
        ? `Add function ${names[0]}(event, params) ... end, or name another function in invoke.handler.`
        : `"${local}" is local: remove "local", or end the file with "return ${local}".`,
  }
}

/** Only its own errors: a file that is nested too deep to be parsed may still be right. */
function toSyntaxWarning(error: unknown, file: string): Omit<Warning, 'path'> | null {
  const { message, line } = error as { message: string; line?: unknown }
  if (typeof line !== 'number') return null
  return {
    code: 'SYNTAX_ERROR',
    message: `${file}:${line}: ${message.replace(/^\[\d+:\d+\] /, '')}: calls fail with 500`,
    hint: 'Fix the line; the file is reloaded when it is saved.',
  }
}

/** `return` stands last in a block. */
function returnsSomething(chunk: LuaNode): boolean {
  const last = (chunk.body as LuaNode[]).at(-1)
  return last?.type === 'ReturnStatement' && (last.arguments as LuaNode[]).length > 0
}

/** Names that a chunk gives to global and to local variables; dynamic when it may define more. */
function findDeclarations(chunk: LuaNode) {
  const globals = new Set<string>()
  const locals = new Set<string>()
  let isDynamic = false
  // Not recursive: a long sum is a tree as deep as it is long.
  const left = [chunk]
  for (let node = left.pop(); node !== undefined; node = left.pop()) {
    if (node.type === 'Identifier' && DYNAMIC.has(String(node.name))) isDynamic = true
    const isLocal = node.type === 'LocalStatement' || node.isLocal === true
    for (const target of toTargets(node)) {
      if (isNode(target) && target.type === 'Identifier')
        (isLocal || target.isLocal === true ? locals : globals).add(String(target.name))
    }
    for (const child of Object.values(node).flat()) if (isNode(child)) left.push(child)
  }
  return { globals, locals, isDynamic }
}

/** What a statement gives a value to. */
function toTargets(node: LuaNode): readonly unknown[] {
  if (node.type === 'FunctionDeclaration') return [node.identifier]
  const isAssignment = node.type === 'AssignmentStatement' || node.type === 'LocalStatement'
  return isAssignment ? (node.variables as LuaNode[]) : []
}

function isNode(value: unknown): value is LuaNode {
  return typeof value === 'object' && value !== null && typeof (value as LuaNode).type === 'string'
}

interface Looked {
  signature: string
  warning: Warning | null
}

/** Checks the Lua handlers of each catalog, one that did not change only once. */
export class LuaChecks {
  readonly #onlyFirst: boolean
  #known: Map<string, Looked> | null = null

  /** @param onlyFirst - true checks the first catalog alone: later changes are loaded at once, which says more */
  constructor(onlyFirst = false) {
    this.#onlyFirst = onlyFirst
  }

  async check(functions: readonly FunctionVersion[]): Promise<Warning[]> {
    const known = new Map<string, Looked>()
    for (const fn of functions) {
      if (fn.runtime !== 'lua') continue
      const last = this.#known?.get(fn.key)
      const isChecked = this.#known === null || !this.#onlyFirst
      let warning = last?.signature === fn.signature ? last.warning : null
      if (last?.signature !== fn.signature && isChecked) {
        // Requests go on between two files.
        await setImmediate()
        warning = this.#look(fn)
      }
      known.set(fn.key, { signature: fn.signature, warning })
    }
    this.#known = known
    const warnings = [...known.values()].flatMap(({ warning }) => warning ?? [])
    return warnings.sort((a, b) => (a.path < b.path ? -1 : 1))
  }

  /** An unreadable file is reported by its call. */
  #look({ entryPath, entryFile, callable, policy }: FunctionVersion): Warning | null {
    // The file may be another one than was found: no pipe may hold up the gateway.
    const stats = orNull(() => statSync(entryPath))
    if (stats?.isFile() !== true || stats.size > MAX_CHECKED_BYTES || policy.adapter !== 'native') return null
    const text = orNull(() => readFileSync(entryPath, 'utf8'))
    const problem = text === null ? null : checkLua(text, entryFile, callable.names)
    return problem === null ? null : { ...problem, path: entryFile }
  }
}

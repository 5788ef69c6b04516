/**
 * Request paths in one canonical form, and the tree of routes that is searched with them. Spec: §4.1, page router/radix-tree.
 *
 *   raw        /a//b%2Fc/./%41%25/      as the client sent it, query cut off
 *   canonical  /a/b%2Fc/A%25            every segment decoded once; only `/` and `%` inside a segment stay escaped
 *
 * A canonical path is its own canonical path, so nothing is decoded twice, however often it passes through here.
 *
 *   users           behind the slash that every path begins with; static text is shared between routes
 *   ├─ ""           leaf of /users
 *   └─ /
 *      ├─ me        leaf of /users/me             tried first: static
 *      ├─ :         one segment                   then param
 *      │  ├─ ""     leaf of /users/:id
 *      │  └─ /posts leaf of /users/:id/posts
 *      └─ tails     /users/:rest*, :rest*?, *     then what takes all the rest, in that order
 *
 * When a branch fails, the next one is tried. A node stands for a fixed number of segments, so in one search it is
 * entered at one place of the path at most: the work is bounded by the nodes of the tree and the length of the path,
 * whatever the path looks like, and the depth of the search by the longest pattern.
 */

import { decodePercent } from '../core/http-text.ts'
import { escapeSegment, type Segment } from '../core/pattern.ts'

/** Why a path is answered 400. */
interface PathProblem {
  problem: string
}

const MALFORMED: PathProblem = { problem: 'malformed percent escape in path' }
/** Something to decode, refuse, collapse or resolve. A segment that begins with a dot may be as harmless as `.well-known`. */
const NEEDS_WORK = /[%\0]|\/[/.]/
/** The same without escapes that stand for text of their segment: those of `%`, `.`, `/` and NUL do not. */
const NEEDS_SEGMENTS = /\0|\/[/.]|%(?:2[5EF]|00)/i

/**
 * Brings a raw path into canonical form: decodes each segment once, collapses slashes, drops a trailing one, resolves
 * `.` and `..`, also when they arrive as `%2e`. A backslash is data.
 * @param rawPath - the request target without query
 * @returns the same string when it is canonical; a problem means 400
 */
export function normalizePath(rawPath: string): string | PathProblem {
  if (!rawPath.startsWith('/')) return { problem: 'path must start with a slash' }
  if (rawPath.length === 1 || !rawPath.endsWith('/')) {
    if (!NEEDS_WORK.test(rawPath)) return rawPath
    if (!NEEDS_SEGMENTS.test(rawPath)) return decodePercent(rawPath) ?? MALFORMED
  }
  const segments: string[] = []
  for (const raw of rawPath.split('/')) {
    const text = decodePercent(raw)
    if (text === null) return MALFORMED
    if (text.includes('\0')) return { problem: 'NUL in path' }
    if (text === '..' && segments.pop() === undefined) return { problem: 'path leaves the root' }
    if (text !== '' && text !== '.' && text !== '..') segments.push(escapeSegment(text))
  }
  return `/${segments.join('/')}`
}

/** The text that a piece of a canonical path stands for. */
export function unescapeCanonical(text: string): string {
  return text.includes('%') ? text.replaceAll('%2F', '/').replaceAll('%25', '%') : text
}

/** Decides at each leaf that matches the path, most specific first, whether the search ends there. */
export interface Acceptor<T> {
  accept(leaf: T): boolean
}

interface TreeEntry<T> {
  readonly segments: readonly Segment[]
  readonly value: T
}

/** Segments that take all the rest of a path, in order of precedence. */
const TAILS: readonly Segment['kind'][] = ['catch-all', 'optional-catch-all', 'wildcard']

/** Built once, then only read. */
export class RadixTree<T> {
  readonly #root: Node<T>
  // Of the search under way. A search runs to its end in one go, so one set of fields serves them all.
  #path = ''
  readonly #starts: number[] = []
  readonly #ends: number[] = []

  /**
   * @param entries - patterns with different shapes, and what stands at the end of each
   * @param before - a tree whose patterns this one has too, with entries of the same shapes in their place; it
   * stays as it is, and both share the nodes in which they do not differ
   */
  constructor(entries: Iterable<TreeEntry<T>>, before: RadixTree<T> | null = null) {
    const edit = {}
    this.#root = before === null ? new Node('', 0, edit) : toOwn(before.#root, edit)
    for (const { segments, value } of entries) this.#insert(segments, value, edit)
  }

  /**
   * The first leaf, in order of precedence, that matches the path and that the acceptor takes.
   * @param path - canonical
   */
  find(path: string, acceptor: Acceptor<T>): T | null {
    this.#path = path
    return this.#walk(this.#root, 1, acceptor)
  }

  /**
   * Reads the params of the leaf that was found, decoded; an optional catch-all that matched nothing has none.
   * @param names - of the pattern that was claimed, in path order
   */
  capture(names: readonly string[], params: Record<string, string>): void {
    for (let index = 0; index < names.length; index++) {
      const start = this.#starts[index]!
      if (start < 0) return
      params[names[index]!] = unescapeCanonical(this.#path.slice(start, this.#ends[index]))
    }
  }

  /** The leaf of a pattern itself, whatever the names of its params; null when the tree does not have it. */
  at(segments: readonly Segment[]): T | null {
    let node: Node<T> | null = this.#root
    let text = ''
    for (const [index, segment] of segments.entries()) {
      if (index > 0) text += '/'
      if (segment.kind === 'static') {
        text += segment.text
        continue
      }
      node = findText(node, text)
      if (node === null) return null
      if (segment.kind !== 'param') return node.tails?.[TAILS.indexOf(segment.kind)] ?? null
      node = node.param
      text = ''
    }
    return findText(node, text)?.leaf ?? null
  }

  #walk(from: Node<T>, start: number, acceptor: Acceptor<T>): T | null {
    const path = this.#path
    const length = path.length
    let node = from
    let at = start
    while (at < length) {
      const kid = kidFor(node, path.charCodeAt(at))
      if (kid !== null && (kid.size === 1 || path.slice(at, at + kid.size) === kid.text)) {
        if (!node.branches) {
          at += kid.size
          node = kid
          continue
        }
        const leaf = this.#walk(kid, at + kid.size, acceptor)
        if (leaf !== null) return leaf
      }
      if (!node.branches) return null
      const { param } = node
      if (param !== null) {
        const slash = path.indexOf('/', at)
        const end = slash < 0 ? length : slash
        this.#starts[node.params] = at
        this.#ends[node.params] = end
        if (node.tails === null) {
          node = param
          at = end
          continue
        }
        const leaf = this.#walk(param, end, acceptor)
        if (leaf !== null) return leaf
      }
      return node.tails === null ? null : this.#tail(node.tails, node.params, at, acceptor)
    }
    if (node.leaf !== null && acceptor.accept(node.leaf)) return node.leaf
    if (node.base === null || !acceptor.accept(node.base)) return null
    this.#starts[node.params] = -1
    return node.base
  }

  #tail(tails: readonly (T | null)[], param: number, at: number, acceptor: Acceptor<T>): T | null {
    for (let index = 0; index < tails.length; index++) {
      const leaf = tails[index]!
      if (leaf === null || !acceptor.accept(leaf)) continue
      this.#starts[param] = at
      this.#ends[param] = this.#path.length
      return leaf
    }
    return null
  }

  #insert(segments: readonly Segment[], value: T, edit: object): void {
    let node = this.#root
    let text = ''
    for (const [index, segment] of segments.entries()) {
      if (segment.kind === 'optional-catch-all') insertText(node, text, edit).base = value
      // The root stands behind the first slash of all paths.
      if (index > 0) text += '/'
      if (segment.kind === 'static') {
        text += segment.text
        continue
      }
      node = insertText(node, text, edit)
      text = ''
      node.branches = true
      if (segment.kind !== 'param') {
        node.tails ??= TAILS.map(() => null)
        node.tails[TAILS.indexOf(segment.kind)] = value
        return
      }
      node.param = node.param === null ? new Node('', node.params + 1, edit) : toOwn(node.param, edit)
      node = node.param
    }
    insertText(node, text, edit).leaf = value
  }
}

/** Of all nodes without kids; never added to. */
const NO_KIDS: never[] = []

class Node<T> {
  /** Static text before this node; empty behind a param. */
  text: string
  size: number
  /** Params on the way here, which is the index of the next one. */
  readonly params: number
  /** The edit that made it, and that alone may change it. */
  edit: object
  /** Kids by first char code minus `low`; ASCII only. */
  table: (Node<T> | null)[] = NO_KIDS
  low = 0
  /** Kids whose text starts with a character beyond ASCII. */
  wide: Map<number, Node<T>> | null = null
  leaf: T | null = null
  /** True when a failed kid leaves something to try. */
  branches = false
  param: Node<T> | null = null
  /** By index in TAILS. */
  tails: (T | null)[] | null = null
  /** The optional catch-all of the folder that ends here. */
  base: T | null = null

  constructor(text: string, params: number, edit: object) {
    this.text = text
    this.size = text.length
    this.params = params
    this.edit = edit
  }
}

/** The node, or a copy of one that another tree searches. */
function toOwn<T>(node: Node<T>, edit: object): Node<T> {
  if (node.edit === edit) return node
  const copy = Object.assign(new Node<T>(node.text, node.params, edit), node)
  copy.edit = edit
  if (node.table.length > 0) copy.table = [...node.table]
  if (node.wide !== null) copy.wide = new Map(node.wide)
  if (node.tails !== null) copy.tails = [...node.tails]
  return copy
}

/** The kid whose text starts with this character. */
function kidFor<T>(node: Node<T>, code: number): Node<T> | null {
  const index = code - node.low
  if (index >= 0 && index < node.table.length) return node.table[index]!
  return node.wide === null ? null : (node.wide.get(code) ?? null)
}

/** The node that stands at `text` below `node`. */
function findText<T>(node: Node<T> | null, text: string): Node<T> | null {
  let found = node
  for (let at = 0; found !== null && at < text.length; ) {
    found = kidFor(found, text.charCodeAt(at))
    if (found === null || !text.startsWith(found.text, at)) return null
    at += found.size
  }
  return found
}

/** Makes the node that stands at `text` below `node`, which may be changed, cutting texts that share a beginning. */
function insertText<T>(node: Node<T>, text: string, edit: object): Node<T> {
  if (text === '') return node
  const known = kidFor(node, text.charCodeAt(0))
  if (known === null) return setKid(node, new Node(text, node.params, edit))
  const kid = toOwn(known, edit)
  let shared = 1
  while (shared < kid.size && shared < text.length && kid.text[shared] === text[shared]) shared++
  if (shared === kid.size) return insertText(setKid(node, kid), text.slice(shared), edit)
  const upper = new Node<T>(kid.text.slice(0, shared), node.params, edit)
  kid.text = kid.text.slice(shared)
  kid.size = kid.text.length
  setKid(upper, kid)
  return insertText(setKid(node, upper), text.slice(shared), edit)
}

/** @returns the kid */
function setKid<T>(node: Node<T>, kid: Node<T>): Node<T> {
  const code = kid.text.charCodeAt(0)
  if (code >= 128) {
    node.wide ??= new Map()
    node.wide.set(code, kid)
    return kid
  }
  if (node.table.length === 0) {
    node.low = code
    node.table = [kid]
    return kid
  }
  while (node.low > code) {
    node.table.unshift(null)
    node.low--
  }
  while (node.low + node.table.length <= code) node.table.push(null)
  node.table[code - node.low] = kid
  return kid
}

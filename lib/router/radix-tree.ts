/**
 * The route tree: a radix tree over canonical path text, built once, then only read. Spec: §4.1, page router/radix-tree.
 *
 *   /users          static text is shared between routes and compared by char code
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
 *
 * A path is first walked as it came. Static text and clean captures together cover the whole path, so a match proves
 * that the path was canonical. Anything else (an escape, a doubled slash, a dot segment, no match) makes the walk give
 * up, and only then the path is brought into canonical form and walked again.
 */

import { isCleanPath, normalizePath, type PathProblem, unescapeCanonical } from './path.ts'
import type { Segment } from './pattern.ts'

const SLASH = 47
const DOT = 46
const PERCENT = 37
/** Below this many characters a loop beats the native search. */
const SHORT = 16

/** Decides at each leaf that matches the path, most specific first, whether the search ends there. */
export interface Acceptor<T> {
  accept(leaf: T): boolean
  /** The search starts again: forget what the leaves so far were used for. */
  restart(): void
}

class Node<T> {
  /** Static text before this node; empty behind a param. */
  text: string
  /** Params on the way here, which is the index of the next one. */
  readonly params: number
  /** Kids by first char code minus `low`; ASCII only. */
  table: (Node<T> | null)[] = []
  low = 0
  /** Kids whose text starts with another character. */
  wide: Map<number, Node<T>> | null = null
  /** True when a failed kid leaves something to try. */
  branches = false
  /** True when something takes all the rest. */
  tails = false
  leaf: T | null = null
  param: Node<T> | null = null
  catchAll: T | null = null
  optional: T | null = null
  wildcard: T | null = null
  /** The optional catch-all of the folder that ends here. */
  base: T | null = null

  constructor(text: string, params: number) {
    this.text = text
    this.params = params
  }
}

export class RadixTree<T> {
  readonly #root = new Node<T>('', 0)
  // Of the search under way. A search runs to its end in one go, so one set of fields serves them all.
  #path = ''
  #isRaw = true
  #isDirty = false
  #problem: PathProblem | null = null
  readonly #starts: number[] = []
  readonly #ends: number[] = []

  /** @param entries - patterns with different shapes, and what stands at the end of each */
  constructor(entries: Iterable<{ segments: readonly Segment[]; value: T }>) {
    for (const { segments, value } of entries) this.#insert(segments, value)
  }

  /** Why the last search ended without looking: the path is answered 400. */
  get problem(): PathProblem | null {
    return this.#problem
  }

  /**
   * The first leaf, in order of precedence, that matches the path and that the acceptor takes.
   * @param rawPath - the request target without query
   * @returns null when there is none, or when the path is no path (`problem`)
   */
  find(rawPath: string, acceptor: Acceptor<T>): T | null {
    this.#path = rawPath
    this.#isRaw = true
    this.#isDirty = false
    this.#problem = null
    const leaf = this.#walk(this.#root, 0, acceptor)
    if (leaf !== null || isCleanPath(rawPath)) return leaf
    const path = normalizePath(rawPath)
    if (typeof path !== 'string') {
      this.#problem = path
      return null
    }
    acceptor.restart()
    this.#path = path
    this.#isRaw = false
    this.#isDirty = false
    return this.#walk(this.#root, 0, acceptor)
  }

  /** The decoded text of a param after a successful search; null for an optional catch-all that matched nothing. */
  capture(index: number): string | null {
    const start = this.#starts[index]!
    if (start < 0) return null
    const text = this.#path.slice(start, this.#ends[index])
    return this.#isRaw ? text : unescapeCanonical(text)
  }

  #walk(from: Node<T>, start: number, acceptor: Acceptor<T>): T | null {
    const path = this.#path
    const length = path.length
    let node = from
    let at = start
    for (;;) {
      if (at === length) return this.#end(node, acceptor)
      const kid = kidAt(node, path, at)
      if (kid !== null) {
        const next = at + kid.text.length
        if (!node.branches) {
          node = kid
          at = next
          continue
        }
        const leaf = this.#walk(kid, next, acceptor)
        if (leaf !== null || this.#isDirty) return leaf
      }
      if (!node.branches) return null
      const param = node.param
      if (param !== null) {
        const end = this.#segmentEnd(at)
        if (end < 0) {
          this.#isDirty = true
          return null
        }
        this.#starts[node.params] = at
        this.#ends[node.params] = end
        if (!node.tails) {
          node = param
          at = end
          continue
        }
        const leaf = this.#walk(param, end, acceptor)
        if (leaf !== null || this.#isDirty) return leaf
      }
      return this.#tail(node, at, acceptor)
    }
  }

  /** The path ends at this node. */
  #end(node: Node<T>, acceptor: Acceptor<T>): T | null {
    if (node.leaf !== null && acceptor.accept(node.leaf)) return node.leaf
    if (node.base !== null && acceptor.accept(node.base)) {
      this.#starts[node.params] = -1
      return node.base
    }
    return null
  }

  /** The rest of the path goes to whatever takes all of it. */
  #tail(node: Node<T>, at: number, acceptor: Acceptor<T>): T | null {
    let leaf: T | null = null
    if (node.catchAll !== null && acceptor.accept(node.catchAll)) leaf = node.catchAll
    else if (node.optional !== null && acceptor.accept(node.optional)) leaf = node.optional
    else if (node.wildcard !== null && acceptor.accept(node.wildcard)) leaf = node.wildcard
    if (leaf === null) return null
    if (this.#isRaw && !isCleanRest(this.#path, at)) {
      this.#isDirty = true
      return null
    }
    this.#starts[node.params] = at
    this.#ends[node.params] = this.#path.length
    return leaf
  }

  /** Where the segment that starts here ends; -1 when it cannot be taken as it stands. */
  #segmentEnd(at: number): number {
    const path = this.#path
    const length = path.length
    const short = Math.min(at + SHORT, length)
    let end = at
    for (; end < short; end++) {
      const code = path.charCodeAt(end)
      if (code === SLASH) break
      if ((code === PERCENT || code === 0) && this.#isRaw) return -1
    }
    if (end === short && end < length) {
      end = path.indexOf('/', end)
      if (end < 0) end = length
      if (this.#isRaw && (hasBetween(path, '%', at, end) || hasBetween(path, '\0', at, end))) return -1
    }
    if (this.#isRaw && (end === at || path.charCodeAt(at) === DOT)) return isDotless(path, at, end) ? end : -1
    return end
  }

  #insert(segments: readonly Segment[], value: T): void {
    let node = this.#root
    let text = ''
    for (const segment of segments) {
      // The folder itself, for an optional catch-all; the root's path is `/`, every other folder's has no slash.
      const folder = text === '' && node === this.#root ? '/' : text
      text += '/'
      if (segment.kind === 'static') {
        text += segment.text
        continue
      }
      if (segment.kind === 'optional-catch-all') insertText(node, folder).base = value
      node = insertText(node, text)
      text = ''
      node.branches = true
      if (segment.kind === 'param') {
        node.param ??= new Node<T>('', node.params + 1)
        node = node.param
        continue
      }
      node.tails = true
      if (segment.kind === 'catch-all') node.catchAll = value
      else if (segment.kind === 'optional-catch-all') node.optional = value
      else node.wildcard = value
      return
    }
    insertText(node, segments.length === 0 ? '/' : text).leaf = value
  }
}

/** The kid whose static text stands at this place of the path. */
function kidAt<T>(node: Node<T>, path: string, at: number): Node<T> | null {
  const code = path.charCodeAt(at)
  const index = code - node.low
  let kid: Node<T> | null | undefined = null
  if (index >= 0 && index < node.table.length) kid = node.table[index]
  else if (node.wide !== null) kid = node.wide.get(code)
  if (kid === null || kid === undefined) return null
  const text = kid.text
  const size = text.length
  if (at + size > path.length) return null
  for (let i = 1; i < size; i++) {
    if (text.charCodeAt(i) !== path.charCodeAt(at + i)) return null
  }
  return kid
}

/** Makes the node that stands at `text` below `node`, cutting texts that share a beginning. */
function insertText<T>(node: Node<T>, text: string): Node<T> {
  if (text === '') return node
  const code = text.charCodeAt(0)
  const kid = (code < 128 ? node.table[code - node.low] : node.wide?.get(code)) ?? null
  if (kid === null) {
    const made = new Node<T>(text, node.params)
    setKid(node, made)
    return made
  }
  let shared = 1
  while (shared < kid.text.length && shared < text.length && kid.text[shared] === text[shared]) shared++
  if (shared === kid.text.length) return insertText(kid, text.slice(shared))
  const upper = new Node<T>(kid.text.slice(0, shared), node.params)
  kid.text = kid.text.slice(shared)
  setKid(upper, kid)
  setKid(node, upper)
  return insertText(upper, text.slice(shared))
}

function setKid<T>(node: Node<T>, kid: Node<T>): void {
  const code = kid.text.charCodeAt(0)
  if (code >= 128) {
    node.wide ??= new Map()
    node.wide.set(code, kid)
    return
  }
  if (node.table.length === 0) node.low = code
  while (node.low > code) {
    node.table.unshift(null)
    node.low--
  }
  while (node.low + node.table.length <= code) node.table.push(null)
  node.table[code - node.low] = kid
}

/** True when the rest of a raw path is canonical. `at` stands behind a slash. */
function isCleanRest(path: string, at: number): boolean {
  const length = path.length
  if (path.charCodeAt(length - 1) === SLASH) return false
  if (length - at > 2 * SHORT) {
    if (path.indexOf('%', at) >= 0 || path.indexOf('//', at - 1) >= 0) return false
    return path.indexOf('/.', at - 1) < 0 && path.indexOf('\0', at) < 0
  }
  let previous = SLASH
  for (let i = at; i < length; i++) {
    const code = path.charCodeAt(i)
    if (code === PERCENT || code === 0) return false
    if (previous === SLASH && (code === SLASH || code === DOT)) return false
    previous = code
  }
  return true
}

function hasBetween(path: string, char: string, start: number, end: number): boolean {
  const found = path.indexOf(char, start)
  return found >= 0 && found < end
}

/** False for an empty segment, `.` and `..`. */
function isDotless(path: string, at: number, end: number): boolean {
  if (end === at) return false
  return end - at > 2 || path.charCodeAt(end - 1) !== DOT
}

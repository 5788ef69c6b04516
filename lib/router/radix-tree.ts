/**
 * The route tree: a radix tree over canonical path text, built once, then only read. Spec: §4.1, page router/radix-tree.
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
 *
 * A path is first walked as it came. Static text and clean captures together cover the whole path, so a match proves
 * that the path was canonical. Anything else (an escape, a doubled slash, a dot segment, no match) makes the walk give
 * up, and only then the path is brought into canonical form and walked again.
 */

import type { Segment } from '../core/pattern.ts'
import { hasCleanSegments, normalizePath, type PathProblem, unescapeCanonical } from './path.ts'

const SLASH = 47
const DOT = 46
const PERCENT = 37
/** Up to this many characters a loop is faster than a native search. */
const LOOP_CHARS = 8

/** Decides at each leaf that matches the path, most specific first, whether the search ends there. */
export interface Acceptor<T> {
  accept(leaf: T): boolean
  /** The search starts again: forget what the leaves so far were used for. */
  restart(): void
}

interface TreeEntry<T> {
  readonly segments: readonly Segment[]
  readonly value: T
}

export class RadixTree<T> {
  #root: Node<T>
  // Of the search under way. A search runs to its end in one go, so one set of fields serves them all.
  #path = ''
  #isCanonical = false
  #isDirty = false
  #problem: PathProblem | null = null
  readonly #starts: number[] = []
  readonly #ends: number[] = []

  /**
   * @param entries - patterns with different shapes, and what stands at the end of each
   * @param before - a tree whose patterns this one has too, with entries of the same shapes in their place; it
   * stays as it is, and both share the nodes in which they do not differ
   */
  constructor(entries: Iterable<TreeEntry<T>>, before: RadixTree<T> | null = null) {
    const edit = new Edit<T>(before !== null)
    this.#root = before === null ? edit.make('', 0) : edit.own(before.#root)
    for (const { segments, value } of entries) this.#insert(segments, value, edit)
  }

  /** Why the last search ended without looking: the path is answered 400. */
  get problem(): PathProblem | null {
    return this.#problem
  }

  /**
   * The first leaf, in order of precedence, that matches the path and that the acceptor takes.
   * @param rawPath - the request target without query, raw or canonical; a literal NUL is for `normalizePath` to refuse
   * @returns null when there is none, or when the path is invalid (`problem`)
   */
  find(rawPath: string, acceptor: Acceptor<T>): T | null {
    this.#path = rawPath
    this.#isCanonical = false
    this.#isDirty = false
    this.#problem = null
    const leaf = rawPath.charCodeAt(0) === SLASH ? this.#walk(this.#root, 1, acceptor) : null
    return leaf ?? this.#findCanonical(rawPath, acceptor)
  }

  /** A search that found nothing is the last word only on a path that could be walked as it came. */
  #findCanonical(rawPath: string, acceptor: Acceptor<T>): T | null {
    if (!this.#isDirty && rawPath.charCodeAt(0) === SLASH && isCleanRest(rawPath, 1)) return null
    const path = normalizePath(rawPath)
    if (typeof path !== 'string') {
      this.#problem = path
      return null
    }
    acceptor.restart()
    this.#path = path
    this.#isCanonical = true
    this.#isDirty = false
    return this.#walk(this.#root, 1, acceptor)
  }

  /**
   * Reads the params of the leaf that was found, decoded; an optional catch-all that matched nothing has none.
   * @param names - of the pattern that was claimed, in path order
   */
  capture(names: readonly string[], params: Record<string, string>): void {
    const path = this.#path
    for (let index = 0; index < names.length; index++) {
      const start = this.#starts[index]!
      if (start < 0) return
      const text = path.slice(start, this.#ends[index])
      params[names[index]!] = this.#isCanonical ? unescapeCanonical(text) : text
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
      if (segment.kind === 'catch-all') return node.catchAll
      if (segment.kind === 'optional-catch-all') return node.optional
      if (segment.kind === 'wildcard') return node.wildcard
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
        if (leaf !== null || this.#isDirty) return leaf
      }
      if (!node.branches) return null
      const { param } = node
      if (param !== null) {
        const end = this.#isCanonical ? canonicalEnd(path, at) : segmentEnd(path, at)
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
    if (node.leaf !== null && acceptor.accept(node.leaf)) return node.leaf
    if (node.base === null || !acceptor.accept(node.base)) return null
    this.#starts[node.params] = -1
    return node.base
  }

  /** The rest of the path goes to whatever takes all of it. */
  #tail({ catchAll, optional, wildcard, params }: Node<T>, at: number, acceptor: Acceptor<T>): T | null {
    let leaf: T | null = null
    if (catchAll !== null && acceptor.accept(catchAll)) leaf = catchAll
    else if (optional !== null && acceptor.accept(optional)) leaf = optional
    else if (wildcard !== null && acceptor.accept(wildcard)) leaf = wildcard
    if (leaf === null) return null
    if (!this.#isCanonical && !isCleanRest(this.#path, at)) {
      this.#isDirty = true
      return null
    }
    this.#starts[params] = at
    this.#ends[params] = this.#path.length
    return leaf
  }

  #insert(segments: readonly Segment[], value: T, edit: Edit<T>): void {
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
      if (segment.kind === 'param') {
        node.param = node.param === null ? edit.make('', node.params + 1) : edit.own(node.param)
        node = node.param
        continue
      }
      node.tails = true
      if (segment.kind === 'catch-all') node.catchAll = value
      else if (segment.kind === 'optional-catch-all') node.optional = value
      else node.wildcard = value
      return
    }
    insertText(node, text, edit).leaf = value
  }
}

function canonicalEnd(path: string, at: number): number {
  const end = path.indexOf('/', at)
  return end < 0 ? path.length : end
}

/**
 * Where the segment that starts at `at` ends.
 * @returns -1 for a segment that cannot be taken as it came: empty, with an escape, or perhaps `.` or `..`
 */
function segmentEnd(path: string, at: number): number {
  const length = path.length
  const near = Math.min(at + LOOP_CHARS, length)
  for (let i = at; i < near; i++) {
    const code = path.charCodeAt(i)
    // Letters and digits come after the slash: one comparison for most characters.
    if (code > SLASH) continue
    if (code === SLASH) return i === at ? -1 : i
    if (code === PERCENT || (code === DOT && i === at)) return -1
  }
  return near === length ? length : farEnd(path, near)
}

/** Apart from the loop, which is small enough to be compiled into its caller. */
function farEnd(path: string, from: number): number {
  const slash = path.indexOf('/', from)
  const end = slash < 0 ? path.length : slash
  const percent = path.indexOf('%', from)
  return percent >= 0 && percent < end ? -1 : end
}

/** True when the rest of a path can be taken as it came. `at` stands behind a slash. */
function isCleanRest(path: string, at: number): boolean {
  return hasCleanSegments(path, at) && path.indexOf('%', at) < 0
}

/** Of all nodes without kids; never added to. */
const NO_KIDS: never[] = []

class Node<T> {
  /** Static text before this node; empty behind a param. */
  text: string
  size: number
  /** Params on the way here, which is the index of the next one. */
  readonly params: number
  /** Kids by first char code minus `low`; ASCII only. */
  table: (Node<T> | null)[] = NO_KIDS
  low = 0
  /** Kids whose text starts with a character beyond ASCII. */
  wide: Map<number, Node<T>> | null = null
  leaf: T | null = null
  /** True when a failed kid leaves something to try. */
  branches = false
  /** True when something takes all the rest. */
  tails = false
  param: Node<T> | null = null
  catchAll: T | null = null
  optional: T | null = null
  wildcard: T | null = null
  /** The optional catch-all of the folder that ends here. */
  base: T | null = null

  constructor(text: string, params: number) {
    this.text = text
    this.size = text.length
    this.params = params
  }

  copy(): Node<T> {
    const node = Object.assign(new Node<T>(this.text, this.params), this)
    if (this.table.length > 0) node.table = [...this.table]
    if (this.wide !== null) node.wide = new Map(this.wide)
    return node
  }
}

/** Which nodes may be changed: those that no other tree has. */
class Edit<T> {
  /** Null where no other tree has any. */
  readonly #own: Set<Node<T>> | null

  constructor(isShared: boolean) {
    this.#own = isShared ? new Set() : null
  }

  make(text: string, params: number): Node<T> {
    return this.#add(new Node<T>(text, params))
  }

  /** The node, or a copy of one that another tree searches. */
  own(node: Node<T>): Node<T> {
    return this.#own === null || this.#own.has(node) ? node : this.#add(node.copy())
  }

  #add(node: Node<T>): Node<T> {
    this.#own?.add(node)
    return node
  }
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
function insertText<T>(node: Node<T>, text: string, edit: Edit<T>): Node<T> {
  if (text === '') return node
  const known = kidFor(node, text.charCodeAt(0))
  if (known === null) {
    const made = edit.make(text, node.params)
    setKid(node, made)
    return made
  }
  const kid = edit.own(known)
  let shared = 1
  while (shared < kid.text.length && shared < text.length && kid.text[shared] === text[shared]) shared++
  if (shared === kid.text.length) {
    setKid(node, kid)
    return insertText(kid, text.slice(shared), edit)
  }
  const upper = edit.make(kid.text.slice(0, shared), node.params)
  kid.text = kid.text.slice(shared)
  kid.size = kid.text.length
  setKid(upper, kid)
  setKid(node, upper)
  return insertText(upper, text.slice(shared), edit)
}

function setKid<T>(node: Node<T>, kid: Node<T>): void {
  const code = kid.text.charCodeAt(0)
  if (code >= 128) {
    node.wide ??= new Map()
    node.wide.set(code, kid)
    return
  }
  if (node.table.length === 0) {
    node.low = code
    node.table = [kid]
    return
  }
  while (node.low > code) {
    node.table.unshift(null)
    node.low--
  }
  while (node.low + node.table.length <= code) node.table.push(null)
  node.table[code - node.low] = kid
}

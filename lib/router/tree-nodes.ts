/**
 * The nodes of the route tree: what each holds, how one is found by its text, and how one is put in. Trees share the nodes in which
 * they do not differ. Spec: §4.1, page router/radix-tree.
 */

/** Of all nodes without kids; never added to. */
const NO_KIDS: never[] = []

/** What may follow a node beside static text. */
export class More<T> {
  /** Kids whose text starts with a character beyond ASCII. */
  wide: Map<number, Node<T>> | null = null
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

  copy(): More<T> {
    const copy = Object.assign(new More<T>(), this)
    if (this.wide !== null) copy.wide = new Map(this.wide)
    return copy
  }
}

export class Node<T> {
  /** Static text before this node; empty behind a param. */
  text: string
  size: number
  /** Params on the way here, which is the index of the next one. */
  readonly params: number
  /** Kids by first char code minus `low`; ASCII only. */
  table: (Node<T> | null)[] = NO_KIDS
  low = 0
  leaf: T | null = null
  /** What most of ten thousand nodes have not. */
  more: More<T> | null = null

  constructor(text: string, params: number) {
    this.text = text
    this.size = text.length
    this.params = params
  }

  copy(): Node<T> {
    const node = new Node<T>(this.text, this.params)
    node.table = this.table.length === 0 ? this.table : [...this.table]
    node.low = this.low
    node.leaf = this.leaf
    node.more = this.more?.copy() ?? null
    return node
  }
}

/** Which nodes may be changed: those that no other tree has. */
export class Edit<T> {
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

export function moreOf<T>(node: Node<T>): More<T> {
  node.more ??= new More()
  return node.more
}

/** The kid whose text starts with this character. */
export function kidFor<T>(node: Node<T>, code: number): Node<T> | null {
  const index = code - node.low
  if (index >= 0 && index < node.table.length) return node.table[index]!
  const wide = node.more === null ? null : node.more.wide
  return wide === null ? null : (wide.get(code) ?? null)
}

/** The node that stands at `text` below `node`. */
export function findText<T>(node: Node<T> | null, text: string): Node<T> | null {
  let found = node
  for (let at = 0; found !== null && at < text.length; ) {
    found = kidFor(found, text.charCodeAt(at))
    if (found === null || !text.startsWith(found.text, at)) return null
    at += found.size
  }
  return found
}

/** Makes the node that stands at `text` below `node`, which may be changed, cutting texts that share a beginning. */
export function insertText<T>(node: Node<T>, text: string, edit: Edit<T>): Node<T> {
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
    const more = moreOf(node)
    more.wide ??= new Map()
    more.wide.set(code, kid)
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

/**
 * A regular expression as the program of a machine that never goes back. Owner: page validation/linear-pattern.
 *
 * Built by Thompson's construction: each piece of the expression becomes instructions, a choice becomes a fork. What only an engine that
 * goes back can do (references to groups, a look inside the text) is refused here, where its author sees it.
 */

/** Whether a character is in a class. */
export type CharTest = (code: number) => boolean

type Instruction =
  | { op: 'char'; test: CharTest }
  /** Goes on at both places without taking a character. */
  | { op: 'fork'; to: number[] }
  | Anchor
  | { op: 'match' }

/** A place between two characters. */
export type Anchor = { op: 'start' } | { op: 'end' } | { op: 'word'; isEdge: boolean }

export interface Program {
  code: readonly Instruction[]
}

/** A look ahead at the beginning: a program of its own that must, or must not, match from there. */
interface Guard {
  isWanted: boolean
  program: Program
}

/** The whole expression: any of its branches. */
export interface Branch {
  guards: readonly Guard[]
  program: Program
}

/** Why an expression is not taken; continues "the pattern ". */
export class PatternProblem extends Error {}

/** Instructions of one expression; `x{1000}` is a thousand of them. */
const MAX_INSTRUCTIONS = 4000
const MAX_PATTERN_CHARS = 2000
/** Groups in groups. */
const MAX_DEPTH = 50

type Node =
  | { kind: 'char'; test: CharTest }
  | { kind: 'start' | 'end' }
  | { kind: 'word'; isEdge: boolean }
  | { kind: 'sequence'; items: Node[] }
  | { kind: 'choice'; items: Node[] }
  | { kind: 'repeat'; item: Node; min: number; max: number }
  | { kind: 'look'; isWanted: boolean; item: Node }

/** @throws PatternProblem, or SyntaxError with the words of the language's own engine */
export function parsePattern(pattern: string): Branch[] {
  if (pattern.length > MAX_PATTERN_CHARS) throw new PatternProblem(`has more than ${MAX_PATTERN_CHARS} characters`)
  // The language's own engine knows what is well-formed; nothing is matched with it.
  new RegExp(pattern, 'u')
  const tree = new Parser(pattern).parse()
  const branches = tree.kind === 'choice' ? tree.items : [tree]
  const budget = { left: MAX_INSTRUCTIONS }
  return branches.map(branch => toBranch(branch, budget))
}

/** Takes the looks ahead at the beginning off: `^(?!admin)(?=.*x)[a-z]+$`. */
function toBranch(tree: Node, budget: { left: number }): Branch {
  const items = tree.kind === 'sequence' ? [...tree.items] : [tree]
  const anchors: Node[] = []
  const guards: Guard[] = []
  for (let first = items[0]; first !== undefined; first = items[0]) {
    if (first.kind === 'look') guards.push({ isWanted: first.isWanted, program: toProgram(first.item, budget) })
    else if (first.kind === 'start') anchors.push(first)
    else break
    items.shift()
  }
  if (guards.length > 0 && anchors.length === 0)
    throw new PatternProblem('looks ahead without ^ in front: write "^(?!...)"')
  return { guards, program: toProgram({ kind: 'sequence', items: [...anchors, ...items] }, budget) }
}

function toProgram(tree: Node, budget: { left: number }): Program {
  const code: Instruction[] = []
  const emit = (instruction: Instruction): void => {
    if (budget.left-- <= 0) throw new PatternProblem('is too large: its repetitions make too many steps')
    code.push(instruction)
  }
  const write = (node: Node): void => {
    switch (node.kind) {
      case 'char':
        emit({ op: 'char', test: node.test })
        break
      case 'start':
      case 'end':
        emit({ op: node.kind })
        break
      case 'word':
        emit({ op: 'word', isEdge: node.isEdge })
        break
      case 'sequence':
        for (const item of node.items) write(item)
        break
      case 'choice':
        writeChoice(node.items)
        break
      case 'repeat':
        writeRepeat(node.item, node.min, node.max)
        break
      case 'look':
        throw new PatternProblem('looks ahead or behind inside the text: only "^(?=...)" and "^(?!...)" are possible')
    }
  }
  const writeChoice = (items: readonly Node[]): void => {
    const fork: number[] = []
    emit({ op: 'fork', to: fork })
    const ends: number[][] = []
    for (const item of items) {
      fork.push(code.length)
      write(item)
      const end: number[] = []
      emit({ op: 'fork', to: end })
      ends.push(end)
    }
    for (const end of ends) end.push(code.length)
  }
  const writeRepeat = (item: Node, min: number, max: number): void => {
    for (let i = 0; i < min; i++) write(item)
    if (max === Number.POSITIVE_INFINITY) {
      const fork: number[] = []
      const begin = code.length
      emit({ op: 'fork', to: fork })
      fork.push(code.length)
      write(item)
      emit({ op: 'fork', to: [begin] })
      fork.push(code.length)
      return
    }
    const skips: number[][] = []
    for (let i = min; i < max; i++) {
      const fork: number[] = []
      emit({ op: 'fork', to: fork })
      fork.push(code.length)
      skips.push(fork)
      write(item)
    }
    for (const skip of skips) skip.push(code.length)
  }
  write(tree)
  emit({ op: 'match' })
  return { code }
}

class Parser {
  readonly #text: string
  #at = 0
  #depth = 0

  constructor(text: string) {
    this.#text = text
  }

  parse(): Node {
    return this.#choice()
  }

  #choice(): Node {
    if (++this.#depth > MAX_DEPTH) throw new PatternProblem(`has groups more than ${MAX_DEPTH} deep`)
    const items = [this.#sequence()]
    while (this.#text[this.#at] === '|') {
      this.#at++
      items.push(this.#sequence())
    }
    this.#depth--
    return items.length === 1 ? items[0]! : { kind: 'choice', items }
  }

  #sequence(): Node {
    const items: Node[] = []
    while (this.#at < this.#text.length && this.#text[this.#at] !== '|' && this.#text[this.#at] !== ')') {
      const item = this.#item()
      items.push(this.#repeated(item))
    }
    return items.length === 1 ? items[0]! : { kind: 'sequence', items }
  }

  #repeated(item: Node): Node {
    const found = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})\??/.exec(this.#text.slice(this.#at, this.#at + 64))
    if (found === null) return item
    this.#at += found[0].length
    const [whole, low, comma, high] = found as unknown as [string, string?, string?, string?]
    const [min, max] =
      low === undefined
        ? [whole.startsWith('+') ? 1 : 0, whole.startsWith('?') ? 1 : Number.POSITIVE_INFINITY]
        : [Number(low), comma === '' ? Number(low) : high === '' ? Number.POSITIVE_INFINITY : Number(high)]
    if (item.kind !== 'char' && item.kind !== 'sequence' && item.kind !== 'choice' && item.kind !== 'repeat')
      throw new PatternProblem('repeats something that takes no character')
    if (min > MAX_INSTRUCTIONS || (max > MAX_INSTRUCTIONS && max !== Number.POSITIVE_INFINITY))
      throw new PatternProblem('is too large: its repetitions make too many steps')
    return { kind: 'repeat', item, min, max }
  }

  #item(): Node {
    const char = this.#text[this.#at]!
    if (char === '(') return this.#group()
    if (char === '[') return this.#class()
    if (char === '\\') return this.#escape()
    const whole = String.fromCodePoint(this.#text.codePointAt(this.#at)!)
    this.#at += whole.length
    if (char === '^') return { kind: 'start' }
    if (char === '$') return { kind: 'end' }
    return toCharNode(whole === '.' ? '.' : whole)
  }

  #group(): Node {
    const head = /^\((?:\?(?:<([=!])|<[^>]*>|([:=!])))?/.exec(this.#text.slice(this.#at, this.#at + 200))!
    if (head[1] !== undefined) throw new PatternProblem('looks behind, which is not possible here')
    this.#at += head[0].length
    const item = this.#choice()
    this.#at++
    const kind = head[2]
    return kind === '=' || kind === '!' ? { kind: 'look', isWanted: kind === '=', item } : item
  }

  #class(): Node {
    let end = this.#at + 1
    while (this.#text[end] !== ']') end += this.#text[end] === '\\' ? 2 : 1
    const source = this.#text.slice(this.#at, end + 1)
    this.#at = end + 1
    return toCharNode(source)
  }

  #escape(): Node {
    const rest = this.#text.slice(this.#at, this.#at + 64)
    if (/^\\(?:[1-9]|k<)/.test(rest)) throw new PatternProblem('refers back to a group, which is not possible here')
    if (/^\\b/i.test(rest)) {
      this.#at += 2
      return { kind: 'word', isEdge: rest[1] === 'b' }
    }
    const found =
      /^\\(?:u\{[0-9a-fA-F]+\}|(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[a-zA-Z]|[pP]\{[^}]*\}|.)/su.exec(
        rest,
      )!
    this.#at += found[0].length
    return toCharNode(found[0])
  }
}

/** One class of characters, tried once for each of ASCII. One character is all that the engine ever sees here. */
function toCharNode(source: string): Node {
  const plain = source.length === 1 && source !== '.' ? source.charCodeAt(0) : -1
  if (plain >= 0) return { kind: 'char', test: code => code === plain }
  const one = new RegExp(`^(?:${source})$`, 'u')
  const ascii = new Uint8Array(128)
  for (let code = 0; code < 128; code++) ascii[code] = one.test(String.fromCharCode(code)) ? 1 : 0
  return {
    kind: 'char',
    test: code => (code < 128 ? ascii[code] === 1 : one.test(String.fromCodePoint(code))),
  }
}

/**
 * Patterns of a schema on text of clients, in time that grows linearly with the text. Owner: page validation/linear-pattern.
 *
 * The engine of the language backtracks: `(a+)+$` on 40 letters would block the gateway for hours. Here all alternatives advance together,
 * one character at a time, and each place of the program is visited once per character.
 */

/** Thrown when a check has taken more steps than it may. */
export class TooMuchWork extends Error {
  override readonly name = 'TooMuchWork'
}

/** Steps that are left to the check that is going on, of everything that counts its steps. */
export class WorkBudget {
  left: number

  constructor(left: number) {
    this.left = left
  }

  /** @throws TooMuchWork when no steps are left */
  spend(steps: number): void {
    this.left -= steps
    if (this.left < 0) throw new TooMuchWork()
  }
}

/** Steps before the first character: the lists are made ready. */
const START_STEPS = 40

export class LinearPattern {
  readonly source: string
  readonly #branches: readonly { run: Runner; guards: readonly { run: Runner; isWanted: boolean }[] }[]

  /** @throws PatternProblem or SyntaxError, with a reason for people */
  constructor(source: string, budget: WorkBudget) {
    this.source = source
    this.#branches = parsePattern(source).map(({ guards, program }: Branch) => ({
      run: new Runner(program, budget),
      guards: guards.map(guard => ({ run: new Runner(guard.program, budget), isWanted: guard.isWanted })),
    }))
  }

  /** True when the pattern is found in the text. @throws TooMuchWork */
  test(text: string): boolean {
    return this.#branches.some(
      ({ guards, run }) =>
        guards.every(guard => guard.run.test(text, true) === guard.isWanted) && run.test(text, false),
    )
  }
}

/** A program at work. Its lists are made once: a check is over before the next begins. */
class Runner {
  readonly #code: Program
  readonly #budget: WorkBudget
  /** True for a program that begins with `^`: later in the text it cannot begin. */
  readonly #beginsOnce: boolean
  /** Position at which a place of the program was visited last. */
  readonly #seen: Int32Array
  readonly #stack: number[] = []
  /** Places that wait for a character, and those after it. */
  readonly #waiting: Int32Array
  readonly #next: Int32Array

  constructor(code: Program, budget: WorkBudget) {
    this.#code = code
    this.#budget = budget
    this.#beginsOnce = code[0]!.op === 'start'
    this.#seen = new Int32Array(code.length)
    this.#waiting = new Int32Array(code.length)
    this.#next = new Int32Array(code.length)
  }

  /** @param isAnchored - the match begins at the start of the text */
  test(text: string, isAnchored: boolean): boolean {
    const code = this.#code
    const waiting = this.#waiting
    const next = this.#next
    this.#budget.spend(START_STEPS + (code.length >> 4))
    this.#seen.fill(-1)
    let nextCount = 0
    let before = -1
    for (let at = 0, position = 0; ; position++) {
      const here = at < text.length ? text.codePointAt(at)! : -1
      let count = 0
      for (let i = 0; i < nextCount && count >= 0; i++) count = this.#enter(next[i]!, position, count, before, here)
      const begins = position === 0 || !(isAnchored || this.#beginsOnce)
      if (begins && count >= 0) count = this.#enter(0, position, count, before, here)
      if (count < 0) return true
      if (here === -1) return false
      nextCount = 0
      for (let i = 0; i < count; i++) {
        const place = waiting[i]!
        if ((code[place] as Char).test(here)) next[nextCount++] = place + 1
      }
      if (nextCount === 0 && (isAnchored || this.#beginsOnce)) return false
      before = here
      at += here > 0xffff ? 2 : 1
    }
  }

  /**
   * Follows a place to those that wait for a character, and adds them to the list of `count`.
   * @returns the new count, or -1 when the end of the program is reached
   */
  #enter(from: number, position: number, count: number, before: number, here: number): number {
    const stack = this.#stack
    const code = this.#code
    let added = count
    let steps = 1
    stack.length = 0
    stack.push(from)
    for (let place = stack.pop(); place !== undefined; place = stack.pop()) {
      if (this.#seen[place] === position) continue
      this.#seen[place] = position
      steps += 1
      const step = code[place]!
      if (step.op === 'char') this.#waiting[added++] = place
      else if (step.op === 'fork') for (const to of step.to) stack.push(to)
      else if (step.op === 'match') return -1
      else if (isPassed(step, before, here)) stack.push(place + 1)
    }
    this.#budget.spend(steps)
    return added
  }
}

/** Whether a place between two characters is what an anchor asks for; -1 stands for the end of the text. */
function isPassed(step: Anchor, before: number, here: number): boolean {
  switch (step.op) {
    case 'start':
      return before === -1
    case 'end':
      return here === -1
    case 'word':
      return isWordEdge(before, here) === step.isEdge
  }
}

function isWordEdge(before: number, here: number): boolean {
  return isWord(before) !== isWord(here)
}

/** `\w`: letters, digits and `_` of ASCII. */
function isWord(code: number): boolean {
  return (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || code === 95 || (code >= 97 && code <= 122)
}

// The parser: Thompson's construction. Each piece of the expression becomes instructions, a choice becomes a fork. Features that
// need backtracking (references to groups, a look inside the text) are refused here, where the author of the schema sees it.

/** A character of a class. */
interface Char {
  op: 'char'
  test: (code: number) => boolean
}

/** A place between two characters. */
type Anchor = { op: 'start' } | { op: 'end' } | { op: 'word'; isEdge: boolean }

type Instruction =
  | Char
  | Anchor
  /** Goes on at all of these places without taking a character. */
  | { op: 'fork'; to: number[] }
  | { op: 'match' }

type Program = readonly Instruction[]

/** A look ahead at the beginning: a separate program that must, or must not, match from there. */
interface Guard {
  isWanted: boolean
  program: Program
}

/** The whole expression: any of its branches. */
interface Branch {
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
  | Char
  | Anchor
  | { op: 'sequence' | 'choice'; items: Node[] }
  | { op: 'repeat'; item: Node; min: number; max: number }
  | { op: 'look'; isWanted: boolean; item: Node }

/** @throws PatternProblem, or SyntaxError with the words of the language's own engine */
export function parsePattern(pattern: string): Branch[] {
  if (pattern.length > MAX_PATTERN_CHARS) throw new PatternProblem(`has more than ${MAX_PATTERN_CHARS} characters`)
  // The language's own engine knows what is well-formed; nothing is matched with it.
  new RegExp(pattern, 'u')
  const tree = new Parser(pattern).parse()
  const branches = tree.op === 'choice' ? tree.items : [tree]
  const budget = { left: MAX_INSTRUCTIONS }
  return branches.map(branch => toBranch(branch, budget))
}

/** Takes the looks ahead at the beginning off: `^(?!admin)(?=.*x)[a-z]+$`. */
function toBranch(tree: Node, budget: { left: number }): Branch {
  const items = tree.op === 'sequence' ? [...tree.items] : [tree]
  const anchors: Node[] = []
  const guards: Guard[] = []
  for (let first = items[0]; first !== undefined; first = items[0]) {
    if (first.op === 'look') guards.push({ isWanted: first.isWanted, program: toProgram(first.item, budget) })
    else if (first.op === 'start') anchors.push(first)
    else break
    items.shift()
  }
  if (guards.length > 0 && anchors.length === 0)
    throw new PatternProblem('has a lookahead without ^ in front: write "^(?!...)"')
  return { guards, program: toProgram({ op: 'sequence', items: [...anchors, ...items] }, budget) }
}

function toProgram(tree: Node, budget: { left: number }): Program {
  const code: Instruction[] = []
  const emit = (instruction: Instruction): void => {
    if (budget.left-- <= 0) throw new PatternProblem('is too large: its repetitions make too many steps')
    code.push(instruction)
  }
  const write = (node: Node): void => {
    switch (node.op) {
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
        throw new PatternProblem('has a lookahead inside the pattern: only "^(?=...)" and "^(?!...)" are supported')
      default:
        emit(node)
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
  return code
}

/** A class of characters, an escape or a character of an expression that is well-formed. */
const ATOM =
  /\[(?:\\.|[^\]\\])*\]|\\(?:u\{[0-9a-f]+\}|u[dD][89abAB][0-9a-f]{2}\\u[dD][c-fC-F][0-9a-f]{2}|u[0-9a-f]{4}|x[0-9a-f]{2}|c[a-z]|p\{[^}]*\}|.)|./isuy

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
    return items.length === 1 ? items[0]! : { op: 'choice', items }
  }

  #sequence(): Node {
    const items: Node[] = []
    while (this.#at < this.#text.length && this.#text[this.#at] !== '|' && this.#text[this.#at] !== ')') {
      const item = this.#item()
      items.push(this.#repeated(item))
    }
    return items.length === 1 ? items[0]! : { op: 'sequence', items }
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
    if (item.op !== 'char' && item.op !== 'sequence' && item.op !== 'choice' && item.op !== 'repeat')
      throw new PatternProblem('repeats something that matches no character')
    if (min > MAX_INSTRUCTIONS || (max > MAX_INSTRUCTIONS && max !== Number.POSITIVE_INFINITY))
      throw new PatternProblem('is too large: its repetitions make too many steps')
    return { op: 'repeat', item, min, max }
  }

  #item(): Node {
    const char = this.#text[this.#at]!
    if (char === '(') return this.#group()
    ATOM.lastIndex = this.#at
    const atom = ATOM.exec(this.#text)![0]
    this.#at += atom.length
    if (atom === '^') return { op: 'start' }
    if (atom === '$') return { op: 'end' }
    if (atom === '\\b' || atom === '\\B') return { op: 'word', isEdge: atom === '\\b' }
    if (/^\\[1-9k]/.test(atom)) throw new PatternProblem('has a backreference, which is not supported')
    return toChar(atom)
  }

  #group(): Node {
    const head = /^\((?:\?(?:<([=!])|<[^>]*>|([:=!])))?/.exec(this.#text.slice(this.#at, this.#at + 200))!
    if (head[1] !== undefined) throw new PatternProblem('has a lookbehind, which is not supported')
    this.#at += head[0].length
    const item = this.#choice()
    this.#at++
    const kind = head[2]
    return kind === '=' || kind === '!' ? { op: 'look', isWanted: kind === '=', item } : item
  }
}

/** One class of characters, tried once for each of ASCII. One character is all that the engine ever sees here. */
function toChar(source: string): Char {
  const plain = source.length === 1 && source !== '.' ? source.charCodeAt(0) : -1
  if (plain >= 0) return { op: 'char', test: code => code === plain }
  const one = new RegExp(`^(?:${source})$`, 'u')
  const ascii = new Uint8Array(128)
  for (let code = 0; code < 128; code++) ascii[code] = one.test(String.fromCharCode(code)) ? 1 : 0
  return {
    op: 'char',
    test: code => (code < 128 ? ascii[code] === 1 : one.test(String.fromCodePoint(code))),
  }
}

/**
 * Patterns of a schema on text of clients, in time that grows linearly with the text. Owner: page validation/linear-pattern.
 *
 * The engine of the language backtracks: `(a+)+$` on 40 letters would block the gateway for hours. Here all alternatives advance together,
 * one character at a time, and each instruction is visited once per character (Thompson's construction). Features that need backtracking
 * (references to groups, a lookaround inside the text) are refused, where the author of the schema sees it.
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

/** Steps before the first character: the lists are prepared. */
const START_STEPS = 40
/** Instructions of one expression; `x{1000}` is a thousand of them. */
const MAX_INSTRUCTIONS = 4000
const MAX_PATTERN_CHARS = 2000
/** Groups in groups. */
const MAX_DEPTH = 50

export class LinearPattern {
  readonly #source: string
  readonly #branches: readonly Branch[]

  /** @throws Error with a reason that continues "the pattern ", or SyntaxError of the language's own engine */
  constructor(source: string, budget: WorkBudget) {
    if (source.length > MAX_PATTERN_CHARS) throw new Error(`has more than ${MAX_PATTERN_CHARS} characters`)
    // The language's own engine knows what is well-formed; nothing is matched with it.
    new RegExp(source, 'u')
    this.#source = source
    this.#branches = new Parser(source, budget).parse()
  }

  /** ajv keeps patterns by this text. */
  toString(): string {
    return `/${this.#source}/u`
  }

  /** True when the pattern is found in the text. @throws TooMuchWork */
  test(text: string): boolean {
    return this.#branches.some(
      ({ guards, program }) =>
        guards.every(guard => guard.program.test(text, true) === guard.isWanted) && program.test(text, false),
    )
  }
}

/** One alternative of the whole expression. Its guards are the lookaheads behind `^`: they must, or must not, match from there. */
interface Branch {
  guards: readonly { isWanted: boolean; program: Program }[]
  program: Program
}

/** `next` is the index of the instruction that follows. */
type Instruction =
  /** A character of a class. */
  | { op: 'char'; test: (code: number) => boolean; next: number }
  /** A position between two characters. */
  | { op: 'anchor'; test: (before: number, here: number) => boolean; next: number }
  /** Goes on at all of these without taking a character. */
  | { op: 'fork'; to: number[] }
  | { op: 'match' }

/** Adds the instructions of a part that goes on at `next`. @returns where they begin */
type Part = (program: Program, next: number) => number

/** Stands for the ends of the text among characters. */
const NONE = -1

const START: Part = toAnchor(before => before === NONE)

/** Instructions and their lists, which are made once: a check is over before the next begins. */
class Program {
  readonly #code: Instruction[] = []
  readonly #start: number
  readonly #budget: WorkBudget
  readonly #size: { left: number }
  /** True for a program that begins with `^`: later in the text it cannot begin. */
  readonly #beginsOnce: boolean
  /** Position at which an instruction was visited last. */
  readonly #seen: Int32Array
  readonly #stack: number[] = []
  /** Instructions that wait for a character, and those after it. */
  readonly #waiting: Int32Array
  readonly #next: Int32Array

  /** @param size - instructions that the expression may still have */
  constructor(parts: readonly Part[], size: { left: number }, budget: WorkBudget) {
    this.#size = size
    this.#budget = budget
    this.#beginsOnce = parts[0] === START
    this.#start = toSequence(parts)(this, this.emit({ op: 'match' }))
    const { length } = this.#code
    this.#seen = new Int32Array(length)
    this.#waiting = new Int32Array(length)
    this.#next = new Int32Array(length)
  }

  emit(instruction: Instruction): number {
    if (this.#size.left-- <= 0) throw tooLarge()
    return this.#code.push(instruction) - 1
  }

  /** @param isAnchored - the match begins at the start of the text */
  test(text: string, isAnchored: boolean): boolean {
    const code = this.#code
    const waiting = this.#waiting
    const next = this.#next
    const beginsOnce = isAnchored || this.#beginsOnce
    this.#budget.spend(START_STEPS + (code.length >> 4))
    this.#seen.fill(-1)
    let nextCount = 0
    let before = NONE
    for (let at = 0, position = 0; ; position++) {
      const here = at < text.length ? text.codePointAt(at)! : NONE
      let count = 0
      for (let i = 0; i < nextCount && count >= 0; i++) count = this.#enter(next[i]!, position, count, before, here)
      if (count >= 0 && (position === 0 || !beginsOnce)) count = this.#enter(this.#start, position, count, before, here)
      if (count < 0) return true
      if (here === NONE) return false
      nextCount = 0
      for (let i = 0; i < count; i++) {
        const step = code[waiting[i]!] as Instruction & { op: 'char' }
        if (step.test(here)) next[nextCount++] = step.next
      }
      if (nextCount === 0 && beginsOnce) return false
      before = here
      at += here > 0xffff ? 2 : 1
    }
  }

  /**
   * Follows an instruction to those that wait for a character, and adds them to the list of `count`.
   * @returns the new count, or -1 when the end of the program is reached
   */
  #enter(from: number, position: number, count: number, before: number, here: number): number {
    const stack = this.#stack
    let added = count
    let steps = 1
    stack.length = 0
    stack.push(from)
    for (let index = stack.pop(); index !== undefined; index = stack.pop()) {
      if (this.#seen[index] === position) continue
      this.#seen[index] = position
      steps += 1
      const step = this.#code[index]!
      if (step.op === 'char') this.#waiting[added++] = index
      else if (step.op === 'fork') for (const to of step.to) stack.push(to)
      else if (step.op === 'match') return -1
      else if (step.test(before, here)) stack.push(step.next)
    }
    this.#budget.spend(steps)
    return added
  }
}

function tooLarge(): Error {
  return new Error('is too large: its repetitions make too many steps')
}

function toSequence(parts: readonly Part[]): Part {
  return (program, next) => parts.reduceRight((end, part) => part(program, end), next)
}

function toChoice(branches: readonly Part[][]): Part {
  if (branches.length === 1) return toSequence(branches[0]!)
  return (program, next) => program.emit({ op: 'fork', to: branches.map(branch => toSequence(branch)(program, next)) })
}

function toRepeat(part: Part, min: number, max: number): Part {
  return (program, next) => {
    let at = next
    if (max === Number.POSITIVE_INFINITY) {
      const to = [next]
      at = program.emit({ op: 'fork', to })
      to.push(part(program, at))
    } else {
      for (let i = min; i < max; i++) at = program.emit({ op: 'fork', to: [part(program, at), next] })
    }
    for (let i = 0; i < min; i++) {
      const end = at
      at = part(program, end)
      // An empty group, as often as one likes.
      if (at === end) break
    }
    return at
  }
}

function toChar(source: string): Part {
  const plain = source.length === 1 && source !== '.' ? source.charCodeAt(0) : NONE
  const test = plain === NONE ? toClass(source) : (code: number) => code === plain
  return (program, next) => program.emit({ op: 'char', test, next })
}

/** A class of characters, tried once for each of ASCII. One character is all that the language's engine ever sees here. */
function toClass(source: string): (code: number) => boolean {
  const one = new RegExp(`^(?:${source})$`, 'u')
  const ascii = Array.from({ length: 128 }, (_, code) => one.test(String.fromCharCode(code)))
  return code => (code < 128 ? ascii[code]! : one.test(String.fromCodePoint(code)))
}

function toAnchor(test: (before: number, here: number) => boolean): Part {
  return (program, next) => program.emit({ op: 'anchor', test, next })
}

/** `\w`: letters, digits and `_` of ASCII. */
function isWord(code: number): boolean {
  return (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || code === 95 || (code >= 97 && code <= 122)
}

const ANCHORS: ReadonlyMap<string, Part> = new Map([
  ['^', START],
  ['$', toAnchor((_, here) => here === NONE)],
  ['\\b', toAnchor((before, here) => isWord(before) !== isWord(here))],
  ['\\B', toAnchor((before, here) => isWord(before) === isWord(here))],
])

/** A class of characters, an escape or a character of an expression that is well-formed. */
const ATOM =
  /\[(?:\\.|[^\]\\])*\]|\\(?:u\{[0-9a-f]+\}|u[dD][89abAB][0-9a-f]{2}\\u[dD][c-fC-F][0-9a-f]{2}|u[0-9a-f]{4}|x[0-9a-f]{2}|c[a-z]|p\{[^}]*\}|.)|./isuy
const REPEAT = /(?:[*+?]|\{(\d+)(,?)(\d*)\})\??/y
const GROUP = /\((?:\?(?:<([=!])|<[^>]*>|([:=!])))?/y

/** Reads an expression that is well-formed. */
class Parser {
  readonly #text: string
  readonly #budget: WorkBudget
  readonly #size = { left: MAX_INSTRUCTIONS }
  /** The parts that are lookaheads, and the branches of those that are groups. */
  readonly #looks = new Map<Part, { isWanted: boolean; part: Part }>()
  readonly #groups = new Map<Part, Part[][]>()
  #at = 0
  #depth = 0

  constructor(text: string, budget: WorkBudget) {
    this.#text = text
    this.#budget = budget
  }

  parse(): Branch[] {
    let branches = this.#choice()
    // `(^a|b)` is `^a|b`.
    for (let inner = branches; inner.length > 0; inner = this.#onlyGroup(branches)) branches = inner
    return branches.map(parts => this.#toBranch(parts))
  }

  #onlyGroup([branch, ...others]: readonly Part[][]): Part[][] {
    return branch?.length === 1 && others.length === 0 ? (this.#groups.get(branch[0]!) ?? []) : []
  }

  /** Takes the lookaheads at the beginning off: `^(?!admin)(?=.*x)[a-z]+$`. */
  #toBranch(parts: readonly Part[]): Branch {
    const end = parts.findIndex(part => part !== START && !this.#looks.has(part))
    const [first, rest] = end < 0 ? [parts, []] : [parts.slice(0, end), parts.slice(end)]
    const looks = first.flatMap(part => this.#looks.get(part) ?? [])
    const anchors = first.filter(part => part === START)
    if (looks.length > 0 && anchors.length === 0)
      throw new Error('has a lookahead without ^ in front: write "^(?!...)"')
    const guards = looks.map(({ isWanted, part }) => ({ isWanted, program: this.#toProgram([part]) }))
    return { guards, program: this.#toProgram([...anchors, ...rest]) }
  }

  #toProgram(parts: readonly Part[]): Program {
    return new Program(parts, this.#size, this.#budget)
  }

  #choice(): Part[][] {
    if (++this.#depth > MAX_DEPTH) throw new Error(`has groups more than ${MAX_DEPTH} deep`)
    const branches = [this.#sequence()]
    while (this.#take(/\|/y) !== null) branches.push(this.#sequence())
    this.#depth--
    return branches
  }

  #sequence(): Part[] {
    const parts: Part[] = []
    while (this.#at < this.#text.length && this.#text[this.#at] !== '|' && this.#text[this.#at] !== ')')
      parts.push(this.#repeated(this.#part()))
    return parts
  }

  #repeated(part: Part): Part {
    const found = this.#take(REPEAT)
    if (found === null) return part
    const [sign, low, comma, high] = found
    let [min, max] = [sign!.startsWith('+') ? 1 : 0, sign!.startsWith('?') ? 1 : Number.POSITIVE_INFINITY]
    if (low !== undefined) {
      min = Number(low)
      if (high !== '') max = Number(high)
      else if (comma === '') max = min
    }
    if (min > MAX_INSTRUCTIONS || (max > MAX_INSTRUCTIONS && max !== Number.POSITIVE_INFINITY)) throw tooLarge()
    return toRepeat(part, min, max)
  }

  #part(): Part {
    const group = this.#take(GROUP)
    if (group !== null) return this.#group(group[1], group[2])
    const [atom] = this.#take(ATOM)!
    if (/^\\[1-9k]/.test(atom!)) throw new Error('has a backreference, which is not supported')
    return ANCHORS.get(atom!) ?? toChar(atom!)
  }

  #group(behind: string | undefined, kind: string | undefined): Part {
    if (behind !== undefined) throw new Error('has a lookbehind, which is not supported')
    const branches = this.#choice()
    this.#at++
    const part = toChoice(branches)
    if (kind !== '=' && kind !== '!') {
      this.#groups.set(part, branches)
      return part
    }
    const look: Part = () => {
      throw new Error('has a lookahead inside the pattern: only "^(?=...)" and "^(?!...)" are supported')
    }
    this.#looks.set(look, { isWanted: kind === '=', part })
    return look
  }

  /** What a sticky expression finds here. */
  #take(what: RegExp): RegExpExecArray | null {
    what.lastIndex = this.#at
    const found = what.exec(this.#text)
    if (found !== null) this.#at += found[0].length
    return found
  }
}

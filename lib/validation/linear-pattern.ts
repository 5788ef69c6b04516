/**
 * Patterns of a schema on text of clients, in time that grows with the text alone. Owner: page validation/linear-pattern.
 *
 * The engine of the language goes back when a try fails: `(a+)+$` on 40 letters would hold the gateway for hours. Here all tries go on at once,
 * one character at a time, and each place of the program is visited once per character.
 */

import { type Anchor, type Branch, type CharTest, parsePattern, type Program } from './pattern-parser.ts'

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
  readonly #code: Program['code']
  readonly #budget: WorkBudget
  /** True for a program that begins with `^`: later in the text it cannot begin. */
  readonly #beginsOnce: boolean
  /** Position at which a place of the program was visited last. */
  readonly #seen: Int32Array
  readonly #stack: number[] = []
  /** Places that wait for a character, and those after it. */
  readonly #waiting: Int32Array
  readonly #next: Int32Array

  constructor({ code }: Program, budget: WorkBudget) {
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
        if ((code[place] as { test: CharTest }).test(here)) next[nextCount++] = place + 1
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

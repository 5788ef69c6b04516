/** The imports of Python files, read by the interpreter that runs them: many files in one start of it. Owner: §2.16, page dependencies/python. */

import { spawn } from 'node:child_process'
import type { Clock } from '../core/clock.ts'
import { isObject } from '../core/json.ts'
import { passingError } from './install-step.ts'

/** Milliseconds that the interpreter may take for one question. */
const ANSWER_MS = 60_000
/** Handlers in one question. */
const MAX_ENTRIES = 500
/** Times that one question is asked at most. */
const ASKS = 3
/** Bytes of an answer. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024

export interface PythonImport {
  /** First part of the module's name. */
  name: string
  /** Full path of the file that imports it. */
  file: string
  /** From 1. */
  line: number
  /** The file can do without it. */
  optional: boolean
  /**
   * Why it may be a file elsewhere and no package: a file above that has the name (`line` null), or a line that changes `sys.path`
   * in a way that only a run would show.
   */
  doubt: { file: string; line: number | null } | null
}

interface Entry {
  /** Full path of a handler. */
  entry: string
  /** Full path of its function's folder. */
  folder: string
  /** Full path of the functions root. */
  root: string
}

interface Question extends Entry {
  resolve(found: readonly PythonImport[]): void
  reject(error: Error): void
}

interface PythonImportsOptions {
  clock: Clock
  /** Full path of `infer.py`. */
  script: string
  /** The interpreter's environment. */
  env: Readonly<Record<string, string>>
}

export class PythonImports {
  readonly #options: PythonImportsOptions
  /** By interpreter. */
  readonly #waiting = new Map<string, Question[]>()
  readonly #asking = new Set<string>()

  constructor(options: PythonImportsOptions) {
    this.#options = options
  }

  /**
   * Imports of a handler, and of modules beside it that it imports, that are neither the standard library's nor local.
   * @param program - the interpreter
   * @throws Error when it gives no answer
   */
  read(program: string, entry: Entry): Promise<readonly PythonImport[]> {
    return new Promise((resolve, reject) => {
      const waiting = this.#waiting.get(program) ?? []
      this.#waiting.set(program, waiting)
      waiting.push({ ...entry, resolve, reject })
      // All that is asked for in this turn goes into one question.
      setImmediate(() => void this.#flush(program))
    })
  }

  /** Those of the modules that the interpreter has by itself. */
  async find(program: string, names: readonly string[]): Promise<readonly string[]> {
    const answer = await this.#ask(program, [], { find: names })
    return answer.filter(name => typeof name === 'string')
  }

  async #flush(program: string): Promise<void> {
    if (this.#asking.has(program)) return
    this.#asking.add(program)
    try {
      const waiting = this.#waiting.get(program) ?? []
      while (waiting.length > 0) await this.#answer(program, waiting.splice(0, MAX_ENTRIES))
    } finally {
      this.#asking.delete(program)
    }
  }

  async #answer(program: string, questions: readonly Question[]): Promise<void> {
    try {
      const read = questions.map(({ entry, folder, root }) => ({ entry, folder, root }))
      // Without site packages: the parser needs none, and starts in half the time.
      const answers = await this.#ask(program, ['-S'], { read })
      for (const [index, question] of questions.entries()) question.resolve(toImports(answers[index]))
    } catch (error) {
      for (const question of questions) question.reject(error as Error)
    }
  }

  /** Asks again when the process was ended from outside: that says nothing about the handler. */
  async #ask(program: string, flags: readonly string[], question: object): Promise<unknown[]> {
    for (let left = ASKS; ; left--) {
      const answer = await this.#askOnce(program, flags, question)
      if (answer !== null) return answer
      if (left === 1) throw passingError(`${program} was ended while it read imports`)
    }
  }

  /** @returns null when the process was ended from outside */
  #askOnce(program: string, flags: readonly string[], question: object): Promise<unknown[] | null> {
    const { clock, script, env } = this.#options
    return new Promise((resolve, reject) => {
      const child = spawn(program, ['-I', '-B', ...flags, script], { env, stdio: ['pipe', 'pipe', 'pipe'] })
      const parts: Buffer[] = []
      let bytes = 0
      let problem = ''
      const timer = clock.setTimeout(() => {
        problem = `${program} did not report the imports within ${ANSWER_MS / 1000} s`
        child.kill('SIGKILL')
      }, ANSWER_MS)
      child.stdout.on('data', (part: Buffer) => {
        bytes += part.length
        if (bytes <= MAX_ANSWER_BYTES) parts.push(part)
      })
      child.stderr.on('data', (part: Buffer) => {
        problem = `${problem}${part}`.slice(-2000)
      })
      // It may end before it has read all.
      child.stdin.on('error', () => {})
      child.stdin.end(JSON.stringify(question))
      child.once('error', error => {
        clock.clearTimeout(timer)
        reject(error)
      })
      child.once('close', (_code, signal) => {
        clock.clearTimeout(timer)
        if (signal !== null && problem === '') {
          resolve(null)
          return
        }
        const answer = parseAnswer(Buffer.concat(parts).toString('utf8'))
        if (answer === null) reject(new Error(`${program} cannot read imports: ${problem.trim()}`))
        else resolve(answer)
      })
    })
  }
}

function parseAnswer(text: string): unknown[] | null {
  try {
    const value: unknown = JSON.parse(text)
    return Array.isArray(value) ? value : null
  } catch {
    return null
  }
}

function toImports(value: unknown): PythonImport[] {
  if (!Array.isArray(value)) return []
  return value.filter(
    (one): one is PythonImport => isObject(one) && typeof one.name === 'string' && typeof one.file === 'string',
  )
}

/** The imports of Python files, read by the interpreter that runs them: many files in one start of it. Owner: §2.16, page dependencies/python. */

import { execFile } from 'node:child_process'
import { orNull } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import type { BuildTools, Toolchain } from './build.ts'
import { type InstallUnit, passingError } from './install-step.ts'
import { toPackageName } from './pip.ts'

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
    const { script, env } = this.#options
    const limits = { timeout: ANSWER_MS, killSignal: 'SIGKILL', maxBuffer: MAX_ANSWER_BYTES } as const
    return new Promise((resolve, reject) => {
      const args = ['-I', '-B', ...flags, script]
      const child = execFile(program, args, { env, ...limits }, (error, output, problem) => {
        const isLate = error?.killed === true
        if (error?.signal != null && !isLate && problem === '') return resolve(null)
        const answer = parseAnswer(output)
        if (answer !== null) return resolve(answer)
        // It did not start.
        if (error?.errno !== undefined) return reject(error)
        const why = isLate
          ? `${program} did not report the imports within ${ANSWER_MS / 1000} s`
          : problem.slice(-2000).trim()
        reject(new Error(`${program} cannot read imports: ${why}`))
      })
      // It may end before it has read all.
      child.stdin!.on('error', () => {})
      child.stdin!.end(JSON.stringify(question))
    })
  }
}

function parseAnswer(text: string): unknown[] | null {
  const value: unknown = orNull(() => JSON.parse(text))
  return Array.isArray(value) ? value : null
}

function toImports(value: unknown): PythonImport[] {
  if (!Array.isArray(value)) return []
  return value.filter(
    (one): one is PythonImport => isObject(one) && typeof one.name === 'string' && typeof one.file === 'string',
  )
}

/** The name that pipreqs has for it by itself is an old one, which is not answered everywhere. */
const INDEX = 'https://pypi.org/pypi/'
/** Folders that hold no code of the function. */
const IGNORED = '.deps,.svc,.svc-deps,node_modules,vendor,__pycache__'

/**
 * Names of packages (`FN_PY_INFER_BACKEND=pipreqs`). pipreqs knows by a table which package has which module, and asks the package index
 * about the others.
 * @throws GatewayError when it is not installed
 */
export async function findByPipreqs(
  { folder }: Pick<InstallUnit, 'folder'>,
  { program }: Toolchain,
  tools: BuildTools,
): Promise<string[]> {
  const flags = ['--print', '--mode', 'no-pin', '--ignore', IGNORED, '--encoding', 'utf-8', '--pypi-server', INDEX]
  const env = { PYTHONSAFEPATH: '1', PYTHONWARNINGS: 'ignore' }
  const args = ['-m', 'pipreqs.pipreqs', ...flags, folder]
  const { code, output } = await tools.run({ command: program, args, cwd: '/', env })
  if (/No module named '?pipreqs/.test(output)) {
    const hint = 'python3 -m pip install pipreqs, or FN_PY_INFER_BACKEND=native, which needs nothing'
    throw passingError('FN_PY_INFER_BACKEND is pipreqs, which this Python does not have', hint)
  }
  if (code !== 0) throw passingError(`pipreqs: ${output.trim().split('\n').at(-1) ?? `ended with ${code}`}`)
  const names = output.split('\n').filter(line => /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(line.trim()))
  return [...new Set(names.map(name => toPackageName(name.trim())))]
}

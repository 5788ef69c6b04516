/** The imports of Python files, read by the interpreter that runs them: many files in one start of it. Owner: §2.16, page dependencies/python. */

import { execFile } from 'node:child_process'
import { orNull } from '../core/errors.ts'
import { getOrMake } from '../core/collections.ts'
import { isObject } from '../core/json.ts'
import { KeyedMutex } from '../core/semaphore.ts'
import type { Toolchain } from './build.ts'
import { toPackageName } from './pip.ts'
import type { BuildTools } from './run-tool.ts'
import { passingError } from './tool-failure.ts'

/** Milliseconds that the interpreter may take for one question. */
const ANSWER_MS = 60_000
/** Handlers in one question. */
const MAX_ENTRIES = 500
/** Times that one question is asked at most. */
const ASKS = 3
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

/** Full paths of a handler, of its function's folder, and of the functions root. */
interface Entry {
  entry: string
  folder: string
  root: string
}

interface Question {
  entry: Entry
  resolve(found: readonly PythonImport[]): void
  reject(error: unknown): void
}

export class PythonImports {
  readonly #options: { script: string; env: Readonly<Record<string, string>> }
  /** By interpreter. */
  readonly #waiting = new Map<string, Question[]>()
  /** Of interpreters. */
  readonly #turns = new KeyedMutex()

  /** @param options - `script`: full path of `infer.py`; `env`: the interpreter's environment */
  constructor(options: { script: string; env: Readonly<Record<string, string>> }) {
    this.#options = options
  }

  /**
   * Imports of a handler, and of modules beside it that it imports, that are neither the standard library's nor local.
   * @param program - the interpreter
   * @throws Error when it gives no answer
   */
  read(program: string, entry: Entry): Promise<readonly PythonImport[]> {
    return new Promise((resolve, reject) => {
      const waiting = getOrMake(this.#waiting, program, () => [])
      waiting.push({ entry, resolve, reject })
      // All that is asked for in this turn, and before the last question is answered, goes into one question.
      setImmediate(() => void this.#turns.run(program, () => this.#answer(program, waiting.splice(0, MAX_ENTRIES))))
    })
  }

  /** Those of the modules that the interpreter has by itself. */
  async find(program: string, names: readonly string[]): Promise<readonly string[]> {
    const answer = await this.#ask(program, [], { find: names })
    return answer.filter(name => typeof name === 'string')
  }

  async #answer(program: string, questions: readonly Question[]): Promise<void> {
    if (questions.length === 0) return
    try {
      // Without site packages: the parser needs none, and starts in half the time.
      const answers = await this.#ask(program, ['-S'], { read: questions.map(({ entry }) => entry) })
      for (const [index, { resolve }] of questions.entries()) resolve(toImports(answers[index]))
    } catch (error) {
      for (const { reject } of questions) reject(error)
    }
  }

  /** Asks again when the process was ended from outside: that says nothing about the handler. */
  async #ask(program: string, flags: readonly string[], question: object): Promise<unknown[]> {
    for (let left = ASKS; left > 0; left--) {
      const answer = await this.#askOnce(program, flags, question)
      if (answer !== null) return answer
    }
    throw passingError(`${program} was ended while it read imports`)
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
        const answer: unknown = orNull(() => JSON.parse(output))
        if (Array.isArray(answer)) return resolve(answer)
        // It did not start.
        if (error?.errno !== undefined) return reject(error)
        const late = `${program} did not report the imports within ${ANSWER_MS / 1000} s`
        const why = isLate ? late : problem.slice(-2000).trim()
        reject(new Error(`${program} cannot read imports: ${why}`))
      })
      // It may end before it has read all.
      child.stdin!.on('error', () => {})
      child.stdin!.end(JSON.stringify(question))
    })
  }
}

function toImports(value: unknown): PythonImport[] {
  const list = Array.isArray(value) ? value : []
  return list.filter((one): one is PythonImport => {
    return isObject(one) && typeof one.name === 'string' && typeof one.file === 'string'
  })
}

/** The name that pipreqs has for it by itself is an old one, which is not answered everywhere. */
const INDEX = 'https://pypi.org/pypi/'
/** Folders that hold no code of the function. */
const IGNORED = '.deps,.svc,.svc-deps,node_modules,vendor,__pycache__'

/**
 * Names of packages (`FN_PY_INFER_BACKEND=pipreqs`). pipreqs knows by a table which package has which module, and asks the package index
 * about the others.
 * @param folder - full path of the function's folder
 * @throws GatewayError when it is not installed
 */
export async function findByPipreqs(folder: string, { program }: Toolchain, tools: BuildTools): Promise<string[]> {
  const flags = ['--print', '--mode', 'no-pin', '--ignore', IGNORED, '--encoding', 'utf-8', '--pypi-server', INDEX]
  const env = { PYTHONSAFEPATH: '1', PYTHONWARNINGS: 'ignore' }
  const args = ['-m', 'pipreqs.pipreqs', ...flags, folder]
  const { code, output } = await tools.run({ command: program, args, cwd: '/', env })
  if (/No module named '?pipreqs/.test(output)) {
    const hint = 'python3 -m pip install pipreqs, or FN_PY_INFER_BACKEND=native, which needs nothing'
    throw passingError('FN_PY_INFER_BACKEND is pipreqs, which this Python does not have', hint)
  }
  const lines = output.split('\n').map(line => line.trim())
  if (code !== 0) throw passingError(`pipreqs: ${lines.findLast(line => line !== '') ?? `ended with ${code}`}`)
  return [...new Set(lines.filter(line => /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(line)).map(toPackageName))]
}

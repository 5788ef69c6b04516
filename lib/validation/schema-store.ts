/** The schemas of a tree: read and compiled at a reload, kept while their files do not change. Owner: page validation/schema-file. */

import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { join, posix } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import type { FunctionVersion, SchemaFileRef } from '../core/catalog.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'
import { Semaphore } from '../core/semaphore.ts'
import { RequestSchema } from './request-schema.ts'
import { SchemaCompiler } from './schema-compiler.ts'
import { parseSchemaFile, type SchemaFile } from './schema-file.ts'

/** Checks that one compiler makes: it remembers what it made them of, and is then replaced. */
const CHECKS_PER_COMPILER = 1000
/** Checks made before other work of the process gets its turn. */
const CHECKS_PER_TURN = 5
/** Files read at a time. */
const READERS = 16

interface Loaded {
  /** Of the file that was read; null when it is to be read again. */
  stamp: string | null
  /** The last version that could be used; null when none could. */
  file: SchemaFile | null
  warnings: readonly Warning[]
}

/** The checks of a function's requests. */
interface Checked {
  schema: RequestSchema | GatewayError
  warnings: readonly Warning[]
}

export class SchemaStore {
  readonly #rootPath: string
  readonly #checksAnswers: boolean
  readonly #readBytes: (path: string) => Uint8Array | Promise<Uint8Array>
  #files = new Map<string, Loaded>()
  readonly #checked = new WeakMap<FunctionVersion, Checked>()
  #compiler: SchemaCompiler | null = null
  #compiled = 0

  /**
   * @param checksAnswers - true in development
   * @param read - reads the files; null: links are followed
   */
  constructor(rootPath: string, checksAnswers = true, read: ((path: string) => Uint8Array) | null = null) {
    this.#readBytes = read ?? readRegular
    this.#rootPath = rootPath
    this.#checksAnswers = checksAnswers
  }

  /** Prepares what the functions of a catalog need. Never rejects. @returns what is wrong with their schemas */
  async load(functions: readonly FunctionVersion[]): Promise<Warning[]> {
    const refs = new Map(functions.flatMap(({ schema }) => (schema === null ? [] : [[schema.path, schema] as const])))
    const readers = new Semaphore(READERS)
    const files = [...refs.values()].map(ref => readers.run(async () => [ref.path, await this.#read(ref)] as const))
    this.#files = new Map(await Promise.all(files))
    const warnings = [...this.#files.values()].flatMap(loaded => loaded.warnings)
    for (const fn of functions) if (fn.policy.validate) warnings.push(...(await this.#check(fn)).warnings)
    return warnings
  }

  /** The schema file of a function; null without one. */
  fileOf(fn: FunctionVersion): SchemaFile | null {
    return fn.schema === null ? null : (this.#files.get(fn.schema.path)?.file ?? null)
  }

  /**
   * The checks of a function's requests.
   * @returns an error that answers every call where the check is asked for and cannot be made
   */
  checkOf(fn: FunctionVersion): RequestSchema | GatewayError {
    return this.#checked.get(fn)?.schema ?? toBroken('schema.json was not read')
  }

  async #read({ path, size, mtimeMs }: SchemaFileRef): Promise<Loaded> {
    const stamp = `${size}|${mtimeMs}`
    const known = this.#files.get(path)
    if (known?.stamp === stamp) return known
    const lastGood = known?.file ?? null
    let source: Uint8Array
    try {
      source = await this.#readBytes(join(this.#rootPath, path))
    } catch (error) {
      const { code, message: text } = error as NodeJS.ErrnoException
      // The reader's own refusal says more than its code.
      const reason = code === undefined || code === 'NOT_OF_FUNCTION' ? text : code
      const message = `${path}: cannot be read: ${reason}`
      const warnings = [{ code: 'SCHEMA_UNREADABLE', path, message, hint: 'Make it a readable file.' }]
      return { stamp: null, file: lastGood, warnings }
    }
    const { file, warnings } = parseSchemaFile(source, path)
    if (file === null && lastGood !== null) {
      const message = `${path}: is not used: its last good version stays in force`
      warnings.push({ code: 'CONFIG_KEPT', path, message, hint: 'Fix the file.' })
    }
    return { stamp, file: file ?? lastGood, warnings }
  }

  async #check(fn: FunctionVersion): Promise<Checked> {
    const known = this.#checked.get(fn)
    // A file that could not be read may be readable now, without a change that shows.
    if (known !== undefined && (known.schema instanceof RequestSchema || this.fileOf(fn) === null)) return known
    const checked = await this.#compile(fn)
    this.#checked.set(fn, checked)
    return checked
  }

  async #compile(fn: FunctionVersion): Promise<Checked> {
    const file = this.fileOf(fn)
    if (fn.schema === null) {
      const name = posix.basename(fn.entryFile).replace(/\.[^.]+$/, '.schema.json')
      const hint = `Write ${name} ({} accepts every request), or remove invoke.validate.`
      return toUnusable(fn, `it has no schema file (${name})`, hint)
    }
    if (file === null) return toUnusable(fn, `${fn.schema.path} cannot be used`, 'Fix it, or remove invoke.validate.')
    // Requests go on while many are compiled.
    if (this.#compiled % CHECKS_PER_TURN === 0) await setImmediate()
    if (this.#compiled++ % CHECKS_PER_COMPILER === 0) this.#compiler = null
    this.#compiler ??= await SchemaCompiler.load()
    try {
      const { methods, exampleContentType: bodyType } = fn.policy
      const options = { methods, bodyType, compiler: this.#compiler, checksAnswers: this.#checksAnswers }
      return { schema: new RequestSchema(file, options), warnings: [] }
    } catch (error) {
      return toUnusable(fn, `${fn.schema.path}: ${(error as Error).message}`, 'Fix the schema.')
    }
  }
}

/** A pipe in the file's place must not hold the reload up, nor a file without an end fill the memory. */
async function readRegular(path: string): Promise<Uint8Array> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stat = await file.stat()
    if (!stat.isFile()) throw new Error('it is not a regular file')
    // One byte more than is read: the parser then says that it is too large.
    const bytes = Buffer.alloc(Math.min(stat.size, MAX_CONFIG_FILE_BYTES + 1))
    const { bytesRead } = await file.read(bytes, 0, bytes.length, 0)
    return bytes.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}

function toBroken(why: string): GatewayError {
  return new GatewayError('LOAD_FAILED', `requests of this function cannot be checked: ${why}`)
}

/** Calls answer 500: a handler that relies on the check must not get what was not checked. */
function toUnusable({ entryFile: path }: FunctionVersion, why: string, hint: string): Checked {
  const message = `${path}: invoke.validate is true, but ${why}: its calls answer 500`
  return { schema: toBroken(why), warnings: [{ code: 'SCHEMA_UNUSABLE', path, message, hint }] }
}

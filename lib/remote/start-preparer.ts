/** What a gateway asks to start, as this machine knows it: the function is found and made ready here. Owner: page remote/daemon-server. */

import { stat } from 'node:fs/promises'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { type GatewayError, toGatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { Preparer } from '../runtime/runtime.ts'
import { PathMap } from './path-map.ts'

/** Milliseconds a start waits for a build or an install: a gateway waits 15 s for the answer. */
const PREPARE_WAIT_MS = 12_000

type Header = Record<string, unknown>

interface StartPreparerOptions {
  runtime: RuntimeName
  /** Full path of the functions folder. */
  root: string
  clock: Clock
  /** Null for a runtime whose functions need nothing. */
  preparer: Preparer | null
  /** The functions of the tree as it was read last, by key. */
  functions(): ReadonlyMap<string, FunctionVersion>
  /** True when its files are not what was read. */
  isChanged(fn: FunctionVersion): boolean
  /** Reads the tree again. */
  reload(): Promise<void>
}

export class StartPreparer {
  readonly #options: StartPreparerOptions

  constructor(options: StartPreparerOptions) {
    this.#options = options
  }

  /**
   * @param header - of a gateway's `start`
   * @returns header for the daemon process: nothing of it names a program, a user, or a path outside the functions folder
   * @throws Error with a message for people
   */
  async toStart(header: Header): Promise<Header> {
    const { runtime, root } = this.#options
    if (header.runtime !== runtime)
      throw new Error(`this daemon runs ${runtime} functions, not ${JSON.stringify(header.runtime)}`)
    const map = new PathMap(String(header.root ?? ''), root)
    const dir = map.toHere(header.dir)
    const entry = map.toHere(header.entry)
    if (!(await isFile(entry)))
      throw new Error(`${entry.slice(root.length + 1)} is missing in the daemon's folder ${root}`)
    const program = await this.#prepare(String(header.key), entry)
    const { key, name, version } = header
    return { key, runtime, name, version, dir, entry, ...(program !== null && { binary: program }) }
  }

  /** @returns full path of the function's program, null for one that needs none */
  async #prepare(key: string, entry: string): Promise<string | null> {
    const { preparer, clock } = this.#options
    if (preparer === null) return null
    const fn = await this.#find(key, entry)
    let timer: NodeJS.Timeout | null = null
    const late = new Promise<never>((_, reject) => {
      const tell = (): void => reject(new Error(`${preparer.toStep(fn)}; it goes on in the background`))
      timer = clock.setTimeout(tell, PREPARE_WAIT_MS)
    })
    try {
      return await Promise.race([preparer.prepare(fn), late])
    } catch (error) {
      throw error instanceof Error && 'detail' in error ? new Error(toText(toGatewayError(error))) : error
    } finally {
      if (timer !== null) clock.clearTimeout(timer)
    }
  }

  async #find(key: string, entry: string): Promise<FunctionVersion> {
    const known = this.#look(key, entry)
    if (known !== null && !this.#options.isChanged(known)) return known
    await this.#options.reload()
    const found = this.#look(key, entry)
    if (found === null) throw new Error(`the daemon finds no function ${key} in ${this.#options.root}`)
    return found
  }

  #look(key: string, entry: string): FunctionVersion | null {
    const found = this.#options.functions().get(key)
    return found?.entryPath === entry ? found : null
  }
}

function toText(error: GatewayError): string {
  const hint = error.detail?.hint
  return hint === undefined ? error.message : `${error.message} (${hint})`
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile()
  } catch {
    return false
  }
}

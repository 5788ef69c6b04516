/** Limits of a function with a separate user. Owner: page runtime/quotas. */

import { join } from 'node:path'
import type { Settings } from '../config/settings.ts'
import { type Clock, Timer, within } from '../core/clock.ts'
import { DEFAULT_FUNCTION_PROCESSES } from '../core/limits.ts'
import { runAsUser, type UserSignals } from '../files/user-signals.ts'

type QuotaSettings = Pick<Settings, 'functionProcesses' | 'functionOpenFiles' | 'functionTempMb'>

/** Limits of a process, as `prlimit` names them: `nproc` counts all processes and threads of the user. */
export interface ResourceLimits {
  nproc: number
  nofile?: number
  /** Bytes of one file. */
  fsize?: number
}

const MIB = 1024 * 1024

export function toLimits({ functionProcesses, functionOpenFiles, functionTempMb }: QuotaSettings): ResourceLimits {
  return {
    nproc: functionProcesses ?? DEFAULT_FUNCTION_PROCESSES,
    ...(functionOpenFiles !== null && { nofile: functionOpenFiles }),
    ...(functionTempMb !== null && { fsize: functionTempMb * MIB }),
  }
}

/** Milliseconds between two measurements of temporary files. */
export const TEMP_LOOK_MS = 5000
/** Longest measurement: a function's processes could stop the one that measures. */
export const MEASURE_LIMIT_MS = 30_000
/** In KiB, with what the user has closed to itself. */
const MEASURE = `find "$0" -type d ! -perm -700 -exec chmod u+rwx {} \\; 2>/dev/null
du -skx "$0" 2>/dev/null | cut -f1`
const EMPTY = 'find "$0" -mindepth 1 -delete'

interface TempQuotaOptions {
  clock: Pick<Clock, 'setTimeout' | 'clearTimeout'>
  limitMb: number
  signals: Pick<UserSignals, 'signal'>
  /** Users with a folder, by id; the folder's full path. */
  folders: ReadonlyMap<number, string>
  /** @param usedMb - null when they could not be measured in time */
  onExceeded(uid: number, usedMb: number | null): void
  /** Runs a script on a folder as its user. @returns what it writes; null when it cannot run */
  run?(uid: number, script: string, args: readonly string[]): Promise<string | null>
}

/** Measures the temporary files of functions, one after the other, for as long as the gateway runs. */
export class TempQuota {
  readonly #options: Required<TempQuotaOptions>
  readonly #timer: Timer
  #isClosed = false

  constructor(options: TempQuotaOptions) {
    this.#options = { run: runAsUser, ...options }
    this.#timer = new Timer(options.clock, true)
    this.#plan()
  }

  close(): void {
    this.#isClosed = true
    this.#timer.clear()
  }

  #plan(): void {
    if (!this.#isClosed) this.#timer.set(TEMP_LOOK_MS, () => void this.#look().then(() => this.#plan()))
  }

  async #look(): Promise<void> {
    for (const [uid, folder] of [...this.#options.folders]) {
      if (this.#isClosed) return
      await this.#check(uid, join(folder, 'tmp'))
    }
  }

  async #check(uid: number, folder: string): Promise<void> {
    const { clock, limitMb, signals, run, onExceeded } = this.#options
    const measuring = run(uid, MEASURE, [folder]).then(text => ({ usedMb: Number(text ?? 0) / 1024 }))
    const measured = await within(clock, MEASURE_LIMIT_MS, measuring)
    // One that cannot be measured is within its limit, and one that takes too long is not.
    if (this.#isClosed || (measured !== null && measured.usedMb <= limitMb)) return
    // Deleted files that are open take up space as well.
    await signals.signal(uid, [['KILL', -1]])
    await run(uid, EMPTY, [folder])
    onExceeded(uid, measured && Math.ceil(measured.usedMb))
  }
}

/** What a function that has a user of its own may take of the machine. Owner: page runtime/quotas. */

import { spawn } from 'node:child_process'
import { join } from 'node:path'
import type { Settings } from '../config/settings.ts'
import type { Clock } from '../core/clock.ts'
import { DEFAULT_FUNCTION_PROCESSES } from '../core/limits.ts'

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

/** Milliseconds between two looks at temporary files. */
export const TEMP_LOOK_MS = 5000
/**
 * Measures, as the user, what the user may have closed to itself. Beyond the limit everything of the user ends, which gives back what is
 * deleted and open, and the files are deleted.
 */
const MEASURE = `find "$0" -type d ! -perm -700 -exec chmod u+rwx {} \\; 2>/dev/null
used=$(du -skx "$0" 2>/dev/null | cut -f1)
[ "\${used:-0}" -gt "$1" ] || exit 0
echo "$used"
kill -KILL -1
find "$0" -mindepth 1 -delete`

interface TempQuotaOptions {
  clock: Pick<Clock, 'setTimeout' | 'clearTimeout'>
  limitMb: number
  /** Users with a folder, by id; the folder's full path. */
  folders(): ReadonlyMap<number, string>
  onExceeded(uid: number, usedMb: number): void
  /** Megabytes of a user that has more; null for others. */
  measure?(uid: number, folder: string, limitMb: number): Promise<number | null>
}

/** Looks at the temporary files of functions again and again. */
export class TempQuota {
  readonly #options: TempQuotaOptions
  readonly #measure: NonNullable<TempQuotaOptions['measure']>
  #timer: NodeJS.Timeout | null = null
  #isClosed = false

  constructor(options: TempQuotaOptions) {
    this.#options = options
    this.#measure = options.measure ?? measure
    this.#plan()
  }

  close(): void {
    this.#isClosed = true
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
  }

  #plan(): void {
    if (this.#isClosed) return
    this.#timer = this.#options.clock.setTimeout(() => void this.#look().then(() => this.#plan()), TEMP_LOOK_MS)
    this.#timer.unref?.()
  }

  async #look(): Promise<void> {
    const { folders, limitMb, onExceeded } = this.#options
    for (const [uid, folder] of [...folders()]) {
      if (this.#isClosed) return
      const usedMb = await this.#measure(uid, join(folder, 'tmp'), limitMb)
      if (usedMb !== null) onExceeded(uid, usedMb)
    }
  }
}

/** Programs of the system alone: they keep the gateway's capabilities. */
function measure(uid: number, folder: string, limitMb: number): Promise<number | null> {
  return new Promise(resolve => {
    const args = ['-c', MEASURE, folder, String(limitMb * 1024)]
    const child = spawn('/bin/sh', args, { uid, gid: uid, stdio: ['ignore', 'pipe', 'ignore'] })
    let text = ''
    child.stdout.on('data', bytes => {
      text += bytes
    })
    child.once('error', () => resolve(null))
    child.once('close', () => resolve(text === '' ? null : Math.ceil(Number(text) / 1024)))
  })
}

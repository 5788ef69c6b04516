/** One line at the bottom of the terminal that shows work in progress, such as builds. Owner: page bin/dev. */

import type { BuildRecord } from '../lib/index.ts'
import type { Output } from './output.ts'

const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']
const FRAME_MS = 100

interface StatusOptions {
  /** Shows a line in place of the last one; null takes it away. */
  show: (text: string | null) => void
  /** Monotonic ms. */
  now: () => number
  /** Calls back again and again. @returns a function that ends that */
  every: (callback: () => void, ms: number) => () => void
}

/** Follows builds: while one goes on, the line turns and counts. */
export class BuildStatus {
  readonly #options: StatusOptions
  readonly #began = new Map<string, { action: string; at: number }>()
  #frame = 0
  #stop: (() => void) | null = null

  constructor(options: StatusOptions) {
    this.#options = options
  }

  on({ state, key, action }: Pick<BuildRecord, 'state' | 'key' | 'action'>): void {
    const { now, every } = this.#options
    if (state === 'began') this.#began.set(key, { action, at: now() })
    else this.#began.delete(key)
    if (this.#began.size === 0) {
      this.close()
      return
    }
    this.#stop ??= every(() => this.#draw(), FRAME_MS)
    this.#draw()
  }

  close(): void {
    this.#stop?.()
    this.#stop = null
    this.#began.clear()
    this.#options.show(null)
  }

  #draw(): void {
    const now = this.#options.now()
    this.#frame = (this.#frame + 1) % FRAMES.length
    const byAction = new Map<string, string[]>()
    for (const [key, { action, at }] of this.#began) {
      const shown = byAction.get(action) ?? []
      byAction.set(action, shown)
      shown.push(`${key} ${Math.floor((now - at) / 1000)} s`)
    }
    const texts = [...byAction].map(([action, shown]) => `${action} ${shown.join(', ')}`)
    this.#options.show(`${FRAMES[this.#frame]} ${texts.join('; ')}`)
  }
}

/** @returns null where no line can be drawn over again */
export function createBuildStatus(output: Output): BuildStatus | null {
  if (!output.hasStatus) return null
  return new BuildStatus({
    show: text => output.status(text === null ? null : output.clean(text)),
    now: () => performance.now(),
    every: (callback, ms) => {
      const timer = setInterval(callback, ms)
      timer.unref()
      return () => clearInterval(timer)
    },
  })
}

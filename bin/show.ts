/** How `fngw dev` and `run` report events: three forms, chosen once. Owner: page bin/dev. */

import type { Gateway, Warning } from '../lib/index.ts'

/** The control plane's own probe: asked every few seconds, it would drown everything else. */
const QUIET_PATH = '/_fn/health'

/** A gateway that may not serve yet. */
export type Followed = Pick<Gateway, 'settings' | 'on'>

export interface Show {
  /** Words before the gateway serves, such as a port that is in use. */
  note(text: string): void
  /** The gateway serves: what it serves, and the line that a program can wait for. */
  ready(gateway: Gateway, url: string, control: string | null): void
  /** Shows everything from now on, but for warnings and reloads of the start: `ready` shows what they led to. */
  follow(gateway: Followed): void
  stopping(signal: string): void
  /** Resolves when every line is with the system. */
  close(): Promise<void>
}

/** Warnings of the start that no catalog has, such as a tree that cannot be watched: `ready` shows them after those of the catalog. */
export class EarlyWarnings {
  readonly #found: Warning[] = []

  add(warning: Warning): void {
    this.#found.push(warning)
  }

  besides({ warnings }: Pick<Gateway, 'warnings'>): Warning[] {
    const known = new Set(warnings.map(toKey))
    return this.#found.splice(0).filter(warning => !known.has(toKey(warning)))
  }
}

function toKey({ code, path, message }: Warning): string {
  return JSON.stringify([code, path, message])
}

const LEVELS = ['debug', 'info', 'warn', 'error', 'silent']

export function isShownLevel(level: string, { settings }: Pick<Followed, 'settings'>): boolean {
  return LEVELS.indexOf(level) >= LEVELS.indexOf(settings.logLevel)
}

export function isShownRequest(path: string, { settings }: Pick<Followed, 'settings'>): boolean {
  return settings.accessLog && path !== QUIET_PATH
}

/** True for access lines of which each has to be looked at. */
export function mayHideOne(lines: Buffer): boolean {
  return lines.includes(QUIET_PATH)
}

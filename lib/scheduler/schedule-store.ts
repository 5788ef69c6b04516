/** What a schedule remembers over a restart, and who keeps it. Spec: page scheduler/schedule-store. */

import type { Warning } from '../core/errors.ts'

/** What is known of one schedule. Times are wall clock, ms. */
export interface ScheduleState {
  /** Text of the rule that `next` was made by. */
  rule: string
  /** When it is due; null when it never is. */
  next: number | null
  retryDue: number | null
  /** Number of the run that is due then. */
  retryAttempt: number | null
  last: number | null
  lastStatus: number | null
  lastError: string | null
  /** Every due time up to here has had its run. */
  doneUpTo: number | null
  /** Number of the run that goes on; null between runs. */
  running: number | null
}

/** null: the schedule is gone. */
export type KeptStates = ReadonlyMap<string, ScheduleState | null>

/** Whoever keeps schedules of a root is the one that runs them. */
export interface ScheduleStore {
  /** Called when another gateway has taken the right to run the schedules, after the state folder was deleted or moved. */
  onLost: (() => void) | null
  /**
   * Takes the right to run the schedules, and reads what was kept.
   * @returns who has that right, in words, instead of the states
   */
  open(): Promise<{ states: Map<string, ScheduleState>; warnings: Warning[] } | { heldBy: string }>
  /** What was kept, for a gateway that runs no schedules: takes no right and writes nothing. Never throws. */
  peek(): ReadonlyMap<string, ScheduleState>
  /** Keeps changes; they survive the end of the process when this resolves. @throws Error when they cannot be kept */
  save(changes: KeptStates): Promise<void>
  /** Writes everything anew, when there is anything new. @throws Error as `save` */
  flush(): Promise<void>
  close(): Promise<void>
}

/** Characters of an error that are kept. */
const MAX_ERROR_CHARS = 2000

/** The names and units of the state file. */
export function toStateRecord(state: ScheduleState): Record<string, unknown> {
  const seconds = (at: number | null): number | null => (at === null ? null : at / 1000)
  return {
    rule: state.rule,
    next: seconds(state.next),
    retry_due: seconds(state.retryDue),
    retry_attempt: state.retryAttempt,
    last: seconds(state.last),
    last_status: state.lastStatus,
    last_error: state.lastError?.slice(0, MAX_ERROR_CHARS) ?? null,
    done_up_to: seconds(state.doneUpTo),
    running: state.running,
  }
}

/** @returns null for what `toStateRecord` has not written */
export function toScheduleState(value: unknown): ScheduleState | null {
  const record = (value ?? {}) as Record<string, unknown>
  const { rule, last_error: lastError } = record
  const numbers = ['next', 'retry_due', 'retry_attempt', 'last', 'last_status', 'done_up_to', 'running']
  const isWhole = numbers.every(name => record[name] === null || Number.isFinite(record[name]))
  if (!isWhole || typeof rule !== 'string' || (lastError !== null && typeof lastError !== 'string')) return null
  const number = (name: string): number | null => record[name] as number | null
  const time = (name: string): number | null => (record[name] === null ? null : Math.round(number(name)! * 1000))
  return {
    rule,
    next: time('next'),
    retryDue: time('retry_due'),
    retryAttempt: number('retry_attempt'),
    last: time('last'),
    lastStatus: number('last_status'),
    lastError: lastError as string | null,
    doneUpTo: time('done_up_to'),
    running: number('running'),
  }
}

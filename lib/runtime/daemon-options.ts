/** What a daemon is started with, and what it tells. Owner: page runtime/daemon. */

import type { Clock } from '../core/clock.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { PeerTrust } from './dial.ts'

/** How to start a daemon process. */
export interface Launch {
  command: string
  args: readonly string[]
  /** The whole environment. */
  env: Readonly<Record<string, string>>
  cwd: string
  /** Steps of priority below this process. */
  nice: number
  /** Where it will listen: `unix:/path`. */
  uri: string
}

/** A worker that is asked for. */
export interface StartRequest {
  /** Of the function, given back with the worker's output. */
  key: string
  /** Full path of its entry file. */
  entry: string
  /** Path of its program, null for a function that is not compiled. */
  program: string | null
  /** User that its handler runs as, null for the daemon's. */
  uid: number | null
  /** False where another process connects to it: then it cannot be one that this process is connected to. */
  mayBeReady: boolean
  /**
   * JSON text of the `start` frame.
   * @param worker - one that waits and shall have the function; null: the daemon chooses
   */
  toHeader(worker: string | null): string
}

/** What happened to a daemon, for logs. */
export interface DaemonEvent {
  runtime: RuntimeName
  /** 0 where it is none of them alone. */
  index: number
  kind: 'up' | 'down' | 'output' | 'content' | 'quota'
  text: string
}

export interface DaemonOptions {
  runtime: RuntimeName
  /** From 1. */
  index: number
  clock: Clock
  /** Socket of a daemon that somebody else runs; then `launch` is not used. */
  externalUri: string | null
  /** What such a daemon has to prove. */
  trust: PeerTrust
  /** It may offer workers that wait for their function, to which a connection is opened ahead. Absent: it may not. */
  takesReady?: boolean
  /** @throws Error with a message for people, such as a missing program; asked again at every attempt */
  launch(): Launch
  /** Output of a worker outside any call, with the `key` its start was asked for. */
  onLog(key: string, stream: 'stdout' | 'stderr', text: string): void
  onEvent(event: DaemonEvent): void
  /** Such a daemon is up and says what lies in its functions folder. */
  onContent?(content: unknown, uri: string): void
}

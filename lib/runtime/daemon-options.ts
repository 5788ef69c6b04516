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
  /** Where it will listen: `unix:/path`. */
  uri: string
}

/** What happened to a daemon, for logs. */
export interface DaemonEvent {
  runtime: RuntimeName
  /** 0 where it is none of them alone. */
  index: number
  kind: 'up' | 'down' | 'output' | 'content'
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
  /** @throws Error with a message for people, such as a missing program; asked again at every attempt */
  launch(): Launch
  /** Output of a worker outside any call, with the `key` its start was asked for. */
  onLog(key: string, stream: 'stdout' | 'stderr', text: string): void
  onEvent(event: DaemonEvent): void
  /** Such a daemon is up and says what lies in its functions folder. */
  onContent?(content: unknown, uri: string): void
}

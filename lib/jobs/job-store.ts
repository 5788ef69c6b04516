/** Where jobs are kept: six methods, so that another place than this machine's disk can do the same. Spec: page jobs/file-store. */

import type { Readable } from 'node:stream'
import type { Warning } from '../core/errors.ts'
import type { Job, JobRequest } from './job.ts'

/** `request` is JSON and comes with the job; the others are bytes of any size. */
export type JobPart = 'request' | 'body' | 'result'

/** One step of a job, or its end. A new job comes with its request. */
export type JobChange = { job: Job; request?: JobRequest } | { gone: string }

/** Takes the bytes of a part one after the other. */
export interface PartWriter {
  /** Resolves when there is room for more. */
  write(bytes: Uint8Array): Promise<void>
  /** The part is whole: it is kept when this resolves, in the place of an older one. */
  end(): Promise<void>
  /** Nothing of it is kept. */
  discard(): Promise<void>
}

export interface JobStore {
  /**
   * Takes possession and tells every job that was kept, in the order of their creation.
   * @throws Error when nothing can be kept here now
   */
  open(): Promise<{ jobs: Job[]; warnings: Warning[] }>
  /** As `open`, to read alone, where nothing can be written. Takes no possession. @throws Error when nothing can be read */
  peek(): Promise<Job[]>
  /** Resolves when all of it is kept, whatever happens to the process or the machine; rejects when none is. */
  save(changes: readonly JobChange[]): Promise<void>
  /** null when there is none. */
  read(id: string, part: JobPart): Promise<Readable | null>
  write(id: string, part: 'body' | 'result'): Promise<PartWriter>
  /** Keeps what is being kept; nothing more is taken. */
  close(): Promise<void>
}

/** A whole part that is known to be small. */
export async function readWhole(part: Readable): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of part) pieces.push(piece as Buffer)
  return Buffer.concat(pieces)
}

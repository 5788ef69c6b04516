/** Jobs over a temporary folder with a function that the test plays. */

import type { Clock } from '../../lib/core/clock.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { RootLock } from '../../lib/files/root-lock.ts'
import type { InternalRequest, InternalResult } from '../../lib/invocation/internal-call.ts'
import type { CallbackSender } from '../../lib/jobs/callback-sender.ts'
import { FileStore } from '../../lib/jobs/file-store.ts'
import type { Job, JobRequest, JobStore } from '../../lib/jobs/job.ts'
import { Jobs, type JobsOptions } from '../../lib/jobs/jobs.ts'
import type { JobEventRecord } from '../../lib/observe/events.ts'
import { makeFn } from './fn.ts'

export function makeJob(fields: Partial<Job> = {}): Job {
  const seq = fields.seq ?? 1
  return {
    id: `job-1700000000000-${seq}-${seq.toString(16).padStart(12, '0')}`,
    seq,
    key: 'node/hello@default',
    state: 'queued',
    attempt: 0,
    attempts: [],
    retry: { maxAttempts: 1, delayMs: 1000, backoff: 1 },
    createdAt: 0,
    updatedAt: 0,
    dueAt: 0,
    finishedAt: null,
    resultStatus: null,
    lastError: null,
    result: null,
    callback: null,
    idempotency: null,
    ...fields,
  }
}

export function makeRequest(fields: Partial<JobRequest> = {}): JobRequest {
  return {
    runtime: 'node',
    name: 'hello',
    version: null,
    method: 'GET',
    routeTemplate: '/hello',
    path: '/hello',
    rawPath: '/hello',
    params: {},
    query: {},
    headers: {},
    context: null,
    body: null,
    hasBodyPart: false,
    callbackUrl: null,
    ...fields,
  }
}

/** An answer of a function that went through the sink of its request. */
export async function answer(
  request: InternalRequest,
  status: number,
  body: string | Buffer = '',
  headers: string[] = [],
): Promise<InternalResult> {
  request.sink?.begin(status, headers)
  if (body.length > 0) await request.sink?.write(Buffer.from(body))
  return toResult(status, null)
}

export function toResult(status: number, error: GatewayError | null): InternalResult {
  return {
    id: '',
    status,
    headers: [],
    body: Buffer.alloc(0),
    stdout: '',
    stderr: '',
    latencyMs: 1,
    queuedMs: 0,
    trace: '',
    error,
  }
}

/** Settles when the call is stopped, as a handler that never answers. */
export function untilStopped({ signal }: InternalRequest): Promise<InternalResult> {
  return new Promise(resolve => {
    const stop = () => resolve(toResult(0, new GatewayError('SHUTTING_DOWN', 'call canceled', { status: 0 })))
    if (signal?.aborted) stop()
    else signal?.addEventListener('abort', stop, { once: true })
  })
}

export function makeStore(root: string, clock: Clock = systemClock, outdatedBytes?: number): FileStore {
  return new FileStore({
    folder: new OwnFolder(root, '.svc', 'jobs'),
    lock: new RootLock(new OwnFolder(root, '.svc'), clock),
    now: () => clock.wall(),
    onProblem: () => {},
    ...(outdatedBytes !== undefined && { outdatedBytes }),
  })
}

export interface JobsBed {
  jobs: Jobs
  store: JobStore
  lock: RootLock
  events: JobEventRecord[]
  logs: string[]
  /** Resolves with the job's event that comes to one of the states. */
  reached: (id: string, ...states: string[]) => Promise<JobEventRecord>
}

interface BedOptions extends Partial<JobsOptions> {
  root: string
  functions?: FunctionVersion[]
}

export function makeJobs({ root, functions = [makeFn()], ...options }: BedOptions): JobsBed {
  const clock = options.clock ?? systemClock
  const lock = new RootLock(new OwnFolder(root, '.svc'), clock)
  const folder = new OwnFolder(root, '.svc', 'jobs')
  const store = options.store ?? new FileStore({ folder, lock, now: () => clock.wall(), onProblem: () => {} })
  const events: JobEventRecord[] = []
  const logs: string[] = []
  const waiting = new Set<{ id: string; states: string[]; resolve: (event: JobEventRecord) => void }>()
  const jobs = new Jobs({
    clock,
    enabled: true,
    maxConcurrency: 2,
    maxResultBytes: 0,
    hasStored: () => folder.isThere(),
    call: request => answer(request, 200, 'ok'),
    functionOf: key => functions.find(fn => fn.key === key) ?? null,
    admission: { canEnter: () => true, onceRoom: () => {} },
    find: (name, version) => {
      const fn = functions.find(one => one.name === name && one.version === version)
      if (fn === undefined) throw new GatewayError('NOT_FOUND', 'unknown function or version')
      return fn
    },
    routesOf: fn => [`/${fn.name}`],
    callbacks: { tell: () => {}, cancel: () => {}, close: async () => {} } as unknown as CallbackSender,
    onLog: (_level, message) => logs.push(message),
    ...options,
    store,
    onEvent: event => {
      events.push(event)
      options.onEvent?.(event)
      for (const one of waiting) {
        if (one.id !== event.id || !one.states.includes(event.state)) continue
        waiting.delete(one)
        one.resolve(event)
      }
    },
  })
  const reached = (id: string, ...states: string[]): Promise<JobEventRecord> => {
    const known = events.find(event => event.id === id && states.includes(event.state))
    if (known !== undefined) return Promise.resolve(known)
    return new Promise(resolve => waiting.add({ id, states, resolve }))
  }
  return { jobs, store, lock, events, logs, reached }
}

/** `/_fn/jobs`: creates, lists, reads, cancels and deletes jobs, and reads their results. Spec: page control/jobs-endpoints. */

import { GatewayError, toGatewayError } from '../core/errors.ts'
import type { Exchange } from '../http/exchange.ts'
import { type JobResult, toResultJson } from '../jobs/job-result.ts'
import { JOB_STATES, type JobState } from '../jobs/job.ts'
import type { Jobs } from '../jobs/jobs.ts'
import {
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  PacedWriter,
  READ,
  WRITE,
  readJson,
  readHeader,
} from './endpoint.ts'

/** Bytes of a request: a body of a function may be a part of it. */
const JOB_REQUEST_BYTES = 8 * 1024 * 1024
const LIST_LIMIT = { min: 1, max: 200, default: 50 } as const

export function createJobsEndpoints({ jobs }: ControlContext): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/_fn/jobs',
      access: READ,
      query: ['limit', 'cursor', 'state', 'fn'],
      handle: request => list(jobs, request),
    },
    { method: 'POST', path: '/_fn/jobs', access: WRITE, handle: request => create(jobs, request) },
    {
      method: 'GET',
      path: '/_fn/jobs/:id',
      access: READ,
      handle: async ({ params }) => ({ status: 200, body: await jobs.get(params.id!) }),
    },
    {
      method: 'DELETE',
      path: '/_fn/jobs/:id',
      access: WRITE,
      handle: async ({ params }) => {
        const { record, deleted } = await jobs.cancel(params.id!)
        return { status: 200, body: { ...record, deleted } }
      },
    },
    {
      method: 'GET',
      path: '/_fn/jobs/:id/input',
      access: READ,
      handle: async ({ params }) => ({ status: 200, body: await jobs.input(params.id!) }),
    },
    { method: 'POST', path: '/_fn/jobs/:id/retry', access: WRITE, handle: request => retry(jobs, request) },
    {
      method: 'GET',
      path: '/_fn/jobs/:id/result',
      access: READ,
      query: ['raw'],
      handle: request => readResult(jobs, request),
    },
  ]
}

async function list(jobs: Jobs, { query }: ControlRequest): Promise<ControlReply> {
  const cursor = query.integer('cursor', { min: 0, max: Number.MAX_SAFE_INTEGER, default: 0 })
  const state = query.oneOf<JobState | ''>('state', JOB_STATES, '')
  const { jobs: records, next } = await jobs.list({
    limit: query.integer('limit', LIST_LIMIT),
    before: cursor === 0 ? null : cursor,
    state: state === '' ? null : state,
    fn: query.text('fn'),
  })
  return { status: 200, body: { jobs: records, next_cursor: next === null ? null : String(next) } }
}

async function create(jobs: Jobs, request: ControlRequest): Promise<ControlReply> {
  const key = readHeader(request, 'idempotency-key')
  const { record, replayed } = await jobs.create(await readJson(request, JOB_REQUEST_BYTES), key)
  const headers = ['Location', `/_fn/jobs/${record.id}`]
  if (replayed) headers.push('Idempotency-Replayed', 'true')
  return { status: replayed ? 200 : 201, body: record, headers }
}

async function retry(jobs: Jobs, request: ControlRequest): Promise<ControlReply> {
  const record = await jobs.retry(request.params.id!, await readJson(request, JOB_REQUEST_BYTES))
  return { status: 201, body: record, headers: ['Location', `/_fn/jobs/${record.id}`] }
}

async function readResult(jobs: Jobs, { params, query }: ControlRequest): Promise<ControlReply> {
  const id = params.id!
  const isRaw = query.flag('raw')
  const { id: jobId, status, attempt, max_attempts, retry_delay_ms, result_bytes } = await jobs.get(id)
  if (status === 'queued' || status === 'running') {
    const facts = { attempt, max_attempts, retry_delay_ms }
    return { status: 202, body: { id: jobId, status, error: 'result not ready', ...facts } }
  }
  if (result_bytes === null) return { status: 404, body: { error: 'result not found', id: jobId, status } }
  // Opened when it is sent: a result that is not read would stay open.
  return { send: exchange => void sendResult(exchange, jobs, id, isRaw) }
}

async function sendResult(exchange: Exchange, jobs: Jobs, id: string, isRaw: boolean): Promise<void> {
  const { responder } = exchange
  try {
    const { result } = await jobs.result(id)
    if (result === null) throw new GatewayError('NOT_FOUND', 'result not found')
    // The body is not read, so that nothing below closes it.
    if (exchange.ended || exchange.method === 'HEAD') await result.body.return()
    if (exchange.ended) return
    if (isRaw) await sendRaw(exchange, result)
    else await sendPieces(exchange, ['Content-Type', 'application/json'], null, toResultJson(result))
  } catch (error) {
    responder.sendError(exchange, toGatewayError(error), ['Cache-Control', 'no-store'])
  }
}

/** The bytes alone, as something to be saved: shown as a page it would run in the origin of the control plane. */
function sendRaw(exchange: Exchange, result: JobResult): Promise<void> {
  const headers = ['Content-Type', 'application/octet-stream', 'X-Content-Type-Options', 'nosniff']
  headers.push('Content-Disposition', `attachment; filename="${result.id}"`, 'X-Job-Status', String(result.status))
  return sendPieces(exchange, headers, result.bytes, result.body)
}

/** Reads the pieces to their end, or returns from them when the client leaves. */
async function sendPieces(
  exchange: Exchange,
  headers: string[],
  length: number | null,
  pieces: AsyncGenerator<Buffer, void>,
): Promise<void> {
  const { responder } = exchange
  headers.push('Cache-Control', 'no-store')
  if (exchange.method === 'HEAD') {
    responder.send(exchange, 200, headers, null)
    return
  }
  responder.openStream(exchange, 200, headers, length)
  const writer = new PacedWriter(exchange)
  exchange.work = writer
  try {
    for await (const piece of pieces) {
      await writer.write(piece, false)
      if (writer.hasLeft) return
    }
    responder.closeStream(exchange, null)
  } catch (error) {
    // The connection is cut: the client must not take a part for the whole.
    responder.closeStream(exchange, toGatewayError(error))
  }
}

/** `/_fn/jobs`: creates, lists, reads, cancels and deletes jobs, and reads their results. Spec: page control/jobs-endpoints. */

import { boolean, integer, oneOf, string } from '../config/fields.ts'
import { GatewayError } from '../core/errors.ts'
import type { JobInput } from '../jobs/job-input.ts'
import { type JobResult, toResultJson } from '../jobs/job-result.ts'
import { JOB_STATES } from '../jobs/job.ts'
import type { JobsPart } from '../jobs/jobs.ts'
import {
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  endpoint,
  json,
  readHeader,
  readJson,
  sendPieces,
} from './endpoint.ts'

/** Bytes of a request: a body of a function may be a part of it. */
const JOB_REQUEST_BYTES = 8 * 1024 * 1024

/** `Jobs` checks every field. */
async function readInput(request: ControlRequest): Promise<JobInput> {
  return (await readJson(request, JOB_REQUEST_BYTES)) as unknown as JobInput
}

const LIST_QUERY = {
  limit: integer({ min: 1, max: 200 }),
  cursor: integer({ min: 0 }),
  state: oneOf(JOB_STATES),
  fn: string(),
}

export function createJobsEndpoints({ jobs }: ControlContext): readonly Endpoint[] {
  return [
    endpoint(
      'GET /_fn/jobs',
      'read',
      async ({ query: { limit = 50, cursor = 0, state = null, fn = null } }) => {
        const { jobs: records, next } = await jobs.list({ limit, before: cursor || null, state, fn })
        return json({ jobs: records, next_cursor: next === null ? null : String(next) })
      },
      LIST_QUERY,
    ),
    endpoint('POST /_fn/jobs', 'write', async request => {
      const key = readHeader(request, 'idempotency-key')
      const { record, replayed } = await jobs.create(await readInput(request), key)
      const location = ['Location', `/_fn/jobs/${record.id}`]
      return replayed ? json(record, 200, [...location, 'Idempotency-Replayed', 'true']) : json(record, 201, location)
    }),
    endpoint('GET /_fn/jobs/:id', 'read', async ({ params }) => json(await jobs.get(params.id!))),
    endpoint('DELETE /_fn/jobs/:id', 'write', async ({ params }) => {
      const { record, deleted } = await jobs.cancel(params.id!)
      return json({ ...record, deleted })
    }),
    endpoint('GET /_fn/jobs/:id/input', 'read', async ({ params }) => json(await jobs.input(params.id!))),
    endpoint('POST /_fn/jobs/:id/retry', 'write', async request => {
      const record = await jobs.retry(request.params.id!, await readInput(request))
      return json(record, 201, ['Location', `/_fn/jobs/${record.id}`])
    }),
    endpoint('GET /_fn/jobs/:id/result', 'read', request => readResult(jobs, request), { raw: boolean() }),
  ]
}

async function readResult(jobs: JobsPart, { params, query }: ControlRequest<{ raw?: boolean }>): Promise<ControlReply> {
  const { id, status, attempt, max_attempts, retry_delay_ms, result_bytes } = await jobs.get(params.id!)
  if (status === 'queued' || status === 'running')
    return json({ id, status, error: 'result not ready', attempt, max_attempts, retry_delay_ms }, 202)
  if (result_bytes === null) return json({ error: 'result not found', id, status }, 404)
  return {
    // Opened when it is sent: a result that is not read would stay open.
    send: async exchange => {
      const { result } = await jobs.result(id)
      if (result === null) throw new GatewayError('NOT_FOUND', 'result not found')
      if (query.raw === true) await sendPieces(exchange, toRawHeaders(result), result.body, result.bytes)
      else await sendPieces(exchange, ['Content-Type', 'application/json'], toResultJson(result))
    },
  }
}

/** The bytes alone, as something to be saved: shown as a page it would run in the origin of the control plane. */
function toRawHeaders({ id, status }: JobResult): string[] {
  const type = ['Content-Type', 'application/octet-stream', 'X-Content-Type-Options', 'nosniff']
  return [...type, 'Content-Disposition', `attachment; filename="${id}"`, 'X-Job-Status', String(status)]
}

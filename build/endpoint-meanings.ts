/** Every endpoint of `/_fn`, and what each does, for the reference. Owner: §4.2, page control/control-plane. */

import { resolveSettings } from '../lib/config/settings.ts'
import { createControlPlane } from '../lib/control/control-plane.ts'
import type { Endpoint } from '../lib/control/endpoint.ts'
import { systemClock } from '../lib/core/clock.ts'
import { Journal } from '../lib/observe/journal.ts'

/** Nothing is asked of them, so what they need does not matter. */
export function listEndpoints(): readonly Endpoint[] {
  const { settings } = resolveSettings({ options: { functionsRoot: '/r' }, cwd: '/' })
  const journal = new Journal({ clock: systemClock, functionsRoot: null, accessLog: false })
  const never = new Proxy({}, { get: () => () => undefined })
  const deps = new Proxy({ settings, clock: systemClock, journal } as Record<string, unknown>, {
    get: (known, name) => known[name as string] ?? never,
  })
  const { endpoints, close } = createControlPlane(deps as never)
  close()
  return endpoints
}

export interface EndpointMeaning {
  does: string
  /** What it expects in the body; absent without one. */
  body?: string
  /** The response on success. */
  response: string
}

const SWITCHES = 'JSON: some of `ui_enabled`, `api_enabled`, `write_enabled`, `local_only`, `login_api_enabled`, and `store`.'
const SNAPSHOT = 'The switches, `login_enabled`, `current_user` and, in a fleet, `gateway`: the id of the gateway whose switches they are.'
const CALL = '`method`, `runtime`, `version`, `query`, `headers`, `body` or `body_base64`, `context`, `route`, `params`'

/** Method and path to what it does. */
export const ENDPOINT_MEANINGS: Readonly<Record<string, EndpointMeaning>> = {
  'GET /_fn/health': {
    does: 'Reports the state of the gateway and of every runtime. `?ready=1` responds with 503 while it starts, while it stops and while an enabled runtime is down, `?live=1` with 200 as long as it runs.',
    response: 'The health record; callers with the token or from this machine also get paths and addresses.',
  },
  'GET /_fn/catalog': { does: 'Lists functions, routes and conflicts.', response: 'The catalog record.' },
  'GET /_fn/doctor': { does: 'Runs the checks of `fngw doctor`, without loading functions.', response: 'The checks, each with its result and fix.' },
  'GET /_fn/fleet': { does: 'Lists the gateways that share a store.', response: 'The gateways and the state of the store.' },
  'POST /_fn/reload': { does: 'Reads the functions folder again.', response: '200 when the new routes are in force.' },
  'GET /_fn/reload': { does: 'The same, for tools that can only send GET.', response: '200 when the new routes are in force.' },
  'GET /_fn/packs': { does: 'Lists the shared packs of dependencies.', response: 'The packs.' },
  'GET /_fn/function': {
    does: 'Describes a function: files, policy and where each value comes from, routes, warnings.',
    response: 'The record, `code` and `etag`.',
  },
  'POST /_fn/function': {
    does: 'Creates a function. `name` and `runtime` are required.',
    body: 'JSON, all optional: `filename`, `methods`, `summary`, `query_example`, `body_example`, `route` or `routes`, `code`.',
    response: '201 and the record. The next request finds the function.',
  },
  'DELETE /_fn/function': { does: 'Deletes a function.', response: '`ok`, `runtime`, `name`, `version`.' },
  'GET /_fn/function-config': {
    does: 'Reads `fn.config.json` of a function.',
    response: 'The record, `config` (null without a file), `shared_with`, `etag`.',
  },
  'PUT /_fn/function-config': {
    does: 'Changes fields of `fn.config.json`; null removes a field. `If-Match` with the `ETag` prevents lost updates.',
    body: 'JSON: [fields of fn.config.json](function-config.md).',
    response: 'As for GET, with `warnings`.',
  },
  'GET /_fn/function-env': {
    does: 'Reads `fn.env.json` of a function. Secrets are shown as `<hidden>`.',
    response: 'The record, the environment, `etag`.',
  },
  'PUT /_fn/function-env': {
    does: 'Changes entries of `fn.env.json`; null removes one, `<hidden>` leaves a secret as it is.',
    body: 'JSON: names to values, or to `value` and `is_secret`.',
    response: 'As for GET.',
  },
  'PUT /_fn/function-code': { does: 'Replaces the handler file.', body: 'JSON: `code`.', response: 'The record, `code` and `etag`.' },
  'POST /_fn/invoke': {
    does: 'Calls a function by name, with its limits. `Accept: application/x-ndjson` streams the response.',
    body: `JSON: \`name\` and \`method\`; optional ${CALL.replace('`method`, ', '')}.`,
    response: '200 with `status`, `headers`, `body`, `stdout`, `stderr`, `timing` and `request_id`, whatever the status of the function.',
  },
  'GET /_fn/explain': { does: 'Explains which function serves a URL.', response: 'The winner, the losers and what is ignored.' },
  'GET /_fn/jobs': { does: 'Lists jobs, newest first.', response: '`jobs` and `next_cursor` (null at the end).' },
  'POST /_fn/jobs': {
    does: 'Creates a job. The header `Idempotency-Key` makes a repeated request return the first job.',
    body: `JSON: \`name\`; optional ${CALL}, and the fields of a [job](../jobs.md).`,
    response: '201 with the job and `Location`; 200 for a known key.',
  },
  'GET /_fn/jobs/:id': { does: 'Reads a job.', response: 'The job.' },
  'DELETE /_fn/jobs/:id': { does: 'Cancels a job, or deletes a finished one.', response: 'The job with `deleted`.' },
  'GET /_fn/jobs/:id/input': { does: 'Reads the input of a job.', response: 'The fields that the job was created with.' },
  'POST /_fn/jobs/:id/retry': {
    does: 'Runs a finished job again, as a new job.',
    body: 'JSON: fields to change; `{}` for none.',
    response: '201 with the new job; 409 while the job has not finished.',
  },
  'GET /_fn/jobs/:id/result': {
    does: 'Reads the result of a job. `raw=1` sends only its body.',
    response: '200 with `status`, `headers` and `body` or `body_base64`; 202 while there is none yet.',
  },
  'GET /_fn/schedules': { does: 'Lists schedules with their last and next runs.', response: '`schedules` and `keep_warm`.' },
  'GET /_fn/schedules/next': { does: 'Computes the next runs of a schedule.', response: '`timezone` and `next`.' },
  'POST /_fn/schedules/run': {
    does: 'Runs a schedule now.',
    body: 'JSON: `name`; optional `runtime`, `version`.',
    response: '`status`, `error`, `latency_ms`, when the run has ended.',
  },
  'GET /_fn/events': {
    does: 'Streams what happens as server-sent events. `events` selects kinds by name; `Last-Event-ID` resumes.',
    response: '`text/event-stream`.',
  },
  'GET /_fn/logs': { does: 'Reads or follows (`follow=1`) the logs.', response: 'Text, or JSON with `format=json`.' },
  'GET /_fn/metrics': {
    does: 'Metrics for Prometheus, or with `format=json` the history of the console. With `scope=fleet` it is the sum of the gateways of a fleet.',
    response: 'Prometheus text, or JSON.',
  },
  'POST /_fn/login': {
    does: 'Starts a session.',
    body: 'JSON: `username` and `password`, or `token`.',
    response: '`user` and a cookie.',
  },
  'POST /_fn/logout': { does: 'Ends the session; `everywhere=1` ends all sessions of the user.', response: '`ok`.' },
  'GET /_fn/ui-state': { does: 'Reads the switches of console and API.', response: SNAPSHOT },
  'POST /_fn/ui-state': { does: 'Changes switches of this gateway until it stops, and replaces `store`.', body: SWITCHES, response: SNAPSHOT },
  'PUT /_fn/ui-state': { does: 'The same as POST.', body: SWITCHES, response: SNAPSHOT },
  'PATCH /_fn/ui-state': { does: 'The same, but merges `store`.', body: SWITCHES, response: SNAPSHOT },
  'DELETE /_fn/ui-state': { does: 'Resets the switches to the settings and empties `store`.', response: SNAPSHOT },
  'GET /_fn/settings': { does: 'Lists the settings in force and where each value comes from.', response: 'The settings; secrets are masked.' },
  'GET /_fn/dependencies': { does: 'Lists the packages of every function and their state.', response: 'The packages.' },
  'GET /_fn/workers': { does: 'Lists workers and processes with their load.', response: 'The workers.' },
}

import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { DebugHeaders } from '../../lib/http/http-call.ts'
import { makeFn } from '../helpers/fn.ts'

type Call = Parameters<DebugHeaders['of']>[0]

const POOL = {
  enabled: true,
  minWarm: 0,
  maxWorkers: 4,
  maxQueue: 2,
  queueTimeoutMs: 0,
  queuePollMs: 20,
  idleTtlSeconds: 300,
  overflowStatus: 503 as const,
}

const toRecord = (list: string[]): Record<string, string> =>
  Object.fromEntries(list.flatMap((name, i) => (i % 2 === 0 ? [[name, list[i + 1]!]] : [])))

function headersOf(fields: Partial<Call> = {}, socketIndex: number | null = 1, cold = false): Record<string, string> {
  const debug = new DebugHeaders(() => ({ routing: 'round_robin', socketIndex, cold }))
  const call = { fn: makeFn(), id: 'id-1', stdout: '', stderr: '', loadError: null, ...fields } as Call
  return toRecord(debug.of(call, 12.345))
}

t.test('[http/public.24] what a call is told about itself', async t => {
  const fn = makeFn({ name: 'a/b', version: 'v2', runtime: 'python', policy: { workerPool: POOL } })
  t.same(headersOf({ fn }, 3, true), {
    'X-Fn-Runtime': 'python',
    'X-Fn-Function': 'a/b',
    'X-Fn-Version': 'v2',
    'X-Fn-Worker-Pool-Max-Workers': '4',
    'X-Fn-Worker-Pool-Max-Queue': '2',
    'X-Fn-Request-Id': 'id-1',
    'X-Fn-Runtime-Routing': 'round_robin',
    'X-Fn-Latency-Ms': '12.3',
    'X-Fn-Function-State': 'cold',
    'X-Fn-Runtime-Socket-Index': '3',
  })
  const loadError = new GatewayError('LOAD_FAILED', 'invalid \u00fc syntax', { detail: { file: 'a.py', line: 3 } })
  t.equal(headersOf({ loadError })['X-Fn-Function-State'], 'stale', 'served by the previous version')
  const ofError = (production: boolean) =>
    new DebugHeaders(() => ({ routing: 'single', socketIndex: 1, cold: false }), production).ofLoadError(fn, loadError)
  t.same(ofError(false), ['X-Fn-Load-Error', 'a.py:3: invalid ? syntax'])
  t.same(ofError(true), [])
  const plain = headersOf({}, null)
  t.match(plain, { 'X-Fn-Version': 'default', 'X-Fn-Function-State': 'warm' })
  t.notOk('X-Fn-Runtime-Socket-Index' in plain, 'a call that reached no worker')
})

t.test('[http/public.24] the fixed part follows the version that a reload brings', async t => {
  const debug = new DebugHeaders(() => ({ routing: 'single', socketIndex: 1, cold: false }))
  const of = (maxWorkers: number) => {
    const fn = makeFn({ policy: { workerPool: { ...POOL, maxWorkers } } })
    const call = { fn, id: 'x', stdout: '', stderr: '', loadError: null } as unknown as Call
    return [debug.of(call, 0), debug.of(call, 0)].map(list => toRecord(list)['X-Fn-Worker-Pool-Max-Workers'])
  }
  t.same(of(4), ['4', '4'])
  t.same(of(5), ['5', '5'])
})

t.test('[http/public.25] previews are one line that a header can carry', async t => {
  for (const [text, preview] of [
    ['one', 'one'],
    ['one\r\n two\t\tthree\n\n', 'one two three'],
    ['\u001b[31mred', '?[31mred'],
    ['caf\u00e9 \u{1f600}', 'caf? ??'],
    ['a\0b', 'a?b'],
    ['x'.repeat(1024), 'x'.repeat(1024)],
    [`${'x'.repeat(1024)}\n\n`, 'x'.repeat(1024)],
    ['x'.repeat(1025), `${'x'.repeat(1021)}...`],
    ['x'.repeat(1_000_000), `${'x'.repeat(1021)}...`],
  ] as const) {
    t.equal(headersOf({ stdout: text })['X-Fn-Stdout'], preview)
    t.equal(headersOf({ stderr: text })['X-Fn-Stderr'], preview)
  }
  const silent = headersOf()
  t.notOk('X-Fn-Stdout' in silent || 'X-Fn-Stderr' in silent)
})

import t from 'tap'
import { createLineFilter, toOriginText } from '../../lib/observe/log-line.ts'

const FN = { runtime: 'node', fn: 'users/[id]', version: 'default' }
const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736'

t.test('[observe/log-store.4, observe/log-store.18] where a line comes from stands before its text', async t => {
  t.equal(toOriginText({}), '')
  t.equal(toOriginText(FN), '[node] [fn:users/[id]@default] ')
  t.equal(
    toOriginText({ ...FN, stream: 'stdout', requestId: 'r-1', traceId: TRACE_ID }),
    `req=r-1 trace=${TRACE_ID} [node] [fn:users/[id]@default stdout] `,
  )
  t.equal(toOriginText({ requestId: 'r-1' }), 'req=r-1 ')
})

t.test('[observe/log-store.4] lines are chosen by where they come from, never by their text', async t => {
  const runtime = (text: string) =>
    `2026-11-22T00:00:00.000Z ${toOriginText({ ...FN, stream: 'stderr', requestId: 'r' })}${text}`
  const forged = '2026-11-22T00:00:00.000Z [python] [fn:other@v2 stdout] x'
  const isWanted = (file: 'error' | 'access' | 'runtime', filter: object, line: string) =>
    createLineFilter(file, filter)!(line)
  t.equal(createLineFilter('runtime', {}), null)
  t.equal(createLineFilter('runtime', { fn: null, runtime: null, version: null, stream: null }), null)
  for (const filter of [
    { fn: 'users/[id]' },
    { runtime: 'node' },
    { version: 'default' },
    { stream: 'stderr' },
    { fn: 'users/[id]', runtime: 'node', version: 'default', stream: 'stderr' },
  ])
    t.ok(isWanted('runtime', filter, runtime(forged)), JSON.stringify(filter))
  for (const filter of [
    { fn: 'users' },
    { fn: 'other' },
    { runtime: 'python' },
    { version: 'v2' },
    { stream: 'stdout' },
    { fn: 'users/[id]', stream: 'stdout' },
  ])
    t.notOk(isWanted('runtime', filter, runtime(forged)), JSON.stringify(filter))
  const failure = `2026-11-22T00:00:00.000Z error ${toOriginText({ ...FN, requestId: 'r' })}GET /users/1: boom`
  t.ok(isWanted('error', { fn: 'users/[id]' }, failure))
  t.notOk(isWanted('error', { fn: 'other' }, failure))
  t.notOk(isWanted('error', { fn: 'other' }, '2026-11-22T00:00:00.000Z warn X says [node] [fn:other@default] it'))
  t.notOk(isWanted('runtime', { fn: 'other' }, 'cut by the disk'))
  const access = JSON.stringify({ msg: 'request', path: '/"fn":"x"', fn: 'a', version: 'v2', runtime: 'lua' })
  t.ok(isWanted('access', { fn: 'a', version: 'v2', runtime: 'lua' }, access))
  t.notOk(isWanted('access', { fn: 'x' }, access))
  t.notOk(isWanted('access', { fn: 'a' }, access.slice(0, -3)), 'a line that was cut')
  t.notOk(isWanted('access', { fn: 'a' }, '7'))
})

import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { AcceptorDoorDeps } from '../../lib/processes/call-relay.ts'
import { AcceptorProcess, type AcceptorProcessOptions } from '../../lib/processes/acceptor-process.ts'
import type { AdoptMessage, FromAcceptor } from '../../lib/processes/link.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

const TREE = { kind: 'adopt', generation: 2, discovery: {} } as unknown as AdoptMessage

interface Bed {
  front: AcceptorProcess
  clock: FakeClock
  messages: FromAcceptor[]
  serving: Promise<void>
  ended: Promise<string | null>
}

/** @param program - what the front does, with `post` and `on` at hand */
function startFront(t: Test, program: string): Bed {
  const { root, cleanup } = makeTree({
    'front.mjs': `
      const post = message => process.send(message)
      const on = (kind, act) => process.on('message', message => message.kind === kind && act(message))
      process.on('disconnect', () => process.exit())
      ${program}`,
  })
  t.teardown(cleanup)
  const clock = new FakeClock()
  const messages: FromAcceptor[] = []
  let serve: () => void = () => {}
  let end: (reason: string | null) => void = () => {}
  const serving = new Promise<void>(resolve => {
    serve = resolve
  })
  const ended = new Promise<string | null>(resolve => {
    end = resolve
  })
  const front = new AcceptorProcess({
    clock,
    entry: join(root, 'front.mjs'),
    sockets: [],
    begin: {} as AcceptorProcessOptions['begin'],
    door: {} as AcceptorDoorDeps,
    onLines: () => {},
    onMessage: message => {
      if (message.kind === 'warning' && message.warning.message === undefined)
        throw new Error('a warning without a text')
      if (message.kind === 'serving') serve()
      else if (message.kind !== 'adopted') messages.push(message)
    },
    onEnd: end,
  })
  t.teardown(() => front.kill())
  return { front, clock, messages, serving, ended }
}

t.test(
  '[processes/processes.2] a tree is in force when the front says so; one that is stuck is killed, and the reload goes on',
  async t => {
    const good = startFront(
      t,
      `on('begin', () => post({ kind: 'serving', generation: 1 })); on('adopt', ({ generation }) => post({ kind: 'adopted', generation }))`,
    )
    await good.serving
    t.ok(good.front.isServing)
    await good.front.adopt(TREE)
    const stuck = startFront(t, `on('begin', () => post({ kind: 'serving', generation: 1 }))`)
    await stuck.serving
    const adopting = stuck.front.adopt(TREE)
    stuck.clock.advance(10_000)
    await adopting
    t.equal(await stuck.ended, 'ended by SIGKILL')
    t.notOk(stuck.front.isServing)
    await stuck.front.adopt(TREE)
    await stuck.front.count()
  },
)

t.test('[processes/processes.6] what it has counted is told when it is asked', async t => {
  const { front, messages, serving } = startFront(
    t,
    `on('begin', () => post({ kind: 'serving', generation: 1 })); on('count', ({ id }) => post({ kind: 'counts', id, counts: { requests: [1, 2], durations: new Float64Array(2), functions: [] }, edge: null }))`,
  )
  await front.count()
  t.same(messages, [], 'nothing before it serves')
  await serving
  await front.count()
  t.match(messages, [{ kind: 'counts', counts: { requests: [1, 2], durations: new Float64Array(2) } }])
})

t.test('[processes/processes.3] the last line of a front that fails is the reason', async t => {
  const { ended } = startFront(
    t,
    `on('begin', () => { process.stderr.write('first\\nthe reason\\n    at x\\n', () => process.exit(7)) })`,
  )
  t.equal(await ended, 'exited with code 7: the reason')
})

t.test('[processes/processes.13] a front closes when it is asked to, or is killed a second after its time', async t => {
  const good = startFront(
    t,
    `on('close', ({ timeoutMs }) => { post({ kind: 'log', level: 'info', message: String(timeoutMs) }); process.disconnect() })`,
  )
  await good.front.close(1234)
  t.match(good.messages, [{ message: '1234' }])
  t.equal(await good.ended, null, 'it was asked to')
  await good.front.close(1)
  const deaf = startFront(t, `on('begin', () => post({ kind: 'serving', generation: 1 }))`)
  await deaf.serving
  const closing = deaf.front.close(100)
  deaf.clock.advance(1100)
  await closing
  t.equal(await deaf.ended, null)
})

t.test(
  '[processes/processes.6, processes/processes.13] a front that closes is heard to its end: its line may end before',
  async t => {
    const { front, messages, serving, ended } = startFront(
      t,
      `const { Socket } = await import('node:net'); const line = new Socket({ fd: 4 })
     on('begin', () => post({ kind: 'serving', generation: 1 }))
     on('close', () => line.end())
     line.resume().on('close', () => { post({ kind: 'log', level: 'info', message: 'last' }); process.disconnect() })`,
    )
    await serving
    await front.close(1000)
    t.equal(await ended, null)
    t.match(messages, [{ message: 'last' }])
  },
)

t.test('[processes/processes.10] a front that breaks the protocol is ended', async t => {
  const { ended, serving } = startFront(
    t,
    `const { Socket } = await import('node:net'); const line = new Socket({ fd: 4 }); line.on('error', () => {})
     on('begin', () => { post({ kind: 'serving', generation: 1 }); line.write('GET / HTTP/1.1\\r\\n\\r\\n') })`,
  )
  await serving
  t.match(await ended, /^ended by SIGKILL/)
})

t.test(
  '[processes/processes.10] a front whose messages cannot be understood is ended, the first process goes on',
  async t => {
    const { ended, messages } = startFront(
      t,
      `on('begin', () => { post({ kind: 'warning', warning: {} }); post({ kind: 'log', level: 'info', message: 'next' }) })`,
    )
    t.equal(await ended, 'ended by SIGKILL: a warning without a text')
    t.ok(messages.every(({ kind }) => kind === 'log'))
  },
)

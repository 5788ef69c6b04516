import t from 'tap'
import {
  type EndReason,
  EventFeed,
  HEARTBEAT_MS,
  KEPT_AFTER_MS,
  KEPT_BYTES,
  MAX_FOLLOW_MS,
  MAX_FOLLOWERS,
  MAX_WAITING_BYTES,
} from '../../lib/observe/event-feed.ts'
import {
  type BuildRecord,
  EVENT_NAMES,
  type EventName,
  GatewayEvents,
  type LogRecord,
} from '../../lib/observe/events.ts'
import { FakeClock } from '../helpers/clock.ts'

/** What happens in one turn of the loop goes out in the next. */
const turn = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

function setUp(builds: BuildRecord[] = []) {
  const clock = new FakeClock()
  const events = new GatewayEvents((_name, error) => t.fail(String(error)))
  const feed = new EventFeed({ clock, events, builds: () => builds, id: 'a1' })
  const follow = (names: EventName[], lastId: string | null = null) => {
    const seen = { text: '', writes: 0, isOpen: true, ended: null as EndReason | null }
    const following = feed.follow(new Set(names), lastId, {
      write: bytes => {
        seen.text += String(bytes)
        seen.writes += 1
        return seen.isOpen
      },
      end: reason => {
        seen.ended = reason
      },
    })
    return { seen, following: following! }
  }
  const log = (message: string): void => events.emit('log', { time: 1, level: 'info', message })
  const reload = (): void =>
    events.emit('reload', { time: 1, cause: 'api', functions: 1, routes: 1, warnings: 0, durationMs: 1 })
  const isListening = (): EventName[] => EVENT_NAMES.filter(name => events.has(name))
  return { clock, events, feed, follow, log, reload, isListening }
}

/** Events of a stream: names and ids in order, and their data. */
function parse(text: string) {
  return text
    .split('\n\n')
    .filter(block => block.includes('data: '))
    .map(block => ({
      name: /^event: (.*)$/m.exec(block)?.[1],
      id: /^id: (.*)$/m.exec(block)?.[1],
      data: JSON.parse(/^data: (.*)$/m.exec(block)?.[1] ?? 'null'),
    }))
}

t.test(
  '[observe/event-feed.1, observe/event-feed.2] events of the names that were asked for, as server-sent events',
  async t => {
    const { follow, log, reload } = setUp()
    const all = follow(['log', 'reload'])
    const logs = follow(['log'])
    log('one\ntwo \u202e')
    reload()
    await turn()
    t.equal(
      logs.seen.text,
      'retry: 2000\nid: a1-0\n\n' +
        'id: a1-1\nevent: log\ndata: {"time":1,"level":"info","message":"one\\ntwo \\u202e"}\n\n',
    )
    t.same(
      parse(all.seen.text).map(({ name, id }) => [name, id]),
      [
        ['log', 'a1-1'],
        ['reload', 'a1-2'],
      ],
    )
    t.equal(all.seen.writes, 1, 'what happens in one turn goes out in one write')
    all.following.stop()
    log('three')
    await turn()
    t.notMatch(all.seen.text, 'three')
    t.match(logs.seen.text, 'three')
  },
)

t.test(
  '[observe/event-feed.3] nothing is listened to before the first follower and a while after the last',
  async t => {
    const { clock, follow, isListening } = setUp()
    t.same(isListening(), [])
    const logs = follow(['log'])
    const requests = follow(['request', 'log'])
    t.same(isListening(), ['request', 'log'])
    requests.following.stop()
    clock.advance(KEPT_AFTER_MS)
    t.same(isListening(), ['log'], 'what one of them wanted goes when that one is gone')
    logs.following.stop()
    clock.advance(KEPT_AFTER_MS - 1)
    t.same(isListening(), ['log'])
    clock.advance(1)
    t.same(isListening(), [])
    t.equal(clock.pending, 0)
  },
)

t.test('[observe/event-feed.4] who comes back gets what it missed, or is told that it cannot', async t => {
  const { clock, follow, log, reload } = setUp()
  const first = follow(['log', 'reload'])
  log('one')
  first.following.stop()
  clock.advance(KEPT_AFTER_MS - 1)
  log('two')
  reload()
  const back = follow(['log'], 'a1-1')
  await turn()
  t.match(parse(back.seen.text), [{ name: 'log', id: 'a1-2', data: { message: 'two' } }])
  t.equal(parse(back.seen.text).length, 1)
  const upToDate = follow(['log'], 'a1-3')
  await turn()
  t.same(parse(upToDate.seen.text), [])
  const cases: [lastId: string, names: EventName[]][] = [
    ['b2-1', ['log']],
    ['a1-9', ['log']],
    ['a1-1', ['log', 'warning']],
    ['nonsense', ['log']],
    ['', ['log']],
    ['a1--1', ['log']],
  ]
  for (const [lastId, names] of cases) {
    const { seen, following } = follow(names, lastId)
    await turn()
    t.match(parse(seen.text), [{ name: 'gap', data: { last_event_id: lastId } }], lastId)
    following.stop()
  }
  for (let i = 0; i < 300; i++) log('x'.repeat(1024))
  const late = follow(['log'], 'a1-1')
  await turn()
  t.match(parse(late.seen.text), [{ name: 'gap' }], 'what is older than the newest KEPT_BYTES is gone')
  const recent = follow(['log'], 'a1-300')
  await turn()
  t.equal(parse(recent.seen.text).length, 3)
  t.ok(300 * 1024 > KEPT_BYTES)
})

t.test('[observe/event-feed.5] a slow follower waits within its limit, and is dropped beyond it', async t => {
  const { follow, log } = setUp()
  const slow = follow(['log'])
  const quick = follow(['log'])
  slow.seen.isOpen = false
  log('first')
  await turn()
  const before = slow.seen.text
  log('second')
  await turn()
  t.equal(slow.seen.text, before, 'nothing is written to one that asked for a pause')
  slow.seen.isOpen = true
  slow.following.resume()
  t.match(slow.seen.text, 'second')
  slow.seen.isOpen = false
  for (let i = 0; i * 1024 < MAX_WAITING_BYTES + 64 * 1024; i++) {
    log('x'.repeat(1024))
    if (i % 100 === 0) await turn()
  }
  await turn()
  t.equal(slow.seen.ended, 'slow')
  t.equal(quick.seen.ended, null)
  log('last')
  await turn()
  t.match(quick.seen.text, 'last')
})

t.test('[observe/event-feed.5] the end of a slow follower comes after the event that was too much', async t => {
  const { events, feed, follow } = setUp()
  const log = (message: string): void => events.emit('log', { time: 1, level: 'info', message })
  feed.follow(new Set(['log']), null, { write: () => false, end: () => log('somebody was dropped') })
  await turn()
  // One turn without a write for the other one would be too much for it as well.
  const other = follow(['log'])
  for (let i = 0; i < 600; i++) {
    log(`${i} ${'x'.repeat(1024)}`)
    await turn()
  }
  const messages = parse(other.seen.text).map(({ data }) => (data as LogRecord).message.slice(0, 8))
  const dropped = messages.indexOf('somebody')
  t.ok(dropped > 0)
  t.equal(Number.parseInt(messages[dropped - 1]!, 10) + 1, Number.parseInt(messages[dropped + 1]!, 10))
})

t.test('[observe/event-feed.6] signs of life, and an end after a while', async t => {
  const { clock, follow } = setUp()
  const { seen } = follow(['log'])
  clock.advance(HEARTBEAT_MS)
  await turn()
  t.match(seen.text, /\n\n:\n\n$/)
  for (let ms = HEARTBEAT_MS; ms < MAX_FOLLOW_MS; ms += HEARTBEAT_MS) {
    t.equal(seen.ended, null)
    clock.advance(HEARTBEAT_MS)
  }
  t.equal(seen.ended, 'renew')
})

t.test('[observe/event-feed.7] with one follower too many the oldest ends; a stop ends all', async t => {
  const { clock, feed, follow, isListening } = setUp()
  const followers = Array.from({ length: MAX_FOLLOWERS }, () => follow(['log']))
  const sink = { write: () => true, end: () => {} }
  t.not(feed.follow(new Set(['log']), null, sink), null)
  t.same([followers[0]!.seen.ended, followers[1]!.seen.ended], ['renew', null])
  feed.close()
  t.same(
    followers.slice(1).map(({ seen }) => seen.ended),
    Array.from({ length: MAX_FOLLOWERS - 1 }, () => 'closed'),
  )
  t.equal(feed.follow(new Set(['log']), null, sink), null)
  t.same(isListening(), [])
  t.equal(clock.pending, 0)
})

t.test('[observe/event-feed.8] a new follower hears of builds that go on', async t => {
  const build: BuildRecord = {
    time: 1,
    action: 'building',
    state: 'began',
    key: 'go/a@default',
    runtime: 'go',
    fn: 'a',
    version: 'default',
  }
  const { follow } = setUp([build])
  const { seen } = follow(['build', 'log'])
  const other = follow(['log'])
  await turn()
  t.match(parse(seen.text), [{ name: 'build', id: undefined, data: build }])
  t.same(parse(other.seen.text), [])
})

t.test('[observe/event-feed.2] the texts of an event that is too large are cut', async t => {
  const { follow, events } = setUp()
  const { seen } = follow(['log'])
  const detail = { stack: '\u0001'.repeat(100_000), hint: 'y'.repeat(10_000) }
  events.emit('log', { time: 1, level: 'error', message: '\u{1f600}'.repeat(40_000), detail })
  await turn()
  t.match(parse(seen.text)[0]?.data.message, /\.\.\. \(cut\)$/)
  t.ok(Buffer.byteLength(seen.text) < 70 * 1024)
})

import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import t, { type Test } from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { RootLock } from '../../lib/files/root-lock.ts'
import {
  FileScheduleStore,
  type ScheduleState,
  toScheduleState,
  toStateRecord,
} from '../../lib/scheduler/schedule-store.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

const STATE: ScheduleState = {
  rule: 'every 60 UTC',
  next: 1_700_000_040_000,
  retryDue: null,
  retryAttempt: null,
  last: 1_700_000_000_250,
  lastStatus: 503,
  lastError: 'runtime down "x"\n',
  doneUpTo: 1_699_999_980_001,
  running: null,
  runningDue: null,
}

function makeRoot(t: Test, entries: Record<string, TreeEntry> = {}): Tree {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  return tree
}

/** A store of a gateway of its own: another lock, as another process has. */
function makeStore(t: Test, tree: Tree, more: { path?: string; persists?: boolean; maxLogBytes?: number } = {}) {
  const folder = new OwnFolder(tree.root, '.svc')
  const lock = new RootLock(folder, systemClock)
  t.teardown(() => lock.release())
  const { path = null, persists = true, maxLogBytes = 1e6 } = more
  const store = new FileScheduleStore({ folder, lock, path, persists, maxLogBytes, now: () => 42 })
  t.teardown(() => store.close())
  return Object.assign(store, { lock })
}

async function read(t: Test, tree: Tree, more: Parameters<typeof makeStore>[2] = {}) {
  const store = makeStore(t, tree, more)
  const opened = await store.open()
  if ('heldBy' in opened) throw new Error(opened.heldBy)
  await store.close()
  store.lock.release()
  return opened
}

t.test(
  '[scheduler/schedule-store.7] a state folder that is deleted is written again; one that another gateway has is left',
  async t => {
    const tree = makeRoot(t)
    const store = makeStore(t, tree)
    let losses = 0
    store.onLost = () => losses++
    await store.open()
    await store.save(new Map([['a', STATE]]))
    tree.remove('.svc')
    t.equal(store.lock.check(), null)
    await store.save(new Map([['b', STATE]]))
    t.same([...(await makeStore(t, tree).peek()).keys()], ['a', 'b'])
    tree.remove('.svc')
    const other = makeStore(t, tree)
    await other.open()
    await other.save(new Map([['c', STATE]]))
    t.match(store.lock.check(), { pid: process.pid })
    while (losses === 0) await new Promise(resolve => setImmediate(resolve))
    await store.save(new Map([['d', STATE]]))
    t.same([...(await makeStore(t, tree).peek()).keys()], ['c'])
    t.match(await store.open(), { heldBy: /^process/ })
  },
)

t.test('[scheduler/schedule.14] what was kept is read without taking anything', async t => {
  const tree = makeRoot(t)
  const first = makeStore(t, tree)
  await first.open()
  await first.save(new Map([['node/a@default', STATE]]))
  const before = readdirSync(tree.path('.svc'))
  t.same([...(await makeStore(t, tree).peek())], [['node/a@default', STATE]], 'beside the gateway that runs them')
  t.same([...(await makeStore(t, tree, { persists: false }).peek())], [])
  await first.close()
  writeFileSync(tree.path('.svc/scheduler-state.json'), '{')
  t.same([...(await makeStore(t, tree).peek())], [])
  t.same(readdirSync(tree.path('.svc')), before, 'a file that cannot be used stays')
  const empty = makeRoot(t)
  t.same([...(await makeStore(t, empty).peek())], [])
  t.notOk(existsSync(empty.path('.svc')))
})

t.test('[scheduler/schedule-store.1] a state as a record and back', async t => {
  t.same(toScheduleState(JSON.parse(JSON.stringify(toStateRecord(STATE)))), STATE)
  const pending = {
    ...STATE,
    retryDue: 1,
    retryAttempt: 2,
    running: 3,
    runningDue: 1,
    next: null,
    lastError: null,
    lastStatus: null,
  }
  t.same(toScheduleState(JSON.parse(JSON.stringify(toStateRecord(pending)))), pending)
  t.equal(toScheduleState(toStateRecord({ ...STATE, lastError: 'x'.repeat(9000) }))!.lastError!.length, 2000)
  const { running_due, ...record } = toStateRecord(STATE)
  t.same(toScheduleState(record), STATE, 'of an earlier version')
  for (const wrong of [
    null,
    5,
    [],
    {},
    { ...record, next: '5' },
    { ...record, rule: 1 },
    { ...record, last_error: {} },
  ])
    t.equal(toScheduleState(wrong), null, JSON.stringify(wrong))
})

t.test('[scheduler/schedule-store.1, scheduler/schedule-store.2] what was saved is there, flushed or not', async t => {
  const tree = makeRoot(t)
  const store = makeStore(t, tree)
  t.match(await store.open(), { warnings: [] })
  await store.save(
    new Map([
      ['node/a@default', STATE],
      ['node/b@default', STATE],
    ]),
  )
  await store.flush()
  const whole = JSON.parse(readFileSync(tree.path('.svc/scheduler-state.json'), 'utf8'))
  t.match(whole, { version: 1, schedules: { 'node/a@default': { next: 1_700_000_040, last_status: 503 } } })
  t.equal(readFileSync(tree.path('.svc/scheduler-state.json.log'), 'utf8'), '')
  const later = { ...STATE, running: 1 }
  await store.save(
    new Map<string, ScheduleState | null>([
      ['node/a@default', later],
      ['node/b@default', null],
    ]),
  )
  t.same(
    JSON.parse(readFileSync(tree.path('.svc/scheduler-state.json'), 'utf8')),
    whole,
    'no whole writing for a change',
  )
  // Killed here: nobody closes the first one.
  store.lock.release()
  const { states, warnings } = await read(t, tree)
  t.same([...states], [['node/a@default', later]])
  t.same(warnings, [])
  t.same([...(await read(t, tree)).states], [['node/a@default', later]], 'and once more')
})

t.test('[scheduler/schedule-store.2] cut off between the whole file and the emptying of the log', async t => {
  const tree = makeRoot(t)
  const store = makeStore(t, tree)
  await store.open()
  await store.save(new Map([['k', STATE]]))
  const log = readFileSync(tree.path('.svc/scheduler-state.json.log'), 'utf8')
  await store.save(new Map([['k', { ...STATE, lastStatus: 200 }]]))
  await store.close()
  store.lock.release()
  writeFileSync(tree.path('.svc/scheduler-state.json.log'), log)
  t.match((await read(t, tree)).states.get('k'), { lastStatus: 200 }, 'the older line is known by its number')
})

t.test('[scheduler/schedule-store.4] what cannot be used is set aside, told and never deleted', async t => {
  const good = JSON.stringify({ version: 1, saved_at: 1, seq: 1, schedules: { k: toStateRecord(STATE) } })
  const cases: [name: string, content: string, reason: RegExp][] = [
    ['empty', '', /it is empty/],
    ['torn', good.slice(0, 80), /cut off/],
    ['foreign', '[1, 2]', /not a state of schedules/],
    ['without schedules', '{"version":1}', /no schedules/],
  ]
  for (const [name, content, reason] of cases) {
    const tree = makeRoot(t, { '.svc/scheduler-state.json': content })
    const { states, warnings } = await read(t, tree)
    t.equal(states.size, 0, name)
    t.match(warnings, [{ code: 'SCHEDULES_SET_ASIDE', path: '.svc/scheduler-state.json', message: reason }], name)
    t.equal(readFileSync(tree.path('.svc/scheduler-state.json.set-aside-42'), 'utf8'), content, name)
    t.same((await read(t, tree)).warnings, [], `${name}: told once`)
  }
  const folder = makeRoot(t, { '.svc/scheduler-state.json/mine.txt': 'x' })
  t.match((await read(t, folder)).warnings, [{ message: /a folder/ }])
  t.ok(existsSync(folder.path('.svc/scheduler-state.json.set-aside-42/mine.txt')))
  const link = makeRoot(t, { 'target.json': good, '.svc/x': '' })
  symlinkSync('../target.json', link.path('.svc/scheduler-state.json'))
  t.match((await read(t, link)).warnings, [{ message: /a symbolic link/ }])
  t.equal(readFileSync(link.path('target.json'), 'utf8'), good, 'nothing is written through it')
})

t.test(
  '[scheduler/schedule-store.8] the state of a newer version stays as it is, and schedules run without being kept',
  async t => {
    const newer = JSON.stringify({ version: 2, seq: 1, schedules: {} })
    const tree = makeRoot(t, { '.svc/scheduler-state.json': newer })
    const store = makeStore(t, tree)
    t.match(await store.open(), {
      warnings: [
        { code: 'SCHEDULES_NOT_KEPT', message: /version 2 of a newer fngw, this one reads version 1: start the newer/ },
      ],
    })
    await store.save(new Map([['k', STATE]]))
    await store.flush()
    t.equal(readFileSync(tree.path('.svc/scheduler-state.json'), 'utf8'), newer)
  },
)

t.test('[scheduler/schedule-store.4] a log with a line that was cut off: the others are used', async t => {
  const line = `{"seq":1,"key":"k","state":${JSON.stringify(toStateRecord(STATE))}}\n`
  const tree = makeRoot(t, { '.svc/scheduler-state.json.log': line + line.replace('"k"', '"l"').slice(0, 90) })
  const { states, warnings } = await read(t, tree)
  t.same([...states], [['k', STATE]])
  t.match(warnings, [{ code: 'SCHEDULES_SET_ASIDE', path: '.svc/scheduler-state.json.log' }])
  t.ok(readdirSync(tree.path('.svc')).includes('scheduler-state.json.log.set-aside-42'))
  t.same([...(await read(t, tree)).states], [['k', STATE]])
})

t.test('[scheduler/schedule-store.5] two gateways on one root: the second one is told who has it', async t => {
  const tree = makeRoot(t)
  const first = makeStore(t, tree)
  await first.open()
  const second = makeStore(t, tree, { persists: false })
  t.match(
    await second.open(),
    { heldBy: new RegExp(`process ${process.pid}`) },
    'nothing kept, and still one runs them',
  )
  await first.close()
  first.lock.release()
  t.notOk('heldBy' in (await second.open()))
  await second.save(new Map([['k', STATE]]))
  await second.close()
  t.notOk(
    readFileSync(tree.path('.svc/scheduler-state.json'), 'utf8').includes('every 60'),
    'FN_SCHEDULER_PERSIST_ENABLED=0',
  )
})

t.test('[scheduler/schedule-store.6] nothing can be written: a warning, and no end of the start', async t => {
  const tree = makeRoot(t, { '.svc': 'a file' })
  const store = makeStore(t, tree)
  const opened = await store.open()
  t.match(opened, { warnings: [{ code: 'SCHEDULES_NOT_KEPT', message: /are not kept|is not kept/ }] })
  await store.save(new Map([['k', STATE]]))
  await store.flush()
  await store.close()
  t.equal(readFileSync(tree.path('.svc'), 'utf8'), 'a file')
  if (process.getuid?.() === 0) return
  const closed = makeRoot(t)
  mkdirSync(closed.path('.svc'))
  chmodSync(closed.path('.svc'), 0o500)
  t.match(await makeStore(t, closed).open(), { warnings: [{ code: 'SCHEDULES_NOT_KEPT' }] })
})

t.test('[scheduler/schedule-store.1] another file by FN_SCHEDULER_STATE_PATH', async t => {
  const tree = makeRoot(t)
  const path = tree.path('elsewhere/deep/state.json')
  const store = makeStore(t, tree, { path })
  await store.open()
  await store.save(new Map([['k', STATE]]))
  await store.close()
  store.lock.release()
  t.match(JSON.parse(readFileSync(path, 'utf8')), { version: 1, schedules: { k: {} } })
  t.same([...(await read(t, tree, { path })).states], [['k', STATE]])
  t.notOk(existsSync(tree.path('.svc/scheduler-state.json')))
})

t.test(
  '[scheduler/schedule-store.2] a log that grows long, or got a broken line, gives way to the whole file',
  async t => {
    const tree = makeRoot(t)
    const store = makeStore(t, tree, { maxLogBytes: 2000 })
    await store.open()
    for (let i = 0; i < 50; i++) {
      await store.save(new Map([['k', { ...STATE, lastStatus: i }]]))
      t.ok(readFileSync(tree.path('.svc/scheduler-state.json.log')).length <= 2000)
    }
    await store.save(new Map([['k', { ...STATE, lastStatus: 50 }]]))
    const file = await open(tree.path('x'), 'w')
    const handle = Object.getPrototypeOf(file)
    await file.close()
    const { appendFile } = handle
    handle.appendFile = async function (text: string): Promise<void> {
      await appendFile.call(this, text.slice(0, 30))
      throw new Error('no space left on device')
    }
    t.teardown(() => (handle.appendFile = appendFile))
    await t.rejects(store.save(new Map([['k', { ...STATE, lastStatus: 51 }]])), { message: /no space/ })
    handle.appendFile = appendFile
    await store.save(new Map([['l', STATE]]))
    await store.save(new Map([['k', { ...STATE, lastStatus: 52 }]]))
    store.lock.release()
    const { states, warnings } = await read(t, tree)
    t.same(warnings, [])
    t.equal(states.get('k')?.lastStatus, 52)
    t.equal(states.size, 2)
  },
)

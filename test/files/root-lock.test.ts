import { spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, renameSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import {
  isAlive,
  LOCK_BEAT_MS,
  LOCK_SILENCE_MS,
  type LockHolder,
  ownMark,
  RootLock,
} from '../../lib/files/root-lock.ts'
import { FROM_SOURCES } from '../helpers/cli.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

const MODULES = {
  lock: fileURLToPath(new URL('../../lib/files/root-lock.ts', import.meta.url)),
  folder: fileURLToPath(new URL('../../lib/files/own-folder.ts', import.meta.url)),
  clock: fileURLToPath(new URL('../../lib/core/clock.ts', import.meta.url)),
}

function lockOf(tree: Tree, clock = new FakeClock()): RootLock {
  return new RootLock(new OwnFolder(tree.root, '.svc'), clock)
}

/** A process that asks for the lock `rounds` times and tells each outcome on a line; it ends with its input. */
/** What is in the state folder beside the file that keeps it out of git. */
function left(tree: Tree): string[] {
  return readdirSync(tree.path('.svc')).filter(name => name !== '.gitignore')
}

const ASKER = `
import { createInterface } from 'node:readline'
const { RootLock } = await import(${JSON.stringify(MODULES.lock)})
const { OwnFolder } = await import(${JSON.stringify(MODULES.folder)})
const { systemClock } = await import(${JSON.stringify(MODULES.clock)})
const lock = new RootLock(new OwnFolder(process.argv[1], '.svc'), systemClock)
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'acquire') console.log(lock.acquire() === null ? 'mine' : 'taken')
  else { lock.release(); console.log('free') }
}`

interface Asker {
  pid: number
  ask: (what: 'acquire' | 'release') => Promise<string>
  kill: () => Promise<void>
}

async function startAsker(t: Test, root: string): Promise<Asker> {
  const child = spawn(process.execPath, [...FROM_SOURCES, '--input-type=module', '-e', ASKER, root], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const ended = new Promise<void>(resolve => child.once('close', () => resolve()))
  const kill = async () => {
    child.kill('SIGKILL')
    await ended
  }
  t.teardown(kill)
  return {
    pid: child.pid!,
    ask: async what => {
      child.stdin.write(`${what}\n`)
      return String((await lines.next()).value)
    },
    kill,
  }
}

t.test('[files/root-lock.1, files/root-lock.6] one of two gets it, the other is told who has it', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const clock = new FakeClock()
  const first = lockOf(tree, clock)
  const second = lockOf(tree, clock)
  t.equal(first.acquire(), null)
  t.equal(first.acquire(), null, 'it is its own already')
  t.ok(first.isHeld)
  t.match(second.acquire(), { pid: process.pid, since: clock.wall() })
  t.notOk(second.isHeld)
  second.release()
  t.match(second.acquire(), { pid: process.pid }, 'what is not its own is not given back')
  first.release()
  t.equal(second.acquire(), null)
  first.release()
  t.match(first.acquire(), { pid: process.pid }, 'an old holder gives back nothing of the new one')
  second.release()
  t.same(left(tree), [], 'nothing is left')
  t.equal(clock.pending, 0, 'no timer is left')
})

t.test('[files/root-lock.2] a killed process frees it, and its number alone does not hold it', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const asker = await startAsker(t, tree.root)
  t.equal(await asker.ask('acquire'), 'mine')
  const lock = lockOf(tree)
  t.match(lock.acquire(), { pid: asker.pid })
  await asker.kill()
  t.equal(lock.acquire(), null)
  lock.release()
  const own = ownMark()
  t.equal(isAlive(own), true)
  if (own.started !== null) t.equal(isAlive({ ...own, started: '1' }), false, 'another process with this number')
  t.equal(isAlive({ ...own, pid: 2 ** 22 + 1 }), false)
  t.equal(isAlive({ ...own, boot: 'other' }), null, 'nobody knows')
})

t.test(
  '[files/root-lock.2] a process that ended and was not waited for is gone',
  { skip: process.platform !== 'linux' && 'states in /proc' },
  async t => {
    const child = spawn('sh', ['-c', 'sleep 60 & echo $!; wait'], { stdio: ['ignore', 'pipe', 'ignore'] })
    t.teardown(() => child.kill('SIGKILL'))
    const { value } = await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next()
    const stat = (pid: number): string => readFileSync(`/proc/${pid}/stat`, 'latin1')
    const until = async (pid: number, state: RegExp): Promise<void> => {
      while (!state.test(stat(pid))) await new Promise(resolve => setImmediate(resolve))
    }
    // A shell that is stopped does not wait for its child.
    child.kill('SIGSTOP')
    await until(child.pid!, /\) T /)
    process.kill(Number(value), 'SIGKILL')
    await until(Number(value), /\) Z /)
    const text = stat(Number(value))
    const started = text.slice(text.lastIndexOf(')') + 2).split(' ')[19]!
    t.equal(isAlive({ ...ownMark(), pid: Number(value), started }), false)
  },
)

t.test(
  '[files/root-lock.1, files/root-lock.3] of many processes that find a dead one’s lock exactly one gets it',
  async t => {
    const tree = makeTree()
    t.teardown(tree.cleanup)
    const askers = await Promise.all([1, 2, 3, 4].map(() => startAsker(t, tree.root)))
    for (let round = 0; round < 25; round++) {
      // A lock of a process that is gone, and half of the time one that died while it took over from it.
      const dead: LockHolder = { ...ownMark(), pid: 2 ** 22 + 1, id: hex(round), since: 0 }
      mkdirSync(tree.path('.svc'), { recursive: true })
      writeFileSync(tree.path('.svc/gateway.lock'), JSON.stringify(dead))
      if (round % 2 === 1)
        writeFileSync(tree.path(`.svc/gateway.lock.${dead.id}`), JSON.stringify({ ...dead, id: hex(round + 1000) }))
      const outcomes = await Promise.all(askers.map(one => one.ask('acquire')))
      t.equal(outcomes.filter(one => one === 'mine').length <= 1, true, `round ${round}: never two`)
      // Who met another one at work may ask again.
      const again = await Promise.all(askers.map(one => one.ask('acquire')))
      t.equal(again.filter(one => one === 'mine').length, 1, `round ${round}: ${again}`)
      await Promise.all(askers.map(one => one.ask('release')))
      t.same(left(tree), [], `round ${round}: nothing is left`)
    }
  },
)

t.test('[files/root-lock.4, files/root-lock.5] a holder that cannot be asked is gone when it is silent', async t => {
  const foreign: LockHolder = { ...ownMark(), boot: 'other', id: hex(1), since: 0 }
  for (const text of [JSON.stringify(foreign), 'torn {', '', '{"id":"../x","pid":1,"host":"a"}', 'null']) {
    const tree = makeTree({ '.svc/gateway.lock': text })
    t.teardown(tree.cleanup)
    const clock = new FakeClock()
    const seen = (ageMs: number) => {
      const at = (clock.wall() - ageMs) / 1000
      utimesSync(tree.path('.svc/gateway.lock'), at, at)
    }
    seen(LOCK_SILENCE_MS - 1000)
    const lock = lockOf(tree, clock)
    t.not(lock.acquire(), null, `${text}: it may live`)
    seen(LOCK_SILENCE_MS + 1000)
    t.equal(lock.acquire(), null, `${text}: it is silent`)
    lock.release()
  }
})

t.test('[files/root-lock.4] the holder gives a sign every few seconds', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const clock = new FakeClock()
  const lock = lockOf(tree, clock)
  lock.acquire()
  t.equal(clock.pending, 1)
  clock.advance(LOCK_BEAT_MS)
  t.equal(clock.pending, 1, 'and the next one')
  lock.release()
  t.equal(clock.pending, 0)
})

t.test('[files/root-lock.7] a lock whose folder was deleted is taken again, or known to be lost', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const clock = new FakeClock()
  const [first, second] = [lockOf(tree, clock), lockOf(tree, clock)]
  const heard: unknown[] = []
  first.onReplaced(holder => heard.push(holder?.pid ?? null))
  first.acquire()
  clock.advance(LOCK_BEAT_MS)
  t.same(heard, [])
  tree.remove('.svc')
  clock.advance(LOCK_BEAT_MS)
  t.same(heard, [null])
  t.match(second.acquire(), { pid: process.pid }, 'it is held again')
  renameSync(tree.path('.svc'), tree.path('.moved'))
  t.equal(second.acquire(), null)
  clock.advance(LOCK_BEAT_MS)
  t.same(heard, [null, process.pid])
  t.equal(first.isHeld, false)
  first.release()
  t.same(left(tree), ['gateway.lock'], 'it is the other one now')
  second.release()
})

t.test('[files/root-lock.5] what is no file is not touched', async t => {
  const tree = makeTree({ 'outside/kept': '1' })
  t.teardown(tree.cleanup)
  mkdirSync(tree.path('.svc'))
  symlinkSync(tree.path('outside/new'), tree.path('.svc/gateway.lock'))
  t.throws(() => lockOf(tree).acquire(), /\.svc\/gateway\.lock is a symbolic link/)
  t.same(readdirSync(tree.path('outside')), ['kept'])
  tree.remove('.svc/gateway.lock')
  mkdirSync(tree.path('.svc/gateway.lock/kept'), { recursive: true })
  t.throws(() => lockOf(tree).acquire(), /\.svc\/gateway\.lock is a folder, not a regular file/)
  t.same(readdirSync(tree.path('.svc/gateway.lock')), ['kept'])
  tree.remove('.svc')
  symlinkSync(tree.path('outside'), tree.path('.svc'))
  t.throws(() => lockOf(tree).acquire(), /\.svc is a symbolic link/)
})

t.test('[files/root-lock.1] a file system without second names has locks too', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const refuse = (code: string) => () => {
    throw Object.assign(new Error(code), { code })
  }
  const folder = new OwnFolder(tree.root, '.svc')
  const [first, second] = [1, 2].map(() => new RootLock(folder, new FakeClock(), refuse('EPERM')))
  t.equal(first!.acquire(), null)
  t.match(second!.acquire(), { pid: process.pid })
  first!.release()
  t.equal(second!.acquire(), null)
  second!.release()
  t.same(left(tree), [])
  t.throws(() => new RootLock(folder, new FakeClock(), refuse('EIO')).acquire(), { code: 'EIO' })
  t.same(left(tree), [], 'and no draft is left')
})

t.test('[files/root-lock.3] a chain of dead holders without end is left alone', async t => {
  const tree = makeTree({ '.svc/': '' })
  t.teardown(tree.cleanup)
  let name = 'gateway.lock'
  for (let count = 0; count < 20; count++) {
    const dead: LockHolder = { ...ownMark(), pid: 2 ** 22 + 1, id: hex(count), since: 0 }
    writeFileSync(tree.path(`.svc/${name}`), JSON.stringify(dead))
    name = `gateway.lock.${dead.id}`
  }
  t.match(lockOf(tree).acquire(), { id: hex(16) })
})

function hex(count: number): string {
  return count.toString(16).padStart(16, '0')
}

t.test('[files/root-lock.2] the holder can be looked at without taking the lock', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const lock = lockOf(tree)
  t.equal(lock.look(), null)
  t.equal(lock.acquire(), null)
  t.match(lockOf(tree).look(), { isAlive: true, holder: { pid: process.pid } })
  lock.release()
  const dead = { ...ownMark(), started: '1', id: '0123456789abcdef', since: 1 }
  writeFileSync(tree.path('.svc/gateway.lock'), JSON.stringify(dead))
  t.match(lockOf(tree).look(), { isAlive: false, holder: { id: dead.id } })
  t.equal(lockOf(tree).look()?.isAlive, false, 'and it is left as it is')
})

t.test(
  '[files/root-lock.2] where the system reports no start of processes, a signal says whether one lives',
  async t => {
    const own = { ...ownMark(), started: null }
    t.equal(isAlive({ ...own, pid: process.pid }, own), true)
    const child = spawn(process.execPath, ['--version'], { stdio: 'ignore' })
    await new Promise(resolve => child.once('close', resolve))
    t.equal(isAlive({ ...own, pid: child.pid! }, own), false)
  },
)

import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { PacedLine } from '../../lib/dependencies/paced-line.ts'
import { Installer } from '../../lib/dependencies/install.ts'
import type { InstallStep } from '../../lib/dependencies/install-step.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { makeFn } from '../helpers/fn.ts'

t.test('[dependencies/resolve.17] sixteen go in a turn, in order, and who is asked for goes first', async t => {
  const line = new PacedLine<number>()
  const went: number[] = []
  const turns: number[] = []
  let turn = 0
  const all = Array.from({ length: 50 }, (_, who) =>
    line.enter(who).then(() => {
      went.push(who)
      turns[turn] = (turns[turn] ?? 0) + 1
    }),
  )
  t.same(went, [], 'none within the turn of the caller')
  line.putFirst(40)
  line.putFirst(41)
  line.putFirst(40)
  line.putFirst(99)
  for (; went.length < 50; turn++) await setImmediate()
  await Promise.all(all)
  t.same(went.slice(0, 4), [40, 41, 0, 1])
  t.same(
    [...went].sort((a, b) => a - b),
    Array.from({ length: 50 }, (_, who) => who),
    'each once',
  )
  t.ok(
    turns.every(count => count <= 16),
    `${turns}`,
  )
  const late = line.enter(7)
  await late
  t.pass('one that comes when the line is empty')
})

t.test('[dependencies/resolve.17] a look at one function does not look at all of them', async t => {
  const functions = new Map<string, FunctionVersion>()
  for (let i = 0; i < 500; i++) {
    const fn = makeFn({ name: `f${i}`, runtime: i % 2 === 0 ? 'python' : 'node', fnDir: `/r/d${i % 100}` })
    functions.set(fn.key, fn)
  }
  let walks = 0
  const counted = new Proxy(functions, {
    get: (target, name) => {
      if (name === 'values' || name === Symbol.iterator || name === 'entries') walks += 1
      const value = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const units: number[] = []
  const step = {
    runtime: 'python',
    isOn: true,
    concurrency: 1,
    isAhead: true,
    isWanted: ({ functions }) => {
      units.push(functions.length)
      return false
    },
  } as Partial<InstallStep> as InstallStep
  const installer = new Installer(step, {
    functionsRoot: '/r',
    clock: systemClock,
    isPrivate: false,
    packsOf: () => [],
  })
  installer.retain(counted)
  for (const fn of functions.values()) if (fn.runtime === 'python') t.notOk(installer.isNeeded(fn))
  t.equal(walks, 1)
  t.same(new Set(units), new Set([5]), 'with those of its folder and runtime')
  t.equal(units.length, 50, 'one look for the functions of a folder, not one for each')
  installer.retain(new Map(functions))
  const [first] = functions.values()
  t.notOk(installer.isNeeded(first!))
  t.equal(units.length, 51, 'after a reload it is looked at again')
  t.notOk(installer.isNeeded(makeFn({ name: 'unknown', runtime: 'python', fnDir: '/r/new' })))
  t.notOk(installer.isNeeded(makeFn({ name: 'unknown', runtime: 'python', fnDir: '/r/new' })))
  t.equal(units.length, 53, 'what the catalog does not have is looked at each time')
})

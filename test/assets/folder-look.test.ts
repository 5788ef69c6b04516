import { type Stats, statSync, utimesSync } from 'node:fs'
import t from 'tap'
import { toState } from '../../lib/assets/file.ts'
import { FOLDER_SETTLE_MS, FolderLook, isSameFolder } from '../../lib/assets/folder-look.ts'
import { makeTree } from '../helpers/tree.ts'

/** Looks that end when the test wants. */
function makeLooks(now = () => Date.now()) {
  const open: ((error: Error | null, stats: Stats) => void)[] = []
  const folder = new FolderLook('/folder', now, (path, onStats) => {
    t.equal(path, '/folder')
    open.push(onStats)
  })
  return { folder, open }
}

const STATS = { dev: 1, ino: 2, size: 3, mtimeMs: 1000, ctimeMs: 2000 } as Stats

t.test('[assets/static-assets.27] each request gets a look that begins later, one look at a time', async t => {
  const { folder, open } = makeLooks()
  const seen: string[] = []
  const ask = (label: string) => folder.ask(state => seen.push(`${label} ${state?.ino}`))
  ask('first')
  t.same([open.length, seen], [1, []])
  ask('second')
  ask('third')
  t.equal(open.length, 1, 'a look that is under way may have seen what was before')
  open.shift()!(null, STATS)
  t.same([open.length, seen], [1, ['first 2']])
  ask('fourth')
  open.shift()!(null, { ...STATS, ino: 5 } as Stats)
  t.same(seen, ['first 2', 'second 5', 'third 5'])
  open.shift()!(null, { ...STATS, ino: 6 } as Stats)
  t.same([open.length, seen.at(-1)], [0, 'fourth 6'])
  folder.ask(() => ask('within'))
  open.shift()!(null, STATS)
  t.equal(open.length, 1, 'one who asks within an answer begins the next look')
})

t.test('[assets/static-assets.27] a folder that cannot be looked at has no state', async t => {
  const { folder, open } = makeLooks()
  const answers: unknown[] = []
  folder.ask((state, isSettled) => answers.push(state, isSettled))
  open.shift()!(new Error('EIO'), undefined as unknown as Stats)
  t.same(answers, [null, false])
  const missing = new FolderLook('/nowhere/at/all', () => 0)
  t.same(await new Promise(resolve => missing.ask(state => resolve(state))), null)
})

t.test(
  '[assets/static-assets.27] times are settled two seconds after the last change, by the clock before the look',
  async t => {
    let now = 0
    const { folder, open } = makeLooks(() => now)
    const isSettled = (at: number, stats: Partial<Stats>, atEnd = at) => {
      now = at
      let answer = false
      folder.ask((_, settled) => {
        answer = settled
      })
      now = atEnd
      open.shift()!(null, { ...STATS, ...stats } as Stats)
      return answer
    }
    t.equal(isSettled(2000 + FOLDER_SETTLE_MS, {}), true)
    t.equal(isSettled(1999 + FOLDER_SETTLE_MS, {}), false)
    t.equal(isSettled(2000 + FOLDER_SETTLE_MS, { mtimeMs: 2001 }), false, 'the later of both times')
    t.equal(isSettled(1000, {}), false, 'a clock that is ahead')
    t.equal(isSettled(2000, {}, 2000 + FOLDER_SETTLE_MS), false, 'a look that took long')
  },
)

t.test('[assets/static-assets.27] a folder is the same by its number and its times', async t => {
  const state = toState(STATS)
  t.equal(isSameFolder(state, { ...state, size: 9 }), true, 'its size says nothing more')
  for (const field of ['dev', 'ino', 'mtimeMs', 'ctimeMs'] as const)
    t.equal(isSameFolder(state, { ...state, [field]: 9 }), false, field)
  const tree = makeTree({ 'a/x': '' })
  t.teardown(tree.cleanup)
  const before = toState(statSync(tree.path('a')))
  utimesSync(tree.path('a'), 1, 1)
  t.equal(isSameFolder(before, toState(statSync(tree.path('a')))), false)
})

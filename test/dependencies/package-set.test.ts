import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
} from 'node:fs'
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { PackageFolder, PackageSets } from '../../lib/dependencies/package-set.ts'
import type { OwnFolder } from '../../lib/files/own-folder.ts'
import { FROM_SOURCES } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

const KEY = '0123456789abcdef0123456789abcdef'
const OUTCOME = { resolvedPackages: ['flask==3'], unresolvedImports: ['yaml'] }

function makeBed(t: Test) {
  const tree = makeTree({ 'fn/handler.py': '' })
  t.teardown(tree.cleanup)
  const sets = new PackageSets(tree.root, { clock: systemClock, isPrivate: false })
  const ensure = (
    fill: (draft: OwnFolder) => Promise<void>,
    { signal } = new AbortController(),
    asker = { folder: tree.path('fn'), signature: '1' },
  ) =>
    sets.ensure({
      runtime: 'python',
      key: KEY,
      user: null,
      signal,
      asker,
      fill: async draft => {
        await fill(draft)
        return OUTCOME
      },
    })
  return { tree, sets, ensure, folder: new PackageFolder(tree.path('fn'), '.deps') }
}

t.test('[dependencies/install.2] a set comes with its folders, links and what is known of it', async t => {
  const { tree, ensure, folder } = makeBed(t)
  const set = await ensure(async draft => {
    draft.below('.deps', 'pack', 'deep').write('code.py', 'x = 1')
    for (const name of ['a', 'b', 'c'])
      draft.below('.deps', `${name}.dist-info`).write('METADATA', `Name: ${name}\nVersion: 1\n`)
    symlinkSync('pack/deep/code.py', draft.below('.deps').pathOf('short.py'))
  })
  t.match(set, OUTCOME)
  t.match(set, { packages: 3, bytes: 5 + 3 * 19, isShared: false })
  await folder.put(set)
  t.match(folder.set, { key: KEY, ...OUTCOME })
  t.equal(readFileSync(tree.path('fn/.deps/short.py'), 'utf8'), 'x = 1')
  t.equal(readlinkSync(tree.path('fn/.deps/short.py')), 'pack/deep/code.py')
  t.same(readdirSync(tree.path('fn')).sort(), ['.deps', 'handler.py'])
  t.notOk(folder.isForeign)
  t.ok(folder.remove())
  t.notOk(folder.remove())
})

t.test('[dependencies/install.3] a fill that fails leaves nothing; the next one is whole', async t => {
  const { tree, ensure } = makeBed(t)
  await t.rejects(
    ensure(async draft => {
      draft.below('.deps').write('half.py', '')
      throw new Error('disk full')
    }),
    { message: 'disk full' },
  )
  t.same(readdirSync(tree.path('.svc/deps')), [])
  const set = await ensure(async draft => void draft.below('.deps').write('whole.py', ''), undefined, {
    folder: tree.path('fn'),
    signature: 'saved again',
  })
  t.ok(existsSync(`${set.folder.path}/.deps/whole.py`))
})

t.test(
  '[dependencies/install.3] drafts that a killed gateway left are deleted after an hour, and unused sets on request',
  async t => {
    const { tree, sets, ensure } = makeBed(t)
    mkdirSync(tree.path('.svc/deps/d-aaaaaa'), { recursive: true })
    mkdirSync(tree.path('.svc/deps/d-bbbbbb'))
    mkdirSync(tree.path('.svc/deps/mine'))
    const old = Date.now() / 1000 - 7200
    utimesSync(tree.path('.svc/deps/d-aaaaaa'), old, old)
    await ensure(async draft => void draft.below('.deps').make())
    t.same(readdirSync(tree.path('.svc/deps')).sort(), ['d-bbbbbb', 'mine', `python-${KEY}`])
    t.same(sets.prune(new Set([`python-${KEY}`])), [])
    t.same(sets.prune(new Set()), [`python-${KEY}`])
    t.same(readdirSync(tree.path('.svc/deps')).sort(), ['d-bbbbbb', 'mine'])
  },
)

t.test('[dependencies/install.2, files/own-folder.2] a set that was replaced by a link counts as none', async t => {
  for (const part of ['set', 'target'] as const) {
    const { tree, ensure, folder } = makeBed(t)
    const outside = makeTree()
    t.teardown(outside.cleanup)
    const fill = (text: string) => ensure(async draft => void draft.below('.deps').write('code.py', text))
    await fill('first')
    const place = tree.path(part === 'set' ? `.svc/deps/python-${KEY}` : `.svc/deps/python-${KEY}/.deps`)
    renameSync(place, outside.path('moved'))
    symlinkSync(outside.path('moved'), place)
    const code = outside.path(part === 'set' ? 'moved/.deps/code.py' : 'moved/code.py')
    const set = await fill('second')
    t.notOk(set.isShared, `${part}: filled again`)
    t.ok(lstatSync(place).isDirectory(), `${part}: what was filled has the place of the link`)
    t.equal(readFileSync(code, 'utf8'), 'first', `${part}: what the link led to is left alone`)
    await folder.put(set)
    t.equal(readFileSync(tree.path('fn/.deps/code.py'), 'utf8'), 'second')
    // A link among the folders above it is not the gateway's to replace.
    renameSync(tree.path('.svc'), outside.path('svc'))
    symlinkSync(outside.path('svc'), tree.path('.svc'))
    await t.rejects(fill('third'), { code: 'UNSAFE_PATH' })
  }
})

t.test('[dependencies/install.5] links, files and folders of others are foreign; an empty folder is not', async t => {
  const { tree, folder, ensure } = makeBed(t)
  t.notOk(folder.isForeign)
  symlinkSync('/somewhere/else', tree.path('fn/.deps'))
  t.ok(folder.isForeign)
  t.equal(folder.set, null)
  const set = await ensure(async draft => void draft.below('.deps').write('a.py', ''))
  await folder.put(set)
  t.ok(lstatSync(tree.path('fn/.deps')).isDirectory(), 'who asks for it replaces the link, not what it leads to')
  const outside = makeTree()
  t.teardown(outside.cleanup)
  const linked = makeTree()
  t.teardown(linked.cleanup)
  symlinkSync(outside.root, linked.path('.svc-deps'))
  await t.rejects(new PackageFolder(linked.root, '.deps').put(set), { code: 'UNSAFE_PATH' })
  t.same(readdirSync(outside.root), [])
})

t.test(
  '[dependencies/install.3] waste beside a whole set goes, and languages of one folder keep out of each other',
  t => {
    const { tree, folder } = makeBed(t)
    const php = new PackageFolder(tree.path('fn'), 'vendor')
    // Killed after the second rename, before the old set was deleted.
    tree.write({ 'fn/.deps/a.py': 'new', 'fn/.svc-deps/.deps/old/a.py': 'old' })
    folder.recover()
    t.same(readdirSync(tree.path('fn')).sort(), ['.deps', 'handler.py'])
    // Killed between the renames of one language, while another one is at work.
    tree.remove('fn/.deps')
    tree.write({ 'fn/.svc-deps/.deps/old/a.py': 'old', 'fn/.svc-deps/vendor/new-0123456789ab/b.php': '' })
    php.recover()
    t.notOk(existsSync(tree.path('fn/vendor')), 'the old set of the other language is not moved there')
    folder.recover()
    t.equal(readFileSync(tree.path('fn/.deps/a.py'), 'utf8'), 'old')
    t.ok(existsSync(tree.path('fn/.svc-deps/vendor/new-0123456789ab/b.php')))
    t.end()
  },
)

t.test(
  '[dependencies/install.3] killed at any step: the old set or the new one, whole, and the next time the new one',
  async t => {
    const program = fileURLToPath(new URL('./put-and-die.ts', import.meta.url))
    const run = (root: string, version: string, step: number) =>
      spawnSync(process.execPath, [...FROM_SOURCES, program, root, version, String(step)], { encoding: 'utf8' })
    const prepare = (): string => {
      const tree = makeTree({ 'fn/handler.py': '' })
      t.teardown(tree.cleanup)
      t.equal(run(tree.root, '1', 1_000_000).status, 0)
      return tree.root
    }
    const versionsIn = (root: string) =>
      ['a', 'b', 'c'].map(name => readFileSync(`${root}/fn/.deps/${name}/code.py`, 'utf8'))
    const root = prepare()
    const { stdout } = run(root, '2', 1_000_000)
    const steps = Number(stdout)
    t.ok(steps > 20, `${steps} steps`)
    t.same(versionsIn(root), ['2', '2', '2'])

    const random = prepare()
    for (let count = 0; count < 10; count++) {
      const step = 1 + Math.floor(Math.random() * steps)
      const before = versionsIn(random)[0]!
      const next = before === '1' ? '2' : '1'
      // Sets are filled again, as after an edit.
      rmSync(`${random}/.svc/deps/python-${next.repeat(32)}`, { recursive: true, force: true })
      t.equal(run(random, next, step).signal, 'SIGKILL', `step ${step}`)
      new PackageFolder(`${random}/fn`, '.deps').recover()
      const [found] = versionsIn(random)
      t.same(versionsIn(random), [found, found, found], `step ${step} leaves a whole set`)
      t.equal(run(random, next, 1_000_000).status, 0)
      t.same(versionsIn(random), [next, next, next], `after step ${step}`)
      t.same(readdirSync(`${random}/fn`).sort(), ['.deps', 'handler.py'])
    }
  },
)

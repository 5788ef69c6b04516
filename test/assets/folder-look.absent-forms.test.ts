import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { AbsentForms, FolderLook } from '../../lib/assets/folder-look.ts'
import type { AssetForm } from '../../lib/assets/file.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

const NONE = { br: null, gzip: null }

async function setUp(t: Test, files: Record<string, TreeEntry>, forms: Parameters<AbsentForms['end']>[0] = NONE) {
  const tree = makeTree({ 'public/a.js': 'plain', ...files })
  t.teardown(tree.cleanup)
  const clock = { now: Date.now() + 60_000 }
  const absent = new AbsentForms(tree.path('public/a.js'), new FolderLook(tree.path('public'), () => clock.now))
  await absent.begin()
  await absent.end(forms)
  const look = () => new Promise<boolean>(resolve => absent.look(resolve))
  return { tree, clock, absent, look }
}

t.test('[assets/static-assets.27] which forms have no name in the folder', async t => {
  t.same((await setUp(t, {})).absent.endings, ['.br', '.gz'])
  const form = {} as AssetForm
  t.same((await setUp(t, { 'public/a.js.br': '' }, { br: form, gzip: null })).absent.endings, ['.gz'])
  t.same((await setUp(t, {}, { br: form, gzip: form })).absent.endings, [])
  const odd = await setUp(t, { 'public/a.js.br': { symlink: '../nowhere' }, 'public/a.js.gz': 'out of date' })
  t.same(odd.absent.endings, [], 'what is there and cannot be used may turn good in its place')
})

t.test('[assets/static-assets.27] a name that comes is seen by the next look', async t => {
  const comes: [string, (path: (name: string) => string) => void][] = [
    ['a file', path => writeFileSync(path('public/a.js.br'), '')],
    ['a link', path => symlinkSync('../far', path('public/a.js.gz'))],
    ['a link that leads nowhere', path => symlinkSync('nowhere', path('public/a.js.gz'))],
    ['a folder', path => mkdirSync(path('public/a.js.br'))],
    ['one of another name', path => renameSync(path('far'), path('public/a.js.br'))],
    [
      'another folder of that name',
      path => {
        renameSync(path('public'), path('old'))
        renameSync(path('other'), path('public'))
      },
    ],
  ]
  for (const [what, come] of comes) {
    for (const ahead of [60_000, -60_000]) {
      const { tree, clock, look } = await setUp(t, { far: '', 'other/a.js': '', 'other/a.js.gz': '' })
      clock.now = Date.now() + ahead
      t.equal(await look(), true)
      t.equal(await look(), true)
      come(name => tree.path(name))
      t.equal(await look(), false, `${what}, ${ahead > 0 ? 'a settled folder' : 'one whose times are not reliable'}`)
      t.equal(await look(), false, `${what}, again`)
    }
  }
})

t.test('[assets/static-assets.27] other names come and go', async t => {
  const { tree, look } = await setUp(t, {})
  for (let i = 0; i < 3; i++) {
    writeFileSync(tree.path('public/b.js.br'), '')
    t.equal(await look(), true)
    rmSync(tree.path('public/b.js.br'))
    t.equal(await look(), true)
  }
  rmSync(tree.path('public'), { recursive: true })
  t.equal(await look(), true, 'none comes of a folder that is gone')
})

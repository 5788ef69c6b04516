import { existsSync, readFileSync, statSync } from 'node:fs'
import t, { type Test } from 'tap'
import { UI_STORE_BYTES, UiStore } from '../../lib/control/ui-state-endpoints.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { makeTree } from '../helpers/tree.ts'

const FILE = '.svc/console/state.json'

function setup(t: Test, entries: Record<string, string> = {}) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  return { tree, store: new UiStore(new OwnFolder(tree.root, '.svc', 'console')) }
}

t.test('[control/ui-state.6] a preview writes nothing; what is written is read again', async t => {
  const { tree, store } = setup(t)
  t.same(store.read(), { values: {}, problem: null })
  const values = store.preview({ a: 1, b: null }, false)
  t.same(values, { a: 1, b: null }, 'null is a value of a whole')
  t.notOk(existsSync(tree.path('.svc')))
  store.write(values)
  t.same(store.read(), { values, problem: null })
  t.same(store.preview({ a: null, c: [2] }, true), { b: null, c: [2] }, 'and takes a member of a part away')
  t.same(store.preview(null, true), {}, 'null for all is nothing')
  t.equal(statSync(tree.path(FILE)).mode & 0o777, 0o600)
  store.write({})
  t.notOk(existsSync(tree.path(FILE)))
  store.write({})
})

t.test('[control/ui-state.7] the limit is exact', async t => {
  const { store } = setup(t)
  const rest = '{"a":""}'.length
  const values = store.preview({ a: 'x'.repeat(UI_STORE_BYTES - rest) }, false)
  store.write(values)
  t.same(store.read(), { values, problem: null })
  t.throws(() => store.preview({ a: 'x'.repeat(UI_STORE_BYTES - rest + 1) }, false), { code: 'BODY_TOO_LARGE' })
  t.throws(() => store.preview({ a: 'é'.repeat(UI_STORE_BYTES / 2) }, false), { code: 'BODY_TOO_LARGE' }, 'bytes count')
  for (const wrong of ['x', 1, true, []]) t.throws(() => store.preview(wrong, false), { code: 'BAD_REQUEST' })
})

t.test('[control/ui-state.8] a file that is none of ours is set aside when something is written', async t => {
  for (const text of ['{', '7', '', '{"a":1}{"b":2}', `{"a":"${'x'.repeat(UI_STORE_BYTES)}"}`]) {
    const { tree, store } = setup(t, { [FILE]: text })
    const { values, problem } = store.read()
    t.same(values, {})
    t.match(problem, /^\.svc\/console\/state\.json is not used: it /)
    store.write({ b: 2 })
    t.same(store.read(), { values: { b: 2 }, problem: null })
    t.equal(readFileSync(tree.path(`${FILE}.unused`), 'utf8'), text)
  }
  const { store } = setup(t, { [`${FILE}/x`]: '' })
  t.match(store.read().problem, /cannot be read/)
})

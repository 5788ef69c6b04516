import { existsSync, readFileSync, statSync } from 'node:fs'
import t from 'tap'
import { OwnConsoleStore } from '../../lib/control/console-store.ts'
import { UiState } from '../../lib/control/ui-state-endpoints.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { FakeClock } from '../helpers/clock.ts'
import { testConsoleStore } from '../helpers/console-store-bed.ts'
import { makeTree } from '../helpers/tree.ts'

const FILE = '.svc/console/state.json'

function setup(t: { teardown: (run: () => unknown) => unknown }) {
  const tree = makeTree({})
  t.teardown(tree.cleanup)
  const clock = new FakeClock()
  return { tree, clock, store: new OwnConsoleStore(clock, new OwnFolder(tree.root, '.svc', 'console')) }
}

void testConsoleStore(t, async t => {
  const { tree, clock, store } = setup(t)
  return {
    store,
    advance: async ms => clock.advance(ms),
    damage: async text => tree.write({ [FILE]: text }),
    readUnused: async () => readFileSync(tree.path(`${FILE}.unused`), 'utf8'),
  }
})

t.test('[control/console-store.5] nothing is written before there is a state, and its file is private', async t => {
  const { tree, store } = setup(t)
  const state = new UiState(store)
  await state.read()
  t.notOk(existsSync(tree.path('.svc')))
  await state.change(() => ({ a: 1 }))
  t.equal(statSync(tree.path(FILE)).mode & 0o777, 0o600)
  await state.change(() => ({}))
  t.notOk(existsSync(tree.path(FILE)))
})

t.test('[control/console-store.4] bytes that are no text, and a folder in its place, are no state', async t => {
  const { tree, store } = setup(t)
  tree.write({ [FILE]: Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]) as never })
  t.match(await new UiState(store).read(), { values: {}, problem: /is not UTF-8/ })
  const other = setup(t)
  other.tree.write({ [`${FILE}/x`]: '' })
  t.match(await new UiState(other.store).read(), { values: {}, problem: /cannot be read/ })
})

import t, { type Test } from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { PackageSets } from '../../lib/dependencies/package-set.ts'
import { installError, passingError, ToolFailure } from '../../lib/dependencies/tool-failure.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

const LASTING = installError('no package x', { file: 'a/requirements.txt', line: 1 })

function makeBed(t: Test) {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const clock = new FakeClock()
  const sets = new PackageSets(tree.root, { clock, isPrivate: false })
  /** True when a folder that asks for a set makes it be tried; it fails with the error. */
  const isTried = async (folder: string, error: Error, { signature = '1', key = 'set' } = {}): Promise<boolean> => {
    let tried = false
    const fill = async () => {
      tried = true
      throw error
    }
    const { signal } = new AbortController()
    const request = { runtime: 'python', key, user: null, signal, asker: { folder, signature }, fill }
    await t.rejects(sets.ensure(request), { message: error.message })
    return tried
  }
  return { clock, isTried }
}

t.test('[dependencies/install.9] all folders get the failure of a set, until one of them has changed', async t => {
  const { isTried } = makeBed(t)
  t.ok(await isTried('a', LASTING))
  t.notOk(await isTried('a', LASTING))
  t.notOk(await isTried('b', LASTING, { signature: 'its own' }))
  t.notOk(await isTried('c', LASTING))
  t.ok(await isTried('a', LASTING, { key: 'other' }))
  t.ok(await isTried('c', LASTING, { signature: '2' }), 'a folder that got it has changed')
  t.notOk(await isTried('a', LASTING))
})

t.test('[dependencies/install.9] folders that ask while a set is filled share its failure', async t => {
  const { isTried } = makeBed(t)
  t.same(await Promise.all(['a', 'b'].map(folder => isTried(folder, LASTING))), [true, false])
  t.ok(await isTried('b', LASTING, { signature: '2' }))
})

t.test('[dependencies/install.9] a failure that may pass is tried again after 10 s', async t => {
  for (const [error, isPassing] of [
    [passingError('no network'), true],
    [new Error('ENOSPC'), true],
    [new GatewayError('RUNTIME_DOWN', 'runtime down'), true],
    [new ToolFailure('no network', { kind: 'passing' }), true],
    [new ToolFailure('no package', { kind: 'lasting' }), false],
    [LASTING, false],
  ] as const) {
    const { clock, isTried } = makeBed(t)
    await isTried('a', error)
    clock.advance(9_999)
    t.notOk(await isTried('a', error), error.message)
    clock.advance(1)
    t.equal(await isTried('a', error), isPassing, error.message)
  }
})

t.test('[dependencies/install.9] the failures of a thousand sets are remembered', async t => {
  const { isTried } = makeBed(t)
  for (let at = 0; at <= 1000; at++) await isTried('a', LASTING, { key: `set${at}` })
  t.notOk(await isTried('a', LASTING, { key: 'set1' }))
  t.notOk(await isTried('a', LASTING, { key: 'set1000' }))
  t.ok(await isTried('a', LASTING, { key: 'set0' }), 'the oldest is forgotten')
})

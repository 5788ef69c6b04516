import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { FailedSets } from '../../lib/dependencies/package-set.ts'
import { installError, passingError } from '../../lib/dependencies/install-step.ts'
import { FakeClock } from '../helpers/clock.ts'

const asker = (folder: string, signature = '1') => ({ folder, signature })
const LASTING = installError('no package x', { file: 'a/requirements.txt', line: 1 })

/** True when the set is to be tried. */
function isTried(failed: FailedSets, folder: string, signature?: string): boolean {
  try {
    failed.check('set', asker(folder, signature))
    return true
  } catch {
    return false
  }
}

t.test('[dependencies/install.9] everyone who wants the set is told, until one of them has changed', async t => {
  const failed = new FailedSets(new FakeClock())
  t.ok(isTried(failed, 'a'))
  failed.note('set', asker('a'), LASTING)
  t.throws(() => failed.check('set', asker('a')), LASTING)
  t.throws(() => failed.check('set', asker('b', 'its own')), LASTING)
  failed.note('set', asker('c'), LASTING)
  failed.check('other', asker('a'))
  t.ok(isTried(failed, 'c', '2'), 'who waited for it was told too')
  t.ok(isTried(failed, 'a'), 'it goes on')
  failed.note('set', asker('a'), LASTING)
  failed.forget('set')
  t.ok(isTried(failed, 'a'))
})

t.test('[dependencies/install.9] what may pass is tried again after 10 s', async t => {
  const clock = new FakeClock()
  const failed = new FailedSets(clock)
  for (const [error, isPassing] of [
    [passingError('no network'), true],
    [new Error('ENOSPC'), true],
    [new GatewayError('RUNTIME_DOWN', 'runtime down'), true],
    [LASTING, false],
  ] as const) {
    failed.note('set', asker('a'), error)
    clock.advance(9_999)
    t.notOk(isTried(failed, 'a'), error.message)
    clock.advance(1)
    t.equal(isTried(failed, 'a'), isPassing, error.message)
  }
})

t.test('[dependencies/install.9] a million failures are not all remembered', async t => {
  const failed = new FailedSets(new FakeClock())
  for (let at = 0; at <= 1000; at++) failed.note(`set ${at}`, asker('a'), new Error(`no ${at}`))
  failed.check('set 0', asker('a'))
  t.throws(() => failed.check('set 1', asker('a')))
  t.throws(() => failed.check('set 1000', asker('a')))
})

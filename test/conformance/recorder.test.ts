import t from 'tap'
import { Recorder } from '../../conformance/recorder.ts'

/** Whether one check finds it right. */
function isRight(check: (recorder: Recorder) => void): boolean {
  const recorder = new Recorder()
  check(recorder)
  t.equal(recorder.count, 1)
  return recorder.failures.length === 0
}

t.test('[bin/conformance.3] checks are exact, and patterns ask for what they have', async () => {
  const rows: readonly [name: string, check: (r: Recorder) => void, right: boolean][] = [
    ['ok', r => r.ok(1), true],
    ['not ok', r => r.ok(0), false],
    ['notOk', r => r.notOk(''), true],
    ['not notOk', r => r.notOk('x'), false],
    ['equal', r => r.equal(1, 1), true],
    ['equal is strict', r => r.equal(1, '1'), false],
    ['same is deep', r => r.same({ a: [1, { b: null }] }, { a: [1, { b: null }] }), true],
    ['same wants nothing more', r => r.same({ a: 1, b: 2 }, { a: 1 }), false],
    ['same tells null from nothing', r => r.same({ a: undefined }, { a: null }), false],
    ['a pattern', r => r.match('a file', /^a /), true],
    ['a pattern of nothing', r => r.match(undefined, /undefined/), false],
    ['a text is held', r => r.match('a file', 'fil'), true],
    ['a text by a number', r => r.match(5, '5'), false],
    ['fields', r => r.match({ a: { b: 'xyz', c: 1 }, d: 1 }, { a: { b: /y/ } }), true],
    ['a field that is not there', r => r.match({ a: 1 }, { b: null }), false],
    ['a field of nothing', r => r.match(null, { b: 1 }), false],
    ['items', r => r.match(['one', 'two'], [/o/]), true],
    ['notMatch', r => r.notMatch('a', /b/), true],
    ['not notMatch', r => r.notMatch('b', /b/), false],
    ['what broke', r => r.broke(new Error('socket hang up')), false],
  ]
  for (const [name, check, right] of rows) t.equal(isRight(check), right, name)
})

t.test(
  '[bin/conformance.3] a failure says what was found and what was wanted; what is lacking is no failure',
  async t => {
    const recorder = new Recorder()
    recorder.same([1], [2], 'numbers')
    recorder.pass('a part', { skip: 'a reason' })
    recorder.broke(Object.assign(new Error(''), { code: 'ECONNRESET' }))
    t.same(recorder.failures, [
      { name: 'numbers', found: [1], wanted: [2] },
      { name: 'it could be asked', found: 'ECONNRESET', wanted: 'an answer' },
    ])
    t.same(recorder.lacking, ['a part: a reason'])
  },
)

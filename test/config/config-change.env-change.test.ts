import t from 'tap'
import { changeEnv } from '../../lib/config/config-change.ts'

const change = (before: unknown, body: Record<string, unknown>, foreign: string[] = []) => {
  const result = changeEnv(before === null ? null : JSON.stringify(before), body, new Set(foreign))
  return result.ok ? (JSON.parse(result.text) as unknown) : result
}
const secret = (value: unknown) => ({ value, is_secret: true })
const shown = (value: unknown) => ({ value, is_secret: false })

t.test('[control/function-env.1, control/function-env.2] scalars, objects and null', t => {
  const cases: [before: unknown, body: Record<string, unknown>, after: unknown][] = [
    [null, { A: 'x', B: 5, C: true }, { A: 'x', B: 5, C: true }],
    [{ A: 'x', B: 1 }, { A: null }, { B: 1 }],
    [{ A: 'x' }, { A: { value: null } }, {}],
    [{ A: 'x' }, { B: null }, { A: 'x' }],
    [null, { A: secret('x'), B: shown('y') }, { A: secret('x'), B: shown('y') }],
    [{ A: secret('x') }, { A: 'y' }, { A: secret('y') }],
    [{ A: secret('x') }, { A: { value: 'y' } }, { A: secret('y') }],
    [{ MY_TOKEN: shown('x') }, { MY_TOKEN: 'y' }, { MY_TOKEN: shown('y') }],
    [null, { MY_TOKEN: 'y' }, { MY_TOKEN: 'y' }],
    [null, { A: { value: 'y' } }, { A: 'y' }],
    [{ A: 'x' }, { A: secret('y') }, { A: secret('y') }],
    [{ A: secret('x') }, { A: shown('y') }, { A: shown('y') }],
    [
      { $schema: 's', A: null },
      { $schema: 't', A: 1 },
      { $schema: 's', A: 1 },
    ],
    [
      JSON.parse('{"__proto__": 1}'),
      JSON.parse('{"__proto__": 2, "constructor": "c"}'),
      JSON.parse('{"__proto__": 2, "constructor": "c"}'),
    ],
  ]
  for (const [before, body, after] of cases) t.same(change(before, body), after, JSON.stringify(body))
  t.equal(JSON.stringify(change(JSON.parse('{"__proto__": 1}'), JSON.parse('{"__proto__": 2}'))), '{"__proto__":2}')
  t.end()
})

t.test('[control/function-env.3] a hidden value that is sent back keeps the value, and never shows it', t => {
  const before = { A: secret('x'), MY_TOKEN: 'y', C: 'open' }
  t.same(change(before, { A: secret('<hidden>'), MY_TOKEN: '<hidden>', C: shown('z') }), { ...before, C: shown('z') })
  t.same(change({ C: 'open' }, { C: { value: '<hidden>', is_secret: true } }), { C: secret('open') })
  t.match(change(before, { A: shown('<hidden>') }), {
    ok: false,
    problems: [/"A" cannot be shown from now on without/],
  })
  t.match(change(before, { MY_TOKEN: shown('<hidden>') }), { ok: false })
  t.match(
    change({ A: { value: 'x', is_secret: 'yes' } }, { A: shown('<hidden>') }),
    { ok: false },
    'a broken flag hides',
  )
  t.match(change(before, { NEW: '<hidden>' }), { ok: false, problems: [/"NEW" is new, and <hidden> stands for/] })
  t.same(change(before, { OUTSIDE: secret('<hidden>') }, ['OUTSIDE']), before, 'a value of the project stays there')
  t.end()
})

t.test('[control/function-env.4] a wrong entry names the key and the rule, never a value', t => {
  const cases: [body: Record<string, unknown>, problem: RegExp][] = [
    [{ A: ['planted'] }, /^body: A must be a text, number, boolean or \{ value, is_secret \}, got an array/],
    [{ A: { is_secret: true } }, /^body: A must be .*got an object$/],
    [{ A: { value: { planted: 1 } } }, /^body: A.value must be/],
    [{ A: { value: 'planted', is_secret: 'yes' } }, /^body: A.is_secret must be true or false, got a hidden value/],
    [{ A: 'planted\0' }, /^body: A must be a text without NUL/],
    [{ '': 'planted' }, /under a key of 1 to 256 characters/],
    [{ 'A=B': 'planted' }, /under a key of 1 to 256 characters without =/],
  ]
  for (const [body, problem] of cases) {
    const result = change({ B: 1 }, body)
    t.match(result, { ok: false, problems: [problem] }, JSON.stringify(body))
    t.notMatch(JSON.stringify(result), 'planted')
  }
  t.end()
})

import t from 'tap'
import { editJsonObject, findIndent, findJsonValue, toJsonAt } from '../../lib/config/json-text.ts'
import { createRandom } from '../helpers/random.ts'

const FILE = `{
    "$schema": "x",
    "mine": [1, 2, { "a": "}" }],

    "timeout_ms": 2500, "invoke": { "methods": ["GET"] }
}
`

const edit = (text: string | null, edits: Record<string, string | null>, depth = 0) =>
  editJsonObject(text, new Map(Object.entries(edits)), findIndent(text), depth)

t.test('[control/function-config.5] what is not changed stays as it is written', t => {
  t.equal(edit(FILE, {}), FILE.trim())
  t.equal(edit(FILE, { timeout_ms: '9' }), FILE.trim().replace('2500', '9'))
  t.equal(edit(FILE, { mine: null }), FILE.trim().replace('\n    "mine": [1, 2, { "a": "}" }],', ''))
  t.equal(edit('{ "a": 1, "b": 2 }', { b: null, c: '3' }), '{ "a": 1, "c": 3 }')
  t.equal(edit('{"a":1}', { a: null }), '{}')
  t.equal(edit('{\n\t"a": 1\n}', { b: '2' }), '{\n\t"a": 1,\n\t"b": 2\n}')
  t.equal(edit(null, { a: '1', b: '{}' }), '{\n  "a": 1,\n  "b": {}\n}')
  t.equal(edit('{}', { a: '1' }, 1), '{\n    "a": 1\n  }')
  t.equal(edit('{"a":1,"b":2,"a":3}', { a: '4' }), '{"b":2,"a":4}', 'of a repeated key the last one counts')
  t.equal(edit('{"__proto__":1}', { toString: '2' }), '{"__proto__":1,"toString": 2}')
  t.equal(edit('{"\\u0061": "\\"}\\\\", "b":-1e3}', { b: 'true' }), '{"\\u0061": "\\"}\\\\", "b":true}')
  t.equal(edit('{"\\u0061": 1}', { a: '2' }), '{"\\u0061": 2}', 'however the key is written')
  t.end()
})

t.test('[control/function-config.5] values are found, indentation too', t => {
  t.equal(findJsonValue(FILE, 'invoke'), '{ "methods": ["GET"] }')
  t.equal(findJsonValue(FILE, 'none'), null)
  t.same([FILE, '{"a":1}', null, '{\n\t"a":1}'].map(findIndent), ['    ', '  ', '  ', '\t'])
  t.equal(toJsonAt({ a: [1] }, '  ', 1), '{\n    "a": [\n      1\n    ]\n  }')
  t.end()
})

/** Texts are compared: some engines read keys of one escaped character as others (nodejs/node#63785). */
const withoutBlanks = (json: string): string => json.replace(/("(?:\\.|[^"\\])*")|\s+/g, '$1')

t.test('[control/function-config.5] whatever is edited, the text says the same as the edited value', t => {
  const random = createRandom(7)
  const keys = ['a', 'b c', '"', '\\', '}', '', 'é', '1']
  const toValue = (depth: number): unknown =>
    [1, null, 'x"}', '\\', [1, [2]], true][random(6)] ?? (depth > 2 ? 0 : { [keys[random(8)]!]: toValue(depth + 1) })
  const pick = () => Object.fromEntries(Array.from({ length: random(5) }, () => [keys[random(8)]!, toValue(0)]))
  for (let round = 0; round < 500; round++) {
    const before = pick()
    const changes = pick()
    const text = JSON.stringify(before, null, [undefined, '  ', '\t', 4][random(4)])
    const edits = new Map(
      Object.entries(changes).map(([key, value]) => [key, value === null ? null : JSON.stringify(value)]),
    )
    const wanted = new Map(Object.entries(before))
    for (const [key, value] of Object.entries(changes)) {
      if (value === null) wanted.delete(key)
      else wanted.set(key, value)
    }
    const pairs = [...wanted].map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`)
    const after = editJsonObject(text, edits, '  ')
    if (!t.equal(withoutBlanks(after), `{${pairs.join(',')}}`, undefined as never)) break
  }
  t.end()
})

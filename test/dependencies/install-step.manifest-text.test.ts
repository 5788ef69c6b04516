import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { JsonManifest, readBeside, showToken } from '../../lib/dependencies/install-step.ts'

t.test('[dependencies/install.13] one word is shown, and no secret around it', t => {
  const cases: [value: unknown, shown: string][] = [
    ['left@1 # planted', '"left@1"'],
    ['STOLEN=planted', '"STOLEN"'],
    ['https://user:planted@host/x?token=planted#planted', '"https://host/x"'],
    ['a'.repeat(81), `"${'a'.repeat(80)}..."`],
    [{ planted: 'planted' }, 'an object'],
    [['planted'], 'a list'],
    [5, '5'],
    [null, 'null'],
  ]
  for (const [value, shown] of cases) t.equal(showToken(value), shown)
  t.end()
})

t.test('[dependencies/node.7] a manifest is read up to a bound; errors name its line', t => {
  const folder = t.testdir({ small: '\uFEFF{ "a": 1 }' })
  const read = (name: string) => readBeside(folder, 'f', name, (text, label) => `${label} ${text}`)
  t.equal(read('small'), 'f/small { "a": 1 }')
  t.equal(read('none'), null)
  writeFileSync(join(folder, 'big'), ' '.repeat(8 * 1024 * 1024 + 1))
  t.throws(() => read('big'), { message: /f\/big has 8388609 bytes/ })
  t.same(new JsonManifest('{ "a": 1 }', 'f/small', 'a').json, { a: 1 })
  t.throws(() => new JsonManifest('[]', 'f/small', 'a'), { message: /f\/small: must be a JSON object/ })
  const manifest = new JsonManifest('{\n"left": 1 }', 'f/small', 'a')
  t.match(manifest.error('wrong', 'left', 'mend it'), {
    message: /f\/small:2: wrong/,
    detail: { line: 2 },
  })
  t.end()
})

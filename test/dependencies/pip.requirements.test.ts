import t from 'tap'
import { parseInline, parseRequirements, toPackageName } from '../../lib/dependencies/pip.ts'

t.test('[dependencies/python.2] names with versions, extras, conditions and hashes are requirements', async t => {
  const text = [
    '# comment',
    'requests>=2.31,<3   # why',
    'Flask[async, dotenv] ~= 3.0',
    'numpy == 1.26.* ; python_version < "3.13" and platform_system != "Windows"',
    'a_b.C (>=1)',
    'pinned==1.0 \\',
    '    --hash=sha256:00ff',
    '',
    'last',
  ].join('\r\n')
  const { named, odd } = parseRequirements(`\ufeff${text}`)
  t.same(odd, [])
  t.same(
    named.map(({ name, line }) => `${line} ${name}`),
    ['2 requests', '3 flask', '4 numpy', '5 a-b-c', '6 pinned', '9 last'],
  )
  t.match(named[4]?.text, /^pinned==1\.0\s+--hash=sha256:00ff$/)
  t.equal(toPackageName('A__b.-C'), 'a-b-c')
})

const ODD: [text: string, kind: string][] = [
  ['--index-url https://evil.example', 'option'],
  ['-e .', 'option'],
  ['-r other.txt', 'option'],
  ['-requests', 'option'],
  ['--index-url=https://evil.example', 'option'],
  ['https://evil.example/a.whl', 'address'],
  ['git+ssh://git@host/x.git', 'address'],
  ['a @ https://evil.example/a.whl', 'address'],
  ['a @ file:///etc/passwd', 'address'],
  ['./local', 'address'],
  ['../up', 'address'],
  ['/abs/a.tar.gz', 'address'],
  ['pack.whl', 'address'],
  ['pack-1.0.tar.gz', 'address'],
  ['~/mine', 'address'],
  ['C:\\mine', 'address'],
  ['a; rm -rf /', 'unreadable'],
  ['$(id)', 'unreadable'],
  ['`id`', 'unreadable'],
  ['a b', 'unreadable'],
  ['a --pre', 'unreadable'],
  ['a\u0000b', 'unreadable'],
  ['$HOME', 'unreadable'],
  ['a>=', 'unreadable'],
  ['_a', 'unreadable'],
  ['a; b; c', 'unreadable'],
  ['имя', 'unreadable'],
]

t.test('[dependencies/python.3] what could lead an installer elsewhere is no requirement', async t => {
  for (const [text, kind] of ODD) t.match(parseRequirements(text), { named: [], odd: [{ text, line: 1, kind }] }, text)
})

t.test('[dependencies/python.2] comments of the first 30 lines are merged', async t => {
  const source = [
    '#!/usr/bin/env python3',
    '#@requirements requests >= 2.31, < 3 flask[async, x]==3',
    '  # @requirements one, two',
    '#@requirementsless three',
    'x = "#@requirements four"',
    ...Array.from({ length: 24 }, () => '#'),
    '#@requirements line30',
    '#@requirements line31',
  ].join('\n')
  const { named, odd } = parseInline(source)
  t.same(odd, [])
  t.same(
    named.map(({ text, line }) => `${line} ${text}`),
    ['2 requests>=2.31,<3', '2 flask[async,x]==3', '3 one', '3 two', '30 line30'],
  )
  for (const text of ['--index-url=x', '-e', '../up', 'a@https://x'])
    t.match(parseInline(`#@requirements ${text}`), { named: [], odd: [{ line: 1 }] }, text)
})

t.test('[dependencies/python.16] long and odd lines are refused, and none takes long to read', async t => {
  const long: [text: string, kind: string | null][] = [
    [`alpha${' '.repeat(60_000)}x`, 'unreadable'],
    [`alpha${' \\\n'.repeat(60_000)}`, null],
    [`alpha${' '.repeat(60_000)}--hash=sha256:00`, null],
    ['a'.repeat(70_000), 'unreadable'],
    [`alpha==${'1.'.repeat(40_000)}`, 'unreadable'],
    ['alpha\u000c--index-url http://x', 'address'],
    ['alpha\u0085-e .', 'unreadable'],
    ['alpha\u2028-e .', 'unreadable'],
  ]
  for (const [index, [text, kind]] of long.entries()) {
    const { named, odd } = parseRequirements(text)
    t.same([named.length, odd[0]?.kind ?? null], kind === null ? [1, null] : [0, kind], `case ${index}`)
    t.ok((odd[0]?.text.length ?? 0) < 300, 'what is shown of it is short')
  }
  t.match(parseInline('#@requirements alpha\u2028-e\u2028.\n').odd, [{ kind: 'option' }, { kind: 'address' }])
})

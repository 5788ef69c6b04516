import t from 'tap'
import { type Setting, toGroups, toSourceText, toValueText } from '../../console/pages/settings/setting-list.ts'
import { SWITCHES, toWarning } from '../../console/pages/settings/switches.ts'

const setting = (name: string, section: string, kind: string, more: Partial<Setting> = {}): Setting => ({
  ...{ name, section, env: `FN_${name.toUpperCase()}`, flag: null, key: name, unit: null, value: 1, default: null },
  ...{ source: { kind, name: null }, meaning: `What ${name} is.`, ...more },
})
const SETTINGS = [
  setting('port', 'Gateway', 'env'),
  setting('host', 'Gateway', 'default', { value: '127.0.0.1', flag: '--host' }),
  setting('timeout', 'Limits', 'default'),
  setting('queue', 'Limits', 'file'),
]

const shown = (search: string) =>
  toGroups(SETTINGS, search).map(({ title, settings }) => [title, ...settings.map(({ name }) => name)])

t.test('[console/settings.1] what somebody set comes first, the rest by section', async t => {
  t.same(shown(''), [
    ['Changed', 'port', 'queue'],
    ['Gateway', 'host'],
    ['Limits', 'timeout'],
  ])
})

t.test('[console/settings.2] every word of a search has to be in it', async t => {
  t.same(shown('FN_HOST'), [['Gateway', 'host']])
  t.same(shown('  127.0 '), [['Gateway', 'host']])
  t.same(shown('--host what'), [['Gateway', 'host']])
  t.same(shown('limits'), [
    ['Changed', 'queue'],
    ['Limits', 'timeout'],
  ])
  t.same(shown('limits host'), [])
})

t.test('[console/settings.1] values have their unit, and sources say where they stand', async t => {
  for (const [value, unit, text] of [
    [null, 'ms', 'not set'],
    [2500, 'ms', '2500 ms'],
    [1048576, 'bytes', '1048576 bytes (1 MiB)'],
    [512, 'bytes', '512 bytes'],
    [false, null, 'false'],
    ['a', null, 'a'],
    [[], null, 'none'],
    [['a', 'b'], null, 'a, b'],
    [{}, null, 'none'],
    [{ node: 2, php: ['x'] }, null, 'node=2, php=["x"]'],
  ] as const)
    t.equal(toValueText(value, unit), text)
  for (const [source, text] of [
    [{ kind: 'default', name: null }, 'default'],
    [{ kind: 'env', name: 'FN_PORT' }, 'variable FN_PORT'],
    [{ kind: 'dotenv', name: 'FN_PORT', file: '.env' }, 'variable FN_PORT in .env'],
    [{ kind: 'flag', name: '--port' }, 'flag --port'],
    [{ kind: 'file', name: 'port', file: 'fngw.json' }, 'key port in fngw.json'],
    [{ kind: 'option', name: 'options.port' }, 'options.port'],
  ])
    t.equal(toSourceText(source as Setting['source']), text)
})

t.test('[console/settings.3] it is told what is lost before a switch is turned', async t => {
  const warningOf = (name: string, isOn: boolean) => toWarning(SWITCHES.find(one => one.name === name)!, isOn)
  t.match(warningOf('local_only', true), /reachable from other machines/)
  t.equal(warningOf('local_only', false), null)
  t.match(warningOf('ui_enabled', true), /charts/)
  t.match(warningOf('write_enabled', false), /their secrets/)
})

import t from 'tap'
import { toBanner, toWarningText } from '../../bin/banner.ts'
import type { Warning } from '../../lib/core/errors.ts'
import { PUBLISH_TOOL } from '../../lib/discovery/layouts.ts'
import type { Gateway } from '../../lib/index.ts'
import { toPrintable } from '../../lib/observe/log-text.ts'

const output = { clean: toPrintable, style: (_style: unknown, text: string) => text }

interface Facts {
  routes?: number
  warnings?: Warning[]
  ignored?: { path: string; reason: string }[]
  runtimes?: Record<string, { health: { up: boolean; reason: string } }>
}

function banner({ routes = 0, warnings = [], ignored = [], runtimes = {} }: Facts): string {
  const entries = Array.from({ length: routes }, (_, i) => [
    `/r${String(i).padStart(3, '0')}`,
    [{ runtime: 'node', methods: ['GET'], file: `r${i}.js` }],
  ])
  const gateway = {
    settings: { functionsRoot: '/srv/f\nFAKE' },
    warnings,
    health: () => ({ runtimes, functions: { states: [{ runtime: 'node' }] } }),
    catalog: () => ({
      mapped_routes: Object.fromEntries(entries),
      mapped_route_conflicts: {},
      homes: [],
      runtimes: {},
      ignored,
    }),
  } as unknown as Gateway
  return toBanner({ gateway, url: 'http://h:1', version: '1.2.3', program: 'npx fngw', output: output as never })
}

t.test('[bin/dev.1, bin/dev.16] what is served: version, address, root, routes', async t => {
  const text = banner({ routes: 2 })
  t.match(text, /^fngw 1\.2\.3 {2}http:\/\/h:1\n {2}root {6}\/srv\/f\\nFAKE\n/)
  t.match(text, /METHODS {2}PATH {3}RUNTIME {2}FILE\n {2}GET {6}\/r000 {2}node {5}r0\.js\n/)
  t.match(banner({}), /no routes yet: npx fngw init hello/)
  const many = banner({ routes: 23 })
  t.match(many, /r19\.js\n {2}\.\.\. 3 more: npx fngw routes\n/)
  t.notMatch(many, /r20\.js/)
})

t.test('[bin/dev.16] runtimes that have functions, and those that are down', async t => {
  const up = { health: { up: true, reason: 'ok' } }
  const down = { health: { up: false, reason: 'php not found' } }
  t.match(banner({ runtimes: { node: up, python: up, php: down } }), /runtimes {2}node, php \(php not found\)\n/)
  t.match(banner({}), /runtimes {2}none\n/)
})

t.test('[bin/dev.16] files of tests and tools in one line', async t => {
  const tools = ['a_test.py', 'setup.py', 'conftest.py', 'vite.config.ts'].map(path => ({
    path,
    reason: `x; ${PUBLISH_TOOL}`,
  }))
  const ignored = [{ path: '_x.js', reason: 'private' }, ...tools]
  t.match(
    banner({ ignored }),
    /no routes a_test\.py, setup\.py, conftest\.py and 1 more: .*npx fngw explain GET \/a_test\n/,
  )
  t.notMatch(banner({ ignored: ignored.slice(0, 1) }), /no routes _x/)
})

t.test('[bin/dev.1, bin/dev.16] warnings with their fix, at most 20', async t => {
  const warning: Warning = { code: 'X', path: 'a', message: 'bad\nFAKE', hint: 'mend\u001b[2J' }
  t.equal(toWarningText(warning, output as never), 'warning X: bad\\nFAKE\n  fix: mend\\x1b[2J')
  const text = banner({ warnings: Array.from({ length: 25 }, () => warning) })
  t.equal(text.match(/warning X/g)?.length, 20)
  t.match(text, /\.\.\. 5 more warnings: npx fngw routes/)
})

import t from 'tap'
import { toBanner, toWarningText } from '../../bin/banner.ts'
import type { Warning } from '../../lib/core/errors.ts'
import type { Gateway } from '../../lib/index.ts'
import { toPrintable } from '../../lib/observe/log-line.ts'

const output = { clean: toPrintable, style: (_style: unknown, text: string) => text }

interface Facts {
  routes?: number
  warnings?: Warning[]
  runtimes?: Record<string, { version?: string; health: { up: boolean; reason: string } }>
  uiEnabled?: boolean
  control?: string | null
  schedules?: Record<string, object>
}

function banner({
  routes = 0,
  warnings = [],
  runtimes = {},
  uiEnabled = true,
  control = null,
  schedules = {},
}: Facts): string {
  const entries = Array.from({ length: routes }, (_, i) => [
    `/r${String(i).padStart(3, '0')}`,
    [{ runtime: 'node', methods: ['GET'], file: `r${i}.js` }],
  ])
  const gateway = {
    settings: { functionsRoot: '/srv/f\nFAKE', uiEnabled, schedulerEnabled: true },
    explain: () => ({ beside: uiEnabled ? { kind: 'document' } : null }),
    warnings,
    health: () => ({ runtimes, functions: { states: [{ runtime: 'node' }] } }),
    catalog: () => ({
      mapped_routes: Object.fromEntries(entries),
      mapped_route_conflicts: {},
      homes: [],
      runtimes: {
        node: {
          functions: Object.entries(schedules).map(([name, schedule]) => ({
            name,
            file: null,
            policy: { schedule },
            version_files: {},
            versions_policy: {},
          })),
        },
      },
      ignored: [],
    }),
  } as unknown as Gateway
  return toBanner({
    gateway,
    url: 'http://h:1',
    control,
    version: '1.2.3',
    program: 'npx fngw',
    output: output as never,
  })
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

t.test('[bin/dev.16] schedules with their rules', async t => {
  const on = { enabled: true, timezone: 'UTC' }
  const schedules = { sync: { ...on, every_seconds: 60 }, report: { ...on, cron: '@daily' }, off: { enabled: false } }
  t.match(banner({ schedules }), /\n\n {2}SCHEDULE {2}RULE\n {2}sync {6}every 60 s\n {2}report {4}@daily \(UTC\)\n\n?$/)
  t.notMatch(banner({}), /SCHEDULE/)
})

t.test('[bin/dev.22] the addresses of the documentation and the console', async t => {
  t.match(banner({}), /\n {2}docs {6}http:\/\/h:1\/docs\n {2}console {3}http:\/\/h:1\/console\n/)
  t.match(banner({ control: 'http://h:2' }), / {2}console {3}http:\/\/h:2\/console\n/)
  t.notMatch(banner({ uiEnabled: false }), /docs|console/, 'only what is served')
})

t.test('[bin/dev.16] runtimes that have functions, and those that are down', async t => {
  const up = { version: '22.1.0', health: { up: true, reason: 'ok' } }
  const down = { health: { up: false, reason: 'php not found' } }
  t.match(
    banner({ runtimes: { node: up, python: up, php: down } }),
    /runtimes {2}node 22\.1\.0, php \(php not found\)\n/,
  )
  t.match(banner({}), /runtimes {2}none\n/)
})

t.test('[bin/dev.1, bin/dev.16] warnings with their fix, at most 20', async t => {
  const warning: Warning = { code: 'X', path: 'a', message: 'bad\nFAKE', hint: 'mend\u001b[2J' }
  t.equal(toWarningText(warning, output as never), 'warning X: bad\\nFAKE\n  fix: mend\\x1b[2J')
  const text = banner({ warnings: Array.from({ length: 25 }, () => warning) })
  t.equal(text.match(/warning X/g)?.length, 20)
  t.match(text, /\.\.\. 5 more warnings: npx fngw routes/)
})

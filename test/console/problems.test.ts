import t from 'tap'
import type { Catalog } from '../../console/data/records.ts'
import { toProblems } from '../../console/pages/overview/problems.ts'

const claim = (name: string, version: string | null, methods: string[]) => ({
  ...{ runtime: 'node', name, fn_name: name, version, methods, source: 'config', source_rank: 3 },
  ...{ force_url: false, file: `${name}/handler.js`, origin: `${name}/fn.config.json` },
})
const CATALOG = {
  generated_at: 1,
  runtime_order: ['node'],
  mapped_routes: {},
  mapped_route_conflicts: { '/x': [claim('a', null, ['GET', 'POST']), claim('b', 'v2', ['GET', 'PUT'])] },
  runtimes: {
    node: {
      functions: [
        { name: 'a', has_default: true, versions: [], file: 'a/handler.js' },
        { name: 'b', has_default: false, versions: ['v2'], file: null, version_files: { v2: 'b/v2/handler.js' } },
        { name: 'get.x', has_default: true, versions: [], file: 'files/get.x.js' },
        { name: 'post.x', has_default: true, versions: [], file: 'files/post.x.js' },
      ],
    },
  },
  warnings: [
    {
      code: 'CONFIG_VALUE',
      path: 'a/fn.config.json',
      message: 'a/fn.config.json: timeout_ms is wrong',
      hint: 'Mend it.',
    },
    {
      code: 'ROUTE_CONFLICT',
      path: 'a/fn.config.json',
      message: 'GET /x is claimed with equal right',
      hint: 'Rename one.',
    },
    { code: 'ENV_VALUE', path: 'b/v2/fn.env.json', message: 'no text' },
    { code: 'CONFIG_VALUE', path: 'files/fn.config.json', message: 'of two functions' },
    { code: 'HANDLER', path: 'files/get.x.js', message: 'exports nothing' },
    { code: 'ROOT', path: '', message: 'of no file' },
  ],
} as Catalog

t.test('[console/overview.4] warnings with their file, and where it is shown', async t => {
  const { warnings } = toProblems(CATALOG)
  t.same(
    warnings.map(({ path, href, message, hint }) => [path, href, message, hint]),
    [
      ['a/fn.config.json', '/console/functions/node/a@default?tab=config', 'timeout_ms is wrong', 'Mend it.'],
      ['b/v2/fn.env.json', '/console/functions/node/b@v2?tab=env', 'no text', null],
      ['files/fn.config.json', null, 'of two functions', null],
      ['files/get.x.js', '/console/functions/node/get.x@default?tab=code', 'exports nothing', null],
      ['', null, 'of no file', null],
    ],
  )
})

t.test('[console/overview.4] a conflict names every claim, and the methods that are disputed', async t => {
  t.same(toProblems(CATALOG).conflicts, [
    {
      route: '/x',
      methods: 'GET',
      hint: 'Rename one.',
      claims: [
        {
          key: 'node/a@default',
          href: '/console/functions/node/a@default',
          path: 'a/fn.config.json',
          source: 'by its config',
        },
        {
          key: 'node/b@v2',
          href: '/console/functions/node/b@v2',
          path: 'b/fn.config.json',
          source: 'by its config',
        },
      ],
    },
  ])
})

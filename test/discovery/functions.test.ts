import t from 'tap'
import { NO_OUTER_ENV, parseFunctionEnv } from '../../lib/config/function-env.ts'
import { parseFunctionConfig } from '../../lib/config/function-config.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import type { Warning } from '../../lib/core/errors.ts'
import { FunctionMaker, type Handler, NO_HELPERS } from '../../lib/discovery/functions.ts'
import { discoverTree, OPTIONS } from '../helpers/discovery.ts'

const config = (json: unknown) => parseFunctionConfig(JSON.stringify(json), '').value
const maker = (known: FunctionVersion[] = [], outerEnv = NO_OUTER_ENV) =>
  new FunctionMaker('/srv', OPTIONS.defaults, new Map(known.map(fn => [fn.key, fn])), outerEnv)
const HANDLER: Handler = {
  runtime: 'python',
  folder: 'a/src',
  file: { name: 'app.py', size: 1, mtimeMs: 1000 },
  fnFolder: 'a',
  layers: [],
  env: parseFunctionEnv('{}', '').value.env,
  envProblem: null,
  helpers: NO_HELPERS,
  schema: null,
  manifests: '',
}
const IDENTITY = { name: 'a', version: null, kind: 'function' } as const
const make = (handler: Partial<Handler> = {}, known: FunctionVersion[] = []) =>
  maker(known).make({ ...HANDLER, ...handler }, IDENTITY, { kind: 'function' }, true)

t.test('[core/identity.6, discovery/entry-file.1] what a function version is made of', async t => {
  const fn = make()
  t.match(fn, {
    key: 'python/a@default',
    runtime: 'python',
    name: 'a',
    version: null,
    kind: 'function',
    fnDir: '/srv/a',
    entryPath: '/srv/a/src/app.py',
    entryFile: 'a/src/app.py',
    callable: { names: ['handler', 'main'] },
  })
  t.ok(Object.isFrozen(fn))
  t.ok(Object.isFrozen(fn.policy))
  const version = maker().make(HANDLER, { ...IDENTITY, version: 'v2' }, { kind: 'version' }, true)
  t.equal(version.key, 'python/a@v2')
})

t.test('[discovery/layouts.2] nothing changed is the same object, anything changed another', async t => {
  const before = make()
  t.equal(make({}, [before]), before)
  t.not(make({ file: { ...HANDLER.file, size: 2 } }, [before]), before)
  t.not(make({ layers: [config({ timeout_ms: 5 })] }, [before]), before)
  t.not(make({ helpers: { ...NO_HELPERS, python: 'x' } }, [before]).signature, before.signature)
  t.equal(make({ helpers: { ...NO_HELPERS, node: 'x' } }, [before]), before, 'helpers of another language')
  t.not(make({ manifests: 'x' }, [before]).signature, before.signature)
})

t.test('[discovery/layouts.28] a schedule belongs to one function of a folder', async t => {
  const layers = [config({ schedule: { every_seconds: 5 }, keep_warm: {} })]
  const scheduled = make({ layers })
  t.equal(scheduled.policy.schedule?.everySeconds, 5)
  t.not(scheduled.policy.keepWarm, null)
  const other = maker().make({ ...HANDLER, layers }, IDENTITY, { kind: 'function' }, false)
  t.equal(other.policy.schedule, null)
  t.equal(other.policy.keepWarm, null)
})

t.test('[invocation/adapters.2] an adapter that the language does not have is told', async t => {
  const warnings: Warning[] = []
  const layers = [config({ invoke: { adapter: 'cloud-lambda' } })]
  const target = { kind: 'function', warnings, label: 'a/fn.config.json' } as const
  maker().make({ ...HANDLER, runtime: 'lua', layers }, IDENTITY, target, true)
  t.match(warnings, [{ code: 'ADAPTER_UNAVAILABLE', path: 'a/fn.config.json', message: /which lua does not have/ }])
  maker().make({ ...HANDLER, layers }, IDENTITY, target, true)
  t.equal(warnings.length, 1, 'python has it')
})

t.test('[discovery/layouts.29] functions of one folder share their environment', async t => {
  const env = parseFunctionEnv('{"KEY": "v"}', '').value.env
  const shared = maker()
  const one = shared.make({ ...HANDLER, env }, IDENTITY, { kind: 'function' }, true)
  const two = shared.make({ ...HANDLER, env }, { ...IDENTITY, name: 'b' }, { kind: 'function' }, true)
  t.same({ ...one.env }, { KEY: { value: 'v', isSecret: false } })
  t.equal(two.env, one.env)
  const replaced = maker([], { defaults: {}, process: { KEY: 'outer', OTHER: 'x' } })
  t.same(
    { ...replaced.make({ ...HANDLER, env }, IDENTITY, { kind: 'function' }, true).env },
    {
      KEY: { value: 'outer', isSecret: false },
    },
  )
})

t.test(
  '[discovery/layouts.26] functions below the same configs share their policy, and warnings are their own',
  async t => {
    const pool = (max: number) => `{"worker_pool": {"max_workers": ${max}, "min_warm": 9}}`
    const { functions, warnings } = discoverTree({
      'a/x.js': '',
      'a/y.js': '',
      'a/post.y.js': '',
      'b/fn.config.json': '{"timeout_ms": 100}',
      'b/z.js': '',
      'c/fn.config.json': pool(2),
      'c/one.js': '',
      'c/two.js': '',
      'd/fn.config.json': pool(3),
      'd/three.js': '',
    })
    const policyOf = (file: string) => functions.find(fn => fn.entryFile === file)?.policy
    t.equal(policyOf('a/x.js'), policyOf('a/y.js'))
    t.same(policyOf('a/post.y.js')?.methods, ['POST'])
    t.same([policyOf('b/z.js')?.timeoutMs, policyOf('a/x.js')?.timeoutMs], [100, 2500])
    t.same([policyOf('c/two.js')?.workerPool?.minWarm, policyOf('d/three.js')?.workerPool?.minWarm], [2, 3])
    t.same(
      warnings
        .filter(({ code }) => code === 'CONFIG_CLAMPED')
        .map(({ path }) => path)
        .sort(),
      ['c/fn.config.json', 'd/fn.config.json'],
    )
  },
)

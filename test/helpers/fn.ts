import type { FunctionVersion, Policy } from '../../lib/core/catalog.ts'
import { toFunctionKey, type RuntimeName } from '../../lib/core/identity.ts'
import { callableOf } from '../../lib/discovery/callable.ts'

export const TEST_POLICY: Policy = {
  timeoutMs: 2500,
  maxConcurrency: 20,
  defaultQueue: null,
  maxBodyBytes: 1024 * 1024,
  methods: ['GET'],
  allowHosts: [],
  handler: null,
  adapter: 'native',
  adapterName: 'native',
  workerPool: null,
  keepWarm: null,
  edge: null,
  schedule: null,
  scheduleProblem: null,
  cors: null,
  configProblem: null,
  sharedDeps: [],
  allowScripts: [],
  includeDebugHeaders: false,
  group: null,
  isPrivate: false,
  validate: false,
  summary: null,
  exampleQuery: null,
  exampleBody: null,
  exampleContentType: null,
}

/** The handler event of a plain GET, as tests of workers send it. */
export const TEST_EVENT = {
  id: 'req-1',
  ts: 1_700_000_000_000,
  method: 'GET',
  path: '/',
  raw_path: '/',
  params: {},
  query: {},
  headers: {},
  client: { ip: '127.0.0.1', ua: null },
  session: null,
  user: null,
  trigger: null,
  trace: null,
}

/** A function version with sensible fields, for tests of everything after discovery. */
export function makeFn(
  fields: Partial<Omit<FunctionVersion, 'policy'>> & { policy?: Partial<Policy> } = {},
): FunctionVersion {
  const runtime: RuntimeName = fields.runtime ?? 'node'
  const name = fields.name ?? 'hello'
  const version = fields.version ?? null
  const policy: Policy = { ...TEST_POLICY, ...fields.policy }
  return {
    callable: callableOf(runtime, policy),
    key: toFunctionKey(runtime, name, version),
    runtime,
    name,
    version,
    kind: 'function',
    fnDir: `/srv/${name}`,
    entryPath: `/srv/${name}/handler.js`,
    entryFile: `${name}/handler.js`,
    env: {},
    signature: '1',
    schema: null,
    ...fields,
    policy,
  }
}

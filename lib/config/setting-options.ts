/** The table of settings: one row per option. Spec: §2.15; owner: page config/settings. */

import { isIP } from 'node:net'
import { isAbsolute, resolve } from 'node:path'
import { DEFAULT_RUNTIMES, type RuntimeName, RUNTIMES } from '../core/identity.ts'
import * as limits from '../core/limits.ts'
import { boolean, type Field, integer, list, mapped, number, object, oneOf, pairs, string } from './fields.ts'
import { type Place, reportWrong } from './findings.ts'
import * as texts from './texts.ts'
import { uidRange } from './texts.ts'
import { parsePasswordHash } from './password-hash.ts'

/** One setting: its sources, its kind, its default. */
export interface SettingOption<T> {
  /** Environment variables, the first one given counts. */
  readonly env: readonly string[]
  /** Variables among them that have a form of their own. */
  readonly envFields: Readonly<Record<string, Field<T>>>
  /** Key in `fngw.json`; null for what does not belong into a file under version control. */
  readonly key: string | null
  readonly keyAliases: readonly string[]
  /** Commander spellings; the attribute name is the setting's name. `[dir]` is the positional argument. */
  readonly flags: readonly string[]
  readonly field: Field<T>
  /** null: unset, or worked out from other settings. */
  readonly fallback: T | null
  readonly unit: string | null
  readonly section: Section
  readonly description: string
  /** Help of the `--no-` flag. */
  readonly offDescription: string | null
  /** True when its value must not be shown. */
  readonly secret: boolean
  /** Makes relative paths full; `base` is the folder of the file that holds the value, or the working directory. */
  locate?(value: T, base: string): T
}

type Section = 'Gateway' | 'Routes' | 'Limits' | 'Runtimes' | 'Dependencies' | 'Control plane' | 'Scheduler and jobs'

interface Row<T> {
  env: string | readonly string[]
  /** Default: the first variable without `FN_`, in kebab case. */
  key?: string | null
  envFields?: Readonly<Record<string, Field<T>>>
  keyAliases?: readonly string[]
  flags?: string | readonly string[]
  field: Field<T>
  fallback?: NoInfer<T> | null
  unit?: string
  off?: string
  secret?: boolean
  locate?: (value: T, base: string) => T
}

function option<T>(
  section: Section,
  description: string,
  row: Row<T> & { fallback: NoInfer<T> },
): SettingOption<T> & { readonly fallback: T }
function option<T>(section: Section, description: string, row: Row<T>): SettingOption<T>
function option<T>(section: Section, description: string, row: Row<T>): SettingOption<T> {
  const { off = null, ...given } = row
  const env = [row.env].flat()
  return {
    ...{ envFields: {}, keyAliases: [], fallback: null, unit: null, secret: false },
    ...given,
    env,
    key: row.key === undefined ? toKey(env[0]!) : row.key,
    flags: [row.flags ?? []].flat(),
    field: { ...row.field, schema: { ...row.field.schema, description } },
    section,
    description,
    offDescription: off,
  }
}

/** A row for a boolean that is on (`true`) or off unless set. */
function toggle(
  section: Section,
  env: string,
  fallback: boolean,
  description: string,
  more: { flags?: string; off?: string } = {},
) {
  return option(section, description, { env, field: boolean(), fallback, ...more })
}

/** A row for the name of a file. */
function file(section: Section, env: string, description: string) {
  return option(section, description, { env, field: string({ rule: 'a file', maxLength: 4096 }), locate: toFull })
}

function toKey(variable: string): string {
  return variable.replace(/^FN_/, '').toLowerCase().replaceAll('_', '-')
}

/** Of inference. */
const IN_RUN = 'run and deps install only report them unless this is set to 1'

const SECONDS = 'seconds'
const MAX_SECONDS = 86_400

const toFull = (path: string, base: string) => resolve(base, path)

/** Programs that `runtime-binaries` may name, with their variables. */
export const BINARY_ENV = {
  python: 'FN_PYTHON_BIN',
  node: 'FN_NODE_BIN',
  npm: 'FN_NPM_BIN',
  uv: 'FN_UV_BIN',
  php: 'FN_PHP_BIN',
  composer: 'FN_COMPOSER_BIN',
  go: 'FN_GO_BIN',
  cargo: 'FN_CARGO_BIN',
  docker: 'FN_DOCKER_BIN',
} as const

/** A program name is looked up on PATH; anything with a slash is a path. */
export function toFullProgram(program: string, base: string): string {
  return program.includes('/') && !isAbsolute(program) ? resolve(base, program) : program
}

/** A program: a name on PATH or a path. */
export const PROGRAM = string({ rule: 'a program name or path', maxLength: 4096 })

const MAX_DAEMONS = 64
const daemonCount = integer({ min: 1, max: MAX_DAEMONS })
const LUA_DAEMONS = { lua: 'Lua runs inside the gateway process and has no daemon' }

const SOCKET_RULE = 'unix:/path, tcp://host:port or tls://host:port'
/** Bytes of a unix socket path that Linux accepts. */
const MAX_SOCKET_PATH_BYTES = 107

function parseSocket(text: string): string | null {
  const unix = /^unix:(?:\/\/(?=\/))?(.+)$/.exec(text)?.[1]
  if (unix !== undefined) return Buffer.byteLength(unix) <= MAX_SOCKET_PATH_BYTES ? `unix:${unix}` : null
  const port = /^(?:tcp|tls):\/\/(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})$/.exec(text)?.[1]
  return port !== undefined && Number(port) >= 1 && Number(port) <= 65_535 ? text : null
}

const sharedSecret = string({
  rule: 'at least 32 visible ASCII characters without blanks',
  pattern: /^[\x21-\x7e]{32,1024}$/,
})
const sockets = list(string({ rule: SOCKET_RULE, parse: parseSocket, pattern: /^(unix:|tcp:\/\/|tls:\/\/)/ }), {
  rule: `${SOCKET_RULE}, or a list of them`,
  minItems: 1,
  maxItems: MAX_DAEMONS,
})

type SocketMap = { [runtime: string]: string[] | undefined }

function locateSockets(map: SocketMap, base: string): SocketMap {
  const toFullSocket = (uri: string) => (uri.startsWith('unix:') ? `unix:${resolve(base, uri.slice(5))}` : uri)
  return Object.fromEntries(Object.entries(map).map(([runtime, uris]) => [runtime, uris?.map(toFullSocket)]))
}

const HOST_NAME = /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.:_-]+)$/

function parseBindHost(text: string): string | null {
  if (!HOST_NAME.test(text)) return null
  const bare = text.replace(/^\[|\]$/g, '')
  return bare.includes(':') && isIP(bare) !== 6 ? null : bare
}

function parseHeaderName(text: string): string | null {
  return /^[\w-]+$/.test(text) ? text.toLowerCase() : null
}

function parseCidr(text: string): string | null {
  const [address = '', bits, ...rest] = text.split('/')
  const version = isIP(address)
  if (version === 0 || rest.length > 0) return null
  if (bits === undefined) return text
  return /^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128) ? text : null
}

/** `production` in `FN_ENV`, or true and false. */
const production: Field<boolean> = mapped(
  oneOf(['production', 'development'], { spellings: { prod: 'production', dev: 'development' } }),
  name => name === 'production',
)

/** Processes of one gateway. */
const gatewayWorkers: Field<number | 'auto'> = toCountOrAuto(limits.MAX_GATEWAY_WORKERS)

const homeFunction = mapped(
  string({ rule: texts.HOME_ROUTE_RULE, parse: texts.parseHomeRoute }),
  // A bare function name is meant from the root: the home of `/` has no folder to be relative to.
  path => (path.startsWith('/') ? path : `/${path}`),
)

/** Every setting, in the order of the page. */
export const SETTING_OPTIONS = {
  functionsRoot: option(
    'Gateway',
    'Folder that holds the functions; default the folder of fngw.json, else the working directory.',
    {
      env: 'FN_FUNCTIONS_ROOT',
      key: 'functions-dir',
      flags: '[dir]',
      field: string({ rule: 'a folder', maxLength: 4096 }),
      locate: toFull,
    },
  ),
  host: option('Gateway', 'Address to listen on.', {
    env: 'FN_HOST',
    flags: '--host <address>',
    field: string({ rule: 'an IP address or host name', parse: parseBindHost, maxLength: 253 }),
    fallback: limits.DEFAULT_HOST,
  }),
  port: option('Gateway', 'TCP port to listen on; 0 takes a free one.', {
    env: ['FN_PORT', 'FN_HOST_PORT', 'PORT'],
    flags: '--port <number>',
    field: integer({ min: 0, max: 65_535 }),
    fallback: limits.DEFAULT_PORT,
  }),
  production: option(
    'Gateway',
    'production: neutral error texts and no file watching; development: details in answers.',
    {
      env: 'FN_ENV',
      field: {
        ...production,
        read: (value, at) => (typeof value === 'boolean' ? value : production.read(value, at)),
      },
      fallback: false,
    },
  ),
  hotReload: option('Gateway', 'Reload on file changes. On by default in development.', {
    off: 'Disable reload on file changes.',
    env: 'FN_HOT_RELOAD',
    flags: ['--hot-reload', '--no-hot-reload'],
    field: boolean(),
  }),
  publicBaseUrl: option('Gateway', 'Address under which clients reach the gateway, for the OpenAPI document.', {
    env: 'FN_PUBLIC_BASE_URL',
    flags: '--public-base-url <url>',
    field: texts.baseUrl('Address of the gateway.'),
  }),
  gatewayWorkers: option('Gateway', 'Processes that take connections; auto is one a processor.', {
    env: 'FN_GATEWAY_WORKERS',
    flags: '--gateway-workers <count>',
    field: gatewayWorkers,
    fallback: 1,
  }),
  shutdownTimeoutMs: option(
    'Gateway',
    'Longest wait for running requests at a stop; FN_SHUTDOWN_TIMEOUT is in seconds.',
    {
      env: ['FN_SHUTDOWN_TIMEOUT_MS', 'FN_SHUTDOWN_TIMEOUT'],
      envFields: { FN_SHUTDOWN_TIMEOUT: mapped(integer({ min: 0, max: 600 }), seconds => seconds * 1000) },
      flags: '--shutdown-timeout-ms <ms>',
      field: integer({ min: 0, max: 600_000 }),
      fallback: limits.DEFAULT_SHUTDOWN_TIMEOUT_MS,
      unit: 'ms',
    },
  ),
  shutdownDelayMs: option('Gateway', 'How long connections are still taken at a stop, not ready any more.', {
    env: 'FN_SHUTDOWN_DELAY_MS',
    flags: '--shutdown-delay-ms <ms>',
    field: integer({ min: 0, max: 600_000 }),
    fallback: 0,
    unit: 'ms',
  }),
  accessLog: toggle('Gateway', 'FN_ACCESS_LOG', true, 'Log each request.', {
    flags: '--no-access-log',
    off: 'Do not log requests.',
  }),
  logFormat: option('Gateway', 'Form of what is printed while serving; dev: text, run: json.', {
    env: 'FN_LOG_FORMAT',
    flags: '--log-format <format>',
    field: oneOf(['json', 'text']),
    fallback: 'json',
  }),
  logFiles: toggle('Gateway', 'FN_LOG_FILES', false, 'Write logs to .svc/logs of the functions root too.', {
    flags: '--log-files',
  }),
  logLevel: option('Gateway', 'Least important lines that are written.', {
    env: 'FN_LOG_LEVEL',
    flags: '--log-level <level>',
    field: oneOf(['debug', 'info', 'warn', 'error', 'silent']),
    fallback: 'info',
  }),
  docsEnabled: toggle('Gateway', 'FN_DOCS_ENABLED', true, 'Serve /docs and /openapi.json.'),
  openapiTitle: option('Gateway', 'Title in the OpenAPI document.', {
    env: 'FN_OPENAPI_TITLE',
    field: string(),
    fallback: 'fngw',
  }),
  openapiVersion: option('Gateway', 'Version of your API in the OpenAPI document.', {
    env: 'FN_OPENAPI_VERSION',
    field: string(),
    fallback: '1.0.0',
  }),
  openapiDescription: option('Gateway', 'Description in the OpenAPI document; Markdown.', {
    env: 'FN_OPENAPI_DESCRIPTION',
    field: string({ multiline: true }),
    fallback: 'Functions served by this gateway.',
  }),
  openapiIncludeInternal: option('Gateway', 'List the paths under /_fn in the OpenAPI document.', {
    env: 'FN_OPENAPI_INCLUDE_INTERNAL',
    keyAliases: ['swagger-include-admin'],
    field: boolean(),
    fallback: false,
  }),

  namespaceDepth: option('Routes', 'Name segments below a runtime folder.', {
    env: 'FN_NAMESPACE_DEPTH',
    flags: '--namespace-depth <count>',
    field: integer({ min: 1, max: limits.MAX_NAMESPACE_DEPTH }),
    fallback: limits.DEFAULT_NAMESPACE_DEPTH,
  }),
  forceUrl: toggle('Routes', 'FN_FORCE_URL', false, 'Treat every route of a config as forced.', {
    flags: '--force-url',
  }),
  homeFunction: option('Routes', 'Path that answers for /.', {
    env: 'FN_HOME_FUNCTION',
    field: homeFunction,
  }),
  homeRedirect: option('Routes', 'URL or path that / redirects to.', {
    env: 'FN_HOME_REDIRECT',
    field: string({ rule: texts.HOME_REDIRECT_RULE, parse: texts.parseHomeRedirect }),
  }),
  trustedProxyHeader: option(
    'Routes',
    'Header by which trusted proxies name the client, X-Forwarded-For by default; other headers are ignored when it is set.',
    {
      env: 'FN_TRUSTED_PROXY_HEADER',
      field: string({ rule: 'a header name such as X-Real-IP', parse: parseHeaderName, maxLength: 60 }),
    },
  ),
  trustedProxyCidrs: option('Routes', 'Proxies whose X-Forwarded-* headers are believed.', {
    env: 'FN_TRUSTED_PROXY_CIDRS',
    flags: '--trusted-proxy-cidrs <list>',
    field: list(string({ rule: 'an address or network such as 10.0.0.0/8', parse: parseCidr, maxLength: 60 })),
    fallback: [],
  }),

  defaultTimeoutMs: option('Limits', 'timeout_ms of a function that sets none.', {
    env: 'FN_DEFAULT_TIMEOUT_MS',
    flags: '--default-timeout-ms <ms>',
    field: integer({ min: 1, max: limits.MAX_TIMEOUT_MS }),
    fallback: limits.DEFAULT_TIMEOUT_MS,
    unit: 'ms',
  }),
  defaultMaxConcurrency: option('Limits', 'max_concurrency of a function that sets none; 0 means no limit.', {
    env: 'FN_DEFAULT_MAX_CONCURRENCY',
    flags: '--default-max-concurrency <count>',
    field: integer({ min: 0 }),
    fallback: limits.DEFAULT_MAX_CONCURRENCY,
  }),
  defaultMaxQueue: option(
    'Limits',
    'Calls that may wait for a function that sets no max_concurrency; 0 refuses at once.',
    {
      env: 'FN_DEFAULT_MAX_QUEUE',
      field: integer({ min: 0 }),
      fallback: limits.DEFAULT_FUNCTION_MAX_QUEUE,
    },
  ),
  defaultQueueTimeoutMs: option('Limits', 'Longest wait of such a call.', {
    env: 'FN_DEFAULT_QUEUE_TIMEOUT_MS',
    field: integer({ min: 0, max: limits.MAX_TIMEOUT_MS }),
    fallback: limits.DEFAULT_FUNCTION_QUEUE_TIMEOUT_MS,
    unit: 'ms',
  }),
  defaultQueueWaitMs: option(
    'Limits',
    'A call that would wait longer, by the durations measured, is refused at once; 0 leaves it to FN_DEFAULT_MAX_QUEUE.',
    {
      env: 'FN_DEFAULT_QUEUE_WAIT_MS',
      field: integer({ min: 0, max: limits.MAX_TIMEOUT_MS }),
      fallback: limits.DEFAULT_FUNCTION_QUEUE_WAIT_MS,
      unit: 'ms',
    },
  ),
  defaultMaxBodyBytes: option('Limits', 'max_body_bytes of a function that sets none.', {
    env: 'FN_DEFAULT_MAX_BODY_BYTES',
    flags: '--default-max-body-bytes <bytes>',
    field: integer({ min: 1, max: limits.MAX_BODY_BYTES }),
    fallback: limits.DEFAULT_MAX_BODY_BYTES,
    unit: 'bytes',
  }),
  isolation: option('Runtimes', 'How functions are isolated: in separate processes, or also under separate users.', {
    env: 'FN_ISOLATION',
    field: oneOf(['process', 'user']),
    fallback: 'process',
  }),
  isolationFiles: option(
    'Runtimes',
    'With FN_ISOLATION=user: how to treat functions whose files other users can read.',
    {
      env: 'FN_ISOLATION_FILES',
      field: oneOf(['refuse', 'close', 'warn']),
      fallback: 'refuse',
    },
  ),
  isolationUids: option(
    'Runtimes',
    'User ids with FN_ISOLATION=user: the first is the gateway, one for each function.',
    {
      env: 'FN_ISOLATION_UIDS',
      field: uidRange(),
      fallback: '20000-29999',
    },
  ),
  functionProcesses: option(
    'Limits',
    'With FN_ISOLATION=user: processes and threads that all workers of one function have together; 4096 by default.',
    {
      env: 'FN_FUNCTION_PROCESSES',
      field: integer({ min: 16, max: 4_194_304 }),
    },
  ),
  functionOpenFiles: option('Limits', 'With FN_ISOLATION=user: files that one process of a function may have open.', {
    env: 'FN_FUNCTION_OPEN_FILES',
    field: integer({ min: 32, max: 1_048_576 }),
  }),
  functionTempMb: option('Limits', 'With FN_ISOLATION=user: size of the temporary files of one function.', {
    env: 'FN_FUNCTION_TEMP_MB',
    field: integer({ min: 1, max: 1_048_576 }),
    unit: 'MB',
  }),
  workerMemoryMb: option('Limits', 'Memory that one worker may allocate.', {
    env: 'FN_WORKER_MEMORY_MB',
    flags: '--worker-memory-mb <mb>',
    field: integer({ min: 16, max: 1_048_576 }),
    fallback: limits.DEFAULT_WORKER_MEMORY_MB,
    unit: 'MB',
  }),
  workerNice: option(
    'Limits',
    'Steps of priority (nice) that processes of functions and builds stand below the gateway.',
    {
      env: 'FN_WORKER_NICE',
      flags: '--worker-nice <steps>',
      field: integer({ min: 0, max: limits.MAX_WORKER_NICE }),
      fallback: limits.DEFAULT_WORKER_NICE,
    },
  ),
  responseIdleTimeoutMs: option(
    'Limits',
    'Longest time in which a client reads nothing of a response that waits for it.',
    {
      env: 'FN_RESPONSE_IDLE_TIMEOUT_MS',
      field: integer({ min: 1000, max: limits.MAX_TIMEOUT_MS }),
      fallback: limits.DEFAULT_RESPONSE_IDLE_TIMEOUT_MS,
      unit: 'ms',
    },
  ),
  bodyMemoryMb: option(
    'Limits',
    'Memory for request bodies, and as much again for responses that clients have not read; an eighth of the memory each by default.',
    {
      env: 'FN_BODY_MEMORY_MB',
      field: integer({ min: 1, max: 1_048_576 }),
      unit: 'MB',
    },
  ),
  luaMemoryMb: option('Limits', 'Memory that all Lua functions may hold together; never less than one of them may.', {
    env: 'FN_LUA_MEMORY_MB',
    field: integer({ min: 16, max: 1_048_576 }),
    fallback: limits.DEFAULT_LUA_MEMORY_MB,
    unit: 'MB',
  }),

  runtimes: option('Runtimes', 'Enabled runtimes; one that is named and missing is shown as down.', {
    env: 'FN_RUNTIMES',
    flags: '--runtimes <list>',
    field: list(oneOf(RUNTIMES, { hint: 'TypeScript runs in node.' }), {
      minItems: 1,
      rule: `a list of ${RUNTIMES.join(', ')}`,
    }),
    fallback: [...DEFAULT_RUNTIMES],
  }),
  runtimeDaemons: option('Runtimes', 'Daemon processes per runtime; default 1 each; not for lua.', {
    env: 'FN_RUNTIME_DAEMONS',
    flags: '--runtime-daemons <list>',
    field: pairs(
      object(
        { python: daemonCount, node: daemonCount, php: daemonCount, go: daemonCount, rust: daemonCount },
        { strict: true, noEffect: LUA_DAEMONS },
      ),
      'node=2,python=2',
    ),
    fallback: {},
  }),
  runtimeSockets: option('Runtimes', 'Sockets of daemons that run elsewhere, per runtime; wins over runtime-daemons.', {
    env: 'FN_RUNTIME_SOCKETS',
    flags: '--runtime-sockets <json>',
    field: object(
      { python: sockets, node: sockets, php: sockets, go: sockets, rust: sockets },
      { strict: true, noEffect: LUA_DAEMONS, hint: 'Write {"node": ["unix:/run/node.sock"]}.' },
    ) as Field<SocketMap>,
    fallback: {},
    locate: locateSockets,
  }),
  runtimeSecret: option('Runtimes', 'Shared secret of the gateway and its daemons on tcp and tls sockets.', {
    env: 'FN_RUNTIME_SECRET',
    key: null,
    field: sharedSecret,
    secret: true,
  }),
  runtimeSecretFile: file(
    'Runtimes',
    'FN_RUNTIME_SECRET_FILE',
    'File that holds that secret, instead of FN_RUNTIME_SECRET.',
  ),
  runtimeTlsCaFile: file(
    'Runtimes',
    'FN_RUNTIME_TLS_CA_FILE',
    'Certificates that sign those of daemons on tls sockets; default those of node.',
  ),
  binaries: option('Runtimes', 'Programs by tool; default the name on PATH.', {
    env: [],
    key: 'runtime-binaries',
    field: pairs(
      object(Object.fromEntries(Object.keys(BINARY_ENV).map(tool => [tool, PROGRAM])), { strict: true }),
      'python=/usr/bin/python3',
    ) as Field<Record<string, string>>,
    fallback: {},
  }),
  runtimeImage: option('Runtimes', 'Image in which fngw dev serves, without --native.', {
    env: 'FN_RUNTIME_IMAGE',
    flags: '--runtime-image <tag>',
    field: string({ rule: 'an image tag', pattern: /^[A-Za-z0-9][A-Za-z0-9._:/@-]*$/, maxLength: 500 }),
  }),
  goBuildTimeoutSeconds: option('Runtimes', 'Longest Go build.', {
    env: ['GO_BUILD_TIMEOUT_S', 'FN_GO_BUILD_TIMEOUT_S'],
    key: 'go-build-timeout-s',
    field: number({ min: 1, max: MAX_SECONDS }),
    fallback: limits.DEFAULT_GO_BUILD_TIMEOUT_SECONDS,
    unit: SECONDS,
  }),
  rustBuildTimeoutSeconds: option('Runtimes', 'Longest Rust build.', {
    env: 'FN_RUST_BUILD_TIMEOUT_S',
    field: number({ min: 1, max: MAX_SECONDS }),
    fallback: limits.INSTALL_TIMEOUT_SECONDS,
    unit: SECONDS,
  }),

  depsWaitMs: option('Dependencies', 'Longest wait of a call for the build or the packages of its function.', {
    env: 'FN_DEPS_WAIT_MS',
    field: integer({ min: 0, max: limits.MAX_TIMEOUT_MS }),
    fallback: limits.DEFAULT_DEPS_WAIT_MS,
    unit: 'ms',
  }),
  autoRequirements: toggle('Dependencies', 'FN_AUTO_REQUIREMENTS', true, 'Install Python packages.'),
  autoInferPyDeps: toggle(
    'Dependencies',
    'FN_AUTO_INFER_PY_DEPS',
    true,
    `Install Python packages that only imports ask for; ${IN_RUN}.`,
  ),
  pyInferBackend: option('Dependencies', 'How Python imports are found.', {
    env: 'FN_PY_INFER_BACKEND',
    field: oneOf(['native', 'pipreqs']),
    fallback: 'native',
  }),
  autoNodeDeps: toggle('Dependencies', 'FN_AUTO_NODE_DEPS', true, 'Install Node packages.'),
  autoInferNodeDeps: toggle(
    'Dependencies',
    'FN_AUTO_INFER_NODE_DEPS',
    true,
    `Install Node packages that only imports ask for; ${IN_RUN}.`,
  ),
  nodeInferBackend: option('Dependencies', 'How Node imports are found.', {
    env: 'FN_NODE_INFER_BACKEND',
    field: oneOf(['native', 'detective', 'require-analyzer']),
    fallback: 'native',
  }),
  nodePackageSources: toggle(
    'Dependencies',
    'FN_NODE_PACKAGE_SOURCES',
    false,
    'Allow repositories, URLs and paths outside the functions root in package.json.',
  ),
  autoInferWriteManifest: toggle(
    'Dependencies',
    'FN_AUTO_INFER_WRITE_MANIFEST',
    true,
    'Write found packages into manifests.',
  ),
  autoInferStrict: toggle(
    'Dependencies',
    'FN_AUTO_INFER_STRICT',
    true,
    'An import that is not resolved fails the function.',
  ),
  autoPhpDeps: toggle('Dependencies', 'FN_AUTO_PHP_DEPS', true, 'Install Composer packages.'),
  phpPackageSources: toggle(
    'Dependencies',
    'FN_PHP_PACKAGE_SOURCES',
    false,
    'Allow repositories of any kind, and paths outside the functions root, in composer.json.',
  ),
  preinstallPhpDepsOnStart: toggle(
    'Dependencies',
    'FN_PREINSTALL_PHP_DEPS_ON_START',
    true,
    'Install Composer packages at start.',
  ),
  preinstallPyDepsOnStart: toggle(
    'Dependencies',
    'FN_PREINSTALL_PY_DEPS_ON_START',
    true,
    'Install Python packages at start.',
  ),
  pyRequirementsOptions: toggle(
    'Dependencies',
    'FN_PY_REQUIREMENTS_OPTIONS',
    false,
    'Allow options, URLs and paths in requirements.txt.',
  ),
  preinstallNodeDepsOnStart: toggle(
    'Dependencies',
    'FN_PREINSTALL_NODE_DEPS_ON_START',
    true,
    'Install Node packages at start.',
  ),
  preinstallNodeDepsConcurrency: option('Dependencies', 'Node installs at once during the start.', {
    env: 'FN_PREINSTALL_NODE_DEPS_CONCURRENCY',
    field: integer({ min: 1, max: 64 }),
    fallback: limits.DEFAULT_PREINSTALL_NODE_DEPS_CONCURRENCY,
  }),

  uiEnabled: toggle(
    'Control plane',
    'FN_UI_ENABLED',
    false,
    'Serve the console at /console. On by default in fngw dev on a loopback address.',
    { flags: '--no-console', off: 'Do not serve the console.' },
  ),
  consoleApiEnabled: toggle('Control plane', 'FN_CONSOLE_API_ENABLED', true, 'Serve /_fn beyond health.'),
  consoleWriteEnabled: toggle(
    'Control plane',
    'FN_CONSOLE_WRITE_ENABLED',
    false,
    'Allow writes without the admin token.',
  ),
  consoleLocalOnly: toggle('Control plane', 'FN_CONSOLE_LOCAL_ONLY', true, 'Only local clients, or the admin token.'),
  adminToken: option('Control plane', 'Token for x-fn-admin-token.', {
    env: 'FN_ADMIN_TOKEN',
    key: null,
    field: string({ rule: 'visible ASCII characters without blanks', pattern: /^[\x21-\x7e]+$/ }),
    secret: true,
  }),
  adminTokenFile: file('Control plane', 'FN_ADMIN_TOKEN_FILE', 'File that holds the token, instead of FN_ADMIN_TOKEN.'),
  consoleLoginApi: toggle(
    'Control plane',
    'FN_CONSOLE_LOGIN_API',
    false,
    'Ask for a session, or the token, everywhere below /_fn.',
  ),
  consoleLoginUsername: option('Control plane', 'Name to log in with.', {
    env: 'FN_CONSOLE_LOGIN_USERNAME',
    field: string({ rule: 'a text of 1 to 200 characters on one line', maxLength: 200 }),
    fallback: 'admin',
  }),
  consoleLoginPasswordHash: option('Control plane', 'Hash of the password to log in with.', {
    env: 'FN_CONSOLE_LOGIN_PASSWORD_HASH',
    key: null,
    field: string({
      rule: 'scrypt:<N>:<r>:<p>:<salt hex>:<digest hex> or pbkdf2-sha256:<iterations>:<salt hex>:<digest hex>',
      parse: text => (parsePasswordHash(text) === null ? null : text),
    }),
    secret: true,
  }),
  consoleLoginPasswordHashFile: file(
    'Control plane',
    'FN_CONSOLE_LOGIN_PASSWORD_HASH_FILE',
    'File that holds the hash instead.',
  ),
  consoleSessionTtlSeconds: option('Control plane', 'How long a login lasts.', {
    env: 'FN_CONSOLE_SESSION_TTL_S',
    field: integer({ min: 60, max: 2_592_000 }),
    fallback: 43_200,
    unit: SECONDS,
  }),
  controlPort: option(
    'Control plane',
    'TCP port on which /_fn and /console are served, and only there; 0 takes a free one.',
    {
      env: 'FN_CONTROL_PORT',
      flags: '--control-port <number>',
      field: integer({ min: 0, max: 65_535 }),
    },
  ),
  consoleHosts: option('Control plane', 'Host names, besides loopback and addresses, of a local control-plane call.', {
    env: 'FN_CONSOLE_HOSTS',
    field: list(texts.hostRule(), { rule: 'a list of hosts' }),
    fallback: [],
  }),
  consoleLocalCidrs: option('Control plane', 'Addresses, besides loopback, whose callers count as local.', {
    env: 'FN_CONSOLE_LOCAL_CIDRS',
    field: list(string({ rule: 'an address or network such as 10.0.0.0/8', parse: parseCidr, maxLength: 60 })),
    fallback: [],
  }),

  schedulerEnabled: toggle('Scheduler and jobs', 'FN_SCHEDULER_ENABLED', true, 'Run schedules and keep_warm.'),
  schedulerIntervalSeconds: option('Scheduler and jobs', 'Time between ticks; a smaller value counts as 1.', {
    env: 'FN_SCHEDULER_INTERVAL',
    field: toClampedBelow(limits.MIN_SCHEDULER_INTERVAL_SECONDS, 3600),
    fallback: limits.MIN_SCHEDULER_INTERVAL_SECONDS,
    unit: SECONDS,
  }),
  schedulerPersistEnabled: toggle(
    'Scheduler and jobs',
    'FN_SCHEDULER_PERSIST_ENABLED',
    true,
    'Keep schedule state on disk.',
  ),
  schedulerPersistIntervalSeconds: option('Scheduler and jobs', 'Time between writes of schedule state; clamped.', {
    env: 'FN_SCHEDULER_PERSIST_INTERVAL',
    field: number({
      min: limits.SCHEDULER_PERSIST_SECONDS.min,
      max: limits.SCHEDULER_PERSIST_SECONDS.max,
      clamp: true,
    }),
    fallback: limits.SCHEDULER_PERSIST_SECONDS.default,
    unit: SECONDS,
  }),
  schedulerStatePath: file(
    'Scheduler and jobs',
    'FN_SCHEDULER_STATE_PATH',
    'File of schedule state; default .svc/scheduler-state.json below the functions root.',
  ),
  jobsEnabled: toggle('Scheduler and jobs', 'FN_JOBS_ENABLED', true, 'Run jobs.'),
  jobsMaxConcurrency: option('Scheduler and jobs', 'Jobs that run at once.', {
    env: 'FN_JOBS_MAX_CONCURRENCY',
    field: integer({ min: 1, max: 1000 }),
    fallback: limits.DEFAULT_JOBS_MAX_CONCURRENCY,
  }),
  jobsMaxResultBytes: option(
    'Scheduler and jobs',
    'Bytes of a job result that are kept, 0 for all; the rest is cut off.',
    {
      env: 'FN_JOBS_MAX_RESULT_BYTES',
      field: integer({ min: 0 }),
      fallback: limits.DEFAULT_JOBS_MAX_RESULT_BYTES,
      unit: 'bytes',
    },
  ),
  jobsCallbackSecret: option('Scheduler and jobs', 'Secret that signs job callbacks (X-Fn-Signature).', {
    env: 'FN_JOBS_CALLBACK_SECRET',
    key: null,
    field: sharedSecret,
    secret: true,
  }),
  jobsCallbackSecretFile: file(
    'Scheduler and jobs',
    'FN_JOBS_CALLBACK_SECRET_FILE',
    'File with that secret, instead of FN_JOBS_CALLBACK_SECRET.',
  ),
}

type Options = typeof SETTING_OPTIONS
type ValueOf<Option> = Option extends { readonly field: Field<infer T>; readonly fallback: infer F }
  ? (T extends readonly (infer Item)[] ? readonly Item[] : T) | (null extends F ? null : never)
  : never

/** Every setting after flags, environment, `fngw.json` and defaults, checked. Durations in the unit of the name, paths in full. */
export interface Settings
  extends Omit<
    { [Name in keyof Options]: ValueOf<Options[Name]> },
    'functionsRoot' | 'hotReload' | 'runtimeDaemons' | 'runtimeSockets' | 'autoInferPyDeps' | 'autoInferNodeDeps'
  > {
  functionsRoot: string
  hotReload: boolean
  runtimeDaemons: Readonly<Partial<Record<RuntimeName, number>>>
  runtimeSockets: Readonly<Partial<Record<RuntimeName, readonly string[]>>>
  /** `report`, of `run`: imports are read, and missing packages are reported. */
  autoInferPyDeps: boolean | 'report'
  autoInferNodeDeps: boolean | 'report'
  /** True when `FN_RUNTIMES` (flag, environment or file) names them: a missing program is then shown as down. */
  runtimesExplicit: boolean
  /** True when the port was given: a busy one is then an error instead of the next free one. */
  portExplicit: boolean
}

function toCountOrAuto(max: number): Field<number | 'auto'> {
  const rule = `an integer from 1 to ${max}, or auto`
  const read = (value: unknown, at: Place): number | 'auto' | undefined => {
    if (value === 'auto') return value
    const fits = typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max
    return fits ? value : reportWrong(at, rule, value)
  }
  const readText = (text: string, at: Place): number | 'auto' | undefined => {
    const word = text.trim().toLowerCase()
    if (word === 'auto') return 'auto'
    const count = /^\d+$/.test(word) ? Number(word) : 0
    return count >= 1 && count <= max ? count : reportWrong(at, rule, text)
  }
  const schema = { anyOf: [{ type: 'integer', minimum: 1, maximum: max }, { enum: ['auto'] }] }
  return { rule, aliases: [], schema, read, readText }
}

/** A number that is raised to `min` with a note and refused above `max`: §8 gives a smallest effective value only. */
function toClampedBelow(min: number, max: number): Field<number> {
  return mapped(number({ min, clamp: true }), (value, at) => {
    return value <= max ? value : reportWrong(at, `a number from ${min} to ${max}`, value)
  })
}

/** Variables of the nearest existing system that do nothing here, with what to do instead. */
export const ENV_WITHOUT_EFFECT: Readonly<Record<string, string>> = {
  FN_ADMIN_API_ENABLED: 'use FN_CONSOLE_API_ENABLED',
  FN_STRICT_FS: 'handlers have the file access of their process',
  FN_STRICT_FS_ALLOW: 'handlers have the file access of their process',
  FN_HTTP_VERIFY_TLS: 'certificates of upstreams are always checked',
  FN_MAX_ASSET_BYTES: 'files of any size are streamed',
  FN_SOCKET_BASE_DIR: 'sockets live in a private folder below the temporary directory',
  FN_JOBS_POLL_INTERVAL: 'jobs start without polling',
  FN_JOBS_DIR: 'jobs live in .svc/jobs below the functions root',
}

/** The table of settings: one row per option. Spec: §2.15; owner: page config/settings. */

import { isIP } from 'node:net'
import { isAbsolute, resolve } from 'node:path'
import { DEFAULT_RUNTIMES, type RuntimeName, RUNTIMES } from '../core/identity.ts'
import * as limits from '../core/limits.ts'
import {
  boolean,
  type Field,
  integer,
  list,
  mapped,
  number,
  object,
  oneOf,
  pairs,
  type Place,
  reportWrong,
  string,
} from './fields.ts'
import * as texts from './texts.ts'

/** One setting: its sources, its kind, its default. */
export interface SettingOption<T> {
  /** Environment variables; the first one that is given counts. */
  readonly env: readonly string[]
  /** Variables among them that have a form of their own. */
  readonly envFields: Readonly<Record<string, Field<T>>>
  /** Key in `fngw.json`; null for a secret, which does not belong into a file under version control. */
  readonly key: string | null
  readonly keyAliases: readonly string[]
  /** Commander spellings; the attribute name is the setting's name. `[dir]` is the positional argument. */
  readonly flags: readonly string[]
  readonly field: Field<T>
  /** null: unset, or derived from other settings. */
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

type Section =
  | 'Gateway'
  | 'Fleet'
  | 'Routes'
  | 'Limits'
  | 'Runtimes'
  | 'Dependencies'
  | 'Control plane'
  | 'Scheduler and jobs'
/** A row before it is in a section. */
type Row<T, F> = Omit<SettingOption<T>, 'section' | 'unit' | 'fallback'> & { readonly fallback: F }

/** @property key - default: the first variable without `FN_`, in kebab case */
interface More<T> extends Partial<Pick<SettingOption<T>, 'key' | 'envFields' | 'keyAliases' | 'secret' | 'locate'>> {
  description: string
  fallback?: NoInfer<T>
  flags?: string | readonly string[]
  off?: string
}

type Variables = string | readonly string[]

function setting<T>(env: Variables, field: Field<T>, more: More<T> & { fallback: NoInfer<T> }): Row<T, T>
function setting<T>(env: Variables, field: Field<T>, more: More<T>): Row<T, T | null>
function setting<T>(env: Variables, field: Field<T>, { off, ...more }: More<T>): Row<T, T | null> {
  const variables = [env].flat()
  return {
    ...{ envFields: {}, keyAliases: [], secret: false },
    ...more,
    fallback: more.fallback ?? null,
    env: variables,
    key: more.key === undefined ? toKey(variables[0]!) : more.key,
    flags: [more.flags ?? []].flat(),
    field: { ...field, schema: { ...field.schema, description: more.description } },
    offDescription: off ?? null,
  }
}

/** A row for a boolean that is on (`true`) or off unless set. */
function toggle(env: string, fallback: boolean, description: string, more: { flags?: string; off?: string } = {}) {
  return setting(env, boolean(), { description, fallback, ...more })
}

/** A row for the name of a file. */
function file(env: string, description: string) {
  return setting(env, string({ rule: 'a file', maxLength: 4096 }), { description, locate: toFull })
}

const UNITS: readonly (readonly [end: string, unit: string])[] = [
  ['Ms', 'ms'],
  ['Seconds', 'seconds'],
  ['Bytes', 'bytes'],
  ['Mb', 'MB'],
]

/** Rows of one section; the unit of a setting is the end of its name. */
function inSection<Rows extends object>(
  section: Section,
  rows: Rows,
): { readonly [Name in keyof Rows]: Rows[Name] & Pick<SettingOption<unknown>, 'section' | 'unit'> } {
  const unitOf = (name: string) => UNITS.find(([end]) => name.endsWith(end))?.[1] ?? null
  const placed = Object.entries(rows).map(([name, row]) => [name, { ...row, section, unit: unitOf(name) }])
  return Object.fromEntries(placed)
}

function toKey(variable: string): string {
  return variable.replace(/^FN_/, '').toLowerCase().replaceAll('_', '-')
}

const toFull = (path: string, base: string) => resolve(base, path)
/** Ends the description of an inference. */
const IN_RUN = 'run and deps install only report them unless this is set to 1'
const MAX_SECONDS = 86_400
const MAX_MB = 1_048_576
const PERSIST = limits.SCHEDULER_PERSIST_SECONDS

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

export const PROGRAM = string({ rule: 'a program name or path', maxLength: 4096 })

const programs = pairs(
  object(Object.fromEntries(Object.keys(BINARY_ENV).map(tool => [tool, PROGRAM])), { strict: true }),
  'python=/usr/bin/python3',
) as Field<Record<string, string>>

const MAX_DAEMONS = 64

/** A map of the runtimes that have daemons. */
function byRuntime<T>(field: Field<T>, hint = '') {
  const noEffect = { lua: 'Lua runs inside the gateway process and has no daemon' }
  const shape = { python: field, node: field, php: field, go: field, rust: field }
  return object(shape, { strict: true, noEffect, ...(hint !== '' && { hint }) })
}

const SOCKET_RULE = 'unix:/path, tcp://host:port or tls://host:port'
/** Bytes of a unix socket path that Linux accepts. */
const MAX_SOCKET_PATH_BYTES = 107

function parseSocket(text: string): string | null {
  const unix = /^unix:(?:\/\/(?=\/))?(.+)$/.exec(text)?.[1]
  if (unix !== undefined) return Buffer.byteLength(unix) <= MAX_SOCKET_PATH_BYTES ? `unix:${unix}` : null
  const port = /^(?:tcp|tls):\/\/(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})$/.exec(text)?.[1]
  return port !== undefined && Number(port) >= 1 && Number(port) <= 65_535 ? text : null
}

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

const socketMap = byRuntime(sockets, 'Write {"node": ["unix:/run/node.sock"]}.') as Field<SocketMap>
const daemonCounts = pairs(byRuntime(integer({ min: 1, max: MAX_DAEMONS })), 'node=2,python=2')
const runtimes = list(oneOf(RUNTIMES, { hint: 'TypeScript runs in node.' }), {
  minItems: 1,
  rule: `a list of ${RUNTIMES.join(', ')}`,
})

const sharedSecret = string({
  rule: 'at least 32 visible ASCII characters without blanks',
  pattern: /^[\x21-\x7e]{32,1024}$/,
})

function parseBindHost(text: string): string | null {
  if (!/^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.:_-]+)$/.test(text)) return null
  const bare = text.replace(/^\[|\]$/g, '')
  return bare.includes(':') && isIP(bare) !== 6 ? null : bare
}

function parseCidr(text: string): string | null {
  const [address = '', bits, ...rest] = text.split('/')
  const version = isIP(address)
  if (version === 0 || rest.length > 0) return null
  if (bits === undefined) return text
  return /^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128) ? text : null
}

const cidrs = list(string({ rule: 'an address or network such as 10.0.0.0/8', parse: parseCidr, maxLength: 60 }))

const proxyHeader = string({
  rule: 'a header name such as X-Real-IP',
  parse: text => (/^[\w-]+$/.test(text) ? text.toLowerCase() : null),
  maxLength: 60,
})

const environment: Field<boolean> = mapped(
  oneOf(['production', 'development'], { spellings: { prod: 'production', dev: 'development' } }),
  name => name === 'production',
)
/** `production` in `FN_ENV`, or true and false. */
const production: Field<boolean> = {
  ...environment,
  read: (value, at) => (typeof value === 'boolean' ? value : environment.read(value, at)),
}

const homeFunction = mapped(
  string({ rule: texts.HOME_ROUTE_RULE, parse: texts.parseHomeRoute }),
  // A bare function name is meant from the root: the home of `/` has no folder to be relative to.
  path => (path.startsWith('/') ? path : `/${path}`),
)
const homeRedirect = string({ rule: texts.HOME_REDIRECT_RULE, parse: texts.parseHomeRedirect })

const passwordHash = string({
  rule: 'scrypt:<N>:<r>:<p>:<salt hex>:<digest hex> or pbkdf2-sha256:<iterations>:<salt hex>:<digest hex>',
  parse: text => (texts.parsePasswordHash(text) === null ? null : text),
})

function countOrAuto(max: number): Field<number | 'auto'> {
  const rule = `an integer from 1 to ${max}, or auto`
  const check = (value: unknown, given: unknown, at: Place): number | 'auto' | undefined => {
    const fits = typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max
    return fits || value === 'auto' ? value : reportWrong(at, rule, given)
  }
  const readText = (text: string, at: Place) => {
    const word = text.trim().toLowerCase()
    return check(/^\d+$/.test(word) ? Number(word) : word, text, at)
  }
  const schema = { anyOf: [{ type: 'integer', minimum: 1, maximum: max }, { enum: ['auto'] }] }
  return { rule, aliases: [], schema, read: (value, at) => check(value, value, at), readText }
}

/** A number that is raised to `min` with a note and refused above `max`: §8 gives a smallest effective value only. */
function clampedBelow(min: number, max: number): Field<number> {
  return mapped(number({ min, clamp: true }), (value, at) =>
    value <= max ? value : reportWrong(at, `a number from ${min} to ${max}`, value),
  )
}

/** Every setting, in the order of the page. */
export const SETTING_OPTIONS = {
  ...inSection('Gateway', {
    functionsRoot: setting('FN_FUNCTIONS_ROOT', string({ rule: 'a folder', maxLength: 4096 }), {
      description: 'Folder that holds the functions; default the folder of fngw.json, else the working directory.',
      key: 'functions-dir',
      flags: '[dir]',
      locate: toFull,
    }),
    host: setting('FN_HOST', string({ rule: 'an IP address or host name', parse: parseBindHost, maxLength: 253 }), {
      description: 'Address to listen on.',
      fallback: limits.DEFAULT_HOST,
      flags: '--host <address>',
    }),
    port: setting(['FN_PORT', 'FN_HOST_PORT', 'PORT'], integer({ min: 0, max: 65_535 }), {
      description: 'TCP port to listen on; 0 takes a free one.',
      fallback: limits.DEFAULT_PORT,
      flags: '--port <number>',
    }),
    production: setting('FN_ENV', production, {
      description: 'production: neutral error texts and no file watching; development: details in answers.',
      fallback: false,
    }),
    hotReload: setting('FN_HOT_RELOAD', boolean(), {
      description: 'Reload on file changes. On by default in development.',
      off: 'Disable reload on file changes.',
      flags: ['--hot-reload', '--no-hot-reload'],
    }),
    publicBaseUrl: setting('FN_PUBLIC_BASE_URL', texts.baseUrl('Address of the gateway.'), {
      description: 'Address under which clients reach the gateway, for the OpenAPI document.',
      flags: '--public-base-url <url>',
    }),
    gatewayWorkers: setting('FN_GATEWAY_WORKERS', countOrAuto(limits.MAX_GATEWAY_WORKERS), {
      description: 'Processes that accept connections; auto starts one per CPU core.',
      fallback: 1,
      flags: '--gateway-workers <count>',
    }),
    shutdownTimeoutMs: setting(['FN_SHUTDOWN_TIMEOUT_MS', 'FN_SHUTDOWN_TIMEOUT'], integer({ min: 0, max: 600_000 }), {
      description: 'Longest wait for running requests at a stop; FN_SHUTDOWN_TIMEOUT is in seconds.',
      fallback: limits.DEFAULT_SHUTDOWN_TIMEOUT_MS,
      envFields: { FN_SHUTDOWN_TIMEOUT: mapped(integer({ min: 0, max: 600 }), seconds => seconds * 1000) },
      flags: '--shutdown-timeout-ms <ms>',
    }),
    shutdownDelayMs: setting('FN_SHUTDOWN_DELAY_MS', integer({ min: 0, max: 600_000 }), {
      description: 'How long to keep accepting connections after SIGTERM while reporting not ready.',
      fallback: 0,
      flags: '--shutdown-delay-ms <ms>',
    }),
    accessLog: toggle('FN_ACCESS_LOG', true, 'Log each request.', {
      flags: '--no-access-log',
      off: 'Do not log requests.',
    }),
    logFormat: setting('FN_LOG_FORMAT', oneOf(['json', 'text']), {
      description: 'Form of what is printed while serving; dev: text, run: json.',
      fallback: 'json',
      flags: '--log-format <format>',
    }),
    logFiles: toggle('FN_LOG_FILES', false, 'Write logs to .svc/logs of the functions root too.', {
      flags: '--log-files',
    }),
    logLevel: setting('FN_LOG_LEVEL', oneOf(['debug', 'info', 'warn', 'error', 'silent']), {
      description: 'Least important lines that are written.',
      fallback: 'info',
      flags: '--log-level <level>',
    }),
    docsEnabled: toggle('FN_DOCS_ENABLED', true, 'Serve /docs and /openapi.json.'),
    openapiTitle: setting('FN_OPENAPI_TITLE', string(), {
      description: 'Title in the OpenAPI document.',
      fallback: 'fngw',
    }),
    openapiVersion: setting('FN_OPENAPI_VERSION', string(), {
      description: 'Version of your API in the OpenAPI document.',
      fallback: '1.0.0',
    }),
    openapiDescription: setting('FN_OPENAPI_DESCRIPTION', string({ multiline: true }), {
      description: 'Description in the OpenAPI document; Markdown.',
      fallback: 'Functions served by this gateway.',
    }),
    openapiIncludeInternal: setting('FN_OPENAPI_INCLUDE_INTERNAL', boolean(), {
      description: 'List the paths under /_fn in the OpenAPI document.',
      fallback: false,
      keyAliases: ['swagger-include-admin'],
    }),
  }),

  ...inSection('Routes', {
    namespaceDepth: setting('FN_NAMESPACE_DEPTH', integer({ min: 1, max: limits.MAX_NAMESPACE_DEPTH }), {
      description: 'Name segments below a runtime folder.',
      fallback: limits.DEFAULT_NAMESPACE_DEPTH,
      flags: '--namespace-depth <count>',
    }),
    forceUrl: toggle('FN_FORCE_URL', false, 'Treat every route of a config as forced.', { flags: '--force-url' }),
    homeFunction: setting('FN_HOME_FUNCTION', homeFunction, { description: 'Path that answers for /.' }),
    homeRedirect: setting('FN_HOME_REDIRECT', homeRedirect, { description: 'URL or path that / redirects to.' }),
    trustedProxyHeader: setting('FN_TRUSTED_PROXY_HEADER', proxyHeader, {
      description:
        'Header by which trusted proxies name the client, X-Forwarded-For by default; other headers are ignored when it is set.',
    }),
    trustedProxyCidrs: setting('FN_TRUSTED_PROXY_CIDRS', cidrs, {
      description: 'Proxies whose X-Forwarded-* headers the gateway trusts.',
      fallback: [],
      flags: '--trusted-proxy-cidrs <list>',
    }),
  }),

  ...inSection('Limits', {
    defaultTimeoutMs: setting('FN_DEFAULT_TIMEOUT_MS', integer({ min: 1, max: limits.MAX_TIMEOUT_MS }), {
      description: 'timeout_ms of a function that sets none.',
      fallback: limits.DEFAULT_TIMEOUT_MS,
      flags: '--default-timeout-ms <ms>',
    }),
    defaultMaxConcurrency: setting('FN_DEFAULT_MAX_CONCURRENCY', integer({ min: 0 }), {
      description: 'max_concurrency of a function that sets none; 0 means no limit.',
      fallback: limits.DEFAULT_MAX_CONCURRENCY,
      flags: '--default-max-concurrency <count>',
    }),
    defaultMaxQueue: setting('FN_DEFAULT_MAX_QUEUE', integer({ min: 0 }), {
      description: 'Calls that may wait for a function that sets no max_concurrency; 0 refuses at once.',
      fallback: limits.DEFAULT_FUNCTION_MAX_QUEUE,
    }),
    defaultQueueTimeoutMs: setting('FN_DEFAULT_QUEUE_TIMEOUT_MS', integer({ min: 0, max: limits.MAX_TIMEOUT_MS }), {
      description: 'Longest wait of such a call.',
      fallback: limits.DEFAULT_FUNCTION_QUEUE_TIMEOUT_MS,
    }),
    defaultQueueWaitMs: setting('FN_DEFAULT_QUEUE_WAIT_MS', integer({ min: 0, max: limits.MAX_TIMEOUT_MS }), {
      description: 'When the first of these calls has waited longer, further ones are refused at once; 0: never.',
      fallback: limits.DEFAULT_FUNCTION_QUEUE_WAIT_MS,
    }),
    defaultMaxBodyBytes: setting('FN_DEFAULT_MAX_BODY_BYTES', integer({ min: 1, max: limits.MAX_BODY_BYTES }), {
      description: 'max_body_bytes of a function that sets none.',
      fallback: limits.DEFAULT_MAX_BODY_BYTES,
      flags: '--default-max-body-bytes <bytes>',
    }),
  }),

  ...inSection('Runtimes', {
    isolation: setting('FN_ISOLATION', oneOf(['process', 'user']), {
      description: 'How functions are isolated: in separate processes, or also under separate users.',
      fallback: 'process',
    }),
    isolationFiles: setting('FN_ISOLATION_FILES', oneOf(['refuse', 'close', 'warn']), {
      description: 'With FN_ISOLATION=user: how to treat functions whose files other users can read.',
      fallback: 'refuse',
    }),
    isolationUids: setting('FN_ISOLATION_UIDS', texts.uidRange(), {
      description: 'User ids with FN_ISOLATION=user: the first is the gateway, one for each function.',
      fallback: '20000-29999',
    }),
  }),

  ...inSection('Limits', {
    functionProcesses: setting('FN_FUNCTION_PROCESSES', integer({ min: 16, max: 4_194_304 }), {
      description:
        'With FN_ISOLATION=user: processes and threads that all workers of one function have together; 4096 by default.',
    }),
    functionOpenFiles: setting('FN_FUNCTION_OPEN_FILES', integer({ min: 32, max: 1_048_576 }), {
      description: 'With FN_ISOLATION=user: files that one process of a function may have open.',
    }),
    functionTempMb: setting('FN_FUNCTION_TEMP_MB', integer({ min: 1, max: MAX_MB }), {
      description: 'With FN_ISOLATION=user: size of the temporary files of one function.',
    }),
    workerMemoryMb: setting('FN_WORKER_MEMORY_MB', integer({ min: 16, max: MAX_MB }), {
      description: 'Memory that one worker may allocate.',
      fallback: limits.DEFAULT_WORKER_MEMORY_MB,
      flags: '--worker-memory-mb <mb>',
    }),
    workerNice: setting('FN_WORKER_NICE', integer({ min: 0, max: limits.MAX_WORKER_NICE }), {
      description: 'Steps of priority (nice) that processes of functions and builds stand below the gateway.',
      fallback: limits.DEFAULT_WORKER_NICE,
      flags: '--worker-nice <steps>',
    }),
    responseIdleTimeoutMs: setting('FN_RESPONSE_IDLE_TIMEOUT_MS', integer({ min: 1000, max: limits.MAX_TIMEOUT_MS }), {
      description: 'Longest time in which a client reads nothing of a response that waits for it.',
      fallback: limits.DEFAULT_RESPONSE_IDLE_TIMEOUT_MS,
    }),
    bodyMemoryMb: setting('FN_BODY_MEMORY_MB', integer({ min: 1, max: MAX_MB }), {
      description:
        'Memory for request bodies, and as much again for responses that clients have not read; an eighth of the memory each by default.',
    }),
    luaMemoryMb: setting('FN_LUA_MEMORY_MB', integer({ min: 16, max: MAX_MB }), {
      description: 'Memory limit for all Lua functions together; at least the limit of one function.',
      fallback: limits.DEFAULT_LUA_MEMORY_MB,
    }),
  }),

  ...inSection('Runtimes', {
    runtimes: setting('FN_RUNTIMES', runtimes, {
      description: 'Enabled runtimes; one that is named and missing is shown as down.',
      fallback: [...DEFAULT_RUNTIMES],
      flags: '--runtimes <list>',
    }),
    runtimeDaemons: setting('FN_RUNTIME_DAEMONS', daemonCounts, {
      description: 'Daemon processes per runtime; default 1 each; not for lua.',
      fallback: {},
      flags: '--runtime-daemons <list>',
    }),
    runtimeSockets: setting('FN_RUNTIME_SOCKETS', socketMap, {
      description: 'Sockets of daemons that run elsewhere, per runtime; wins over runtime-daemons.',
      fallback: {},
      flags: '--runtime-sockets <json>',
      locate: locateSockets,
    }),
    runtimeSecret: setting('FN_RUNTIME_SECRET', sharedSecret, {
      description: 'Shared secret of the gateway and its daemons on tcp and tls sockets.',
      key: null,
      secret: true,
    }),
    runtimeSecretFile: file('FN_RUNTIME_SECRET_FILE', 'File that holds that secret, instead of FN_RUNTIME_SECRET.'),
    runtimeTlsCaFile: file(
      'FN_RUNTIME_TLS_CA_FILE',
      'Certificates that sign those of daemons on tls sockets; default those of node.',
    ),
    binaries: setting([], programs, {
      description: 'Programs by tool; default the name on PATH.',
      fallback: {},
      key: 'runtime-binaries',
    }),
    runtimeImage: setting(
      'FN_RUNTIME_IMAGE',
      string({ rule: 'an image tag', pattern: /^[A-Za-z0-9][A-Za-z0-9._:/@-]*$/, maxLength: 500 }),
      { description: 'Image in which fngw dev serves, without --native.', flags: '--runtime-image <tag>' },
    ),
    goBuildTimeoutSeconds: setting(
      ['GO_BUILD_TIMEOUT_S', 'FN_GO_BUILD_TIMEOUT_S'],
      number({ min: 1, max: MAX_SECONDS }),
      {
        description: 'Longest Go build.',
        fallback: limits.DEFAULT_GO_BUILD_TIMEOUT_SECONDS,
        key: 'go-build-timeout-s',
      },
    ),
    rustBuildTimeoutSeconds: setting('FN_RUST_BUILD_TIMEOUT_S', number({ min: 1, max: MAX_SECONDS }), {
      description: 'Longest Rust build.',
      fallback: limits.INSTALL_TIMEOUT_SECONDS,
    }),
  }),

  ...inSection('Dependencies', {
    depsWaitMs: setting('FN_DEPS_WAIT_MS', integer({ min: 0, max: limits.MAX_TIMEOUT_MS }), {
      description: 'Longest wait of a call for the build or the packages of its function.',
      fallback: limits.DEFAULT_DEPS_WAIT_MS,
    }),
    autoRequirements: toggle('FN_AUTO_REQUIREMENTS', true, 'Install Python packages.'),
    autoInferPyDeps: toggle(
      'FN_AUTO_INFER_PY_DEPS',
      true,
      `Install Python packages that only imports ask for; ${IN_RUN}.`,
    ),
    pyInferBackend: setting('FN_PY_INFER_BACKEND', oneOf(['native', 'pipreqs']), {
      description: 'How Python imports are found.',
      fallback: 'native',
    }),
    autoNodeDeps: toggle('FN_AUTO_NODE_DEPS', true, 'Install Node packages.'),
    autoInferNodeDeps: toggle(
      'FN_AUTO_INFER_NODE_DEPS',
      true,
      `Install Node packages that only imports ask for; ${IN_RUN}.`,
    ),
    nodeInferBackend: setting('FN_NODE_INFER_BACKEND', oneOf(['native', 'detective', 'require-analyzer']), {
      description: 'How Node imports are found.',
      fallback: 'native',
    }),
    nodePackageSources: toggle(
      'FN_NODE_PACKAGE_SOURCES',
      false,
      'Allow repositories, URLs and paths outside the functions root in package.json.',
    ),
    autoInferWriteManifest: toggle('FN_AUTO_INFER_WRITE_MANIFEST', true, 'Write found packages into manifests.'),
    autoInferStrict: toggle('FN_AUTO_INFER_STRICT', true, 'An import that is not resolved fails the function.'),
    autoPhpDeps: toggle('FN_AUTO_PHP_DEPS', true, 'Install Composer packages.'),
    phpPackageSources: toggle(
      'FN_PHP_PACKAGE_SOURCES',
      false,
      'Allow repositories of any kind, and paths outside the functions root, in composer.json.',
    ),
    preinstallPhpDepsOnStart: toggle('FN_PREINSTALL_PHP_DEPS_ON_START', true, 'Install Composer packages at start.'),
    preinstallPyDepsOnStart: toggle('FN_PREINSTALL_PY_DEPS_ON_START', true, 'Install Python packages at start.'),
    pyRequirementsOptions: toggle(
      'FN_PY_REQUIREMENTS_OPTIONS',
      false,
      'Allow options, URLs and paths in requirements.txt.',
    ),
    preinstallNodeDepsOnStart: toggle('FN_PREINSTALL_NODE_DEPS_ON_START', true, 'Install Node packages at start.'),
    preinstallNodeDepsConcurrency: setting('FN_PREINSTALL_NODE_DEPS_CONCURRENCY', integer({ min: 1, max: 64 }), {
      description: 'Node installs at once during the start.',
      fallback: limits.DEFAULT_PREINSTALL_NODE_DEPS_CONCURRENCY,
    }),
  }),

  ...inSection('Control plane', {
    uiEnabled: toggle(
      'FN_UI_ENABLED',
      false,
      'Serve the console at /console. On by default in fngw dev on a loopback address.',
      { flags: '--no-console', off: 'Do not serve the console.' },
    ),
    consoleApiEnabled: toggle('FN_CONSOLE_API_ENABLED', true, 'Serve /_fn beyond health.'),
    consoleWriteEnabled: toggle('FN_CONSOLE_WRITE_ENABLED', false, 'Allow writes without the admin token.'),
    consoleLocalOnly: toggle('FN_CONSOLE_LOCAL_ONLY', true, 'Only local clients, or the admin token.'),
    adminToken: setting(
      'FN_ADMIN_TOKEN',
      string({ rule: 'visible ASCII characters without blanks', pattern: /^[\x21-\x7e]+$/ }),
      { description: 'Token for x-fn-admin-token.', key: null, secret: true },
    ),
    adminTokenFile: file('FN_ADMIN_TOKEN_FILE', 'File that holds the token, instead of FN_ADMIN_TOKEN.'),
    consoleLoginApi: toggle('FN_CONSOLE_LOGIN_API', false, 'Ask for a session, or the token, everywhere below /_fn.'),
    consoleLoginUsername: setting(
      'FN_CONSOLE_LOGIN_USERNAME',
      string({ rule: 'a text of 1 to 200 characters on one line', maxLength: 200 }),
      { description: 'Name to log in with.', fallback: 'admin' },
    ),
    consoleLoginPasswordHash: setting('FN_CONSOLE_LOGIN_PASSWORD_HASH', passwordHash, {
      description: 'Hash of the password to log in with.',
      key: null,
      secret: true,
    }),
    consoleLoginPasswordHashFile: file('FN_CONSOLE_LOGIN_PASSWORD_HASH_FILE', 'File that holds the hash instead.'),
    consoleSessionTtlSeconds: setting('FN_CONSOLE_SESSION_TTL_S', integer({ min: 60, max: 2_592_000 }), {
      description: 'How long a login lasts.',
      fallback: 43_200,
    }),
    controlPort: setting('FN_CONTROL_PORT', integer({ min: 0, max: 65_535 }), {
      description: 'TCP port on which /_fn and /console are served, and only there; 0 takes a free one.',
      flags: '--control-port <number>',
    }),
    consoleHosts: setting('FN_CONSOLE_HOSTS', list(texts.hostRule(), { rule: 'a list of hosts' }), {
      description: 'Host names, besides loopback and addresses, of a local control-plane call.',
      fallback: [],
    }),
    consoleLocalCidrs: setting('FN_CONSOLE_LOCAL_CIDRS', cidrs, {
      description: 'Addresses, besides loopback, whose callers count as local.',
      fallback: [],
    }),
  }),

  ...inSection('Scheduler and jobs', {
    schedulerEnabled: toggle('FN_SCHEDULER_ENABLED', true, 'Run schedules and keep_warm.'),
    schedulerIntervalSeconds: setting(
      'FN_SCHEDULER_INTERVAL',
      clampedBelow(limits.MIN_SCHEDULER_INTERVAL_SECONDS, 3600),
      {
        description: 'Time between ticks; a smaller value counts as 1.',
        fallback: limits.MIN_SCHEDULER_INTERVAL_SECONDS,
      },
    ),
    schedulerPersistEnabled: toggle('FN_SCHEDULER_PERSIST_ENABLED', true, 'Keep schedule state on disk.'),
    schedulerPersistIntervalSeconds: setting(
      'FN_SCHEDULER_PERSIST_INTERVAL',
      number({ min: PERSIST.min, max: PERSIST.max, clamp: true }),
      {
        description: 'Time between writes of schedule state; clamped.',
        fallback: PERSIST.default,
      },
    ),
    schedulerStatePath: file(
      'FN_SCHEDULER_STATE_PATH',
      'File of schedule state; default .svc/scheduler-state.json below the functions root.',
    ),
    jobsEnabled: toggle('FN_JOBS_ENABLED', true, 'Run jobs.'),
    jobsMaxConcurrency: setting('FN_JOBS_MAX_CONCURRENCY', integer({ min: 1, max: 1000 }), {
      description: 'Jobs that run at once.',
      fallback: limits.DEFAULT_JOBS_MAX_CONCURRENCY,
    }),
    jobsMaxResultBytes: setting('FN_JOBS_MAX_RESULT_BYTES', integer({ min: 0 }), {
      description: 'Bytes of a job result that are kept, 0 for all; the rest is cut off.',
      fallback: limits.DEFAULT_JOBS_MAX_RESULT_BYTES,
    }),
    jobsCallbackSecret: setting('FN_JOBS_CALLBACK_SECRET', sharedSecret, {
      description: 'Secret that signs job callbacks (X-Fn-Signature).',
      key: null,
      secret: true,
    }),
    jobsCallbackSecretFile: file(
      'FN_JOBS_CALLBACK_SECRET_FILE',
      'File with that secret, instead of FN_JOBS_CALLBACK_SECRET.',
    ),
  }),

  ...inSection('Fleet', {
    storeUrl: setting('FN_STORE_URL', texts.storeUrl, {
      description:
        'Redis or Valkey server that several gateways share: redis://[user:password@]host:6379/0, redis+sentinel://host:26379/group for Sentinels, redis+cluster://host:6379 for a Cluster; rediss instead of redis for TLS. Without it jobs and schedules are kept below the functions root.',
      key: null,
      secret: true,
    }),
    storeUrlFile: file('FN_STORE_URL_FILE', 'File with that URL, instead of FN_STORE_URL.'),
    storePrefix: setting('FN_STORE_PREFIX', texts.storePrefix, {
      description: 'First part of the keys in the store: gateways with the same one are one fleet.',
      fallback: 'fngw',
    }),
    release: setting('FN_RELEASE', texts.release, {
      description:
        'Name of the release of the functions, such as a commit or an image tag: gateways of a fleet with different ones are a rollout. A digest of their sources and configs when unset.',
    }),
    storeRequired: setting('FN_STORE_REQUIRED', boolean(), {
      description:
        '1: a gateway without its store is not ready. 0: it starts without it. Unset: it does not start without it, and stays ready when the store becomes unavailable later.',
    }),
  }),
}

type Options = typeof SETTING_OPTIONS
type ValueOf<Option> = Option extends { readonly field: Field<infer T>; readonly fallback: infer F }
  ? (T extends readonly (infer Item)[] ? readonly Item[] : T) | (null extends F ? null : never)
  : never

/** The settings in force, validated. Names end with the unit of a duration, and paths are absolute. */
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

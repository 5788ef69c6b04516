/** Declarations of every field of `fn.config.json`. Spec: §2.7 to §2.10, §2.13; owner: page config/function-config. */

import {
  ADAPTER_SPELLINGS,
  type AdapterName,
  ADAPTERS,
  isFunctionName,
  isHandlerName,
  MAX_NAME_CHARS,
  METHODS,
  PACK_NAME,
  PACK_NAME_RULE,
  RUNTIMES,
} from '../core/identity.ts'
import { CRON_RULE, parseCron, parseTimezone, TIMEZONE_RULE } from '../core/cron.ts'
import { isHeaderName } from '../core/http-text.ts'
import * as limits from '../core/limits.ts'
import {
  boolean,
  either,
  type Field,
  integer,
  json,
  jsonObject,
  list,
  mapOf,
  mapped,
  number,
  object,
  oneOf,
  reportWrong,
  showText,
  string,
} from './fields.ts'
import * as texts from './texts.ts'

/** Most patterns that one function may list. */
const MAX_ROUTES = 32
/** Most workers of one function that are started before anybody calls. */
const MAX_WARM = 1000

const adapterNames = oneOf(ADAPTERS, { spellings: ADAPTER_SPELLINGS })

/** An adapter: its canonical name, or null with the name that was given and is none (calls then answer 500). */
const adapter: Field<{ name: AdapterName | null; given: string }> = {
  ...adapterNames,
  schema: { description: 'How the handler is called; default native.', ...adapterNames.schema },
  read: (value, at) => ({ name: adapterNames.read(value, at) ?? null, given: typeof value === 'string' ? value : '' }),
  readText: (text, at) => ({ name: adapterNames.readText(text, at) ?? null, given: text }),
}

const method = (description?: string) =>
  oneOf(METHODS, {
    ...(description ? { description } : {}),
    hint: 'HEAD follows GET and OPTIONS is answered by the gateway: neither is listed.',
  })

const methods = list(method(), {
  rule: `a list of ${METHODS.join(', ')}`,
  minItems: 1,
  description: 'Allowed HTTP methods; default all five for a function with a config, else GET.',
})

const routes = list(texts.publicPath(), {
  rule: 'a list of paths that start with /',
  maxItems: MAX_ROUTES,
  description: 'Public paths; default /<name> and /<name>/*; [] for none. Segments: :x {x} [x] :x*, and a trailing /*.',
})

const route = texts.publicPath('One more public path.')

const forceUrl = boolean({
  aliases: ['force_url', 'forceUrl'],
  description: 'Take a URL that another function already has.',
})

const includeDebugHeaders = boolean({ description: 'Add X-Fn-* headers to responses.' })

const homeRoute = string({
  rule: texts.HOME_ROUTE_RULE,
  parse: texts.parseHomeRoute,
  aliases: ['path', 'target', 'home-route', 'home_route'],
  description: 'Path that is run as the home of the folder.',
})

const homeRedirect = string({
  rule: texts.HOME_REDIRECT_RULE,
  parse: texts.parseHomeRedirect,
  aliases: ['url', 'location'],
  description: 'URL or path that the home answers with as a 302 redirect.',
})

const homeObject = mapped(
  object({ route: homeRoute, function: { ...homeRoute, aliases: [] }, redirect: homeRedirect }),
  ({ route, function: path, redirect }) => ({ route: route ?? path, redirect }),
)

const homeText = mapped(
  string({ rule: `${texts.HOME_ROUTE_RULE}, or a URL` }),
  (text, at): { route?: string | undefined; redirect?: string | undefined } | undefined => {
    if (/^https?:\/\//i.test(text)) {
      const redirect = homeRedirect.read(text, at)
      return redirect === undefined ? undefined : { redirect }
    }
    const route = homeRoute.read(text, at)
    return route === undefined ? undefined : { route }
  },
)

const home = either(homeText, homeObject, { description: 'The response for the folder itself.' })

const assets = object(
  {
    directory: texts.relativePath('Folder of static files below the functions root.', 'a folder name'),
    not_found_handling: oneOf(['404', 'single-page-application'], {
      spellings: { spa: 'single-page-application' },
      description: 'The response for a missing file; default 404.',
    }),
    run_worker_first: boolean({ description: 'Functions before files; default false.' }),
  },
  { description: 'Static files, root config only.', required: ['directory'] },
)

const workerPool = object(
  {
    enabled: boolean({ description: 'Whether there is a pool; default true once the block exists.' }),
    min_warm: integer({
      min: 0,
      max: MAX_WARM,
      description: 'Workers that stay started, without pings; default 0, at most max_workers.',
    }),
    max_workers: integer({
      min: 1,
      description: 'Calls run at once, never more than a max_concurrency that is set; default max_concurrency.',
      hint: 'Leave it out to use max_concurrency, where 0 means no limit.',
    }),
    max_queue: integer({ min: 0, description: 'Calls that may wait; default 0.' }),
    queue_timeout_ms: integer({ min: 0, max: limits.MAX_TIMEOUT_MS, description: 'Longest wait, ms; default 0.' }),
    queue_poll_ms: integer({ min: 1, max: 1000, description: 'Accepted, unused: the queue needs no polling.' }),
    idle_ttl_seconds: integer({ min: 0, max: 86_400, description: 'Seconds an idle worker stays; default 300.' }),
    overflow_status: oneOf([429, 503], { description: 'Status when the queue is full or too slow; default 429.' }),
  },
  { description: 'Workers and queue of the function.' },
)

const keepWarm = object(
  {
    enabled: boolean({ description: 'Send pings; default true once the block exists.' }),
    min_warm: integer({ min: 0, max: MAX_WARM, description: 'Workers kept started; default 1.' }),
    ping_every_seconds: integer({ min: 1, max: 86_400, description: 'Seconds between pings; default 45.' }),
    idle_ttl_seconds: integer({ min: 1, max: 86_400, description: 'Idle seconds before scale-down; default 300.' }),
  },
  { description: 'Calls the handler regularly, with the header x-fn-trigger: keep_warm, so that it stays started.' },
)

const edge = object(
  {
    base_url: texts.baseUrl('Upstream that proxy.path is appended to.'),
    allow_hosts: texts.hostAllowList('Upstream hosts that may be reached; empty means every public host.'),
    allow_private: boolean({ description: 'Allow private addresses; default false.' }),
    max_response_bytes: integer({
      min: 1,
      max: limits.MAX_BODY_BYTES,
      description: 'Largest upstream answer, bytes; default 2097152.',
    }),
  },
  { description: 'Upstreams that a proxy directive of the handler may reach.' },
)

const { RETRY_MAX_ATTEMPTS: ATTEMPTS, RETRY_BASE_DELAY_SECONDS: BASE, RETRY_MAX_DELAY_SECONDS: LONGEST } = limits
const JITTER = limits.RETRY_JITTER

const retryObject = object({
  enabled: boolean({ description: 'Whether it is run again; default true once the block exists.' }),
  max_attempts: integer({
    ...toRange(ATTEMPTS, 'Runs in all, the first one counted'),
    aliases: ['maxAttempts', 'attempts'],
  }),
  base_delay_seconds: number({
    ...toRange(BASE, 'Wait before the second run, doubled before each further one'),
    aliases: ['baseDelaySeconds', 'delay_seconds', 'delaySeconds'],
  }),
  max_delay_seconds: number({ ...toRange(LONGEST, 'Longest such wait'), aliases: ['maxDelaySeconds'] }),
  jitter: number(toRange(JITTER, 'Share of the wait by which it varies')),
})

/** A value outside the range becomes the nearest one inside it. */
function toRange(range: { min: number; max: number; default: number }, meaning: string) {
  const { min, max } = range
  return { min, max, clamp: true, description: `${meaning}; default ${range.default}.` }
}

const cronText = string({
  rule: CRON_RULE,
  maxLength: 200,
  description: 'min hour dom mon dow, with seconds in front when there are 6 fields.',
})

/** An invalid cron text is reported with the reason. */
const cron = mapped(cronText, (text, at): string | undefined => {
  const parsed = parseCron(text)
  if (!('problem' in parsed)) return parsed.text
  return reportWrong(at, `${CRON_RULE}; ${parsed.problem}`, text, 'Such as "*/5 * * * *", or "0 9 * * MON-FRI".')
})

const scalarText: Field<string> = {
  rule: 'a text, number or boolean',
  aliases: [],
  schema: { type: ['string', 'number', 'boolean'] },
  read: (value, at) => texts.toScalarText(value) ?? reportWrong(at, 'a text, number or boolean', value),
  readText: text => text,
}

const headers = mapped(
  mapOf(scalarText, {
    keyPattern: /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/,
    keyRule: 'a header name',
    description: 'Headers of the call, each on one line.',
  }),
  (entries, at) => {
    for (const [name, value] of Object.entries(entries)) {
      if (!texts.isHeaderValue(value)) return reportWrong({ ...at, name: `${at.name}.${name}` }, 'one line', value)
    }
    return entries
  },
)

export const SCHEDULE_FIELDS = {
  enabled: boolean({ description: 'Whether it is due at all; default true once the block exists.' }),
  every_seconds: integer({ min: 1, max: 31_536_000, description: 'Interval in seconds; wins over cron.' }),
  cron,
  timezone: string({
    rule: TIMEZONE_RULE,
    parse: parseTimezone,
    aliases: ['tz'],
    description: 'Zone of cron; default local, that of the machine.',
  }),
  method: method('Method of the call; default GET.'),
  query: jsonObject({ description: 'Query of the call.' }),
  headers,
  body: string({ multiline: true, description: 'Body of the call.', hint: 'Write JSON as a text: "{\\"a\\": 1}".' }),
  context: jsonObject({ description: 'Becomes event.context.user.' }),
  retry: either(boolean(), retryObject, {
    description: 'Retries after a failed run; true means the defaults, default false.',
  }),
}

const schedule = object(SCHEDULE_FIELDS, { description: 'Calls by interval or cron.' })

const ORIGIN = /^(\*|null|[a-z][a-z0-9+.-]*:\/\/[^\s/?#]+)$/

const origin = string({
  rule: '*, or an origin such as https://example.com',
  parse: text => (ORIGIN.test(text.toLowerCase()) ? text.toLowerCase() : null),
  hint: 'Write scheme and host without a path.',
})

const headerName = string({
  rule: 'a header name, or *',
  parse: text => (isHeaderName(text) ? text.toLowerCase() : null),
  maxLength: 200,
})

const corsObject = object({
  origins: list(origin, { rule: 'a list of origins', description: 'Sites whose pages may call; none by default.' }),
  methods: list(method(), { description: 'Default: the methods of the path.' }),
  headers: list(headerName, { description: 'Request headers that are allowed.' }),
  expose: list(headerName, { description: 'Response headers that a page may read.' }),
  credentials: boolean({ description: 'Default false; not together with the origin *.' }),
  max_age: integer({ min: 0, max: 86_400, description: 'Seconds a preflight answer is kept; default 600.' }),
})

const corsOff = mapped(boolean(), (value, at) =>
  value ? reportWrong(at, 'false or an object', true, 'Write { "origins": ["https://example.com"] }.') : value,
)

const cors = either(corsOff, corsObject, {
  description: 'Cross-origin access; off by default, false turns an inherited block off.',
})

const packText = string({ rule: `a pack name, which ${PACK_NAME_RULE}`, pattern: PACK_NAME, maxLength: 200 })

/** A name that is wrong stays in the list: a call then fails as for a pack that is missing, instead of running without it. */
const packName: Field<string> = {
  ...packText,
  read: (value, at) =>
    packText.read(value, at) ?? showText(typeof value === 'string' ? value : (JSON.stringify(value) ?? '')),
  readText: (text, at) => packText.readText(text, at) ?? showText(text),
}

const packageName = string({
  rule: 'the name of an npm or Composer package, such as esbuild, @scope/name or vendor/name',
  pattern: /^(?:@?[A-Za-z0-9][A-Za-z0-9._~-]*\/)?[A-Za-z0-9][A-Za-z0-9._~-]*$/,
  maxLength: 214,
})

/** Fields of `invoke`. */
export const INVOKE_FIELDS = {
  handler: string({
    rule: 'a name that matches ^[a-zA-Z_][a-zA-Z0-9_]*$',
    parse: text => (isHandlerName(text) ? text : null),
    pattern: /^[a-zA-Z_][a-zA-Z0-9_]*$/,
    maxLength: 200,
    description: 'Name of the callable in the handler file; default handler.',
  }),
  adapter,
  routes,
  route,
  methods,
  allow_hosts: texts.hostAllowList('Hosts that may call; default every host.'),
  'force-url': forceUrl,
  validate: boolean({ description: 'Check requests against schema.json beside the handler; default false.' }),
  summary: string({ maxLength: 500, description: 'Summary in the OpenAPI document.' }),
  query: jsonObject({ description: 'Example query of the OpenAPI document.' }),
  body: json({ description: 'Example body of the OpenAPI document.' }),
  content_type: string({ maxLength: 200, description: 'Type of the example body.' }),
  default_method: method('Accepted, unused.'),
  home,
  'home-route': { ...homeRoute, aliases: ['home_route'] },
}

/** Fields of the file. */
export const CONFIG_FIELDS = {
  $schema: string({ maxLength: 2000, description: 'JSON Schema of the file, for editors.' }),
  runtime: oneOf(RUNTIMES, { description: 'Runtime of the function; declares an identity.' }),
  name: string({
    rule: 'segments of letters, digits, _ and - joined by /',
    parse: text => (isFunctionName(text) ? text : null),
    pattern: /^[a-zA-Z0-9_-]+(\/[a-zA-Z0-9_-]+)*$/,
    maxLength: MAX_NAME_CHARS,
    description: 'Name of the function; declares an identity.',
  }),
  version: string({ maxLength: 200, description: 'For people; versions come from folders.' }),
  entrypoint: texts.relativePath('Handler file; declares an identity.', 'a file of the function folder'),
  group: string({ maxLength: 80, description: 'Label under which lists show it.' }),
  timeout_ms: integer({
    min: 1,
    max: limits.MAX_TIMEOUT_MS,
    description: 'Longest run of a call, ms; default 2500.',
  }),
  max_concurrency: integer({ min: 0, description: 'Calls at once; default 20, 0 means no limit.' }),
  max_body_bytes: integer({
    min: 1,
    max: limits.MAX_BODY_BYTES,
    description: 'Largest request body, bytes; default 1048576.',
  }),
  private: boolean({
    description:
      'No public route, for the folder and those below it: only schedules, jobs and invoke call it; default false.',
  }),
  methods: { ...methods, schema: { ...methods.schema, description: 'Same as invoke.methods, which wins.' } },
  routes: { ...routes, schema: { ...routes.schema, description: 'Same as invoke.routes, which wins.' } },
  'force-url': forceUrl,
  include_debug_headers: includeDebugHeaders,
  invoke: object(INVOKE_FIELDS, { description: 'Who may call the function, and how it is called.' }),
  response: object({ include_debug_headers: includeDebugHeaders }, { description: 'Additions to its responses.' }),
  home,
  assets,
  worker_pool: workerPool,
  keep_warm: keepWarm,
  edge,
  schedule,
  shared_deps: list(packName, {
    aliases: ['sharedDeps', 'deps'],
    rule: 'a list of pack names',
    description: 'Shared dependency packs.',
  }),
  allow_scripts: list(packageName, {
    aliases: ['allowScripts'],
    rule: 'a list of names of npm or Composer packages',
    description: 'Packages whose install scripts (npm) or plugins (Composer) may run; those of all others do not.',
  }),
  cors,
}

/** The whole file. */
export const FUNCTION_CONFIG = object(CONFIG_FIELDS, {
  noEffect: { strict_fs: 'handlers have the file access of their process' },
})

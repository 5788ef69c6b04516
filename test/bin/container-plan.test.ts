import { join } from 'node:path'
import t from 'tap'
import { type ContainerFacts, planContainer } from '../../bin/container-plan.ts'
import { type SettingInputs, resolveSettings } from '../../lib/config/settings.ts'

const OUTSIDE = { url: 'http://127.0.0.1:9000', control: null, pid: 4711, program: 'npx fngw', keys: false }

interface Given extends Partial<Omit<ContainerFacts, 'settings' | 'sources'>> {
  inputs?: Partial<SettingInputs>
}

function plan({ inputs = {}, ...given }: Given = {}) {
  const { cwd = '/home/ann/shop', flags = {}, env = {} } = given
  const { settings, sources, problems } = resolveSettings({ cwd, flags, env, ...inputs })
  t.same(problems, [])
  return planContainer({
    client: { ownership: 'same' },
    name: 'fngw-dev-1',
    image: 'fngw:full',
    ...{ settings, sources, cwd, flags, env },
    projectDir: null,
    home: '/home/ann',
    declared: new Set(),
    user: { uid: 1000, gid: 100 },
    timezone: 'Europe/Paris',
    hasColour: false,
    json: false,
    config: null,
    outside: OUTSIDE,
    ports: { public: 9000, control: null },
    ...given,
  })
}

/** Values of the arguments with this name. */
function valuesOf({ args }: { args: string[] }, flag: string): string[] {
  return args.flatMap((arg, at) => {
    if (arg.startsWith(`${flag}=`)) return [arg.slice(flag.length + 1)]
    return arg === flag ? [args[at + 1]!] : []
  })
}

t.test('[bin/container.1, bin/container.5] what is made of nothing but an image', async t => {
  const made = plan()
  t.same(made.args.slice(0, 6), [
    '--rm',
    '--interactive',
    '--name',
    'fngw-dev-1',
    '--log-driver=none',
    '--no-healthcheck',
  ])
  t.same(made.args.slice(made.args.indexOf('fngw:full')), [
    ...['fngw:full', 'dev', '--native', '--outside', JSON.stringify(OUTSIDE), '/home/ann/shop'],
  ])
  t.same(valuesOf(made, '--publish'), ['127.0.0.1:9000:8080'])
  t.same(valuesOf(made, '--workdir'), ['/home/ann/shop'])
  t.same(made.env, { FN_HOST: '0.0.0.0', FN_PORT: '8080', TZ: 'Europe/Paris', FORCE_COLOR: '0' })
  t.same(valuesOf(made, '--env'), Object.keys(made.env))
  const more = plan({ json: true, config: '/home/ann/shop/other.json' })
  t.same(more.args.slice(-4), ['--json', '--config', '/home/ann/shop/other.json', '/home/ann/shop'])
})

t.test('[bin/container.5] host and ports', async t => {
  const hosts = { '127.0.0.1': '127.0.0.1', localhost: '127.0.0.1', '::1': '[::1]', '0.0.0.0': '0.0.0.0' }
  for (const [host, at] of Object.entries(hosts)) {
    const made = plan({ flags: { host }, ports: { public: 80, control: 81 } })
    t.same(valuesOf(made, '--publish'), [`${at}:80:8080`, `${at}:81:8081`])
    t.match(made.env, { FN_HOST: '0.0.0.0', FN_PORT: '8080', FN_CONTROL_PORT: '8081' })
  }
  const aliases = plan({ env: { PORT: '9000', FN_HOST_PORT: '9000', FN_RUNTIME_IMAGE: 'x', FN_NODE_BIN: '/opt/node' } })
  t.same(Object.keys(aliases.env), ['FN_HOST', 'FN_PORT', 'TZ', 'FORCE_COLOR'], 'what is of this machine stays here')
})

t.test('[bin/container.4] who the gateway is in the container', async t => {
  const cases: [name: string, given: Given, want: string[]][] = [
    ['a user', {}, ['--cap-drop=all', '--user=1000:100']],
    ['root', { user: { uid: 0, gid: 0 } }, ['--user=0:0']],
    ['docker without root', { client: { ownership: 'root-is-user' } }, ['--user=0:0']],
    [
      'podman without root',
      { client: { ownership: 'keep-id' } },
      ['--userns=keep-id', '--cap-drop=all', '--user=1000:100'],
    ],
    ['where users have no number', { user: null }, []],
  ]
  for (const [name, given, want] of cases) {
    const { args } = plan(given)
    t.same(
      args.filter(arg => /^--(?:user|userns|cap-drop)=/.test(arg)),
      want,
      name,
    )
    t.ok(args.includes('--security-opt=no-new-privileges'), name)
  }
})

t.test('[bin/container.3] folders and files that it gets', async t => {
  const bind = (path: string, more = '') => `type=bind,source=${path},target=${path}${more}`
  const root = (functionsRoot: string) => ({ flags: { functionsRoot } })
  const cases: [name: string, given: Given, want: string[]][] = [
    ['the working directory', root('functions'), [bind('/home/ann/shop')]],
    ['that of the project file', { ...root('functions'), projectDir: '/home/ann/shop' }, [bind('/home/ann/shop')]],
    ['a root elsewhere', root('/srv/fn'), [bind('/srv/fn')]],
    [
      'a root beside the project',
      { ...root('../fn'), projectDir: '/home/ann/shop' },
      [bind('/home/ann/shop'), bind('/home/ann/fn')],
    ],
    ['never the home', { ...root('functions'), cwd: '/home/ann' }, [bind('/home/ann/functions')]],
    ['never everything', { ...root('srv'), cwd: '/' }, [bind('/srv')]],
    [
      'files of secrets, to be read',
      { ...root('fn'), env: { FN_ADMIN_TOKEN_FILE: '/run/token', FN_CONSOLE_LOGIN_PASSWORD_HASH_FILE: 'hash' } },
      [bind('/home/ann/shop'), bind('/run/token', ',readonly')],
    ],
    [
      'state',
      { ...root('fn'), env: { FN_SCHEDULER_STATE_PATH: '/var/fn/s.json' } },
      [bind('/home/ann/shop'), bind('/var/fn')],
    ],
    [
      'sockets of daemons',
      { ...root('fn'), env: { FN_RUNTIME_SOCKETS: '{"node":["unix:/run/n/a.sock","tcp://10.0.0.1:9"]}' } },
      [bind('/home/ann/shop'), bind('/run/n')],
    ],
    [
      'names that mean something to the client',
      root('/srv/a,b"c'),
      ['type=bind,"source=/srv/a,b""c","target=/srv/a,b""c"'],
    ],
  ]
  for (const [name, given, want] of cases) t.same(valuesOf(plan(given), '--mount'), want, name)
  t.same(valuesOf(plan(root('/srv/fn')), '--workdir'), ['/srv/fn'], 'a folder that it has')
  for (const path of ['/', '/usr', '/app', '/etc'])
    t.throws(() => plan(root(path)), { message: /cannot be given to the container.*--native/ }, path)
  t.doesNotThrow(() => plan(root('/app/functions')))
})

t.test('[bin/container.6] variables and flags, and none of their values among the arguments', async t => {
  const env = {
    FN_ADMIN_TOKEN: 'planted-token',
    FN_LOG_LEVEL: 'debug',
    FN_SHUTDOWN_TIMEOUT: '3',
    GO_BUILD_TIMEOUT_S: '9',
    API_KEY: 'planted-key',
    OTHER_KEY: 'planted-other',
    PATH: '/bin',
    HOME: '/home/ann',
    HTTPS_PROXY: 'http://user:planted-proxy@proxy:1',
    LC_ALL: 'fr_FR.UTF-8',
    AWS_SECRET_ACCESS_KEY: 'planted-aws',
    'API_*': 'planted-pattern',
  }
  const made = plan({ env, declared: new Set(['API_KEY', 'API_*', 'PATH', 'GONE']) })
  const { AWS_SECRET_ACCESS_KEY, OTHER_KEY, PATH, HOME, 'API_*': pattern, ...handed } = env
  t.match(made.env, handed)
  t.same(
    Object.keys(made.env).sort(),
    [...Object.keys(handed), 'FN_HOST', 'FN_PORT', 'TZ', 'FORCE_COLOR'].sort(),
    'and no other',
  )
  t.notMatch(made.args.join(' '), /planted|:9000 |debug/)

  const flags = { logLevel: 'warn', accessLog: false, shutdownTimeoutMs: '5', port: '9000', runtimeDaemons: 'node=2' }
  const typed = plan({ env: { ...env, FN_ACCESS_LOG: '1' }, flags })
  t.match(typed.env, {
    FN_LOG_LEVEL: 'warn',
    FN_ACCESS_LOG: '0',
    FN_SHUTDOWN_TIMEOUT_MS: '5',
    FN_RUNTIME_DAEMONS: 'node=2',
    FN_PORT: '8080',
  })
  t.notOk('FN_SHUTDOWN_TIMEOUT' in typed.env, 'a flag counts before every variable of its setting')
})

t.test('[bin/container.6] a relative path means what it means here', async t => {
  const cwd = '/home/ann/shop/deep'
  const env = { FN_ADMIN_TOKEN_FILE: 'token', FN_SCHEDULER_STATE_PATH: '../state.json' }
  const made = plan({ cwd, env, projectDir: '/home/ann/shop' })
  t.match(made.env, { FN_ADMIN_TOKEN_FILE: join(cwd, 'token'), FN_SCHEDULER_STATE_PATH: '/home/ann/shop/state.json' })
})

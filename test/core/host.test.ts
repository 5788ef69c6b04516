import t from 'tap'
import { Descriptors, readDescriptorLimit, toFunctionHostEnv, toToolHostEnv } from '../../lib/core/host.ts'

const PLANTED: Readonly<Record<string, string>> = {
  FN_ADMIN_TOKEN: 's',
  AWS_SECRET_ACCESS_KEY: 's',
  DATABASE_URL: 's',
  NPM_TOKEN: 's',
  NODE_AUTH_TOKEN: 's',
  CARGO_REGISTRY_TOKEN: 's',
  CARGO_REGISTRIES_X_TOKEN: 's',
  CARGO_REGISTRIES_X_SECRET_KEY: 's',
  NODE_OPTIONS: '--require=/tmp/x.js',
  LD_PRELOAD: '/tmp/x.so',
  PYTHONPATH: '/tmp',
  MY_PATH: 's',
  PATHS: 's',
  'PATH\nX': 's',
  path: 's',
}
const NEEDED = {
  PATH: '/bin',
  HOME: '/home/a',
  LANG: 'C',
  LC_ALL: 'C',
  TZ: 'UTC',
  SSL_CERT_FILE: '/c.pem',
  NODE_EXTRA_CA_CERTS: '/n.pem',
}

t.test(
  '[config/function-env.8] of the variables of the host only harmless ones reach functions and build tools',
  async t => {
    const forFunctions = { ...NEEDED, USER: 'a', LOGNAME: 'a', LANGUAGE: 'en', TMPDIR: '/t', TMP: '/t', TEMP: '/t' }
    const forTools = {
      ...NEEDED,
      https_proxy: 'http://u:p@proxy',
      NO_PROXY: 'x',
      GOPROXY: 'direct',
      CC: 'clang',
      CGO_CFLAGS: '-O2',
      CARGO_HOME: '/c',
      CARGO_REGISTRIES_X_INDEX: 'sparse+https://crates.example/',
      CARGO_NET_OFFLINE: '1',
      RUSTUP_HOME: '/r',
    }
    const host = { ...PLANTED, ...forFunctions, ...forTools, EMPTY: undefined, TERM: undefined }
    t.same(toFunctionHostEnv(host), forFunctions)
    t.same(toToolHostEnv(host), forTools)
    t.same(toFunctionHostEnv({}), {})
  },
)

t.test('[http/public.40] a share of the descriptors is reserved, and no more are taken than there are', async t => {
  const few = new Descriptors(66)
  t.equal(few.limit, 2)
  few.take()
  few.add()
  t.throws(() => few.take(), { code: 'OVERLOADED' })
  few.giveBack()
  t.equal(few.free, 1)
  t.equal(new Descriptors().free, Number.POSITIVE_INFINITY)
  if (process.platform === 'linux') t.ok((readDescriptorLimit() ?? 0) > 0)
})

import t from 'tap'
import { checkRuntimeSockets, isLoopback, readSecrets } from '../../lib/config/setting-checks.ts'
import { resolveSettings } from '../../lib/config/settings.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[runtime/greeting.8] who of another machine reaches an address, and who does not', async t => {
  const local = ['unix:/a', 'tcp://127.0.0.1:1', 'tcp://127.9.9.9:1', 'tcp://[::1]:1', 'tls://localhost:1']
  for (const uri of local) t.equal(isLoopback(uri), true, uri)
  const open = [
    'tcp://0.0.0.0:1',
    'tcp://[::]:1',
    'tls://10.0.0.1:1',
    'tcp://localhost.evil:1',
    'tcp://127.0.0.1.evil:1',
  ]
  for (const uri of open) t.equal(isLoopback(uri), false, uri)
})

t.test(
  '[runtime/greeting.8] the secret may be a file, certificates must be some, and trust without proof is told',
  async t => {
    const tree = makeTree({
      secret: `${'s'.repeat(32)}\n`,
      short: 's'.repeat(31),
      'ca.pem': '-----BEGIN CERTIFICATE-----\n',
      'key.pem': 'no certificate',
    })
    t.teardown(() => tree.cleanup())
    const check = (env: Record<string, string>) => {
      const resolved = resolveSettings({ env, cwd: tree.root })
      return checkRuntimeSockets(readSecrets(resolved))
    }
    const FN_RUNTIME_SOCKETS = '{"python":"tcp://10.0.0.7:9001"}'
    const bare = check({ FN_RUNTIME_SOCKETS })
    t.match(bare.warnings, [
      { code: 'CONFIG_UNSAFE', message: /^FN_RUNTIME_SOCKETS names tcp:\/\/10\.0\.0\.7:9001, and / },
    ])
    t.same(bare.problems, [])
    t.same(check({ FN_RUNTIME_SOCKETS: '{"python":["tcp://127.0.0.1:9","unix:/x"]}' }).warnings, [])
    const proved = check({ FN_RUNTIME_SOCKETS, FN_RUNTIME_SECRET_FILE: 'secret', FN_RUNTIME_TLS_CA_FILE: 'ca.pem' })
    t.same([proved.problems, proved.warnings], [[], []])
    t.equal(proved.settings.runtimeSecret, 's'.repeat(32))
    t.match(check({ FN_RUNTIME_SECRET_FILE: 'short' }).problems, [
      { message: /at least 32 visible/, value: /hidden|not shown/i },
    ])
    t.match(check({ FN_RUNTIME_SECRET: 'short' }).problems, [{ message: /^FN_RUNTIME_SECRET must be at least 32/ }])
    for (const file of ['key.pem', 'nowhere'])
      t.match(check({ FN_RUNTIME_TLS_CA_FILE: file }).problems, [
        { message: /^FN_RUNTIME_TLS_CA_FILE must name a file/, source: 'env' },
      ])
  },
)

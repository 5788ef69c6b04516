import { join } from 'node:path'
import t from 'tap'
import { readSecret, readSecrets } from '../../lib/config/setting-checks.ts'
import { resolveSettings } from '../../lib/config/settings.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[runtime/isolation.2] the admin token may be in a file', async t => {
  const tree = makeTree({
    good: ' t0ken \n',
    empty: '\n',
    two: 'planted\nplanted\n',
    large: 'x'.repeat(5000),
    'folder/x': '',
    odd: 'tökén',
    hash: `scrypt:16384:8:1:${'ab'.repeat(16)}:${'cd'.repeat(32)}\n`,
  })
  t.teardown(() => tree.cleanup())
  const read = (file: string, env: object = {}) => {
    const resolved = resolveSettings({ env: { FN_ADMIN_TOKEN_FILE: file, ...env }, cwd: tree.root })
    return readSecret(resolved, 'adminToken', resolved.settings.adminTokenFile)
  }
  const good = read('good')
  t.same([good.settings.adminToken, good.problems, good.sources.adminToken?.name], ['t0ken', [], 'FN_ADMIN_TOKEN_FILE'])
  t.equal(read(join(tree.root, 'good')).settings.adminToken, 't0ken')
  for (const file of ['empty', 'two', 'large', 'folder', 'odd', 'none']) {
    const { problems } = read(file)
    t.match(problems, [{ code: 'CONFIG_VALUE', message: /^FN_ADMIN_TOKEN_FILE /, source: 'env' }], file)
    t.notMatch(JSON.stringify(problems), /tökén|planted/, 'what is in the file is not shown')
  }
  const both = read('good', { FN_ADMIN_TOKEN: 'direct' })
  t.equal(both.settings.adminToken, 'direct')
  t.match(both.warnings, [{ code: 'CONFIG_REPEATED', message: /FN_ADMIN_TOKEN_FILE is not used/ }])
  const without = resolveSettings({ cwd: '/' })
  t.equal(readSecret(without, 'adminToken', null), without)
  const readHash = (file: string) => {
    const resolved = resolveSettings({ env: { FN_CONSOLE_LOGIN_PASSWORD_HASH_FILE: file }, cwd: tree.root })
    return readSecrets(resolved)
  }
  t.match(readHash('hash').settings.consoleLoginPasswordHash, /^scrypt:16384/)
  t.match(readHash('good').problems, [{ message: /^FN_CONSOLE_LOGIN_PASSWORD_HASH_FILE must be scrypt:/ }])
})

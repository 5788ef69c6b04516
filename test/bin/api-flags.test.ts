import { Command } from 'commander'
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { addApiFlags, toApiClient } from '../../bin/api-flags.ts'
import { announceGateway, findGateways } from '../../bin/running-gateways.ts'
import { ownMark } from '../../lib/files/root-lock.ts'
import { makeTree } from '../helpers/tree.ts'

const tree = makeTree({
  '.git/': '',
  'token.txt': 'of-the-file\n',
  'other.txt': 'of-the-setting\n',
  'two.txt': 'a\nb\n',
  'api/fngw.json': { json: { port: 8123, host: '0.0.0.0' } },
  'api/.env': 'FN_ADMIN_TOKEN=of-the-project\n',
  'plain/.git/': '',
  'broken/fngw.json': { json: { port: 'x' } },
})
t.teardown(tree.cleanup)

function targetOf(args: string[], env: Record<string, string> = {}, folder = 'plain') {
  const command = addApiFlags(new Command('x')).exitOverride()
  command.parse(args, { from: 'user' })
  return toApiClient(command, { cwd: tree.path(folder), env }).target
}

t.test('[bin/api-client.1] where the gateway is', async t => {
  const cases: [args: string[], env: Record<string, string>, folder: string, url: string][] = [
    [[], {}, 'plain', 'http://127.0.0.1:8080'],
    [['-p', '9000'], { FN_PORT: '9001' }, 'plain', 'http://127.0.0.1:9000'],
    [[], { FN_PORT: '9001' }, 'api', 'http://127.0.0.1:9001'],
    [[], {}, 'api', 'http://127.0.0.1:8123'],
    [['--host', '::1'], {}, 'plain', 'http://[::1]:8080'],
    [['--host', '::'], {}, 'plain', 'http://[::1]:8080'],
    [['--host', '192.0.2.7', '--control-port', '8081'], {}, 'plain', 'http://192.0.2.7:8081'],
    [['--url', 'https://fn.example/base/'], { FN_PORT: '9001' }, 'plain', 'https://fn.example/base'],
    [['--url', 'http://127.0.0.1:1'], { FN_PORT: 'nonsense' }, 'broken', 'http://127.0.0.1:1'],
  ]
  for (const [args, env, folder, url] of cases) t.equal(targetOf(args, env, folder).url, url, args.join(' '))
  t.throws(() => targetOf(['--port', '0']), { exitCode: 1, message: /port 0 .*--url/ })
})

t.test('[bin/api-client.7] the gateway that serves the project is found without a port', async t => {
  const project = makeTree({
    '.git/': '',
    'fn/users/': '',
    'other/': '',
    'configured/fngw.json': { json: { port: 8123 } },
  })
  t.teardown(project.cleanup)
  const find = (folder: string, args: string[] = [], env = {}, port: 'control' | 'public' = 'control') => {
    const command = addApiFlags(new Command('x')).exitOverride()
    command.parse(args, { from: 'user' })
    return toApiClient(command, { cwd: project.path(folder), env }, port).target.url
  }
  const addresses = { url: 'http://0.0.0.0:8081', control: 'http://[::]:8082' }
  const forget = announceGateway(project.path('fn'), addresses)
  const folder = project.path('fn/.svc/gateways')
  const [name] = readdirSync(folder) as [string]
  t.equal(statSync(join(folder, name)).mode & 0o777, 0o600)
  for (const from of ['.', 'fn', 'fn/users']) t.equal(find(from), 'http://[::1]:8082', from)
  t.equal(find('.', [], {}, 'public'), 'http://127.0.0.1:8081')
  t.equal(find('.', [], { FN_HOST: '0.0.0.0' }, 'public'), 'http://127.0.0.1:8081')
  t.equal(find('.', ['-p', '9000']), 'http://127.0.0.1:9000')
  t.equal(find('.', [], { FN_PORT: '9000' }), 'http://127.0.0.1:9000')
  t.equal(find('.', [], { FN_FUNCTIONS_ROOT: project.path('other') }), 'http://127.0.0.1:8080')

  const mark = ownMark()
  const write = (file: string, record: object) =>
    project.write({ [`other/.svc/gateways/${file}.json`]: { json: record } })
  write('dead', { ...mark, started: '1', url: 'http://127.0.0.1:1', control: null })
  write('container', { ...mark, space: 'pid:[1]', host: 'x', url: 'http://127.0.0.1:2', control: null })
  write('broken', { ...mark, url: 'file:///etc/passwd', control: null })
  t.same(findGateways(project.path('other')), [], 'dead ones, those of other machines and other files are left out')
  const forgetOther = announceGateway(project.path('other'), { url: 'http://127.0.0.1:8080', control: null })
  t.notOk(readdirSync(project.path('other/.svc/gateways')).includes('dead.json'), 'the record of a dead one is removed')
  t.equal(find('.'), 'http://127.0.0.1:8080', 'of several the one at the address of the settings')
  forgetOther()
  forget()
  t.same(readdirSync(folder), [])
  t.equal(find('.'), 'http://127.0.0.1:8080')
  t.equal(find('configured'), 'http://127.0.0.1:8123')
  const forgets = [8123, 9001].map(port =>
    announceGateway(project.path(port === 8123 ? 'fn' : 'other'), { url: `http://127.0.0.1:${port}`, control: null }),
  )
  t.throws(() => find('.'), {
    exitCode: 1,
    message: /^2 gateways serve this project: .*8123 \(pid \d+\), .*9001.*--url/,
  })
  for (const one of forgets) one()
})

t.test('[bin/api-client.7] a root that cannot be written gets no record', async t => {
  const project = makeTree({ '.svc': 'a file' })
  t.teardown(project.cleanup)
  announceGateway(project.root, { url: 'http://127.0.0.1:1', control: null })()
  t.same(findGateways(project.root), [])
})

t.test('[bin/api-client.2] the token comes from a file or a variable', async t => {
  const file = tree.path('token.txt')
  const env = { FN_ADMIN_TOKEN: 'of-the-variable' }
  t.equal(targetOf([]).token, null)
  t.equal(targetOf([], env).token, 'of-the-variable')
  t.equal(targetOf([], {}, 'api').token, 'of-the-project')
  t.equal(targetOf([], env, 'api').token, 'of-the-variable')
  t.equal(targetOf(['--token-file', file], env).token, 'of-the-file')
  t.equal(targetOf([], { FN_ADMIN_TOKEN_FILE: tree.path('other.txt') }).token, 'of-the-setting')
  for (const bad of [tree.path('two.txt'), tree.path('nothing.txt'), tree.path('plain')])
    t.throws(() => targetOf(['--token-file', bad, '--url', 'http://127.0.0.1:1']), {
      name: 'SettingsError',
      message: /--token-file/,
    })
})

t.test('[bin/api-client.6] a wrong address, wrong settings', async t => {
  for (const url of ['nonsense', 'ftp://x', '//x', 'http://u:p@x', 'http://x/?a=1', 'http://x/#a', ''])
    t.throws(() => targetOf(['--url', url]), { exitCode: 2, message: /^--url must be an address/ }, url)
  t.throws(() => targetOf([], {}, 'broken'), { name: 'SettingsError', message: /port/ })
})

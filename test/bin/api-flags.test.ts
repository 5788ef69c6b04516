import { Command } from 'commander'
import t from 'tap'
import { addApiFlags, toApiClient } from '../../bin/api-flags.ts'
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

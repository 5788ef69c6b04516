import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import t from 'tap'
import { runCli } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'
import { makeWheels } from '../helpers/wheels.ts'

t.setTimeout(180_000)

t.test(
  '[bin/deps.1, bin/deps.2, bin/deps.3, bin/deps.4, bin/deps.5] packages of a tree are shown, installed, explained and cleaned',
  async t => {
    const tree = makeTree({
      'a/handler.py': 'import beta\n',
      'bad/handler.py': '#@requirements not-there\n',
      'plain/handler.py': 'def handler(event):\n    return 1\n',
      '.svc/packs/python/tools/requirements.txt': 'gamma\n',
      'own/handler.py': '',
      'own/.deps/mine.py': '',
    })
    const { root, path, cleanup } = tree
    const away = makeTree()
    t.teardown(cleanup)
    t.teardown(away.cleanup)
    const wheels = ['alpha', 'gamma'].map(name => ({ name, version: '1.0' }))
    const env = makeWheels(away.root, [...wheels, { name: 'beta', version: '2.0', needs: ['alpha'] }])
    const run = (...args: string[]) => runCli(['deps', ...args], { cwd: root, env })
    t.match(run('ls', root), { status: 0, stdout: '', stderr: /no packages/ })
    const missing = run('install', root)
    t.equal(missing.status, 1)
    t.match(missing.stderr, /failed python\/a@default: install failed: a\/handler\.py:1 imports beta: /)
    t.match(missing.stderr, /hint: run: fngw deps add beta --to a; or set FN_AUTO_INFER_PY_DEPS=1/)
    t.match(run('add', '--to', 'none', '--dir', root), {
      status: 1,
      stderr: /^fngw: no function is named none[^\n]*\n$/,
    })
    const added = run('add', 'alpha==1.0', '--to', 'plain', '--dir', root)
    t.match(added, { status: 0, stderr: /ready python\/plain@default/ })
    t.match(readFileSync(path('plain/requirements.txt'), 'utf8'), /^alpha==1\.0$/m)
    for (const name of ['.svc/deps', 'plain']) rmSync(path(name), { recursive: true })
    tree.write({ 'plain/handler.py': 'def handler(event):\n    return 1\n' })

    t.match(
      run('ls', root).stdout,
      /^python\/a@default {2}nothing {2}error: install failed: a\/handler\.py:1 imports beta/m,
    )
    const install = runCli(['deps', 'install', root], { cwd: root, env: { ...env, FN_AUTO_INFER_PY_DEPS: '1' } })
    t.equal(install.status, 1)
    t.match(install.stderr, /^installing packages of python\/a@default$/m)
    t.match(install.stderr, /^installed 2 packages for python\/a@default in \d+\.\d s, [\d.]+ kB: beta==2\.0$/m)
    t.match(install.stderr, /ready python\/a@default/)
    t.match(install.stderr, /ready python\/plain@default/)
    t.match(install.stderr, /failed python\/bad@default: install failed: bad\/handler\.py:1: .*not-there/)
    t.match(install.stderr, /^ {2}hint: .*bad\/handler\.py/m)
    const list = run('ls', root)
    t.match(list.stdout, /^python\/a@default {2}alpha 1\.0, beta 2\.0$/m)
    t.match(list.stdout, /^python\/bad@default {2}nothing {2}error: install failed: /m)
    t.notMatch(list.stdout, /plain/)
    t.match(JSON.parse(run('ls', '--json', root).stdout)[0], {
      key: 'python/a@default',
      record: { last_install_status: 'ok', resolved_packages: ['beta==2.0'] },
      installed: ['alpha 1.0', 'beta 2.0'],
    })
    t.match(run('why', 'Alpha', root), { status: 0, stdout: 'python/a@default  beta 2.0 > alpha 1.0\n' })
    t.match(run('why', 'none', root), { status: 1, stdout: '', stderr: /nothing has none/ })
    t.match(run('clean', root), { status: 0, stdout: '', stderr: /nothing to delete/ })
    const [set] = readdirSync(path('.svc/deps'))
    t.match(run('clean', '--all', root), {
      status: 0,
      stdout: `deleted .deps of python/a@default\ndeleted .svc/deps/${set}\n`,
    })
    t.same(readdirSync(path('a')).sort(), ['handler.py', 'requirements.lock.txt', 'requirements.txt'])
    t.ok(existsSync(path('own/.deps/mine.py')))
  },
)

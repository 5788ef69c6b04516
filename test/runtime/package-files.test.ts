import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { packageFile, runtimeFile, socketBases, SocketFolder } from '../../lib/runtime/package-files.ts'
import { FROM_SOURCES } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

const gatewayFolders = (root: string) => readdirSync(root).filter(name => /^fngw-[A-Za-z0-9]{6}$/.test(name))

t.test('[runtime/daemon.5] files of the package are found from its sources', async t => {
  t.equal(JSON.parse(readFileSync(packageFile('package.json'), 'utf8')).name, 'fngw')
  t.ok(existsSync(runtimeFile('python/daemon.py')))
})

t.test('[runtime/daemon.5] long, unwritable and left-over folders', async t => {
  const tree = makeTree({})
  t.teardown(() => tree.cleanup())
  const long = tree.path(`${'x'.repeat(60)}/${'y'.repeat(60)}`)
  mkdirSync(long, { recursive: true })
  const short = new SocketFolder([long])
  t.match(short.path(), /^\/tmp\/fngw-/, 'a socket path must fit')
  short.remove()
  const missing = new SocketFolder([tree.path('none')])
  t.match(missing.path(), /^\/tmp\/fngw-/)
  missing.remove()
  const none = new SocketFolder(['/proc/none'], '/proc/self')
  t.throws(() => none.path(), /^no folder for sockets: .*ENOENT.*; .*; set TMPDIR to a folder that can be written$/)

  const left = join(tree.root, 'fngw-aaaaaa')
  const emptied = join(tree.root, 'fngw-dddddd')
  const fresh = join(tree.root, 'fngw-eeeeee')
  const used = join(tree.root, 'fngw-bbbbbb')
  const foreign = join(tree.root, 'fngw-cccccc')
  for (const folder of [left, used, foreign, emptied, fresh]) mkdirSync(folder, { mode: 0o700 })
  utimesSync(emptied, 1, 1)
  chmodSync(foreign, 0o755)
  writeFileSync(join(foreign, 'node-1.sock'), '')
  writeFileSync(join(left, 'node-1.sock'), '')
  const server = net.createServer().listen(join(used, 'node-1.sock'))
  t.teardown(() => server.close())
  await new Promise(done => server.once('listening', done))
  const folder = new SocketFolder([tree.root])
  const mine = folder.path()
  await folder.removeStale()
  t.strictSame(
    readdirSync(tree.root)
      .filter(name => name.startsWith('fngw-'))
      .sort(),
    ['fngw-bbbbbb', 'fngw-cccccc', 'fngw-eeeeee', mine.slice(-11)].sort(),
  )
  rmSync(mine, { recursive: true })
  t.equal(folder.path(), mine, 'made again under its name')
  t.equal(statSync(mine).mode & 0o777, 0o700)
  utimesSync(mine, 1, 1)
  folder.keep()
  t.ok(statSync(mine).mtimeMs > 1e12, 'in use for cleaners and other gateways')
  rmSync(mine, { recursive: true })
  writeFileSync(mine, '')
  t.not(folder.path(), mine, 'not where something else has its name')
})

t.test(
  '[runtime/daemon.5] the folder of sockets stays with root in a temporary folder of another user',
  { skip: process.getuid?.() !== 0 && 'only root gives folders away' },
  t => {
    const tree = makeTree({ 'temp/a': '' })
    t.teardown(() => tree.cleanup())
    chownSync(tree.path('temp'), 10_777, 10_777)
    const folder = new SocketFolder([tree.path('temp')])
    t.equal(statSync(folder.path()).uid, 0)
    t.equal(folder.path(), folder.path())
    folder.remove()
    t.end()
  },
)

t.test('[runtime/daemon.5] prefers the run-time folder of the service, then of the user', t => {
  const tree = makeTree({ 'service/a': '', 'user/a': '' })
  t.teardown(() => tree.cleanup())
  const [service, user] = [tree.path('service'), tree.path('user')]
  chmodSync(service, 0o755)
  chmodSync(user, 0o700)
  const env = { RUNTIME_DIRECTORY: `${service}:/run/other`, XDG_RUNTIME_DIR: user }
  t.same(socketBases(env, false), [service, user, tmpdir()])
  t.same(socketBases(env, true), [service, tmpdir()], 'other users must be able to enter it')
  t.same(socketBases({ RUNTIME_DIRECTORY: tree.path('gone'), XDG_RUNTIME_DIR: 'relative' }, false), [tmpdir()])
  t.end()
})

t.test('[runtime/daemon.5, files/own-folder.8] a link with the name of a left-over folder is left alone', async t => {
  const tree = makeTree({ 'precious/a': '1', 'precious/b/c': '2' })
  t.teardown(() => tree.cleanup())
  chmodSync(tree.path('precious'), 0o700)
  utimesSync(tree.path('precious'), 1, 1)
  symlinkSync(tree.path('precious'), tree.path('fngw-AAAAAA'))
  symlinkSync(tree.path('gone'), tree.path('fngw-BBBBBB'))
  writeFileSync(tree.path('fngw-CCCCCC'), 'a file')
  await new SocketFolder([tree.root]).removeStale()
  t.same(gatewayFolders(tree.root).sort(), ['fngw-AAAAAA', 'fngw-BBBBBB', 'fngw-CCCCCC'])
  t.same([readdirSync(tree.path('precious')), readdirSync(tree.path('precious/b'))], [['a', 'b'], ['c']])
})

t.test('[runtime/daemon.5] a folder that only looks like one of ours keeps its files', async t => {
  const tree = makeTree({ 'fngw-backup/notes.txt': 'mine', 'fngw-abcdef/sub/deep/notes.txt': 'mine' })
  t.teardown(() => tree.cleanup())
  for (const name of ['fngw-backup', 'fngw-abcdef']) {
    chmodSync(tree.path(name), 0o700)
    utimesSync(tree.path(name), 1, 1)
  }
  await new SocketFolder([tree.root]).removeStale()
  t.same(gatewayFolders(tree.root).sort(), ['fngw-abcdef', 'fngw-backup'])
})

t.test('[runtime/daemon.5, reliability.6] gateways that start together among left-over folders all start', async t => {
  const tree = makeTree({})
  t.teardown(() => tree.cleanup())
  const moduleUrl = new URL('../../lib/runtime/package-files.ts', import.meta.url).href
  // Each says that it is ready and goes on when its input ends, so that all begin at once.
  const script = `import { SocketFolder } from ${JSON.stringify(moduleUrl)}
    process.stdout.write('ready')
    for await (const _ of process.stdin);
    await new SocketFolder([${JSON.stringify(tree.root)}]).removeStale()`
  const gateways = Array.from({ length: 4 }, () =>
    spawn(process.execPath, [...FROM_SOURCES, '--input-type=module', '-e', script], {
      stdio: ['pipe', 'pipe', 'pipe'],
    }),
  )
  for (let i = 0; i < 2000; i++) {
    const folder = tree.path(`fngw-${String(i).padStart(6, '0')}`)
    mkdirSync(folder, { mode: 0o700 })
    utimesSync(folder, 1, 1)
  }
  const ends = gateways.map(async gateway => {
    const errors: string[] = []
    gateway.stderr.on('data', bytes => errors.push(String(bytes)))
    const [code] = await once(gateway, 'close')
    return [code, errors.join('')]
  })
  await Promise.all(gateways.map(gateway => once(gateway.stdout, 'data')))
  for (const gateway of gateways) gateway.stdin.end()
  t.same(
    await Promise.all(ends),
    gateways.map(() => [0, '']),
  )
  t.same(gatewayFolders(tree.root), [])
})

t.test('[runtime/daemon.5] a left-over folder that cannot be deleted stops nothing', async t => {
  const tree = makeTree({})
  t.teardown(() => {
    spawnSync('chattr', ['-i', tree.path('fngw-aaaaaa')])
    tree.cleanup()
  })
  mkdirSync(tree.path('fngw-aaaaaa'), { mode: 0o700 })
  utimesSync(tree.path('fngw-aaaaaa'), 1, 1)
  // A parent that cannot be written: for root only a file system attribute does that.
  const isRoot = process.getuid?.() === 0
  if (isRoot && spawnSync('chattr', ['+i', tree.path('fngw-aaaaaa')]).status !== 0) {
    t.plan(0, 'root can delete everything here: no chattr')
    return
  }
  if (!isRoot) chmodSync(tree.root, 0o500)
  await new SocketFolder([tree.root]).removeStale()
  t.ok(existsSync(tree.path('fngw-aaaaaa')))
  if (!isRoot) chmodSync(tree.root, 0o700)
})

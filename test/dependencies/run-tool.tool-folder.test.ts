import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, symlinkSync, utimesSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import t from 'tap'
import { makeToolFolder } from '../../lib/dependencies/run-tool.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { createGateway } from '../../lib/index.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[dependencies/resolve.14, dependencies/resolve.16] where a tool has its temporary folder', async t => {
  const root = t.testdir({})
  const clock = new FakeClock()
  const parent = new OwnFolder(root, '.svc', 'build', 'tmp')
  const folder = makeToolFolder(parent, clock)
  t.equal(dirname(folder.path), join(root, '.svc/build/tmp'))
  for (const name of ['b-aaaaaa', 'b-bbbbbb', 'other']) mkdirSync(join(parent.path, name))
  const old = clock.wall() / 1000 - 4000
  for (const name of ['b-aaaaaa', 'other']) utimesSync(join(parent.path, name), old, old)
  utimesSync(join(parent.path, 'b-bbbbbb'), clock.wall() / 1000, clock.wall() / 1000)
  const second = makeToolFolder(parent, clock)
  t.notOk(readdirSync(parent.path).includes('b-aaaaaa'), 'one that was left behind is deleted')
  t.ok(readdirSync(parent.path).includes('b-bbbbbb'))
  t.ok(readdirSync(parent.path).includes('other'), 'what has another name is not')
  for (const one of [folder, second]) one.removeAll()

  const closed = Object.assign(new OwnFolder(root, 'x'), {
    make: () => {
      throw Object.assign(new Error('read-only file system'), { code: 'EROFS' })
    },
  })
  const elsewhere = makeToolFolder(closed, clock)
  t.teardown(() => elsewhere.removeAll())
  t.equal(dirname(elsewhere.path), tmpdir())

  symlinkSync('/tmp', join(root, 'led'))
  t.throws(() => makeToolFolder(new OwnFolder(root, 'led', 'tmp'), clock), { code: 'UNSAFE_PATH' })
})

t.test('[dependencies/resolve.16] a tree that cannot be written to', async t => {
  const { root, cleanup } = makeTree({
    'plain/handler.py': 'import ssl, zoneinfo\ndef handler(event):\n    return {"ok": 1}\n',
    'plain/fn.config.json': '{}',
    'wants/handler.py': 'import six\ndef handler(event):\n    return {"ok": 1}\n',
    'wants/requirements.txt': 'six==1.16.0\n',
    'wants/fn.config.json': '{}',
    'js/handler.js': 'exports.handler = async () => ({ sep: require("path").sep })\n',
    'js/fn.config.json': '{}',
  })
  t.teardown(cleanup)
  const closed = t.testdir({})
  try {
    execFileSync('mount', ['--bind', root, closed], { stdio: 'pipe' })
    t.teardown(() => execFileSync('umount', ['-l', closed]))
    execFileSync('mount', ['-o', 'remount,ro,bind', closed], { stdio: 'pipe' })
  } catch (error) {
    t.comment(`not tried with a read-only file system: ${(error as Error).message.trim()}`)
    return
  }
  const gateway = await createGateway({ functionsRoot: closed, runtimes: ['python', 'node'], env: process.env })
  t.teardown(() => gateway.close())
  t.same((await gateway.inject('/plain')).json(), { ok: 1 })
  t.same((await gateway.inject('/js')).json(), { sep: '/' })
  const answer = await gateway.inject('/wants')
  t.equal(answer.status, 500)
  t.match(answer.text(), /wants is on a file system that cannot be written/)
})

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import {
  checkNewName,
  hasFunctionFiles,
  readNewFunction,
  writeIntoFolder,
  writeNewFunction,
} from '../../lib/control/function-create.ts'
import { RUNTIMES } from '../../lib/core/identity.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { makeTree } from '../helpers/tree.ts'

const LUA = { runtime: 'lua', name: 'hello', version: null } as const

t.test('[control/function.3, control/function.4] a body becomes a handler and a config', t => {
  for (const runtime of RUNTIMES) {
    const fn = readNewFunction({ ...LUA, runtime }, {})
    t.match(fn, { runtime, code: /handler/, warnings: [] })
    t.same(JSON.parse(fn.config), {
      runtime,
      entrypoint: fn.fileName,
      invoke: { methods: ['GET'], summary: 'Generated function' },
    })
  }
  const body = { filename: 'index.lua', code: 'x', route: '/a', methods: ['PUT'], body_example: 0, query_example: null }
  const fn = readNewFunction(LUA, { ...body, odd: 1 })
  t.match(fn, { fileName: 'index.lua', code: 'x', warnings: ['odd is not a known key'] })
  t.match(JSON.parse(fn.config), { entrypoint: 'index.lua', invoke: { methods: ['PUT'], routes: ['/a'], body: 0 } })
  t.equal(readNewFunction({ ...LUA, runtime: 'node' }, { filename: 'handler.mts' }).fileName, 'handler.mts')
  t.match(JSON.parse(readNewFunction(LUA, { route: null, routes: [] }).config), { invoke: { routes: [] } })
  t.end()
})

t.test('[control/function.5] names and bodies that are refused', t => {
  const bodies: [body: Record<string, unknown>, error: RegExp, status: number][] = [
    [{ filename: 'other.lua' }, /filename must be handler, main or index with \.lua, got "other\.lua"/, 400],
    [{ filename: 'a/handler.lua' }, /filename must be/, 400],
    [{ filename: 'handler.py' }, /filename must be/, 400],
    [{ code: null, filename: 'handler.LUA' }, /filename must be/, 400],
    [{ code: ['x'] }, /code must be a text, got an array/, 400],
    [{ code: 'é'.repeat(1024 * 1024 + 1) }, /2097152/, 413],
    [{ summary: 5 }, /body: invoke\.summary must be/, 400],
    [{ methods: [] }, /invoke\.methods/, 400],
  ]
  for (const [body, message, status] of bodies)
    t.throws(() => readNewFunction(LUA, body), { message, status } as never, JSON.stringify(body).slice(0, 40))
  const unserved = (name: string) => (name.startsWith('_') ? `${name} is private` : null)
  t.doesNotThrow(() => checkNewName('a/b-c_1', 'v1', unserved))
  for (const name of ['', '.', '..', 'a/', '/a', 'a//b', 'a b', 'a.b', 'a\0', '../a'])
    t.throws(() => checkNewName(name, null, unserved), { status: 400, message: /name must be/ } as never, name)
  t.throws(() => checkNewName('_a', 'v1', unserved), { status: 400, message: '_a/v1 is private' } as never)
  t.end()
})

t.test('[control/function.3, control/function.5] files appear together, and go together', t => {
  const tree = makeTree({ 'taken/x.txt': '', file: 'a file', 'old/v1/handler.lua': '' })
  t.teardown(tree.cleanup)
  const fn = readNewFunction(LUA, { code: 'mine' })
  const before = readdirSync(tree.root, { recursive: true }).sort()
  const remove = writeNewFunction(tree.root, ['api', 'v1', 'hello'], fn)
  t.same(readdirSync(tree.path('api/v1')), ['hello'], 'no draft')
  t.equal(readFileSync(tree.path('api/v1/hello/handler.lua'), 'utf8'), 'mine')
  remove()
  t.same(readdirSync(tree.root, { recursive: true }).sort(), before, 'folders that were made for it go too')
  const removeKept = writeNewFunction(tree.root, ['api', 'one'], fn)
  tree.write({ 'api/other.txt': '' })
  removeKept()
  t.same(readdirSync(tree.path('api')), ['other.txt'], 'but none that somebody uses')
  t.throws(() => writeNewFunction(tree.root, ['taken'], fn), {
    status: 409,
    message: 'taken is already there',
  } as never)
  t.throws(() => writeNewFunction(tree.root, ['file'], fn), { status: 409 } as never)
  t.throws(() => writeNewFunction(tree.root, ['file', 'deeper'], fn), { code: 'UNSAFE_PATH' } as never)
  tree.remove('api')
  t.same(readdirSync(tree.root, { recursive: true }).sort(), before)
  const old = new OwnFolder(tree.root, 'old')
  t.equal(hasFunctionFiles(old), false, 'versions alone')
  const removeFiles = writeIntoFolder(old, fn)
  t.equal(hasFunctionFiles(old), true)
  t.same(readdirSync(old.path).sort(), ['fn.config.json', 'handler.lua', 'v1'])
  removeFiles()
  t.same(readdirSync(old.path), ['v1'])
  t.notOk(existsSync(tree.path('old/fn.config.json')))
  t.end()
})

import { execFileSync } from 'node:child_process'
import { statSync } from 'node:fs'
import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { RequestSchema } from '../../lib/validation/request-schema.ts'
import { SchemaStore } from '../../lib/validation/schema-store.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

t.setTimeout(180_000)

const GOOD = '{ "body": { "type": "object" } }'

/** A function as discovery makes it of the file as it is now. */
function fnOf(tree: Tree, validate = true, name = 'a'): FunctionVersion {
  const path = `${name}.schema.json`
  const stat = statSync(tree.path(path), { throwIfNoEntry: false })
  const schema = stat === undefined ? null : { path, size: stat.size, mtimeMs: stat.mtimeMs }
  return makeFn({ name, key: name, entryFile: `${name}.js`, schema, policy: { validate, methods: ['POST'] } })
}

function check(store: SchemaStore, fn: FunctionVersion, body: string): string | null {
  const schema = store.checkOf(fn)
  if (schema instanceof GatewayError) return `${schema.status} ${schema.message}`
  return schema.checkBody('POST', null, Buffer.from(body))?.message ?? null
}

t.test('[validation/schema-store.1] files are read, and checks made, once', async t => {
  const tree = makeTree({ 'a.schema.json': GOOD })
  t.teardown(tree.cleanup)
  const store = new SchemaStore(tree.root)
  const fn = fnOf(tree)
  t.same(await store.load([fn]), [])
  const first = store.checkOf(fn)
  t.ok(first instanceof RequestSchema)
  t.equal(check(store, fn, '[]'), 'body must be of type object, got an array of 0 items')
  t.same(await store.load([fn]), [])
  t.equal(store.checkOf(fn), first, 'an unchanged function keeps its check')
  tree.write({ 'a.schema.json': '{ "body": { "type": "array" } }' })
  const changed = fnOf(tree)
  t.same(await store.load([changed]), [])
  t.equal(check(store, changed, '[]'), null)
  t.match(check(store, fn, '[]'), /type object/, 'a call of the catalog before ends as it began')
})

t.test('[validation/schema-store.2] without a check that can be made every call is refused', async t => {
  const tree = makeTree({ 'bad.schema.json': '{ "body": { "type": "x" } }', 'cut.schema.json': '{' })
  t.teardown(tree.cleanup)
  const store = new SchemaStore(tree.root)
  const [missing, bad, cut] = ['missing', 'bad', 'cut'].map(name => fnOf(tree, true, name)) as [
    FunctionVersion,
    FunctionVersion,
    FunctionVersion,
  ]
  const warnings = await store.load([missing, bad, cut])
  t.same(
    warnings.map(({ code, path }) => `${code} ${path}`),
    [
      'CONFIG_VALUE bad.schema.json',
      'CONFIG_NOT_JSON cut.schema.json',
      'SCHEMA_UNUSABLE missing.js',
      'SCHEMA_UNUSABLE bad.js',
      'SCHEMA_UNUSABLE cut.js',
    ],
  )
  t.match(warnings[2]?.hint, /^Write missing\.schema\.json \(\{\} accepts every request\)/)
  t.match(check(store, missing, '1'), /^500 .*it has no schema file \(missing\.schema\.json\)/)
  t.match(check(store, bad, '1'), /^500 .*bad\.schema\.json cannot be used/)
  t.same(await store.load([missing, bad, cut]), warnings, 'they hold until they are mended')
  t.match(check(new SchemaStore(tree.root), bad, '1'), /^500/, 'nor before anything was read')
  const undemanding = fnOf(tree, false, 'bad')
  t.match(await store.load([undemanding]), [{ code: 'CONFIG_VALUE' }])
  t.equal(store.fileOf(undemanding), null)
})

t.test('[validation/schema-store.3] a file that becomes wrong leaves its last good version in force', async t => {
  const tree = makeTree({ 'a.schema.json': GOOD })
  t.teardown(tree.cleanup)
  const store = new SchemaStore(tree.root)
  await store.load([fnOf(tree)])
  tree.write({ 'a.schema.json': '{ "body": { "type": "nonsense" } }' })
  const edited = fnOf(tree)
  t.match(await store.load([edited]), [{ code: 'CONFIG_VALUE' }, { code: 'CONFIG_KEPT' }])
  t.match(check(store, edited, '[]'), /must be of type object/)
  t.ok(store.fileOf(edited))
})

t.test(
  '[validation/schema-store.4] does not wait for a path that is not a regular file',
  { skip: process.platform === 'win32' && 'mkfifo' },
  async t => {
    const tree = makeTree({ 'a.schema.json': GOOD })
    t.teardown(tree.cleanup)
    const fn = fnOf(tree)
    tree.remove('a.schema.json')
    const store = new SchemaStore(tree.root)
    t.match(await store.load([fn]), [{ code: 'SCHEMA_UNREADABLE', message: /ENOENT/ }, { code: 'SCHEMA_UNUSABLE' }])
    execFileSync('mkfifo', [tree.path('a.schema.json')])
    t.match(await store.load([fn]), [{ message: /it is not a regular file/ }, { code: 'SCHEMA_UNUSABLE' }])
    tree.remove('a.schema.json')
    tree.write({ 'a.schema.json': GOOD })
    t.same(await store.load([fn]), [], 'and read when it is there')
    t.equal(check(store, fn, '{}'), null)
  },
)

t.test('[validation/schema-store.5] nothing is loaded for those who ask for no check', async t => {
  const tree = makeTree({ 'a.schema.json': GOOD })
  t.teardown(tree.cleanup)
  const store = new SchemaStore(tree.root)
  const fn = fnOf(tree, false)
  t.same(await store.load([fn]), [])
  t.ok(store.fileOf(fn)!.common.body, 'the document has it')
  t.ok(store.checkOf(fn) instanceof GatewayError, 'no check was made')
})

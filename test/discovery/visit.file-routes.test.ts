import t from 'tap'
import type { TreeEntry } from '../helpers/tree.ts'
import { visitFolder } from './visit-bed.ts'

const config = (json: unknown) => ({ json })
const whole = (entries: Record<string, TreeEntry>, path: string) => visitFolder(entries, path)

t.test('[discovery/layouts.4, discovery/layouts.12] each file is a function with a route', async t => {
  const visited = whole({ 'a/x.js': '', 'a/post.y.[id].py': '', 'a/_z.js': '' }, 'a')
  t.same(visited.claims, ['GET /a/x a/x.js', 'POST /a/y/:id a/post.y.[id].py'])
  t.same(visited.names, ['a/post.y.[id]', 'a/x'])
  t.ok(visited.part.functions.every(fn => fn.kind === 'file' && fn.version === null))
  t.same(visited.part.functions[0]?.policy.methods, ['POST'])
  t.ok(
    visited.part.claims.every(
      claim => claim.source === 'file' && !claim.implied && claim.origin === claim.fn.entryFile,
    ),
  )
  t.same(whole({ 'x.js': '' }, '').claims, ['GET /x x.js'])
})

t.test('[discovery/layouts.13, discovery/layouts.19] a file that cannot have a route is no function', async t => {
  const bad = whole({ '[id]/[id].js': '', '[id]/ok.js': '' }, '[id]')
  t.same([bad.names, bad.codes], [['[id]/ok'], ['INVALID_ROUTE']])
  t.same(whole({ 'console/x.js': '' }, 'console').codes, ['RESERVED_PREFIX'])
  const noPath = whole({ 'x/handler.js': '', 'x/1.0/get.js': '' }, 'x/1.0')
  t.same([noPath.names, noPath.claims], [[], []])
  t.match(noPath.part.ignored, [{ path: 'x/1.0/get.js', reason: /no public path/ }])
})

t.test('[discovery/layouts.28] whose schedule it is', async t => {
  const schedule = config({ schedule: { every_seconds: 3 } })
  const warm = config({ keep_warm: {} })
  const scheduled = (entries: Record<string, TreeEntry>) => {
    const { part, codes } = whole(entries, 'a')
    return [part.functions.filter(fn => fn.policy.schedule !== null).map(fn => fn.entryFile), codes]
  }
  t.same(scheduled({ 'a/x.js': '', 'a/fn.config.json': schedule }), [['a/x.js'], []], 'its only file')
  t.same(scheduled({ 'a/x.js': '', 'a/y.js': '', 'a/fn.config.json': schedule }), [[], ['SCHEDULE_WITHOUT_FUNCTION']])
  t.same(scheduled({ 'a/x.js': '', 'a/y.js': '', 'a/fn.config.json': warm }), [[], ['SCHEDULE_WITHOUT_FUNCTION']])
  t.same(scheduled({ 'a/x.js': '', 'a/y.js': '' }), [[], []])
  t.same(
    scheduled({ 'a/index.js': '', 'a/[id].js': '', 'a/fn.config.json': schedule }),
    [['a/index.js'], []],
    'the entry',
  )
  t.same(scheduled({ 'a/b/x.js': '', 'a/fn.config.json': schedule }), [[], ['SCHEDULE_WITHOUT_FUNCTION']])
})

t.test('[discovery/entry-file.1] what an explicit entrypoint leaves', async t => {
  const tree = (json: Record<string, unknown>, ...names: string[]) => ({
    'x/app.js': '',
    ...Object.fromEntries(names.map(name => [`x/${name}`, ''])),
    'x/fn.config.json': config({ entrypoint: 'app.js', ...json }),
  })
  const all = whole(tree({}, 'get.py', 'post.js', 'get.more.js'), 'x')
  t.same(all.names, ['x', 'x/get.more'])
  t.match(all.part.ignored, [
    { path: 'x/get.py', reason: 'entrypoint is app.js, which answers GET of this path' },
    { path: 'x/post.js', reason: 'entrypoint is app.js, which answers POST of this path' },
  ])
  t.same(whole(tree({ methods: ['PUT'] }, 'get.py'), 'x').names, ['x', 'x/get'])
  const part = whole(tree({ routes: ['/x/{n}'], methods: ['GET'] }, '[id].js'), 'x')
  t.same(part.names, ['x'])
  const some = whole(
    {
      ...tree({}, '[id].js'),
      'x/fn.config.json': config({ entrypoint: 'app.js', invoke: { routes: ['/x/:q'], methods: ['GET', 'PUT'] } }),
    },
    'x',
  )
  t.same(some.names, ['x'], 'methods of the config hold for both')
  t.same(whole(tree({ routes: ['/y'] }, 'get.js'), 'x').names, ['x', 'x/get'], 'it answers elsewhere')
  const itself = whole(tree({ entrypoint: 'get.js' }, 'get.js'), 'x')
  t.same([itself.names, itself.part.ignored], [['x'], []])
})

import t from 'tap'
import { NO_OUTER_ENV } from '../../lib/config/function-env.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import type { Method } from '../../lib/core/identity.ts'
import { FunctionMaker, type Made, type Settled, settleKeys } from '../../lib/discovery/functions.ts'
import { patternOf } from '../helpers/claims.ts'
import { OPTIONS } from '../helpers/discovery.ts'
import { makeFn } from '../helpers/fn.ts'

const file = (
  name: string,
  entryFile: string,
  kind: FunctionVersion['kind'] = 'function',
  methods: Method[] = ['GET'],
) => makeFn({ name, entryFile, kind, policy: { methods } })

function settle(made: Partial<Made>, revisions: [string, number][] = [], known: FunctionVersion[] = []) {
  const maker = new FunctionMaker('/srv', OPTIONS.defaults, new Map(known.map(fn => [fn.key, fn])), NO_OUTER_ENV)
  const { functions = [], targets = [] } = made
  const claims = [...functions, ...targets].map(fn => ({
    pattern: patternOf(`/${fn.name}`),
    methods: fn.policy.methods,
    hosts: [],
    fn,
    source: 'file' as const,
    forced: false,
    origin: fn.entryFile,
    implied: true,
  }))
  const settled = settleKeys({ functions, targets, claims }, new Map(revisions), maker)
  t.ok(
    settled.claims.every(claim => settled.functions.includes(claim.fn)),
    'each claim is one of a function that is there',
  )
  return { ...settled, given: claims, keys: settled.functions.map(fn => fn.key) }
}

t.test('[discovery/layouts.26] what has keys of its own stays as it is', async t => {
  const a = file('a', 'a/handler.js')
  const b = file('b', 'b/handler.js')
  const { functions, claims, given, warnings } = settle({ functions: [b, a] })
  t.same(functions, [a, b], 'in the order of keys')
  t.equal(functions[0], a)
  t.equal(claims, given)
  t.same(warnings, [])
})

t.test(
  '[discovery/layouts.26] a function folder keeps the plain key before a file route, then text order decides',
  async t => {
    const route = file('x', 'x.js', 'file')
    const folder = file('x', 'x/handler.js')
    const other = file('x', 'a/handler.js')
    const { keys, warnings } = settle({ functions: [route, folder, other] })
    t.same(keys, ['node/x@default', 'node/x@default#x.js', 'node/x@default#x/handler.js'])
    t.match(warnings, [
      { code: 'DUPLICATE_NAME', path: 'x/handler.js', message: /has the name x of a\/handler\.js/ },
      { code: 'DUPLICATE_NAME', path: 'x.js' },
    ])
    const versions = settle({
      functions: ['a', 'b'].map(folder => makeFn({ name: 'x', version: 'v1', entryFile: `${folder}/handler.js` })),
    })
    t.match(versions.warnings, [{ message: /has the name x@v1/ }])
  },
)

t.test('[discovery/layouts.24] a file that a manifest names is one function', async t => {
  const own = file('api/items', 'api/items.js', 'file', ['GET'])
  const target = file('items', 'api/items.js', 'file', ['POST', 'GET'])
  const both = settle({ functions: [own], targets: [target] })
  t.same(both.keys, ['node/api/items@default'])
  t.same(both.functions[0]?.policy.methods, ['GET', 'POST'], 'its methods hold those of all its routes')
  const same = settle({ functions: [own], targets: [file('items', 'api/items.js', 'file', ['GET'])] })
  t.equal(same.functions[0], own, 'nothing new')
  const lone = settle({ targets: [target] })
  t.same(lone.keys, ['node/items@default'])
  const twice = settle({ targets: [target, file('again', 'api/items.js', 'file', ['PUT'])] })
  t.same(twice.functions[0]?.policy.methods, ['GET', 'POST', 'PUT'])
  const version = makeFn({ name: 'api', version: 'v1', entryFile: 'api/items.js' })
  t.equal(settle({ functions: [version], targets: [target] }).keys.length, 2, 'a version is another function')
})

t.test('[discovery/layouts.46] a revision changes the signature and nothing else', async t => {
  const a = file('a', 'a/handler.js')
  const b = file('b', 'b/handler.js')
  const { functions } = settle({ functions: [a, b] }, [[a.key, 2]])
  t.equal(functions[0]?.signature, `${a.signature}.2`)
  t.equal(functions[1], b)
  const again = settle({ functions: [a, b] }, [[a.key, 2]], [...functions])
  t.equal(again.functions[0], functions[0], 'the object of the discovery before')
  const renamed = settle({ functions: [a, file('a', 'z/handler.js')] }, [['node/a@default#z/handler.js', 1]])
  t.same(
    renamed.functions.map(fn => fn.signature),
    ['1', '1.1'],
  )
})

t.test(
  '[discovery/layouts.26, discovery/layouts.46] functions that were edited cost no new order of all others',
  async t => {
    const all = Array.from({ length: 1000 }, (_, i) => file(`fn-${i}`, `fn-${i}/handler.js`))
    const maker = new FunctionMaker('/srv', OPTIONS.defaults, new Map(), NO_OUTER_ENV)
    const revisions = new Map([
      [all[7]!.key, 1],
      [all[500]!.key, 3],
      ['node/gone@default', 2],
    ])
    const made = { functions: all, targets: [], claims: [] }
    const first = settleKeys(made, revisions, maker)
    t.equal(first.functions.filter(fn => !all.includes(fn)).length, 2)
    let reads = 0
    const counted = all.map(fn => {
      const copy = { ...fn }
      const get = () => {
        reads += 1
        return fn.key
      }
      Object.defineProperty(copy, 'key', { enumerable: true, get })
      return copy
    })
    const known = settleKeys({ ...made, functions: counted }, revisions, maker)
    reads = 0
    const edited = counted.with(3, file('fn-3', 'fn-3/handler.js'))
    const next = settleKeys({ ...made, functions: edited }, revisions, maker, known)
    t.ok(reads < counted.length * 3, `each key is compared with its neighbour's, and ${reads} reads are no sorting`)
    t.same(next.functions, settleKeys({ ...made, functions: edited }, revisions, maker).functions)
  },
)

t.test('[discovery/layouts.26] what was settled before changes the time it takes, and nothing else', async t => {
  const [a, b, c] = [file('a', 'a/handler.js'), file('b', 'b/handler.js'), file('c', 'c/handler.js')]
  const twin = file('b', 'b.js', 'file')
  const lists = [[c, a], [c, a, b], [c, twin, a, b], [b, c, a, twin], [twin, c], [file('b', 'b/handler.js'), c, a], []]
  const maker = new FunctionMaker('/srv', OPTIONS.defaults, new Map(), NO_OUTER_ENV)
  let before: Settled | null = null
  for (const functions of lists) {
    const made = { functions, targets: [], claims: [] }
    const settled: Settled = settleKeys(made, new Map(), maker, before)
    const anew = settleKeys(made, new Map(), maker)
    t.same(settled.functions, anew.functions, functions.map(fn => fn.entryFile).join())
    t.same(settled.warnings, anew.warnings)
    before = settled
  }
})

import t from 'tap'
import { type Segment, segmentsOf } from '../../lib/core/pattern.ts'
import { normalizePath, RadixTree } from '../../lib/router/radix-tree.ts'
import { patternOf } from '../helpers/claims.ts'
import {
  naiveMatch,
  naiveOrder,
  naivePattern,
  naiveSegments,
  pairCount,
  randomPath,
  randomPattern,
  seed,
} from './naive-router.ts'
import { Random } from '../helpers/random.ts'

interface Found {
  pattern: string | null
  params: Record<string, string>
  /** Patterns in the order they were offered. */
  offered: string[]
  problem: string | null
}

/** A tree of patterns and a search that takes the first pattern that is not to be skipped, for a path in any spelling. */
function makeTree(patterns: readonly string[]): (path: string, skipped?: readonly string[]) => Found {
  const names = new Map<string, readonly string[]>()
  const entries = patterns.map((text): { segments: readonly Segment[]; value: string } => {
    const pattern = patternOf(text)
    names.set(text, pattern.paramNames)
    return { segments: segmentsOf(pattern), value: text }
  })
  const tree = new RadixTree(entries)
  return (rawPath, skipped = []) => {
    const offered: string[] = []
    const params = Object.create(null)
    const path = normalizePath(rawPath)
    if (typeof path !== 'string') return { pattern: null, params, offered, problem: path.problem }
    const pattern = tree.find(path, { accept: value => offered.push(value) > 0 && !skipped.includes(value) })
    if (pattern !== null) tree.capture(names.get(pattern)!, params)
    return { pattern, params, offered, problem: null }
  }
}

t.test('[router/radix-tree.1, router/radix-tree.2, router/radix-tree.3] what each form matches and gives', async t => {
  const find = makeTree([
    '/',
    '/users/:id',
    '/users/:id/posts/:post',
    '/docs/:slug*',
    '/opt/:rest*?',
    '/w/*',
    '/a%20b',
    '/%C3%BC',
  ])
  const rows: [string, string | null, object][] = [
    ['/', '/', {}],
    ['/users', null, {}],
    ['/users/7', '/users/:id', { id: '7' }],
    ['/users/7/posts', null, {}],
    ['/users/7/posts/9', '/users/:id/posts/:post', { id: '7', post: '9' }],
    ['/docs', null, {}],
    ['/docs/a', '/docs/:slug*', { slug: 'a' }],
    ['/docs/a/b/c', '/docs/:slug*', { slug: 'a/b/c' }],
    ['/opt', '/opt/:rest*?', {}],
    ['/opt/a/b', '/opt/:rest*?', { rest: 'a/b' }],
    ['/w', null, {}],
    ['/w/js/app.min.js', '/w/*', { wildcard: 'js/app.min.js' }],
    ['/a b', '/a%20b', {}],
    ['/a%20b', '/a%20b', {}],
    ['/%C3%BC', '/%C3%BC', {}],
    ['/ü', '/%C3%BC', {}],
    ['/u', null, {}],
    ['/user', null, {}],
    ['/usersx/7', null, {}],
  ]
  for (const [path, pattern, params] of rows) t.match(find(path), { pattern, params }, path)
  t.equal(Object.keys(find('/opt').params).length, 0)
})

t.test('[router/radix-tree.6] precedence, segment by segment, with a way back', async t => {
  const find = makeTree([
    '/a/b',
    '/a/:p',
    '/a/:p/c',
    '/a/:rest*',
    '/a/:any*?',
    '/a/*',
    '/:x/b/deep',
    '/:x/:y',
    '/*',
    '/:all*?',
    '/opt',
    '/opt/:s*?',
  ])
  const rows: [string, string, string[]][] = [
    ['/a/b', '/a/b', []],
    ['/a/b', '/a/:p', ['/a/b']],
    ['/a/b', '/a/:rest*', ['/a/b', '/a/:p']],
    ['/a/b', '/a/:any*?', ['/a/b', '/a/:p', '/a/:rest*']],
    ['/a/b', '/a/*', ['/a/b', '/a/:p', '/a/:rest*', '/a/:any*?']],
    ['/a/b', '/:x/:y', ['/a/b', '/a/:p', '/a/:rest*', '/a/:any*?', '/a/*']],
    ['/a/b/deep', '/a/:rest*', []],
    ['/a/b/deep', '/:x/b/deep', ['/a/:rest*', '/a/:any*?', '/a/*']],
    ['/a/bb', '/a/:p', []],
    ['/a/bb/c', '/a/:p/c', []],
    ['/a', '/a/:any*?', []],
    ['/a', '/:all*?', ['/a/:any*?']],
    ['/opt', '/opt', []],
    ['/opt', '/opt/:s*?', ['/opt']],
    ['/', '/:all*?', []],
    ['/z/z/z', '/:all*?', []],
    ['/z/z/z', '/*', ['/:all*?']],
  ]
  for (const [path, pattern, skipped] of rows) {
    const found = find(path, skipped)
    t.equal(found.pattern, pattern, `${path} without ${skipped}`)
    t.same(found.offered, [...skipped, pattern], `${path}: order`)
  }
})

t.test('[router/radix-tree.7] params of a branch that was left do not stay', async t => {
  const find = makeTree(['/:a/:b/x', '/:a/*', '/s/:k/y', '/s/:k/:m/z'])
  t.same(find('/s/1/q').params, { a: 's', wildcard: '1/q' })
  t.same(find('/s/1/2/z').params, { k: '1', m: '2' })
  t.same(find('/s/1/x').params, { a: 's', b: '1' })
  t.same(find('/s/1/y', ['/s/:k/y']).params, { a: 's', wildcard: '1/y' })
})

t.test('[router/radix-tree.5] one place for patterns of one shape', async t => {
  const one = patternOf('/u/:id')
  const other = patternOf('/u/:name')
  t.equal(one.shape, other.shape)
  const tree = new RadixTree([{ segments: segmentsOf(one), value: 1 }])
  t.equal(tree.find('/u/7', { accept: () => true }), 1)
  const params: Record<string, string> = {}
  tree.capture(other.paramNames, params)
  t.same(params, { name: '7' })
})

t.test('[router/radix-tree.9, router/radix-tree.10, router/radix-tree.11] spellings of a path', async t => {
  const find = makeTree(['/', '/users/me', '/users/:id', '/users/:id/posts', '/files/*', '/100%25', '/x%2Fy'])
  const rows: [string, string | null, object][] = [
    ['//', '/', {}],
    ['/users/me/', '/users/me', {}],
    ['//users//me', '/users/me', {}],
    ['/users/%6de', '/users/me', {}],
    ['/%75sers/%6D%65/', '/users/me', {}],
    ['/users/a%2Fb', '/users/:id', { id: 'a/b' }],
    ['/users/a%2fb%25/posts/', '/users/:id/posts', { id: 'a/b%' }],
    ['/users/a%252Fb', '/users/:id', { id: 'a%2Fb' }],
    ['/users/a%20b', '/users/:id', { id: 'a b' }],
    ['/users/%C3%BC', '/users/:id', { id: 'ü' }],
    ['/users/a\\b', '/users/:id', { id: 'a\\b' }],
    ['/users/a;b=1', '/users/:id', { id: 'a;b=1' }],
    ['/users/.b', '/users/:id', { id: '.b' }],
    ['/users/..b', '/users/:id', { id: '..b' }],
    ['/users/./me', '/users/me', {}],
    ['/users/x/../me', '/users/me', {}],
    ['/users/x/%2e%2e/me', '/users/me', {}],
    ['/users/..', '/', {}],
    ['/users//posts', '/users/:id', { id: 'posts' }],
    ['/users/longer-than-the-loop/posts', '/users/:id/posts', { id: 'longer-than-the-loop' }],
    ['/users/longer-than-the%20loop/posts', '/users/:id/posts', { id: 'longer-than-the loop' }],
    ['/files/a//b/', '/files/*', { wildcard: 'a/b' }],
    ['/files/a/./b', '/files/*', { wildcard: 'a/b' }],
    ['/files/.hidden/x', '/files/*', { wildcard: '.hidden/x' }],
    ['/files/a%2Fb/c%20d', '/files/*', { wildcard: 'a/b/c d' }],
    ['/files/a/../../users/me', '/users/me', {}],
    ['/files/..%2Fusers', '/files/*', { wildcard: '../users' }],
    ['/100%25', '/100%25', {}],
    ['/100%2525', null, {}],
    ['/x%2fy', '/x%2Fy', {}],
    ['/x/y', null, {}],
  ]
  for (const [path, pattern, params] of rows) {
    const found = find(path)
    t.equal(found.pattern, pattern, path)
    t.same({ ...found.params }, params, path)
  }
})

t.test('[router/radix-tree.12] a malformed path is a problem, even where a pattern would match it', async t => {
  const find = makeTree(['/', '/*', '/:a', '/:a/:b'])
  for (const path of [
    '',
    'a',
    '/%zz',
    '/a/%c0%ae',
    '/%00',
    '/..',
    '/a/../../b',
    '/%',
    '/long-enough-to-leave-the-loop%',
  ]) {
    const found = find(path)
    t.equal(found.pattern, null, path)
    t.type(found.problem, 'string', path)
  }
  t.equal(find('/fine').problem, null)
})

t.test('[router/radix-tree.14] names that mean something to the language are plain data', async t => {
  const find = makeTree(['/:__proto__/:constructor/*', '/__proto__/toString', '/constructor', '/o/:toString*'])
  t.equal(find('/__proto__/toString').pattern, '/__proto__/toString')
  t.equal(find('/constructor').pattern, '/constructor')
  t.equal(find('/hasOwnProperty').pattern, null)
  const { params } = find('/a/b/__proto__')
  t.equal(JSON.stringify(params), '{"__proto__":"a","constructor":"b","wildcard":"__proto__"}')
})

t.test('[router/radix-tree.15] long paths take linear time', async t => {
  const find = makeTree(['/:a/:b/:c', '/a/:rest*', '/:x/*', '/a/a/a/a/:p', '/:all*?'])
  const size = 1_048_576
  const paths: [string, string][] = [
    ['segments', '/a'.repeat(size / 2)],
    ['text', `/a/${'b'.repeat(size)}`],
    ['slashes', `/a${'/'.repeat(size)}b`],
    ['escapes', `/a/${'%41'.repeat(size / 3)}`],
    ['escaped text', `/${'%C3%BC/'.repeat(size / 7)}`],
    ['dot segments', `/a/${'b/../'.repeat(size / 5)}c`],
    ['dots', `/a/${'./'.repeat(size / 2)}c`],
    ['a broken end', `/a/${'b/'.repeat(size / 2)}%`],
  ]
  // Look-ups of 1 MiB: quadratic work would be 9 million million steps, and the file would not end within its limit.
  for (const [name, path] of paths) {
    find(path)
    t.pass(name)
  }
  t.equal(find('/a'.repeat(10_000)).params.rest?.length, 2 * 9_999 - 1)
})

t.test('[router/radix-tree.16] patterns made to backtrack cost one visit each', async t => {
  // All 4096 mixtures of `a` and a param over twelve segments, each with an end of its own that the path does not have.
  const depth = 12
  const patterns = Array.from({ length: 2 ** depth }, (_, bits) => {
    const segments = Array.from({ length: depth }, (_, at) => ((bits >> at) & 1 ? 'a' : `:p${at}`))
    return `/${segments.join('/')}/end`
  })
  const find = makeTree([...patterns, ...patterns.map(text => text.replace(/\/end$/, '/*'))])
  const found = find(`${'/a'.repeat(depth)}/other`, [])
  t.equal(found.offered.length, 1)
  const everything = patterns.map(text => text.replace(/\/end$/, '/*'))
  const all = find(`${'/a'.repeat(depth)}/other`, everything)
  t.equal(all.pattern, null)
  t.equal(all.offered.length, 2 ** depth, 'every leaf that matches is offered once')
  t.equal(new Set(all.offered).size, 2 ** depth)
})

t.test('[router/radix-tree.8] the tree finds what comparing everything finds', async t => {
  const start = seed()
  t.comment(`seed ${start}`)
  const random = new Random(start)
  let pairs = Math.ceil(pairCount(200_000) / 4)
  while (pairs > 0) {
    const patterns = new Map<string, ReturnType<typeof naivePattern>>()
    for (let count = 1 + random.below(24); count > 0; count--) {
      const pattern = naivePattern(randomPattern(random))
      patterns.set(pattern.shape, pattern)
    }
    const all = [...patterns.values()]
    const find = makeTree(all.map(pattern => pattern.text))
    for (let count = 0; count < 100; count++, pairs--) {
      const path = randomPath(random)
      const segments = naiveSegments(path)
      const matching = segments === null ? [] : all.filter(pattern => naiveMatch(pattern, segments) !== null)
      const order = matching.sort(naiveOrder).map(pattern => pattern.text)
      const skipped = order.slice(0, random.below(3))
      const found = find(path, skipped)
      const winner = order[skipped.length] ?? null
      const params = winner === null ? [] : naiveMatch(naivePattern(winner), segments!)!
      const isSame =
        found.pattern === winner &&
        (found.problem !== null) === (segments === null) &&
        (segments === null || found.offered.join() === order.slice(0, skipped.length + 1).join()) &&
        JSON.stringify(Object.entries(found.params)) === JSON.stringify(params)
      if (!isSame) {
        t.fail('differs', { path, patterns: all.map(pattern => pattern.text), expected: { order, params }, found })
        return
      }
    }
  }
})

t.test('[router/radix-tree.8] a tree that is added to does not change the one before, whatever a node has', async t => {
  const toEntry = (text: string) => ({ segments: segmentsOf(patternOf(text)), value: text })
  const findIn = (tree: RadixTree<string>, path: string): string | null => tree.find(path, { accept: () => true })
  const first = ['/a', '/a/b', '/p/:id', '/p/:id/x', '/q/:rest*', '/o/:rest*?', '/w/*']
  const added = ['/a/c', '/p/:id/y', '/p/me', '/q', '/w/:one', '/a/:any', '/:top*']
  const before = new RadixTree(first.map(toEntry))
  const found = [...first, ...added, '/p/1/y', '/p/1/x', '/q/1/2', '/o', '/o/1', '/w/1/2', '/a/zz', '/zz']
  const paths = found.map(path => path.replaceAll(/:(\w+)[*?]*|\*/g, '1'))
  const answers = paths.map(path => findIn(before, path))
  const after = new RadixTree(added.map(toEntry), before)
  t.same(
    paths.map(path => findIn(before, path)),
    answers,
  )
  const whole = new RadixTree([...first, ...added].map(toEntry))
  t.same(
    paths.map(path => findIn(after, path)),
    paths.map(path => findIn(whole, path)),
  )
  t.not(findIn(after, '/zz'), findIn(before, '/zz'))
})

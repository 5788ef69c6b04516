import t from 'tap'
import { isReservedPattern, parsePattern, segmentsOf } from '../../lib/core/pattern.ts'
import { patternOf } from '../helpers/claims.ts'

const SAME: [string, string][] = [
  ['/', '/'],
  ['/hello', '/hello'],
  ['//hello//World/', '/hello/World'],
  ['/users/:id', '/users/:id'],
  ['/users/{id}', '/users/:id'],
  ['/users/[id]/[postId]', '/users/:id/:postId'],
  ['/docs/:slug*', '/docs/:slug*'],
  ['/docs/[...slug]', '/docs/:slug*'],
  ['/docs/{slug*}', '/docs/:slug*'],
  ['/docs/:slug*?', '/docs/:slug*?'],
  ['/docs/[[...slug]]', '/docs/:slug*?'],
  ['/docs/{slug*?}', '/docs/:slug*?'],
  ['/hello/*', '/hello/*'],
  ['/*', '/*'],
  ["/a.b~c!$&'()+,;=@-_", "/a.b~c!$&'()+,;=@-_"],
  ['/caf%C3%A9', '/caf%C3%A9'],
]

const BAD: [string, RegExp][] = [
  ['', /start with "\/"/],
  ['hello', /start with "\/"/],
  ['/a/*/b', /"\*" as its last segment/],
  ['/:a*/b', /":a\*" as its last segment/],
  ['/[[...a]]/b', /":a\*\?" as its last segment/],
  ['/:a/:a', /param "a" twice/],
  ['/:wildcard/*', /param "wildcard" twice/],
  ['/:', /malformed param ":"/],
  ['/:a.b', /malformed param/],
  ['/:id?', /malformed param/],
  ['/:a b', /malformed param/],
  ['/{a', /malformed param/],
  ['/[a]x', /malformed param/],
  ['/x:y', /malformed param/],
  ['/a*', /malformed param/],
  ['/.', /segment "\."/],
  ['/a/../b', /segment "\.\."/],
  ['/a/%2e%2E', /segment "%2e%2E"/],
  ['/café', /ASCII/],
  ['/a b', /ASCII/],
  ['/a?b', /ASCII/],
  ['/a#b', /ASCII/],
  ['/a\\b', /ASCII/],
  ['/a\0', /ASCII/],
  ['/%00', /NUL/],
  ['/%zz', /ASCII/],
  ['/%', /ASCII/],
  ['/%c0%ae', /percent escape/],
  [`/${'a'.repeat(1024)}`, /1024 characters/],
  ['/a'.repeat(65), /64 segments/],
]

t.test('[discovery/layouts.23] every spelling of a route becomes one', async t => {
  for (const [text, canonical] of SAME) {
    t.equal(patternOf(text).text, canonical, text)
    t.same(patternOf(canonical), patternOf(text), 'and stays it')
  }
})

t.test('[discovery/layouts.23, router/radix-tree.4] what is no route says why', async t => {
  for (const [text, problem] of BAD) t.match(parsePattern(text), { problem }, JSON.stringify(text.slice(0, 40)))
  t.equal(segmentsOf(patternOf(`/${Array(64).fill('a').join('/')}`)).length, 64)
  t.equal(patternOf(`/${'a'.repeat(1023)}`).text.length, 1024)
})

t.test('[router/radix-tree.1, router/radix-tree.2] the forms of segments', async t => {
  const rows: [string, string][] = [
    ['/', ''],
    ['/hello', 'static hello'],
    ['/users/:id', 'static users, param id'],
    ['/users/{id}/posts/[post]', 'static users, param id, static posts, param post'],
    ['/docs/:slug*', 'static docs, catch-all slug'],
    ['/docs/:slug*?', 'static docs, optional-catch-all slug'],
    ['/hello/*', 'static hello, wildcard wildcard'],
    ['/*', 'wildcard wildcard'],
    ['/:a-b_9', 'param a-b_9'],
    ['/hello@1.0', 'static hello@1.0'],
    ['/:__proto__/constructor', 'param __proto__, static constructor'],
    ['/a%2Fb%20%25', 'static a%2Fb %25'],
  ]
  for (const [text, segments] of rows) {
    t.equal(
      segmentsOf(patternOf(text))
        .map(segment => `${segment.kind} ${segment.text}`)
        .join(', '),
      segments,
      text,
    )
  }
  t.same(patternOf('/:a/b/:c/*').paramNames, ['a', 'c', 'wildcard'])
})

t.test('[router/radix-tree.3] static text in every spelling is the same', async t => {
  for (const [one, other] of [
    ['/%7euser', '/~user'],
    ['/100%25', '/10%30%25'],
    ['/a%2fb', '/a%2Fb'],
  ]) {
    t.equal(patternOf(one!).shape, patternOf(other!).shape, `${one} ${other}`)
  }
  t.not(patternOf('/a%2Fb').shape, patternOf('/a/b').shape)
  t.not(patternOf('/a%252Fb').shape, patternOf('/a%2Fb').shape)
})

t.test('[router/radix-tree.5] the shape leaves out the names of params and nothing else', async t => {
  t.equal(patternOf('/u/:id').shape, patternOf('/u/:name').shape)
  t.equal(patternOf('/u/:id*').shape, patternOf('/u/:name*').shape)
  const shapes = ['/u/:x', '/u/:x*', '/u/:x*?', '/u/*', '/u', '/u/x', '/', '/u/:x/:y', '/u/%3Ax', '/u/param'].map(
    text => patternOf(text).shape,
  )
  t.equal(new Set(shapes).size, shapes.length)
})

t.test('[discovery/layouts.19] reserved patterns in any spelling', async t => {
  const isReserved = (text: string): boolean => isReservedPattern(patternOf(text))
  for (const text of ['/_fn', '/console/:id', '/_fn/*', '/%63onsole/x', '/_f%6E', '/console%2Fx'])
    t.ok(isReserved(text), text)
  for (const text of ['/', '/:x', '/:console', '/consoles', '/x/console', '/*']) t.notOk(isReserved(text), text)
})

import t from 'tap'
import { type Pattern, parsePattern } from '../../lib/router/pattern.ts'

function parsed(text: string): Pattern {
  const pattern = parsePattern(text)
  if ('problem' in pattern) throw new Error(`${text}: ${pattern.problem}`)
  return pattern
}

t.test('[router/radix-tree.1, router/radix-tree.2] the forms of segments', async t => {
  const rows: [string, string][] = [
    ['/', ''],
    ['/hello', 'static hello'],
    ['/users/:id', 'static users, param id'],
    ['/users/:id/posts/:post', 'static users, param id, static posts, param post'],
    ['/docs/:slug*', 'static docs, catch-all slug'],
    ['/docs/:slug*?', 'static docs, optional-catch-all slug'],
    ['/hello/*', 'static hello, wildcard wildcard'],
    ['/*', 'wildcard wildcard'],
    ['/:a-b_9', 'param a-b_9'],
    ['/hello@1.0', 'static hello@1.0'],
    ['/a:b', 'static a:b'],
    ['/:__proto__/constructor', 'param __proto__, static constructor'],
  ]
  for (const [text, segments] of rows) {
    const pattern = parsed(text)
    t.equal(pattern.segments.map(({ kind, text }) => `${kind} ${text}`).join(', '), segments, text)
    t.equal(pattern.text, text)
  }
  t.same(parsed('/:a/b/:c/*').paramNames, ['a', 'c', 'wildcard'])
})

t.test('[router/radix-tree.3] static text in every spelling is the same', async t => {
  for (const [one, other] of [
    ['/a b', '/a%20b'],
    ['/ü', '/%C3%BC'],
    ['/%7euser', '/~user'],
    ['/100%25', '/10%30%25'],
    ['/a%2fb', '/a%2Fb'],
  ]) {
    t.equal(parsed(one!).shape, parsed(other!).shape, `${one} ${other}`)
  }
  t.not(parsed('/a%2Fb').shape, parsed('/a/b').shape)
  t.not(parsed('/a%252Fb').shape, parsed('/a%2Fb').shape)
})

t.test('[router/radix-tree.4] what is refused, and why', async t => {
  const rows: [string, RegExp][] = [
    ['', /must start with "\/"/],
    ['hello', /must start with "\/"/],
    ['//', /empty segments/],
    ['/a/', /empty segments/],
    ['/a//b', /empty segments/],
    ['/.', /"\." is not a segment/],
    ['/a/..', /"\.\." is not a segment/],
    ['/a/%2e%2E', /not a segment/],
    ['/:rest*/edit', /":rest\*" may only be the last/],
    ['/:rest*?/edit', /may only be the last/],
    ['/*/edit', /"\*" may only be the last/],
    ['/:', /param name ""/],
    ['/:a.b', /param name "a\.b"/],
    ['/:id?', /param name "id\?"/],
    ['/:a/:a', /param "a" occurs twice/],
    ['/:wildcard/*', /param "wildcard" occurs twice/],
    ['/a*b', /"\*" in "a\*b" must be written as %2A/],
    ['/what?', /must be written as %3F/],
    ['/a#b', /must be written as %23/],
    ['/%zz', /malformed percent escape/],
    ['/%c0%ae', /malformed percent escape/],
    ['/%', /malformed percent escape/],
    ['/%00', /NUL/],
    ['/a\0', /NUL/],
    [`/${Array(65).fill('a').join('/')}`, /at most 64 segments/],
    [`/${'a'.repeat(1024)}`, /at most 1024 characters/],
  ]
  for (const [text, problem] of rows) t.match(parsePattern(text), { problem }, JSON.stringify(text.slice(0, 20)))
  t.equal(parsed(`/${Array(64).fill('a').join('/')}`).segments.length, 64)
  t.equal(parsed(`/${'a'.repeat(1023)}`).text.length, 1024)
})

t.test('[router/radix-tree.5] the shape leaves out the names of params and nothing else', async t => {
  t.equal(parsed('/u/:id').shape, parsed('/u/:name').shape)
  t.equal(parsed('/u/:id*').shape, parsed('/u/:name*').shape)
  const shapes = ['/u/:x', '/u/:x*', '/u/:x*?', '/u/*', '/u', '/u/x', '/', '/u/:x/:y', '/u/%3Ax', '/u/param'].map(
    text => parsed(text).shape,
  )
  t.equal(new Set(shapes).size, shapes.length)
})

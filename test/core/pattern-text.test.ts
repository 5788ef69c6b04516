import t from 'tap'
import { canonicalPattern, isReservedPattern } from '../../lib/core/pattern-text.ts'

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
  ['/[[...a]]/b', /last segment/],
  ['/:a/:a', /param "a" twice/],
  ['/:wildcard/*', /param "wildcard" twice/],
  ['/:', /malformed param ":"/],
  ['/:a b', /malformed param/],
  ['/{a', /malformed param/],
  ['/[a]x', /malformed param/],
  ['/x:y', /malformed param/],
  ['/a*', /malformed param/],
  ['/a/../b', /segment "\.\."/],
  ['/a/%2e%2E', /segment "%2e%2E"/],
  ['/café', /ASCII/],
  ['/a b', /ASCII/],
  ['/a?b', /ASCII/],
  ['/a#b', /ASCII/],
  ['/a\\b', /ASCII/],
  ['/a\0', /ASCII/],
  ['/%zz', /ASCII/],
  ['/%c0%ae', /percent escape/],
  [`/${'a'.repeat(1024)}`, /1024 characters/],
  ['/a'.repeat(65), /64 segments/],
]

t.test('[discovery/layouts.23] every spelling of a route becomes one', async t => {
  for (const [text, pattern] of SAME) {
    t.same(canonicalPattern(text), { ok: true, pattern }, text)
    t.same(canonicalPattern(pattern), { ok: true, pattern }, 'and stays it')
  }
})

t.test('[discovery/layouts.23] what is no route says why', async t => {
  for (const [text, problem] of BAD) {
    const result = canonicalPattern(text)
    t.notOk(result.ok, text)
    if (!result.ok) t.match(result.problem, problem, JSON.stringify(text.slice(0, 40)))
  }
})

t.test('[discovery/layouts.19] reserved patterns in any spelling', async t => {
  for (const pattern of ['/_fn', '/console/:id', '/_fn/*', '/%63onsole/x', '/_f%6E'])
    t.ok(isReservedPattern(pattern), pattern)
  for (const pattern of ['/', '/:x', '/consoles', '/x/console', '/*']) t.notOk(isReservedPattern(pattern), pattern)
})

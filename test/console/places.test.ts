import t from 'tap'
import { isFile, toPieces, toLineMessages } from '../../console/pages/function/places.ts'

const places = (message: string): string[] =>
  toPieces(message).flatMap(piece => (typeof piece === 'string' ? [] : [`${piece.file} ${piece.line}`]))

t.test('[console/function.5] files and lines in messages', async t => {
  const cases: [message: string, found: string[]][] = [
    ['users/handler.py:2: ValueError: nope', ['users/handler.py 2']],
    ['syntax error in bad/handler.mjs:14: Unexpected token', ['bad/handler.mjs 14']],
    ['    at x (/srv/fn/users/[id].post.ts:3:9)', ['/srv/fn/users/[id].post.ts 3']],
    ['src/main.rs:7:5 and lib/mod_a.rs:1', ['src/main.rs 7', 'lib/mod_a.rs 1']],
    ['hello/fn.config.json:4: x', ['hello/fn.config.json 4']],
    ['at 12:30:15 on host.example.com:8080', []],
    ['', []],
  ]
  for (const [message, found] of cases) {
    t.same(places(message), found, message)
    const text = toPieces(message).map(piece => (typeof piece === 'string' ? piece : piece.text))
    t.equal(text.join(''), message, 'nothing of it is lost')
  }
})

t.test('[console/function.5] lines of one file alone', async t => {
  t.ok(isFile({ file: '/srv/a/handler.js', line: 1 }, 'a/handler.js'))
  t.notOk(isFile({ file: '/srv/aa/handler.js', line: 1 }, 'a/handler.js'))
  const messages = ['a/handler.js:3: one', 'b/handler.js:4: two', 'a/handler.js:3: one', 'nothing']
  t.same(toLineMessages(messages, 'a/handler.js'), [{ line: 3, message: 'a/handler.js:3: one' }])
})

t.test('[console/function.5] a long hostile message takes no time', async t => {
  const message = `${'a/'.repeat(100_000)}${'[('.repeat(100_000)} x.js:1`
  t.same(places(message), ['x.js 1'])
})

import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { toFailureDetail, toFailureText } from '../../lib/observe/log-line.ts'

const JS = 'TypeError: boom\n    at inner (/srv/a.js:2:9)\n    at handler (/srv/a.js:6:3)'
const PY =
  'Traceback (most recent call last):\n  File "/srv/c.py", line 2, in inner\n    raise ValueError()\nValueError: boom'
const LUA = "stack traceback:\n\t[C]: in function 'error'\n\te.lua:2: in function <e.lua:1>"

t.test(
  '[observe/log-store.14] the headline has file and line once, and the kind of exception where it is known',
  async t => {
    const cases: [
      name: string,
      message: string,
      entry: string | null,
      detail: object,
      headline: string,
      frames: number,
    ][] = [
      ['node', 'boom', 'a.js', { file: 'a.js', line: 2, stack: JS }, 'a.js:2: TypeError: boom', 2],
      ['python', 'boom', 'c.py', { file: 'c.py', line: 2, stack: PY }, 'c.py:2: ValueError: boom', 3],
      [
        'php',
        'boom',
        'd.php',
        { file: 'd.php', line: 2, stack: 'My\\Error: boom\n  at d.php:2' },
        'd.php:2: My\\Error: boom',
        1,
      ],
      ['lua', 'boom', 'e.lua', { file: 'e.lua', line: 2, stack: LUA }, 'e.lua:2: boom', 3],
      ['go', 'nil map', 'g.go', { file: 'g.go', line: 3, stack: 'main.inner (g.go:3)' }, 'g.go:3: nil map', 1],
      [
        'file in the message',
        'syntax error in s.js:2: x',
        's.js',
        { file: 's.js', line: 2 },
        'syntax error in s.js:2: x',
        0,
      ],
      ['no detail', 'runtime timeout after 2500 ms', 'slow.js', {}, 'slow.js: runtime timeout after 2500 ms', 0],
      ['no file', 'gateway exception', null, {}, 'gateway exception', 0],
      ['several lines', 'one\ntwo', 'a.js', { stack: 'Error: one\ntwo\n    at x' }, 'a.js: Error: one', 2],
      ['empty', '', 'a.js', { stack: 'Error\n    at x' }, 'a.js: ', 2],
    ]
    for (const [name, message, entry, detail, headline, frames] of cases) {
      const text = toFailureText(message, entry, detail)
      t.same([text.headline, text.frames.length], [headline, frames], name)
    }
    t.same(toFailureText('x', 'a', { hint: 'do it' }).hint, 'do it')
  },
)

t.test('[observe/log-store.14] frames of the gateway are shown for its own exceptions alone', t => {
  const cause = new Error('x')
  t.match(toFailureDetail(new GatewayError('INTERNAL', 'gateway exception', { cause })), { stack: /Error: x/ })
  t.same(toFailureDetail(new GatewayError('EDGE_FAILED', 'malformed response', { cause })), {})
  t.end()
})

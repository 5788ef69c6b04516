import t from 'tap'
import { type AnswerHead, AnswerParser, type AnswerSink } from '../../lib/edge/answer-parser.ts'

/** The callbacks of a parser for bytes that come in the given parts. */
function parse(parts: readonly (string | Buffer)[], { isHead = false, ends = true } = {}) {
  const seen: string[] = []
  let head: AnswerHead | null = null
  let body = ''
  const parser = new AnswerParser()
  const sink: AnswerSink = {
    onHead: given => {
      head = given
      seen.push(`head ${given.status}`)
    },
    onPiece: piece => {
      body += piece.toString('latin1')
    },
    onEnd: () => seen.push('end'),
  }
  parser.begin(sink, isHead)
  let left = 0
  try {
    for (const part of parts) {
      const bytes = typeof part === 'string' ? Buffer.from(part, 'latin1') : part
      left += bytes.length - parser.add(bytes)
    }
    if (ends && !parser.finish()) seen.push('cut')
  } catch (error) {
    const { code } = error as { code?: string }
    if (code === undefined) throw error
    seen.push(code)
  }
  return { seen, head: head as AnswerHead | null, body, left, parser }
}

const OK = 'HTTP/1.1 200 OK\r\n'

const WHOLE: [title: string, text: string, body: string, isHead?: boolean][] = [
  ['a length', `${OK}Content-Length: 5\r\nX-A: b\r\n\r\nhello`, 'hello'],
  ['no body', `${OK}Content-Length: 0\r\n\r\n`, ''],
  ['no headers at all', 'HTTP/1.0 200\r\n\r\nold', 'old'],
  ['ended by its close', `${OK}\r\nopen`, 'open'],
  ['chunks', `${OK}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\nA;x="y"\r\n0123456789\r\n0\r\n\r\n`, 'he0123456789'],
  ['trailers', `${OK}Transfer-Encoding: Chunked\r\n\r\n1\r\nx\r\n000\r\nX-T: 1\r\nY:\r\n\r\n`, 'x'],
  ['a body that looks like a head', `${OK}Content-Length: 8\r\n\r\n\r\n\r\n\r\n\r\n`, '\r\n\r\n\r\n\r\n'],
  [
    'informational first',
    `HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 100\r\n\r\n${OK}Content-Length: 2\r\n\r\nok`,
    'ok',
  ],
  ['line ends before it', `\r\n\r\n${OK}Content-Length: 2\r\n\r\nok`, 'ok'],
  ['no reason, blanks around values', 'HTTP/1.1 200\r\nContent-Length: \t2 \t\r\n\r\nok', 'ok'],
  ['204', 'HTTP/1.1 204 None\r\n\r\n', ''],
  ['304 with a length', 'HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n', ''],
  ['HEAD', `${OK}Content-Length: 9\r\n\r\n`, '', true],
  ['HEAD with chunks', `${OK}Transfer-Encoding: chunked\r\n\r\n`, '', true],
  ['a coding that is none', `${OK}Transfer-Encoding: identity\r\n\r\nopen`, 'open'],
]

t.test('[edge/passthrough.16] whole answers, in one piece and cut at every byte', async t => {
  for (const [title, text, body, isHead = false] of WHOLE) {
    const whole = parse([text], { isHead })
    t.match(whole, { body, left: 0, seen: [/^head/, 'end'] }, title)
    for (let at = 0; at <= text.length; at++) {
      const cut = parse([text.slice(0, at), text.slice(at)], { isHead })
      t.same([cut.seen, cut.body, cut.head], [whole.seen, body, whole.head], `${title}, cut at ${at}`)
    }
    t.same(parse([...text], { isHead }).body, body, `${title}, byte by byte`)
  }
})

t.test('[edge/passthrough.16] fields of a head', async t => {
  const of = (...lines: string[]) => parse([`${['HTTP/1.1 200 OK', ...lines].join('\r\n')}\r\n\r\n`]).head!
  t.same(of('X-A: b', 'x-a:c', 'E:').rawHeaders, ['X-A', 'b', 'x-a', 'c', 'E', ''])
  t.same(of('Bytes: \xe4\x80').rawHeaders, ['Bytes', '\xe4\x80'])
  t.match(of('Content-Length: 7'), { status: 200, length: 7, coding: null, keepMs: null })
  t.equal(of('Transfer-Encoding: gzip', 'transfer-encoding: Chunked').coding, 'gzip, chunked')
  for (const [line, ms] of [
    ['Connection: close', 0],
    ['Connection: keep-alive, Close', 0],
    ['Connection: closed', null],
    ['Keep-Alive: timeout=5, max=100', 4000],
    ['Keep-Alive: timeout=1', 0],
    ['Keep-Alive: timeout=0', 0],
    ['Keep-Alive: max=5', null],
  ] as const)
    t.equal(of(line).keepMs, ms, line)
  t.equal(of('Connection: close', 'Keep-Alive: timeout=9').keepMs, 0)
  t.equal(parse(['HTTP/1.0 200 OK\r\nKeep-Alive: timeout=9\r\n\r\n']).head!.keepMs, 0)
})

t.test('[edge/passthrough.22] answers that are none', async t => {
  const chunked = `${OK}Transfer-Encoding: chunked\r\n\r\n`
  const malformed = [
    'SSH-2.0-OpenSSH\r\n\r\n',
    'HTTP/2 200\r\n\r\n',
    'HTTP/1.2 200 OK\r\n\r\n',
    'HTTP/1.1 99 Odd\r\n\r\n',
    'HTTP/1.1 2000 Odd\r\n\r\n',
    'HTTP/1.1  200 OK\r\n\r\n',
    'http/1.1 200 OK\r\n\r\n',
    'HTTP/1.1 200 O\0K\r\n\r\n',
    `${OK}X: a\0b\r\n\r\n`,
    `${OK}X: a\rb\r\n\r\n`,
    `${OK}X: a\nY: b\r\n\r\n`,
    `${OK}X: a\x7f\r\n\r\n`,
    `${OK}X : a\r\n\r\n`,
    `${OK}: a\r\n\r\n`,
    `${OK}no colon\r\nX: a\r\n\r\n`,
    `${OK}X: a\r\n folded\r\n\r\n`,
    `${OK} X: a\r\n\r\n`,
    `${OK}Content-Length: 1\r\nContent-Length: 1\r\n\r\nx`,
    `${OK}Content-Length: 1, 1\r\n\r\nx`,
    `${OK}Content-Length: +1\r\n\r\nx`,
    `${OK}Content-Length: 0x1\r\n\r\nx`,
    `${OK}Content-Length: -1\r\n\r\nx`,
    `${OK}Content-Length:\r\n\r\nx`,
    `${OK}Content-Length: 9999999999999999\r\n\r\nx`,
    `${OK}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `${OK}Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx`,
    `${chunked}zz\r\n`,
    `${chunked}\r\n`,
    `${chunked}2 \r\nok\r\n`,
    `${chunked}2\nok\n`,
    `${chunked}-2\r\nok\r\n`,
    `${chunked}0x2\r\nok\r\n`,
    `${chunked}2\r\nokay\r\n`,
    `${chunked}1000000000000\r\n`,
    `${chunked}1;a=\0\r\nx\r\n`,
    `${chunked}${'0'.repeat(5000)}`,
    `${chunked}1;${'x'.repeat(5000)}\r\n`,
    `${chunked}0\r\nno colon\r\n\r\n`,
    `${chunked}0\r\nX: a\rb\r\n\r\n`,
  ]
  for (const text of malformed) {
    t.equal(parse([text]).seen.at(-1), 'MALFORMED_ANSWER', JSON.stringify(text.slice(0, 80)))
    t.equal(parse([...text]).seen.at(-1), 'MALFORMED_ANSWER', 'byte by byte')
  }
  for (const text of [`${OK}Content-Length: 3\r\n\r\nab`, `${chunked}2\r\nab\r\n`, OK, '', `${OK}X: a\r\n`])
    t.equal(parse([text]).seen.at(-1), 'cut', JSON.stringify(text))
})

t.test('[edge/passthrough.16, edge/passthrough.22] heads and trailers up to 64 KiB', async t => {
  const limit = 64 * 1024
  const headOf = (bytes: number) => `${OK}X: ${'x'.repeat(bytes - OK.length - 3)}`
  for (const cut of [0, 1, 1000, limit - 1, limit]) {
    for (const [bytes, last] of [
      [limit - 1, 'end'],
      [limit, 'end'],
      [limit + 1, 'ANSWER_HEAD_TOO_LARGE'],
    ] as const) {
      const text = `${headOf(bytes)}\r\n\r\n`
      t.equal(parse([text.slice(0, cut), text.slice(cut)]).seen.at(-1), last, `${bytes} bytes, cut at ${cut}`)
    }
  }
  t.equal(parse([headOf(limit + 5000)]).seen.at(-1), 'ANSWER_HEAD_TOO_LARGE', 'one that never ends')
  const trailers = `${OK}Transfer-Encoding: chunked\r\n\r\n0\r\n${'X: y\r\n'.repeat(11_000)}\r\n`
  t.equal(parse([trailers]).seen.at(-1), 'ANSWER_HEAD_TOO_LARGE')
})

t.test('[edge/passthrough.16] nothing behind the end is read', async t => {
  for (const text of [`${OK}Content-Length: 2\r\n\r\nok`, `${OK}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`]) {
    const { seen, left, parser } = parse([`${text}HTTP/1.1 200 OK\r\n`], { ends: false })
    t.same(seen, ['head 200', 'end'])
    t.equal(left, 17)
    t.equal(parser.isDone, true)
  }
})

t.test('[edge/passthrough.24] a stop is the end, also in the middle of a read', async t => {
  const answers = [
    `${OK}Content-Length: 1\r\n\r\na`,
    `${OK}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n`,
  ]
  for (const answer of answers) {
    for (const at of ['head', 'a']) {
      const seen: string[] = []
      const parser = new AnswerParser()
      const note = (word: string) => {
        seen.push(word)
        if (word === at) parser.stop()
      }
      const sink = {
        onHead: () => note('head'),
        onPiece: (piece: Buffer) => note(`${piece}`),
        onEnd: () => note('end'),
      }
      parser.begin(sink, false)
      parser.add(Buffer.from(answer))
      t.same(seen, ['head', 'a'].slice(0, at === 'head' ? 1 : 2), at)
      t.equal(parser.isDone, true)
    }
  }
})

import { Writable } from 'node:stream'
import t from 'tap'
import { createOutput, hasColour } from '../../bin/output.ts'

/** Streams that keep what is written; as a terminal, or with a reader that has stopped. */
function setup({ isTTY = false, isStuck = false, env = {} as Record<string, string> } = {}) {
  const written = { stdout: '', stderr: '' }
  const make = (name: keyof typeof written) => {
    const stream = new Writable({
      write(chunk, _encoding, done) {
        written[name] += String(chunk)
        if (!isStuck) done()
      },
    })
    return Object.assign(stream, { isTTY, columns: 20 }) as unknown as NodeJS.WriteStream
  }
  const streams = { stdout: make('stdout'), stderr: make('stderr') }
  return { output: createOutput(streams.stdout, streams.stderr, env), written, streams }
}

t.test('[bin/dev.1] results go to standard output, words to standard error', async t => {
  const { output, written } = setup()
  output.result('{}')
  output.note('hello')
  output.status('never shown')
  output.clear()
  t.same(written, { stdout: '{}\n', stderr: 'hello\n' })
  t.equal(output.style('red', 'x'), 'x')
})

t.test('[bin/dev.10] text of others is one harmless line', async t => {
  const { output } = setup()
  t.equal(output.clean('a\nb\u001b[2J\u202e\u200b'), 'a\\nb\\x1b[2J\\u202e\\u200b')
})

t.test('[bin/dev.9] colours where the stream shows them', async t => {
  t.equal(setup({ isTTY: true }).output.style('red', 'x'), '\u001b[31mx\u001b[39m')
  t.equal(setup({ env: { FORCE_COLOR: '1' } }).output.style('red', 'x'), '\u001b[31mx\u001b[39m')
  t.equal(setup({ isTTY: true, env: { NO_COLOR: '1' } }).output.style('red', 'x'), 'x')
  const cases: [env: Record<string, string>, isTerminal: boolean, expected: boolean][] = [
    [{}, true, true],
    [{}, false, false],
    [{ NO_COLOR: '1' }, true, false],
    [{ NO_COLOR: '' }, true, true],
    [{ TERM: 'dumb' }, true, false],
    [{ FORCE_COLOR: '1' }, false, true],
    [{ FORCE_COLOR: '' }, false, false],
    [{ FORCE_COLOR: '1', NO_COLOR: '1' }, true, false],
    [{ FORCE_COLOR: '1', TERM: 'dumb' }, false, true],
    [{ FORCE_COLOR: '0' }, true, false],
    [{ FORCE_COLOR: 'false' }, true, false],
  ]
  for (const [env, isTerminal, expected] of cases)
    t.equal(hasColour(env, isTerminal), expected, JSON.stringify([env, isTerminal]))
})

t.test('[bin/dev.14] a status line stays below what is printed and is cut to the terminal', async t => {
  const { output, written } = setup({ isTTY: true })
  output.status('building a long name 1 s')
  t.equal(written.stderr, 'building a long nam', 'a broken line could not be taken away again')
  written.stderr = ''
  output.note('word')
  t.equal(written.stderr, '\r\u001b[2Kword\nbuilding a long nam')
  written.stderr = ''
  output.result('result')
  t.equal(written.stderr, '\r\u001b[2Kbuilding a long nam')
  written.stderr = ''
  output.status(null)
  output.note('word')
  t.equal(written.stderr, '\r\u001b[2Kword\n')
  t.equal(setup({ isTTY: true, env: { TERM: 'dumb' } }).output.hasStatus, false)
})

t.test('[bin/dev.7] a reader of words that has stopped costs a fixed amount of memory', async t => {
  const { output, streams } = setup({ isStuck: true })
  const line = 'x'.repeat(10_000)
  for (let i = 0; i < 2000; i++) output.note(line)
  t.ok(streams.stderr.writableLength < 5 * 1024 * 1024, `${streams.stderr.writableLength} bytes wait`)
})

t.test('[bin/dev.6] a reader that went away is no error', async t => {
  const { output, streams } = setup()
  for (const stream of Object.values(streams)) stream.emit('error', new Error('EPIPE'))
  output.note('still here')
  t.equal(streams.stderr.listenerCount('error') > 0, true)
})

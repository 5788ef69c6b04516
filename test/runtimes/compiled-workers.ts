/** What holds for the workers of go and rust, and for both through a gateway. */

import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname } from 'node:path'
import type { Test } from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { encodeFrame, KIND } from '../../lib/runtime/wire-protocol.ts'
import { BUILD_WAIT_MS, type Compiled, injectBuilt, shareCrates } from '../helpers/compiled.ts'
import { childrenOf, commandOf, listProcesses } from '../helpers/processes.ts'
import { makeTree } from '../helpers/tree.ts'
import { type DaemonClient, FrameClient, until, type WorkerClient, type WorkerStart } from '../helpers/worker-client.ts'

/** Calls of which sleeps are counted together, and milliseconds between them: a watcher that looks would look in vain. */
const CALLS_OF_ROUND = 20
const REST_MS = 5
/** Milliseconds that something may take on a busy machine. */
const BUSY_WAIT_MS = 60_000
/** Takes a processor, for a minute at most. */
const LOOP = 'const end = Date.now() + 60_000; while (Date.now() < end);'

/** Bytes that are no text, others for each seed. */
function toBytes(length: number, seed: number): Buffer {
  const bytes = Buffer.alloc(length, 0xff)
  let state = seed + 1
  for (let at = 1; at < length; at++) {
    state = (Math.imul(state, 48_271) >>> 0) % 2_147_483_647
    bytes[at] = state >>> 8
  }
  return bytes
}

/** How often the threads of a process, and of those that it started, went to sleep so far. */
function countSleeps(pid: number): number {
  let count = 0
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    const status = readFileSync(`/proc/${pid}/task/${task}/status`, 'utf8')
    count += Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1])
  }
  return childrenOf(pid).reduce((sum, child) => sum + countSleeps(child), count)
}

/** Sockets of a process, or of those that it started, that are in a set of descriptors of which any wakes a thread. */
function countWatched(pid: number): number {
  const files = readdirSync(`/proc/${pid}/fd`).map(fd => ({ fd, target: readlinkSync(`/proc/${pid}/fd/${fd}`) }))
  const sockets = new Set(files.filter(({ target }) => target.startsWith('socket:')).map(({ fd }) => fd))
  const sets = files.filter(({ target }) => target === 'anon_inode:[eventpoll]')
  const watched = sets.flatMap(({ fd }) =>
    [...readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'utf8').matchAll(/^tfd:\s+(\d+)/gm)].map(([, fd]) => fd!),
  )
  const own = watched.filter(fd => sockets.has(fd)).length
  return childrenOf(pid).reduce((sum, child) => sum + countWatched(child), own)
}

/** What holds for the worker of either language, given its program built from the fixture `all`. */
export class CompiledWorkers {
  readonly #daemon: DaemonClient
  readonly #start: WorkerStart & { binary: string }

  constructor(daemon: DaemonClient, start: WorkerStart & { binary: string }) {
    this.#daemon = daemon
    this.#start = start
  }

  worker(start: Partial<WorkerStart> = {}): Promise<WorkerClient> {
    return this.#daemon.worker({ ...this.#start, ...start })
  }

  async event(t: Test): Promise<void> {
    const worker = await this.worker({ env: { A: 'ä=1', B: '' }, version: 'v1' })
    const ready = await worker.ready()
    t.equal(ready.kind, KIND.ready)
    const header = {
      headers: { 'x-do': 'echo', cookie: 'a=b' },
      // Where no field has its name a param is in the event itself too.
      params: { id: 'é\u2028"\\\n', slug: 'a/b' },
      query: { a: ['1', '2'], b: '' },
      session: { id: 's', raw: 'sid=s', cookies: { sid: 's' } },
      trigger: { type: 'schedule', n: 1.5, deep: [true, null, { x: -2e-3 }] },
      trace: 't',
      trace_state: 'a=1',
      client: { ip: '::1', ua: 'x' },
    }
    const answer = await worker.call(header, 'ünï')
    const event = JSON.parse(answer.text)
    t.same(event, {
      id: 'req-1',
      ts: 1_700_000_000_000,
      method: 'GET',
      path: '/test',
      raw_path: '/test',
      params: header.params,
      slug: 'a/b',
      path_params: header.params,
      query: header.query,
      headers: header.headers,
      body: 'ünï',
      is_base64: false,
      body_base64: null,
      client: header.client,
      session: header.session,
      version: 'v1',
      env: { A: 'ä=1', B: '' },
      context: {
        runtime: this.#daemon.runtime,
        function_name: 'test',
        version: 'default',
        timeout_ms: 2500,
        max_body_bytes: 1 << 20,
        request_id: 'req-1',
        user: null,
        trigger: header.trigger,
        trace: 't',
        trace_state: 'a=1',
      },
    })
    const binary = JSON.parse((await worker.call({ headers: { 'x-do': 'echo' } }, Buffer.from([0xff, 0]))).text)
    t.same([binary.body, binary.is_base64, binary.body_base64], [null, true, '/wA='])
    const empty = JSON.parse((await worker.call({ headers: { 'x-do': 'echo' } })).text)
    t.same([empty.body, empty.is_base64, empty.body_base64], [null, false, null])
    const variables = JSON.parse((await worker.call({ headers: { 'x-do': 'env' } })).text)
    t.match(variables, { event: { A: 'ä=1' }, process: { A: 'ä=1', B: '' } })
    t.same(
      Object.keys(variables.process).filter(name => name.startsWith('FNGW_')),
      ['FNGW_WORKER'],
    )
    await worker.close()
  }

  /** Answers and what becomes of them: `[value, header or message, body]`. */
  async envelopes(t: Test): Promise<void> {
    const worker = await this.worker()
    const typed = (type: string) => ({ status: 200, headers: { 'content-type': type } })
    const replies: [unknown, object, string][] = [
      [{ status: 204 }, { status: 204, headers: {} }, ''],
      [{ status: 100, body: null }, { status: 100, headers: {} }, ''],
      [{ status: 599, headers: {} }, { status: 599, headers: {} }, ''],
      [{ statusCode: 201, body: 'x' }, { status: 201, headers: { 'content-type': 'text/plain; charset=utf-8' } }, 'x'],
      [{ status: 200.0, body: 'ü<b>' }, typed('text/plain; charset=utf-8'), 'ü<b>'],
      [{ status: 200, body: { a: [1, '<&>', null] } }, typed('application/json'), '{"a":[1,"<&>",null]}'],
      [{ status: 200, body: [] }, typed('application/json'), '[]'],
      [{ status: 200, body: 1.5 }, typed('application/json'), '1.5'],
      [{ status: 200, body: false }, typed('application/json'), 'false'],
      [{ status: 200, body: 'x', headers: { 'Content-Type': 'a/b' } }, { headers: { 'Content-Type': 'a/b' } }, 'x'],
      [
        { status: 200, headers: { a: ['1', 2], b: true, c: null, d: 7 } },
        { headers: { a: ['1', '2'], b: 'true', d: '7' } },
        '',
      ],
      [{ status: 200, is_base64: true, body_base64: '/wA=' }, typed('application/octet-stream'), '\ufffd\0'],
      [{ status: 200, body_base64: 'eA==', body: 'y' }, typed('text/plain; charset=utf-8'), 'y'],
      [
        { proxy: { path: '/up', headers: { a: 'b' }, body: { x: 1 } } },
        { proxy: { path: '/up', headers: { a: 'b', 'content-type': 'application/json' } } },
        '{"x":1}',
      ],
      [
        { proxy: { path: '/up', method: 'PUT', timeout_ms: 5, body: 'raw' } },
        { proxy: { path: '/up', method: 'PUT', timeout_ms: 5 } },
        'raw',
      ],
    ]
    for (const [value, header, body] of replies) {
      const answer = await worker.call({ headers: { 'x-do': 'return' } }, JSON.stringify(value))
      t.match([answer.kind, answer.header, answer.text], ['reply', header, body], JSON.stringify(value))
    }
    const broken: [unknown, RegExp][] = [
      [null, /the answer must be an object with status, headers and body, got/],
      ['text', /must be an object .* got "text" \(string\)/],
      [[1], /must be an object .* got an array of 1 item/],
      [{}, /status must be an integer from 100 to 599, got/],
      [{ body: 'x' }, /status must be an integer from 100 to 599/],
      [{ status: '200' }, /status must be an integer from 100 to 599, got "200" \(string\)/],
      [{ status: 99 }, /status must .* got 99/],
      [{ status: 600 }, /status must .* got 600/],
      [{ status: 200.5 }, /status must .* got 200.5/],
      [{ status: 200, headers: 'x' }, /headers must be an object, got "x"/],
      [{ status: 200, headers: { 'a b': 'x' } }, /header name "a b" is not allowed/],
      [{ status: 200, headers: { a: 'x\r\ny' } }, /header "a" holds the character U\+000D/],
      [{ status: 200, headers: { a: { b: 1 } } }, /header "a" must be a string/],
      [{ status: 200, is_base64: 1 }, /is_base64 must be true or false, got 1/],
      [{ status: 200, is_base64: true }, /body_base64 is missing/],
      [{ status: 200, is_base64: true, body_base64: '*' }, /body_base64 must be base64 text/],
      [{ status: 200, is_base64: true, body_base64: 'AA\nAA' }, /body_base64 must be base64 text/],
      [{ status: 200, is_base64: true, body_base64: 'AAA\r' }, /body_base64 must be base64 text/],
      [{ proxy: 'x' }, /proxy must be an object, got "x"/],
    ]
    for (const [value, message] of broken) {
      const { header } = await worker.call({ headers: { 'x-do': 'return' } }, JSON.stringify(value))
      t.match(header, { code: 'contract', message }, JSON.stringify(value))
    }
    t.match((await worker.call({ headers: { 'x-do': 'nan' } })).header, { code: 'contract', message: /status must be/ })
    await worker.close()
  }

  async failures(t: Test, file: string, line: number): Promise<void> {
    const worker = await this.worker()
    const [thrown, failed, next] = await Promise.all([
      worker.call({ headers: { 'x-do': 'throw' } }),
      worker.call({ headers: { 'x-do': 'fail' } }),
      worker.call({ headers: { 'x-do': 'args' }, params: { a: 'b' } }),
    ])
    t.match(thrown.header, { code: 'exception', message: 'boom ü', file, line })
    t.match(thrown.header.stack, new RegExp(`${file}:${line}`))
    t.match(failed.header, { code: 'exception', message: 'failed ü' })
    t.equal(next.text, '{"a":"b"}')
    const { header: library } = await worker.call({ headers: { 'x-do': 'library' } })
    t.match(library, { code: 'exception', message: /./ })
    // Go tells where the handler was; Rust knows the place of a panic alone, and that one is the language's.
    if (this.#daemon.runtime === 'go') t.match(library, { file, stack: /./ })
    const frames: string[] = library.stack?.split('\n') ?? []
    t.ok(
      frames.every(frame => frame.includes(file)),
      'frames of the language are not told',
    )
    const heads = (bytes: number) => worker.call({ headers: { 'x-do': 'heads' }, query: { bytes: String(bytes) } })
    t.equal((await heads(500 << 10)).header.status, 200)
    t.match((await heads(512 << 10)).header, { code: 'contract', message: /status and headers take .* above 512 KiB/ })
    await worker.close()
  }

  async output(t: Test): Promise<void> {
    const worker = await this.worker()
    const printed = await worker.call({ headers: { 'x-do': 'print' }, query: { n: '1' } })
    t.equal(printed.stdout, 'out 1 a\nout 1 b\nout 1 c\n')
    t.equal(printed.stderr, 'err 1 a\nerr 1 b\nerr 1 c\n')
    const silent = await worker.call({ headers: { 'x-do': 'args' } })
    t.same([silent.stdout, silent.stderr], ['', ''])
    const raw = await worker.call({ headers: { 'x-do': 'raw' } })
    t.same([raw.text, raw.stdout], ['whole', 'raw \0\x10\ufffd\n'])
    const flood = await worker.call({ headers: { 'x-do': 'flood' } })
    t.equal(flood.text, 'flooded')
    t.match(flood.stdout.slice(-60), /x\n+\[output above 64 KiB dropped\]\n$/)
    t.ok(flood.stdout.length < 66_000)
    // Each call's, whichever of them, or of the goroutines and threads that they start, writes.
    const many = await Promise.all(
      Array.from({ length: 20 }, (_, n) => worker.call({ headers: { 'x-do': 'print' }, query: { n: String(n) } })),
    )
    const lines = (word: string, n: number) => ['a', 'b', 'c'].map(part => `${word} ${n} ${part}\n`).join('')
    t.same(
      many.map(({ text, stdout, stderr }) => [text, stdout, stderr]),
      many.map((_, n) => [String(n), lines('out', n), lines('err', n)]),
    )
    await worker.close()
  }

  async bodies(t: Test): Promise<void> {
    const worker = await this.worker({ context: { max_body_bytes: 20 << 20 } })
    const body = Buffer.alloc(17 << 20, 'fngw \xff')
    const large = await worker.call({ headers: { 'x-do': 'binary' } }, body)
    t.match(large.header, {
      status: 200,
      stream: true,
      length: body.length,
      headers: { 'Content-Type': 'application/x-test' },
    })
    t.ok(large.body.equals(body), 'every byte comes back')
    t.ok(Math.max(...large.chunks) <= 256 << 10)
    const bytes = await worker.call({ headers: { 'x-do': 'bytes' } })
    t.same(
      [...bytes.body],
      Array.from({ length: 256 }, (_, i) => i),
    )
    t.equal(bytes.header.headers['content-type'], 'application/octet-stream')
    // Nothing beyond the window leaves without leave.
    const id = worker.open({ headers: { 'x-do': 'large' }, query: { bytes: String(2 << 20) } })
    await worker.wait(frame => frame.id === id && frame.kind === KIND.reply)
    let bytesSent = 0
    while (bytesSent < 256 << 10) bytesSent += (await worker.wait(frame => frame.id === id)).body.length
    await worker.call({ headers: { 'x-do': 'args' } })
    t.equal(worker.frames.filter(frame => frame.id === id).length, 0)
    worker.send(KIND.cancel, id)
    const end = await worker.wait(frame => frame.id === id && frame.kind === KIND.end)
    t.equal(end.header.canceled, true)
    await worker.close()
  }

  /** Bytes as base64 text and back, of lengths about which the worker changes its way. */
  async base64(t: Test): Promise<void> {
    const worker = await this.worker({ context: { max_body_bytes: 4 << 20 } })
    const answered = async (action: string, body: string | Buffer) =>
      await worker.call({ headers: { 'x-do': action } }, Buffer.from(body))
    const decoded = (body_base64: string) =>
      answered('return', JSON.stringify({ status: 200, is_base64: true, body_base64 }))
    const around = (bytes: number) => [-2, -1, 0, 1, 2].map(more => bytes + more)
    const lengths = [...Array(80).keys(), ...[3, 16, 64, 100, 1024, 1800].flatMap(kib => around(kib << 10))].slice(1)
    const wrong: unknown[] = []
    for (const [at, length] of lengths.entries()) {
      const body = toBytes(length, at)
      const text = body.toString('base64')
      const event = JSON.parse((await answered('echo', body)).text)
      const ways = [
        event.is_base64 && event.body_base64 === text,
        (await answered('binary', body)).body.equals(body),
        (await decoded(text)).body.equals(body),
        (await decoded(text.replace(/=+$/, ''))).body.equals(body),
      ]
      if (!ways.every(Boolean)) wrong.push([length, ...ways])
    }
    t.strictSame(wrong, [], `${lengths.length} lengths: event, answer as it came, decoded, decoded without padding`)

    // Each character that is none of the alphabet at one place, and one at each place, of a short text and of a long one.
    const isOdd = (char: string) => !/[A-Za-z0-9+/]/.test(char)
    const odd = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code)).filter(isOdd)
    const accepted: unknown[] = []
    for (const bytes of [96, 20_001]) {
      const text = toBytes(bytes, bytes).toString('base64')
      const places =
        bytes === 96
          ? [...text.slice(0, -2)].keys()
          : [0, 1, 9, 8190, text.length - 26, text.length - 17, text.length - 3]
      const tried = [...odd.map(char => [40, char] as const), ...[...places].map(at => [at, '\n'] as const)]
      for (const [at, char] of tried) {
        const { header } = await decoded(text.slice(0, at) + char + text.slice(at + 1))
        if (header.code !== 'contract' || !header.message.startsWith('body_base64 must be base64 text'))
          accepted.push([bytes, at, char, header])
      }
    }
    t.strictSame(accepted, [], 'nothing else is taken for base64')

    // Many at once, so that memory of one is another's soon.
    const calls = Array.from({ length: 160 }, async (_, at) => {
      const body = toBytes(40_000 + ((at * 7919) % 260_000), at)
      const text = body.toString('latin1')
      if (at % 4 === 3) return (await answered('binary', text)).text === text
      return (at % 4 === 2 ? await decoded(body.toString('base64')) : await answered('binary', body)).body.equals(body)
    })
    t.strictSame(
      (await Promise.all(calls)).flatMap((isRight, at) => (isRight ? [] : [at])),
      [],
      'each gets its own',
    )
    await worker.close()
  }

  /** Calls that arrive together while some of them wait for others: a worker that read on only after a call would stand still. */
  async turns(t: Test): Promise<void> {
    const worker = await this.worker()
    await worker.ready()
    const file = (name: string) => `${dirname(this.#start.binary)}/${name}`
    const open = (action: string, name = '') =>
      worker.open({ headers: { 'x-do': action }, query: { file: file(name) } })
    const text = async (id: number) => (await worker.collect(id)).text
    /** Sends frames in one write. */
    const together = <T>(act: () => T): T => {
      worker.socket.cork()
      try {
        return act()
      } finally {
        worker.socket.uncork()
      }
    }
    for (let round = 0; round < 3; round++) {
      // While calls are quick, then while they are slow, then quick again.
      for (let n = 0; n < 100; n++) await worker.call({ headers: { 'x-do': 'args' } })
      const name = `a${round}`
      const [first, waiting, last] = together(() => [
        [open('args'), open('args')],
        Array.from({ length: 60 }, () => open('until', name)),
        open('args'),
      ])
      t.same(
        await Promise.all([...first, last].map(text)),
        ['{}', '{}', '{}'],
        'answers do not wait for calls behind them',
      )
      const touch = open('touch', name)
      t.same(await Promise.all([...waiting, touch].map(text)), [...waiting.map(() => 'there'), 'touched'])
    }
    const [stream, behind] = together(() => [
      worker.open({ headers: { 'x-do': 'large' }, query: { bytes: String(3 << 20) } }),
      open('args'),
    ])
    t.equal(await text(behind), '{}', 'a stream that waits for leave holds nobody up')
    t.equal((await worker.collect(stream)).body.length, 3 << 20)
    const stuck = open('until', 'b')
    worker.send(KIND.ping, 9)
    await worker.wait(frame => frame.kind === KIND.pong)
    worker.send(KIND.cancel, stuck)
    const touch = open('touch', 'b')
    t.match((await worker.collect(stuck)).end, { canceled: true }, 'what is told to a call that runs reaches it')
    t.equal(await text(touch), 'touched')
    for (const [action, query] of [
      ['exit', { code: '0' }],
      ['throw', {}],
    ] as const) {
      const other = await this.worker()
      await other.ready()
      other.socket.cork()
      const ids = Array.from({ length: 3 }, () => other.open({ headers: { 'x-do': 'args' } }))
      other.open({ headers: { 'x-do': action }, query })
      other.socket.uncork()
      for (const id of ids) t.equal((await other.collect(id)).text, '{}', `answers before ${action} arrive`)
      if (action === 'exit') await this.#daemon.ended(other)
      else await other.close()
    }
    await worker.close()
  }

  /** A reader that the system takes the processor from, longer than a quick call may take, has lost the lead when it goes on. */
  async pauses(t: Test): Promise<void> {
    const worker = await this.worker()
    await worker.ready()
    const busy = Array.from({ length: 2 * availableParallelism() }, () =>
      spawn(process.execPath, ['-e', LOOP], { stdio: 'ignore' }),
    )
    t.teardown(() => {
      for (const child of busy) child.kill('SIGKILL')
    })
    let wrong = 0
    const lane = async (lane: number) => {
      for (let n = 0; n < 150; n++) {
        const params = { call: `${lane}/${n}` }
        const answer = await worker.call({ headers: { 'x-do': 'args' }, params }, 'x'.repeat((lane * n) % 3000))
        if (answer.text !== JSON.stringify(params)) wrong++
      }
    }
    await Promise.all(Array.from({ length: 48 }, (_, n) => lane(n)))
    t.equal(wrong, 0, 'each call got its own answer')
    await worker.close()
  }

  /** While calls follow each other closely only the thread that reads is woken: the connection is in no set that others wait for. */
  async follows(t: Test): Promise<void> {
    const worker = await this.worker()
    await worker.ready()
    const call = () => worker.call({ headers: { 'x-do': 'args' } })
    // On a busy machine they follow closely only now and then.
    await until(async () => {
      for (let n = 0; n < CALLS_OF_ROUND; n++) await call()
      return countWatched(worker.pid) === 0
    }, BUSY_WAIT_MS)
    t.equal((await call()).text, '{}', 'a thread that waits by itself takes the next one')
    await until(async () => {
      await new Promise(done => setTimeout(done, REST_MS))
      await call()
      return countWatched(worker.pid) > 0
    }, BUSY_WAIT_MS)
    t.equal((await call()).text, '{}', 'and so does one that is woken')
    await worker.close()
  }

  /**
   * Calls with a wait between them wake none of the worker's threads but the one that reads.
   * @param most - times that its threads may go to sleep for a call
   */
  async rests(t: Test, most: number): Promise<void> {
    const worker = await this.worker()
    await worker.ready()
    const rounds: number[] = []
    for (let round = 0; round < 6; round++) {
      const before = countSleeps(worker.pid)
      for (let n = 0; n < CALLS_OF_ROUND; n++) {
        await worker.call({ headers: { 'x-do': 'args' } })
        await new Promise(done => setTimeout(done, REST_MS))
      }
      rounds.push((countSleeps(worker.pid) - before) / CALLS_OF_ROUND)
    }
    t.ok(Math.min(...rounds) <= most, `times asleep for a call: ${rounds.join(', ')}`)
    await worker.close()
  }

  /** Bodies of every size at a border, in frames that are cut anywhere. */
  async borders(t: Test): Promise<void> {
    const worker = await this.worker({ context: { max_body_bytes: 4 << 20 } })
    await worker.ready()
    const sizes = [0, 1, 2, 3, 4, 5]
    for (const border of [16 << 10, 64 << 10, 256 << 10, 1 << 20]) sizes.push(border - 1, border, border + 1)
    // Where a whole frame fits in what is read at once, and no longer does.
    for (let size = (64 << 10) - 320; size <= 64 << 10; size += 9) sizes.push(size)
    for (const fill of ['text', Buffer.from([0xff, 0, 0x80])]) {
      for (const size of sizes) {
        const body = Buffer.alloc(size, fill)
        const { body: answer } = await worker.call({ headers: { 'x-do': 'binary' } }, body)
        if (!answer.equals(body)) t.fail(`${answer.length} bytes came back of ${size}`)
      }
    }
    // Two at once, and each byte of a frame on its own.
    const bodies = Array.from({ length: 20 }, (_, n) => Buffer.alloc(n * 9001, `${n},`))
    const answers = await Promise.all(bodies.map(body => worker.call({ headers: { 'x-do': 'binary' } }, body)))
    t.ok(answers.every(({ body }, n) => body.equals(bodies[n]!)))
    const header = JSON.stringify({ id: 'cut', params: { a: 'b' }, headers: { 'x-do': 'args' } })
    for (const byte of encodeFrame(KIND.call, 900, header, Buffer.from('body'))) {
      await new Promise<void>(done => worker.socket.write(Buffer.from([byte]), () => done()))
    }
    t.equal((await worker.collect(900)).text, '{"a":"b"}')
    // A call that is cut off never runs; the worker ends.
    const file = `${dirname(this.#start.binary)}/never`
    const touch = JSON.stringify({ headers: { 'x-do': 'touch' }, query: { file } })
    const frame = encodeFrame(KIND.call, 901, touch, Buffer.alloc(200_000))
    worker.socket.end(frame.subarray(0, -1))
    t.match((await this.#daemon.ended(worker)).header, { code: 0 })
    t.notOk(existsSync(file))
  }

  async endings(t: Test): Promise<void> {
    const leaving = await this.worker()
    await leaving.ready()
    leaving.open({ headers: { 'x-do': 'exit' }, query: { code: '7' } })
    t.match((await this.#daemon.ended(leaving)).header, { code: 7 })
    const killed = await this.worker()
    killed.open({ headers: { 'x-do': 'kill' } })
    t.match((await this.#daemon.ended(killed)).header, { signal: 'SIGKILL' })
    const endless = await this.worker()
    endless.open({ headers: { 'x-do': 'recurse' } })
    const end = (await this.#daemon.ended(endless)).header
    t.ok(end.signal !== null || end.code !== 0, 'a stack that overflows ends the worker')
    const hungry = await this.worker()
    hungry.open({ headers: { 'x-do': 'memory' } })
    t.match((await this.#daemon.ended(hungry)).header.reason, /^out of memory: limit 128 MB, FN_WORKER_MEMORY_MB/)
    const open = await this.worker()
    const id = open.open({ headers: { 'x-do': 'late' }, query: { ms: '100', n: '1', file: '/dev/null' } })
    await open.ready()
    open.socket.end()
    t.equal((await open.collect(id)).text, 'late', 'the gateway hangs up: what runs is finished')
    t.match((await this.#daemon.ended(open)).header, { code: 0 })
  }

  async protocol(t: Test): Promise<void> {
    const { id, uri, pid } = await this.#daemon.startWorker(this.#start)
    t.equal(statSync(uri.replace('unix:', '')).mode & 0o777, 0o600, 'the socket is its owner’s alone')
    for (const [kind, header, byte] of [
      [KIND.call, {}, 1],
      [KIND.hello, { role: 'control' }, 1],
      [KIND.hello, { role: 'worker' }, 9],
    ] as const) {
      const stranger = new FrameClient(uri)
      stranger.send(kind, 0, header, Buffer.from([byte]))
      t.match((await stranger.wait(() => true)).header, { code: 'protocol' })
      await stranger.closed
    }
    const worker = this.#daemon.connect(uri, id, pid, this.#start)
    worker.send(KIND.ping, 9)
    t.equal((await worker.wait(frame => frame.kind === KIND.pong)).id, 9)
    worker.send(KIND.cancel, 77)
    worker.send(KIND.more, 77, { bytes: 5 })
    t.equal((await worker.call({ headers: { 'x-do': 'args' } })).text, '{}')
    for (const bytes of ['000000ff63000000010000000000', '00000008', 'ffffffff', '0000000a100000000100000005ff']) {
      const broken = await this.worker()
      await broken.ready()
      broken.socket.write(Buffer.from(bytes, 'hex'))
      broken.socket.end(Buffer.alloc(300))
      await this.#daemon.ended(broken)
    }
    for (const [kind, header, body] of [
      [KIND.call, (1 << 20) + 1, 0],
      [KIND.call, 0, (17 << 20) + 1],
      [KIND.cancel, (4 << 10) + 1, 0],
      [KIND.more, 0, 1],
      [KIND.ping, 0, 65],
    ] as const) {
      const large = await this.worker()
      await large.ready()
      const prefix = Buffer.alloc(13)
      prefix.writeUInt32BE(9 + header + body, 0)
      prefix[4] = kind
      prefix.writeUInt32BE(header, 9)
      // Nothing of what it announces has to come.
      large.socket.write(prefix)
      const { header: told } = await large.wait(frame => frame.kind === KIND.error)
      t.match(told, { code: 'protocol', message: /^(?:HEADER|FRAME)_TOO_LONG: .* frame has \d+ bytes, above \d+$/ })
      await this.#daemon.ended(large)
    }
    t.equal((await worker.call({ headers: { 'x-do': 'args' } })).text, '{}')
    await worker.close()
    const adapted = await this.worker({ adapter: 'cloud-lambda' })
    t.match((await adapted.ready()).header, { code: 'load', message: /invoke\.adapter unsupported/ })
    await this.#daemon.ended(adapted)
  }
}

/**
 * A function through a whole gateway: built in the background, served, edited, broken, found again after a restart.
 * @param handler - source of a handler that answers with the text
 */
export async function checkGateway(t: Test, runtime: Compiled, handler: (text: string) => string): Promise<void> {
  const file = runtime === 'go' ? 'handler.go' : 'handler.rs'
  const tree = makeTree({ [`hello/${file}`]: handler('one') })
  const env = { ...process.env, ...shareCrates() }
  t.teardown(() => tree.cleanup())
  const open = async (settings: object = {}) => {
    const gateway = await createGateway({
      functionsRoot: tree.root,
      runtimes: [runtime],
      env,
      ...settings,
    })
    const messages: string[] = []
    gateway.on('log', ({ message }) => messages.push(message))
    const isBuilt = () => messages.some(message => message.startsWith(`built ${runtime}/hello@default in `))
    return { gateway, messages, isBuilt }
  }
  const send = async (gateway: Gateway) => {
    const { status, text } = await injectBuilt(gateway, '/hello')
    return { status, text: text() }
  }
  const first = await open()
  await until(first.isBuilt, BUILD_WAIT_MS)
  const started = performance.now()
  t.match(await send(first.gateway), { status: 200, text: 'one' })
  t.comment(`first call after the build: ${(performance.now() - started).toFixed(1)} ms`)

  tree.write({ [`hello/${file}`]: handler('edited') })
  first.messages.length = 0
  await first.gateway.reload()
  let answer = await send(first.gateway)
  await until(first.isBuilt, BUILD_WAIT_MS)
  // The version before answers while it is built, and until a moment after that was logged.
  while (answer.text === 'one') answer = await send(first.gateway)
  t.match(answer, { status: 200, text: 'edited' })

  tree.write({ [`hello/${file}`]: handler('edited').replace('200', 'nope') })
  await first.gateway.reload()
  const failed = new RegExp(`^build failed: hello/${file}:\\d+:\\d+: .*nope`)
  await until(() => first.messages.some(message => failed.test(message)), BUILD_WAIT_MS)
  t.match(await send(first.gateway), { status: 200, text: 'edited' }, 'the last version that was built serves')
  tree.write({ [`hello/${file}`]: handler('edited') })
  await first.gateway.close()

  // A version that never ran is waited for, however much less the call's own time limit is.
  const waiting = await open({ defaultTimeoutMs: 200, depsWaitMs: BUILD_WAIT_MS })
  tree.write({ [`hello/${file}`]: handler('waited for') })
  await waiting.gateway.reload()
  const patient = await waiting.gateway.inject('/hello')
  t.match({ status: patient.status, text: patient.text() }, { status: 200, text: 'waited for' })
  await waiting.gateway.close()

  const hasty = await open({ production: true, depsWaitMs: 0 })
  tree.write({ [`hello/${file}`]: handler('another') })
  await hasty.gateway.reload()
  const refused = await hasty.gateway.inject('/hello')
  t.match(refused, { status: 503, headers: { 'retry-after': '2' } })
  t.same(refused.json(), { error: `building ${runtime} function hello` })
  await hasty.gateway.close()
  tree.write({ [`hello/${file}`]: handler('edited') })

  const second = await open({ production: true })
  t.teardown(() => second.gateway.close())
  answer = await send(second.gateway)
  t.match(answer, { status: 200, text: 'edited' })
  t.notOk(second.isBuilt(), 'a restart finds the program')
}

/** Command lines of the processes that a gateway of this process started, their parts apart by spaces. */
function listCommands(): string[] {
  return listProcesses().map(pid => commandOf(pid).split('\0').join(' ').trim())
}

/**
 * First calls of functions that are built go to programs that were started with the connection to their gateway, each time one waited for them.
 * @param handler - source of a handler that answers with the text
 */
export async function checkHandedConnections(
  t: Test,
  runtime: Compiled,
  handler: (text: string) => string,
): Promise<void> {
  const file = runtime === 'go' ? 'handler.go' : 'handler.rs'
  const names = ['one', 'two', 'three']
  const tree = makeTree(Object.fromEntries(names.map(name => [`${name}/${file}`, handler(name)])))
  t.teardown(() => tree.cleanup())
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: [runtime],
    env: { ...process.env, ...shareCrates() },
    depsWaitMs: BUILD_WAIT_MS,
  })
  const built = new Set<string>()
  gateway.on('log', ({ message }) => {
    const name = /^built \w+\/(\w+)@default in /.exec(message)?.[1]
    if (name !== undefined) built.add(name)
  })
  t.teardown(() => gateway.close())
  await until(() => built.size === names.length, BUILD_WAIT_MS)
  const programs = () => listCommands().filter(command => command.startsWith(`${tree.root}/`))
  const folders = () => programs().map(command => command.slice(tree.root.length + 1).split('/')[0]!)
  t.strictSame(programs(), [], 'a program that nobody called does not run')
  for (const [at, name] of names.entries()) {
    // A shell that waits has the connection already. The shell around a program names the same command, and stays.
    await until(() => listCommands().some(command => /^\/bin\/sh -c echo warm .*<&4/.test(command)), BUSY_WAIT_MS)
    const { status, text } = await gateway.inject(`/${name}`)
    t.match({ status, text: text() }, { status: 200, text: name })
    t.strictSame(folders().sort(), names.slice(0, at + 1).sort(), 'one process for each function that was called')
  }
  const addresses = programs().map(command => / --socket (\S+)$/.exec(command)?.[1])
  t.strictSame(
    addresses,
    names.map(() => 'fd:4'),
    'none of them listens: each has the connection that waited',
  )
}

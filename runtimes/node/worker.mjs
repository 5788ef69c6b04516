/**
 * Worker: one process that serves one function version over a socket of its own. Started ahead as a spare, it learns its
 * function from the `start` frame. Pages: runtime/daemon, runtime/wire-protocol.
 *
 *   node worker.mjs --socket <path | tcp://host:port> [--typescript]
 *   tells the uri it listens on in one line on descriptor 3
 */

import { executionAsyncResource } from 'node:async_hooks'
import { mkdirSync, statSync, writeSync } from 'node:fs'
import { connect, createServer, Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { toInvoke } from './adapters.mjs'
import { CallOutput, captureOutput, currentCall, takeOutput } from './capture.mjs'
import { ContractError, toReply } from './envelope.mjs'
import { FnEvent } from './event.mjs'
import { toFailure } from './failure.mjs'
import { loadModule, stopCompiler, warmUpCompiler } from './loader.mjs'
import { sendLarge, sendStream } from './stream.mjs'
import {
  encodeFrame,
  FrameReader,
  FrameWriter,
  KIND,
  MAX_FRAME_BYTES,
  MAX_REPLY_BODY_BYTES,
  PROTOCOL_VERSION,
  ProtocolError,
  parseHeader,
} from './wire.mjs'

const WARM_UP_CALLS = 3
/** Milliseconds between looks at a gateway that sends nothing more. */
const PROBE_INTERVAL_MS = 50
/** A greeting is small; a peer that sends more is none, bytes. */
const MAX_GREETING_BYTES = 1024
// Captured before user code can patch them.
const { parse, stringify } = JSON
const exitNow = /** @type {any} */ (process).reallyExit.bind(process)
const exitProperly = process.exit.bind(process)
const runInCall = currentCall.run.bind(currentCall)
const soon = setImmediate

/**
 * One tick's object that is never let go: when a collection finds none alive the engine forgets how to build them fast.
 * @type {object | null}
 */
export let keptTick = null
process.nextTick(() => {
  keptTick = executionAsyncResource()
})

/** @type {Map<number, Call>} */
const calls = new Map()
const outside = new CallOutput()
/** Promises that outlive their calls; the worker ends in good order only when they are settled. */
let backgroundCount = 0
let closing = false
/** @type {import('node:net').Socket | null} */
let connection = null
/** Of that connection. @type {FrameReader | null} */
let reader = null
/** @type {FrameWriter} */
let writer = new FrameWriter(() => {})
/** @type {import('./event.mjs').FunctionStart | null} */
let fn = null
/** @type {import('./adapters.mjs').Invoke | null} */
let invoke = null
/** Calls that came before the function was loaded, in order. @type {Map<number, () => void>} */
const waiting = new Map()
/** A function that is loaded before the gateway asks for it, by the text of its `start`. */
const early = {
  header: '',
  /** @type {ReturnType<typeof load> | null} */
  module: null,
}

/** One call from its frame to its answer. */
export class Call extends CallOutput {
  /** @type {number} */
  id
  /** Nobody waits for the answer any more. */
  canceled = false
  startedAt = performance.now()
  /** @type {import('./stream.mjs').Window | null} */
  window = null
  /** @type {(() => unknown) | null} */
  stopStream = null
  /** @type {AbortController | null} */
  controller = null

  /** @param {number} id */
  constructor(id) {
    super()
    this.id = id
  }

  get signal() {
    if (this.controller === null) {
      this.controller = new AbortController()
      if (this.canceled) this.controller.abort(new Error('nobody waits for the answer any more'))
    }
    return this.controller.signal
  }

  /**
   * @param {number} kind
   * @param {string} header
   * @param {Uint8Array | null} [body]
   */
  send(kind, header, body = null) {
    if (!this.over) writer.add(kind, this.id, header, body)
  }

  /** The last frame of the call; output captured so far goes out before it. @type {Call['send']} */
  finish(kind, header, body = null) {
    if (this.over) return
    sendOutput(this)
    this.end()
    calls.delete(this.id)
    writer.add(kind, this.id, header, body)
    endWhenDone()
  }

  /**
   * @param {unknown} error
   * @param {boolean} [ends] - the worker ends with this call
   */
  fail(error, ends = false) {
    if (this.over) return
    if (this.canceled) {
      this.finish(KIND.end, '{"canceled":true}')
      return
    }
    const failure = toFailure(error instanceof ContractError ? 'contract' : 'exception', error)
    this.finish(KIND.error, stringify(ends ? { ...failure, ends } : failure))
  }

  cancel() {
    if (this.canceled || this.over) return
    this.canceled = true
    this.controller?.abort(new Error('nobody waits for the answer any more'))
    this.window?.wake()
    if (this.stopStream === null) return
    // A stream that can be stopped is over as soon as its own clean-up is.
    const stop = async () => this.stopStream?.()
    stop().then(
      () => this.finish(KIND.end, '{"canceled":true}'),
      () => this.finish(KIND.end, '{"canceled":true}'),
    )
  }

  /** @param {Promise<unknown>} settled - never rejects */
  background(settled) {
    backgroundCount += 1
    settled.then(() => {
      backgroundCount -= 1
      endWhenDone()
    })
  }
}

/** @param {CallOutput} output */
function sendOutput(output) {
  // Kept for the gateway, which is not here yet.
  if (connection === null) return
  if (output.stdout === '' && output.stderr === '') return
  const id = output instanceof Call ? output.id : 0
  takeOutput(output, id === 0, (stream, text) => writer.add(KIND.log, id, `{"stream":"${stream}"}`, Buffer.from(text)))
}

/**
 * @param {number} id
 * @param {string} header
 * @param {Buffer} body
 */
function runCall(id, header, body) {
  const call = new Call(id)
  calls.set(id, call)
  let result
  try {
    const event = new FnEvent(/** @type {any} */ (fn), parse(header), body, call)
    result = runInCall(call, /** @type {any} */ (invoke), event, call)
    if (typeof result === 'object' && result !== null && typeof result.then === 'function') {
      result.then(
        (/** @type {unknown} */ value) => answer(call, value),
        (/** @type {unknown} */ error) => call.fail(error),
      )
      return
    }
  } catch (error) {
    call.fail(error)
    return
  }
  answer(call, result)
}

/** @param {Call} call @param {unknown} value */
function answer(call, value) {
  if (call.over) return
  if (call.canceled) {
    call.finish(KIND.end, '{"canceled":true}')
    return
  }
  try {
    const reply = toReply(value)
    if (reply.stream !== null) runInCall(call, sendStream, call, reply).catch(error => call.fail(error))
    else if (reply.body !== null && reply.body.length > MAX_REPLY_BODY_BYTES) sendLarge(call, reply.fields, reply.body)
    else call.finish(KIND.reply, `{${reply.fields}}`, reply.body)
  } catch (error) {
    call.fail(error)
  }
}

/**
 * @param {number} kind
 * @param {number} id
 * @param {string} header
 * @param {Buffer} body
 */
function onFrame(kind, id, header, body) {
  switch (kind) {
    case KIND.call:
      if (invoke !== null) runCall(id, header, body)
      else waiting.set(id, () => runCall(id, header, body))
      return
    case KIND.cancel:
      if (waiting.delete(id)) writer.add(KIND.end, id, '{"canceled":true}')
      else calls.get(id)?.cancel()
      return
    case KIND.more:
      calls.get(id)?.window?.grant(Number(parseHeader(header).bytes) || 0)
      return
    case KIND.ping:
      writer.add(KIND.pong, id, '')
      return
    case KIND.start:
      if (fn !== null || (early.module !== null && early.header !== header))
        throw new ProtocolError('a worker serves one function')
      start(header)
      return
    default:
  }
}

/**
 * Prepares the process for a function and loads its module.
 * @param {import('./event.mjs').FunctionStart} started
 */
async function load(started) {
  Object.assign(process.env, started.env)
  if (started.production) process.env.NODE_ENV ??= 'production'
  // Relative paths of a handler mean its own folder.
  process.chdir(started.dir)
  delete process.env.PWD
  return loadModule(started, cacheDir)
}

/**
 * The daemon knows the function before the gateway has connected: it is loaded meanwhile.
 * @param {string} header - text of the `start` that will follow
 */
function loadEarly(header) {
  if (fn !== null || early.module !== null) return
  early.header = header
  early.module = load(/** @type {any} */ (parseHeader(header)))
  // Told when the gateway asks.
  early.module.catch(() => {})
}

/** @param {string} header - of the `start` frame */
async function start(header) {
  const started = /** @type {import('./event.mjs').FunctionStart} */ (/** @type {unknown} */ (parseHeader(header)))
  fn = started
  if (reader !== null) reader.maxFrameBytes += Number(started.context?.max_body_bytes) || 0
  sendOutput(outside)
  try {
    const { exports, files } = await (early.module ?? load(started))
    invoke = toInvoke(started, exports)
    stopCompiler()
    writer.add(KIND.ready, 0, stringify({ max_inflight: 0, files }))
    // Before any handler runs: one that never returns must not keep the gateway waiting for this.
    writer.flush()
  } catch (error) {
    sendOutput(outside)
    writer.add(KIND.error, 0, stringify(toFailure('load', error)))
    finishConnection()
    return
  }
  for (const [id, run] of waiting) {
    waiting.delete(id)
    run()
  }
}

/**
 * @param {import('node:net').Socket} socket
 * @param {string} message
 */
function refuse(socket, message) {
  writer.flush()
  socket.end(encodeFrame(KIND.error, 0, stringify({ code: 'protocol', message })))
  socket.destroySoon()
}

function finishConnection() {
  writer.flush()
  connection?.end(() => exitNow(1))
}

/** Says what is still to be said and hangs up at once: the gateway must not send another call to a process that ends. */
function leave() {
  if (connection === null) takeOutput(outside, true, (stream, text) => writeSync(stream === 'stdout' ? 1 : 2, text))
  else sendOutput(outside)
  writer.flush()
  connection?.destroy()
}

/** The gateway sends nothing more: what runs is finished, then the process ends. */
function endWhenDone() {
  if (!closing || calls.size > 0 || backgroundCount > 0) return
  sendOutput(outside)
  writer.flush()
  connection?.end(() => exitNow(0))
}

/**
 * The first peer that greets is the gateway; nobody else gets in after it, and who does not greet takes nothing away.
 * @param {import('node:net').Socket} socket
 */
function meet(socket) {
  const own = new FrameReader((kind, id, header, body) => {
    if (connection === socket) onFrame(kind, id, header, body)
    else if (connection !== null || kind !== KIND.hello || parseHeader(header).role !== 'worker') {
      throw new ProtocolError('this socket serves one gateway, which begins with hello in the role worker')
    } else if (body[0] !== PROTOCOL_VERSION) {
      throw new ProtocolError(`protocol version ${body[0]} is not spoken here`)
    } else serve(socket, own)
  })
  own.maxFrameBytes = MAX_GREETING_BYTES
  socket.on('error', () => {})
  socket.on('data', chunk => {
    try {
      own.push(chunk)
    } catch (error) {
      refuse(socket, /** @type {Error} */ (error).message)
    }
  })
  socket.on('end', () => {
    if (connection !== socket) {
      socket.end()
      return
    }
    closing = true
    endWhenDone()
    // A gateway that closed for good cannot be told from one that still listens, unless by writing to it.
    setInterval(() => writer.add(KIND.pong, 0, ''), PROBE_INTERVAL_MS)
  })
  socket.on('close', () => {
    if (connection === socket) exitNow(0)
  })
}

/**
 * @param {import('node:net').Socket} socket
 * @param {FrameReader} own - reader of the socket
 */
function serve(socket, own) {
  server.close()
  connection = socket
  reader = own
  reader.maxFrameBytes = MAX_FRAME_BYTES
  writer = new FrameWriter(bytes => {
    if (!socket.destroyed) socket.write(bytes)
  })
}

/**
 * A private folder for compiled code, null when there is none.
 * @param {string} folder
 */
function privateFolder(folder) {
  const { mode, uid } = statSync(folder)
  if ((mode & 0o077) !== 0 || uid !== process.getuid?.()) return null
  const cache = join(folder, 'cache')
  mkdirSync(cache, { recursive: true, mode: 0o700 })
  return cache
}

/** Walks the way of a first call once, so that the real one finds everything loaded and compiled. */
async function warmUp() {
  if (process.argv.includes('--typescript')) warmUpCompiler(cacheDir)
  const dir = fileURLToPath(new URL('./warm-up', import.meta.url))
  for (const entry of ['common.cjs', 'detected.js']) {
    fn = /** @type {any} */ ({ name: '', env: {}, context: {}, handler: null, root: dir, dir, entry })
    await loadModule(/** @type {any} */ (fn), cacheDir)
  }
  invoke = async () => ({ status: 200, headers: { a: 'b' }, body: { ready: true } })
  for (let id = 1; id <= WARM_UP_CALLS; id++) runCall(id, '{"raw_path":"/","headers":{}}', Buffer.from('x'))
  await null
  fn = null
  invoke = null
  await greetSelf()
}

/** Connects as a gateway would and is refused. */
function greetSelf() {
  const bound = /** @type {string | import('node:net').AddressInfo} */ (server.address())
  const socket = connect(typeof bound === 'string' ? { path: bound } : { host: bound.address, port: bound.port })
  socket.on('error', () => {})
  socket.resume()
  socket.end(encodeFrame(KIND.hello, 0, '{"role":"practice"}', Buffer.from([PROTOCOL_VERSION])))
  return new Promise(resolve => socket.once('close', resolve))
}

const address = process.argv[process.argv.indexOf('--socket') + 1] ?? ''
const tcp = address.startsWith('tcp://') ? new URL(address) : null
const cacheDir = tcp === null ? privateFolder(dirname(address)) : privateFolder(tmpdir())

captureOutput(outside, output => soon(sendOutput, output))

process.on('uncaughtException', error => {
  const call = currentCall.getStore()
  const { message, stack } = toFailure('exception', error)
  process.stderr.write(`uncaught exception: ${stack || message}\n`)
  if (call instanceof Call) call.fail(error, true)
  // Its state is unknown from here on.
  leave()
  exitNow(1)
})
process.on('unhandledRejection', reason => {
  const { message, stack } = toFailure('exception', reason)
  process.stderr.write(`unhandled rejection: ${stack || message}\n`)
})
process.exit = /** @type {typeof process.exit} */ (
  code => {
    const call = currentCall.getStore()
    if (call instanceof Call)
      call.fail(new Error(`handler ended the process with exit code ${code ?? process.exitCode ?? 0}`), true)
    leave()
    return exitProperly(code)
  }
)

const server = createServer({ allowHalfOpen: true, noDelay: true }, meet)
server.on('error', error => {
  process.stderr.write(`worker cannot listen on ${address}: ${error.message}\n`)
  writer.flush()
  exitNow(1)
})
server.listen(
  tcp === null ? { path: address } : { host: tcp.hostname.replace(/^\[|\]$/g, ''), port: Number(tcp.port) },
  () => {
    const bound = server.address()
    const uri = typeof bound === 'object' && bound !== null ? `tcp://${tcp?.hostname}:${bound.port}` : `unix:${address}`
    // The daemon holds the other end of this pipe: where nothing else tells a worker of the daemon's end, this does.
    const lifeline = new Socket({ fd: 3, readable: true, writable: true })
    lifeline.on('error', () => {})
    lifeline.on('close', () => exitNow(0))
    let told = ''
    lifeline.on('data', bytes => {
      told += bytes
      const end = told.indexOf('\n')
      if (end === -1) return
      loadEarly(told.slice(0, end))
      told = told.slice(end + 1)
    })
    warmUp().then(() => lifeline.write(`${uri}\n`))
  },
)

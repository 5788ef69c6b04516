/**
 * Worker: one process that serves one function version over a socket of its own. Started ahead as a spare, it is told later
 * where to listen, and learns its function from the `start` frame. Pages: runtimes/node, runtime/wire-protocol.
 *
 *   node worker.mjs --practise <address> [--typescript]    tells `warm` on descriptor 3; is told there where to listen
 *   node worker.mjs --socket <address> [--typescript]      listens at once
 *   An address is a path or tcp://host:port. The uri it listens on is told in one line on descriptor 3.
 */

import { executionAsyncResource } from 'node:async_hooks'
import { mkdirSync, statSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { becomeUser } from '../daemon/user.mjs'
import { toInvoke } from './adapters.mjs'
import { Call } from './call.mjs'
import { CallOutput, captureOutput, currentCall, takeOutput } from './capture.mjs'
import { ContractError, toReply } from './envelope.mjs'
import { FnEvent, LONG_BODY_BYTES } from './event.mjs'
import { toFailure } from './failure.mjs'
import { FrameMemory } from './frame-memory.mjs'
import { Lifeline } from './lifeline.mjs'
import { Link } from './link.mjs'
import { Loader } from './loader.mjs'
import { exitNow, haveChildrenEnded, watchProcess } from './process.mjs'
import { sendLarge, sendStream } from './stream.mjs'
import {
  COPIED_BODY_BYTES,
  cutFiles,
  KIND,
  MAX_REPLY_BODY_BYTES,
  MAX_REPLY_FIELDS_BYTES,
  ProtocolError,
  parseHeader,
} from './wire.mjs'

const WARM_UP_CALLS = 3
// Node's ten may all be frames of its module loader and of the compiler, so that none of the user's would be left to show.
const MAX_STACK_FRAMES = 30
Error.stackTraceLimit = MAX_STACK_FRAMES
// Captured before user code can patch them.
const { parse, stringify } = JSON
const { byteLength } = Buffer
const runInCall = currentCall.run.bind(currentCall)
const soon = setImmediate

/** @typedef {import('./event.mjs').FunctionStart} FunctionStart */

/** The worker of this process. */
class Worker {
  /**
   * One tick's object that is never let go: when a collection finds none alive the engine forgets how to build them fast.
   * @type {object | null}
   */
  keptTick = null
  #memory = new FrameMemory()
  #link = new Link(
    {
      onFrame: (kind, id, header, body, isOwn) => this.#handleFrame(kind, id, header, body, isOwn),
      onLastFrame: () => {
        this.#closing = true
        this.#endWhenDone()
      },
      onClose: () => exitNow(0),
    },
    this.#memory,
  )
  /** What calls need of it. @type {import('./call.mjs').CallHost} */
  #host = {
    send: (kind, id, header, body) => this.#link.send(kind, id, header, body),
    keep: bytes => (bytes.length > COPIED_BODY_BYTES ? this.#memory.copy(bytes) : bytes),
    reclaim: bytes => this.#memory.giveBack(bytes),
    sendOutput: call => this.#sendOutput(call, call.id),
    handleEnd: call => {
      this.#calls.delete(call.id)
      this.#tellSources()
      this.#endWhenDone()
    },
    addBackground: settled => {
      this.#background += 1
      settled.then(() => {
        this.#background -= 1
        this.#endWhenDone()
      })
    },
  }
  #loader
  /** Somebody wants to know of source files that are loaded later. */
  #isWatched = false
  #isTelling = false
  /** @type {Map<number, Call>} */
  #calls = new Map()
  /** Calls that came before the function was loaded, in order. @type {Map<number, () => void>} */
  #waiting = new Map()
  #outside = new CallOutput()
  /** Promises that outlive their calls; the worker ends in good order only when they are settled. */
  #background = 0
  #closing = false
  /** @type {FunctionStart | null} */
  #fn = null
  /** @type {import('./adapters.mjs').Invoke | null} */
  #invoke = null
  /** A function that is loaded before the gateway asks for it, by the text of its `start`. */
  #early = {
    header: '',
    /** @type {Promise<any> | null} */
    module: null,
  }

  /** @param {string | null} cacheDir - private folder for compiled code; null when there is none */
  constructor(cacheDir) {
    this.#loader = new Loader(cacheDir)
    process.nextTick(() => {
      this.keptTick = executionAsyncResource()
    })
    captureOutput(this.#outside, output => soon(() => this.#sendOutput(output, output instanceof Call ? output.id : 0)))
    watchProcess(() => this.#leave())
  }

  /**
   * @param {string} address
   * @returns {Promise<string>} the uri it listens on
   */
  async listen(address) {
    try {
      return await this.#link.listen(address)
    } catch (error) {
      writeSync(2, `worker cannot listen on ${address}: ${/** @type {Error} */ (error).message}\n`)
      return exitNow(1)
    }
  }

  /**
   * Gives up root. The compiler's helper process does what it is told: it must not go on as root for what follows.
   * @param {import('../daemon/user.mjs').User} user
   */
  async becomeUser(user) {
    this.#loader.stopCompiler()
    if (await haveChildrenEnded()) becomeUser(user)
    else exitNow(1)
  }

  /**
   * The daemon knows the function before the gateway has connected: it is loaded meanwhile.
   * @param {string} header - text of the `start` that will follow
   */
  loadEarly(header) {
    if (this.#fn !== null || this.#early.module !== null) return
    this.#early.header = header
    this.#early.module = this.#load(toStart(header))
    // Told when the gateway asks.
    this.#early.module.catch(() => {})
  }

  /**
   * Walks the way of a first call once, so that the real one finds everything loaded and compiled.
   * @param {string} address - to listen on meanwhile
   * @param {boolean} isTypeScript
   */
  async warmUp(address, isTypeScript) {
    if (isTypeScript) this.#loader.warmUpCompiler()
    const dir = fileURLToPath(new URL('./warm-up', import.meta.url))
    for (const entry of ['common.cjs', 'detected.js']) {
      const callable = { names: ['handler', 'default'] }
      this.#fn = /** @type {any} */ ({ name: '', env: {}, context: {}, callable, root: dir, dir, entry })
      await this.#loader.load(/** @type {any} */ (this.#fn))
      stringify({ files: this.#listSources() })
    }
    this.#invoke = async () => ({ status: 200, headers: { a: 'b' }, body: { ready: true } })
    for (let id = 1; id <= WARM_UP_CALLS; id++) this.#runCall(id, '{"raw_path":"/","headers":{}}', Buffer.from('x'))
    await null
    this.#fn = null
    this.#invoke = null
    await this.#link.practise(address)
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {string} header
   * @param {Buffer} body
   * @param {boolean} isOwn - the body's memory is nobody else's
   */
  #handleFrame(kind, id, header, body, isOwn) {
    switch (kind) {
      case KIND.call:
        // Of a short body the text is made at once; a long one is kept beyond its frame.
        this.#takeCall(id, header, isOwn || body.length < LONG_BODY_BYTES ? body : this.#memory.copy(body))
        return
      case KIND.cancel:
        if (this.#waiting.delete(id)) this.#link.send(KIND.end, id, '{"canceled":true}')
        else this.#calls.get(id)?.cancel()
        return
      case KIND.more:
        this.#calls.get(id)?.window?.grant(Number(parseHeader(header).bytes) || 0)
        return
      case KIND.ping:
        this.#link.send(KIND.pong, id, '')
        return
      case KIND.start:
        if (this.#fn !== null || (this.#early.module !== null && this.#early.header !== header))
          throw new ProtocolError('a worker serves one function')
        this.#start(toStart(header))
        return
      default:
    }
  }

  /**
   * @param {number} id
   * @param {string} header
   * @param {Buffer} body - a short one is a view
   */
  #takeCall(id, header, body) {
    if (this.#invoke !== null) {
      this.#runCall(id, header, body)
      return
    }
    const kept = Buffer.from(body)
    this.#waiting.set(id, () => this.#runCall(id, header, kept))
  }

  /** @param {FunctionStart} fn */
  async #start(fn) {
    this.#fn = fn
    this.#link.allowBodies(Number(fn.context?.max_body_bytes) || 0)
    this.#sendOutput(this.#outside, 0)
    if (fn.debug !== undefined) await this.#openDebugger(fn.debug.waits)
    try {
      const exports = await (this.#early.module ?? this.#load(fn))
      this.#invoke = toInvoke(fn, exports)
      this.#link.send(KIND.ready, 0, stringify({ max_inflight: 0, files: this.#listSources() }))
      this.#isWatched = !fn.production
      // Before any handler runs: one that never returns must not keep the gateway waiting for this.
      this.#link.flush()
    } catch (error) {
      this.#sendOutput(this.#outside, 0)
      // An edit of any of them may mend it.
      if (!fn.production) this.#link.send(KIND.loaded, 0, stringify({ files: this.#listSources() }))
      this.#link.send(KIND.error, 0, stringify(toFailure('load', error)))
      this.#link.end(() => exitNow(1))
      return
    }
    for (const [id, run] of this.#waiting) {
      this.#waiting.delete(id)
      run()
    }
    // Behind the answers: to end a process takes as long as a first call.
    soon(() => this.#loader.stopCompiler())
  }

  /** @param {boolean} waits - until one is attached */
  async #openDebugger(waits) {
    const { openDebugger, waitForDebugger } = await import('./debugger.mjs')
    this.#link.send(KIND.loaded, 0, stringify({ files: [], debugger: { ...openDebugger(), waits } }))
    // While code is stopped this process sends nothing.
    this.#link.flush()
    if (waits) waitForDebugger()
  }

  /**
   * Prepares the process for a function and loads its module.
   * @param {FunctionStart} fn
   */
  async #load(fn) {
    Object.assign(process.env, fn.env)
    if (fn.production) process.env.NODE_ENV ??= 'production'
    // Relative paths of a handler mean its own folder.
    process.chdir(fn.dir)
    delete process.env.PWD
    return this.#loader.load(fn, () => this.#tellSources())
  }

  /**
   * @param {number} id
   * @param {string} header
   * @param {Buffer} body
   */
  #runCall(id, header, body) {
    const call = new Call(id, this.#host)
    this.#calls.set(id, call)
    let result
    try {
      const event = new FnEvent(/** @type {any} */ (this.#fn), parse(header), body, call)
      result = runInCall(call, /** @type {any} */ (this.#invoke), event, call)
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

  /**
   * @param {CallOutput} output
   * @param {number} id - of its call, 0 for none
   */
  #sendOutput(output, id) {
    // Kept for the gateway while it is not here yet.
    if (!this.#link.isConnected) return
    if (output.stdout === '' && output.stderr === '') return
    takeOutput(output, id === 0, (stream, bytes) => this.#link.send(KIND.log, id, `{"stream":"${stream}"}`, bytes))
  }

  #listSources() {
    return cutFiles(this.#loader.sources?.list() ?? [])
  }

  /** In development: tells files that were loaded since, such as by an `import()` of a call. */
  #tellSources() {
    if (!this.#isWatched || this.#isTelling) return
    this.#isTelling = true
    // Imports come in bunches.
    soon(() => {
      this.#isTelling = false
      const files = cutFiles(this.#loader.sources?.takeNew() ?? [])
      if (files.length > 0) this.#link.send(KIND.loaded, 0, stringify({ files }))
    })
  }

  /** Says what is still to be said and hangs up at once: the gateway must not send another call to a process that ends. */
  #leave() {
    if (this.#link.isConnected) this.#sendOutput(this.#outside, 0)
    else takeOutput(this.#outside, true, (stream, bytes) => writeSync(stream === 'stdout' ? 1 : 2, bytes))
    this.#link.destroy()
  }

  /** The gateway sends nothing more: what runs is finished, then the process ends. */
  #endWhenDone() {
    if (!this.#closing || this.#calls.size > 0 || this.#background > 0) return
    this.#sendOutput(this.#outside, 0)
    this.#link.end(() => exitNow(0))
  }
}

/**
 * @param {string} header - of a `start` frame
 * @returns {FunctionStart}
 * @throws {ProtocolError}
 */
function toStart(header) {
  const start = /** @type {any} */ (parseHeader(header))
  if (!Array.isArray(start.callable?.names))
    throw new ProtocolError('start must have callable.names, a list of symbols to look for')
  return start
}

/** @param {Call} call @param {unknown} value */
function answer(call, value) {
  if (call.over) return
  if (call.canceled) {
    call.finishCanceled()
    return
  }
  try {
    const reply = toReply(value, call.given)
    checkHead(reply.fields)
    if (reply.stream !== null) runInCall(call, sendStream, call, reply).catch(error => call.fail(error))
    else if (isLarge(reply.body)) sendLarge(call, reply.fields, reply.body)
    else call.reply(reply)
  } catch (error) {
    call.fail(error)
  }
}

/** True for what one frame does not take. @param {Uint8Array | string | null} body @returns {body is Uint8Array | string} */
function isLarge(body) {
  if (body === null || typeof body === 'object') return body !== null && body.length > MAX_REPLY_BODY_BYTES
  // One UTF-16 unit takes at most three bytes.
  return body.length * 3 > MAX_REPLY_BODY_BYTES && byteLength(body) > MAX_REPLY_BODY_BYTES
}

/**
 * @param {string} fields - of a reply's header
 * @throws {ContractError} when they do not fit into its frame
 */
function checkHead(fields) {
  // One UTF-16 unit takes at most three bytes.
  if (fields.length * 3 <= MAX_REPLY_FIELDS_BYTES) return
  const bytes = byteLength(fields)
  if (bytes > MAX_REPLY_FIELDS_BYTES) throw new ContractError(`status and headers take ${bytes} bytes, above 512 KiB`)
}

/**
 * The folder for compiled code; null when the folder it would lie in is open to others.
 * @param {string} address
 */
function makeCacheDir(address) {
  const folder = address.startsWith('tcp://') ? tmpdir() : dirname(address)
  const { mode, uid } = statSync(folder)
  if ((mode & 0o077) !== 0 || uid !== process.getuid?.()) return null
  const cache = join(folder, 'cache')
  mkdirSync(cache, { recursive: true, mode: 0o700 })
  return cache
}

async function main() {
  const { values } = parseArgs({
    options: { practise: { type: 'string' }, socket: { type: 'string' }, typescript: { type: 'boolean' } },
  })
  const address = values.practise ?? values.socket ?? ''
  const lifeline = new Lifeline(() => exitNow(0))
  const worker = new Worker(makeCacheDir(address))
  await worker.warmUp(address, values.typescript === true)
  let told = { socket: address, start: null, user: null }
  if (values.practise !== undefined) {
    lifeline.tell('warm')
    told = parse(await lifeline.hear())
  }
  const uri = await worker.listen(told.socket)
  if (told.user !== null) await worker.becomeUser(told.user)
  lifeline.tell(uri)
  if (told.start !== null) worker.loadEarly(told.start)
}

main()

/** One Lua function: its state, its handler, and what becomes of a call. Page: runtime/lua-runtime. */

import { createOutput } from './capture.mjs'
import { ContractError, Envelopes } from './envelope.mjs'
import { createEvents } from './event.mjs'
import { Failures } from './failure.mjs'
import { SourceFiles } from './files.mjs'
import { LimitError } from './guard.mjs'
import { Loader } from './loader.mjs'
import { createState } from './sandbox.mjs'
import { push, topOf } from './stack.mjs'

/**
 * Everything a function needs that does not depend on which function it is: a spare thread has it ready.
 * @typedef {ReturnType<typeof prepare>} Prepared
 */

/**
 * @param {object} options
 * @param {any} options.vm - from `loadVm`
 * @param {import('./guard.mjs').Guard} options.guard
 * @param {(kind: string, id: number, text: string, body?: string | Uint8Array, isOwn?: boolean) => void} options.send
 */
export function prepare({ vm, guard, send }) {
  const output = createOutput((stream, id, text) => send(stream, id, text))
  /** @type {any} */
  const host = { files: null, env: {}, write: output.write }
  return { guard, send, output, host, state: createState({ vm, guard, host }) }
}

export class LuaFunction {
  #guard
  #send
  #output
  #state
  #files
  #failures
  #handler
  #toArguments
  #envelopes
  #timeoutMs
  #isWatched
  /** Id of the call that runs. */
  #current = 0

  /**
   * Loads the function.
   * @param {Prepared} prepared - used up by it
   * @param {import('./event.mjs').FunctionStart} fn
   * @param {number} graceMs - the gateway ends a late call; this much later the thread does it itself
   * @throws {import('./loader.mjs').LoadError}
   */
  constructor({ guard, send, output, host, state }, fn, graceMs) {
    this.#guard = guard
    this.#send = send
    this.#output = output
    this.#state = state
    this.#files = new SourceFiles(fn.root, fn.dir, fn.reader ?? null)
    host.files = this.#files
    host.env = fn.env
    this.#failures = new Failures(state, fn.root, fn.production !== true)
    try {
      this.#handler = new Loader(state, this.#failures, this.#files, fn).load()
    } finally {
      output.flush(0)
    }
    this.#toArguments = createEvents(state.L, state.values, fn)
    this.#envelopes = new Envelopes(state)
    this.#timeoutMs = Number(fn.context.timeout_ms) + graceMs
    this.#isWatched = fn.production !== true
    guard.sendOutput = () => output.flush(this.#current, false)
  }

  /** True when a call has read source files, where somebody edits them. */
  get hasNewFiles() {
    return this.#isWatched && this.#files.hasNew
  }

  /** Full real paths of source files that were not given before. */
  takeFiles() {
    return this.#files.takeNew()
  }

  /**
   * Runs a call and sends what comes of it; never throws.
   * @param {number} id
   * @param {string} header - JSON text
   * @param {Uint8Array | null} body
   */
  serve(id, header, body) {
    try {
      this.#run(id, header, body)
    } catch (error) {
      const { message, hint } = /** @type {{ message: string, hint?: string }} */ (error)
      const code = error instanceof ContractError ? 'contract' : 'exception'
      this.#send('error', id, JSON.stringify({ code, message, hint }))
    }
    this.#state.vm.lua.lua_settop(this.#state.L, 0)
  }

  /** @param {number} id @param {string} header @param {Uint8Array | null} body */
  #run(id, header, body) {
    const { L, values } = this.#state
    const guard = this.#guard
    this.#current = id
    guard.begin(performance.now() + this.#timeoutMs)
    const { event, params, given } = this.#toArguments(header, body)
    push(L, values.copy(this.#handler))
    push(L, values.ofTable(event))
    push(L, values.ofTable(params))
    const failure = this.#failures.run(2, 'exception')
    this.#output.flush(id)
    if (failure !== null) {
      if (performance.now() > guard.deadline) failure.code = 'timeout'
      this.#fail(id, failure)
      return
    }
    const reply = this.#envelopes.toReply(topOf(L), given)
    // The handler ran out of memory and caught that with `pcall`: the thread ends all the same.
    if (guard.condemned !== '') throw new LimitError(guard.condemned)
    this.#send('reply', id, reply.head, reply.body, reply.body === given.bytes)
  }

  /** @param {number} id @param {import('./failure.mjs').Failure} failure */
  #fail(id, failure) {
    const { condemned } = this.#guard
    const fields = condemned === '' ? failure : { ...failure, message: condemned, ends: true }
    this.#send('error', id, JSON.stringify(fields))
  }
}

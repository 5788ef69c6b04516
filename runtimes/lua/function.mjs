/** One Lua function: its state, its handler, and what becomes of a call. Page: runtime/lua-runtime. */

import { ContractError, createEnvelopes } from './envelope.mjs'
import { createEvents } from './event.mjs'
import { SourceFiles } from './files.mjs'
import { LimitError } from './guard.mjs'
import { createLoader } from './loader.mjs'
import { createOutput } from './capture.mjs'
import { createState } from './sandbox.mjs'

/**
 * @typedef {object} LuaFunction
 * @property {(id: number, header: string, body: Uint8Array | null) => void} serve - runs a call and sends what comes of it;
 *   never throws
 * @property {() => boolean} hasNewFiles - true when a call has read source files, where somebody edits them
 * @property {() => string[]} takeFiles - full real paths of source files that were not given before
 */

/**
 * Everything a function needs that does not depend on which function it is: a spare thread has it ready.
 * @typedef {ReturnType<typeof prepare>} Prepared
 */

/**
 * @param {object} options
 * @param {any} options.vm - from `loadVm`
 * @param {import('./guard.mjs').Guard} options.guard
 * @param {(kind: string, id: number, text: string, body?: string | Uint8Array) => void} options.send
 */
export function prepare({ vm, guard, send }) {
  const output = createOutput((stream, id, text) => send(stream, id, text))
  /** @type {any} */
  const host = { files: null, env: {}, write: output.write }
  return { guard, send, output, host, state: createState({ vm, guard, host }) }
}

/**
 * Loads a function.
 * @param {Prepared} prepared - used up by it
 * @param {import('./event.mjs').FunctionStart} fn
 * @param {number} graceMs - the gateway ends a late call; this much later the thread does it itself
 * @returns {LuaFunction}
 * @throws {import('./loader.mjs').LoadError}
 */
export function createFunction({ guard, send, output, host, state }, fn, graceMs) {
  const files = new SourceFiles(fn.root, fn.dir)
  host.files = files
  host.env = fn.env
  const loader = createLoader(state, files, fn)
  /** @type {any} */
  let handler
  try {
    handler = loader.load()
  } finally {
    output.flush(0)
  }
  const toArguments = createEvents(state.L, state.values, fn)
  const toReply = createEnvelopes(state)
  const timeoutMs = Number(fn.context.timeout_ms) + graceMs
  const { L } = state
  const { TValue, lua } = state.vm

  /** @param {number} id @param {import('./loader.mjs').Failure} failure */
  const fail = (id, failure) => {
    const isLast = guard.condemned !== ''
    send('error', id, JSON.stringify(isLast ? { ...failure, message: guard.condemned, ends: true } : failure))
  }

  let current = 0
  guard.sendOutput = () => output.flush(current, false)

  /** @type {LuaFunction['serve']} */
  const run = (id, header, body) => {
    current = id
    guard.begin(performance.now() + timeoutMs)
    const { event, params } = toArguments(header, body)
    // Each slot its own TValue: what stands on the stack is written over.
    L.stack[L.top++] = new TValue(handler.type, handler.value)
    L.stack[L.top++] = state.values.ofTable(event)
    L.stack[L.top++] = state.values.ofTable(params)
    const failure = loader.run(2, 'exception')
    output.flush(id)
    if (failure !== null) {
      if (performance.now() > guard.deadline) failure.code = 'timeout'
      fail(id, failure)
      return
    }
    const reply = toReply(L.stack[L.top - 1])
    // Out of memory, but in a pcall: the thread ends all the same.
    if (guard.condemned !== '') throw new LimitError(guard.condemned)
    send('reply', id, reply.head, reply.body)
  }

  /** @type {LuaFunction['serve']} */
  const serve = (id, header, body) => {
    try {
      run(id, header, body)
    } catch (error) {
      const { message, hint } = /** @type {{ message: string, hint?: string }} */ (error)
      send(
        'error',
        id,
        JSON.stringify({ code: error instanceof ContractError ? 'contract' : 'exception', message, hint }),
      )
    }
    lua.lua_settop(L, 0)
  }
  const isWatched = fn.production !== true
  return {
    serve,
    hasNewFiles: () => isWatched && files.hasNew,
    takeFiles: () => files.takeNew(),
  }
}

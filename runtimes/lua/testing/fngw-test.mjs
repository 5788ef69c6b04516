/** The module `fngw_test` of Lua tests, whose requests block the test until the response is there. Page: bin/test. */

import { readFileSync } from 'node:fs'
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads'
import { toBytes, toText } from '../text.mjs'

const NAME = 'fngw_test'
/** Longer than the gateway itself lets a request of a test wait. */
const TIMEOUT_MS = 120_000
const FORMAT_TEXT = toBytes('%s')

/** Sends requests on another thread: Lua cannot wait for events. */
class Requests {
  #flag = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT))
  /** @type {import('node:worker_threads').MessagePort | null} */
  #port = null

  /**
   * @param {string} head - JSON text: `method`, `url`, `headers`
   * @param {Uint8Array | null} body
   * @returns {{ head: string, body: Uint8Array } | { error: string }}
   */
  send(head, body) {
    this.#port ??= this.#start()
    Atomics.store(this.#flag, 0, 0)
    this.#port.postMessage({ head, body })
    if (Atomics.wait(this.#flag, 0, 0, TIMEOUT_MS) === 'timed-out') return { error: 'no response within 120 s' }
    return receiveMessageOnPort(this.#port)?.message
  }

  #start() {
    const { port1, port2 } = new MessageChannel()
    const url = process.env.FNGW_TEST_URL
    const options = { workerData: { url, flag: this.#flag, port: port2 }, transferList: [port2] }
    new Worker(new URL('./request-thread.mjs', import.meta.url), options).unref()
    port1.unref()
    return port1
  }
}

/**
 * @param {any} vm - from `loadVm`
 * @param {import('../guard.mjs').Guard} guard
 * @returns {(state: import('../sandbox.mjs').State) => void} gives a state the module
 */
export function createTestModule({ lua, lauxlib }, guard) {
  const text = readFileSync(new URL(`./${NAME}.lua`, import.meta.url))
  const requests = new Requests()
  /** @param {any} L */
  const send = L => {
    const startedAt = performance.now()
    const reply = requests.send(toText(lauxlib.luaL_checkstring(L, 1)), lua.lua_tostring(L, 2))
    // The gateway limits the time of the function; the limit of the test is for its own code.
    guard.deadline += performance.now() - startedAt
    if ('error' in reply) return lauxlib.luaL_error(L, FORMAT_TEXT, toBytes(reply.error))
    lua.lua_pushstring(L, toBytes(reply.head))
    lua.lua_pushstring(L, Uint8Array.from(reply.body))
    return 2
  }
  return state =>
    state.preload(NAME, (/** @type {any} */ L) => {
      if (!state.compileFile(L, { path: '', name: `${NAME}.lua`, text })) return lua.lua_error(L)
      lua.lua_pushcfunction(L, send)
      lua.lua_call(L, 1, 1)
      return 1
    })
}

/** Protected calls, and Lua errors as the fields of an error. Page: runtime/lua-runtime. */

import { resolve } from 'node:path'
import { bytesOf, heightOf, push, topOf } from './stack.mjs'
import { toText } from './text.mjs'

const MAX_MESSAGE = 16 * 1024
const MAX_STACK_BYTES = 8 * 1024
/** `users/handler.lua:12: text`, as Lua says where. */
const PLACE = /^(?!\[string )([^\n:]+):(\d+): /
/** The first line of a traceback that is in a file. */
const TRACED_PLACE = /\n\t(?!\[string )([^\n:]+\.lua):(\d+): in /
/** Calls of what is left out, and what to do instead. @type {[RegExp, string][]} */
const HINTS = [
  [
    /\(field '(?:exit|execute|remove|rename|tmpname|popen|setlocale)'\)/,
    'files, processes and exits are not open to Lua handlers',
  ],
  [/\(global '(?:ngx|jit|bit|setfenv|getfenv)'\)/, 'handlers run in Lua 5.3, not in LuaJIT'],
  [
    /\(field '(?:open|read|lines|input|output)'\)/,
    'io only writes to the captured output; require, dofile and loadfile read local Lua files',
  ],
  [
    /number has no integer representation/,
    'integers have 32 bits here; larger numbers are floats: format them with %.0f',
  ],
]

/**
 * Fields of an `error` (page runtime/wire-protocol).
 * @typedef {object} Failure
 * @property {string} code
 * @property {string} message
 * @property {string} [file]
 * @property {number} [line]
 * @property {string} [stack]
 * @property {string} [hint]
 */

/**
 * A traceback without the frames of the interpreter's own functions.
 * @param {string} traceback - its title, then one line for each frame, innermost first
 */
function toUsersFrames(traceback) {
  const lines = traceback.split('\n').filter(line => !line.startsWith('\t[C]: '))
  let text = ''
  for (const line of lines) {
    if (Buffer.byteLength(text) + Buffer.byteLength(line) + 1 > MAX_STACK_BYTES) break
    text += `${line}\n`
  }
  return text.trimEnd()
}

/** Calls functions of one state, and describes what they raise. */
export class Failures {
  #vm
  #L
  #values
  #writer
  #root
  /** Traceback of the last error. */
  #stack = ''

  /**
   * @param {import('./sandbox.mjs').State} state
   * @param {string} root - functions root, full path
   */
  constructor({ vm, L, values, writer }, root) {
    this.#vm = vm
    this.#L = L
    this.#values = values
    this.#writer = writer
    this.#root = root
  }

  /**
   * Calls the function below its arguments on the stack.
   * @param {number} count - arguments
   * @param {string} code - of a failure
   * @returns {Failure | null} null with the first result on top of the stack
   */
  run(count, code) {
    const { lua } = this.#vm
    const L = this.#L
    this.#stack = ''
    const base = heightOf(L) - count - 1
    lua.lua_pushcfunction(L, this.#handleMessage)
    lua.lua_insert(L, 1)
    const status = lua.lua_pcall(L, count, 1, 1)
    if (status === lua.LUA_OK) return null
    const failure = this.describe(code, heightOf(L) > base ? topOf(L) : undefined)
    lua.lua_settop(L, 0)
    return failure
  }

  /** @param {string} code @param {any} value - the error's TValue @returns {Failure} */
  describe(code, value) {
    const text = this.#toMessage(value)
    const message = text.length > MAX_MESSAGE ? `${text.slice(0, MAX_MESSAGE)}...` : text
    /** @type {Failure} */
    const failure = { code, message }
    const place = PLACE.exec(message) ?? TRACED_PLACE.exec(this.#stack)
    if (place !== null) {
      failure.file = resolve(this.#root, /** @type {string} */ (place[1]))
      failure.line = Number(place[2])
      // File and line have fields of their own, so the message need not repeat them. That of a load failure keeps them: it is
      // all that some readers see.
      if (code === 'exception' && message.startsWith(place[0])) failure.message = message.slice(place[0].length)
    }
    if (this.#stack !== '') failure.stack = toUsersFrames(this.#stack)
    const hint = HINTS.find(([pattern]) => pattern.test(message))
    if (hint !== undefined) failure.hint = hint[1]
    return failure
  }

  /** Keeps the traceback of an error while its stack still stands. @param {any} L */
  #handleMessage = L => {
    const { lua, lauxlib } = this.#vm
    lauxlib.luaL_traceback(L, L, null, 1)
    this.#stack = toText(lua.lua_tostring(L, -1)).replaceAll('[JS]', '[C]')
    lua.lua_settop(L, 1)
    return 1
  }

  /** An error value as text: its own, its `__tostring`, its field `message` or `error`, or its JSON. @param {any} value */
  #toMessage(value) {
    const { lua } = this.#vm
    const values = this.#values
    if (value === undefined || values.isNil(value)) return 'error(nil)'
    const fromTable = value.type === this.#vm.types.LUA_TTABLE ? this.#ofTable(value) : null
    if (fromTable !== null) return fromTable
    push(this.#L, values.copy(value))
    lua.lua_pushcfunction(this.#L, this.#tostring)
    lua.lua_insert(this.#L, -2)
    const status = lua.lua_pcall(this.#L, 1, 1, 0)
    return status === lua.LUA_OK ? toText(lua.lua_tostring(this.#L, -1)) : `handler threw a ${this.#vm.typeName(value)}`
  }

  /** @param {any} value - a table's TValue @returns {string | null} null when it says itself what it is */
  #ofTable(value) {
    const values = this.#values
    const { metatable } = value.value
    if (metatable !== null && values.get(metatable, '__tostring') !== undefined) return null
    for (const name of ['message', 'error']) {
      const field = values.get(value.value, name)
      if (field?.type === this.#vm.types.LUA_TLNGSTR) return toText(bytesOf(field.value))
    }
    try {
      const json = this.#writer.write(value)
      return `handler threw ${typeof json === 'string' ? Buffer.from(json, 'latin1') : json}`
    } catch {
      return 'handler threw a table'
    }
  }

  /** @param {any} L */
  #tostring = L => {
    this.#vm.lauxlib.luaL_tolstring(L, 1)
    return 1
  }
}

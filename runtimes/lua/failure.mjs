/** Protected calls, and Lua errors as the fields of an error. Page: runtime/lua-runtime. */

import { resolve } from 'node:path'
import { bytesOf, heightOf, push, topOf } from './stack.mjs'
import { toText } from './text.mjs'

const MAX_MESSAGE = 16 * 1024
const MAX_STACK_BYTES = 8 * 1024
/** Frames whose local variables are shown, variables of each, and characters of a value. */
const LOCALS = { frames: 4, variables: 10, characters: 60 }
/** `(` */
const PARENTHESIS = 40
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

/**
 * Where an error was raised first: a coroutine and an `error` that raises a caught error again put their own place before it.
 * @param {string} message
 * @returns {{ 0: string, 1: string, 2: string, end: number } | null} the place, its file, its line; and where the text behind it begins
 */
function toInnermostPlace(message) {
  let found = null
  let end = 0
  for (let match = PLACE.exec(message); match !== null; match = PLACE.exec(message.slice(end))) {
    end += match[0].length
    found = { 0: match[0], 1: /** @type {string} */ (match[1]), 2: /** @type {string} */ (match[2]), end }
  }
  return found
}

/**
 * The frames of a coroutine that failed are gone when its error arrives.
 * @param {string} traceback
 * @param {{ 1: string, 2: string } | null} place
 */
function withPlace(traceback, place) {
  if (place === null) return traceback
  const frame = `\t${place[1]}:${place[2]}: `
  return traceback.includes(`\n${frame}`) ? traceback : traceback.replace('\n', `\n${frame}raised here\n`)
}

/** Calls functions of one state, and describes what they raise. */
export class Failures {
  #vm
  #L
  #values
  #writer
  #root
  #showsLocals
  /** Traceback of the last error. */
  #stack = ''

  /**
   * @param {import('./sandbox.mjs').State} state
   * @param {string} root - functions root, full path
   * @param {boolean} showsLocals - true shows local variables in the stack, for the developer
   */
  constructor({ vm, L, values, writer }, root, showsLocals) {
    this.#vm = vm
    this.#L = L
    this.#values = values
    this.#writer = writer
    this.#root = root
    this.#showsLocals = showsLocals
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
    const said = toInnermostPlace(message)
    const place = said ?? TRACED_PLACE.exec(this.#stack)
    if (place !== null) {
      failure.file = resolve(this.#root, /** @type {string} */ (place[1]))
      failure.line = Number(place[2])
      // File and line have fields of their own, so the message need not repeat them. That of a load failure keeps them: it is
      // all that some readers see.
      if (code === 'exception' && said !== null) failure.message = message.slice(said.end)
    }
    if (this.#stack !== '') failure.stack = toUsersFrames(withPlace(this.#stack, said))
    const hint = HINTS.find(([pattern]) => pattern.test(message))
    if (hint !== undefined) failure.hint = hint[1]
    return failure
  }

  /** Keeps the traceback of an error while its stack still stands. @param {any} L */
  #handleMessage = L => {
    const { lua, lauxlib } = this.#vm
    lauxlib.luaL_traceback(L, L, null, 1)
    const traceback = toText(lua.lua_tostring(L, -1)).replaceAll('[JS]', '[C]')
    this.#stack = this.#showsLocals ? this.#addLocals(L, traceback) : traceback
    lua.lua_settop(L, 1)
    return 1
  }

  /** Below each line of a traceback the local variables of its function. @param {any} L @param {string} traceback */
  #addLocals(L, traceback) {
    let frames = 0
    const lines = traceback.split('\n').map((line, level) => {
      // The first line is the title, so that the number of a line is its level.
      if (level === 0 || line.startsWith('\t[C]: ') || frames === LOCALS.frames) return line
      frames += 1
      return [line, ...this.#listLocals(L, level)].join('\n')
    })
    return lines.join('\n')
  }

  /** @param {any} L @param {number} level @returns {string[]} */
  #listLocals(L, level) {
    const { lua } = this.#vm
    const frame = new lua.lua_Debug()
    const found = []
    if (!lua.lua_getstack(L, level, frame)) return []
    for (let n = 1; found.length < LOCALS.variables; n++) {
      const name = lua.lua_getlocal(L, frame, n)
      if (name === null) break
      // Others are the interpreter's own, such as `(*temporary)`.
      if (name[0] !== PARENTHESIS) found.push(`\t\t${toText(name)} = ${this.#show(L)}`)
      lua.lua_settop(L, -2)
    }
    return found
  }

  /** The value on top of the stack, without a call of its `__tostring`. @param {any} L */
  #show(L) {
    const { lua } = this.#vm
    const type = lua.lua_type(L, -1)
    if (type === lua.LUA_TNIL) return 'nil'
    if (type === lua.LUA_TBOOLEAN) return String(lua.lua_toboolean(L, -1))
    if (type === lua.LUA_TNUMBER) return toText(lua.lua_tostring(L, -1))
    if (type !== lua.LUA_TSTRING) return this.#vm.typeName(topOf(L))
    const text = toText(bytesOf(topOf(L).value).subarray(0, LOCALS.characters * 4))
    return JSON.stringify(text.length > LOCALS.characters ? `${text.slice(0, LOCALS.characters)}...` : text)
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

/** Handler file and symbol -> callable, and Lua errors as the fields of an error. Pages: discovery/callable, runtime/lua-runtime. */

import { resolve } from 'node:path'
import { SourceError } from './files.mjs'
import { LuaTable, toBytes, toText } from './vm.mjs'

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

/** A function that cannot be loaded, with what is wrong and how to mend it. */
export class LoadError extends Error {
  /** @param {Failure} failure */
  constructor(failure) {
    super(failure.message)
    this.failure = failure
  }
}

/**
 * @param {import('./sandbox.mjs').State} state
 * @param {import('./files.mjs').SourceFiles} files
 * @param {import('./event.mjs').FunctionStart} fn
 */
export function createLoader(state, files, fn) {
  const { vm, L, values, writer } = state
  const { lua, lauxlib } = vm
  const entryName = files.nameOf(fn.entry)
  let stack = ''

  /** Keeps the traceback of an error while its stack still stands. @param {any} L */
  const handleMessage = L => {
    lauxlib.luaL_traceback(L, L, null, 1)
    stack = toText(lua.lua_tostring(L, -1)).replaceAll('[JS]', '[C]')
    lua.lua_settop(L, 1)
    return 1
  }

  /** An error value as text: its own, its `__tostring`, its field `message` or `error`, or its JSON. @param {any} value */
  const describe = value => {
    if (value === undefined || values.isNil(value)) return 'error(nil)'
    if (value.type === vm.types.LUA_TTABLE) {
      const { metatable } = value.value
      if (metatable === null || values.get(metatable, '__tostring') === undefined) {
        for (const name of ['message', 'error']) {
          const field = values.get(value.value, name)
          if (field?.type === vm.types.LUA_TLNGSTR) return toText(field.value.realstring)
        }
        try {
          const json = writer.write(value)
          return `handler threw ${typeof json === 'string' ? Buffer.from(json, 'latin1') : json}`
        } catch {
          return 'handler threw a table'
        }
      }
    }
    L.stack[L.top] = new vm.TValue(value.type, value.value)
    L.top++
    lua.lua_pushcfunction(L, tostring)
    lua.lua_insert(L, -2)
    const status = lua.lua_pcall(L, 1, 1, 0)
    return status === lua.LUA_OK ? toText(lua.lua_tostring(L, -1)) : `handler threw a ${vm.typeName(value)}`
  }

  /** @param {any} L */
  const tostring = L => {
    lauxlib.luaL_tolstring(L, 1)
    return 1
  }

  /**
   * Calls the function below its arguments on the stack.
   * @param {number} count - arguments
   * @param {string} code - of a failure
   * @returns {Failure | null} null with the first result on top of the stack
   */
  const run = (count, code) => {
    stack = ''
    const base = L.top - count - 1
    lua.lua_pushcfunction(L, handleMessage)
    lua.lua_insert(L, 1)
    const status = lua.lua_pcall(L, count, 1, 1)
    if (status === lua.LUA_OK) return null
    const failure = toFailure(code, L.top > base ? L.stack[L.top - 1] : undefined)
    lua.lua_settop(L, 0)
    return failure
  }

  /** @param {string} code @param {any} value - the error's TValue @returns {Failure} */
  const toFailure = (code, value) => {
    const text = describe(value)
    const message = text.length > MAX_MESSAGE ? `${text.slice(0, MAX_MESSAGE)}...` : text
    /** @type {Failure} */
    const failure = { code, message }
    const place = PLACE.exec(message) ?? TRACED_PLACE.exec(stack)
    if (place !== null) {
      failure.file = resolve(fn.root, /** @type {string} */ (place[1]))
      failure.line = Number(place[2])
      // Told beside the message, it need not be in it, unless nothing else says where a file cannot be loaded.
      if (code === 'exception' && message.startsWith(place[0])) failure.message = message.slice(place[0].length)
    }
    if (stack !== '') failure.stack = toUsersFrames(stack)
    const hint = HINTS.find(([pattern]) => pattern.test(message))
    if (hint !== undefined) failure.hint = hint[1]
    return failure
  }

  /** Global functions that the handler file defined. @param {ReadonlySet<string>} before */
  const newGlobals = before => {
    const names = []
    for (let entry = globals().f; entry !== undefined; entry = entry.n) {
      if (entry.key.type !== vm.types.LUA_TLNGSTR || !entry.value.ttisfunction()) continue
      const name = toText(entry.key.value.realstring)
      if (!before.has(name)) names.push(name)
    }
    return names
  }

  /** @returns {LuaTable} */
  const globals = () => {
    lua.lua_pushglobaltable(L)
    const { value } = L.stack[L.top - 1]
    lua.lua_settop(L, -2)
    return value
  }

  const globalNames = () => {
    const names = new Set()
    for (let entry = globals().f; entry !== undefined; entry = entry.n) {
      if (entry.key.type === vm.types.LUA_TLNGSTR) names.add(toText(entry.key.value.realstring))
    }
    return names
  }

  /** @param {any} holder - a TValue @param {string} name @returns {any} a TValue that can be called, or undefined */
  const memberOf = (holder, name) => {
    const member = holder?.type === vm.types.LUA_TTABLE ? values.get(holder.value, name) : undefined
    return member !== undefined && isCallable(member) ? member : undefined
  }

  /** @param {any} value */
  const isCallable = value =>
    value.ttisfunction() ||
    (value.type === vm.types.LUA_TTABLE &&
      value.value.metatable !== null &&
      values.get(value.value.metatable, '__call') !== undefined)

  /**
   * @param {any} returned - what the file returned, a TValue
   * @param {ReadonlySet<string>} before - names of globals before it ran
   */
  const findCallable = (returned, before) => {
    const { names: wantedNames } = fn.callable
    // One name alone was chosen by the function's config, and nothing replaces it.
    const isChosen = wantedNames.length === 1
    if (!isChosen && returned.ttisfunction()) return returned
    for (const holder of [returned, values.ofTable(globals())]) {
      for (const name of wantedNames) {
        const found = memberOf(holder, name)
        if (found !== undefined) return found
      }
    }
    if (!isChosen && isCallable(returned)) return returned
    const [wanted = ''] = wantedNames
    const names = [...newGlobals(before), ...functionsOf(returned)]
    const listed = names.length === 0 ? 'it defines none' : `it defines ${names.sort().slice(0, 20).join(', ')}`
    throw new LoadError({
      code: 'load',
      message: `${entryName} has no function "${wanted}" (${listed})`,
      file: fn.entry,
      hint: isLocal(wanted)
        ? `"${wanted}" is local: remove "local", or end the file with "return ${wanted}"`
        : `add function ${wanted}(event, params) ... end, or name another function in invoke.handler`,
    })
  }

  /** @param {any} value @returns {string[]} */
  const functionsOf = value => {
    const names = []
    if (value.type === vm.types.LUA_TTABLE) {
      for (let entry = value.value.f; entry !== undefined; entry = entry.n) {
        if (entry.key.type === vm.types.LUA_TLNGSTR && entry.value.ttisfunction()) {
          names.push(toText(entry.key.value.realstring))
        }
      }
    }
    return names
  }

  /** @param {string} name */
  const isLocal = name => {
    const text = toText(files.read(fn.entry)?.text ?? toBytes(''))
    return new RegExp(`^\\s*local\\s+(?:function\\s+)?${name}\\b`, 'm').test(text)
  }

  /** @param {string} message @param {string} [hint] @returns {never} */
  const refuse = (message, hint) => {
    throw new LoadError({ code: 'load', message, file: fn.entry, ...(hint === undefined ? {} : { hint }) })
  }

  const readEntry = () => {
    try {
      return files.read(fn.entry) ?? refuse(`handler file ${entryName} does not exist`)
    } catch (error) {
      if (error instanceof SourceError) refuse(error.message)
      throw error
    }
  }

  return {
    run,
    /**
     * @returns {any} the callable, a TValue
     * @throws {LoadError}
     */
    load: () => {
      if (fn.adapter !== null && fn.adapter !== 'native') {
        refuse(`adapter "${fn.adapter}" is not available in lua`, 'remove invoke.adapter')
      }
      const source = readEntry()
      if (!state.compileFile(L, source)) {
        const failure = toFailure('load', L.stack[L.top - 1])
        lua.lua_settop(L, 0)
        throw new LoadError({
          ...failure,
          file: failure.file ?? fn.entry,
          message: `syntax error in ${failure.message}`,
        })
      }
      const before = globalNames()
      const failure = run(0, 'load')
      if (failure !== null)
        throw new LoadError({ file: fn.entry, ...failure, message: `cannot load ${failure.message}` })
      const returned = L.stack[L.top - 1]
      lua.lua_settop(L, 0)
      // A copy: the handler may assign another function to its name later.
      const { type, value } = findCallable(returned, before)
      return new vm.TValue(type, value)
    },
  }
}

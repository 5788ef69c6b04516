/**
 * `load`, `loadstring`, `loadfile`, `dofile`, `require` and `package`: source text only, from local files only.
 * Owner: page runtime/lua-runtime.
 */

import { MAX_SOURCE_BYTES, SourceError } from './files.mjs'
import { LuaTable, toBytes, toText } from './vm.mjs'

const EMPTY = toBytes('')
const FORMAT_TEXT = toBytes('%s')

/** @typedef {ReturnType<typeof createChunks>} Chunks */

/**
 * @param {any} vm - from `loadVm`
 * @param {any} state
 * @param {import('./guard.mjs').Guard} guard
 * @param {import('./values.mjs').Values} values
 * @param {import('./sandbox.mjs').Host} host
 */
export function createChunks(vm, state, guard, values, host) {
  const { lua, lauxlib } = vm
  lauxlib.luaL_getsubtable(state, lua.LUA_REGISTRYINDEX, lauxlib.LUA_LOADED_TABLE)
  /** @type {LuaTable} the handler may replace `package.loaded`, not this */
  const loaded = state.stack[state.top - 1].value
  lua.lua_settop(state, 0)
  const preload = new LuaTable(state)

  /** @param {any} L @param {string} message @returns {never} */
  const raise = (L, message) => {
    lauxlib.luaL_error(L, FORMAT_TEXT, toBytes(message))
    throw new Error('luaL_error came back')
  }

  /** @param {any} L @param {any} value - a TValue */
  const push = (L, value) => {
    L.stack[L.top] = new vm.TValue(value.type, value.value)
    L.top++
  }

  /** nil and a message, the way `load` reports. @param {any} L @param {string} message */
  const pushFailure = (L, message) => {
    lua.lua_pushnil(L)
    lua.lua_pushstring(L, toBytes(message))
    return 2
  }

  /**
   * @param {any} L
   * @param {Uint8Array} text
   * @param {Uint8Array} chunkName
   * @returns {boolean} true with the function on top of the stack, else false with a message there
   */
  const compile = (L, text, chunkName) => {
    if (text.length > MAX_SOURCE_BYTES) {
      lua.lua_pushstring(L, toBytes(`source text of ${text.length} bytes is longer than ${MAX_SOURCE_BYTES}`))
      return false
    }
    const status = lauxlib.luaL_loadbufferx(L, text, text.length, chunkName, toBytes('t'))
    guard.poll()
    return status === lua.LUA_OK
  }

  /** @param {any} L @param {import('./files.mjs').Source} source */
  const compileFile = (L, source) => compile(L, source.text, toBytes(`@${source.name}`))

  /** @param {any} L @param {boolean} done - whether a function is on top @param {number} env - index of its environment, or 0 */
  const finishLoad = (L, done, env) => {
    if (!done) {
      lua.lua_pushnil(L)
      lua.lua_insert(L, -2)
      return 2
    }
    if (env !== 0) {
      lua.lua_pushvalue(L, env)
      if (!lua.lua_setupvalue(L, -2, 1)) lua.lua_settop(L, -2)
    }
    return 1
  }

  /** The pieces of a reader function, joined. @param {any} L @returns {Uint8Array} */
  const readPieces = L => {
    /** @type {Uint8Array[]} */
    const pieces = []
    let size = 0
    for (;;) {
      lua.lua_pushvalue(L, 1)
      lua.lua_call(L, 0, 1)
      const piece = lua.lua_isnil(L, -1) ? EMPTY : lua.lua_tostring(L, -1)
      lua.lua_settop(L, -2)
      if (piece === null) raise(L, 'reader function must return a string')
      if (piece.length === 0) return Buffer.concat(pieces, size)
      size += piece.length
      if (size > MAX_SOURCE_BYTES) raise(L, `source text is longer than ${MAX_SOURCE_BYTES} bytes`)
      pieces.push(piece)
    }
  }

  /** @param {any} L */
  const load = L => {
    const text = lua.lua_tostring(L, 1)
    const chunkName = lauxlib.luaL_optstring(L, 2, text ?? toBytes('=(load)'))
    const mode = toText(lauxlib.luaL_optstring(L, 3, toBytes('t')))
    const env = lua.lua_isnone(L, 4) ? 0 : 4
    if (text === null) lauxlib.luaL_checktype(L, 1, lua.LUA_TFUNCTION)
    if (!mode.includes('t')) return pushFailure(L, 'bytecode is not accepted: load source text')
    return finishLoad(L, compile(L, text ?? readPieces(L), chunkName), env)
  }

  /** @param {any} L @returns {import('./files.mjs').Source | string} the source, or why there is none */
  const findFile = L => {
    const path = toText(lauxlib.luaL_checkstring(L, 1))
    const { files } = host
    try {
      return files.read(files.fullPath(path)) ?? `cannot read ${path}: no such file`
    } catch (error) {
      if (error instanceof SourceError) return error.message
      throw error
    }
  }

  /** @param {any} L */
  const loadfile = L => {
    const env = lua.lua_isnone(L, 3) ? 0 : 3
    const source = findFile(L)
    if (typeof source === 'string') return pushFailure(L, source)
    return finishLoad(L, compileFile(L, source), env)
  }

  /** @param {any} L */
  const dofile = L => {
    const source = findFile(L)
    if (typeof source === 'string') return raise(L, source)
    lua.lua_settop(L, 0)
    if (!compileFile(L, source)) return lua.lua_error(L)
    lua.lua_callk(L, 0, lua.LUA_MULTRET, 0, lua.lua_gettop)
    return lua.lua_gettop(L)
  }

  /** Puts the function of a module file on the stack. @param {any} L @param {string} name */
  const openModule = (L, name) => {
    const { files } = host
    let tried = ''
    try {
      for (const path of files.candidates(name)) {
        const source = files.read(path)
        if (source !== null) {
          if (compileFile(L, source)) return
          raise(L, `error loading module '${name}': ${toText(lua.lua_tostring(L, -1))}`)
        }
        tried += `\n\tno file '${files.nameOf(path)}'`
      }
    } catch (error) {
      if (error instanceof SourceError) raise(L, `module '${name}' cannot be loaded: ${error.message}`)
      throw error
    }
    raise(L, `module '${name}' not found:${tried}`)
  }

  /** @param {any} L */
  const require = L => {
    const name = toText(lauxlib.luaL_checkstring(L, 1))
    const known = values.get(loaded, name)
    if (known !== undefined && !known.l_isfalse()) {
      push(L, known)
      return 1
    }
    lua.lua_settop(L, 1)
    const opener = values.get(preload, name)
    if (opener === undefined) openModule(L, name)
    else push(L, opener)
    lua.lua_pushvalue(L, 1)
    lua.lua_call(L, 1, 1)
    // A module may also put its value into package.loaded itself.
    const result = lua.lua_isnil(L, -1) ? (values.get(loaded, name) ?? values.ofBoolean(true)) : L.stack[L.top - 1]
    values.set(loaded, name, result)
    push(L, result)
    return 1
  }

  return {
    compileFile,
    raise,
    globals: { load, loadstring: load, loadfile, dofile, require },
    /** Puts the `package` table on the stack. */
    pushPackage: () => {
      const table = new LuaTable(state)
      values.put(table, 'loaded', values.ofTable(loaded))
      values.put(table, 'preload', values.ofTable(preload))
      values.put(table, 'path', values.ofText('?.lua;?/init.lua'))
      values.put(table, 'config', values.ofText('/\n;\n?\n!\n-\n'))
      push(state, values.ofTable(table))
    },
    /** @param {string} name @param {(L: any) => number} opener - runs at the first `require` */
    preload: (name, opener) => values.put(preload, name, values.ofFunction(opener)),
    /** @param {string} name @param {any} value - what `require` gives */
    provide: (name, value) => values.set(loaded, name, value),
  }
}

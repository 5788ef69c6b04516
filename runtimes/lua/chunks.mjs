/**
 * `load`, `loadstring`, `loadfile`, `dofile`, `require` and `package`: source text only, from local files only.
 * Owner: page runtime/lua-runtime.
 */

import { MAX_SOURCE_BYTES, SourceError } from './files.mjs'
import { isFalse, push, topOf } from './stack.mjs'
import { LuaTable } from './table.mjs'
import { toBytes, toText } from './text.mjs'

const EMPTY = toBytes('')
const FORMAT_TEXT = toBytes('%s')

/** Compiles and runs source text for one state. */
export class Chunks {
  #lua
  #lauxlib
  #state
  #guard
  #values
  #host
  /** The handler may replace `package.loaded`, not this. @type {LuaTable} */
  #loaded
  /** @type {LuaTable} */
  #preload

  /**
   * @param {any} vm - from `loadVm`
   * @param {any} state
   * @param {import('./guard.mjs').Guard} guard
   * @param {import('./values.mjs').Values} values
   * @param {import('./sandbox.mjs').Host} host
   */
  constructor(vm, state, guard, values, host) {
    const { lua, lauxlib } = vm
    this.#lua = lua
    this.#lauxlib = lauxlib
    this.#state = state
    this.#guard = guard
    this.#values = values
    this.#host = host
    lauxlib.luaL_getsubtable(state, lua.LUA_REGISTRYINDEX, lauxlib.LUA_LOADED_TABLE)
    this.#loaded = topOf(state).value
    lua.lua_settop(state, 0)
    this.#preload = new LuaTable(state)
  }

  /** Global functions. @returns {Record<string, (L: any) => number>} */
  get globals() {
    return {
      load: this.#load,
      loadstring: this.#load,
      loadfile: this.#loadfile,
      dofile: this.#dofile,
      require: this.#require,
    }
  }

  /** Puts the `package` table on the stack. */
  pushPackage() {
    const values = this.#values
    const table = new LuaTable(this.#state)
    values.put(table, 'loaded', values.ofTable(this.#loaded))
    values.put(table, 'preload', values.ofTable(this.#preload))
    values.put(table, 'path', values.ofText('?.lua;?/init.lua'))
    values.put(table, 'config', values.ofText('/\n;\n?\n!\n-\n'))
    push(this.#state, values.ofTable(table))
  }

  /** @param {string} name @param {(L: any) => number} opener - runs at the first `require` */
  preload(name, opener) {
    this.#values.put(this.#preload, name, this.#values.ofFunction(opener))
  }

  /** @param {string} name @param {any} value - what `require` gives */
  provide(name, value) {
    this.#values.set(this.#loaded, name, value)
  }

  /** @param {any} L @param {string} message @returns {never} */
  raise(L, message) {
    this.#lauxlib.luaL_error(L, FORMAT_TEXT, toBytes(message))
    throw new Error('luaL_error came back')
  }

  /**
   * @param {any} L
   * @param {import('./files.mjs').Source} source
   * @returns {boolean} true with the function on top of the stack, else false with a message there
   */
  compileFile(L, source) {
    return this.#compile(L, source.text, toBytes(`@${source.name}`))
  }

  /** @param {any} L @param {Uint8Array} text @param {Uint8Array} chunkName @returns {boolean} as `compileFile` */
  #compile(L, text, chunkName) {
    if (text.length > MAX_SOURCE_BYTES) {
      this.#lua.lua_pushstring(L, toBytes(`source text of ${text.length} bytes is longer than ${MAX_SOURCE_BYTES}`))
      return false
    }
    const status = this.#lauxlib.luaL_loadbufferx(L, text, text.length, chunkName, toBytes('t'))
    this.#guard.poll()
    return status === this.#lua.LUA_OK
  }

  /** nil and a message, the way `load` reports. @param {any} L @param {string} message */
  #pushFailure(L, message) {
    this.#lua.lua_pushnil(L)
    this.#lua.lua_pushstring(L, toBytes(message))
    return 2
  }

  /** @param {any} L @param {boolean} done - whether a function is on top @param {number} env - index of its environment, or 0 */
  #finishLoad(L, done, env) {
    const lua = this.#lua
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
  #readPieces(L) {
    const lua = this.#lua
    /** @type {Uint8Array[]} */
    const pieces = []
    let size = 0
    for (;;) {
      lua.lua_pushvalue(L, 1)
      lua.lua_call(L, 0, 1)
      const piece = lua.lua_isnil(L, -1) ? EMPTY : lua.lua_tostring(L, -1)
      lua.lua_settop(L, -2)
      if (piece === null) this.raise(L, 'reader function must return a string')
      if (piece.length === 0) return Buffer.concat(pieces, size)
      size += piece.length
      if (size > MAX_SOURCE_BYTES) this.raise(L, `source text is longer than ${MAX_SOURCE_BYTES} bytes`)
      pieces.push(piece)
    }
  }

  /** @param {any} L */
  #load = L => {
    const lua = this.#lua
    const lauxlib = this.#lauxlib
    const text = lua.lua_tostring(L, 1)
    const chunkName = lauxlib.luaL_optstring(L, 2, text ?? toBytes('=(load)'))
    const mode = toText(lauxlib.luaL_optstring(L, 3, toBytes('t')))
    const env = lua.lua_isnone(L, 4) ? 0 : 4
    if (text === null) lauxlib.luaL_checktype(L, 1, lua.LUA_TFUNCTION)
    if (!mode.includes('t')) return this.#pushFailure(L, 'bytecode is not accepted: load source text')
    return this.#finishLoad(L, this.#compile(L, text ?? this.#readPieces(L), chunkName), env)
  }

  /** @param {any} L */
  #loadfile = L => {
    const env = this.#lua.lua_isnone(L, 3) ? 0 : 3
    const source = this.#findFile(L)
    if (typeof source === 'string') return this.#pushFailure(L, source)
    return this.#finishLoad(L, this.compileFile(L, source), env)
  }

  /** @param {any} L */
  #dofile = L => {
    const lua = this.#lua
    const source = this.#findFile(L)
    if (typeof source === 'string') return this.raise(L, source)
    lua.lua_settop(L, 0)
    if (!this.compileFile(L, source)) return lua.lua_error(L)
    lua.lua_callk(L, 0, lua.LUA_MULTRET, 0, lua.lua_gettop)
    return lua.lua_gettop(L)
  }

  /** @param {any} L @returns {import('./files.mjs').Source | string} the source, or why there is none */
  #findFile(L) {
    const path = toText(this.#lauxlib.luaL_checkstring(L, 1))
    const { files } = this.#host
    try {
      return files.read(files.fullPath(path)) ?? `cannot read ${path}: no such file`
    } catch (error) {
      if (error instanceof SourceError) return error.message
      throw error
    }
  }

  /** @param {any} L */
  #require = L => {
    const lua = this.#lua
    const values = this.#values
    const name = toText(this.#lauxlib.luaL_checkstring(L, 1))
    const known = values.get(this.#loaded, name)
    if (known !== undefined && !isFalse(known)) return push(L, values.copy(known))
    lua.lua_settop(L, 1)
    const opener = values.get(this.#preload, name)
    if (opener === undefined) this.#openModule(L, name)
    else push(L, values.copy(opener))
    lua.lua_pushvalue(L, 1)
    lua.lua_call(L, 1, 1)
    // A module may also put its value into package.loaded itself.
    const result = lua.lua_isnil(L, -1) ? (values.get(this.#loaded, name) ?? values.ofBoolean(true)) : topOf(L)
    values.set(this.#loaded, name, result)
    return push(L, values.copy(result))
  }

  /** Puts the function of a module file on the stack. @param {any} L @param {string} name */
  #openModule(L, name) {
    const { files } = this.#host
    let tried = ''
    try {
      for (const path of files.candidates(name)) {
        const source = files.read(path)
        if (source !== null) {
          if (this.compileFile(L, source)) return
          this.raise(L, `error loading module '${name}': ${toText(this.#lua.lua_tostring(L, -1))}`)
        }
        tried += `\n\tno file '${files.nameOf(path)}'`
      }
    } catch (error) {
      if (error instanceof SourceError) this.raise(L, `module '${name}' cannot be loaded: ${error.message}`)
      throw error
    }
    this.raise(L, `module '${name}' not found:${tried}`)
  }
}
